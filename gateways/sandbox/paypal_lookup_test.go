package sandbox_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fence-sidecar/fence-sidecar/claims"
	"github.com/fence-sidecar/fence-sidecar/gateways"
	"github.com/fence-sidecar/fence-sidecar/gateways/sandbox"
)

// ppPair is PayPal's declaration and the sandbox that behaves like PayPal.
type ppPair struct {
	ppRig
	g *gateways.Gateway
}

func newPayPalPair(t *testing.T) ppPair {
	g := gateways.PayPal()
	g.Accounts = []gateways.Account{{Name: "shop"}}
	if _, err := gateways.NewRegistry(g); err != nil {
		t.Fatal(err)
	}
	return ppPair{startPayPal(t, sandbox.Config{}), g}
}

// stamped prepares a call and returns its facts and its text as it would be sent.
func (p ppPair) stamped(target, body, fault string) (claims.Facts, string) {
	p.t.Helper()
	in := gateways.Inbound{Method: "POST", Target: target, Body: []byte(body), Header: []claims.Field{
		{Name: "Authorization", Value: "Bearer app"}, {Name: "Content-Type", Value: "application/json"},
	}}
	m, ok := p.g.Match(in.Method, in.Target)
	if !ok {
		p.t.Fatalf("%s: no route", target)
	}
	c, err := m.Prepare(in, gateways.Identity{Realm: "r", Tenant: "t", CallKey: "call", Revision: 1})
	if err != nil {
		p.t.Fatal(err)
	}
	header, raw, err := m.Stamp(in, c.Facts)
	if err != nil {
		p.t.Fatal(err)
	}
	var lines []string
	for _, f := range header {
		lines = append(lines, f.Name, f.Value)
	}
	return c.Facts, ppRaw("POST", target, "", fault, string(raw), lines...)
}

func ppAnswer(r reply) *claims.Answer {
	a := &claims.Answer{Status: r.status, Body: r.body}
	for name, vs := range r.header {
		a.Header = append(a.Header, claims.Field{Name: name, Value: vs[0]})
	}
	return a
}

// find asks over connections of its own; object is what the gateway has named, or "".
func (p ppPair) find(f claims.Facts, object string) claims.Finding {
	p.t.Helper()
	now := time.Now()
	got, err := p.g.Ask(p.t.Context(), gateways.WithObject(f, object), claims.Now{Store: now, Wall: now},
		func(_ context.Context, target string) (*claims.Answer, error) {
			r := p.do("GET", target, "", "", "")
			return ppAnswer(r), r.err
		})
	if err != nil {
		p.t.Fatal(err)
	}
	return got
}

// approved makes an order that waits to be captured or authorised.
func (p ppPair) approved(intent string) string {
	id := p.must(201, ppOrders, "before", "", ppOrder(intent, "10.00", ""))["id"].(string)
	if err := p.s.Move(id, "done"); err != nil {
		p.t.Fatal(err)
	}
	return id
}

// paid pays an order by card and returns the path of its payment.
func (p ppPair) paid(intent, kind string) string {
	o := p.must(201, ppOrders, "before", "", ppOrder(intent, "10.00", ppCard))
	return "/v2/payments/" + kind + "/" + ppAt(o, "purchase_units.0.payments."+kind+".0.id").(string)
}

