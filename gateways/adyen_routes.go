package gateways

import (
	"slices"
	"strings"
)

// adyenRoutes are Adyen's operations that move money, what its client reads by POST, then the rest of the unsafe ones.
func adyenRoutes() []*Route {
	pay := adyenCreate("payments_create", "payments", adyenResults(), adyenPaid())
	pay.Params["interaction"] = "body:shopperInteraction"
	routes := []*Route{
		pay, adyenDetails(),
		adyenModify("captures_create", "captures", "amount"),
		undo(adyenModify("refunds_create", "refunds", "amount")),
		undo(adyenModify("cancels_create", "cancels", "")),
		undo(adyenModify("reversals_create", "reversals", "")),
		adyenAdjust(),
		undo(adyenStandaloneCancel()),
		adyenDonation(),
		adyenPage("sessions_create", "sessions", absent("/status")),
		adyenPage("payment_links_create", "paymentLinks", is("/status", "active")),
		adyenCreate("orders_create", "orders", adyenDone("200", is("/resultCode", "Success")), nil),
		undo(adyenOrderCancel()),
	}
	routes = append(routes, adyenTransfers()...)
	routes = append(routes, adyenClassic()...)
	return append(routes, adyenReads(),
		// What is not listed may take a key; nothing is said of what a repeat of it gets.
		&Route{Name: "other", Method: "*", Path: "/**", Keyless: true, NoReference: true})
}

// adyenRoute is a POST of Checkout: the test host has no prefix before the version, a live one has.
func adyenRoute(name, path string) *Route {
	return &Route{Name: name, Method: "POST", Path: "/{version}/" + path, Also: []string{"/checkout/{version}/" + path}, Probe: true}
}

// adyenCreate takes an amount and carries our reference. An answer that asks the shopper for more has no pspReference yet.
func adyenCreate(name, path string, answers []*AnswerRule, paid *Payment) *Route {
	r := adyenRoute(name, path)
	r.Params = adyenMoney("amount")
	r.Answers, r.Object, r.Payment = answers, "/pspReference", paid
	return r
}

// adyenPage makes a session or a link that the shopper pays with later.
func adyenPage(name, path string, made Condition) *Route {
	r := adyenCreate(name, path, adyenPending(adyenDone("201", Condition{At: "/id"}, made)), nil)
	r.Object = "/id"
	return r
}

func adyenMoney(field string) map[string]string {
	return map[string]string{"amount": "body:" + field + ".value", "currency": "body:" + field + ".currency"}
}

// adyenResults is the table of result codes (https://docs.adyen.com/online-payments/payment-result-codes). A 200 stands under its
// key; a code that is not listed, such as Success, is unknown.
func adyenResults() []*AnswerRule {
	whole := absent("/errorCode")
	paid, underWay := is("/resultCode", "Authorised", "PartiallyAuthorised"), is("/resultCode", slices.Clone(adyenUnderWay)...)
	// A refused subscription payment may be tried again by Adyen itself for weeks
	// (https://docs.adyen.com/online-payments/auto-rescue/cards).
	rescued := is("/additionalData/retry.rescueScheduled", "true")
	return []*AnswerRule{
		{Status: []string{"200"}, When: when(is("/resultCode", "Refused"), rescued, whole), Outcome: "succeeded", Stored: "yes", Payment: "pending"},
		{Status: []string{"200"}, When: when(is("/resultCode", "Refused", "Cancelled"), whole), Outcome: "declined", Stored: "yes"},
		{Status: []string{"200"}, When: when(paid, Condition{At: "/pspReference"}, whole), Outcome: "succeeded", Stored: "yes"},
		{Status: []string{"200"}, When: when(underWay, whole), Outcome: "succeeded", Stored: "yes"},
		{Status: []string{"200"}, When: when(is("/resultCode", "Error"), whole), Outcome: "unknown", Stored: "yes"},
		{Status: []string{"2xx"}, Outcome: "unknown"},
	}
}

// adyenUnderWay are the result codes of a payment that Adyen has taken and that somebody has to complete.
var adyenUnderWay = []string{
	"Received", "Pending", "RedirectShopper", "ChallengeShopper", "IdentifyShopper", "PresentToShopper",
	"AuthenticationFinished", "AuthenticationNotRequired",
}

func adyenPaid() *Payment {
	values := map[string]string{"Authorised": "done", "PartiallyAuthorised": "done"}
	for _, code := range adyenUnderWay {
		values[code] = "pending"
	}
	return &Payment{At: "/resultCode", Values: values}
}

// adyenDetails completes a payment; the request has neither reference nor amount.
func adyenDetails() *Route {
	r := adyenCreate("payments_details", "payments/details", adyenResults(), adyenPaid())
	r.NoReference, r.Params = true, nil
	return r
}

