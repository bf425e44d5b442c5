package gateways

import (
	"net/url"
	"strings"
	"testing"

	"github.com/fence-sidecar/fence-sidecar/claims"
	"github.com/google/go-cmp/cmp"
)

// TestParamKinds: what is not of its parameter's kind could be card data and is not stored.
func TestParamKinds(t *testing.T) {
	const card = "4242424242424242"
	for _, tt := range []struct {
		name, value string
		want        bool
	}{
		{"amount", "1000", true}, {"amount", "-10.00", true}, {"amount", "0.0001", true}, {"amount", "999999999999", true},
		{"amount", card, false}, {"amount", "424242424242.4242", false}, {"amount", "1234567890123", false}, {"amount", "1.2.3", false},
		{"amount", "0.00001", false}, {"amount", "1e3", false}, {"amount", "x", false}, {"amount", "1\x1b[31m", false}, {"amount", "٣", false},
		{"currency", "eur", true}, {"currency", "EUR", true}, {"currency", "euro", false}, {"currency", "e1r", false},
		{"id", "pi_3NqDeG2eZvKYlo2C", true}, {"id", "a:b-c@d.e", true}, {"id", strings.Repeat("x", 128), true}, {"id", strings.Repeat("x", 129), false},
		{"id", "a b", false}, {"id", "é", false}, {"id", "a%20b", false}, {"id", card, false}, {"id", "x" + card + "y", false}, {"id", "4242-4242-4242-4242", false},
		{"id", "3782.822463.10005", false}, {"id", "4242424242424241", true}, {"id", "123456789012", true}, {"id", "12345678901234567890", true},
		{"confirm", "true", true},
	} {
		if got := ofKind(tt.name, tt.value); got != tt.want {
			t.Errorf("%s %q: %v", tt.name, tt.value, got)
		}
	}
	g := stripe(t)
	for _, body := range []string{"amount=" + card + "&currency=eur", "amount=%1b%5b31m&currency=eur", "amount[]=1&currency=eur", "amount=1&Amount=2&currency=eur"} {
		c := prepare(t, g, post("/v1/payment_intents", mediaForm, body))
		if d := cmp.Diff(map[string]string{"currency": "eur", notKept: "amount"}, c.Facts.Lookup); d != "" {
			t.Errorf("%s: %s", body, d)
		}
		// The lookup compares the amount, so it cannot tell, and asks nothing.
		if f, err := g.AskAt(t.Context(), c.Facts, begun, asked, (&script{t: t}).ask); err != nil || f.Kind != claims.CouldNotTell {
			t.Errorf("%s: %+v %v", body, f, err)
		}
	}
	c := prepare(t, g, post("/v1/payment_intents/"+card+"/cancel", mediaForm, ""))
	if d := cmp.Diff(map[string]string{notKept: "id"}, c.Facts.Lookup); d != "" {
		t.Error(d)
	}
	if f, _ := g.AskAt(t.Context(), c.Facts, begun, asked, (&script{t: t}).ask); f.Kind != claims.CouldNotTell {
		t.Errorf("%+v", f)
	}
	// An id in the path may hold such digits among its letters.
	for id, want := range map[string]string{"0VF52814937998046": "0VF52814937998046", "x" + card: "x" + card, "x-" + card: ""} {
		if c := prepare(t, g, post("/v1/payment_intents/"+id+"/cancel", mediaForm, "")); c.Facts.Lookup["id"] != want {
			t.Errorf("%s is stored as %q", id, c.Facts.Lookup["id"])
		}
	}
	// An app's own reference is stored, so it is held to the same.
	p := generic(t)
	in := post("/charges", "application/json", `{"reference":"`+card+`"}`)
	if c := prepare(t, p, in); c.Facts.Reference != "" {
		t.Errorf("stored %q", c.Facts.Reference)
	}
}

// TestHalfwayConfirm: an intent that was made and shall be confirmed by the same call is not done before it is; a canceled one
// does not say whether it was.
func TestHalfwayConfirm(t *testing.T) {
	g := stripe(t)
	for _, tt := range []struct {
		confirm, status, rest string
		kind                  claims.FindingKind
	}{
		{"true", "requires_confirmation", "", claims.CouldNotTell},
		{"true", "requires_payment_method", "", claims.CouldNotTell},
		{"true", "requires_payment_method", lastError, claims.FoundFailed},
		{"true", "requires_action", "", claims.FoundDone},
		{"true", "succeeded", "", claims.FoundDone},
		{"true", "canceled", "", claims.CouldNotTell},
		{"true", "canceled", lastError, claims.CouldNotTell},
		{"TRUE", "canceled", "", claims.CouldNotTell},
		{"false", "canceled", "", claims.FoundDone},
		{"", "canceled", "", claims.FoundDone},
		{"", "canceled", lastError, claims.FoundDone}, // it was made, whatever became of it
		{"", "requires_payment_method", lastError, claims.FoundDone},
		{"TRUE", "requires_confirmation", "", claims.CouldNotTell},
		{"true ", "requires_confirmation", "", claims.CouldNotTell}, // not stored
		{"false", "requires_confirmation", "", claims.FoundDone},
		{"", "requires_confirmation", "", claims.FoundDone},
		{"", "requires_payment_method", "", claims.FoundDone},
	} {
		c := prepare(t, g, post("/v1/payment_intents", mediaForm, "amount=1000&currency=eur&confirm="+url.QueryEscape(tt.confirm)))
		s := &script{t: t, pages: []string{list(false, intent("pi_1", c.Facts.Reference, tt.status, tt.rest))}, date: later}
		if f, err := g.AskAt(t.Context(), c.Facts, begun, asked, s.ask); err != nil || f.Kind != tt.kind {
			t.Errorf("confirm=%q, %s: %s (%s) %v", tt.confirm, tt.status, f.Kind, f.Reason, err)
		}
	}
}

// TestWholeCapture: without an amount a capture is of the whole charge, so a part was not this call.
func TestWholeCapture(t *testing.T) {
	g := stripe(t)
	for body, want := range map[string]claims.FindingKind{
		`"amount":9,"amount_captured":9`: claims.FoundDone, `"amount":9,"amount_captured":5`: claims.Contradiction, `"amount_captured":9`: claims.CouldNotTell,
	} {
		c := prepare(t, g, post("/v1/charges/ch_1/capture", "", ""))
		if c.Facts.Reference != "" {
			t.Error("a capture takes no metadata")
		}
		s := &script{t: t, pages: []string{`{"id":"ch_1","object":"charge","captured":true,"status":"succeeded",` + body + `}`}, date: later}
		if f, _ := g.AskAt(t.Context(), c.Facts, begun, asked, s.ask); f.Kind != want {
			t.Errorf("%s: %s (%s)", body, f.Kind, f.Reason)
		}
	}
}