// TestPayPalLostAnswers: for each operation, with its answer lost: what a lookup tells before and after, that a repeat with the
// same id executes nothing, and that the repeat's answer is the operation's success.
func TestPayPalLostAnswers(t *testing.T) {
	const part = `{"amount":{"currency_code":"USD","value":"4.00"}}`
	miss, done, dark, yes := claims.Missed, claims.FoundDone, claims.CouldNotTell, claims.Succeeded
	orders, payouts := func(ppPair) string { return ppOrders }, func(ppPair) string { return ppPayouts }
	order := func(intent, action string) func(ppPair) string {
		return func(p ppPair) string { return ppOrders + "/" + p.approved(intent) + "/" + action }
	}
	payment := func(intent, kind, action string) func(ppPair) string {
		return func(p ppPair) string { return p.paid(intent, kind) + "/" + action }
	}
	for _, tt := range []struct {
		name          string
		target        func(p ppPair) string
		body          string
		before, after claims.FindingKind
		again         claims.Outcome
		pay           string
	}{
		{"create, unpaid", orders, ppOrder("CAPTURE", "10.00", ""), dark, dark, yes, "pending"},
		{"create, paid", orders, ppOrder("CAPTURE", "10.00", ppCard), dark, dark, yes, "pending"},
		{"capture", order("CAPTURE", "capture"), "", miss, done, yes, "done"},
		{"authorize", order("AUTHORIZE", "authorize"), "", miss, done, yes, "pending"},
		{"capture a part", payment("AUTHORIZE", "authorizations", "capture"), part, miss, dark, yes, "done"},
		{"reauthorize", payment("AUTHORIZE", "authorizations", "reauthorize"), part, dark, dark, yes, "pending"},
		{"void", payment("AUTHORIZE", "authorizations", "void"), "", miss, done, claims.Unknown, ""},
		{"refund", payment("CAPTURE", "captures", "refund"), part, dark, dark, yes, "done"},
		{"payout", payouts, ppPayout, dark, dark, yes, "pending"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := newPayPalPair(t)
			target := tt.target(p)
			n := len(p.s.Ledger())
			f, text := p.stamped(target, tt.body, "lose-fin;times=1")
			if got := p.find(f, ""); got.Kind != tt.before {
				t.Errorf("before: %s (%s)", got.Kind, got.Reason)
			}
			if r := exchange(p.dial(), text); r.err == nil {
				t.Fatalf("the answer was not lost: %d %s", r.status, r.body)
			}
			got := p.find(f, "")
			if got.Kind != tt.after {
				t.Errorf("after: %s (%s)", got.Kind, got.Reason)
			}
			if got.Kind == done && p.g.Classify(f.Route, got.Answer).Outcome != claims.Succeeded {
				t.Errorf("the made answer is no success: %s", got.Answer.Body)
			}
			c := p.g.Classify(f.Route, ppAnswer(exchange(p.dial(), text)))
			if c.Outcome != tt.again || c.Payment != tt.pay {
				t.Errorf("repeated: %s %q (%s)", c.Outcome, c.Payment, c.Why)
			}
			if executed := len(p.s.Ledger()) - n; executed != 1 {
				t.Errorf("executed %d times", executed)
			}
			if c.Object != "" {
				if got := p.find(f, c.Object); got.Kind != done || got.Object != c.Object {
					t.Errorf("by its id %s: %s (%s)", c.Object, got.Kind, got.Reason)
				}
			}
		})
	}
}

// TestPayPalFaults: the answers that the faults make, by PayPal's table.
func TestPayPalFaults(t *testing.T) {
	refused := gateways.Class{Outcome: claims.NotExecuted, Refused: true}
	for fault, want := range map[string]gateways.Class{
		"":                  {Outcome: claims.Succeeded, Payment: "done"},
		"gzip":              {Outcome: claims.Succeeded, Payment: "done"},
		"processing":        {Outcome: claims.Succeeded, Payment: "pending"},
		"decline":           {Outcome: claims.Declined},
		"decline=DECLINED":  {Outcome: claims.Declined},
		"action":            refused,
		"unauthorized":      refused,
		"forbidden":         refused,
		"rate-limit":        refused,
		"in-use":            {InUse: true},
		"error-after":       {Transient: true},
		"error-before=503":  {Transient: true},
		"error-stored":      {Transient: true},
		"balancer":          {Transient: true},
		"balancer=429":      {},
		"not-repeated":      {Outcome: claims.Succeeded, Payment: "done"},
		"accept-other-body": {Outcome: claims.Succeeded, Payment: "done"},
		"empty":             {},
		"no-content":        {},
		"null":              {},
		"html":              {},
		"redirect":          {},
	} {
		p := newPayPalPair(t)
		f, text := p.stamped(ppOrders+"/"+p.approved("CAPTURE")+"/capture", "", fault)
		got := p.g.Classify(f.Route, ppAnswer(exchange(p.dial(), text)))
		if want.Outcome == claims.Succeeded {
			want.Object = f.Lookup["id"]
		}
		if got.Why = ""; got != want {
			t.Errorf("%q: %+v, want %+v", fault, got, want)
		}
	}
}

