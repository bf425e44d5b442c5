package gateways

import "time"

const (
	airwallexErrors  = "https://airwallex.com/docs/payments__native-api__error-response-codes"
	airwallexAPI     = "https://www.airwallex.com/docs/api/2023-10-01/errors"
	airwallexPlugin  = "https://github.com/airwallex/paymentacceptance-plugin-woocommerce"
	airwallexClient  = "https://github.com/Cyvid7-Darus10/airwallex-go"
	airwallexNotices = "https://www.airwallex.com/docs/developer-tools__listen-for-webhook-events"
)

// Airwallex is Airwallex's API v1. Sources: https://github.com/airwallex/paymentacceptance-plugin-woocommerce (paths, fields,
// webhook signature), https://airwallex.com/docs/payments__native-api__error-response-codes (error codes),
// https://www.airwallex.com/docs/developer-tools__listen-for-webhook-events (time of signing in milliseconds).
func Airwallex() *Gateway {
	return &Gateway{
		Name: "airwallex", Title: "Airwallex",
		Hosts:          []string{"api.airwallex.com"},
		BaseURL:        "https://api.airwallex.com",
		Guarantees:     airwallexGuarantees(),
		Notes:          airwallexNotes(),
		SettleAfter:    10 * time.Minute,
		AttemptTimeout: 2 * time.Minute,
		Rotating:       true, // a bearer token lives about half an hour
		AccountHeaders: []string{"x-on-behalf-of"},
		Answers:        airwallexAnswers(),
		Routes:         airwallexRoutes(),
		Webhook: &Webhook{ // event names are not sure, so that a notice only has the gateway asked
			Signature: &Signature{Header: "x-signature", TimestampHeader: "x-timestamp", TimestampMillis: true,
				Signed: "{timestamp}{body}"},
			ID: "/id", References: []string{"/data/object/merchant_order_id"}, Object: "/data/object/id",
		},
		UnknownStatus: 504, // no server SDK that resends was found
		Error:         ErrorShape{Members: map[string]any{"code": "fence_{slug}", "message": "{detail}"}},
	}
}

func airwallexGuarantees() map[string]*Guarantee {
	return map[string]*Guarantee{
		"G1": guaranteed(Supported, MarkSDK,
			"Body field request_id in every call that moves money; its length and alphabet are not given.", airwallexPlugin),
		"G2": guaranteed(Supported, MarkSecondHand,
			"Intents by merchant_order_id, transfers by request_id; an intent shows the request_id of its last operation.",
			airwallexClient),
		"G3": guaranteed(Undocumented, MarkInferred, "No time was found.", airwallexAPI),
		"G4": guaranteed(Undocumented, MarkSecondHand, "A repeat may be refused with duplicate_request.", airwallexClient),
		"G5": guaranteed(Undocumented, MarkInferred, "Nothing is said of it.", airwallexAPI),
		"G6": guaranteed(Supported, MarkSDK, "Webhooks signed over time and body.", airwallexPlugin, airwallexNotices),
	}
}

func airwallexNotes() []string {
	return []string{
		"How long a request_id is kept, and what a repeat gets, is not documented: after doubt nothing is sent again; a " +
			"lookup may find the intent, else a person decides (review).",
		"400 also covers failures at Airwallex or behind it: only listed codes are definite. provider_* and " +
			"duplicate_request are in doubt.",
		"An app's own merchant_order_id names an order, not a call, and cannot be looked up. Transfers are found by " +
			"request_id only, which is the key: no lookup is declared for them.",
		"Whether an intent that wants a payment method was declined or never confirmed cannot be told from its state.",
		"The bearer token changes every half hour, so that exactly one account is configured, and the lookup credential is " +
			"a file that somebody keeps fresh. The log-in passes without a key.",
		"Card data goes to pci-api.airwallex.com, a host of its own that is not declared here.",
	}
}

func airwallexAnswers() []*AnswerRule {
	return []*AnswerRule{
		answered("declined", "", on("400"), is("/code", "issuer_declined", "authentication_declined", "insufficient_fund")),
		answered("not-executed", "", on("400"), is("/code", "validation_error", "invalid_argument")),
		answered("unknown", "", on("4xx"), is("/code", "duplicate_request")),
		answered("not-executed", "", on("401", "403", "404", "429"), present("/code")),
	}
}

// airwallexMade makes a 2xx count by the status of what was made.
func airwallexMade(good []string, bad ...string) []*AnswerRule {
	rules := []*AnswerRule{answered("succeeded", "", on("2xx"), present("/id"), is("/status", good...), absent("/code"))}
	if len(bad) > 0 {
		rules = append(rules, answered("declined", "", on("2xx"), present("/id"), is("/status", bad...), absent("/code")))
	}
	return append(rules, answered("unknown", "", on("2xx")))
}

func airwallexKeyed(name, path string, rules []*AnswerRule) *Route {
	return &Route{
		Name: name, Method: "POST", Path: "/api/v1/" + path, NoReference: true, Object: "/id", Answers: rules,
		Key: &KeyPlace{Field: "request_id", Shape: Shape{Alphabet: "uuid"}},
	}
}

