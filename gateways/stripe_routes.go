package gateways

// stripeRoutes are Stripe's operations that move money, then the rest of the unsafe ones.
func stripeRoutes() []*Route {
	routes := []*Route{
		intentCreate(),
		intentConfirm(), intentCapture(), intentCancel(),
		stripeCreate("charges_create", "/v1/charges", "charge", chargePayment(), chargeCases()),
		chargeCapture(),
		undo(stripeCreate("refunds_create", "/v1/refunds", "refund", refundPayment(), refundCases())),
		refundCancel(),
		stripeCreate("transfers_create", "/v1/transfers", "transfer", transferPayment(), allDone()),
		undo(transferReversal()),
		stripeCreate("payouts_create", "/v1/payouts", "payout", payoutPayment(), payoutCases()),
		payoutCancel(), payoutReverse(),
		stripeCreate("topups_create", "/v1/topups", "topup", topupPayment(), topupCases()),
		topupCancel(),
	}
	routes = append(routes, stripeUndoes()...)
	routes = append(routes,
		stripePlain("post", "/v1/**"),
		// API v2 keeps keys in another way, DELETE takes none: no question can be asked by repeating.
		&Route{Name: "post_other", Method: "POST", Path: "/v2/**"},
		&Route{Name: "other", Method: "*", Path: "/**", Keyless: true},
	)
	return routes
}

// stripeUndoes are the older and rarer undoes: without a lookup, so that a repeat is the only question. They are all POSTs of
// the official Go SDK that refund, reverse, void or cancel money, and three paths that older SDKs had.
func stripeUndoes() []*Route {
	return []*Route{
		undo(stripePlain("charges_refund", "/v1/charges/{id}/refund")),
		undo(stripePlain("charges_refunds_create", "/v1/charges/{id}/refunds")),
		undo(stripePlain("application_fee_refund", "/v1/application_fees/{id}/refund")),
		undo(stripeMarked("application_fee_refunds_create", "/v1/application_fees/{id}/refunds")),
		undo(stripePlain("invoices_void", "/v1/invoices/{id}/void")),
		undo(stripeMarked("credit_notes_create", "/v1/credit_notes")),
		undo(stripePlain("credit_notes_void", "/v1/credit_notes/{id}/void")),
		undo(stripePlain("credit_grants_void", "/v1/billing/credit_grants/{id}/void")),
		undo(stripePlain("credit_grants_expire", "/v1/billing/credit_grants/{id}/expire")),
		undo(stripePlain("climate_orders_cancel", "/v1/climate/orders/{id}/cancel")),
		undo(stripeMarked("terminal_refund_payment", "/v1/terminal/readers/{id}/refund_payment")),
		undo(stripeMarked("treasury_credit_reversals_create", "/v1/treasury/credit_reversals")),
		undo(stripeMarked("treasury_debit_reversals_create", "/v1/treasury/debit_reversals")),
		undo(stripePlain("treasury_inbound_transfers_cancel", "/v1/treasury/inbound_transfers/{id}/cancel")),
		undo(stripePlain("treasury_outbound_payments_cancel", "/v1/treasury/outbound_payments/{id}/cancel")),
		undo(stripePlain("treasury_outbound_transfers_cancel", "/v1/treasury/outbound_transfers/{id}/cancel")),
	}
}

// stripeMarked is stripePlain that writes our reference where the body takes it, for people to find.
func stripeMarked(name, path string) *Route {
	r := stripePlain(name, path)
	r.Reference = stripeReference("fence_ref")
	r.Reference.Required = false
	return r
}

// stripePlain is a POST with the key, without a lookup.
func stripePlain(name, path string) *Route {
	return &Route{Name: name, Method: "POST", Path: path, Probe: true}
}

func undo(r *Route) *Route {
	r.Effect = EffectUndo
	return r
}

// stripeCreate makes an object that carries our reference, and is found by listing what was made since the first attempt.
// Lists are consistent with writes, unlike search (https://docs.stripe.com/search).
func stripeCreate(name, path, object string, pay *Payment, cases []Case) *Route {
	return &Route{
		Name: name, Method: "POST", Path: path, Probe: true,
		Reference: stripeReference("fence_ref"),
		Params:    map[string]string{"amount": "body:amount", "currency": "body:currency"},
		Answers:   stripeObject(object),
		Payment:   pay,
		Lookup:    stripeList(path, "?created%5Bgte%5D={since}&limit=100", object, cases),
	}
}

// stripeList: an item counts only if it would pass as the call's answer.
func stripeList(path, query, object string, cases []Case) *Lookup {
	return &Lookup{
		Kind: KindList, Target: path + query, Object: path + "/{object}", Items: "/data", ID: "/id",
		Is:        when(is("/object", "list")),
		Each:      when(is("/object", object), Condition{At: "/id"}, absent("/error"), absent("/deleted")),
		Reference: "/metadata/fence_ref", Amount: "/amount", Currency: "/currency",
		Cases: cases, Proves: true,
		Pages:  &Pages{More: "/has_more", Param: "starting_after", Max: 100},
		Answer: &FoundAnswer{},
	}
}

