package gateways

import (
	"fmt"
	"time"
)

const (
	braintreePython     = "https://github.com/braintree/braintree_python"
	braintreeIdempotent = "https://developer.paypal.com/braintree/graphql/integration_guides/idempotency"
	braintreeDuplicates = "https://developer.paypal.com/braintree/articles/control-panel/transactions/duplicate-checking"
)

// Braintree is Braintree's classic API, which speaks XML. Sources: https://github.com/braintree/braintree_python (paths,
// statuses, error codes), https://developer.paypal.com/braintree/graphql/integration_guides/idempotency (the field
// api_request_key, for a limited audience).
//
// It is declared without a key: the field is not on for every account, and XML bodies are passed on as they are.
func Braintree() *Gateway {
	return &Gateway{
		Name: "braintree", Title: "Braintree",
		Hosts:          []string{"api.braintreegateway.com"},
		BaseURL:        "https://api.braintreegateway.com",
		Guarantees:     braintreeGuarantees(),
		Notes:          braintreeNotes(),
		SettleAfter:    10 * time.Minute,
		AttemptTimeout: 2 * time.Minute,
		Family:         FamilyB,
		LookupScheme:   "Basic",
		Answers:        braintreeAnswers(),
		Payment:        braintreePayment(),
		Routes:         braintreeRoutes(),
		UnknownStatus:  504, // no official SDK resends by itself; each raises its gateway timeout
		Error: ErrorShape{Members: map[string]any{"api-error-response": map[string]any{
			"message": "{detail}", "code": "fence_{slug}",
		}}},
	}
}

func braintreeGuarantees() map[string]*Guarantee {
	return map[string]*Guarantee{
		"G1": guaranteed(Supported, MarkDocumented,
			"Body field api_request_key, at most 255 characters, for a limited audience. Without it only duplicate "+
				"checking: 30 s, same amount, order id and payment method, after a success.",
			braintreeIdempotent, braintreeDuplicates, braintreePython),
		"G2": guaranteed(Supported, MarkSDK,
			"Transaction search by order_id; how soon it shows a transaction is not said.", braintreePython),
		"G3": guaranteed(Supported, MarkDocumented, "30 days for an api_request_key.", braintreeIdempotent),
		"G4": guaranteed(Partial, MarkSDK, "The same transaction in its present state.", braintreePython, braintreeIdempotent),
		"G5": guaranteed(Supported, MarkSDK, "422 with validation error 915232.", braintreePython),
		"G6": guaranteed(Supported, MarkInferred,
			"Webhooks with bt_signature and bt_payload; the transaction can be read.", braintreePython),
	}
}

func braintreeNotes() []string {
	return []string{
		"Declared without a key and without a lookup: XML bodies are not changed, and the search is a POST: after doubt " +
			"nothing is sent again; a person decides (review). Write the call's key into order_id, so that the control " +
			"panel finds it.",
		"Duplicate checking holds for 30 s, does not wait for a first call in flight, and its refusal (gateway_rejected, " +
			"reason duplicate) means that an earlier identical call succeeded: it stays in doubt.",
		"Validation errors 915232 to 915235 speak of an earlier request with the same api_request_key: in doubt.",
		"clientMutationId of the GraphQL API is no idempotency key. The GraphQL API has its own host and is not declared here.",
		"The SDKs pin the certificates of sandbox and production; the environment Development takes GATEWAY_PORT.",
		"A status failed (code 3000, processor unavailable) is in doubt.",
	}
}

// braintreeMade are the statuses of a transaction that was carried out.
var braintreeMade = []string{
	"authorized", "authorizing", "submitted_for_settlement", "settling", "settled", "settlement_pending", "settlement_confirmed",
}

// braintreeRejections are the SDK's reasons of gateway_rejected but for duplicate; a new one is in doubt.
var braintreeRejections = []string{
	"application_incomplete", "avs", "avs_and_cvv", "cvv", "excessive_retry", "fraud", "risk_threshold", "three_d_secure",
	"token_issuance",
}

