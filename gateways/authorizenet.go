package gateways

import "time"

const (
	authorizenetWindow  = "http://developer.authorize.net/guides/SIM/Transaction_Response/Response_for_Duplicate_Transactions.htm"
	authorizenetPython  = "https://github.com/AuthorizeNet/sdk-python"
	authorizenetSamples = "https://github.com/AuthorizeNet/sample-code-python"
	authorizenetCodes   = "https://developer.authorize.net/api/reference/responseCodes.html"
)

// AuthorizeNet is Authorize.Net's API: one address for every request, in JSON or XML, credentials in the body, 200 also for
// errors. Sources: the page on its duplicate window
// (http://developer.authorize.net/guides/SIM/Transaction_Response/Response_for_Duplicate_Transactions.htm),
// https://github.com/AuthorizeNet/sdk-python (requests), https://developer.authorize.net/api/reference/responseCodes.html.
//
// It takes no key, every read is a POST, and the order of members counts, so that no reference can be written: nothing can be
// proved after doubt.
func AuthorizeNet() *Gateway {
	return &Gateway{
		Name: "authorizenet", Title: "Authorize.Net",
		Hosts:          []string{"api2.authorize.net", "api.authorize.net"},
		BaseURL:        "https://api2.authorize.net",
		Guarantees:     authorizenetGuarantees(),
		Notes:          authorizenetNotes(),
		SettleAfter:    10 * time.Minute,
		AttemptTimeout: 2 * time.Minute,
		Family:         FamilyC,
		Routes:         authorizenetRoutes(),
		UnknownStatus:  504, // no SDK resends by itself
		// messages stands in every answer, so that a member of ours tells the sidecar's refusals apart.
		Error: ErrorShape{Members: map[string]any{
			"fence": "{slug}",
			"messages": map[string]any{"resultCode": "Error", "message": []any{
				map[string]any{"code": "fence_{slug}", "text": "{detail}"},
			}},
		}},
	}
}

func authorizenetGuarantees() map[string]*Guarantee {
	return map[string]*Guarantee{
		"G1": guaranteed(Lacking, MarkDocumented,
			"Only a duplicate window, of 2 minutes by default and 8 hours at most, over card, expiry, type, amount, "+
				"purchase order, invoice, customer, name and address.",
			authorizenetWindow),
		"G2": guaranteed(Partial, MarkSDK,
			"Lists of unsettled transactions and of batches, matched on the invoice number, and details by transaction id; "+
				"all by POST.",
			authorizenetSamples),
		"G3": guaranteed(Partial, MarkDocumented,
			"duplicateWindow: 2 minutes by default, 28800 seconds at most.", authorizenetWindow),
		"G4": guaranteed(Lacking, MarkDocumented,
			"A refusal with reason 11; with the first transaction's id where a window was sent.", authorizenetWindow),
		"G5": guaranteed(Lacking, MarkDocumented, "Any other value of a matched field is a new charge.", authorizenetWindow),
		"G6": guaranteed(Supported, MarkInferred, "Webhooks net.authorize.payment.*, with X-ANET-Signature.", authorizenetPython),
	}
}

func authorizenetNotes() []string {
	return []string{
		"No key, no lookup (every read is a POST): after doubt nothing is sent again; a person decides (review).",
		"Write the call's key into order.invoiceNumber (at most 20 characters) and send duplicateWindow 28800: that is a " +
			"weak key for 8 hours, and the person who decides finds the transaction by it.",
		"One address serves charges, refunds, voids and reads: the sidecar cannot tell them apart, takes each for a call " +
			"that moves money, and asks no Fence-Undo of a refund. An app's reads need a Fence-Key of their own, or go to " +
			"the gateway directly.",
		"The credential stands in the body, so that no account is told by it.",
		"Response code 3 with reason 11 speaks of an earlier transaction: in doubt. refId is only echoed.",
		"Response code 4 is held for review: carried out, the money pending.",
	}
}

// Codes that say that the request was not taken: of the message (validation, credentials) and of the transaction (a missing or
// invalid field). E00001, a system error, is none of them.
var (
	authorizenetMessages = []string{
		"E00002", "E00003", "E00004", "E00005", "E00006", "E00007", "E00008", "E00010", "E00011", "E00013", "E00014", "E00015",
		"E00016",
	}
	authorizenetReasons = []string{"5", "6", "7", "8", "13", "17", "33", "49"}
)

// authorizenetAnswers reads JSON and XML: the element and where its lists stand differ.
func authorizenetAnswers() (rules []*AnswerRule) {
	rules = authorizenetForm("", "/messages/message/0", "/messages/message/1", "/transactionResponse/errors/0",
		"/transactionResponse/errors/1")
	const root = "/createTransactionResponse"
	rules = append(rules, authorizenetForm(root, root+"/messages/message", "", root+"/transactionResponse/errors/error", "")...)
	return append(rules, answered("not-executed", "", on("200"), is("/ErrorResponse/messages/resultCode", "Error"),
		is("/ErrorResponse/messages/message/code", authorizenetMessages...)))
}

// authorizenetForm is the table of one form. message and reason point at the only entry, next… at what must not follow it.
func authorizenetForm(root, message, nextMessage, reason, nextReason string) []*AnswerRule {
	const ok = "200"
	code, id, result := root+"/transactionResponse/responseCode", root+"/transactionResponse/transId", root+"/messages/resultCode"
	only := func(next string, cs ...Condition) []Condition {
		if next != "" {
			cs = append(cs, absent(next))
		}
		return cs
	}
	return []*AnswerRule{
		{Status: on(ok), When: when(is(code, "3"), is(reason+"/errorCode", "11")), Outcome: "unknown", Points: id},
		answered("unknown", "", on(ok), is(code, "1"), is(id, "0")), // test mode: nothing was carried out
		answered("succeeded", "done", on(ok), is(code, "1"), present(id), is(result, "Ok")),
		answered("succeeded", "pending", on(ok), is(code, "4"), present(id), is(result, "Ok")),
		answered("declined", "", on(ok), is(code, "2")),
		answered("not-executed", "", on(ok), only(nextReason, is(code, "3"), is(reason+"/errorCode", authorizenetReasons...))...),
		answered("not-executed", "", on(ok), only(nextMessage, is(result, "Error"), absent(root+"/transactionResponse"),
			is(message+"/code", authorizenetMessages...))...),
	}
}

func authorizenetRoutes() []*Route {
	r := unkeyed("request", "POST", "/xml/v1/request.api")
	r.Answers, r.Object = authorizenetAnswers(), "/transactionResponse/transId"
	return []*Route{r, elsewhere()}
}
