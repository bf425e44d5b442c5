package sandbox

import "slices"

func createIntent(x *call, _ []string) (answer, bool) {
	amount, currency, a, ok := x.money()
	if !ok {
		return a, false
	}
	outcome, found, a, ok := x.card()
	if !ok {
		return a, false
	}
	confirm := x.last("confirm") == "true"
	if confirm && !found {
		return answerError(400, "invalid_request_error", "parameter_missing", "You cannot confirm without a payment method.", "param", "payment_method"), false
	}
	capture := x.last("capture_method")
	if capture == "" {
		capture = "automatic"
	}
	pi := x.make("payment_intent", "pi", map[string]any{
		"amount": amount, "currency": currency, "amount_received": int64(0), "amount_capturable": int64(0),
		"capture_method": capture, "status": "requires_payment_method", "payment_method": nil, "last_payment_error": nil,
		"latest_charge": nil, "next_action": nil, "canceled_at": nil, "description": x.last("description"), "metadata": x.metadata(nil),
	})
	pi.fields["client_secret"] = pi.id + "_secret_sandbox"
	if found {
		pi.fields["status"], pi.fields["payment_method"], pi.fields["sandbox_outcome"] = "requires_confirmation", "pm_sandbox", outcome
	}
	if !confirm {
		x.book("payment_intents.create", pi, amount, false)
		return shown(pi), true
	}
	return x.confirm(pi, outcome, "payment_intents.create"), true
}

func confirmIntent(x *call, ids []string) (answer, bool) {
	pi, a := x.find("payment_intent", ids[0])
	if pi == nil {
		return a, false
	}
	outcome, found, a, ok := x.card()
	if !ok {
		return a, false
	}
	if !slices.Contains([]string{"requires_payment_method", "requires_confirmation", "requires_action"}, pi.str("status")) {
		return unexpected(pi), true
	}
	if !found {
		if pi.str("status") == "requires_payment_method" {
			return answerError(400, "invalid_request_error", "parameter_missing", "You cannot confirm without a payment method.", "param", "payment_method"), false
		}
		if outcome == "" {
			outcome = pi.str("sandbox_outcome")
		}
	}
	return x.confirm(pi, outcome, "payment_intents.confirm"), true
}

func unexpected(pi *object) answer {
	return answerError(400, "invalid_request_error", "payment_intent_unexpected_state", "This PaymentIntent has a status of "+pi.str("status")+".", "payment_intent", pi.fields)
}

// confirm runs the card.
func (x *call) confirm(pi *object, outcome, kind string) answer {
	pi.fields["last_payment_error"] = nil
	switch {
	case outcome == "action":
		pi.fields["status"] = "requires_action"
		pi.fields["next_action"] = map[string]any{"type": "use_stripe_sdk"}
		x.book(kind, pi, pi.num("amount"), false)
		return shown(pi)
	case outcome == processing:
		ch := x.charge(pi.num("amount"), pi.str("currency"), true)
		ch.pend()
		ch.fields["payment_intent"] = pi.id
		pi.fields["status"], pi.fields["latest_charge"], pi.fields["next_action"] = "processing", ch.id, nil
		x.book(kind, pi, pi.num("amount"), true)
		return shown(pi)
	case outcome != "":
		pi.fields["status"], pi.fields["payment_method"] = "requires_payment_method", nil
		pi.fields["last_payment_error"] = map[string]any{"type": "card_error", "code": "card_declined", "decline_code": outcome}
		return declined(outcome, "payment_intent", pi.fields)
	}
	ch := x.charge(pi.num("amount"), pi.str("currency"), pi.str("capture_method") != "manual")
	ch.fields["payment_intent"] = pi.id
	pi.fields["latest_charge"], pi.fields["next_action"] = ch.id, nil
	if pi.str("capture_method") == "manual" {
		pi.fields["status"], pi.fields["amount_capturable"] = "requires_capture", pi.num("amount")
	} else {
		pi.fields["status"], pi.fields["amount_received"] = "succeeded", pi.num("amount")
	}
	x.book(kind, pi, pi.num("amount"), true)
	return shown(pi)
}

func captureIntent(x *call, ids []string) (answer, bool) {
	pi, a := x.find("payment_intent", ids[0])
	if pi == nil {
		return a, false
	}
	n, a, ok := x.amount("amount_to_capture", false)
	switch {
	case !ok:
		return a, false
	case pi.str("status") != "requires_capture":
		return unexpected(pi), true
	case n > pi.num("amount_capturable"):
		return answerError(400, "invalid_request_error", "amount_too_large", "You cannot capture more than is capturable."), true
	case n == 0:
		n = pi.num("amount_capturable")
	}
	meta, _ := pi.fields["metadata"].(map[string]any)
	pi.fields["metadata"] = x.metadata(meta)
	pi.fields["status"], pi.fields["amount_received"], pi.fields["amount_capturable"] = "succeeded", n, int64(0)
	if ch := x.s.objects[pi.str("latest_charge")]; ch != nil {
		ch.fields["captured"], ch.fields["amount_captured"] = true, n
	}
	x.book("payment_intents.capture", pi, n, true)
	return shown(pi), true
}

func cancelIntent(x *call, ids []string) (answer, bool) {
	pi, a := x.find("payment_intent", ids[0])
	if pi == nil {
		return a, false
	}
	if slices.Contains([]string{"succeeded", "canceled", "processing"}, pi.str("status")) {
		return unexpected(pi), true
	}
	pi.fields["status"], pi.fields["canceled_at"], pi.fields["amount_capturable"] = "canceled", x.s.now().Unix(), int64(0)
	x.book("payment_intents.cancel", pi, pi.num("amount"), false)
	return shown(pi), true
}