// TestPayPalDeclineInside: a completed order whose capture was declined is a decline, and a declaration that does not look
// inside is seen to take it for money.
func TestPayPalDeclineInside(t *testing.T) {
	p := newPayPalPair(t)
	f, text := p.stamped(ppOrders+"/"+p.approved("CAPTURE")+"/capture", "", "decline=DECLINED")
	a := ppAnswer(exchange(p.dial(), text))
	if c := p.g.Classify(f.Route, a); c.Outcome != claims.Declined {
		t.Errorf("%+v", c)
	}
	if got := p.find(f, ""); got.Kind != claims.FoundFailed {
		t.Errorf("%s (%s)", got.Kind, got.Reason)
	}
	p.executed(f.GatewayKey, 0)
	for _, r := range p.g.Routes { // broken on purpose
		if r.Name == "orders_capture" {
			r.Answers, r.Lookup.Cases = r.Answers[len(r.Answers)-2:], r.Lookup.Cases[len(r.Lookup.Cases)-2:]
		}
	}
	if p.g.Classify(f.Route, a).Outcome != claims.Succeeded || p.find(f, "").Kind != claims.FoundDone {
		t.Error("a table that looks at the order's own status only was not seen")
	}
}

// TestPayPalBlind: objects that cannot be read, another amount, and a clock that is off prove nothing.
func TestPayPalBlind(t *testing.T) {
	for fault, want := range map[string]claims.FindingKind{
		"": claims.FoundDone, "lookup-blind": claims.CouldNotTell, "date-skew": claims.CouldNotTell, "no-date": claims.CouldNotTell,
	} {
		p := newPayPalPair(t)
		f, text := p.stamped(p.paid("AUTHORIZE", "authorizations")+"/capture", `{"amount":{"currency_code":"USD","value":"4.00"}}`, "")
		id := p.g.Classify(f.Route, ppAnswer(exchange(p.dial(), text))).Object
		if fault != "" {
			p.s.Inject(sandbox.Fault{Name: fault})
		}
		if got := p.find(f, id); got.Kind != want {
			t.Errorf("%q: %s (%s)", fault, got.Kind, got.Reason)
		}
		f.Lookup["amount"] = "5.00"
		if got := p.find(f, id); fault == "" && got.Kind != claims.Contradiction {
			t.Errorf("another amount: %s (%s)", got.Kind, got.Reason)
		}
	}
}

// TestPayPalPayoutGuard: where the id is forgotten, the reference that was written still refuses a second payout, and nothing of
// that refusal passes for an outcome.
func TestPayPalPayoutGuard(t *testing.T) {
	p := newPayPalPair(t)
	body := strings.Replace(ppPayout, `"sender_batch_id":"b-1"`, `"email_subject":"s"`, 1)
	f, text := p.stamped(ppPayouts, body, "forget,lose-fin;times=1")
	exchange(p.dial(), text)
	c := p.g.Classify(f.Route, ppAnswer(exchange(p.dial(), text)))
	if c.Outcome != claims.Unknown || p.s.Moved() != 1 || p.s.Ledger()[0].Reference != f.Reference {
		t.Errorf("%+v, moved %d: %+v", c, p.s.Moved(), p.s.Ledger())
	}
	// Without the reference the second one is paid.
	p = newPayPalPair(t)
	for i := range 2 {
		p.do("POST", ppPayouts, fmt.Sprint("k", i), "", body)
	}
	if p.s.Moved() != 2 {
		t.Errorf("moved %d", p.s.Moved())
	}
}
