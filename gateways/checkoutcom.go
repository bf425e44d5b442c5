package gateways

import "time"

// Pages of Checkout.com that its declaration rests on.
const (
	ckoIdempotency = "https://www.checkout.com/docs/developer-resources/api/idempotency"
	ckoRetry       = "https://checkout.com/docs/payments/manage-payments/retry-a-payment"
	ckoInFlight    = "https://support.checkout.com/hc/en-us/articles/24570669653010"
	ckoList        = "https://checkout.com/docs/payments/manage-payments/get-a-list-of-payments"
	ckoSDK         = "https://github.com/checkout/checkout-sdk-go"
	ckoEvents      = "https://www.checkout.com/docs/workflows/webhook-event-types/payment_approved"
	ckoDeclined    = "https://www.checkout.com/docs/developer-resources/webhooks/webhook-event-types/payment_declined"
	ckoReceiver    = "https://www.checkout.com/docs/developer-resources/webhooks/manage-webhooks/set-up-your-webhook-receiver"
)

// CheckoutCom is Checkout.com's payments API. Sources: the pages above; statuses, paths and fields from the official Go SDK.
//
// It has no replay family, although a repeat of a key gets the first answer where that was a 2xx. Family a promises that the
// first answer stands whatever it was, and two rules rest on that: a declined object that is found, and a decline that a
// repeat gets, would then speak for every attempt of the key. Here an attempt that ended in a 4xx or 5xx left nothing under its
// key, also where it was carried out, and what was found or answered may be the work of the next one. So a repeat is never
// the question (no probe anywhere), and a declined payment that is found proves no more than itself.
func CheckoutCom() *Gateway {
	return &Gateway{
		Name:           "checkout",
		Title:          "Checkout.com",
		Guarantees:     ckoGuarantees(),
		Notes:          ckoNotes(),
		Hosts:          []string{"api.checkout.com"},
		BaseURL:        "https://api.checkout.com",
		KeyRetention:   24 * time.Hour, // a later page says 72 h; older ones 120 s in the sandbox
		SettleAfter:    10 * time.Minute,
		AttemptTimeout: 2 * time.Minute,
		Key:            &KeyPlace{Header: "Cko-Idempotency-Key", Shape: Shape{Alphabet: "uuid", Length: 36}},
		// 30 characters, 120 bits: short enough for every scheme and payment method that is known to limit it. Not required, as
		// a capture, refund or void may come without a body.
		Reference:     &RefPlace{Field: "reference", Body: "json", Shape: Shape{Alphabet: "hex", Length: 30}},
		Answers:       ckoAnswers(),
		Routes:        ckoRoutes(),
		LookupScheme:  "Bearer",
		UnknownStatus: 504, // no official SDK was seen to resend by itself
		Error: ErrorShape{Members: map[string]any{
			"request_id": "fence", "error_type": "fence_{slug}", "error_codes": []any{"fence_{slug}"},
		}},
		Webhook: ckoWebhook(),
		Checks:  ckoChecks(),
	}
}

func ckoGuarantees() map[string]*Guarantee {
	return map[string]*Guarantee{
		"G1": {Level: Supported, Mark: MarkDocumented, Source: []string{ckoRetry, ckoIdempotency, ckoInFlight},
			Says: "Header Cko-Idempotency-Key on payments, their authorizations, cancellations, captures, refunds and voids, " +
				"payment contexts and transfers; not on reversals. Of two at once one is processed, the others get 409."},
		"G2": {Level: Supported, Mark: MarkDocumented, Source: []string{ckoList, ckoSDK},
			Says: "Payments are listed by reference, newest first; each action of a payment carries its own reference. How long " +
				"the index lags is not said, so that nothing found proves nothing."},
		"G3": {Level: Supported, Mark: MarkDocumented, Source: []string{ckoRetry, ckoIdempotency},
			Says: "24 hours by default, live and sandbox; configurable on request. A later text says 72 hours, older ones 120 " +
				"seconds in the sandbox."},
		"G4": {Level: Partial, Mark: MarkDocumented, Source: []string{ckoRetry, ckoIdempotency},
			Says: "Same status and body where the first answer was a 2xx, a decline among them. After a 4xx or 5xx nothing is " +
				"kept, and a repeat is carried out anew."},
		"G5": {Level: Undocumented, Mark: MarkInferred, Source: []string{ckoIdempotency},
			Says: "What another request under a used key gets is not said."},
		"G6": {Level: Supported, Mark: MarkDocumented, Source: []string{ckoEvents, ckoDeclined, ckoReceiver},
			Says: "Workflow webhooks, signed by HMAC-SHA256 over the body, tell of approvals, declines, captures, refunds, " +
				"voids, expiry and cancellation, at least once and in no promised order."},
	}
}

