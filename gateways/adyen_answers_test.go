package gateways

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/fence-sidecar/fence-sidecar/claims"
)

func adyenError(code, kind string) string {
	return fmt.Sprintf(`{"status":0,"errorCode":%q,"message":"m","errorType":%q,"pspReference":"8816118280275544"}`, code, kind)
}

type adyenAnswer struct {
	name, route string
	a           *claims.Answer
	want        Class
}

// adyenTable is what Adyen documents, and what it does not.
func adyenTable() []adyenAnswer {
	const pay, psp = "payments_create", "993617895204576J"
	ok := func(payment string) Class {
		return Class{Outcome: claims.Succeeded, Stored: true, Payment: payment, Object: psp}
	}
	result := func(code string) *claims.Answer {
		return reply(200, `{"pspReference":"`+psp+`","resultCode":"`+code+`","merchantReference":"r"}`)
	}
	received := `{"paymentPspReference":"P","pspReference":"` + psp + `","status":"received"}`
	declined, refused, doubt := Class{Outcome: claims.Declined, Stored: true}, Class{Outcome: claims.NotExecuted, Refused: true}, Class{}
	out := []adyenAnswer{
		{"authorised", pay, result("Authorised"), ok("done")},
		{"partly", pay, result("PartiallyAuthorised"), ok("done")},
		{"authorised without a pspReference", pay, reply(200, `{"resultCode":"Authorised"}`), doubt},
		{"refused", pay, result("Refused"), declined},
		{"refused, and to be tried again by Adyen", pay, reply(200, `{"pspReference":"`+psp+`","resultCode":"Refused","additionalData":{"retry.rescueScheduled":"true"}}`), ok("pending")},
		{"cancelled", pay, result("Cancelled"), declined},
		{"an error is final and yet not told apart", pay, result("Error"), Class{Stored: true}},
		{"Success is listed by name only", pay, result("Success"), doubt},
		{"a code of tomorrow", pay, result("Maybe"), doubt},
		{"without pspReference, as a challenge has it", pay, reply(200, `{"resultCode":"IdentifyShopper","action":{}}`), Class{Outcome: claims.Succeeded, Stored: true, Payment: "pending"}},
		{"an error in a 200", pay, reply(200, `{"resultCode":"Authorised","pspReference":"x","errorCode":"1"}`), doubt},
		{"201", pay, reply(201, `{"resultCode":"Authorised","pspReference":"x"}`), doubt},
		{"empty", pay, reply(200, ""), doubt},
		{"HTML", pay, reply(200, "<html>"), doubt},
		{"null", pay, reply(200, "null"), doubt},
		{"details refused", "payments_details", result("Refused"), declined},
		{"details again", "payments_details", reply(422, adyenError("704", "validation")), Class{InUse: true}},
		{"in flight", pay, reply(422, adyenError("704", "validation")), Class{InUse: true}},
		{"in flight, by 409", pay, reply(409, adyenError("704", "validation"), "Transient-Error", "true"), Class{InUse: true}},
		{"409 of another kind", pay, reply(409, adyenError("1", "validation")), doubt},
		{"transient", pay, reply(500, adyenError("905", "configuration"), "Transient-Error", "True"), Class{Transient: true}},
		{"transient, by 422", pay, reply(422, adyenError("1", "validation"), "transient-error", "true"), Class{Transient: true}},
		{"not transient", pay, reply(503, adyenError("905", "internal"), "transient-error", "false"), Class{Stored: true}},
		{"without a word", pay, reply(500, adyenError("905", "configuration")), Class{Stored: true}},
		{"the key store is down", pay, reply(503, adyenError("703", "internal")), doubt},
		{"a balancer", pay, reply(503, `{"message":"upstream"}`), doubt},
		{"validation", pay, reply(422, adyenError("14_030", "validation")), refused},
		{"validation, by 400", pay, reply(400, adyenError("702", "validation")), refused},
		{"422 of another type", pay, reply(422, adyenError("905", "internal")), doubt},
		{"422 of a middlebox", pay, reply(422, "no"), doubt},
		{"401", pay, reply(401, adyenError("000", "security")), refused},
		{"403", pay, reply(403, adyenError("901", "security")), refused},
		{"401 of a middlebox", pay, reply(401, `{"error":"denied"}`), doubt},
		{"429", pay, reply(429, adyenError("1", "validation")), doubt},
		{"404", pay, reply(404, adyenError("1", "validation")), doubt},
		{"received elsewhere", pay, reply(201, received), doubt},
		{"amount update authorised", "amount_updates_create", reply(201, strings.Replace(received, "received", "authorised", 1)), ok("done")},
		{"amount update refused", "amount_updates_create", reply(201, strings.Replace(received, "received", "refused", 1)), declined},
		{"capture authorised is not documented", "captures_create", reply(201, strings.Replace(received, "received", "authorised", 1)), doubt},
		{"session", "sessions_create", reply(201, `{"id":"`+psp+`"}`), ok("pending")},
		{"link that is no more", "payment_links_create", reply(201, `{"id":"x","status":"expired"}`), doubt},
		{"link", "payment_links_create", reply(201, `{"id":"`+psp+`","status":"active"}`), ok("pending")},
		{"order", "orders_create", reply(200, `{"resultCode":"Success","pspReference":"`+psp+`"}`), ok("")},
		{"order cancelled", "orders_cancel", reply(200, `{"resultCode":"Received","pspReference":"`+psp+`"}`), ok("pending")},
		{"donation", "donations_create", reply(200, `{"id":"d","status":"completed","payment":{"pspReference":"`+psp+`"}}`), ok("done")},
		{"donation refused", "donations_create", reply(200, `{"id":"d","status":"refused"}`), declined},
		{"transfer", "transfers_create", reply(202, `{"id":"`+psp+`","status":"authorised"}`), ok("pending")},
		{"transfer booked", "transfers_create", reply(200, `{"id":"`+psp+`","status":"booked"}`), ok("done")},
		{"transfer refused", "transfers_create", reply(200, `{"id":"x","status":"refused"}`), doubt},
		{"transfer's fields", "transfers_create", reply(422, `{"type":"t","title":"t","errorCode":"29_001","invalidFields":[{"name":"n"}]}`), refused},
		{"transfer's other problem", "transfers_create", reply(422, `{"type":"t","title":"t","errorCode":"29_001"}`), doubt},
		{"transfer's key in use", "transfers_create", reply(422, `{"title":"t","errorCode":"704"}`), Class{InUse: true}},
		{"transfer's 401", "transfers_create", reply(401, `{"title":"t","errorCode":"00_401"}`), refused},
		{"grant", "grants_create", reply(200, `{"id":"`+psp+`","status":"Pending"}`), ok("pending")},
		{"grant failed", "grants_create", reply(200, `{"id":"x","status":"Failed"}`), doubt},
		{"return", "transfers_return", reply(200, `{"id":"`+psp+`","status":"Authorised"}`), ok("pending")},
		{"return declined", "transfers_return", reply(200, `{"id":"x","status":"Declined"}`), declined},
		{"approved", "transfers_approve", reply(200, `{}`), Class{Outcome: claims.Succeeded, Stored: true, Payment: "pending"}},
		{"approved by nobody", "transfers_approve", reply(200, `null`), doubt},
		{"classic", "pal_authorise", result("Authorised"), Class{Outcome: claims.Succeeded, Payment: "done", Object: psp}},
		{"classic refund", "pal_refund", reply(200, `{"response":"[refund-received]","pspReference":"`+psp+`"}`), Class{Outcome: claims.Succeeded, Payment: "pending", Object: psp}},
		{"classic, another operation's", "pal_refund", reply(200, `{"response":"[capture-received]","pspReference":"x"}`), doubt},
		{"elsewhere", "other", reply(200, `{"resultCode":"Authorised","pspReference":"x"}`), doubt},
	}
	for _, code := range adyenUnderWay {
		out = append(out, adyenAnswer{code, pay, result(code), ok("pending")})
	}
	for _, route := range []string{"captures_create", "refunds_create", "cancels_create", "reversals_create", "amount_updates_create", "cancels_standalone"} {
		out = append(out, adyenAnswer{"received", route, reply(201, received), ok("pending")})
	}
	return out
}

