package gateways

import "time"

const (
	squareSpec  = "https://github.com/square/connect-api-specification"
	squareGo    = "https://github.com/square/square-go-sdk"
	squareForum = "https://developer.squareup.com/forums/t/how-long-are-idempotency-keys-retained-for-the-createpayment-endpoint/28303"
)

// Square is Square's Connect API v2. Sources: https://github.com/square/connect-api-specification (fields, statuses, error
// categories), https://github.com/square/square-go-sdk (hosts, webhook signature).
func Square() *Gateway {
	return &Gateway{
		Name: "square", Title: "Square",
		Hosts:          []string{"connect.squareup.com"},
		BaseURL:        "https://connect.squareup.com",
		Guarantees:     squareGuarantees(),
		Notes:          squareNotes(),
		SettleAfter:    10 * time.Minute,
		AttemptTimeout: 2 * time.Minute,
		Answers:        squareAnswers(),
		Routes:         squareRoutes(),
		Webhook: &Webhook{ // which names there are is not sure, so that a notice only has the gateway asked
			Signature: &Signature{Header: "x-square-hmacsha256-signature", Encoding: "base64", Signed: "{url}{body}"},
			ID:        "/event_id", References: []string{"/data/object/payment/reference_id"}, Object: "/data/id",
		},
		UnknownStatus: 424, // the SDKs resend 408, 429 and 5xx, Python's 409 too
		Error: ErrorShape{Members: map[string]any{"errors": []any{map[string]any{
			"category": "API_ERROR", "code": "fence_{slug}", "detail": "{detail}",
		}}}},
	}
}

func squareGuarantees() map[string]*Guarantee {
	return map[string]*Guarantee{
		"G1": guaranteed(Supported, MarkDocumented,
			"Body field idempotency_key, 1 to 45 characters, required on payments and refunds; complete and cancel take "+
				"none.",
			squareSpec),
		"G2": guaranteed(Partial, MarkDocumented,
			"Lists by time and location, matched on reference_id; they lag by several seconds. A payment can be canceled "+
				"by its key.",
			squareSpec),
		"G3": guaranteed(Undocumented, MarkDocumented, "Not published, says the staff.", squareForum),
		"G4": guaranteed(Supported, MarkSecondHand,
			"The original result; of stored errors and of calls in flight nothing is said.", squareForum),
		"G5": guaranteed(Supported, MarkDocumented, "IDEMPOTENCY_KEY_REUSED.", squareSpec),
		"G6": guaranteed(Supported, MarkInferred,
			"Webhooks payment.created, payment.updated, refund.created, refund.updated, signed over address and body.",
			squareGo),
	}
}

func squareNotes() []string {
	return []string{
		"How long a key is kept is not published: after doubt nothing is sent again; a lookup may find the payment, else a " +
			"person decides (review).",
		"A list without location_id shows the main location only, so that a payment without one cannot be looked up; an " +
			"app's own reference_id names an order, not a call, and cannot be looked up either.",
		"Refunds carry no reference: after doubt a person decides.",
		"REQUEST_TIMEOUT and CONFLICT stand in the category of invalid requests and TEMPORARY_ERROR in the payment " +
			"methods': each is in doubt.",
		"POST /v2/payments/cancel takes the key of the payment, which is the sidecar's own and not the app's: a person may " +
			"use it to neutralise an unknown payment. It succeeds where there is none, and cannot undo a completed payment.",
	}
}

// squareRefused are statuses that an error list is read at: never 408 and 409.
var squareRefused = on("400", "401", "402", "403", "404", "405", "413", "415", "422", "429")

func squareAnswers() []*AnswerRule {
	one := absent("/errors/1")
	return []*AnswerRule{
		{Status: squareRefused, When: when(is("/errors/0/code", "TEMPORARY_ERROR"), one), Outcome: "unknown", Transient: true},
		answered("unknown", "", squareRefused, is("/errors/0/code", "REQUEST_TIMEOUT", "CONFLICT", "IDEMPOTENCY_KEY_REUSED",
			"TEMPORARY_ERROR")),
		answered("declined", "", squareRefused, is("/errors/0/category", "PAYMENT_METHOD_ERROR", "REFUND_ERROR"),
			present("/errors/0/code"), one),
		answered("not-executed", "", squareRefused, is("/errors/0/category", "AUTHENTICATION_ERROR", "INVALID_REQUEST_ERROR",
			"RATE_LIMIT_ERROR"),
			present("/errors/0/code"), one),
	}
}

// squareMade makes a 2xx count by the status of what was made.
func squareMade(object string, good, bad []string) []*AnswerRule {
	return []*AnswerRule{
		answered("succeeded", "", on("2xx"), present("/"+object+"/id"), is("/"+object+"/status", good...), absent("/errors")),
		answered("declined", "", on("2xx"), present("/"+object+"/id"), is("/"+object+"/status", bad...), absent("/errors")),
		answered("unknown", "", on("2xx")),
	}
}

