package gateways

// goCardlessRoutes are GoCardless's operations that move money, then the rest of the unsafe ones.
func goCardlessRoutes() []*Route {
	collects := map[string]string{"amount": "amount", "currency": "currency", "mandate": "links.mandate"}
	return []*Route{
		goCardlessCreate("payments", collects, goCardlessPaid()),
		goCardlessCancel(), goCardlessRetry(),
		undo(goCardlessCreate("refunds", map[string]string{"amount": "amount", "payment": "links.payment", "mandate": "links.mandate"},
			goCardlessStates("pending", "created", "pending", "pending_submission", "pending", "submitted", "done", "paid",
				"reversed", "cancelled", "failed", "bounced", "reversed", "funds_returned"))),
		// Where the money of a subscription is, the payments that it makes tell: its own state does not.
		goCardlessCreate("subscriptions", collects, goCardlessStates("", "pending_customer_approval", "", "customer_approval_denied",
			"", "active", "", "finished", "", "cancelled", "", "paused")),
		undo(goCardlessAction("subscriptions", "cancel", []Case{
			{When: when(is("/subscriptions/status", "cancelled")), Is: CaseDone},
			{When: when(is("/subscriptions/status", "active", "paused", "pending_customer_approval")), Is: CaseMissed},
		})),
		goCardlessInstalments(),
		undo(goCardlessAction("instalment_schedules", "cancel", []Case{
			{When: when(is("/instalment_schedules/status", "cancelled")), Is: CaseDone},
			{When: when(is("/instalment_schedules/status", "active")), Is: CaseMissed},
		})),
		goCardlessFulfil(),
		undo(goCardlessAction("billing_requests", "cancel", []Case{
			{When: when(is("/billing_requests/status", "cancelled")), Is: CaseDone},
			{When: when(is("/billing_requests/status", "pending", "ready_to_fulfil")), Is: CaseMissed},
		})),
		undo(goCardlessAction("mandates", "cancel", []Case{ // its payments that can be cancelled go with it
			{When: when(is("/mandates/status", "cancelled")), Is: CaseDone},
			{When: when(is("/mandates/status", "active", "submitted", "pending_submission", "pending_customer_approval")), Is: CaseMissed},
		})),
		goCardlessOutbound(), goCardlessSigned("withdraw", "/outbound_payments/withdrawal"),
		goCardlessSigned("approve", "/outbound_payments/{id}/actions/approve"),
		undo(goCardlessSigned("cancel", "/outbound_payments/{id}/actions/cancel")),
		{Name: "create", Method: "POST", Path: "/{resource}", Probe: true, Answers: goCardlessRefused()},
		// What is neither is not said to take a key.
		{Name: "other", Method: "*", Path: "/**", Keyless: true},
	}
}

// goCardlessRefused are answers of endpoints that create: a 4xx says that nothing was made
// (https://gocardless.com/blog/idempotency-keys).
func goCardlessRefused() []*AnswerRule {
	return []*AnswerRule{{Status: []string{"422"}, When: when(is("/error/type", "invalid_state")), Outcome: "not-executed"}}
}

// goCardlessObject makes a 2xx count only with the resource and its id.
func goCardlessObject(resource string) []*AnswerRule {
	return []*AnswerRule{
		{Status: []string{"2xx"}, Outcome: "succeeded", When: when(
			Condition{At: "/" + resource + "/id"}, Condition{At: "/" + resource + "/status"}, absent("/error"),
		)},
		{Status: []string{"2xx"}, Outcome: "unknown"},
	}
}

// goCardlessState is where the money is while a resource has a status.
type goCardlessState struct{ payment, status string }

// goCardlessStates pairs payment states with statuses.
func goCardlessStates(words ...string) (states []goCardlessState) {
	for i := 0; i+1 < len(words); i += 2 {
		states = append(states, goCardlessState{words[i], words[i+1]})
	}
	return states
}

// goCardlessPaid: the SDKs' PaymentStatus.
func goCardlessPaid() []goCardlessState {
	return goCardlessStates("pending", "pending_customer_approval", "pending", "pending_submission", "pending", "submitted",
		"done", "confirmed", "done", "paid_out", "failed", "failed", "failed", "customer_approval_denied",
		"reversed", "cancelled", "reversed", "charged_back")
}

// goCardlessPayment reads the states in an answer, where the resource stands in its envelope.
func goCardlessPayment(resource string, states []goCardlessState) *Payment {
	p := &Payment{At: "/" + resource + "/status", Values: map[string]string{}}
	for _, s := range states {
		if s.payment != "" {
			p.Values[s.status] = s.payment
		}
	}
	return p
}

