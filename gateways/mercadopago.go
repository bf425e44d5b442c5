package gateways

import "time"

const (
	mercadopagoNews   = "https://mercadopago.com.br/developers/en/news/2023/01/04/Idempotency-key-usage-will-be-mandatory"
	mercadopagoErrors = "https://www.mercadopago.com.mx/developers/es/docs/checkout-pro-orders/payment-management/integration-errors"
	mercadopagoGo     = "https://github.com/mercadopago/sdk-go"
)

// MercadoPago is Mercado Pago's Payments and Orders API. Sources: the announcement of mandatory keys
// (https://mercadopago.com.br/developers/en/news/2023/01/04/Idempotency-key-usage-will-be-mandatory), the page of integration
// errors (https://www.mercadopago.com.mx/developers/es/docs/checkout-pro-orders/payment-management/integration-errors),
// https://github.com/mercadopago/sdk-go (paths, fields, search, webhook signature).
func MercadoPago() *Gateway {
	return &Gateway{
		Name: "mercadopago", Title: "Mercado Pago",
		Hosts:          []string{"api.mercadopago.com"},
		BaseURL:        "https://api.mercadopago.com",
		Guarantees:     mercadopagoGuarantees(),
		Notes:          mercadopagoNotes(),
		SettleAfter:    10 * time.Minute,
		AttemptTimeout: 2 * time.Minute,
		Family:         FamilyB,
		Key:            &KeyPlace{Header: "X-Idempotency-Key", Shape: Shape{Alphabet: "hex", Length: 64}},
		Answers:        mercadopagoAnswers(),
		Routes:         mercadopagoRoutes(),
		Webhook: &Webhook{ // the notice carries the id only: the gateway is asked
			Signature: &Signature{
				Header: "x-signature", Part: "v1", TimestampPart: "ts",
				Signed: "id:{query-lower:data.id};request-id:{header:x-request-id};ts:{timestamp};",
			},
			ID: "/id", Object: "/data/id",
		},
		UnknownStatus: 424, // the SDKs resend 429 and 5xx
		Error:         ErrorShape{Members: map[string]any{"message": "{detail}", "error": "fence_{slug}", "cause": []any{}}},
	}
}

func mercadopagoGuarantees() map[string]*Guarantee {
	return map[string]*Guarantee{
		"G1": guaranteed(Supported, MarkDocumented,
			"Header X-Idempotency-Key, at most 128 characters, required on payments, refunds and orders.",
			mercadopagoNews, mercadopagoErrors),
		"G2": guaranteed(Supported, MarkDocumented,
			"GET /v1/payments/search by external_reference; how soon it shows a payment is not said.", mercadopagoGo),
		"G3": guaranteed(Undocumented, MarkDocumented, "No time is given.", mercadopagoErrors),
		"G4": guaranteed(Supported, MarkDocumented,
			"Payments: the payment that exists is returned. Orders may answer 409.", mercadopagoNews, mercadopagoErrors),
		"G5": guaranteed(Partial, MarkDocumented,
			"Orders: 409 idempotency_key_already_used. Payments: a conflict answer whose code is not known.",
			mercadopagoErrors),
		"G6": guaranteed(Supported, MarkSDK,
			"Webhooks payment, order, merchant_order with the id only, signed over id, request id and time.", mercadopagoGo),
	}
}

func mercadopagoNotes() []string {
	return []string{
		"How long keys are kept is not documented: after doubt nothing is sent again; a search may find the payment, else " +
			"a person decides (review).",
		"The page on errors advises a new key after 409 idempotency_key_already_used and after 500 " +
			"idempotency_validation_failed. Both are in doubt: a new key may charge twice.",
		"A payment is answered 201 also when it was rejected; an order that failed is answered 402.",
		"An app's own external_reference names an order, not a call, and cannot be looked up; what the sidecar writes there can.",
		"PUT on a payment captures or cancels by its body: it takes no key, and is no undo route although it can cancel.",
		"Go, Node, Python and Java SDKs have the host in a constant: an HTTP client that rewrites it is needed. They " +
			"resend on 429 and 5xx with one key.",
	}
}

var mercadopagoRefused = on("400", "401", "403", "404", "422", "429")

// mercadopagoAnswers: payments name an error in message and error, orders in a list.
func mercadopagoAnswers() []*AnswerRule {
	return []*AnswerRule{
		answered("not-executed", "", mercadopagoRefused, present("/message"), present("/error")),
		answered("not-executed", "", mercadopagoRefused, present("/errors/0/code")),
		{Status: on("423"), When: when(is("/errors/0/code", "resource_locked")), Outcome: "unknown", InUse: true},
	}
}

// mercadopagoMade makes a 2xx count by its status; a payment that was rejected was declined.
func mercadopagoMade(good ...string) []*AnswerRule {
	return []*AnswerRule{
		answered("succeeded", "", on("2xx"), present("/id"), is("/status", good...)),
		answered("declined", "", on("2xx"), present("/id"), is("/status", "rejected")),
		answered("unknown", "", on("2xx")),
	}
}

func mercadopagoPayment() *Payment {
	return paid("/status", []string{"authorized", "pending", "in_process", "in_mediation"}, []string{"approved"},
		[]string{"rejected"},
		[]string{"cancelled", "refunded", "charged_back"})
}

