package sandbox_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/fence-sidecar/fence-sidecar/claims"
	"github.com/fence-sidecar/fence-sidecar/gateways"
	"github.com/fence-sidecar/fence-sidecar/gateways/sandbox"
)

// pair is Stripe's declaration and the sandbox that behaves like Stripe.
type pair struct {
	*rig
	g *gateways.Gateway
}

func newPair(t *testing.T) pair {
	g := gateways.Stripe()
	if err := g.Validate(); err != nil {
		t.Fatal(err)
	}
	return pair{start(t, sandbox.Config{}), g}
}

// stamped prepares a call and returns its facts and its text as it would be sent.
func (p pair) stamped(target, body, key, fault string) (claims.Facts, string) {
	p.t.Helper()
	in := gateways.Inbound{Method: "POST", Target: target, Body: []byte(body), Header: []claims.Field{
		{Name: "Authorization", Value: "Bearer sk_test_1"}, {Name: "Content-Type", Value: "application/x-www-form-urlencoded"},
	}}
	if fault != "" {
		in.Header = append(in.Header, claims.Field{Name: sandbox.FaultHeader, Value: fault})
	}
	m, ok := p.g.Match(in.Method, in.Target)
	if !ok {
		p.t.Fatalf("%s: no route", target)
	}
	c, err := m.Prepare(in, gateways.Identity{Realm: "r", Tenant: "t", CallKey: key, Revision: 1})
	if err != nil {
		p.t.Fatal(err)
	}
	header, raw, err := m.Stamp(in, c.Facts)
	if err != nil {
		p.t.Fatal(err)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "POST %s HTTP/1.1\r\nHost: s\r\nContent-Length: %d\r\n", target, len(raw))
	for _, f := range header {
		fmt.Fprintf(&b, "%s: %s\r\n", f.Name, f.Value)
	}
	return c.Facts, b.String() + "\r\n" + string(raw)
}

// ask is an Asker over a connection of its own.
func (p pair) ask(_ context.Context, target string) (*claims.Answer, error) {
	c := p.dial()
	io.WriteString(c, raw("GET", target, "", "", ""))
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	a := &claims.Answer{Status: res.StatusCode}
	for name, vs := range res.Header {
		for _, v := range vs {
			a.Header = append(a.Header, claims.Field{Name: name, Value: v})
		}
	}
	a.Body, err = io.ReadAll(res.Body)
	return a, err
}

func (p pair) find(f claims.Facts) claims.Finding {
	p.t.Helper()
	now := time.Now()
	got, err := p.g.Ask(p.t.Context(), f, claims.Now{Store: now, Wall: now}, p.ask)
	if err != nil {
		p.t.Fatal(err)
	}
	return got
}

// TestEveryLookup: for each operation of Stripe, with the answer lost: missed before, found after, and the answer that the
// lookup makes is classified as the operation's success.
func TestEveryLookup(t *testing.T) {
	const create = "amount=1000&currency=eur"
	paid := create + "&confirm=true&payment_method=pm_card_visa"
	tests := []struct {
		before []string // target and body of what comes before; its id stands for {id}
		target string
		body   string
		answer bool
	}{
		{nil, "/v1/payment_intents", paid, true},
		{nil, "/v1/payment_intents", create, true},
		{[]string{"/v1/payment_intents", create + "&payment_method=pm_card_visa"}, "/v1/payment_intents/{id}/confirm", "", true},
		{[]string{"/v1/payment_intents", paid + "&capture_method=manual"}, "/v1/payment_intents/{id}/capture", "amount_to_capture=400", true},
		{[]string{"/v1/payment_intents", create}, "/v1/payment_intents/{id}/cancel", "", true},
		{nil, "/v1/charges", create + "&source=tok_visa", true},
		{[]string{"/v1/charges", create + "&source=tok_visa&capture=false"}, "/v1/charges/{id}/capture", "", true},
		{[]string{"/v1/charges", create + "&source=tok_visa"}, "/v1/refunds", "charge={id}&amount=10", true},
		{nil, "/v1/transfers", create + "&destination=acct_1", true},
		{[]string{"/v1/transfers", create + "&destination=acct_1"}, "/v1/transfers/{id}/reversals", "amount=10", true},
		{nil, "/v1/payouts", create, true},
		{[]string{"/v1/payouts", create}, "/v1/payouts/{id}/cancel", "", true},
		{[]string{"/v1/payouts", create + "&method=instant"}, "/v1/payouts/{id}/reverse", "", false},
		{nil, "/v1/topups", create, true},
		{[]string{"/v1/topups", create}, "/v1/topups/{id}/cancel", "", true},
	}
	for _, tt := range tests {
		t.Run(tt.target, func(t *testing.T) {
			p := newPair(t)
			p.t = t
			target, body := tt.target, tt.body
			if tt.before != nil {
				id, _ := p.send("POST", tt.before[0], "", "", tt.before[1]).object()["id"].(string)
				target, body = strings.ReplaceAll(target, "{id}", id), strings.ReplaceAll(body, "{id}", id)
			}
			f, text := p.stamped(target, body, "call", "lose-fin")
			unchanged := claims.Missed
			if strings.HasSuffix(tt.target, "/confirm") { // the intent's state does not show what ran
				unchanged = claims.CouldNotTell
			}
			if got := p.find(f); got.Kind != unchanged {
				t.Errorf("before: %s (%s)", got.Kind, got.Reason)
			}
			if r := exchange(p.dial(), text); r.err == nil {
				t.Fatalf("the answer was not lost: %d %s", r.status, r.body)
			}
			got := p.find(f)
			if got.Kind != claims.FoundDone || (got.Answer != nil) != tt.answer {
				t.Fatalf("after: %s (%s)", got.Kind, got.Reason)
			}
			if c := p.g.Classify(f.Route, got.Answer); tt.answer && c.Outcome != claims.Succeeded {
				t.Errorf("the made answer is %+v", c)
			}
			p.executed(f.GatewayKey, 1)
		})
	}
}

