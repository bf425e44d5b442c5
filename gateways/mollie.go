package gateways

import (
	"maps"
	"time"
)

const (
	mollieKeysPage = "https://docs.mollie.com/reference/api-idempotency"
	mollieSpec     = "https://github.com/mollie/openapi"
	mollieNote     = "https://github.com/meteroid-oss/meteroid"
	molliePHP      = "https://github.com/mollie/mollie-api-php"
)

// Mollie is Mollie's API v2. Sources: https://docs.mollie.com/reference/api-idempotency (keys, lists as the other way),
// https://github.com/mollie/openapi (paths, fields, statuses).
//
// That keys hold for an hour, and what a repeat gets, is known at second hand only, so that no repeat is a question.
func Mollie() *Gateway {
	return &Gateway{
		Name: "mollie", Title: "Mollie",
		Hosts:          []string{"api.mollie.com"},
		BaseURL:        "https://api.mollie.com",
		Guarantees:     mollieGuarantees(),
		Notes:          mollieNotes(),
		KeyRetention:   time.Hour,
		SettleAfter:    10 * time.Minute,
		AttemptTimeout: 2 * time.Minute,
		Replayed:       &HeaderValue{Name: "Idempotent-Replayed", Value: "true"},
		Key:            &KeyPlace{Header: "Idempotency-Key", Shape: Shape{Alphabet: "uuid"}},
		Answers:        mollieAnswers(),
		Routes:         mollieRoutes(),
		Webhook:        &Webhook{Form: true, Object: "/id"}, // unsigned, and it carries the id only
		UnknownStatus:  424,                                 // the SDKs resend 5xx
		// An error's own members are the problem's; _links stands in every answer, so that one of ours tells them apart.
		Error: ErrorShape{Members: map[string]any{
			"fence": "{slug}",
			"_links": map[string]any{"documentation": map[string]any{
				"href": "https://docs.mollie.com/reference/handling-errors", "type": "text/html",
			}},
		}},
	}
}

func mollieGuarantees() map[string]*Guarantee {
	return map[string]*Guarantee{
		"G1": guaranteed(Supported, MarkDocumented,
			"Header Idempotency-Key on POST; PATCH and DELETE are said to pass it over.", mollieKeysPage, mollieSpec),
		"G2": guaranteed(Partial, MarkDocumented,
			"Lists, newest first, matched on metadata; no filter on a reference.", mollieKeysPage, mollieSpec),
		"G3": guaranteed(Supported, MarkSecondHand, "One hour, the shortest of all.", mollieNote),
		"G4": guaranteed(Supported, MarkSecondHand,
			"The cached answer with Idempotent-Replayed: true; 409 while the first is in flight.",
			mollieKeysPage, mollieNote),
		"G5": guaranteed(Supported, MarkSecondHand, "400 where the parameters differ.", mollieNote),
		"G6": guaranteed(Supported, MarkDocumented,
			"A form with the id, unsigned, to the payment's webhookUrl; newer events are signed.", mollieSpec, molliePHP),
	}
}

func mollieNotes() []string {
	return []string{
		"A key is kept for an hour only, by second-hand notes: after doubt nothing is sent again; a lookup may find the " +
			"object by metadata, else a person decides (review) when the hour has passed.",
		"Lists have no filter: the newest 250 are read, and a miss proves nothing.",
		"metadata.fence_ref is the sidecar's own; metadata that is a text or a list does not take it, and the payment " +
			"cannot then be looked up.",
		"A hosted payment that is made twice is harmless; recurring payments, subscriptions and part refunds charge or pay " +
			"twice.",
		"409 on a refund means an identical refund a moment ago; 503 on a payment means that the method's supplier did not " +
			"answer: both in doubt.",
		"The official SDKs add a random key to each request and resend on 5xx; the sidecar's own key replaces theirs.",
	}
}

func mollieAnswers() []*AnswerRule {
	return []*AnswerRule{
		answered("not-executed", "", on("400", "401", "403", "404", "422", "429"), present("/title"), present("/detail")),
	}
}

// mollieMade makes a 2xx count by the status of what was made.
func mollieMade(resource string, good ...string) []*AnswerRule {
	return []*AnswerRule{
		answered("succeeded", "", on("2xx"), present("/id"), is("/resource", resource), is("/status", good...)),
		answered("declined", "", on("2xx"), present("/id"), is("/resource", resource), is("/status", "failed")),
		answered("unknown", "", on("2xx")),
	}
}

func mollieReference() *RefPlace {
	return &RefPlace{Field: "metadata.fence_ref", Body: "json", Owned: true, Shape: Shape{Alphabet: "hex", Length: 32}}
}

