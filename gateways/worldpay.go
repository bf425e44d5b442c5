package gateways

import "time"

const (
	worldpayPayments = "https://developer.worldpay.com/products/payments"
	worldpayQueries  = "https://developer.worldpay.com/products/payment-queries"
	worldpaySpecs    = "https://github.com/api-evangelist/worldpay"
)

// WorldpayQueries is the media type of Worldpay's payment queries, version 1.
const WorldpayQueries = "application/vnd.worldpay.payment-queries-v1.hal+json"

// Worldpay is Worldpay's Access API: payments, card payments v7 and payouts. Source: its API descriptions, as collected at
// https://github.com/api-evangelist/worldpay (paths, fields, outcomes, events, the key of account payouts).
//
// Card payments take no key: they are sent once, and looked up by transactionReference.
func Worldpay() *Gateway {
	return &Gateway{
		Name: "worldpay", Title: "Worldpay Access",
		Hosts:          []string{"access.worldpay.com"},
		BaseURL:        "https://access.worldpay.com",
		Guarantees:     worldpayGuarantees(),
		Notes:          worldpayNotes(),
		SettleAfter:    10 * time.Minute,
		AttemptTimeout: 2 * time.Minute,
		LookupScheme:   "Basic",
		LookupHeaders:  []HeaderValue{{Name: "Accept", Value: WorldpayQueries}},
		Answers:        worldpayAnswers(),
		Payment: paid("/outcome", []string{
			"authorized", "sentForSettlement", "3dsDeviceDataRequired", "3dsChallenged",
			"sentForRefund", "sentForPartialRefund", "sentForCancellation", "sentForReversal",
		}, nil, nil, nil),
		Routes:        worldpayRoutes(),
		UnknownStatus: 504, // there is no official SDK that resends
		Error:         ErrorShape{Members: map[string]any{"errorName": "fence_{slug}", "message": "{detail}"}},
	}
}

func worldpayGuarantees() map[string]*Guarantee {
	return map[string]*Guarantee{
		"G1": guaranteed(Lacking, MarkDocumented,
			"No key on card payments. Account payouts take Idempotency-Key, at most 35 characters.",
			worldpayPayments, worldpaySpecs),
		"G2": guaranteed(Supported, MarkDocumented,
			"GET /paymentQueries/payments?transactionReference=; how soon it shows a payment is not said.",
			worldpayQueries, worldpaySpecs),
		"G3": guaranteed(Undocumented, MarkDocumented, "Nothing is said of it.", worldpaySpecs),
		"G4": guaranteed(Undocumented, MarkDocumented, "Nothing is said of it.", worldpaySpecs),
		"G5": guaranteed(Undocumented, MarkDocumented,
			"Nothing says that a repeated transactionReference is refused.", worldpaySpecs),
		"G6": guaranteed(Supported, MarkDocumented,
			"Events by webhook, whose signature was not found, and by GET on the payment.", worldpayPayments, worldpaySpecs),
	}
}

func worldpayNotes() []string {
	return []string{
		"No key, and nothing refuses a repeat: after doubt nothing is sent again; a lookup by transactionReference may " +
			"find the payment, else a person decides (review).",
		"transactionReference must name one call only. A new attempt after a decline needs a new one, or the lookup may " +
			"find the older payment.",
		"Settlements, refunds, cancellations and reversals go to links of an earlier answer and are answered before they " +
			"are done; nothing finds a lost one: a person decides. A link with an escaped character is refused, as two " +
			"servers may read it in two ways.",
		"Whether a payment was sold or authorised is told by its last event; where the list leaves it out the lookup " +
			"cannot tell.",
		"Payments before 25 June 2024 are in an archive that is not asked.",
		"The lookup credential is the base64 of user:password.",
	}
}

