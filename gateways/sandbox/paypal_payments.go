package sandbox

import (
	"fmt"
	"slices"
)

func paypalMoney(n int64, currency string) map[string]any {
	return map[string]any{"currency_code": currency, "value": fmt.Sprintf("%d.%02d", n/100, n%100)}
}

// paypalAmount reads the amount of a request: a decimal text in the object's currency. 0: none is given.
func paypalAmount(doc map[string]any, o *object) (int64, answer, bool) {
	if in(doc, "amount") == nil {
		return 0, answer{}, true
	}
	n, ok := minorIn(doc, "amount.value")
	switch {
	case !ok:
		return 0, paypalIssue("DECIMAL_PRECISION"), false
	case textIn(doc, "amount.currency_code") != textIn(o.fields, "amount.currency_code"):
		return 0, paypalIssue("CURRENCY_MISMATCH"), false
	}
	return n, answer{}, true
}

// paypalCapture captures a part of an authorization, or what is left of it.
func (x *call) paypalCapture(ids []string, doc map[string]any) (answer, bool) {
	auth, a := x.paypalFind("authorization", ids[0])
	if auth == nil {
		return a, false
	}
	n, a, ok := paypalAmount(doc, auth)
	left, status := auth.num("_left"), auth.str("status")
	switch {
	case !ok:
		return a, false
	case status == "VOIDED":
		return paypalIssue("AUTHORIZATION_VOIDED"), false
	case status == "DENIED":
		return paypalIssue("AUTHORIZATION_DENIED"), false
	case status == "CAPTURED" || left == 0:
		return paypalIssue("AUTHORIZATION_ALREADY_CAPTURED"), false
	case n > left:
		return paypalIssue("MAX_CAPTURE_AMOUNT_EXCEEDED"), false
	case x.fs.has("decline"):
		return paypalIssue("TRANSACTION_REFUSED"), true
	case n == 0:
		n = left
	}
	capture := x.paypalPayment("capture", map[string]any{
		"amount":    paypalMoney(n, textIn(auth.fields, "amount.currency_code")),
		"custom_id": auth.str("custom_id"), "invoice_id": auth.str("invoice_id"),
	}, auth.str("_order"), auth.num("_unit"))
	if v := textIn(doc, "invoice_id"); v != "" {
		capture.fields["invoice_id"] = v
	}
	final := doc["final_capture"] == true || n == left
	capture.fields["final_capture"], capture.fields["status"] = final, "COMPLETED"
	if x.fs.has("processing") {
		capture.fields["status"] = "PENDING"
	}
	auth.fields["_left"], auth.fields["status"] = left-n, "PARTIALLY_CAPTURED"
	if final {
		auth.fields["_left"], auth.fields["status"] = int64(0), "CAPTURED"
	}
	x.bookIn("authorizations.capture", capture, n, textIn(auth.fields, "amount.currency_code"), true)
	return x.paypalShow(201, capture), true
}

// paypalReauthorize makes another authorization; one that was made so cannot be.
func (x *call) paypalReauthorize(ids []string, doc map[string]any) (answer, bool) {
	auth, a := x.paypalFind("authorization", ids[0])
	if auth == nil {
		return a, false
	}
	n, a, ok := paypalAmount(doc, auth)
	switch {
	case !ok:
		return a, false
	case auth.fields["_parent"] != nil:
		return paypalIssue("REAUTHORIZATION_NOT_SUPPORTED"), false
	case auth.str("status") == "VOIDED":
		return paypalIssue("AUTHORIZATION_VOIDED"), false
	case auth.str("status") != "CREATED":
		return paypalIssue("AUTHORIZATION_ALREADY_CAPTURED"), false
	case n == 0:
		n = auth.num("_left")
	}
	currency := textIn(auth.fields, "amount.currency_code")
	o := x.paypalMake("authorization", map[string]any{
		"status": "CREATED", "amount": paypalMoney(n, currency), "_left": n, "_parent": auth.id, "_order": "", "links": []any{},
	})
	x.bookIn("authorizations.reauthorize", o, n, currency, true)
	return x.paypalShow(201, o), true
}

// paypalVoid answers nothing, or the authorization where the app asks for it.
func (x *call) paypalVoid(ids []string, _ map[string]any) (answer, bool) {
	auth, a := x.paypalFind("authorization", ids[0])
	if auth == nil {
		return a, false
	}
	switch {
	case auth.str("status") == "VOIDED":
		return paypalIssue("PREVIOUSLY_VOIDED"), false
	case auth.str("status") == "CAPTURED":
		return paypalIssue("PREVIOUSLY_CAPTURED"), false
	case auth.fields["_parent"] != nil:
		return paypalIssue("CANNOT_BE_VOIDED"), false
	}
	n := auth.num("_left")
	auth.fields["status"], auth.fields["_left"] = "VOIDED", int64(0)
	x.bookIn("authorizations.void", auth, n, textIn(auth.fields, "amount.currency_code"), true)
	if x.r.header.Get("Prefer") == "return=representation" {
		return answerJSON(200, x.s.paypalView(auth)), true
	}
	return answer{status: 204}, true
}