// stripeGet reads the object that the request named.
func stripeGet(target, object string, cases []Case) *Lookup {
	return &Lookup{
		Kind: KindGet, Target: target, ID: "/id", SameAs: "id",
		Is:    when(is("/object", object)),
		Cases: cases, Proves: true,
		Answer: &FoundAnswer{},
	}
}

// stripeAction is a POST on a named object, found by reading it.
func stripeAction(name, path, object, target string, pay *Payment, cases []Case) *Route {
	return &Route{
		Name: name, Method: "POST", Path: path, Probe: true,
		Params: map[string]string{"id": "path:id"}, Answers: stripeObject(object), Payment: pay,
		Lookup: stripeGet(target, object, cases),
	}
}

func intentPayment() *Payment {
	return &Payment{At: "/status", Values: map[string]string{
		"succeeded": "done", "requires_capture": "pending", "processing": "pending", "requires_action": "pending",
		"requires_confirmation": "pending", "requires_payment_method": "pending", "canceled": "reversed",
	}}
}

// intentCreate: where the call also confirms, the answer depends on a flag of the call.
func intentCreate() *Route {
	r := stripeCreate("payment_intents_create", "/v1/payment_intents", "payment_intent", intentPayment(), intentCases())
	r.Params["confirm"] = "body:confirm"
	return r
}

// intentCases: an intent that has an error and wants another method was declined; without one it was only created. If the
// call also confirms, that is half of it, and the other half may be under way; one that was canceled does not say whether
// it was confirmed before.
func intentCases() []Case {
	created := map[string][]string{"confirm": {"", "false"}}
	return []Case{
		{When: when(is("/status", "requires_payment_method", "requires_confirmation", "canceled")), Call: created, Is: CaseDone},
		{When: when(is("/status", "requires_payment_method"), absent("/last_payment_error")), Is: CaseBusy},
		{When: when(is("/status", "requires_confirmation")), Is: CaseBusy},
		{When: when(is("/status", "canceled")), Is: CaseBusy},
		{When: when(is("/status", "requires_payment_method")), Is: CaseFailed},
		{When: when(is("/status", "succeeded", "requires_capture", "processing", "requires_action")), Is: CaseDone},
	}
}

// intentConfirm: an error from an earlier confirm looks like one from this, so then nothing can be told.
func intentConfirm() *Route {
	r := stripeAction("payment_intents_confirm", "/v1/payment_intents/{id}/confirm", "payment_intent", "/v1/payment_intents/{id}", intentPayment(), []Case{
		{When: when(is("/status", "succeeded", "requires_capture", "processing", "requires_action")), Is: CaseDone},
		{When: when(is("/status", "requires_confirmation", "requires_payment_method")), Is: CaseBusy},
	})
	r.Lookup.Proves = false // an error is cleared by any later change of the intent, so that its state does not show what ran
	return r
}

// intentCapture demands our reference: somebody else may have captured. A part captured earlier (multicapture) hides
// whether this one ran.
func intentCapture() *Route {
	r := stripeAction("payment_intents_capture", "/v1/payment_intents/{id}/capture", "payment_intent", "/v1/payment_intents/{id}", intentPayment(), []Case{
		{When: when(is("/status", "succeeded")), Reference: "ours", Is: CaseDone},
		{When: when(is("/status", "requires_capture"), is("/amount_received", "0")), Reference: "none", Is: CaseMissed},
	})
	r.Params["amount"] = "body:amount_to_capture"
	r.Reference = stripeReference("fence_capture_ref")
	r.Lookup.Reference, r.Lookup.Amount = "/metadata/fence_capture_ref", "/amount_received"
	return r
}

func intentCancel() *Route {
	return undo(stripeAction("payment_intents_cancel", "/v1/payment_intents/{id}/cancel", "payment_intent", "/v1/payment_intents/{id}",
		&Payment{At: "/status", Values: map[string]string{"canceled": "done"}}, []Case{
			{When: when(is("/status", "canceled")), Is: CaseDone},
			{When: when(is("/status", "requires_capture", "requires_action", "requires_confirmation", "requires_payment_method")), Is: CaseMissed},
			{When: when(is("/status", "processing")), Is: CaseBusy},
		}))
}

func chargePayment() *Payment {
	return &Payment{At: "/status", Values: map[string]string{"succeeded": "done", "pending": "pending", "failed": "failed"}}
}

func chargeCases() []Case {
	return []Case{
		{When: when(is("/status", "succeeded", "pending")), Is: CaseDone},
		{When: when(is("/status", "failed")), Is: CaseFailed},
	}
}

