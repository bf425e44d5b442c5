package gateways

import "time"

const (
	stripeKeysPage   = "https://docs.stripe.com/api/idempotent_requests"
	stripeErrorsPage = "https://docs.stripe.com/error-low-level"
	stripeSearchPage = "https://docs.stripe.com/search"
	stripeEventsPage = "https://docs.stripe.com/api/events/types"
)

func stripeGuarantees() map[string]*Guarantee {
	return map[string]*Guarantee{
		"G1": {Level: Supported, Mark: MarkDocumented, Source: []string{stripeKeysPage},
			Says: "Header Idempotency-Key of up to 255 characters on every POST of API v1; none on GET and DELETE."},
		"G2": {Level: Partial, Mark: MarkDocumented, Source: []string{stripeSearchPage},
			Says: "No look-up by key. Search by metadata lags under a minute, up to an hour in outages; lists by time do not lag."},
		"G3": {Level: Supported, Mark: MarkDocumented, Source: []string{stripeKeysPage},
			Says: "At least 24 hours; a key that was removed silently runs a new operation."},
		"G4": {Level: Supported, Mark: MarkDocumented, Source: []string{stripeKeysPage, stripeErrorsPage},
			Says: "Status and body of the first answer, 500s included, marked Idempotent-Replayed: true. What is refused before execution is not stored."},
		"G5": {Level: Supported, Mark: MarkSDK, Source: []string{"https://github.com/stripe/stripe-ruby"},
			Says: "Error type idempotency_error, status 400."},
		"G6": {Level: Supported, Mark: MarkDocumented, Source: []string{stripeEventsPage},
			Says: "Signed events of payment intents, charges, refunds and payouts; every object can be read."},
	}
}

var stripeNotes = []string{
	"API v2, DELETE and unlisted methods keep no key in this way: after a doubt nothing is resent there, and a person decides.",
	"Search is never used: it lags and proves no absence.",
	"A declined creation that was to confirm leaves an intent that can still be paid through its client secret: go on with a confirm of " +
		"that intent as a call of its own, or cancel it before the next revision makes another.",
	"An object takes 50 metadata keys, of which one is ours: an app that writes 50 is refused.",
	"A stored 500 may still be rolled forward: after one no miss proves absence, and a person decides if no event does.",
	"A charge's capture takes no metadata: a captured charge is known by its amount only.",
}

// stripeWebhook reads Stripe's events (https://docs.stripe.com/webhooks: Stripe-Signature with t and v1, HMAC-SHA256 over time and
// body). An intent's metadata is copied to its charges, so that an event of a charge speaks of a charge's own creation only.
// That a payment failed does not say whether the call was to confirm it: then Stripe is asked.
func stripeWebhook() *Webhook {
	event := func(types ...string) Condition { return is("/type", types...) }
	intents, captures := []string{"payment_intents_create"}, []string{"payment_intents_capture"}
	charges, refunds, payouts := []string{"charges_create"}, []string{"refunds_create"}, []string{"payouts_create"}
	status := func(s ...string) Condition { return is("/data/object/status", s...) }
	return &Webhook{
		Signature: &Signature{
			Header: "Stripe-Signature", Part: "v1", TimestampPart: "t", Signed: "{timestamp}.{body}", Tolerance: 5 * time.Minute,
		},
		ID:         "/id",
		References: []string{"/data/object/metadata/fence_ref", "/data/object/metadata/fence_capture_ref"},
		Object:     "/data/object/id",
		Amount:     "/data/object/amount", Currency: "/data/object/currency",
		Answer: &FoundAnswer{At: "/data/object"},
		Cases: []NoticeCase{
			{When: when(event("payment_intent.succeeded"), status("succeeded")), Routes: append(intents, captures...), Outcome: "succeeded", Payment: "done"},
			{When: when(event("payment_intent.processing", "payment_intent.requires_action", "payment_intent.amount_capturable_updated")),
				Routes: intents, Outcome: "succeeded", Payment: "pending"},
			{When: when(event("payment_intent.canceled")), Routes: intents, Payment: "reversed"},
			{When: when(event("charge.succeeded"), status("succeeded")), Routes: charges, Outcome: "succeeded", Payment: "done"},
			{When: when(event("charge.failed"), status("failed")), Routes: charges, Outcome: "declined"},
			{When: when(event("charge.refunded"), is("/data/object/refunded", "true")), Routes: charges, Payment: "reversed"},
			{When: when(event("refund.created", "refund.updated"), status("succeeded")), Routes: refunds, Outcome: "succeeded", Payment: "done"},
			{When: when(event("refund.created", "refund.updated"), status("pending", "requires_action")), Routes: refunds, Outcome: "succeeded", Payment: "pending"},
			{When: when(event("refund.failed", "refund.updated"), status("failed")), Routes: refunds, Payment: "failed"},
			{When: when(event("payout.paid"), status("paid")), Routes: payouts, Outcome: "succeeded", Payment: "done"},
			{When: when(event("payout.failed"), status("failed")), Routes: payouts, Outcome: "succeeded", Payment: "failed"},
			{When: when(event("payout.canceled"), status("canceled")), Routes: payouts, Outcome: "succeeded", Payment: "reversed"},
		},
	}
}

// stripeChecks use Stripe's test payment methods (https://docs.stripe.com/testing). Stripe's own test mode has no way to provoke a
// 5xx and ignores the header that asks the built-in sandbox for one.
func stripeChecks() *Checks {
	const form = "application/x-www-form-urlencoded"
	return &Checks{
		Live:     []string{`(sk|rk)_live_.*`},
		Currency: "eur", Amount: "50", Other: "51",
		Vars: map[string]string{"pm": "pm_card_visa", "type": "card", "capture": "automatic"},
		Charge: &Sample{
			Target: "/v1/payment_intents", ContentType: form,
			Body: "amount={amount}&currency={currency}&confirm=true&payment_method={pm}&payment_method_types%5B%5D={type}&capture_method={capture}",
			Save: map[string]string{"id": "/id"},
		},
		Endpoint: &Sample{Target: "/v1/charges", ContentType: form, Body: "amount={amount}&currency={currency}&source=tok_visa"},
		Declined: &Variation{Vars: map[string]string{"pm": "pm_card_chargeDeclined"}},
		Failed:   &Variation{Header: []HeaderValue{{Name: "Sandbox-Fault", Value: "error-after;times=1"}}},
		Pending:  &Variation{Vars: map[string]string{"pm": "pm_usBankAccount_processing", "type": "us_bank_account", "currency": "usd"}},
		Held:     &Variation{Vars: map[string]string{"capture": "manual"}},
		Empty:    &Sample{Target: "/v1/payment_intents/{id}/capture", ContentType: form},
	}
}
