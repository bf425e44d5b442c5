package gateways

import (
	"slices"
	"time"
)

const (
	adyenKeysPage     = "https://docs.adyen.com/development-resources/api-idempotency"
	adyenCheckoutSpec = "https://github.com/Adyen/adyen-openapi/blob/main/json/CheckoutService-v72.json"
	adyenTransferSpec = "https://github.com/Adyen/adyen-openapi/blob/main/json/TransferService-v4.json"
	adyenNoticesPage  = "https://docs.adyen.com/development-resources/webhooks/webhook-types"
)

// Adyen is Adyen's Checkout API, with the routes of the Transfers and the Classic Payments API. Sources: the published API
// descriptions (paths, fields, statuses, the key's header and length), the page on idempotency (retention, scope, transient
// errors), the official Go SDK (events, their signature).
//
// Adyen has a live host for each company, so that there is none to name here: a live deployment sets hosts and baseURL, and takes
// the other APIs, which are on other hosts, into service under further names (extends: adyen).
func Adyen() *Gateway {
	return &Gateway{
		Name:       "adyen",
		Title:      "Adyen",
		Guarantees: adyenGuarantees(),
		Notes:      slices.Clone(adyenNotes),
		Hosts:      []string{"checkout-test.adyen.com"},
		BaseURL:    "https://checkout-test.adyen.com",
		// A day less than the shortest that is told; Adyen's own page was not read to its end.
		KeyRetention:     6 * 24 * time.Hour,
		SettleAfter:      10 * time.Minute,
		AttemptTimeout:   2 * time.Minute,
		Family:           FamilyA,
		Key:              &KeyPlace{Header: "Idempotency-Key", Shape: Shape{Alphabet: "hex", Length: 64}},
		Reference:        &RefPlace{Field: "reference", Body: "json", Shape: Shape{Alphabet: "hex", Length: 32}},
		CredentialHeader: "X-API-Key",
		LookupScheme:     "none",
		Answers:          adyenAnswers(),
		Routes:           adyenRoutes(),
		Webhook:          adyenWebhook(),
		Checks:           adyenChecks(),
		UnknownStatus:    504, // no official SDK resends by itself
		Error: ErrorShape{
			// The fourth member of Adyen's error, status, is the problem's own.
			Members: map[string]any{"errorCode": "fence_{slug}", "message": "{detail}", "errorType": "internal"},
			Header:  []HeaderValue{{Name: "transient-error", Value: "false"}},
		},
	}
}

func adyenGuarantees() map[string]*Guarantee {
	return map[string]*Guarantee{
		"G1": {Level: Supported, Mark: MarkDocumented, Source: []string{adyenCheckoutSpec, adyenKeysPage},
			Says: "Header Idempotency-Key of up to 64 characters on POST; one company account and one regional endpoint share keys."},
		"G2": {Level: Partial, Mark: MarkDocumented, Source: []string{adyenCheckoutSpec, adyenTransferSpec},
			Says: "Checkout finds no payment by key or reference: a repeat or a webhook tells. Transfers are listed by reference."},
		"G3": {Level: Supported, Mark: MarkSecondHand, Source: []string{adyenKeysPage},
			Says: "7 to 14 days after first use; copies of the page name other figures, and the smallest counts."},
		"G4": {Level: Supported, Mark: MarkSecondHand, Source: []string{adyenKeysPage, adyenCheckoutSpec},
			Says: "The first response, errors too unless they came with transient-error: true. The key is echoed; no replay is marked."},
		"G5": {Level: Undocumented, Mark: MarkInferred, Source: []string{adyenKeysPage},
			Says: "What another body under a used key gets is not told."},
		"G6": {Level: Supported, Mark: MarkDocumented, Source: []string{adyenNoticesPage},
			Says: "Signed webhooks of authorisations, captures, cancels and refunds; several days late where a scheme says no."},
	}
}

