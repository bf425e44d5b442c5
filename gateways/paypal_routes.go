package gateways

// paypalRoutes are PayPal's operations that move money, then what passes without a call, then the rest of the unsafe ones.
func paypalRoutes() []*Route {
	routes := []*Route{
		paypalOrderCreate(),
		paypalOrderAction("authorize", paypalAuthorization0, paypalOrderAuthorizations()),
		paypalOrderAction("capture", paypalCapture0, paypalOrderCaptures()),
		paypalAuthorizationCapture(), paypalReauthorize(), paypalVoid(), paypalRefund(),
		paypalPayoutCreate(), paypalPayoutItemCancel(),
	}
	routes = append(routes, paypalOlderUndoes()...)
	return append(routes,
		paypalPass("oauth2_token", "/v1/oauth2/token"),
		paypalPass("oauth2_token_terminate", "/v1/oauth2/token/terminate"),
		paypalPass("verify_webhook_signature", "/v1/notifications/verify-webhook-signature"),
		&Route{Name: "other", Method: "*", Path: "/**", Keyless: true, NoReference: true, Answers: paypalPlain()},
	)
}

// paypalPass is a request that is no call: it fetches a token or asks a question.
func paypalPass(name, path string) *Route {
	r := paypalKeyless(name, path)
	r.Untagged = UntaggedPass
	return r
}

// paypalKeyless takes no request id, or keeps it in a way that is not documented.
func paypalKeyless(name, path string) *Route {
	return &Route{Name: name, Method: "POST", Path: path, Keyless: true, NoReference: true, Answers: paypalPlain()}
}

// paypalPlain takes any 2xx for a success that is JSON and no error, or a 204. Nothing more is known of such calls.
func paypalPlain() []*AnswerRule {
	return []*AnswerRule{
		{Status: []string{"204"}, Outcome: "succeeded"},
		{Status: []string{"200", "201", "202"}, When: when(absent("/debug_id"), absent("/error"), Condition{}), Outcome: "succeeded"},
	}
}

// paypalOlderUndoes give money back by Payments v1, which is deprecated and answers a used id with an error of its own: nothing
// is resent there.
func paypalOlderUndoes() (routes []*Route) {
	for _, r := range []struct{ name, path string }{
		{"v1_sale_refund", "/v1/payments/sale/{id}/refund"},
		{"v1_capture_refund", "/v1/payments/capture/{id}/refund"},
		{"v1_authorization_void", "/v1/payments/authorization/{id}/void"},
		{"v1_orders_void", "/v1/payments/orders/{id}/do-void"},
	} {
		routes = append(routes, undo(paypalKeyless(r.name, r.path)))
	}
	return routes
}

// paypalKnown is a lookup of an object whose id is known. PayPal cannot be asked for one that is not, so that a lost call is told by a
// repeat only.
func paypalKnown(r *Route, object, id string, states []paypalState) *Route {
	if r.Params == nil {
		r.Params = map[string]string{}
	}
	r.Lookup = &Lookup{
		Kind: KindObject, Object: object + "{object}", ID: id,
		Cases: paypalCases(states), Answer: &FoundAnswer{},
	}
	return r
}

// paypalSum compares amount and currency with those of the request; a request without asks for the whole.
func paypalSum(r *Route) *Route {
	r.Params["amount"], r.Params["currency"] = "body:amount.value", "body:amount.currency_code"
	r.Lookup.Amount, r.Lookup.Currency = "/amount/value", "/amount/currency_code"
	return r
}

// paypalOrderCreate: references stand in a list (purchase_units), where nothing is written. The order charges at once where a
// payment source is given; else it waits for the payer.
func paypalOrderCreate() *Route {
	r := &Route{
		Name: "orders_create", Method: "POST", Path: "/v2/checkout/orders", Probe: true, NoReference: true,
		KeyRetention: paypalOrderKeys, Object: "/id", Answers: paypalRules(paypalCreated()),
	}
	return paypalKnown(r, "/v2/checkout/orders/", "/id", paypalCreated())
}