func mercadopagoRoutes() []*Route {
	refund := &Route{
		Name: "refunds_create", Method: "POST", Path: "/v1/payments/{id}/refunds", Effect: EffectUndo, NoReference: true,
		Object:  "/id",
		Params:  map[string]string{"id": "path:id", "amount": "body:amount"},
		Answers: mercadopagoMade("approved", "in_process", "pending"),
		Payment: paid("/status", []string{"in_process", "pending"}, []string{"approved"}, []string{"rejected"}, nil),
	}
	advanced := unkeyed("advanced_payments_create", "POST", "/v1/advanced_payments")
	advanced.Answers, advanced.Payment, advanced.Object = mercadopagoMade("approved", "authorized", "pending", "in_process"),
		mercadopagoPayment(), "/id"
	cancel := undo(mercadopagoOrder("orders_cancel", "/v1/orders/{id}/cancel", "canceled"))
	cancel.Payment = paid("/status", nil, []string{"canceled"}, nil, nil)
	repay := undo(mercadopagoOrder("orders_refund", "/v1/orders/{id}/refund", "refunded"))
	repay.Payment = paid("/status", nil, []string{"refunded"}, nil, nil)
	return []*Route{
		mercadopagoCreate(), mercadopagoUpdate(), refund, advanced,
		mercadopagoOrder("orders_create", "/v1/orders", "processed", "action_required"),
		mercadopagoOrder("orders_process", "/v1/orders/{id}/process", "processed", "action_required"),
		mercadopagoOrder("orders_capture", "/v1/orders/{id}/capture", "processed"),
		cancel, repay,
		elsewhere(stateless("/error")),
	}
}

func mercadopagoCreate() *Route {
	return &Route{
		Name: "payments_create", Method: "POST", Path: "/v1/payments", Object: "/id",
		Reference: &RefPlace{Field: "external_reference", Body: "json", Shape: Shape{Alphabet: "hex", Length: 32}},
		Params:    map[string]string{"amount": "body:transaction_amount"},
		Answers:   mercadopagoMade("approved", "authorized", "pending", "in_process"),
		Payment:   mercadopagoPayment(),
		Lookup: &Lookup{
			Kind: KindSearch, Target: "/v1/payments/search?external_reference={reference}&sort=date_created&criteria=desc",
			Object: "/v1/payments/{object}",
			Items:  "/results", Each: when(present("/id")), ID: "/id", Reference: "/external_reference", Amount: "/transaction_amount",
			Cases: []Case{
				{When: when(is("/status", "approved", "authorized", "pending", "in_process", "in_mediation")), Is: CaseDone},
				{When: when(is("/status", "rejected")), Is: CaseFailed},
			},
			Answer: &FoundAnswer{Status: 201},
		},
	}
}

// mercadopagoUpdate captures or cancels. What is found is read by what the call asked for; a part capture cannot be told.
func mercadopagoUpdate() *Route {
	r := unkeyed("payments_update", "PUT", "/v1/payments/{id}")
	r.Object, r.Payment = "/id", mercadopagoPayment()
	r.Params = map[string]string{"id": "path:id", "status": "body:status", "capture": "body:capture",
		"amount": "body:transaction_amount"}
	r.Answers = []*AnswerRule{
		answered("succeeded", "", on("2xx"), present("/id"), is("/status", "approved")),
		answered("succeeded", "reversed", on("2xx"), present("/id"), is("/status", "cancelled")),
		answered("unknown", "", on("2xx")),
	}
	capture := map[string][]string{"capture": {"true"}, "amount": {""}, "status": {""}}
	cancel := map[string][]string{"status": {"cancelled"}, "capture": {"", "false"}}
	r.Lookup = &Lookup{
		Kind: KindGet, Target: "/v1/payments/{id}", ID: "/id", SameAs: "id",
		Cases: []Case{
			{When: when(is("/status", "approved")), Call: capture, Is: CaseDone},
			{When: when(is("/status", "authorized")), Call: capture, Is: CaseMissed},
			{When: when(is("/status", "cancelled")), Call: cancel, Is: CaseDone},
			{When: when(is("/status", "authorized", "pending", "in_process")), Call: cancel, Is: CaseMissed},
		},
		Answer: &FoundAnswer{},
	}
	return r
}

// mercadopagoOrder is an operation of the Orders API: 402 failed is a decline. Its statuses are known by inference only: they say
// that it was carried out, never that it was not.
func mercadopagoOrder(name, path string, good ...string) *Route {
	r := &Route{
		Name: name, Method: "POST", Path: path, NoReference: true, Object: "/id",
		Answers: append([]*AnswerRule{answered("declined", "", on("402"), is("/errors/0/code", "failed"), absent("/errors/1"))},
			answered("succeeded", "", on("2xx"), present("/id"), is("/status", good...)), answered("unknown", "", on("2xx"))),
		Payment: paid("/status", []string{"action_required"}, []string{"processed"}, []string{"failed"}, []string{"canceled",
			"refunded"}),
	}
	if path == "/v1/orders" {
		return r
	}
	r.Params = map[string]string{"id": "path:id"}
	r.Lookup = &Lookup{
		Kind: KindGet, Target: "/v1/orders/{id}", ID: "/id", SameAs: "id", Cases: []Case{{When: when(is("/status", good...)),
			Is: CaseDone}},
		Answer: &FoundAnswer{},
	}
	return r
}
