package sandbox

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"time"
)

// ckoNotice writes an event as workflows post it (https://www.checkout.com/docs/workflows/webhook-event-types), signed by
// Cko-Signature: HMAC-SHA256 of the body, in hexadecimal. An event of an action carries the payment's id and, as the examples of the
// documentation do, the payment's reference; the action's own is nowhere in it.
func ckoNotice(s *Server, o *object, event string, h Hook) (notice, bool) {
	pay, act := o, (*object)(nil)
	if o.kind == "action" {
		pay, act = s.objects[o.str("payment")], o
	}
	name := ckoEvent(pay, act, event)
	if name == "" || pay.kind != "payment" {
		return notice{}, false
	}
	data := map[string]any{
		"id": pay.id, "reference": pay.str("reference"), "amount": o.num("amount"), "currency": pay.str("currency"),
		"processed_on": s.now().UTC().Format(time.RFC3339Nano),
	}
	for _, k := range []string{"response_code", "response_summary"} {
		if v := o.fields[k]; v != nil {
			data[k] = v
		}
	}
	for _, k := range []string{"source", "destination", "3ds", "retry"} {
		if v := pay.fields[k]; v != nil && act == nil {
			data[k] = v
		}
	}
	if act != nil {
		data["action_id"] = act.id
	}
	body, err := json.Marshal(map[string]any{
		"id": ckoID("evt", name+o.id), "type": name, "version": "1.0.29", "timestamp": s.now().UTC().Format(time.RFC3339Nano),
		"data": data, "_links": map[string]any{"payment": ckoLinks("/payments/" + pay.id)["self"]},
	})
	if err != nil {
		panic("sandbox: " + err.Error()) // only maps of plain values are marshalled
	}
	mac := hmac.New(sha256.New, []byte(h.Secret))
	mac.Write(body)
	return notice{header: []Line{{"Content-Type", "application/json"}, {"Cko-Signature", hex.EncodeToString(mac.Sum(nil))}}, body: body}, true
}

// ckoEvent is the type of an event; "": there is none.
func ckoEvent(pay, act *object, event string) string {
	if act != nil {
		return map[string]map[string]string{
			"Capture": {"created": "payment_capture_pending", "done": "payment_captured", "failed": "payment_capture_declined"},
			"Refund":  {"created": "payment_refund_pending", "done": "payment_refunded", "failed": "payment_refund_declined"},
			"Void":    {"done": "payment_voided", "failed": "payment_void_declined"},
		}[act.str("type")][event]
	}
	if event == "created" && pay.str("status") == "Pending" {
		return "payment_pending"
	}
	return map[string]string{
		"Authorized": "payment_approved", "Card Verified": "card_verified", "Captured": "payment_captured", "Paid": "payment_paid",
		"Declined": "payment_declined", "Canceled": "payment_canceled", "Expired": "payment_expired", "Voided": "payment_voided",
	}[pay.str("status")]
}
