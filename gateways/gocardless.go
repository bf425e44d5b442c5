package gateways

import "time"

// GoCardlessVersion is the API version of GoCardless's lookups and checks; there is no other.
const GoCardlessVersion = "2015-07-06"

// GoCardless is GoCardless's API. Sources: https://gocardless.com/blog/idempotency-keys (keys, what a repeat gets, that a 4xx
// created nothing), the official SDKs (paths, fields, statuses, error types): https://github.com/gocardless/gocardless-pro-go,
// https://github.com/gocardless/gocardless-pro-python, https://github.com/gocardless/gocardless-nodejs.
//
// Keys hold for 30 days by second-hand notes only; a day is declared.
func GoCardless() *Gateway {
	return &Gateway{
		Name: "gocardless", Title: "GoCardless",
		Hosts:          []string{"api.gocardless.com"}, // not the sandbox's: what was meant for it must not reach BaseURL
		BaseURL:        "https://api.gocardless.com",
		Guarantees:     goCardlessGuarantees(),
		Notes:          goCardlessNotes(),
		KeyRetention:   24 * time.Hour,
		SettleAfter:    10 * time.Minute,
		AttemptTimeout: 2 * time.Minute,
		Family:         FamilyC,
		Key:            &KeyPlace{Header: "Idempotency-Key", Shape: Shape{Alphabet: "hex", Length: 64}},
		LookupHeaders:  []HeaderValue{{Name: "GoCardless-Version", Value: GoCardlessVersion}},
		Answers:        goCardlessAnswers(),
		Routes:         goCardlessRoutes(),
		Webhook:        goCardlessWebhook(),
		Checks:         goCardlessChecks(),
		UnknownStatus:  409, // the Go SDK resends on 429 and on every status from 500
		// The type is the one that promises nothing: InvalidStateError would read as "was not created". Ruby resends on it, with
		// the same headers, so that the same call is asked for again. PHP reads code and errors, Python a type and errors.
		Error: ErrorShape{Members: map[string]any{"error": map[string]any{
			"type": "gocardless", "code": 409, "message": "{detail}",
			"errors": []any{map[string]any{"reason": "fence_{slug}", "message": "{detail}"}},
		}}},
	}
}

// GoCardlessCallKey takes the Idempotency-Key that the app chose for a call key. The refused ones are what the SDKs make up:
// UUIDs (Python, Node, Ruby, PHP, Java, .NET), <nanoseconds>-<14 characters> (Go).
func GoCardlessCallKey() *CallKey {
	return &CallKey{Header: "Idempotency-Key", Refuse: []string{madeUp, `[0-9]{16,20}-[A-Za-z0-9_-]{14}`}}
}

const (
	goCardlessKeysPage = "https://gocardless.com/blog/idempotency-keys"
	goCardlessGo       = "https://github.com/gocardless/gocardless-pro-go"
	goCardlessPython   = "https://github.com/gocardless/gocardless-pro-python"
	goCardlessEvents   = "https://developer.gocardless.com/partners/webhooks-for-partners"
)

func goCardlessGuarantees() map[string]*Guarantee {
	return map[string]*Guarantee{
		"G1": {Level: Supported, Mark: MarkDocumented, Source: []string{goCardlessKeysPage},
			Says: "Header Idempotency-Key on every endpoint that creates something; of actions nothing is said. 128 characters by a " +
				"third party's client."},
		"G2": {Level: Supported, Mark: MarkDocumented, Source: []string{goCardlessKeysPage, goCardlessGo},
			Says: "A repeat with the key names the resource that was made, and makes it if there is none. Lists by time can be " +
				"matched on metadata."},
		"G3": {Level: Undocumented, Mark: MarkSecondHand, Source: []string{goCardlessKeysPage},
			Says: "The gateway gives no time. Third parties speak of 30 days; a day is declared."},
		"G4": {Level: Partial, Mark: MarkDocumented, Source: []string{goCardlessKeysPage, goCardlessPython},
			Says: "Status 409, reason idempotent_creation_conflict, with the resource's id; the resource is then read as it is now."},
		"G5": {Level: Partial, Mark: MarkInferred, Source: []string{goCardlessKeysPage},
			Says: "Any repeat of a key is a 409 that names the first resource; whether the body is compared is not said."},
		"G6": {Level: Supported, Mark: MarkSDK, Source: []string{goCardlessEvents, goCardlessGo},
			Says: "Signed events of payments, refunds and the rest, which can also be listed; late failures and chargebacks too."},
	}
}

func goCardlessNotes() []string {
	return []string{
		"A resource takes three metadata keys. fence_ref is one of them: an app that writes three of its own is refused " +
			"with 422 validation_failed, and nothing is made.",
		"That lists show at once what was made is not documented: not to be found there never proves absence. The repeat " +
			"under the same key is what decides.",
		"Actions (cancel, retry, fulfil) are not said to take a key: after a doubt nothing is resent, and what their " +
			"object shows is read. A doubt that stays is a person's.",
		"Outbound payments are signed by the app over their body, so no reference is written and nothing is looked up: a " +
			"doubt is settled by the app's own repeat, or by a person where the repeat names an object.",
		"A signature covers the host that the app addresses: an app that signs must address api.gocardless.com.",
		"A payment that failed may be tried again by GoCardless, and one that was confirmed or paid out may fail later: " +
			"failed is not final. charged_back and late_failure_settled are reversed; that a chargeback was cancelled " +
			"afterwards is not taken back here.",
		"How long keys are kept is second-hand (30 days): a repeat is relied on for 24 hours, which is less than any source says.",
		"Creating customers, mandates and the like takes a key, but is not looked up: a repeat that names the first " +
			"object is settled by a person.",
		"The Go SDK resends on 429 and from 500 on, and perhaps with an empty body; Ruby on errors of type gocardless; " +
			"Python on timeouts and answers that are no JSON; Node never. All with the same key.",
		"There is one host for tests: extend this gateway with baseURL https://api-sandbox.gocardless.com and that host.",
	}
}