// adyenDone lists the 2xx that says that an operation was carried out.
func adyenDone(status string, conditions ...Condition) []*AnswerRule {
	return []*AnswerRule{
		{Status: []string{status}, When: append(conditions, absent("/errorCode")), Outcome: "succeeded", Stored: "yes"},
		{Status: []string{"2xx"}, Outcome: "unknown"},
	}
}

// adyenPending says of what was carried out that the money follows.
func adyenPending(rules []*AnswerRule) []*AnswerRule {
	for _, r := range rules {
		if r.Outcome == "succeeded" {
			r.Payment = "pending"
		}
	}
	return rules
}

// adyenModify is an operation on a payment: Adyen says that it received it, and tells the rest by webhook.
func adyenModify(name, path, amount string) *Route {
	r := adyenRoute(name, "payments/{id}/"+path)
	r.Params = map[string]string{"id": "path:id"}
	if amount != "" {
		r.Params = adyenMoney(amount)
		r.Params["id"] = "path:id"
	}
	r.Answers, r.Object = adyenReceived(), "/pspReference"
	return r
}

func adyenReceived() []*AnswerRule {
	return adyenPending(adyenDone("201", is("/status", "received"), Condition{At: "/pspReference"}))
}

// adyenAdjust is answered at once where the request has adjustAuthorisationData.
func adyenAdjust() *Route {
	r := adyenModify("amount_updates_create", "amountUpdates", "amount")
	at := func(status string) []Condition {
		return when(is("/status", status), Condition{At: "/pspReference"}, absent("/errorCode"))
	}
	r.Answers = append([]*AnswerRule{
		{Status: []string{"201"}, When: at("authorised"), Outcome: "succeeded", Stored: "yes", Payment: "done"},
		{Status: []string{"201"}, When: at("refused"), Outcome: "declined", Stored: "yes"},
	}, r.Answers...)
	return r
}

// adyenStandaloneCancel cancels by the reference of a payment; its own reference is another field.
func adyenStandaloneCancel() *Route {
	r := adyenRoute("cancels_standalone", "cancels")
	r.Params = map[string]string{"payment": "body:paymentReference"}
	r.Answers, r.Object = adyenReceived(), "/pspReference"
	return r
}

func adyenDonation() *Route {
	status := func(s string) []Condition { return when(is("/status", s), Condition{At: "/id"}, absent("/errorCode")) }
	r := adyenCreate("donations_create", "donations", []*AnswerRule{
		{Status: []string{"200"}, When: status("completed"), Outcome: "succeeded", Stored: "yes", Payment: "done"},
		{Status: []string{"200"}, When: status("pending"), Outcome: "succeeded", Stored: "yes", Payment: "pending"},
		{Status: []string{"200"}, When: status("refused"), Outcome: "declined", Stored: "yes"},
		{Status: []string{"2xx"}, Outcome: "unknown"},
	}, nil)
	r.Object = "/payment/pspReference"
	return r
}

func adyenOrderCancel() *Route {
	r := adyenRoute("orders_cancel", "orders/cancel")
	r.NoReference = true
	r.Params = map[string]string{"id": "body:order.pspReference"}
	r.Answers = adyenPending(adyenDone("200", is("/resultCode", "Received"), Condition{At: "/pspReference"}))
	r.Object = "/pspReference"
	return r
}

// adyenTransferStates are the statuses of a transfer that is under way; booked is its end.
var adyenTransferStates = []string{
	"received", "authorised", "pending", "pendingApproval", "approvalPending", "pendingExecution", "bookingPending",
	"bankTransferPending", "internalTransferPending",
}

// adyenTransfers are the Transfers API. A transfer with any other status in its answer, such as refused or failed, is left to
// a person.
func adyenTransfers() []*Route {
	route := func(name, path string, answers []*AnswerRule) *Route {
		return &Route{
			Name: name, Method: "POST", Path: "/btl/{version}/" + path, Probe: true,
			Params: adyenMoney("amount"), Object: "/id", Answers: answers,
		}
	}
	id, underWay, taken := Condition{At: "/id"}, is("/status", slices.Clone(adyenTransferStates)...), []string{"200", "202"}
	create := route("transfers_create", "transfers", []*AnswerRule{
		{Status: taken, When: when(id, underWay), Outcome: "succeeded", Stored: "yes", Payment: "pending"},
		{Status: taken, When: when(id, is("/status", "booked")), Outcome: "succeeded", Stored: "yes", Payment: "done"},
		{Status: []string{"2xx"}, Outcome: "unknown"},
	})
	create.Params["version"] = "path:version"
	create.Lookup = adyenTransferLookup()
	back := route("transfers_return", "transfers/{id}/returns", append([]*AnswerRule{
		{Status: []string{"200"}, When: when(id, is("/status", "Declined")), Outcome: "declined", Stored: "yes"},
	}, adyenPending(adyenDone("200", id, is("/status", "Authorised")))...))
	back.Params["id"] = "path:id"
	grant := route("grants_create", "grants", []*AnswerRule{
		{Status: []string{"200"}, When: when(id, is("/status", "Pending")), Outcome: "succeeded", Stored: "yes", Payment: "pending"},
		{Status: []string{"200"}, When: when(id, is("/status", "Active")), Outcome: "succeeded", Stored: "yes", Payment: "done"},
		{Status: []string{"2xx"}, Outcome: "unknown"},
	})
	// These two take a list of transfers and answer an empty object; what comes of it is told by webhooks of the platform.
	approve := route("transfers_approve", "transfers/approve", adyenPending(adyenDone("200", Condition{At: ""}, absent("/title"))))
	cancel := route("transfers_cancel", "transfers/cancel", adyenPending(adyenDone("200", Condition{At: ""}, absent("/title"))))
	for _, r := range []*Route{approve, cancel} {
		r.Params, r.Object = nil, ""
	}
	for _, r := range []*Route{approve, cancel, grant} {
		r.NoReference = true
	}
	return []*Route{create, undo(back), approve, undo(cancel), grant}
}