// paypalOrderAction authorises or captures an order, which can be done once: the order itself tells. An order that waits for
// the payer may have been asked to by this very call, so it does not.
func paypalOrderAction(action, payment string, inside []paypalState) *Route {
	states := append(inside, paypalUnseen())
	cases := append(paypalCases(states), Case{When: when(is("/status", "CREATED", "SAVED", "APPROVED")), Is: CaseMissed})
	return &Route{
		Name: "orders_" + action, Method: "POST", Path: "/v2/checkout/orders/{id}/" + action, Probe: true, NoReference: true,
		KeyRetention: paypalOrderKeys, Object: "/id", Params: map[string]string{"id": "path:id"}, Answers: paypalRules(states),
		Lookup: &Lookup{
			Kind: KindGet, Target: "/v2/checkout/orders/{id}", Object: "/v2/checkout/orders/{object}", ID: "/id", SameAs: "id",
			Amount: payment + "/amount/value", Whole: "/purchase_units/0/amount/value",
			Cases: cases, Proves: true, Answer: &FoundAnswer{},
		},
	}
}

// paypalAuthorization is an operation on an authorization that takes a request id.
func paypalAuthorization(action string, states []paypalState) *Route {
	return &Route{
		Name: "authorizations_" + action, Method: "POST", Path: "/v2/payments/authorizations/{id}/" + action,
		Probe: true, NoReference: true, KeyRetention: paypalPaymentKeys, Object: "/id",
		Params: map[string]string{"id": "path:id"}, Answers: paypalRules(states),
	}
}

// paypalAuthorizationCapture: an authorization with the status CREATED has no capture against it, which is documented; any
// other status does not tell whose captures there are. The capture takes no custom id, and an invoice id would stand in for
// the order's own on what the payer reads: no reference is written.
func paypalAuthorizationCapture() *Route {
	r := paypalAuthorization("capture", append(paypalCaptured(), paypalStatus("pending", false, "PENDING")))
	// PENDING is the status of an authorization, too; a capture is told by final_capture.
	found := append(paypalCaptured(), paypalState{when(is("/status", "PENDING"), Condition{At: "/final_capture"}), "pending", false})
	r.Lookup = &Lookup{
		Kind: KindGet, Target: "/v2/payments/authorizations/{id}", Object: "/v2/payments/captures/{object}", ID: "/id", SameAs: "id",
		Cases: append(paypalCases(found),
			Case{When: when(is("/status", "CREATED"), absent("/final_capture")), Is: CaseMissed},
			Case{When: when(is("/status", "CAPTURED", "PARTIALLY_CAPTURED", "PENDING", "VOIDED", "DENIED")), Is: CaseBusy}),
		Proves: true, Answer: &FoundAnswer{},
	}
	return paypalSum(r)
}

// paypalReauthorize makes another authorisation, which the first does not name.
func paypalReauthorize() *Route {
	r := paypalAuthorization("reauthorize", paypalAuthorized())
	return paypalSum(paypalKnown(r, "/v2/payments/authorizations/", "/id", paypalAuthorized()))
}

// paypalVoid takes no request id; it leads to a state, and that state tells. One that is captured in full cannot be voided.
func paypalVoid() *Route {
	return &Route{
		Name: "authorizations_void", Method: "POST", Path: "/v2/payments/authorizations/{id}/void", Effect: EffectUndo,
		Keyless: true, NoReference: true, Object: "/id", Params: map[string]string{"id": "path:id"},
		Answers: []*AnswerRule{
			{Status: []string{"200"}, When: when(Condition{At: "/id"}, is("/status", "VOIDED")), Outcome: "succeeded", Payment: "done"},
			{Status: []string{"204"}, Outcome: "succeeded", Payment: "done"},
			{Status: []string{"2xx"}, Outcome: "unknown"},
		},
		Lookup: &Lookup{
			Kind: KindGet, Target: "/v2/payments/authorizations/{id}", Object: "/v2/payments/authorizations/{object}",
			ID: "/id", SameAs: "id",
			Cases: []Case{
				{When: when(is("/status", "VOIDED")), Is: CaseDone, Payment: "done"},
				{When: when(is("/status", "CREATED", "PENDING", "CAPTURED", "DENIED")), Is: CaseMissed},
				{When: when(is("/status", "PARTIALLY_CAPTURED")), Is: CaseBusy},
			},
			Proves: true, Answer: &FoundAnswer{},
		},
	}
}

