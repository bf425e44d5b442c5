package gateways

import "time"

const (
	increaseKeysPage = "https://increase.com/documentation/idempotency-keys.md"
	increaseGo       = "https://github.com/Increase/increase-go"
)

// Increase is Increase's banking API. Sources: https://increase.com/documentation/idempotency-keys.md (keys, replay marker,
// what another request gets), https://github.com/Increase/increase-go (paths, statuses, error types, resends).
func Increase() *Gateway {
	return &Gateway{
		Name: "increase", Title: "Increase",
		Hosts:          []string{"api.increase.com"},
		BaseURL:        "https://api.increase.com",
		Guarantees:     increaseGuarantees(),
		Notes:          increaseNotes(),
		SettleAfter:    10 * time.Minute,
		AttemptTimeout: 2 * time.Minute,
		Family:         FamilyB,
		Replayed:       &HeaderValue{Name: "Idempotent-Replayed", Value: "true"},
		Key:            &KeyPlace{Header: "Idempotency-Key", Shape: Shape{Alphabet: "hex", Length: 64}},
		Answers:        increaseAnswers(),
		Routes:         increaseRoutes(),
		UnknownStatus:  424, // the SDKs resend 408, 409, 429 and 5xx
		// An error's own members are the problem's, but for these.
		Error: ErrorShape{
			Members: map[string]any{"errors": []any{}, "reason": "fence_{slug}"},
			Header:  []HeaderValue{{Name: "x-should-retry", Value: "false"}},
		},
	}
}

func increaseGuarantees() map[string]*Guarantee {
	return map[string]*Guarantee{
		"G1": guaranteed(Supported, MarkDocumented, "Header Idempotency-Key on POST, at most 200 characters.", increaseKeysPage),
		"G2": guaranteed(Supported, MarkDocumented,
			"Lists take a filter idempotency_key; how soon they show an object is not said.", increaseKeysPage, increaseGo),
		"G3": guaranteed(Undocumented, MarkDocumented, "No time is given; the object keeps its key.", increaseKeysPage),
		"G4": guaranteed(Supported, MarkDocumented, "The object, with Idempotent-Replayed: true.", increaseKeysPage),
		"G5": guaranteed(Supported, MarkDocumented, "409 idempotency_key_already_used_error with resource_id.", increaseKeysPage),
		"G6": guaranteed(Supported, MarkDocumented, "Events by webhook and by list.", increaseGo),
	}
}

func increaseNotes() []string {
	return []string{
		"How long keys are kept is not documented: after doubt nothing is sent again. A transfer is looked up by its key; where it is " +
			"not shown, or not in a state that tells, a person decides (review).",
		"409 idempotency_key_already_used_error names the object that the key has made: in doubt until that was read.",
		"A transfer that waits for approval was made: its money is pending.",
		"The SDKs resend 408, 409, 429 and 5xx; x-should-retry: false stops them.",
	}
}

func increaseAnswers() []*AnswerRule {
	return []*AnswerRule{
		{Status: on("409"), When: when(is("/type", "idempotency_key_already_used_error")), Outcome: "unknown",
			Points: "/resource_id"},
		answered("not-executed", "", on("400"), is("/type", "invalid_parameters_error", "malformed_request_error")),
		answered("not-executed", "", on("401"), is("/type", "invalid_api_key_error")),
		answered("not-executed", "", on("403"), is("/type", "insufficient_permissions_error", "environment_mismatch_error",
			"private_feature_error")),
		answered("not-executed", "", on("404"), is("/type", "object_not_found_error", "api_method_not_found_error")),
		answered("not-executed", "", on("429"), is("/type", "rate_limited_error")),
	}
}

// increaseStates are a kind's statuses, by where the money is.
type increaseStates struct{ pending, done, failed, reversed []string }

// increaseWaiting are statuses that every kind of transfer has before it goes out.
func increaseWaiting(more ...string) []string {
	return append([]string{"pending_approval", "pending_reviewing", "requires_attention"}, more...)
}

