package gateways

import (
	"errors"
	"strings"
	"testing"
)

// TestSpellings: a path that a server may clean or decode into a declared route's does not pass as something else.
func TestSpellings(t *testing.T) {
	g := stripe(t)
	for target, want := range map[string]string{
		"//v1/payment_intents": "payment_intents_create", "/v1//payment_intents": "payment_intents_create", "/v1/payment_intents/": "payment_intents_create",
		"/v1/payment_intents/pi%5F1/confirm": "payment_intents_confirm", "/v1/payment_intents/pi_1%2Fconfirm": "payment_intents_confirm",
		"/v1/payment_intents/pi_1%252fconfirm": "payment_intents_confirm", "/v1/x/../payment_intents": "payment_intents_create",
		"/v1/./payment_intents": "payment_intents_create", "/v1/payment_intents;a=b": "payment_intents_create", "/V1/payment_intents": "payment_intents_create",
		"/v1/Payment_Intents": "payment_intents_create", "/v1/%70ayment_intents": "payment_intents_create", "/v1/%2e%2E/v1/refunds": "refunds_create",
		"/v2/..%2fv1/refunds": "refunds_create", "/v1/refunds%20": "refunds_create", "/v1/refunds%3Fx": "refunds_create", `/v1\refunds`: "refunds_create",
		"/v1/refunds/?expand[]=x": "refunds_create", "/v1/charges/a%2Fb/refund": "charges_refund", "/v1/charges/a$/refund": "charges_refund",
		"/v1/payment_intents/../confirm": "payment_intents_confirm",
		"/v1/payment_intents":            "", "/v1/customers": "", "/v1//customers": "", "/v1/payment_intents/pi_1": "", "/v2/core/accounts": "", "/": "", "/v1/refunds?a=/../": "",
	} {
		for _, method := range []string{"POST", "PUT"} {
			m, ok := g.Match(method, target)
			if !ok || want == "" && m.Flaw() != "" || want != "" && !strings.HasSuffix(m.Flaw(), "spelling of route "+want) {
				t.Errorf("%s %s: %v %q", method, target, ok, m.Flaw())
				continue
			}
			_, err := m.Prepare(Inbound{Method: method, Target: target}, ident)
			if _, bad := errors.AsType[*BadRequest](err); bad != (want != "") {
				t.Errorf("%s %s: %v", method, target, err)
			}
		}
	}
	all := &Gateway{Name: "all", BaseURL: "https://x.example", Routes: []*Route{{Name: "all", Method: "*", Path: "/**"}}}
	if err := all.Validate(); err != nil {
		t.Fatal(err)
	}
	if m, ok := all.Match("POST", "//a/../b;c"); !ok || m.Flaw() != "" {
		t.Errorf("a catch-all alone: %v %q", ok, m.Flaw())
	}
	if (Match{}).Flaw() != "" {
		t.Error("no match has a flaw")
	}
}