// adyenWrong are the rows that a declaration reads in another way.
func adyenWrong(g *Gateway) (wrong []string) {
	for _, tt := range adyenTable() {
		got := g.Classify(tt.route, tt.a)
		if got.Why = ""; got != tt.want {
			wrong = append(wrong, fmt.Sprintf("%s, %s: %+v, want %+v", tt.route, tt.name, got, tt.want))
		}
	}
	return wrong
}

func TestAdyenClassify(t *testing.T) {
	for _, w := range adyenWrong(adyen(t)) {
		t.Error(w)
	}
}

// TestAdyenClassifyBites: each slip of the table is seen by a row above.
func TestAdyenClassifyBites(t *testing.T) {
	for name, slip := range map[string]func(g *Gateway){
		"704 is a refusal":              func(g *Gateway) { g.Answers = g.Answers[1:] },
		"transient is not heard":        func(g *Gateway) { g.Answers = slices.Delete(g.Answers, 1, 2) },
		"transient whatever it says":    func(g *Gateway) { g.Answers[1].Header = nil },
		"every 422 is a refusal":        func(g *Gateway) { g.Answers[3].When = nil },
		"every 401 is a refusal":        func(g *Gateway) { g.Answers[2].When = nil },
		"703 stands under the key":      func(g *Gateway) { g.Answers = slices.Delete(g.Answers, 6, 7) },
		"Error is a decline":            func(g *Gateway) { g.Routes[0].Answers[4].Outcome = "declined" },
		"a challenge is a payment":      func(g *Gateway) { g.Routes[0].Payment.Values["ChallengeShopper"] = "done" },
		"received is a payment":         func(g *Gateway) { g.route("captures_create").Answers[0].Payment = "done" },
		"a rescue is a decline":         func(g *Gateway) { g.Routes[0].Answers[0].Outcome, g.Routes[0].Answers[0].Payment = "declined", "" },
		"every 200 is a success":        func(g *Gateway) { g.Routes[0].Answers[5].Outcome = "succeeded" },
		"a refused transfer went":       func(g *Gateway) { g.route("transfers_create").Answers[2].Outcome = "succeeded" },
		"Classic keeps keys":            func(g *Gateway) { g.route("pal_authorise").Keyless = false },
		"a pspReference is not needed":  func(g *Gateway) { g.Routes[0].Answers[2].When = g.Routes[0].Answers[2].When[:1] },
		"a problem without fields is 0": func(g *Gateway) { g.Answers[5].When = g.Answers[5].When[:1] },
	} {
		g := adyen(t)
		slip(g)
		if err := g.Validate(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if len(adyenWrong(g)) == 0 {
			t.Errorf("%s: nobody sees it", name)
		}
	}
}

// TestAdyenNotices: the table of events by routes that exist; what is signed is all that is read.
func TestAdyenNotices(t *testing.T) {
	g := adyen(t)
	w := g.Webhook
	read := []string{w.Amount, w.Currency, w.Object}
	read = append(read, w.References...)
	for _, c := range w.Cases {
		for _, r := range c.Routes {
			if g.route(r) == nil {
				t.Errorf("no route %s", r)
			}
		}
		if len(c.Routes) == 0 {
			t.Error("a case speaks of every route")
		}
		for _, cond := range c.When {
			read = append(read, cond.At)
		}
	}
	for _, at := range read {
		if !strings.Contains(w.Signature.Signed, "{"+at+"}") {
			t.Errorf("%s is read and not signed", at)
		}
	}
	says := func(event, success, route string) string {
		for _, c := range w.Cases {
			if slices.Contains(c.Routes, route) && allHold(c.When, map[string]any{"eventCode": event, "success": success}) {
				return c.Outcome + "/" + c.Payment
			}
		}
		return ""
	}
	for _, tt := range []struct{ event, success, route, want string }{
		{"AUTHORISATION", "true", "payments_create", "succeeded/done"},
		{"AUTHORISATION", "false", "payments_create", "declined/"},
		{"AUTHORISATION", "true", "captures_create", ""},
		{"AUTHORISATION", "false", "sessions_create", "succeeded/pending"},
		{"CAPTURE", "true", "captures_create", "succeeded/done"},
		{"CAPTURE", "false", "captures_create", "succeeded/failed"},
		{"CAPTURE", "true", "payments_create", ""},
		{"CAPTURE_FAILED", "true", "captures_create", "succeeded/reversed"},
		{"CAPTURE_FAILED", "true", "payments_create", "/reversed"},
		{"REFUND", "true", "refunds_create", "succeeded/done"},
		{"REFUND", "false", "refunds_create", "succeeded/failed"},
		{"REFUND_FAILED", "true", "refunds_create", "succeeded/reversed"},
		{"REFUND_FAILED", "false", "refunds_create", ""},
		{"REFUNDED_REVERSED", "true", "refunds_create", "succeeded/reversed"},
		{"CANCELLATION", "true", "cancels_create", "succeeded/done"},
		{"TECHNICAL_CANCEL", "false", "cancels_standalone", "succeeded/failed"},
		{"CANCEL_OR_REFUND", "true", "reversals_create", "succeeded/done"},
		{"AUTHORISATION_ADJUSTMENT", "true", "amount_updates_create", "succeeded/done"},
		{"CHARGEBACK", "true", "payments_create", ""},
		{"EXPIRE", "true", "payments_create", ""},
		{"OFFER_CLOSED", "true", "payments_create", ""},
	} {
		if got := says(tt.event, tt.success, tt.route); got != tt.want {
			t.Errorf("%s %s of %s: %q, want %q", tt.event, tt.success, tt.route, got, tt.want)
		}
	}
}