// paypalRefund: a capture does not name its refunds, and a pending one leaves its status as it was, so it cannot tell. An empty
// body (the whole amount) has no room for a reference.
func paypalRefund() *Route {
	r := undo(&Route{
		Name: "captures_refund", Method: "POST", Path: "/v2/payments/captures/{id}/refund", Probe: true,
		Reference:    &RefPlace{Field: "custom_id", Body: "json", Shape: Shape{Alphabet: "hex", Length: 32}},
		KeyRetention: paypalPaymentKeys, Object: "/id", Params: map[string]string{"id": "path:id"},
		Answers: paypalRules(paypalRefunded()),
	})
	return paypalSum(paypalKnown(r, "/v2/payments/refunds/", "/id", paypalRefunded()))
}

// paypalPayoutStates: a batch that was denied, and an item that failed, were taken first, so that the call stands. Where there
// is one item it tells.
func paypalPayoutStates() []paypalState {
	const id, status = "/batch_header/payout_batch_id", "/batch_header/batch_status"
	item := func(payment string, in ...string) paypalState {
		return paypalState{when(Condition{At: id}, is(status, "SUCCESS"), is("/items/0/transaction_status", in...), absent("/items/1")),
			payment, false}
	}
	batch := func(payment string, in ...string) paypalState {
		return paypalState{when(Condition{At: id}, is(status, in...)), payment, false}
	}
	return []paypalState{
		item("pending", "PENDING", "UNCLAIMED", "ONHOLD"), item("failed", "FAILED", "BLOCKED"),
		item("reversed", "RETURNED", "REFUNDED", "REVERSED"),
		batch("done", "SUCCESS"), batch("pending", "PENDING", "PROCESSING"), batch("failed", "DENIED"), batch("reversed", "CANCELED"),
	}
}

// paypalPayoutCreate: a sender's batch id that was used in the last 30 days is refused, so the reference is a second guard. The
// refusal has a link and no id, so that it points at nothing here.
func paypalPayoutCreate() *Route {
	r := &Route{
		Name: "payouts_create", Method: "POST", Path: "/v1/payments/payouts", Probe: true, KeyRetention: paypalPayoutKeys,
		Reference: &RefPlace{
			Field: "sender_batch_header.sender_batch_id", Body: "json", Unique: true, Shape: Shape{Alphabet: "hex", Length: 32},
		},
		Object: "/batch_header/payout_batch_id",
		Answers: append([]*AnswerRule{
			{Status: []string{"400", "403", "422"}, When: when(is("/name", "VALIDATION_ERROR", "SENDER_EMAIL_UNCONFIRMED")),
				Outcome: "not-executed"},
		}, paypalRules(paypalPayoutStates())...),
	}
	return paypalKnown(r, "/v1/payments/payouts/", "/batch_header/payout_batch_id", paypalPayoutStates())
}

// paypalPayoutItemCancel gives an item that nobody claimed back to the sender. It takes no request id.
func paypalPayoutItemCancel() *Route {
	returned := when(Condition{At: "/payout_item_id"}, is("/transaction_status", "RETURNED"))
	return &Route{
		Name: "payouts_item_cancel", Method: "POST", Path: "/v1/payments/payouts-item/{id}/cancel", Effect: EffectUndo,
		Keyless: true, NoReference: true, Object: "/payout_item_id", Params: map[string]string{"id": "path:id"},
		Answers: []*AnswerRule{
			{Status: []string{"200"}, When: returned, Outcome: "succeeded", Payment: "done"},
			{Status: []string{"2xx"}, Outcome: "unknown"},
		},
		Lookup: &Lookup{
			Kind: KindGet, Target: "/v1/payments/payouts-item/{id}", Object: "/v1/payments/payouts-item/{object}",
			ID: "/payout_item_id", SameAs: "id",
			Cases: []Case{
				{When: returned, Is: CaseDone, Payment: "done"},
				{When: when(is("/transaction_status", "UNCLAIMED")), Is: CaseMissed},
			},
			Proves: true, Answer: &FoundAnswer{},
		},
	}
}