// chargeCapture: the capture takes no metadata, so that a captured charge tells by its amount only.
func chargeCapture() *Route {
	r := stripeAction("charges_capture", "/v1/charges/{id}/capture", "charge", "/v1/charges/{id}", chargePayment(), []Case{
		{When: when(is("/captured", "true")), Is: CaseDone, Payment: "done"},
		{When: when(is("/captured", "false"), is("/refunded", "false"), is("/amount_refunded", "0"), is("/status", "succeeded")), Is: CaseMissed},
	})
	r.Params["amount"] = "body:amount"
	r.Lookup.Amount, r.Lookup.Whole = "/amount_captured", "/amount"
	return r
}

func refundPayment() *Payment {
	return &Payment{At: "/status", Values: map[string]string{
		"succeeded": "done", "pending": "pending", "requires_action": "pending", "failed": "failed", "canceled": "reversed",
	}}
}

func refundCases() []Case {
	return []Case{
		{When: when(is("/status", "succeeded", "pending", "requires_action")), Is: CaseDone},
		{When: when(is("/status", "failed", "canceled")), Is: CaseFailed},
	}
}

func refundCancel() *Route {
	return stripeAction("refunds_cancel", "/v1/refunds/{id}/cancel", "refund", "/v1/refunds/{id}",
		&Payment{At: "/status", Values: map[string]string{"canceled": "done"}}, []Case{
			{When: when(is("/status", "canceled")), Is: CaseDone},
			{When: when(is("/status", "requires_action")), Is: CaseMissed},
		})
}

// allDone takes an object for done that is made complete or not at all.
func allDone() []Case { return []Case{{When: when(Condition{At: "/id"}), Is: CaseDone}} }

func transferPayment() *Payment {
	return &Payment{At: "/reversed", Values: map[string]string{"false": "done", "true": "reversed"}}
}

func transferReversal() *Route {
	r := stripeCreate("transfer_reversals_create", "/v1/transfers/{id}/reversals", "transfer_reversal", nil, allDone())
	r.Payment = &Payment{At: "/object", Values: map[string]string{"transfer_reversal": "done"}}
	r.Params = map[string]string{"id": "path:id", "amount": "body:amount"}
	r.Lookup = stripeList("/v1/transfers/{id}/reversals", "?limit=100", "transfer_reversal", allDone())
	return r
}

func payoutPayment() *Payment {
	return &Payment{At: "/status", Values: map[string]string{
		"paid": "done", "pending": "pending", "in_transit": "pending", "failed": "failed", "canceled": "reversed",
	}}
}

// payoutCases: a payout that failed was made first, and its money came back; it was not refused.
func payoutCases() []Case {
	return []Case{{When: when(is("/status", "paid", "pending", "in_transit", "failed", "canceled")), Is: CaseDone}}
}

func payoutCancel() *Route {
	return undo(stripeAction("payouts_cancel", "/v1/payouts/{id}/cancel", "payout", "/v1/payouts/{id}",
		&Payment{At: "/status", Values: map[string]string{"canceled": "done"}}, []Case{
			{When: when(is("/status", "canceled")), Is: CaseDone},
			{When: when(is("/status", "pending")), Is: CaseMissed},
			{When: when(is("/status", "in_transit")), Is: CaseBusy},
		}))
}

// payoutReverse makes another payout; the first one names it. The answer would be the other one, so none is made.
func payoutReverse() *Route {
	r := undo(stripeAction("payouts_reverse", "/v1/payouts/{id}/reverse", "payout", "/v1/payouts/{id}", payoutPayment(), []Case{
		{When: when(Condition{At: "/reversed_by"}), Is: CaseDone, Payment: "pending"},
		{When: when(is("/status", "paid"), absent("/reversed_by")), Is: CaseMissed},
	}))
	r.Reference = stripeReference("fence_ref") // of the other payout
	r.Lookup.Answer = nil
	r.Object = "/original_payout"
	return r
}

func topupPayment() *Payment {
	return &Payment{At: "/status", Values: map[string]string{
		"succeeded": "done", "pending": "pending", "failed": "failed", "canceled": "reversed", "reversed": "reversed",
	}}
}

func topupCases() []Case {
	return []Case{{When: when(is("/status", "succeeded", "pending", "failed", "canceled", "reversed")), Is: CaseDone}}
}

func topupCancel() *Route {
	return undo(stripeAction("topups_cancel", "/v1/topups/{id}/cancel", "topup", "/v1/topups/{id}",
		&Payment{At: "/status", Values: map[string]string{"canceled": "done"}}, []Case{
			{When: when(is("/status", "canceled")), Is: CaseDone},
			{When: when(is("/status", "pending")), Is: CaseMissed},
		}))
}