// TestDeclineIsFound: a lost decline is a failed object.
func TestDeclineIsFound(t *testing.T) {
	p := newPair(t)
	f, text := p.stamped("/v1/payment_intents", "amount=1000&currency=eur&confirm=true&payment_method=pm_card_chargeDeclined", "call", "lose-rst")
	exchange(p.dial(), text)
	if got := p.find(f); got.Kind != claims.FoundFailed {
		t.Errorf("%s (%s)", got.Kind, got.Reason)
	}
	p.executed(f.GatewayKey, 0)
}

// TestIgnoredKeyIsSeen: two objects under one reference contradict each other.
func TestIgnoredKeyIsSeen(t *testing.T) {
	p := newPair(t)
	f, text := p.stamped("/v1/payment_intents", charge[:strings.Index(charge, "&metadata")], "call", "ignore-key")
	exchange(p.dial(), text)
	exchange(p.dial(), text)
	if got := p.find(f); got.Kind != claims.Contradiction {
		t.Errorf("%s (%s)", got.Kind, got.Reason)
	}
	p.executed(f.GatewayKey, 2)
}

// TestLookupFaults: a lagging list lies, and a clock that is off is noticed.
func TestLookupFaults(t *testing.T) {
	for fault, want := range map[string]claims.FindingKind{"list-lag": claims.Missed, "date-skew": claims.CouldNotTell, "no-date": claims.CouldNotTell} {
		p := newPair(t)
		f, text := p.stamped("/v1/payment_intents", "amount=1000&currency=eur", "call", "")
		exchange(p.dial(), text)
		p.s.Inject(sandbox.Fault{Name: fault})
		if got := p.find(f); got.Kind != want {
			t.Errorf("%s: %s (%s)", fault, got.Kind, got.Reason)
		}
	}
}

// TestClassifySandbox: the faults' answers by Stripe's table.
func TestClassifySandbox(t *testing.T) {
	for fault, want := range map[string]gateways.Class{
		"":                 {Outcome: claims.Succeeded, Stored: true, Payment: "done", Object: "pi_sandbox00000001"},
		"gzip":             {Outcome: claims.Succeeded, Stored: true, Payment: "done", Object: "pi_sandbox00000001"},
		"action":           {Outcome: claims.Succeeded, Stored: true, Payment: "pending", Object: "pi_sandbox00000001"},
		"decline":          {Outcome: claims.Declined, Stored: true},
		"unauthorized":     {Outcome: claims.NotExecuted, Refused: true},
		"forbidden":        {Outcome: claims.NotExecuted, Refused: true},
		"rate-limit":       {Outcome: claims.NotExecuted, Refused: true},
		"lock-timeout":     {Outcome: claims.NotExecuted, Refused: true},
		"in-use":           {InUse: true},
		"error-after":      {},
		"error-before=503": {},
		"empty":            {},
		"no-content":       {},
		"null":             {},
		"html":             {},
		"redirect":         {},
	} {
		p := newPair(t)
		f, text := p.stamped("/v1/payment_intents", "amount=1&currency=eur&confirm=true&payment_method=pm_card_visa", "call", fault)
		r := exchange(p.dial(), text)
		a := &claims.Answer{Status: r.status, Body: r.body}
		for name, vs := range r.header {
			a.Header = append(a.Header, claims.Field{Name: name, Value: vs[0]})
		}
		got := p.g.Classify(f.Route, a)
		if got.Why = ""; got != want {
			t.Errorf("%q: %+v, want %+v", fault, got, want)
		}
	}
}

// TestCaptureTakesNoMetadata: what a route stamps is refused where Stripe takes none, so a route that stamps too much is seen.
func TestCaptureTakesNoMetadata(t *testing.T) {
	p := newPair(t)
	hold := func() string {
		id, _ := p.send("POST", "/v1/charges", "", "", "amount=1000&currency=eur&source=tok_visa&capture=false").object()["id"].(string)
		return "/v1/charges/" + id + "/capture"
	}
	target := hold()
	if r := p.send("POST", target, "k", "", "metadata[x]=1"); r.status != 400 || !strings.Contains(string(r.body), "parameter_unknown") {
		t.Errorf("%d %s", r.status, r.body)
	}
	if f, text := p.stamped(target, "", "call", ""); exchange(p.dial(), text).status != 200 {
		t.Error("the declared capture was refused")
	} else {
		p.executed(f.GatewayKey, 1)
	}
	for _, r := range p.g.Routes { // broken on purpose
		if r.Name == "charges_capture" {
			r.Reference = &gateways.RefPlace{Field: "metadata.fence_capture_ref", Owned: true, Shape: gateways.Shape{Alphabet: "hex", Length: 32}}
		}
	}
	if _, text := p.stamped(hold(), "", "other", ""); exchange(p.dial(), text).status != 400 {
		t.Error("a capture that stamps passed")
	}
}
