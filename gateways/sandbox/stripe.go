package sandbox

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/url"
	"strconv"
	"strings"
)

func init() {
	profiles["stripe"] = &profile{
		name: "stripe", title: "Stripe", header: "Idempotency-Key", credential: "Authorization",
		account: func(r *request) string { return r.header.Get("Stripe-Account") },
		unauthorized: func() answer {
			return answerError(401, "invalid_request_error", "", "You did not provide an API key")
		},
		forbidden: func() answer {
			return answerError(403, "invalid_request_error", "", "The provided key does not have access")
		},
		limited:     stripeLimited,
		serverError: func(status int) answer { return answerError(status, "api_error", "", "An error occurred on our end") },
		inUse: func(r *request) answer {
			return answerError(409, "invalid_request_error", "idempotency_key_in_use", "There is currently another in-progress request using this Idempotent Key: "+r.key())
		},
		malformed: func(message string) answer { return answerError(400, "invalid_request_error", "", message) },
		badKey: func(r *request) (answer, bool) {
			return answerError(400, "idempotency_error", "", "The key is longer than 255 characters"), len(r.key()) > 255
		},
		params: stripeParams,
		conflict: func(*request, *entry) answer {
			return answerError(400, "idempotency_error", "", "Keys for idempotent requests can only be used with the same parameters they were first used with")
		},
		repeat:    func(x *call, e *entry) answer { return echo(x.r, e.answer).with("Idempotent-Replayed", "true") },
		echo:      func(r *request, a answer) answer { return a.with("Idempotency-Key", r.key()) },
		run:       (*call).runStripe,
		reference: stripeReference,
		move:      moveStripe,
		notice:    stripeNotice,
	}
}

func stripeLimited(fault string) answer {
	if fault == "lock-timeout" {
		return answerError(429, "invalid_request_error", "lock_timeout", "This object cannot be accessed right now")
	}
	return answerError(429, "invalid_request_error", "rate_limit", "Too many requests")
}

// stripeParams is what makes two requests under a key the same.
func stripeParams(r *request) string {
	v, err := url.ParseQuery(string(r.body))
	if err != nil {
		return r.method + " " + r.target + " " + string(r.body)
	}
	return r.method + " " + r.target + " " + v.Encode()
}

// stripeEvents are the types of events, by kind of object and what happened.
var stripeEvents = map[string]map[string]string{
	"payment_intent": {"created": "payment_intent.", "done": "payment_intent.succeeded", "failed": "payment_intent.payment_failed", "reversed": "payment_intent.canceled"},
	"charge":         {"created": "charge.", "done": "charge.succeeded", "failed": "charge.failed", "reversed": "charge.refunded"},
	"refund":         {"created": "refund.created", "done": "refund.updated", "failed": "refund.failed", "reversed": "refund.updated"},
	"payout":         {"created": "payout.created", "done": "payout.paid", "failed": "payout.failed", "reversed": "payout.canceled"},
}

// stripeNotice is an event with a signature over its time and body (https://docs.stripe.com/webhooks).
func stripeNotice(s *Server, o *object, event string, h Hook) (notice, bool) {
	kind := stripeEvents[o.kind][event]
	if strings.HasSuffix(kind, ".") { // made: its state says what is told
		states := map[string]string{
			"requires_capture": "amount_capturable_updated", "requires_action": "requires_action", "processing": "processing",
			"succeeded": "succeeded", "pending": "pending", "failed": "failed",
		}
		kind += states[o.str("status")]
	}
	if kind == "" || strings.HasSuffix(kind, ".") {
		return notice{}, false
	}
	s.serial++
	a := answerJSON(200, map[string]any{
		"id": fmt.Sprintf("evt_sandbox%08d", s.serial), "object": "event", "type": kind, "created": s.now().Unix(), "livemode": false,
		"data": map[string]any{"object": o.fields},
	})
	at := strconv.FormatInt(s.now().Unix(), 10)
	mac := hmac.New(sha256.New, []byte(h.Secret))
	mac.Write([]byte(at + "."))
	mac.Write(a.body)
	return notice{body: a.body, header: []Line{
		{"Content-Type", "application/json"}, {"Stripe-Signature", "t=" + at + ",v1=" + hex.EncodeToString(mac.Sum(nil))},
	}}, true
}