func increaseRoutes() []*Route {
	gone := []string{"canceled", "rejected"}
	kinds := []struct {
		name   string
		states increaseStates
	}{
		{"account_transfer", increaseStates{increaseWaiting(), []string{"complete"}, []string{"canceled"}, nil}},
		{"ach_transfer", increaseStates{increaseWaiting("pending_transfer_session_confirmation", "pending_submission",
			"submitted"), nil, gone, []string{"returned"}}},
		{"wire_transfer", increaseStates{increaseWaiting("pending_creating", "submitted"), []string{"complete"}, gone,
			[]string{"reversed"}}},
		{"check_transfer", increaseStates{increaseWaiting("pending_submission", "pending_mailing", "mailed"),
			[]string{"deposited"}, append(gone, "stopped"), []string{"returned"}}},
		{"real_time_payments_transfer", increaseStates{increaseWaiting("pending_submission", "submitted"), []string{"complete"},
			gone, nil}},
		{"fednow_transfer", increaseStates{increaseWaiting("pending_submitting", "pending_response"), []string{"complete"},
			append(gone, "reviewing_rejected"), nil}},
		{"card_push_transfer", increaseStates{increaseWaiting("pending_submission", "submitted"), []string{"complete"},
			append(gone, "declined"), nil}},
		{"swift_transfer", increaseStates{increaseWaiting("pending_initiating", "initiated"), nil, gone, []string{"returned"}}},
	}
	var routes []*Route
	for _, k := range kinds {
		routes = append(routes, increaseTransfer(k.name, k.states)...)
	}
	return append(routes,
		increaseBack("check_transfers_stop", "/check_transfers/{id}/stop_payment", "check_transfer", "stopped"),
		increaseBack("inbound_wire_transfers_reverse", "/inbound_wire_transfers/{id}/reverse", "inbound_wire_transfer", "reversed"),
		increaseBack("inbound_ach_transfers_return", "/inbound_ach_transfers/{id}/transfer_return", "inbound_ach_transfer",
			"returned"),
		&Route{Name: "post", Method: "POST", Path: "/**", NoReference: true, Answers: []*AnswerRule{stateless("/title")}},
		elsewhere(stateless("/title")),
	)
}

// increaseTransfer makes, approves and cancels transfers of a kind. One that came to nothing in the very answer is not declared: in
// doubt.
func increaseTransfer(kind string, s increaseStates) []*Route {
	path, pay := "/"+kind+"s", paid("/status", s.pending, s.done, s.failed, s.reversed)
	good := append(append([]string{}, s.pending...), s.done...)
	create := &Route{
		Name: kind + "s_create", Method: "POST", Path: path, NoReference: true, Object: "/id", Payment: pay,
		Answers: increaseMade(kind, good...),
		Params:  map[string]string{"amount": "body:amount"},
		// How soon the filter shows an object is not said, so that nothing found proves nothing.
		Lookup: &Lookup{
			Kind: KindSearch, Target: path + "?idempotency_key={key}", Items: "/data", ID: "/id", Key: "/idempotency_key",
			Object: path + "/{object}", Each: when(is("/type", kind), present("/id")), Amount: "/amount",
			Cases:  []Case{{When: when(is("/status", good...)), Is: CaseDone}},
			Pages:  &Pages{Next: "/next_cursor", Param: "cursor"},
			Answer: &FoundAnswer{},
		},
	}
	approve := &Route{
		Name: kind + "s_approve", Method: "POST", Path: path + "/{id}/approve", NoReference: true, Object: "/id", Payment: pay,
		Params: map[string]string{"id": "path:id"}, Answers: increaseMade(kind, good...),
	}
	return []*Route{create, approve, increaseBack(kind+"s_cancel", path+"/{id}/cancel", kind, "canceled")}
}

// increaseBack takes a transfer back.
func increaseBack(name, path, kind, status string) *Route {
	return undo(&Route{
		Name: name, Method: "POST", Path: path, NoReference: true, Object: "/id", Params: map[string]string{"id": "path:id"},
		Payment: paid("/status", nil, []string{status}, nil, nil), Answers: increaseMade(kind, status),
	})
}

func increaseMade(kind string, good ...string) []*AnswerRule {
	return []*AnswerRule{
		answered("succeeded", "", on("2xx"), present("/id"), is("/type", kind), is("/status", good...)),
		answered("unknown", "", on("2xx")),
	}
}
