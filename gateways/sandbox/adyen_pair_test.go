package sandbox_test

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/fence-sidecar/fence-sidecar/claims"
	"github.com/fence-sidecar/fence-sidecar/gateways"
)

// adyenPair is Adyen's declaration and the sandbox that behaves like Adyen.
type adyenPair struct {
	*rig
	g *gateways.Gateway
}

func newAdyenPair(t *testing.T) adyenPair {
	t.Helper()
	g := gateways.Adyen()
	if err := g.Validate(); err != nil {
		t.Fatal(err)
	}
	return adyenPair{adyenRig(t), g}
}

// call sends a request as the sidecar would.
func (p adyenPair) call(target, body, fault string) (claims.Facts, reply) {
	p.t.Helper()
	in := gateways.Inbound{Method: "POST", Target: target, Body: []byte(body), Header: []claims.Field{
		{Name: "X-API-Key", Value: "AQEtest"}, {Name: "Content-Type", Value: "application/json"},
	}}
	m, ok := p.g.Match(in.Method, in.Target)
	if !ok {
		p.t.Fatalf("%s: no route", target)
	}
	c, err := m.Prepare(in, gateways.Identity{Realm: "r", Tenant: "t", CallKey: "call" + target, Revision: 1})
	if err != nil {
		p.t.Fatal(err)
	}
	_, raw, err := m.Stamp(in, c.Facts)
	if err != nil {
		p.t.Fatal(err)
	}
	return c.Facts, p.adyen(target, c.Facts.GatewayKey, fault, string(raw))
}

func (p adyenPair) class(route string, r reply) gateways.Class {
	a := &claims.Answer{Status: r.status, Body: r.body}
	for name, vs := range r.header {
		a.Header = append(a.Header, claims.Field{Name: name, Value: vs[0]})
	}
	c := p.g.Classify(route, a)
	c.Why = ""
	return c
}

// TestAdyenFaults: the faults' answers by Adyen's table. The body has no reference, so that ours is in it.
func TestAdyenFaults(t *testing.T) {
	body := strings.Replace(adyenBody, `"reference":"ref-1",`, "", 1)
	id := "HIXLMSKPRITFJN3S"
	refused, stored := gateways.Class{Outcome: claims.NotExecuted, Refused: true}, gateways.Class{Stored: true}
	for fault, want := range map[string]gateways.Class{
		"":                     {Outcome: claims.Succeeded, Stored: true, Payment: "done", Object: id},
		"gzip":                 {Outcome: claims.Succeeded, Stored: true, Payment: "done", Object: id},
		"processing":           {Outcome: claims.Succeeded, Stored: true, Payment: "pending", Object: id},
		"action":               {Outcome: claims.Succeeded, Stored: true, Payment: "pending"},
		"decline":              {Outcome: claims.Declined, Stored: true},
		"unauthorized":         refused,
		"forbidden":            refused,
		"in-use":               {InUse: true},
		"error-after":          stored,
		"error-after-unstored": stored,
		"error-before=503":     stored,
		"balancer":             {},
		"rate-limit":           {},
		"lock-timeout":         {},
		"empty":                {},
		"no-content":           {},
		"null":                 {},
		"html":                 {},
		"redirect":             {},
	} {
		p := newAdyenPair(t)
		f, r := p.call("/checkout/v72/payments", body, fault)
		if got := p.class(f.Route, r); got != want {
			t.Errorf("%q: %+v, want %+v", fault, got, want)
		}
		if l := p.s.Ledger(); len(l) == 1 && (l[0].Reference != f.Reference || l[0].Key != f.GatewayKey || l[0].Kind != "payments.create" || l[0].Amount != 1000) {
			t.Errorf("%q: %+v of %+v", fault, l[0], f)
		}
	}
}

// TestAdyenProbe: after a lost answer, or an error that is said to be transient, the same call again is the question, and one
// payment is executed in all.
func TestAdyenProbe(t *testing.T) {
	for name, lost := range map[string]string{"lost": "lose-rst;times=1", "": ""} {
		p := newAdyenPair(t)
		body := adyenBody
		if name == "" {
			body = adyenWith("RequestedTestErrorResponseCode", "NO_CONNECTION_AVAILABLE")
		}
		f, r := p.call("/v72/payments", body, lost)
		if got := p.class(f.Route, r); name == "" && got != (gateways.Class{Transient: true}) {
			t.Errorf("%+v", got)
		}
		again, r := p.call("/v72/payments", adyenBody, lost)
		if got := p.class(f.Route, r); got.Outcome != claims.Succeeded || again.GatewayKey != f.GatewayKey {
			t.Errorf("%q: %+v", name, got)
		}
		p.executed(f.GatewayKey, 1)
	}
	// A gateway that ignored the key would charge twice: the counter sees it.
	p := newAdyenPair(t)
	f, _ := p.call("/v72/payments", adyenBody, "ignore-key")
	p.call("/v72/payments", adyenBody, "ignore-key")
	p.executed(f.GatewayKey, 2)
}