var adyenNotes = []string{
	"There is no look-up of a payment: a lost answer is found out by a repeat of the call within the key's life, or by the " +
		"AUTHORISATION webhook. Without either a person decides.",
	"The app's own reference is kept, and Adyen does not make references unique. Where each names one call only, say unique: true; " +
		"without it a webhook that names the app's reference decides nothing.",
	"One regional endpoint only: keys are not checked across regions, and a repeat elsewhere charges twice.",
	"A refused subscription payment (ContAuth) may be charged again by Adyen itself for weeks (Auto Rescue): where the answer says so, in " +
		"additionalData which the account must have switched on, the payment counts as pending; a notice of a refusal then only wakes. " +
		"Cancel the rescue before another charge.",
	"Live traffic needs hosts and baseURL set to the company's own (<prefix>-checkout-live.adyenpayments.com). Transfers, grants " +
		"and Classic Payments are on other hosts: extends: adyen under another name.",
	"Error 704 says that the request was processed or is in progress, also without a key when the same payments/details is sent " +
		"twice, after a payment that succeeded. It is no failure.",
	"Captures, refunds and cancels are only received: their answer is never more than payment pending, and a webhook tells the rest.",
	"Authorised counts as payment done, also where the capture is left to the merchant. PartiallyAuthorised does too; the amount is " +
		"in the answer.",
	"A result code of Error is left in doubt: the webhook tells.",
	"An error without transient-error: true is the key's stored answer although the bank may have acted: it is not asked again.",
	"Chargebacks, expiries and offers that closed move no payment state here: their notices only wake the reconcile.",
	"Transfers are listed by reference, which finds a lost one and proves no absence. They have a host of their own: take the " +
		"gateway into service once more, under another name, with that baseURL.",
	"Classic Payments take no key by their description: after a doubt nothing is resent there, and a person decides.",
	"Apps that sign in by Basic authentication set credentialHeader: Authorization.",
}

// adyenAnswers hold for every route; each route lists its own 2xx. What is not here (409, 429, bodies that are no JSON) is unknown.
func adyenAnswers() []*AnswerRule {
	parsed, validation := Condition{At: "/errorCode"}, is("/errorType", "validation")
	return []*AnswerRule{
		{Status: []string{"409", "422"}, When: when(is("/errorCode", "704")), Outcome: "unknown", InUse: true, Stored: "no"},
		{Status: []string{"4xx", "5xx"}, Header: &HeaderValue{Name: "transient-error", Value: "true"}, Outcome: "unknown",
			Transient: true, Stored: "no"},
		{Status: []string{"401", "403"}, When: when(parsed, is("/errorType", "security")), Outcome: "not-executed", Stored: "no"},
		{Status: []string{"400", "422"}, When: when(parsed, validation), Outcome: "not-executed"},
		// The Transfers API has problem details (RFC 9457) instead.
		{Status: []string{"401", "403"}, When: when(parsed, Condition{At: "/title"}), Outcome: "not-executed", Stored: "no"},
		{Status: []string{"422"}, When: when(parsed, Condition{At: "/invalidFields/0"}), Outcome: "not-executed"},
		// An error is the key's stored answer, unless the keys could not be looked at.
		{Status: []string{"503"}, When: when(is("/errorCode", "703")), Outcome: "unknown", Stored: "no"},
		{Status: []string{"5xx"}, When: when(parsed), Outcome: "unknown", Stored: "yes"},
	}
}

// adyenWebhook reads standard notifications. The signature covers references, account, amount, event and success
// (https://docs.adyen.com/development-resources/webhooks/secure-webhooks/verify-hmac-signatures), and not additionalData: nothing
// there is read. No notice makes an answer: it has no result code, and an SDK would take it for another outcome.
func adyenWebhook() *Webhook {
	return &Webhook{
		Signature: &Signature{
			At: "/additionalData/hmacSignature", Encoding: "base64", Hash: "sha256", Secret: "hex",
			Signed: "{/pspReference}:{/originalReference}:{/merchantAccountCode}:{/merchantReference}:" +
				"{/amount/value}:{/amount/currency}:{/eventCode}:{/success}",
		},
		Events: "/notificationItems", Item: "/NotificationRequestItem",
		References: []string{"/merchantReference"}, Object: "/pspReference",
		Amount: "/amount/value", Currency: "/amount/currency",
		Accept: "[accepted]",
		Cases:  adyenCases(),
	}
}

