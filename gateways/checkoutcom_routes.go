package gateways

// ckoRoutes are Checkout.com's operations that move money, then the rest of the unsafe ones.
func ckoRoutes() []*Route {
	reversal := undo(ckoAction("reversals_create", "reversals", "Void", "Refund"))
	reversal.Keyless = true // not among the endpoints that are documented to take one
	cancellation := undo(ckoAction("cancellations_create", "cancellations"))
	cancellation.Lookup = nil
	return []*Route{
		ckoCreate(),
		ckoAuthorization(),
		ckoAction("captures_create", "captures", "Capture"),
		undo(ckoAction("refunds_create", "refunds", "Refund")),
		undo(ckoAction("voids_create", "voids", "Void")),
		reversal,
		cancellation,
		{Name: "transfers_create", Method: "POST", Path: "/transfers", Object: "/id",
			Params: map[string]string{"amount": "body:source.amount", "currency": "body:source.currency"},
			Answers: []*AnswerRule{
				{Status: []string{"201"}, When: when(Condition{At: "/id"}, is("/status", "pending")), Outcome: "succeeded", Payment: "pending"},
				{Status: []string{"2xx"}, Outcome: "unknown"},
			}},
		{Name: "payment_contexts_create", Method: "POST", Path: "/payment-contexts", NoReference: true, Object: "/id",
			Answers: []*AnswerRule{
				{Status: []string{"201"}, When: when(Condition{At: "/id"}), Outcome: "succeeded"},
				{Status: []string{"2xx"}, Outcome: "unknown"},
			}},
		// It only reads.
		{Name: "payments_search", Method: "POST", Path: "/payments/search", Untagged: UntaggedPass, Keyless: true, NoReference: true},
		// Sessions, links, instruments, disputes and whatever else: no key is documented for them.
		{Name: "other", Method: "*", Path: "/**", Keyless: true, NoReference: true},
	}
}

// ckoRetrying holds where the gateway itself will try a declined payment again.
func ckoRetrying() Condition { return Condition{At: "/retry/next_attempt_on"} }

// ckoCreate makes a payment or a payout. A decline is a 201; a payment that waits for the payer or for a bank is a 202.
func ckoCreate() *Route {
	return &Route{
		Name: "payments_create", Method: "POST", Path: "/payments",
		Params:  map[string]string{"amount": "body:amount", "currency": "body:currency"},
		Object:  "/id",
		Answers: ckoPaymentAnswers(),
		Payment: &Payment{At: "/status", Values: map[string]string{
			"Captured": "done", "Partially Captured": "done", "Paid": "done", "Card Verified": "done", "Partially Refunded": "done",
			"Authorized": "pending", "Pending": "pending", "Requested": "pending", "Active": "pending",
			"Declined": "failed", "Canceled": "failed", "Expired": "failed",
			"Voided": "reversed", "Refunded": "reversed",
		}},
		Lookup: &Lookup{
			Kind: KindSearch, Target: "/payments?reference={reference}&limit=10&skip=0", Items: "/data",
			Object: "/payments/{object}", ID: "/id",
			Is:        when(is("/total_count", "0", "1", "2", "3", "4", "5", "6", "7", "8", "9", "10")), // all on one page
			Each:      when(Condition{At: "/id"}, Condition{At: "/status"}),
			Reference: "/reference", Amount: "/amount", Currency: "/currency",
			Cases:  ckoPaymentCases(),
			Answer: &FoundAnswer{Status: 201},
		},
	}
}

func ckoPaymentAnswers() []*AnswerRule {
	id := Condition{At: "/id"}
	return []*AnswerRule{
		{Status: []string{"200", "201", "202"}, When: when(id, is("/status", "Pending", "Requested", "Active")), Outcome: "succeeded"},
		{Status: []string{"201"}, When: when(id, is("/status", "Declined"), ckoRetrying()), Outcome: "succeeded", Payment: "pending"},
		{Status: []string{"201"}, When: when(id, is("/status", "Declined"), is("/approved", "false"), absent("/retry")), Outcome: "declined"},
		{Status: []string{"2xx"}, When: when(is("/approved", "false")), Outcome: "unknown"},
		{Status: []string{"200", "201"}, Outcome: "succeeded",
			When: when(id, is("/status", "Authorized", "Card Verified", "Captured", "Partially Captured", "Paid"))},
		{Status: []string{"2xx"}, Outcome: "unknown"},
	}
}

// ckoPaymentCases: a payment that was voided or refunded was made first. An expired one may be a hold that ran out or one that
// never came about.
func ckoPaymentCases() []Case {
	return []Case{
		{When: when(is("/status", "Declined"), ckoRetrying()), Is: CaseDone, Payment: "pending"},
		{When: when(is("/status", "Declined", "Canceled", "Expired")), Is: CaseFailed},
		{When: when(is("/status", "Authorized", "Card Verified", "Captured", "Partially Captured", "Paid",
			"Pending", "Requested", "Active", "Voided", "Refunded", "Partially Refunded")), Is: CaseDone},
	}
}

// ckoAction is an operation on a payment: accepted first, carried out later, found among the payment's actions by the action's
// own reference.
func ckoAction(name, path string, types ...string) *Route {
	return &Route{
		Name: name, Method: "POST", Path: "/payments/{id}/" + path,
		Params: map[string]string{"id": "path:id", "amount": "body:amount"},
		Object: "/action_id",
		Answers: []*AnswerRule{
			{Status: []string{"200", "201", "202"}, When: when(Condition{At: "/action_id"}), Outcome: "succeeded", Payment: "pending"},
			{Status: []string{"2xx"}, Outcome: "unknown"},
		},
		Payment: &Payment{At: "/approved", Values: map[string]string{"true": "done"}},
		Lookup: &Lookup{
			Kind: KindSearch, Target: "/payments/{id}/actions", ID: "/id",
			Each:      when(Condition{At: "/id"}, is("/type", types...)),
			Reference: "/reference", Amount: "/amount",
			Cases: []Case{
				{When: when(is("/approved", "true")), Is: CaseDone},
				{When: when(is("/approved", "false"), Condition{At: "/response_code"}), Is: CaseFailed},
				{Is: CaseBusy},
			},
		},
	}
}

// ckoAuthorization raises the amount that is held, at once. Whether the action shows what was added or the sum is not
// documented, so that the amount is not compared.
func ckoAuthorization() *Route {
	r := ckoAction("authorizations_create", "authorizations", "Authorization")
	id := Condition{At: "/action_id"}
	r.Answers = []*AnswerRule{
		{Status: []string{"201"}, When: when(id, is("/approved", "true")), Outcome: "succeeded", Payment: "pending"},
		{Status: []string{"201"}, When: when(id, is("/approved", "false")), Outcome: "declined"},
		{Status: []string{"2xx"}, Outcome: "unknown"},
	}
	r.Payment = &Payment{At: "/approved", Values: map[string]string{"true": "pending"}}
	r.Lookup.Amount = ""
	return r
}
