package sandbox

// charge keeps a charge that went through.
func (x *call) charge(amount int64, currency string, captured bool) *object {
	got := amount
	if !captured {
		got = 0
	}
	return x.make("charge", "ch", map[string]any{
		"amount": amount, "currency": currency, "status": "succeeded", "paid": true, "captured": captured,
		"amount_captured": got, "amount_refunded": int64(0), "refunded": false, "payment_intent": nil,
	})
}

func createCharge(x *call, _ []string) (answer, bool) {
	amount, currency, a, ok := x.money()
	if !ok {
		return a, false
	}
	outcome, found, a, ok := x.card()
	switch {
	case !ok:
		return a, false
	case !found:
		return answerError(400, "invalid_request_error", "parameter_missing", "Must provide source or customer.", "param", "source"), false
	case outcome == "action":
		outcome = "authentication_required"
	}
	if outcome != "" && outcome != processing {
		ch := x.charge(amount, currency, false)
		ch.fields["status"], ch.fields["paid"], ch.fields["metadata"] = "failed", false, x.metadata(nil)
		return declined(outcome, "charge", ch.id), true
	}
	ch := x.charge(amount, currency, x.last("capture") != "false")
	ch.fields["metadata"] = x.metadata(nil)
	if outcome == processing {
		ch.pend()
	}
	x.book("charges.create", ch, amount, true)
	return shown(ch), true
}

func captureCharge(x *call, ids []string) (answer, bool) {
	ch, a := x.find("charge", ids[0])
	if ch == nil {
		return a, false
	}
	n, a, ok := x.amount("amount", false)
	switch {
	case !ok:
		return a, false
	case ch.fields["captured"] == true:
		return answerError(400, "invalid_request_error", "charge_already_captured", "Charge "+ch.id+" has already been captured."), true
	case n == 0:
		n = ch.num("amount")
	}
	ch.fields["captured"], ch.fields["amount_captured"] = true, n
	x.book("charges.capture", ch, n, true)
	return shown(ch), true
}

func createRefund(x *call, _ []string) (answer, bool) {
	id := x.last("charge")
	if pi := x.s.objects[x.last("payment_intent")]; pi != nil {
		id = pi.str("latest_charge")
	}
	ch, a := x.find("charge", id)
	if ch == nil {
		return a, false
	}
	n, a, ok := x.amount("amount", false)
	left := ch.num("amount_captured") - ch.num("amount_refunded")
	switch {
	case !ok:
		return a, false
	case left == 0:
		return answerError(400, "invalid_request_error", "charge_already_refunded", "Charge "+ch.id+" has already been refunded."), true
	case n > left:
		return answerError(400, "invalid_request_error", "", "Refund amount is greater than unrefunded amount on charge."), true
	case n == 0:
		n = left
	}
	ch.fields["amount_refunded"] = ch.num("amount_refunded") + n
	ch.fields["refunded"] = n == left
	re := x.make("refund", "re", map[string]any{
		"amount": n, "currency": ch.str("currency"), "charge": ch.id, "payment_intent": ch.fields["payment_intent"],
		"status": "succeeded", "metadata": x.metadata(nil),
	})
	if x.fs.has("processing") {
		re.fields["status"] = "pending"
	}
	x.book("refunds.create", re, n, true)
	return shown(re), true
}

func createTransfer(x *call, _ []string) (answer, bool) {
	return x.simple("transfers.create", "transfer", "tr", map[string]any{
		"destination": x.last("destination"), "amount_reversed": int64(0), "reversed": false,
	})
}

// simple makes an object of amount and currency that is done at once.
func (x *call) simple(op, kind, prefix string, fields map[string]any) (answer, bool) {
	amount, currency, a, ok := x.money()
	if !ok {
		return a, false
	}
	fields["amount"], fields["currency"], fields["metadata"] = amount, currency, x.metadata(nil)
	o := x.make(kind, prefix, fields)
	x.book(op, o, amount, true)
	return shown(o), true
}

func createReversal(x *call, ids []string) (answer, bool) {
	tr, a := x.find("transfer", ids[0])
	if tr == nil {
		return a, false
	}
	n, a, ok := x.amount("amount", false)
	left := tr.num("amount") - tr.num("amount_reversed")
	switch {
	case !ok:
		return a, false
	case n > left, left == 0:
		return answerError(400, "invalid_request_error", "", "The transfer has already been reversed."), true
	case n == 0:
		n = left
	}
	tr.fields["amount_reversed"], tr.fields["reversed"] = tr.num("amount_reversed")+n, n == left
	o := x.make("transfer_reversal", "trr", map[string]any{
		"amount": n, "currency": tr.str("currency"), "transfer": tr.id, "metadata": x.metadata(nil),
	})
	x.book("transfer_reversals.create", o, n, true)
	return shown(o), true
}

func createPayout(x *call, _ []string) (answer, bool) {
	status := "pending"
	if x.last("method") == "instant" {
		status = "paid"
	}
	return x.simple("payouts.create", "payout", "po", map[string]any{"status": status, "reversed_by": nil, "original_payout": nil})
}

func cancelPayout(x *call, ids []string) (answer, bool) {
	return x.move("payout", ids[0], "payouts.cancel", "pending", "canceled")
}

func createTopup(x *call, _ []string) (answer, bool) {
	return x.simple("topups.create", "topup", "tu", map[string]any{"status": "pending"})
}

func cancelTopup(x *call, ids []string) (answer, bool) {
	return x.move("topup", ids[0], "topups.cancel", "pending", "canceled")
}

// move changes an object's status.
func (x *call) move(kind, id, op, from, to string) (answer, bool) {
	o, a := x.find(kind, id)
	if o == nil {
		return a, false
	}
	if o.str("status") != from {
		return answerError(400, "invalid_request_error", "status_transition_invalid", "The "+kind+" has a status of "+o.str("status")+"."), true
	}
	o.fields["status"] = to
	x.book(op, o, o.num("amount"), true)
	return shown(o), true
}

// reversePayout takes a paid payout back.
func reversePayout(x *call, ids []string) (answer, bool) {
	po, a := x.find("payout", ids[0])
	if po == nil {
		return a, false
	}
	if po.fields["reversed_by"] != nil || po.str("status") != "paid" {
		return answerError(400, "invalid_request_error", "status_transition_invalid", "The payout cannot be reversed."), true
	}
	o := x.make("payout", "po", map[string]any{
		"amount": po.num("amount"), "currency": po.str("currency"), "status": "pending",
		"original_payout": po.id, "reversed_by": nil, "metadata": x.metadata(nil),
	})
	po.fields["reversed_by"] = o.id
	x.book("payouts.reverse", o, o.num("amount"), true)
	return shown(o), true
}