func mollieRoutes() []*Route {
	return []*Route{
		molliePayment("payments_create", "/v2/payments", nil),
		molliePayment("customer_payments_create", "/v2/customers/{customer}/payments",
			map[string]string{"customer": "path:customer"}),
		mollieKeyed("subscriptions_create", "/v2/customers/{customer}/subscriptions"),
		mollieKeyed("captures_create", "/v2/payments/{id}/captures", mollieMade("capture", "pending", "succeeded")...),
		mollieRefund(),
		undo(mollieKeyed("payments_release", "/v2/payments/{id}/release-authorization")),
		mollieKeyed("routes_create", "/v2/payments/{id}/routes"),
		mollieCancel(),
		mollieKeyed("balance_transfers_create", "/v2/connect/balance-transfers"),
		mollieKeyed("payouts_create", "/v2/payouts", mollieMade("payout", "requested", "completed")...),
		{Name: "business_transfers_create", Method: "POST", Path: "/v2/business-accounts/transfers", Signed: true},
		// X-Client-Signature
		{Name: "post", Method: "POST", Path: "/v2/**", Answers: []*AnswerRule{stateless("/title")}},
		elsewhere(stateless("/title")),
	}
}

func mollieKeyed(name, path string, rules ...*AnswerRule) *Route {
	return &Route{Name: name, Method: "POST", Path: path, NoReference: true, Answers: rules, Object: "/id"}
}

// molliePayment: one that failed is an object that failed; one that was canceled or has expired may have been authorised before.
func molliePayment(name, path string, params map[string]string) *Route {
	r := &Route{
		Name: name, Method: "POST", Path: path, Reference: mollieReference(), Object: "/id",
		Params:  map[string]string{"amount": "body:amount.value", "currency": "body:amount.currency"},
		Answers: mollieMade("payment", "paid", "authorized", "open", "pending"),
		Payment: paid("/status", []string{"authorized", "open", "pending"}, []string{"paid"}, []string{"failed", "expired"},
			[]string{"canceled"}),
		Lookup: mollieList(path+"?limit=250", "payments", "/v2/payments/{object}", []Case{
			{When: when(is("/status", "paid", "authorized", "open", "pending")), Is: CaseDone},
			{When: when(is("/status", "failed")), Is: CaseFailed},
		}),
	}
	maps.Copy(r.Params, params)
	return r
}

// mollieList reads the newest page; a miss proves nothing.
func mollieList(target, items, object string, cases []Case) *Lookup {
	return &Lookup{
		Kind: KindSearch, Target: target, Object: object, Items: "/_embedded/" + items, Each: when(present("/id"),
			present("/resource")), ID: "/id",
		Reference: "/metadata/fence_ref", Amount: "/amount/value", Currency: "/amount/currency", Cases: cases,
		Answer: &FoundAnswer{Status: 201, ContentType: "application/hal+json"},
	}
}

func mollieRefund() *Route {
	return &Route{
		Name: "refunds_create", Method: "POST", Path: "/v2/payments/{id}/refunds", Effect: EffectUndo,
		Reference: mollieReference(), Object: "/id",
		Params:  map[string]string{"id": "path:id", "amount": "body:amount.value", "currency": "body:amount.currency"},
		Answers: mollieMade("refund", "queued", "pending", "processing", "refunded"),
		Payment: paid("/status", []string{"queued", "pending", "processing"}, []string{"refunded"}, []string{"failed"},
			[]string{"canceled"}),
		Lookup: mollieList("/v2/payments/{id}/refunds?limit=250", "refunds", "", []Case{
			{When: when(is("/status", "queued", "pending", "processing", "refunded")), Is: CaseDone},
			{When: when(is("/status", "failed")), Is: CaseFailed},
		}),
	}
}

// mollieCancel: DELETE takes no key.
func mollieCancel() *Route {
	r := undo(unkeyed("payments_cancel", "DELETE", "/v2/payments/{id}"))
	r.Params, r.Object = map[string]string{"id": "path:id"}, "/id"
	r.Payment = paid("/status", nil, []string{"canceled"}, nil, nil)
	r.Answers = []*AnswerRule{
		answered("succeeded", "", on("2xx"), present("/id"), is("/status", "canceled")),
		answered("unknown", "", on("2xx")),
	}
	r.Lookup = &Lookup{
		Kind: KindGet, Target: "/v2/payments/{id}", ID: "/id", SameAs: "id", Is: when(is("/resource", "payment")),
		Cases: []Case{
			{When: when(is("/status", "canceled")), Is: CaseDone},
			{When: when(is("/status", "open", "pending", "authorized")), Is: CaseMissed},
		},
		Answer: &FoundAnswer{ContentType: "application/hal+json"},
	}
	return r
}