// paypalRefund gives a part of a capture back, or what is left of it. A pending refund leaves the capture's status as it was.
func (x *call) paypalRefund(ids []string, doc map[string]any) (answer, bool) {
	capture, a := x.paypalFind("capture", ids[0])
	if capture == nil {
		return a, false
	}
	n, a, ok := paypalAmount(doc, capture)
	all, _ := minorIn(capture.fields, "amount.value")
	left, status := all-capture.num("_refunded"), capture.str("status")
	switch {
	case !ok:
		return a, false
	case status == "PENDING":
		return paypalIssue("PENDING_CAPTURE"), false
	case status == "DECLINED" || status == "FAILED":
		return paypalIssue("REFUND_NOT_ALLOWED"), false
	case left == 0:
		return paypalIssue("CAPTURE_FULLY_REFUNDED"), false
	case n > left:
		return paypalIssue("REFUND_AMOUNT_EXCEEDED"), false
	case x.fs.has("decline"):
		return paypalIssue("REFUND_FAILED_INSUFFICIENT_FUNDS"), true
	case n == 0:
		n = left
	}
	currency := textIn(capture.fields, "amount.currency_code")
	o := x.paypalMake("refund", map[string]any{
		"status": "COMPLETED", "amount": paypalMoney(n, currency), "_capture": capture.id,
		"_order": capture.str("_order"), "_unit": capture.num("_unit"), "links": []any{},
	})
	for _, name := range []string{"custom_id", "invoice_id"} { // without its own it has the capture's
		if v := textIn(doc, name); v != "" {
			o.fields[name] = v
		} else if v := capture.str(name); v != "" {
			o.fields[name] = v
		}
	}
	capture.fields["_refunded"] = capture.num("_refunded") + n
	if x.fs.has("processing") {
		o.fields["status"] = "PENDING"
	} else {
		paypalRefundSeen(capture)
	}
	x.bookIn("captures.refund", o, n, currency, true)
	return x.paypalShow(201, o), true
}

// paypalRefundSeen sets a capture's status by what was refunded of it.
func paypalRefundSeen(capture *object) {
	all, _ := minorIn(capture.fields, "amount.value")
	switch back := capture.num("_refunded"); {
	case back == 0:
		capture.fields["status"] = "COMPLETED"
	case back < all:
		capture.fields["status"] = "PARTIALLY_REFUNDED"
	default:
		capture.fields["status"] = "REFUNDED"
	}
}

// paypalMoves are the statuses that an object under way has, and comes to, by kind. An order is moved on by its payer.
var paypalMoves = map[string]struct {
	from []string
	to   map[string]string
}{
	"order": {[]string{"CREATED", "PAYER_ACTION_REQUIRED"},
		map[string]string{"done": "APPROVED", "failed": "VOIDED", "reversed": "VOIDED"}},
	"capture": {[]string{"PENDING"}, map[string]string{"done": "COMPLETED", "failed": "DECLINED", "reversed": "REFUNDED"}},
	"authorization": {[]string{"PENDING", "CREATED"},
		map[string]string{"done": "CREATED", "failed": "DENIED", "reversed": "VOIDED"}},
	"refund": {[]string{"PENDING"}, map[string]string{"done": "COMPLETED", "failed": "FAILED", "reversed": "CANCELLED"}},
	"payout": {[]string{"PENDING", "PROCESSING"},
		map[string]string{"done": "SUCCESS", "failed": "DENIED", "reversed": "CANCELED"}},
	"payout_item": {[]string{"UNCLAIMED"}, map[string]string{"done": "SUCCESS", "failed": "FAILED", "reversed": "RETURNED"}},
}

func movePayPal(s *Server, o *object, to string) error {
	m, from := paypalMoves[o.kind], paypalStatusOf(o)
	status := m.to[to]
	if status == "" {
		return fmt.Errorf("a %s cannot be moved to %q: done, failed, reversed", o.kind, to)
	}
	if !slices.Contains(m.from, from) || from == status {
		return fmt.Errorf("%s %s has a status of %s: it is not under way", o.kind, o.id, from)
	}
	switch o.kind {
	case "payout":
		s.movePayout(o, status)
		return nil
	case "payout_item":
		o.fields["transaction_status"] = status
		return nil
	case "refund":
		capture := s.objects[o.str("_capture")]
		if to != "done" {
			n, _ := minorIn(o.fields, "amount.value")
			capture.fields["_refunded"] = capture.num("_refunded") - n
		}
		paypalRefundSeen(capture)
	}
	o.fields["status"] = status
	return nil
}

func paypalStatusOf(o *object) string {
	switch o.kind {
	case "payout":
		return textIn(o.fields, "batch_header.batch_status")
	case "payout_item":
		return o.str("transaction_status")
	}
	return o.str("status")
}
