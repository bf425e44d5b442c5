package gateways

import "time"

const (
	razorpayPayouts = "https://razorpay.com/docs/api/x/payout-idempotency/make-request"
	razorpayRefunds = "https://razorpay.com/docs/api/refunds/normal-refunds-idempotent"
	razorpayGo      = "https://github.com/razorpay/razorpay-go"
)

// Razorpay is Razorpay's API v1, payouts (RazorpayX) with it. Sources:
// https://razorpay.com/docs/api/x/payout-idempotency/make-request and
// https://razorpay.com/docs/api/refunds/normal-refunds-idempotent (keys of payouts and refunds),
// https://github.com/razorpay/razorpay-go (paths, fields).
func Razorpay() *Gateway {
	return &Gateway{
		Name: "razorpay", Title: "Razorpay",
		Hosts:          []string{"api.razorpay.com"},
		BaseURL:        "https://api.razorpay.com",
		Guarantees:     razorpayGuarantees(),
		Notes:          razorpayNotes(),
		SettleAfter:    10 * time.Minute,
		AttemptTimeout: 2 * time.Minute,
		Family:         FamilyA,
		LookupScheme:   "Basic",
		AccountHeaders: []string{"X-Razorpay-Account"}, // a partner's sub-merchant
		Answers:        razorpayAnswers(),
		Routes:         razorpayRoutes(),
		Webhook: &Webhook{ // event names are known at second hand, so that a notice only has the gateway asked
			Signature: &Signature{Header: "X-Razorpay-Signature"},
			References: []string{
				"/payload/payment/entity/notes/fence_ref", "/payload/refund/entity/notes/fence_ref",
				"/payload/payout/entity/reference_id", "/payload/order/entity/receipt",
			},
			Object: "/payload/payment/entity/id",
		},
		UnknownStatus: 504, // the Go SDK resends nothing; Python's own resends stand on connection errors and timeouts only
		Error: ErrorShape{Members: map[string]any{"error": map[string]any{
			"code": "SERVER_ERROR", "description": "{detail}", "reason": "fence_{slug}", "source": "NA", "step": "NA",
		}}},
	}
}

func razorpayGuarantees() map[string]*Guarantee {
	return map[string]*Guarantee{
		"G1": guaranteed(Partial, MarkDocumented,
			"Payouts: header X-Payout-Idempotency, 4 to 36 characters, required. Refunds: X-Refund-Idempotency, at least "+
				"10. None for orders, captures, recurring payments and transfers.",
			razorpayPayouts, razorpayRefunds),
		"G2": guaranteed(Partial, MarkSDK,
			"Orders by receipt, then their payments; refunds of a payment; payouts by reference_id and account number.",
			razorpayGo),
		"G3": guaranteed(Undocumented, MarkDocumented, "No time is given.", razorpayPayouts, razorpayRefunds),
		"G4": guaranteed(Supported, MarkDocumented,
			"Payouts and refunds: the saved result of the first request, failures too.", razorpayPayouts, razorpayRefunds),
		"G5": guaranteed(Supported, MarkDocumented,
			"400 BAD_REQUEST_ERROR for another request under a used key.", razorpayPayouts),
		"G6": guaranteed(Supported, MarkSecondHand,
			"Webhooks payment.*, order.paid, refund.*, payout.*, signed over the body.", razorpayGo),
	}
}

func razorpayNotes() []string {
	return []string{
		"How long keys are kept is not documented, and orders, captures, recurring payments and transfers take none: after " +
			"doubt nothing is sent again; a lookup may find the object, else a person decides (review).",
		"A payout that failed fails under its key for ever. A new key while the first is being processed pays twice.",
		"Payouts are listed by account number, which the sidecar does not store: a payout in doubt is a person's, or the " +
			"webhook's.",
		"A payment that failed may still be authorised later: a refusal of a recurring payment stays in doubt, and a " +
			"failed one found is none.",
		"receipt and reference_id of an app name an order, not a call; what the sidecar writes there itself can be looked up.",
		"Python's enable_retry repeats every method without a key: leave it off. The Go SDK gives up after 10 s.",
		"The lookup credential is the base64 of key_id:key_secret.",
	}
}

// razorpayAnswers: GATEWAY_ERROR and SERVER_ERROR speak of a bank or of Razorpay itself, and are in doubt.
func razorpayAnswers() []*AnswerRule {
	return []*AnswerRule{answered("not-executed", "", on("400", "401", "429"), is("/error/code", "BAD_REQUEST_ERROR"))}
}

// razorpayMade makes a 2xx count by entity and status.
func razorpayMade(entity string, good []string, bad ...string) []*AnswerRule {
	rules := []*AnswerRule{answered("succeeded", "", on("2xx"), present("/id"), is("/entity", entity), is("/status", good...),
		absent("/error/code"))}
	if len(bad) > 0 {
		rules = append(rules, answered("declined", "", on("2xx"), present("/id"), is("/entity", entity), is("/status", bad...)))
	}
	return append(rules, answered("unknown", "", on("2xx")))
}

