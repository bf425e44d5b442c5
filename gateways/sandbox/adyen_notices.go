package sandbox

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// adyenEvents are the events of changes of a payment: of their outcome, and of one that is taken back later.
var adyenEvents = map[string]struct{ outcome, back string }{
	"capture": {"CAPTURE", "CAPTURE_FAILED"}, "refund": {"REFUND", "REFUND_FAILED"}, "cancel": {"CANCELLATION", ""},
	"reversal": {"CANCEL_OR_REFUND", "REFUND_FAILED"}, "amountUpdate": {"AUTHORISATION_ADJUSTMENT", ""},
	"technicalCancel": {"TECHNICAL_CANCEL", ""},
}

// adyenMove brings on what is under way, and takes back what was done: a scheme may refuse a capture or a refund days later.
func adyenMove(s *Server, o *object, to string) error {
	status := o.str("status")
	open := slices.Contains([]string{adyenWaits, adyenAction, "received", "active"}, status) ||
		o.kind == "transfer" && status == adyenAuthorised
	back := status == "done" || status == "received" || o.kind == "payment" && status == adyenAuthorised
	switch {
	case to != "done" && to != "failed" && to != "reversed":
		return fmt.Errorf("a %s cannot be moved to %q: done, failed, reversed", o.kind, to)
	case to == "reversed" && back && (o.kind == "payment" || adyenEvents[o.kind].back != ""), to != "reversed" && open:
	default:
		return fmt.Errorf("%s %s has a status of %s: it is not under way", o.kind, o.id, status)
	}
	if pay := s.objects[o.str("payment")]; pay != nil && to != "done" {
		pay.adyenUndo(o.kind, o.num("amount"))
	}
	switch {
	case o.kind == "payment" && to == "done":
		o.adyenAuthorise()
	case o.kind == "payment" && to == "failed":
		o.fields["status"] = adyenRefused
	case o.kind == "paymentLink" || o.kind == "session":
		if to == "done" { // one that failed can be tried again
			o.fields["status"] = "completed"
		}
	case o.kind == "transfer" && to == "done":
		o.fields["status"] = "booked"
	default:
		o.fields["late"] = status == "done"
		o.fields["status"] = to
	}
	return nil
}

// adyenUndo takes a change back.
func (pay *object) adyenUndo(kind string, n int64) {
	switch kind {
	case "capture":
		pay.fields["captured"] = max(pay.num("captured")-n, 0)
	case "refund", "reversal":
		pay.fields["refunded"] = max(pay.num("refunded")-n, 0)
	}
	if kind != "capture" && kind != "refund" && pay.str("status") == adyenCancelled {
		pay.fields["status"] = adyenAuthorised
	}
}

// adyenTold is the event that tells what happened to an object; "": none.
func adyenTold(o *object, event string) (code string, success bool) {
	names := adyenEvents[o.kind]
	switch o.kind {
	case "payment":
		names.outcome, names.back = "AUTHORISATION", "CAPTURE_FAILED"
		if event == "created" && o.str("status") != adyenAuthorised {
			return "", false
		}
	case "session", "paymentLink":
		names.outcome = "AUTHORISATION"
		if event == "created" {
			return "", false
		}
	default:
		if event == "created" && o.str("status") == "received" {
			return "", false
		}
	}
	if event == "reversed" {
		if late, _ := o.fields["late"].(bool); late && names.back == "REFUND_FAILED" {
			return "REFUNDED_REVERSED", true
		}
		return names.back, true
	}
	return names.outcome, event != "failed"
}

// adyenNotice writes a standard notification. The signature is over eight fields, and says nothing of the rest
// (https://docs.adyen.com/development-resources/webhooks/secure-webhooks/verify-hmac-signatures).
func adyenNotice(s *Server, o *object, event string, h Hook) (notice, bool) {
	code, success := adyenTold(o, event)
	if code == "" {
		return notice{}, false
	}
	psp, original := o.id, o.str("payment")
	switch {
	case o.kind == "session" || o.kind == "paymentLink":
		psp = adyenID(o.id) // of the payment
	case o.kind == "payment" && event == "reversed":
		psp, original = adyenID(o.id), o.id
	}
	reference := o.str("reference")
	if told := o.str("told"); told != "" {
		reference = told
	}
	item := map[string]any{
		"amount": adyenAmount(o), "eventCode": code, "eventDate": s.now().UTC().Format(time.RFC3339), "merchantAccountCode": o.account,
		"merchantReference": reference, "paymentMethod": "visa", "pspReference": psp, "reason": "", "success": strconv.FormatBool(success),
	}
	if original != "" {
		item["originalReference"] = original
	}
	signed := strings.Join([]string{
		psp, original, o.account, reference, strconv.FormatInt(o.num("amount"), 10), o.str("currency"), code,
		strconv.FormatBool(success),
	}, ":")
	key, err := hex.DecodeString(h.Secret)
	if err != nil {
		key = []byte(h.Secret) // no secret of Adyen's: nobody can verify it
	}
	mac := hmac.New(sha256.New, key)
	mac.Write([]byte(signed))
	item["additionalData"] = map[string]any{"hmacSignature": base64.StdEncoding.EncodeToString(mac.Sum(nil))}
	items := []any{map[string]any{"NotificationRequestItem": item}}
	body, err := json.Marshal(map[string]any{"live": "false", "notificationItems": items})
	if err != nil {
		panic("sandbox: " + err.Error()) // texts and numbers
	}
	return notice{header: []Line{{"Content-Type", "application/json"}}, body: body}, true
}
