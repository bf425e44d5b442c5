package gateways

import (
	"bytes"
	"compress/gzip"
	"strings"
	"testing"

	"github.com/fence-sidecar/fence-sidecar/claims"
)

func reply(status int, body string, header ...string) *claims.Answer {
	a := &claims.Answer{Status: status, Body: []byte(body)}
	for i := 0; i+1 < len(header); i += 2 {
		a.Header = append(a.Header, claims.Field{Name: header[i], Value: header[i+1]})
	}
	return a
}

func zipped(s string) string {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	z.Write([]byte(s))
	z.Close()
	return b.String()
}

func invalid(code string) string {
	return `{"error":{"type":"invalid_request_error","code":"` + code + `"}}`
}

const replayed = "Idempotent-Replayed"

func TestClassifyStripe(t *testing.T) {
	const pi = "payment_intents_create"
	ok := `{"id":"pi_1","object":"payment_intent","status":"succeeded"}`
	tests := []struct {
		name, route string
		a           *claims.Answer
		want        Class
	}{
		{"success", pi, reply(200, ok), Class{Outcome: claims.Succeeded, Stored: true, Payment: "done"}},
		{"success, replayed", pi, reply(200, ok, replayed, "true"), Class{Outcome: claims.Succeeded, Stored: true, Payment: "done"}},
		{"3-D Secure", pi, reply(200, strings.Replace(ok, "succeeded", "requires_action", 1)), Class{Outcome: claims.Succeeded, Stored: true, Payment: "pending"}},
		{"authorised", pi, reply(200, strings.Replace(ok, "succeeded", "requires_capture", 1)), Class{Outcome: claims.Succeeded, Stored: true, Payment: "pending"}},
		{"gzip", pi, reply(200, zipped(ok), "Content-Encoding", "gzip"), Class{Outcome: claims.Succeeded, Stored: true, Payment: "done"}},
		{"a coding that we do not read", pi, reply(200, ok, "Content-Encoding", "br"), Class{}},
		{"another object", pi, reply(200, `{"id":"ch_1","object":"charge"}`), Class{}},
		{"no id", pi, reply(200, `{"object":"payment_intent"}`), Class{}},
		{"an error in a 200", pi, reply(200, `{"id":"x","object":"payment_intent","error":{}}`), Class{}},
		{"empty 200", pi, reply(200, ""), Class{}},
		{"204", pi, reply(204, ""), Class{}},
		{"null", pi, reply(200, "null"), Class{}},
		{"HTML", pi, reply(200, "<html>"), Class{}},
		{"two texts", pi, reply(200, ok+ok), Class{}},
		{"decline", pi, reply(402, `{"error":{"type":"card_error","code":"card_declined"}}`), Class{Outcome: claims.Declined, Stored: true}},
		{"402 of another type", pi, reply(402, invalid("x")), Class{}},
		{"402 without JSON", pi, reply(402, "no"), Class{}},
		{"401", pi, reply(401, invalid("")), Class{Outcome: claims.NotExecuted, Refused: true}},
		{"401 of a middlebox", pi, reply(401, "<html>"), Class{}},
		{"401, marked", pi, reply(401, invalid(""), replayed, "true"), Class{Outcome: claims.NotExecuted, Refused: true}},
		{"403", pi, reply(403, invalid("")), Class{Outcome: claims.NotExecuted, Refused: true}},
		{"429 rate limit", pi, reply(429, invalid("rate_limit")), Class{Outcome: claims.NotExecuted, Refused: true}},
		{"429 lock timeout", pi, reply(429, invalid("lock_timeout")), Class{Outcome: claims.NotExecuted, Refused: true}},
		{"429 of another kind", pi, reply(429, invalid("x"), replayed, "true"), Class{}},
		{"missing parameter", pi, reply(400, invalid("parameter_missing")), Class{Outcome: claims.NotExecuted, Refused: true}},
		{"missing parameter, stored", pi, reply(400, invalid("parameter_missing"), replayed, "true"), Class{Outcome: claims.NotExecuted, Refused: true, Stored: true}},
		{"no such object", pi, reply(404, invalid("resource_missing")), Class{Outcome: claims.NotExecuted, Refused: true}},
		{"listed code, other type", pi, reply(400, `{"error":{"type":"api_error","code":"parameter_missing"}}`), Class{}},
		{"unexpected state", "payment_intents_confirm", reply(400, invalid("payment_intent_unexpected_state")), Class{}},
		{"unexpected state, stored", "payment_intents_confirm", reply(400, invalid("payment_intent_unexpected_state"), replayed, "TRUE"), Class{Stored: true}},
		{"already captured", "charges_capture", reply(400, invalid("charge_already_captured")), Class{}},
		{"already refunded", "refunds_create", reply(400, invalid("charge_already_refunded")), Class{}},
		{"other parameters under the key", pi, reply(400, `{"error":{"type":"idempotency_error"}}`), Class{}},
		{"400 without a code", pi, reply(400, `{"error":{"type":"invalid_request_error"}}`), Class{}},
		{"key in use", pi, reply(409, invalid("idempotency_key_in_use")), Class{InUse: true}},
		{"409", pi, reply(409, invalid("x")), Class{}},
		{"424", pi, reply(424, invalid("x")), Class{}},
		{"500", pi, reply(500, `{"error":{"type":"api_error"}}`), Class{}},
		{"500, stored", pi, reply(500, `{"error":{"type":"api_error"}}`, replayed, "true"), Class{Stored: true}},
		{"503", pi, reply(503, ""), Class{}},
		{"redirect", pi, reply(307, ""), Class{}},
		{"refund", "refunds_create", reply(200, `{"id":"re_1","object":"refund","status":"pending"}`), Class{Outcome: claims.Succeeded, Stored: true, Payment: "pending"}},
		{"transfer", "transfers_create", reply(200, `{"id":"tr_1","object":"transfer","reversed":false}`), Class{Outcome: claims.Succeeded, Stored: true, Payment: "done"}},
		{"reversal", "transfer_reversals_create", reply(200, `{"id":"trr_1","object":"transfer_reversal"}`), Class{Outcome: claims.Succeeded, Stored: true, Payment: "done"}},
		{"any v1 object", "post", reply(200, `{"id":"cus_1","object":"customer"}`), Class{Outcome: claims.Succeeded, Stored: true}},
		{"keyless", "other", reply(200, `{"id":"cus_1","object":"customer","deleted":true}`), Class{Outcome: claims.Succeeded}},
		{"unknown route", "nope", reply(200, ok), Class{}},
		{"no answer", pi, nil, Class{}},
	}
	g := stripe(t)
	for _, tt := range tests {
		got := g.Classify(tt.route, tt.a)
		if got.Why == "" {
			t.Errorf("%s: no reason", tt.name)
		}
		got.Why = ""
		if r := g.route(tt.route); tt.want.Outcome == claims.Succeeded && r.object() != "" {
			doc, _ := g.document(tt.a)
			if tt.want.Object = text(doc, "/id"); tt.want.Object == "" {
				t.Errorf("%s: no id", tt.name)
			}
		}
		if got != tt.want {
			t.Errorf("%s: %+v, want %+v", tt.name, got, tt.want)
		}
	}
}