// adyenCases: merchantReference names the payment in an AUTHORISATION and the modification in its own event. What a modification
// comes to is where its money is: the call was carried out when Adyen received it. So it is with the payment of a page.
func adyenCases() []NoticeCase {
	pays, pages := []string{"payments_create", "pal_authorise"}, []string{"sessions_create", "payment_links_create"}
	refunds := []string{"refunds_create", "pal_refund", "reversals_create", "pal_cancel_or_refund"}
	cases := []NoticeCase{
		adyenCase("AUTHORISATION", "true", "succeeded", "done", slices.Concat(pays, pages)...),
		adyenOnce(adyenCase("AUTHORISATION", "false", "declined", "", pays...)),
		adyenCase("AUTHORISATION", "false", "succeeded", "pending", pages...), // the shopper may try again
		adyenCase("CAPTURE_FAILED", "true", "succeeded", "reversed", "captures_create", "pal_capture"),
		adyenCase("CAPTURE_FAILED", "true", "", "reversed", pays...), // captured without being asked
		adyenCase("REFUND_FAILED", "true", "succeeded", "reversed", refunds...),
		adyenCase("REFUNDED_REVERSED", "true", "succeeded", "reversed", refunds...),
	}
	for _, m := range []struct {
		event  string
		routes []string
	}{
		{"CAPTURE", []string{"captures_create", "pal_capture"}},
		{"REFUND", []string{"refunds_create", "pal_refund"}},
		{"CANCELLATION", []string{"cancels_create", "pal_cancel"}},
		{"TECHNICAL_CANCEL", []string{"cancels_standalone", "pal_technical_cancel"}},
		{"CANCEL_OR_REFUND", []string{"reversals_create", "pal_cancel_or_refund"}},
		{"AUTHORISATION_ADJUSTMENT", []string{"amount_updates_create", "pal_adjust_authorisation"}},
	} {
		cases = append(cases, adyenCase(m.event, "true", "succeeded", "done", m.routes...))
		cases = append(cases, adyenCase(m.event, "false", "succeeded", "failed", m.routes...))
	}
	return cases
}

// adyenOnce leaves out calls that Adyen may try again by itself: whether it will is not among what a notice's signature covers.
func adyenOnce(c NoticeCase) NoticeCase {
	c.Call = map[string][]string{"interaction": {"", "Ecommerce", "Moto", "POS"}}
	return c
}

func adyenCase(event, success, outcome, payment string, routes ...string) NoticeCase {
	when := when(is("/eventCode", event), is("/success", success))
	return NoticeCase{When: when, Routes: slices.Clone(routes), Outcome: outcome, Payment: payment}
}

// adyenChecks use Adyen's test card and test scenarios (https://docs.adyen.com/development-resources/testing). A live key looks
// like a test key: only the host tells.
func adyenChecks() *Checks {
	const merchant = `"merchantAccount":"{merchant}","amount":{"value":{amount},"currency":"{currency}"}`
	return &Checks{
		LiveHosts: []string{"*-live.adyenpayments.com", "*-live.adyen.com"},
		Currency:  "EUR", Amount: "100", Other: "101",
		Vars: map[string]string{"merchant": "", "holder": "J Doe", "control": "executeThreeD", "code": "false"},
		Charge: &Sample{
			Target: "/v72/payments",
			Body: `{` + merchant + `,"returnUrl":"https://shop.example/return","paymentMethod":{"type":"scheme","holderName":"{holder}",` +
				`"encryptedCardNumber":"test_4111111111111111","encryptedExpiryMonth":"test_03","encryptedExpiryYear":"test_2030",` +
				`"encryptedSecurityCode":"test_737"},"additionalData":{"{control}":"{code}"}}`,
			Save: map[string]string{"id": "/pspReference"},
		},
		Endpoint: &Sample{Target: "/v72/paymentLinks", Body: `{` + merchant + `}`},
		Declined: &Variation{Vars: map[string]string{"control": "RequestedTestAcquirerResponseCode", "code": "2"}},
		Failed:   &Variation{Vars: map[string]string{"control": "RequestedTestErrorResponseCode", "code": "IOEXCEPTION_RECEIVED"}},
	}
}