// TestAdyenNothingToLookUp: Checkout answers no question; the declaration asks none.
func TestAdyenNothingToLookUp(t *testing.T) {
	p := newAdyenPair(t)
	f, _ := p.call("/v72/payments", adyenBody, "lose-fin")
	got, err := p.g.Ask(t.Context(), f, claims.Now{}, pair{rig: p.rig}.ask)
	if err != nil || got.Kind != claims.CouldNotTell || len(p.s.Sends("GET")) != 0 {
		t.Errorf("%v %s (%s)", err, got.Kind, got.Reason)
	}
}

// TestAdyenChecks: the requests of the checklist do here what they are for.
func TestAdyenChecks(t *testing.T) {
	p := newAdyenPair(t)
	c := p.g.Checks
	send := func(s *gateways.Sample, v *gateways.Variation, n int) (claims.Facts, reply) {
		t.Helper()
		values := maps.Clone(c.Vars)
		values["merchant"], values["amount"], values["currency"] = "ShopEU", c.Amount, c.Currency
		if v != nil {
			maps.Copy(values, v.Vars)
		}
		body, missing := gateways.Fill(s.Body, values, func(s string) string { return s })
		if len(missing) > 0 {
			t.Fatalf("nobody says %v", missing)
		}
		return p.call(s.Target+fmt.Sprintf("?n=%d", n), body, "")
	}
	for i, tt := range []struct {
		s    *gateways.Sample
		v    *gateways.Variation
		want claims.Outcome
		code int
	}{
		{c.Charge, nil, claims.Succeeded, 200}, {c.Charge, c.Declined, claims.Declined, 200}, {c.Charge, c.Failed, claims.Unknown, 500},
		{c.Endpoint, nil, claims.Succeeded, 201},
	} {
		f, r := send(tt.s, tt.v, i)
		if got := p.class(f.Route, r); got.Outcome != tt.want || r.status != tt.code {
			t.Errorf("%d: %d %+v %s", i, r.status, got, r.body)
		}
	}
	for host, live := range map[string]bool{
		"0123456789abcdef-Shop-checkout-live.adyenpayments.com:443": true, "pal-live.adyen.com": true,
		"checkout-test.adyen.com": false, "127.0.0.1:8080": false,
	} {
		if c.LiveHost(host) != live {
			t.Errorf("%s: live is not %v", host, live)
		}
	}
}

// TestAdyenTransferLookup: a lost transfer is found by our reference, until the list is too long to be one page; nothing found
// proves nothing.
func TestAdyenTransferLookup(t *testing.T) {
	p := newAdyenPair(t)
	var now time.Time
	find := func(f claims.Facts) claims.Finding {
		t.Helper()
		now = time.Now()
		got, err := p.g.Ask(t.Context(), f, claims.Now{Store: now, Wall: now}, func(_ context.Context, target string) (*claims.Answer, error) {
			r := exchange(p.dial(), adyenText("GET", target, "", "", ""))
			a := &claims.Answer{Status: r.status, Body: r.body}
			for name, vs := range r.header {
				a.Header = append(a.Header, claims.Field{Name: name, Value: vs[0]})
			}
			return a, r.err
		})
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	f, _ := p.call("/btl/v4/transfers", `{"amount":{"value":900,"currency":"EUR"}}`, "drop")
	if got := find(f); got.Kind != claims.Missed || p.g.LookupRules(f.Route).Proves {
		t.Errorf("%s (%s)", got.Kind, got.Reason)
	}
	f, _ = p.call("/btl/v4/transfers", `{"amount":{"value":900,"currency":"EUR"}}`, "lose-fin")
	if got := find(f); got.Kind != claims.FoundDone || got.Payment != "pending" || got.Object == "" || got.Answer == nil || got.Answer.Status != 202 {
		t.Errorf("%s %q (%s), %+v", got.Kind, got.Payment, got.Reason, got.Answer)
	}
	f.Lookup["amount"] = "901"
	if got := find(f); got.Kind != claims.Contradiction {
		t.Errorf("another amount: %s (%s)", got.Kind, got.Reason)
	}
}