// airwallexTaken is for what was taken in and whose states are not documented: the money is pending.
func airwallexTaken() []*AnswerRule {
	return []*AnswerRule{
		answered("unknown", "", on("2xx"), is("/status", "FAILED", "CANCELLED", "REJECTED")),
		answered("succeeded", "pending", on("2xx"), present("/id"), present("/status"), absent("/code")),
		answered("unknown", "", on("2xx")),
	}
}

func airwallexRoutes() []*Route {
	refund := undo(airwallexKeyed("refunds_create", "pa/refunds/create", airwallexMade([]string{"RECEIVED", "ACCEPTED",
		"SUCCEEDED", "SETTLED"})))
	refund.Payment = paid("/status", []string{"RECEIVED", "ACCEPTED"}, []string{"SUCCEEDED", "SETTLED"}, []string{"FAILED"}, nil)
	refund.Params = map[string]string{"intent": "body:payment_intent_id", "amount": "body:amount"}
	capture := airwallexKeyed("payment_intents_capture", "pa/payment_intents/{id}/capture", airwallexMade([]string{"SUCCEEDED"}))
	capture.Params, capture.Payment = map[string]string{"id": "path:id", "amount": "body:amount"}, airwallexPayment()
	return []*Route{
		passing("login", "/api/v1/authentication/login"),
		airwallexIntent(), airwallexConfirm(), capture, airwallexCancel(), refund,
		airwallexKeyed("transfers_create", "transfers/create", airwallexTaken()),
		airwallexKeyed("conversions_create", "conversions/create", airwallexTaken()),
		airwallexKeyed("charges_create", "charges/create", airwallexTaken()),
		elsewhere(stateless("/code")),
	}
}

func airwallexPayment() *Payment {
	return paid("/status", []string{"REQUIRES_CAPTURE", "PENDING", "REQUIRES_CUSTOMER_ACTION", "REQUIRES_PAYMENT_METHOD"},
		[]string{"SUCCEEDED"}, nil, []string{"CANCELLED"})
}

// airwallexIntent: an intent that exists was created, whatever became of it.
func airwallexIntent() *Route {
	r := airwallexKeyed("payment_intents_create", "pa/payment_intents/create", airwallexMade([]string{
		"REQUIRES_PAYMENT_METHOD", "REQUIRES_CUSTOMER_ACTION", "REQUIRES_CAPTURE", "PENDING", "SUCCEEDED",
	}))
	r.NoReference = false
	r.Reference = &RefPlace{Field: "merchant_order_id", Body: "json", Shape: Shape{Alphabet: "hex", Length: 32}}
	r.Params = map[string]string{"amount": "body:amount", "currency": "body:currency"}
	r.Payment = airwallexPayment()
	r.Lookup = &Lookup{
		Kind: KindSearch, Target: "/api/v1/pa/payment_intents?merchant_order_id={reference}",
		Object: "/api/v1/pa/payment_intents/{object}",
		Items:  "/items", Each: when(present("/id")), ID: "/id", Reference: "/merchant_order_id", Amount: "/amount",
		Currency: "/currency",
		Cases: []Case{{When: when(is("/status",
			"REQUIRES_PAYMENT_METHOD", "REQUIRES_CUSTOMER_ACTION", "REQUIRES_CAPTURE", "PENDING", "SUCCEEDED")), Is: CaseDone}},
		Answer: &FoundAnswer{Status: 201},
	}
	return r
}

func airwallexGet(cases ...Case) *Lookup {
	return &Lookup{Kind: KindGet, Target: "/api/v1/pa/payment_intents/{id}", ID: "/id", SameAs: "id", Cases: cases,
		Answer: &FoundAnswer{}}
}

func airwallexConfirm() *Route {
	confirmed := []string{"SUCCEEDED", "REQUIRES_CAPTURE", "PENDING", "REQUIRES_CUSTOMER_ACTION"}
	r := airwallexKeyed("payment_intents_confirm", "pa/payment_intents/{id}/confirm", airwallexMade(confirmed))
	r.Params, r.Payment = map[string]string{"id": "path:id"}, airwallexPayment()
	r.Lookup = airwallexGet(Case{When: when(is("/status", confirmed...)), Is: CaseDone}, Case{When: when(is("/status",
		"REQUIRES_PAYMENT_METHOD")), Is: CaseBusy})
	return r
}

func airwallexCancel() *Route {
	r := undo(airwallexKeyed("payment_intents_cancel", "pa/payment_intents/{id}/cancel", airwallexMade([]string{"CANCELLED"})))
	r.Params, r.Payment = map[string]string{"id": "path:id"}, paid("/status", nil, []string{"CANCELLED"}, nil, nil)
	r.Lookup = airwallexGet(
		Case{When: when(is("/status", "CANCELLED")), Is: CaseDone},
		Case{When: when(is("/status", "REQUIRES_PAYMENT_METHOD", "REQUIRES_CAPTURE", "REQUIRES_CUSTOMER_ACTION")), Is: CaseMissed})
	return r
}