// adyenTransferLookup lists by reference. How soon a transfer is listed is not said, so that nothing found proves nothing; a list
// with a further page tells nothing.
func adyenTransferLookup() *Lookup {
	return &Lookup{
		Kind: KindList, SinceFormat: "rfc3339",
		Target: "/btl/{version}/transfers?reference={reference}&createdSince={since}&createdUntil={until}&limit=100",
		Object: "/btl/{version}/transfers/{object}", ID: "/id",
		Is: when(absent("/_links/next")), Items: "/data",
		Each:      when(Condition{At: "/id"}, Condition{At: "/status"}),
		Reference: "/reference", Amount: "/amount/value", Currency: "/amount/currency",
		Cases: []Case{
			{When: when(is("/status", slices.Clone(adyenTransferStates)...)), Is: CaseDone, Payment: "pending"},
			{When: when(is("/status", "booked")), Is: CaseDone, Payment: "done"},
		},
		Answer: &FoundAnswer{Status: 202},
	}
}

// adyenClassic are the Classic Payments API, whose description has no key.
func adyenClassic() []*Route {
	route := func(name, path, amount string, answers []*AnswerRule) *Route {
		r := &Route{
			Name: name, Method: "POST", Path: "/pal/servlet/Payment/{version}/" + path, Keyless: true,
			Object: "/pspReference", Answers: answers,
		}
		if amount != "" {
			r.Params = adyenMoney(amount)
		}
		return r
	}
	modify := func(name, path, amount string) *Route {
		rules := adyenDone("200", is("/response", "["+adyenDashed(path)+"-received]"), Condition{At: "/pspReference"})
		r := route(name, path, amount, adyenPending(rules))
		if r.Params == nil {
			r.Params = map[string]string{}
		}
		r.Params["id"] = "body:originalReference"
		return r
	}
	authorise := func(name, path string) *Route {
		r := route(name, path, "amount", adyenResults())
		r.Payment = adyenPaid()
		return r
	}
	technical := modify("pal_technical_cancel", "technicalCancel", "")
	technical.Params = map[string]string{"payment": "body:originalMerchantReference"}
	return []*Route{
		authorise("pal_authorise", "authorise"),
		authorise("pal_authorise3d", "authorise3d"),
		authorise("pal_authorise3ds2", "authorise3ds2"),
		modify("pal_capture", "capture", "modificationAmount"),
		modify("pal_adjust_authorisation", "adjustAuthorisation", "modificationAmount"),
		modify("pal_donate", "donate", "modificationAmount"),
		undo(modify("pal_refund", "refund", "modificationAmount")),
		undo(modify("pal_cancel", "cancel", "")),
		undo(modify("pal_cancel_or_refund", "cancelOrRefund", "")),
		undo(technical),
		modify("pal_void_pending_refund", "voidPendingRefund", ""), // takes a refund back
	}
}

// adyenDashed is how a modification's answer spells its name.
func adyenDashed(path string) string {
	switch path {
	case "technicalCancel":
		return "technical-cancel"
	case "donate":
		return "donation"
	}
	return path
}

// adyenReads are what a client asks by POST without changing anything: they pass without a call key.
func adyenReads() *Route {
	r := &Route{Name: "reads", Method: "POST", Untagged: UntaggedPass, Keyless: true, NoReference: true}
	const paths = "paymentMethods paymentMethods/balance cardDetails originKeys applePay/sessions donationCampaigns validateShopperId"
	for path := range strings.FieldsSeq(paths) {
		r.Also = append(r.Also, "/{version}/"+path, "/checkout/{version}/"+path)
	}
	r.Path, r.Also = r.Also[0], r.Also[1:]
	return r
}
