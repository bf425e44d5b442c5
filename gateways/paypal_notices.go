package gateways

import "time"

func paypalGuarantees() map[string]*Guarantee {
	return map[string]*Guarantee{
		"G1": {Level: Supported, Mark: MarkDocumented, Source: []string{paypalSpecs, paypalIdempotency},
			Says: "Header PayPal-Request-Id: up to 108 characters on orders, 1000 on payouts, no length stated on payments; none on a " +
				"void. Unique per request and per type of call."},
		"G2": {Level: Partial, Mark: MarkDocumented, Source: []string{paypalSpecs},
			Says: "By PayPal's own ids only. The transaction report lags up to 3 hours. A repeated sender_batch_id is refused with " +
				"a link to the first payout."},
		"G3": {Level: Supported, Mark: MarkDocumented, Source: []string{paypalSpecs},
			Says: "Orders 6 hours (up to 72 on request), payments 45 days, payouts 30 days."},
		"G4": {Level: Partial, Mark: MarkDocumented, Source: []string{paypalIdempotency, paypalSpecs},
			Says: "A repeat gets the current state of what the first request made, with 200 instead of 201 and without a mark."},
		"G5": {Level: Undocumented, Mark: MarkInferred, Source: []string{paypalIdempotency},
			Says: "Nothing is said of another body under a used id for orders and payments; other PayPal APIs refuse it."},
		"G6": {Level: Supported, Mark: MarkDocumented, Source: []string{paypalEvents},
			Says: "Signed events of captures, refunds, authorizations and payouts; every object can be read by its id."},
	}
}

var paypalNotes = []string{
	"Exactly one account per entry, because access tokens change: take PayPal into service once more, under another name, for " +
		"another account. PayPal-Auth-Assertion must be the same text on every repeat of a call.",
	"POST /v1/oauth2/token, its /terminate and /v1/notifications/verify-webhook-signature pass without a call key.",
	"Creating an order writes no reference: custom_id and invoice_id stand inside the list purchase_units. A lost creation is " +
		"told by a repeat within 6 hours, else by a person.",
	"Capturing an authorization writes no reference: it takes invoice_id only, which the payer reads and which would stand in " +
		"for the order's own. One that was lost is told by a repeat within 45 days.",
	"A void takes no request id: after a doubt its state is read and nothing is resent.",
	"A full refund has an empty body and carries no reference; a lost refund is told by a repeat within 45 days.",
	"A completed order may hold a declined capture. Of an order of several purchase units only that it was carried out is told.",
	"An order that is captured tells that it was captured, not by whom: nobody else may capture the app's orders.",
	"Payments v1, subscriptions and invoices are known as keyless calls only: after a doubt a person decides.",
	"DUPLICATE_INVOICE_ID and the like prove nothing: they mean that an earlier call may have worked.",
}

// paypalWebhook reads PayPal's events (https://developer.paypal.com/api/rest/webhooks/rest/). Deliveries are repeated for three
// days. Events of a capture name their order, so that they wake its calls, and the order is read: an order may hold several
// captures. A refund carries the reference that it was given.
func paypalWebhook() *Webhook {
	event := func(types ...string) Condition { return is("/event_type", types...) }
	refunds, payouts := []string{"captures_refund"}, []string{"payouts_create"}
	return &Webhook{
		Signature: &Signature{
			Scheme: SchemeCertificate, Header: "PAYPAL-TRANSMISSION-SIG", Hash: "sha256", Encoding: "base64",
			Signed:          "{header:PAYPAL-TRANSMISSION-ID}|{header:PAYPAL-TRANSMISSION-TIME}|{webhook-id}|{crc32}",
			TimestampHeader: "PAYPAL-TRANSMISSION-TIME", Tolerance: 4 * 24 * time.Hour,
			CertHeader: "PAYPAL-CERT-URL",
			CertHosts:  []string{"api.paypal.com", "api-m.paypal.com", "api.sandbox.paypal.com", "api-m.sandbox.paypal.com"},
		},
		ID: "/id",
		References: []string{
			"/resource/custom_id", "/resource/sender_batch_id", "/resource/batch_header/sender_batch_header/sender_batch_id",
		},
		Object: "/resource/supplementary_data/related_ids/order_id",
		Amount: "/resource/amount/value", Currency: "/resource/amount/currency_code",
		Answer: &FoundAnswer{At: "/resource"},
		Cases: []NoticeCase{
			{When: when(event("PAYMENT.CAPTURE.REFUNDED"), is("/resource/status", "COMPLETED")),
				Routes: refunds, Outcome: "succeeded", Payment: "done"},
			{When: when(event("PAYMENT.CAPTURE.REFUNDED"), is("/resource/status", "PENDING")),
				Routes: refunds, Outcome: "succeeded", Payment: "pending"},
			{When: when(event("PAYMENT.PAYOUTSBATCH.PROCESSING")), Routes: payouts, Outcome: "succeeded", Payment: "pending"},
			{When: when(event("PAYMENT.PAYOUTSBATCH.DENIED")), Routes: payouts, Outcome: "succeeded", Payment: "failed"},
		},
	}
}

// paypalChecks pay an order by a test card (https://developer.paypal.com/api/rest/sandbox/card-testing/), and have refusals
// forced by PayPal-Mock-Response (https://developer.paypal.com/tools/sandbox/negative-testing/request-headers/).
func paypalChecks() *Checks {
	mock := func(code string) []HeaderValue {
		return []HeaderValue{{Name: "PayPal-Mock-Response", Value: `{"mock_application_codes":"` + code + `"}`}}
	}
	return &Checks{
		LiveHosts: []string{"api-m.paypal.com", "api.paypal.com"},
		Header:    []HeaderValue{{Name: "Prefer", Value: "return=representation"}},
		Currency:  "USD", Amount: "1.00", Other: "1.01",
		Vars: map[string]string{"intent": "CAPTURE", "card": "4012888888881881", "expiry": "2035-12", "code": "123"},
		Charge: &Sample{
			Target: "/v2/checkout/orders",
			Body: `{"intent":"{intent}","purchase_units":[{"amount":{"currency_code":"{currency}","value":"{amount}"}}],` +
				`"payment_source":{"card":{"number":"{card}","expiry":"{expiry}","security_code":"{code}"}}}`,
			Save: map[string]string{"order": "/id", "authorization": paypalAuthorization0 + "/id"},
		},
		Endpoint: &Sample{Target: "/v1/payments/payouts",
			Body: `{"sender_batch_header":{"email_subject":"{unique}"},"items":[{"recipient_type":"EMAIL",` +
				`"receiver":"payouts-simulator-receiver@paypal.com","amount":{"currency":"{currency}","value":"{amount}"}}]}`},
		Declined: &Variation{Header: mock("INSTRUMENT_DECLINED")},
		Failed:   &Variation{Header: mock("INTERNAL_SERVER_ERROR")},
		Held:     &Variation{Vars: map[string]string{"intent": "AUTHORIZE"}},
		Empty:    &Sample{Target: "/v2/payments/authorizations/{authorization}/capture"},
	}
}