func worldpayAnswers() []*AnswerRule {
	return []*AnswerRule{
		answered("succeeded", "", on("2xx"), is("/outcome", "authorized", "sentForSettlement", "3dsDeviceDataRequired",
			"3dsChallenged"), absent("/errorName")),
		answered("declined", "", on("2xx"), is("/outcome", "refused")),
		answered("not-executed", "", on("400", "401", "404", "406", "415"), present("/errorName")),
	}
}

// worldpaySent takes the one outcome of a follow-up; it is accepted, not done.
func worldpaySent(outcome string) []*AnswerRule {
	return []*AnswerRule{
		answered("succeeded", "pending", on("2xx"), is("/outcome", outcome), absent("/errorName")),
		answered("unknown", "", on("2xx")),
	}
}

func worldpayRoutes() []*Route {
	follow := func(name, path, outcome string) *Route {
		r := unkeyed(name, "POST", path)
		r.Answers = worldpaySent(outcome)
		return r
	}
	const payment = "/api/payments/{link}/"
	routes := []*Route{
		worldpayPayment("payments_create", "/api/payments"),
		follow("settlements_create", payment+"settlements", "sentForSettlement"),
		follow("partial_settlements_create", payment+"partialSettlements", "sentForSettlement"),
		undo(follow("refunds_create", payment+"refunds", "sentForRefund")),
		undo(follow("partial_refunds_create", payment+"partialRefunds", "sentForPartialRefund")),
		undo(follow("cancellations_create", payment+"cancellations", "sentForCancellation")),
		undo(follow("reversals_create", payment+"reversals", "sentForReversal")),
		worldpayPayment("customer_initiated_create", "/cardPayments/customerInitiatedTransactions"),
		worldpayPayment("merchant_initiated_create", "/cardPayments/merchantInitiatedTransactions"),
		undo(unkeyed("card_refunds_create", "POST", "/payments/settlements/refunds/**")),
		undo(unkeyed("card_cancellations_create", "POST", "/payments/authorizations/cancellations/**")),
		unkeyed("card_settlements_create", "POST", "/payments/settlements/**"),
		unkeyed("apm_payments_create", "POST", "/apmPayments"),
		worldpayPayout("account_payouts_create", "/accountPayouts"),
		worldpayPayout("account_payouts_batch", "/accountPayouts/batch"),
	}
	return append(routes,
		unkeyed("basic_disbursement", "POST", "/payouts/basicDisbursement"),
		unkeyed("fast_access", "POST", "/payouts/fastAccess"),
		elsewhere(),
	)
}

func worldpayPayment(name, path string) *Route {
	return &Route{
		Name: name, Method: "POST", Path: path, Keyless: true,
		Reference: &RefPlace{Field: "transactionReference", Body: "json", Unique: true, Required: true,
			Shape: Shape{Alphabet: "hex", Length: 32}},
		Lookup: &Lookup{
			Kind: KindSearch, Target: "/paymentQueries/payments?transactionReference={reference}",
			Object: "/paymentQueries/payments/{object}",
			Items:  "/_embedded/payments", Each: when(present("/paymentId")), ID: "/paymentId", Reference: "/transactionReference",
			Amount: "/value/amount", Currency: "/value/currency",
			Cases: []Case{{When: when(is("/lastEvent", "authorizationSucceeded", "saleSucceeded")), Is: CaseDone,
				Payment: "pending"}},
		},
		Params: map[string]string{"amount": "body:instruction.value.amount", "currency": "body:instruction.value.currency"},
	}
}

// worldpayPayout takes a key; for how long is not said.
func worldpayPayout(name, path string) *Route {
	return &Route{
		Name: name, Method: "POST", Path: path, NoReference: true, Object: "/payoutRequestId",
		Key: &KeyPlace{Header: "Idempotency-Key", Shape: Shape{Alphabet: "hex", Length: 32}},
		Answers: []*AnswerRule{
			answered("succeeded", "pending", on("200", "202"), present("/payoutRequestId"), absent("/errorName")),
			answered("unknown", "", on("2xx")),
		},
	}
}