// razorpayKey is for an operation with a key. 409: another request with it is in flight.
func razorpayKey(r *Route, header string, length int) *Route {
	r.Keyless, r.Key = false, &KeyPlace{Header: header, Shape: Shape{Alphabet: "hex", Length: length}}
	r.Answers = append(r.Answers, &AnswerRule{Status: on("409"), When: when(present("/error/code")), Outcome: "unknown", InUse: true})
	return r
}

func razorpayReference(field string) *RefPlace {
	return &RefPlace{Field: field, Body: "json", Owned: field == "notes.fence_ref", Shape: Shape{Alphabet: "hex", Length: 32}}
}

func razorpayRoutes() []*Route {
	payout := unkeyed("payouts_create", "POST", "/v1/payouts")
	payout.Object, payout.NoReference, payout.Reference = "/id", false, razorpayReference("reference_id")
	payout.Params = map[string]string{"amount": "body:amount", "currency": "body:currency"}
	payout.Answers = razorpayMade("payout", []string{"queued", "pending", "processing", "processed"}, "failed")
	payout.Payment = paid("/status", []string{"queued", "pending", "processing"}, []string{"processed"}, []string{"rejected",
		"cancelled", "failed"}, []string{"reversed"})
	return []*Route{
		razorpayOrder(), razorpayCapture(), razorpayRefund(), razorpayRecurring(),
		unkeyed("transfers_create", "POST", "/v1/transfers"),
		unkeyed("payment_transfers_create", "POST", "/v1/payments/{id}/transfers"),
		razorpayKey(payout, "X-Payout-Idempotency", 36),
		elsewhere(stateless("/error")),
	}
}

func razorpayList(target, reference string, cases ...Case) *Lookup {
	return &Lookup{
		Kind: KindSearch, Target: target, Items: "/items", Each: when(present("/id"), present("/entity")), ID: "/id",
		Reference: reference, Amount: "/amount", Currency: "/currency", Cases: cases, Answer: &FoundAnswer{},
	}
}

// razorpayOrder moves no money by itself.
func razorpayOrder() *Route {
	r := unkeyed("orders_create", "POST", "/v1/orders")
	r.Object, r.NoReference, r.Reference = "/id", false, razorpayReference("receipt")
	r.Params = map[string]string{"amount": "body:amount", "currency": "body:currency"}
	r.Answers = razorpayMade("order", []string{"created", "attempted", "paid"})
	r.Lookup = razorpayList("/v1/orders?receipt={reference}", "/receipt", Case{When: when(is("/entity", "order")), Is: CaseDone})
	return r
}

// razorpayCapture tells by status and amount.
func razorpayCapture() *Route {
	r := unkeyed("payments_capture", "POST", "/v1/payments/{id}/capture")
	r.Object, r.Params = "/id", map[string]string{"id": "path:id", "amount": "body:amount", "currency": "body:currency"}
	r.Answers = razorpayMade("payment", []string{"captured"})
	r.Payment = paid("/status", []string{"authorized"}, []string{"captured"}, nil, []string{"refunded"})
	r.Lookup = &Lookup{
		Kind: KindGet, Target: "/v1/payments/{id}", ID: "/id", SameAs: "id", Is: when(is("/entity", "payment")),
		Amount: "/amount", Currency: "/currency",
		Cases: []Case{
			{When: when(is("/status", "captured")), Is: CaseDone},
			{When: when(is("/status", "authorized")), Is: CaseMissed},
		},
		Answer: &FoundAnswer{},
	}
	return r
}

func razorpayRefund() *Route {
	r := undo(unkeyed("payments_refund", "POST", "/v1/payments/{id}/refund"))
	r.Object, r.NoReference, r.Reference = "/id", false, razorpayReference("notes.fence_ref")
	r.Params = map[string]string{"id": "path:id", "amount": "body:amount"}
	r.Answers = razorpayMade("refund", []string{"pending", "processed"}, "failed")
	r.Payment = paid("/status", []string{"pending"}, []string{"processed"}, []string{"failed"}, nil)
	r.Lookup = razorpayList("/v1/payments/{id}/refunds?count=100", "/notes/fence_ref",
		Case{When: when(is("/status", "pending", "processed")), Is: CaseDone}, Case{When: when(is("/status", "failed")),
			Is: CaseFailed})
	return razorpayKey(r, "X-Refund-Idempotency", 64)
}

// razorpayRecurring is found among the order's payments; no refusal of it is final.
func razorpayRecurring() *Route {
	r := unkeyed("payments_recurring", "POST", "/v1/payments/create/recurring")
	r.NoReference, r.Reference = false, razorpayReference("notes.fence_ref")
	r.Params = map[string]string{"order": "body:order_id", "amount": "body:amount", "currency": "body:currency"}
	r.Answers = append(razorpayMade("payment", []string{"created", "authorized", "captured"}), answered("unknown", "", on("400")))
	r.Object = "/id"
	r.Payment = paid("/status", []string{"created", "authorized"}, []string{"captured"}, nil, []string{"refunded"})
	r.Lookup = razorpayList("/v1/orders/{order}/payments", "/notes/fence_ref", Case{When: when(is("/status", "authorized",
		"captured")), Is: CaseDone})
	return r
}