// goCardlessCreate makes a resource that carries our reference. It is found by the id that a repeat of the key names, else by
// listing what was made since the first attempt. A resource that is there was made, whatever became of it: its status tells
// where the money is. params are fields of the resource; all but amount and currency must be the same in what is found.
func goCardlessCreate(resource string, params map[string]string, states []goCardlessState) *Route {
	r := &Route{
		Name: resource + "_create", Method: "POST", Path: "/" + resource, Probe: true,
		Reference: &RefPlace{
			Field: resource + ".metadata.fence_ref", Body: "json", Owned: true, Required: true, Shape: Shape{Alphabet: "hex", Length: 32},
		},
		Params:  map[string]string{},
		Object:  "/" + resource + "/id",
		Answers: append(goCardlessObject(resource), goCardlessRefused()...),
		Payment: goCardlessPayment(resource, states),
		Lookup: &Lookup{
			Kind: KindList, Target: "/" + resource + "?created_at%5Bgte%5D={since}&limit=500", SinceFormat: "rfc3339",
			Object: "/" + resource + "/{object}", ObjectAt: "/" + resource,
			Is: when(Condition{At: "/meta/cursors"}), Items: "/" + resource, ID: "/id",
			Each:      when(Condition{At: "/id"}, Condition{At: "/status"}, absent("/error")),
			Reference: "/metadata/fence_ref", Currency: "/currency", Same: map[string]string{},
			Pages:  &Pages{Next: "/meta/cursors/after", Param: "after", Max: 100},
			Answer: &FoundAnswer{Status: 201, Wrap: resource},
		},
	}
	for name, field := range params {
		r.Params[name] = "body:" + resource + "." + field
		switch name {
		case "amount":
			r.Lookup.Amount = "/" + field
		case "payment", "mandate":
			r.Lookup.Same[name] = "/links/" + name
		}
	}
	for _, s := range states {
		r.Lookup.Cases = append(r.Lookup.Cases, Case{When: when(is("/status", s.status)), Is: CaseDone, Payment: s.payment})
	}
	return r
}

// goCardlessInstalments makes a schedule: done says that it stands, its instalments are payments of their own. The Python SDK
// has other paths than the rest.
func goCardlessInstalments() *Route {
	r := goCardlessCreate("instalment_schedules", map[string]string{"amount": "total_amount", "currency": "currency", "mandate": "links.mandate"},
		goCardlessStates("pending", "pending", "done", "active", "done", "completed", "done", "cancelled", "done", "errored",
			"failed", "creation_failed"))
	r.Also = []string{"/instalment_schedules/create_with_dates", "/instalment_schedules/create_with_schedule"}
	return r
}

// goCardlessAction changes the resource that the request names, and is found by reading it. GoCardless does not say that an
// action takes a key, though the SDKs send one: it is never repeated to find out.
func goCardlessAction(resource, action string, cases []Case) *Route {
	return &Route{
		Name: resource + "_" + action, Method: "POST", Path: "/" + resource + "/{id}/actions/" + action,
		Params: map[string]string{"id": "path:id"}, Answers: goCardlessObject(resource),
		Lookup: &Lookup{
			Kind: KindGet, Target: "/" + resource + "/{id}", ID: "/" + resource + "/id", SameAs: "id",
			Cases: cases, Answer: &FoundAnswer{},
		},
	}
}

// goCardlessCancel works until the payment is submitted to the banks.
func goCardlessCancel() *Route {
	r := undo(goCardlessAction("payments", "cancel", []Case{
		{When: when(is("/payments/status", "cancelled")), Is: CaseDone},
		{When: when(is("/payments/status", "pending_submission", "pending_customer_approval")), Is: CaseMissed},
	}))
	r.Payment = &Payment{At: "/payments/status", Values: map[string]string{"cancelled": "done"}}
	return r
}

// goCardlessRetry of a payment that failed: if it has still failed, it may have failed again.
func goCardlessRetry() *Route {
	r := goCardlessAction("payments", "retry", []Case{
		{When: when(is("/payments/status", "pending_submission", "submitted", "confirmed", "paid_out", "charged_back")), Is: CaseDone},
		{When: when(is("/payments/status", "failed")), Is: CaseBusy},
	})
	r.Payment = goCardlessPayment("payments", goCardlessPaid())
	return r
}

// goCardlessFulfil makes what the billing request asks for, a payment among it, once.
func goCardlessFulfil() *Route {
	return goCardlessAction("billing_requests", "fulfil", []Case{
		{When: when(is("/billing_requests/status", "fulfilling", "fulfilled")), Is: CaseDone},
		{When: when(is("/billing_requests/status", "ready_to_fulfil")), Is: CaseMissed},
	})
}

// goCardlessOutbound sends money out. The app signs the body (Gc-Signature over Content-Digest), and reads must be signed as well.
func goCardlessOutbound() *Route {
	const resource = "outbound_payments"
	return &Route{
		Name: resource + "_create", Method: "POST", Path: "/" + resource, Probe: true, Signed: true, Object: "/" + resource + "/id",
		Answers: append(goCardlessObject(resource), goCardlessRefused()...),
		Payment: goCardlessPayment(resource, goCardlessStates("pending", "verifying", "pending", "pending_approval", "pending", "scheduled",
			"pending", "executing", "done", "executed", "reversed", "cancelled", "failed", "failed")),
	}
}

// goCardlessSigned is a signed request that is not said to take a key.
func goCardlessSigned(name, path string) *Route {
	return &Route{
		Name: "outbound_payments_" + name, Method: "POST", Path: path, Signed: true, Object: "/outbound_payments/id",
		Answers: goCardlessObject("outbound_payments"),
	}
}