func ckoNotes() []string {
	return []string{
		"A key is kept for 2xx answers only. After a 5xx a repeat under the same key may charge again, so that " +
			"nothing is ever resent after doubt: only GET /payments?reference= and a webhook can tell.",
		"The lag of that list is not documented: it finds, but never proves absence. A call whose connection was " +
			"dropped before the gateway read it therefore ends in review.",
		"A lost decline is found as a declined payment, which under a key that errors free proves no more than " +
			"itself: unless a signed payment_declined tells, such a call ends in review too.",
		"Leave the reference of a request to the sidecar, or declare it unique in a file that extends this gateway: " +
			"an order number that several calls share tells none of them.",
		"A capture without a body carries no reference: after doubt it cannot be found, and ends in review.",
		"A declined payment that the gateway has scheduled to try again (retry.next_attempt_on) counts as carried " +
			"out, with its money pending: another charge beside it would be the second. Cancel it by " +
			"/payments/{id}/cancellations.",
		"Reversals take no key by the documented list; transfers and payment contexts cannot be found by a reference; " +
			"cancellations are in no documented list. After doubt they end in review.",
		"Each account may have its own host, {prefix}.api.checkout.com: set hosts and baseURL in a file that extends " +
			"this gateway. Transfers have a host of their own, https://transfers.checkout.com: take the gateway into " +
			"service once more for it, under another name.",
		"Static keys sk_… go as they are or with Bearer, and tell their account; keys of the previous platform go " +
			"bare: set lookupScheme none. With OAuth (https://access.checkout.com/connect/token, client credentials) set " +
			"rotating, one account, and its oauth2.",
		"Which reference the event of a capture, refund or void carries, the payment's or its own, is not documented: " +
			"such an event decides no call, it only has the gateway asked.",
	}
}

// ckoAnswers hold for every route. 401, 403 and 404 come with an empty body. A 422 is a refusal where it says that the request
// was invalid: it is then not processed (https://support.checkout.com/hc/en-us/articles/25924251572754). The codes of the first
// rule speak of what was tried instead. 409, 5xx and all else is unknown.
func ckoAnswers() []*AnswerRule {
	return []*AnswerRule{
		{Status: []string{"422"}, When: when(is("/error_codes/0", "card_authorization_failed", "3ds_malfunction")), Outcome: "unknown"},
		{Status: []string{"422"}, When: when(is("/error_type", "request_invalid")), Outcome: "not-executed"},
		{Status: []string{"401", "403", "404", "429"}, Outcome: "not-executed"},
		{Status: []string{"409"}, Outcome: "unknown", InUse: true},
	}
}

// ckoWebhook reads events of workflows. An outcome is taken from an approval or a decline under the reference of the call that
// made the payment, and from nothing else. A decline after 3-D Secure or of another method than a card is that of a call that
// was answered as pending long before, and one with a retry is not the last word: those only have the gateway asked.
func ckoWebhook() *Webhook {
	create := []string{"payments_create"}
	event := func(name string) Condition { return is("/type", name) }
	return &Webhook{
		Signature:  &Signature{Header: "Cko-Signature", Hash: "sha256", Encoding: "hex", Secret: "raw", Signed: "{body}"},
		ID:         "/id",
		References: []string{"/data/reference"},
		Object:     "/data/id",
		Amount:     "/data/amount",
		Currency:   "/data/currency",
		Cases: []NoticeCase{
			{When: when(event("payment_approved"), is("/data/response_code", "10000")),
				Routes: create, Outcome: "succeeded", Payment: "pending"},
			{When: when(event("payment_declined"), is("/data/source/type", "card"), absent("/data/3ds"), absent("/data/retry")),
				Routes: create, Outcome: "declined"},
			{When: when(event("payment_captured")), Routes: create, Payment: "done"},
			{When: when(event("payment_voided")), Routes: create, Payment: "reversed"},
			{When: when(event("payment_refunded")), Routes: create, Payment: "reversed"},
		},
	}
}

// ckoChecks need a card that the sandbox approves, and the processing channel of the account. A charge whose last digits are 05
// is declined (https://www.checkout.com/docs/previous/testing/response-code-testing).
func ckoChecks() *Checks {
	return &Checks{
		Live:      []string{`sk_[^_]+`},
		LiveHosts: []string{"api.checkout.com", "*.api.checkout.com"},
		Currency:  "GBP", Amount: "100", Other: "101",
		Vars: map[string]string{"channel": "", "card": "4242424242424242", "cvv": "100", "capture": "true"},
		Charge: &Sample{
			Target: "/payments",
			Body: `{"source":{"type":"card","number":"{card}","expiry_month":12,"expiry_year":2034,"cvv":"{cvv}"},` +
				`"amount":{amount},"currency":"{currency}","capture":{capture},"processing_channel_id":"{channel}"}`,
			Save: map[string]string{"payment": "/id"},
		},
		Endpoint: &Sample{Target: "/payments/{payment}/voids", Body: `{}`},
		Declined: &Variation{Vars: map[string]string{"amount": "2005"}},
		Failed:   &Variation{Header: []HeaderValue{{Name: "Sandbox-Fault", Value: "error-after;times=1"}}}, // of the built-in sandbox
		Empty:    &Sample{Target: "/payments/{payment}/captures"},
		Held:     &Variation{Vars: map[string]string{"capture": "false"}},
	}
}