// squareMoved makes a 2xx count if the payment has come to a status.
func squareMoved(status string) []*AnswerRule {
	return []*AnswerRule{
		answered("succeeded", "", on("2xx"), present("/payment/id"), is("/payment/status", status), absent("/errors")),
		answered("unknown", "", on("2xx")),
	}
}

func squareRoutes() []*Route {
	key := func() *KeyPlace {
		return &KeyPlace{Field: "idempotency_key", Shape: Shape{Alphabet: "hex", Length: 45}}
	}
	pay := paid("/payment/status", []string{"APPROVED", "PENDING"}, []string{"COMPLETED"}, []string{"FAILED"}, []string{"CANCELED"})
	neutralise := undo(unkeyed("payments_cancel_by_key", "POST", "/v2/payments/cancel"))
	neutralise.Answers = []*AnswerRule{answered("succeeded", "", on("200"), absent("/errors"))}
	return []*Route{
		{
			Name: "payments_create", Method: "POST", Path: "/v2/payments", Key: key(), Object: "/payment/id",
			Reference: &RefPlace{Field: "reference_id", Body: "json", Shape: Shape{Alphabet: "hex", Length: 32}},
			Params: map[string]string{"amount": "body:amount_money.amount", "currency": "body:amount_money.currency",
				"location": "body:location_id"},
			Answers: squareMade("payment", []string{"COMPLETED", "APPROVED", "PENDING"}, []string{"FAILED"}),
			Payment: pay, Lookup: squareList(),
		},
		squareComplete(pay),
		neutralise,
		squareCancel(),
		{
			Name: "refunds_create", Method: "POST", Path: "/v2/refunds", Effect: EffectUndo, Key: key(), NoReference: true,
			Object: "/refund/id",
			Params: map[string]string{"payment": "body:payment_id", "amount": "body:amount_money.amount",
				"currency": "body:amount_money.currency"},
			Answers: squareMade("refund", []string{"COMPLETED", "PENDING"}, []string{"REJECTED", "FAILED"}),
			Payment: paid("/refund/status", []string{"PENDING"}, []string{"COMPLETED"}, []string{"REJECTED", "FAILED"}, nil),
		},
		elsewhere(),
	}
}

// squareList reads one page, newest first; where there are more it cannot tell. Lists lag, so that a miss says nothing.
func squareList() *Lookup {
	return &Lookup{
		Kind: KindSearch, Target: "/v2/payments?begin_time={since}&location_id={location}&total={amount}&limit=100",
		SinceFormat: "rfc3339",
		Object:      "/v2/payments/{object}", ObjectAt: "/payment",
		Is: when(absent("/errors"), absent("/cursor")), Items: "/payments", Each: when(present("/id")), ID: "/id",
		Reference: "/reference_id", Amount: "/amount_money/amount", Currency: "/amount_money/currency",
		Cases: []Case{
			{When: when(is("/status", "COMPLETED")), Is: CaseDone, Payment: "done"},
			{When: when(is("/status", "APPROVED", "PENDING")), Is: CaseDone, Payment: "pending"},
			{When: when(is("/status", "FAILED")), Is: CaseFailed},
		},
	}
}

func squareGet(cases ...Case) *Lookup {
	return &Lookup{Kind: KindGet, Target: "/v2/payments/{id}", ID: "/payment/id", SameAs: "id", Is: when(absent("/errors")),
		Cases: cases, Answer: &FoundAnswer{}}
}

func squareComplete(pay *Payment) *Route {
	r := unkeyed("payments_complete", "POST", "/v2/payments/{id}/complete")
	r.Params, r.Object, r.Payment = map[string]string{"id": "path:id"}, "/payment/id", pay
	r.Answers = squareMoved("COMPLETED")
	r.Lookup = squareGet(Case{When: when(is("/payment/status", "COMPLETED")), Is: CaseDone},
		Case{When: when(is("/payment/status", "APPROVED")), Is: CaseMissed})
	return r
}

func squareCancel() *Route {
	r := undo(unkeyed("payments_cancel", "POST", "/v2/payments/{id}/cancel"))
	r.Params, r.Object = map[string]string{"id": "path:id"}, "/payment/id"
	r.Payment = paid("/payment/status", nil, []string{"CANCELED"}, nil, nil)
	r.Answers = squareMoved("CANCELED")
	r.Lookup = squareGet(Case{When: when(is("/payment/status", "CANCELED")), Is: CaseDone},
		Case{When: when(is("/payment/status", "APPROVED")), Is: CaseMissed})
	return r
}