// braintreeDoubts are validation errors that speak of an earlier request under the key: another, in flight, failed, server error.
var braintreeDoubts = []string{"915232", "915233", "915234", "915235"}

// braintreeErrors is how many validation errors of one transaction are read.
const braintreeErrors = 4

func braintreeAnswers() []*AnswerRule {
	const refused = "/api-error-response/transaction/status"
	rules := []*AnswerRule{
		answered("succeeded", "", on("200", "201"), present("/transaction/id"), is("/transaction/status", braintreeMade...)),
		answered("declined", "", on("422"), present("/api-error-response/transaction/id"), is(refused, "processor_declined")),
		answered("declined", "", on("422"), present("/api-error-response/transaction/id"), is(refused, "gateway_rejected"),
			is("/api-error-response/transaction/gateway-rejection-reason", braintreeRejections...)),
		answered("unknown", "", on("422"), present("/api-error-response/transaction")),
	}
	return append(append(rules, braintreeValidation()...),
		answered("not-executed", "", on("401")), // before anything runs, often without a body
		answered("not-executed", "", on("403", "404", "429"), present("/api-error-response/message")),
	)
}

// braintreeValidation takes a 422 for a refusal only if each of its errors was read: one, or a few, of the transaction itself.
func braintreeValidation() (rules []*AnswerRule) {
	const errors = "/api-error-response/errors/transaction/errors/error"
	places := []string{""}
	for i := range braintreeErrors {
		places = append(places, fmt.Sprintf("/%d", i))
	}
	for _, p := range places {
		rules = append(rules, answered("unknown", "", on("422"), is(errors+p+"/code", braintreeDoubts...)))
	}
	further := fmt.Sprintf("%s/%d", errors, braintreeErrors)
	return append(rules,
		answered("not-executed", "", on("422"), present(errors+"/code")),
		answered("not-executed", "", on("422"), present(errors+"/0/code"), present(errors+"/1/code"), absent(further)),
	)
}

func braintreePayment() *Payment {
	return paid("/transaction/status", []string{"authorizing", "authorized"},
		[]string{"submitted_for_settlement", "settling", "settled", "settlement_pending", "settlement_confirmed"},
		[]string{"processor_declined", "gateway_rejected", "failed", "authorization_expired", "settlement_declined"},
		[]string{"voided"})
}

// braintreeCame makes a 2xx count if the transaction has come to a status.
func braintreeCame(statuses ...string) []*AnswerRule {
	return []*AnswerRule{
		answered("succeeded", "", on("200", "201"), present("/transaction/id"), is("/transaction/status", statuses...)),
		answered("unknown", "", on("2xx")),
	}
}

func braintreeRoutes() []*Route {
	const all = "/merchants/{merchant}/transactions"
	act := func(name, method, path string) *Route {
		r := unkeyed(name, method, all+"/{id}/"+path)
		r.Params, r.Object = map[string]string{"id": "path:id"}, "/transaction/id"
		return r
	}
	sale := unkeyed("transactions_create", "POST", all)
	sale.Object = "/transaction/id"
	void := undo(act("transactions_void", "PUT", "void"))
	void.Payment = paid("/transaction/status", nil, []string{"voided"}, nil, nil)
	void.Answers = braintreeCame("voided")
	settle := func(name, method, path string) *Route {
		r := act(name, method, path)
		r.Answers = braintreeCame("submitted_for_settlement", "settling", "settled", "settlement_pending", "settlement_confirmed")
		return r
	}
	return []*Route{
		passing("transactions_search", all+"/advanced_search_ids", all+"/advanced_search"),
		sale,
		settle("transactions_submit", "PUT", "submit_for_settlement"),
		settle("transactions_submit_partial", "POST", "submit_for_partial_settlement"),
		act("transactions_adjust", "PUT", "adjust_authorization"),
		act("transactions_clone", "POST", "clone"),
		undo(act("transactions_cancel_release", "PUT", "cancel_release")),
		void,
		undo(act("transactions_refund", "POST", "refund")),
		elsewhere(),
	}
}