// goCardlessAnswers hold for every route. invalid_state is not here: of an action it may say that an earlier attempt ran.
func goCardlessAnswers() []*AnswerRule {
	parsed := Condition{At: "/error/type"}
	rules := []*AnswerRule{
		{Status: []string{"2xx"}, When: when(Condition{At: ""}, absent("/error")), Outcome: "succeeded"},
		{Status: []string{"401", "403", "429"}, When: when(parsed), Outcome: "not-executed"},
		{Status: []string{"400", "404"}, When: when(is("/error/type", "invalid_api_usage")), Outcome: "not-executed"},
		{Status: []string{"422"}, When: when(is("/error/type", "validation_failed")), Outcome: "not-executed"},
		// A repeat under the same key is what the gateway advises after such an error, so it does not stand under the key.
		{Status: []string{"5xx"}, When: when(is("/error/type", "gocardless")), Outcome: "unknown", Transient: true},
	}
	for _, at := range []string{"/error/errors/0", "/error/errors/1", "/error/errors/2"} { // the SDKs read them all
		rules = append(rules, &AnswerRule{
			Status: []string{"409"}, Outcome: "unknown", Points: at + "/links/conflicting_resource_id",
			When: when(is(at+"/reason", "idempotent_creation_conflict"), Condition{At: at + "/links/conflicting_resource_id"}),
		})
	}
	return rules
}

// goCardlessWebhook reads GoCardless's events (Webhook-Signature: hexadecimal HMAC-SHA256 of the body; 498 answers a wrong one).
// resource_metadata is the metadata of the event's resource. An event of a resource that carries our reference says that the call
// which made it was carried out, whatever became of the money since. What is not listed only has the gateway asked.
func goCardlessWebhook() *Webhook {
	var cases []NoticeCase
	add := func(resource, route, outcome, payment string, also []Condition, actions ...string) {
		cases = append(cases, NoticeCase{
			When:   append(when(is("/resource_type", resource), is("/action", actions...)), also...),
			Routes: []string{route}, Outcome: outcome, Payment: payment,
		})
	}
	retried := when(is("/details/will_attempt_retry", "true"))
	const pay, back = "payments_create", "refunds_create"
	add("payments", pay, "succeeded", "pending", nil, "created", "submitted", "resubmission_requested")
	add("payments", pay, "succeeded", "done", nil, "confirmed", "paid_out")
	add("payments", pay, "succeeded", "pending", retried, "failed")
	add("payments", pay, "succeeded", "failed", nil, "failed")
	add("payments", pay, "succeeded", "reversed", nil, "cancelled", "charged_back", "late_failure_settled")
	add("payments", "payments_retry", "", "done", nil, "confirmed", "paid_out")
	add("payments", "payments_retry", "", "reversed", nil, "cancelled", "charged_back", "late_failure_settled")
	add("refunds", back, "succeeded", "pending", nil, "created", "refund_settled")
	add("refunds", back, "succeeded", "done", nil, "paid")
	add("refunds", back, "succeeded", "failed", nil, "failed")
	return &Webhook{
		Signature:  &Signature{Header: "Webhook-Signature"},
		Events:     "/events",
		ID:         "/id",
		References: []string{"/resource_metadata/fence_ref"},
		Object:     "/links/payment",
		Cases:      cases,
		Refuse:     498,
	}
}

// goCardlessChecks need a mandate of the sandbox. A direct debit is always pending at first; the scenario simulators move it on
// (https://developer.gocardless.com/developer-tools/scenario-simulators/). Nothing is declined at once, no 5xx
// can be asked for, and an action is not said to take a key.
func goCardlessChecks() *Checks {
	return &Checks{
		Live: []string{`live_.*`}, LiveHosts: []string{"api.gocardless.com"},
		Header:   []HeaderValue{{Name: "GoCardless-Version", Value: GoCardlessVersion}},
		Currency: "GBP", Amount: "100", Other: "101",
		Vars: map[string]string{"mandate": ""},
		Charge: &Sample{
			Target: "/payments",
			Body:   `{"payments":{"amount":{amount},"currency":"{currency}","description":"{unique}","links":{"mandate":"{mandate}"}}}`,
			Save:   map[string]string{"id": "/payments/id"},
		},
		Endpoint: &Sample{Target: "/customers", Body: `{"customers":{"email":"{unique}@example.com","company_name":"{unique}"}}`},
		Pending:  &Variation{},
		Advance:  &Sample{Target: "/scenario_simulators/payment_paid_out/actions/run", Body: `{"data":{"links":{"resource":"{id}"}}}`},
	}
}