// TestClassifyGeneric: a gateway that says no in a 200, and R15: an answer without bytes is an answer.
func TestClassifyGeneric(t *testing.T) {
	g := generic(t)
	for _, tt := range []struct {
		a    *claims.Answer
		want Class
	}{
		{reply(200, `{"approved":false,"state":"refused"}`), Class{Outcome: claims.Declined}},
		{reply(201, `{"approved":true,"state":"captured"}`), Class{Outcome: claims.Succeeded, Payment: "done"}},
		{reply(200, ""), Class{Outcome: claims.Succeeded}},
		{reply(204, ""), Class{Outcome: claims.Succeeded}},
		{reply(200, "null"), Class{Outcome: claims.Succeeded}},
		{reply(422, `{"code":"invalid"}`), Class{Outcome: claims.NotExecuted, Refused: true}},
		{reply(422, `{"code":"other"}`), Class{}},
		{reply(500, ""), Class{}},
	} {
		got := g.Classify("charge", tt.a)
		got.Why = ""
		if got != tt.want {
			t.Errorf("%d %s: %+v", tt.a.Status, tt.a.Body, got)
		}
	}
}

// TestClassifierBites: a table that takes every 4xx for a refusal is caught by the cases above.
func TestClassifierBites(t *testing.T) {
	g := stripe(t)
	g.Answers = append([]*AnswerRule{{Status: []string{"4xx"}, Outcome: "not-executed"}}, g.Answers...)
	if err := g.Validate(); err != nil {
		t.Fatal(err)
	}
	if c := g.Classify("payment_intents_create", reply(409, invalid("idempotency_key_in_use"))); c.Outcome != claims.NotExecuted {
		t.Error("the broken table is not in force, so the test above proves nothing")
	}
}

func FuzzStripeAnswer(f *testing.F) {
	f.Add(200, `{"id":"pi_1","object":"payment_intent","status":"succeeded"}`, "")
	f.Add(402, `{"error":{"type":"card_error"}}`, "gzip")
	f.Add(500, `{"error":`, "")
	f.Add(400, `{"error":{"type":"invalid_request_error","code":"parameter_missing"}}`, "br, gzip")
	g := stripe(f)
	f.Fuzz(func(t *testing.T, status int, body, coding string) {
		a := reply(status, body, "Content-Encoding", coding)
		for _, r := range g.Routes {
			c := g.Classify(r.Name, a)
			if c.Outcome == claims.Succeeded && status/100 != 2 || c.Outcome == claims.Declined && status != 402 || status >= 500 && c.Outcome != claims.Unknown {
				t.Errorf("%s: status %d is %s", r.Name, status, c.Outcome)
			}
			if c.Outcome != claims.Unknown && !strings.Contains(body, "{") && coding == "" {
				t.Errorf("%s: %q is %s", r.Name, body, c.Outcome)
			}
		}
	})
}
