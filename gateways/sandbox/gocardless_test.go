package sandbox_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fence-sidecar/fence-sidecar/claims"
	"github.com/fence-sidecar/fence-sidecar/gateways"
	"github.com/fence-sidecar/fence-sidecar/gateways/sandbox"
)

// debits is a sandbox that plays GoCardless, and GoCardless's declaration.
type debits struct {
	*rig
	g *gateways.Gateway
}

func newDebits(t *testing.T, cfg sandbox.Config) debits {
	t.Helper()
	g := gateways.GoCardless()
	if err := g.Validate(); err != nil {
		t.Fatal(err)
	}
	cfg.Profile = "gocardless"
	return debits{start(t, cfg), g}
}

const collect = `{"payments":{"amount":1000,"currency":"GBP","links":{"mandate":"MD123"},"metadata":{"fence_ref":"r1"}}}`

// call sends one request on a connection of its own, as the SDKs spell it.
func (d debits) call(method, target, key, fault, body string) gcReply {
	d.t.Helper()
	return d.say(gcWire(method, target, body, key, fault))
}

func (d debits) say(text string) gcReply { return gcReply{exchange(d.dial(), text)} }

func gcWire(method, target, body, key, fault string) string {
	var b strings.Builder
	b.WriteString(method + " " + target + " HTTP/1.1\r\nHost: s\r\nAuthorization: Bearer sandbox_1\r\nGoCardless-Version: 2015-07-06\r\n")
	for name, v := range map[string]string{"Idempotency-Key": key, "Sandbox-Fault": fault} {
		if v != "" {
			b.WriteString(name + ": " + v + "\r\n")
		}
	}
	if body != "" {
		fmt.Fprintf(&b, "Content-Type: application/json\r\nContent-Length: %d\r\n", len(body))
	}
	return b.String() + "\r\n" + body
}

// gcReply is an answer that is read by JSON pointers.
type gcReply struct{ reply }

func (p gcReply) at(pointer string) string { return gateways.TextAt(p.body, pointer) }

const (
	gcID       = "/payments/id"
	gcConflict = "/error/errors/0/links/conflicting_resource_id"
)

func (d debits) pay(key string) string {
	d.t.Helper()
	p := d.call("POST", "/payments", key, "", collect)
	if p.status != 201 || p.at("/payments/status") != "pending_submission" {
		d.t.Fatalf("%d %s", p.status, p.body)
	}
	return p.at(gcID)
}

func (d debits) simulate(scene, id string) gcReply {
	return d.call("POST", "/scenario_simulators/"+scene+"/actions/run", "", "", `{"data":{"links":{"resource":"`+id+`"}}}`)
}

func (d debits) status(kind, id string) string {
	return d.call("GET", "/"+kind+"/"+id, "", "", "").at("/" + kind + "/status")
}

// ask is an Asker over a connection of its own.
func (d debits) ask(_ context.Context, target string) (*claims.Answer, error) {
	p := d.call("GET", target, "", "", "")
	return gcAnswer(p), p.err
}

func gcAnswer(p gcReply) *claims.Answer {
	a := &claims.Answer{Status: p.status, Body: p.body}
	for name, vs := range p.header {
		a.Header = append(a.Header, claims.Field{Name: name, Value: vs[0]})
	}
	return a
}

func (d debits) find(f claims.Facts) claims.Finding {
	d.t.Helper()
	now := time.Now()
	got, err := d.g.Ask(d.t.Context(), f, claims.Now{Store: now, Wall: now}, d.ask)
	if err != nil {
		d.t.Fatal(err)
	}
	return got
}

// stamped prepares a call and returns its facts and its text as it would be sent.
func (d debits) stamped(target, body, key, fault string) (claims.Facts, string) {
	d.t.Helper()
	in := gateways.Inbound{Method: "POST", Target: target, Body: []byte(body), Header: []claims.Field{
		{Name: "Authorization", Value: "Bearer sandbox_1"}, {Name: "Content-Type", Value: "application/json"},
	}}
	m, ok := d.g.Match(in.Method, in.Target)
	if !ok {
		d.t.Fatalf("%s: no route", target)
	}
	c, err := m.Prepare(in, gateways.Identity{Realm: "r", Tenant: "t", CallKey: key, Revision: 1})
	if err != nil {
		d.t.Fatal(err)
	}
	_, raw, err := m.Stamp(in, c.Facts)
	if err != nil {
		d.t.Fatal(err)
	}
	return c.Facts, gcWire("POST", target, string(raw), c.Facts.GatewayKey, fault)
}

// TestGoCardlessKeys: what a repeat of a key gets, and how often was executed.
func TestGoCardlessKeys(t *testing.T) {
	for _, tt := range []struct {
		fault          string // of the first request
		standing       string
		first, second  int
		named          bool // the second names the first's payment
		executed       int
		secondHasOther string // body of the second
	}{
		{fault: "", first: 201, second: 409, named: true, executed: 1},
		{secondHasOther: strings.Replace(collect, "1000", "1001", 1), first: 201, second: 409, named: true, executed: 1},
		{fault: "error-after", first: 500, second: 409, named: true, executed: 1},
		{fault: "error-after-unstored", first: 500, second: 409, named: true, executed: 1},
		{fault: "error-before", first: 500, second: 201, executed: 1},
		{fault: "decline", first: 422, second: 201, executed: 1},
		{fault: "rate-limit", first: 429, second: 201, executed: 1},
		{fault: "unauthorized", first: 401, second: 201, executed: 1},
		{fault: "in-use", first: 409, second: 201, executed: 1},
		{fault: "lose-fin", first: 0, second: 409, named: true, executed: 1},
		{fault: "lose-rst", first: 0, second: 409, named: true, executed: 1},
		{fault: "truncate-length", first: 201, second: 409, named: true, executed: 1},
		{standing: "forget", first: 201, second: 201, executed: 2},
		{standing: "ignore-key", first: 201, second: 201, executed: 2},
		{standing: "not-repeated", first: 201, second: 409, executed: 1},
	} {
		d := newDebits(t, sandbox.Config{})
		if tt.standing != "" {
			d.s.Inject(sandbox.Fault{Name: tt.standing})
		}
		body := tt.secondHasOther
		if body == "" {
			body = collect
		}
		a := d.call("POST", "/payments", "k", tt.fault, collect)
		b := d.call("POST", "/payments", "k", "", body)
		if a.status != tt.first || b.status != tt.second {
			t.Errorf("%+v: %d, then %d %s", tt, a.status, b.status, b.body)
		}
		if named := b.at(gcConflict); tt.named != (named != "") || tt.named && d.status("payments", named) != "pending_submission" {
			t.Errorf("%+v: names %q", tt, named)
		}
		d.executed("k", tt.executed)
	}
}

// TestGoCardlessInFlight: a repeat in flight executes nothing, and is told of no resource.
func TestGoCardlessInFlight(t *testing.T) {
	d := newDebits(t, sandbox.Config{})
	c := d.dial()
	io.WriteString(c, gcWire("POST", "/payments", collect, "k", "hold-before"))
	if err := d.s.WaitHold(within(t, 5*time.Second), "hold"); err != nil {
		t.Fatal(err)
	}
	p := d.call("POST", "/payments", "k", "", collect)
	if p.status != 409 || p.at(gcConflict) != "" || p.at("/error/errors/0/reason") != "idempotent_creation_conflict" {
		t.Errorf("%d %s", p.status, p.body)
	}
	if got := d.g.Classify("payments_create", gcAnswer(p)); got.Outcome != claims.Unknown || got.Object != "" {
		t.Errorf("%+v", got)
	}
	d.executed("k", 0)
	d.s.Release("hold")
	if err := d.s.WaitExecuted(within(t, 5*time.Second), 1); err != nil {
		t.Error(err)
	}
}

// TestGoCardlessRefusals: what is refused uses no key up and is no operation.
func TestGoCardlessRefusals(t *testing.T) {
	for _, tt := range []struct {
		body   string
		status int
		reason string
	}{
		{`{"payments":{"currency":"GBP","links":{"mandate":"MD1"}}}`, 422, "must be a positive"},
		{`{"payments":{"amount":"x","currency":"GBP","links":{"mandate":"MD1"}}}`, 422, "must be a positive"},
		{`{"payments":{"amount":5,"links":{"mandate":"MD1"}}}`, 422, "currency"},
		{`{"payments":{"amount":5,"currency":"GBP"}}`, 422, "links.mandate"},
		{`{"payments":{"amount":5,"currency":"GBP","links":{"mandate":"MD1"},"metadata":{"a":"","b":"","c":"","d":""}}}`, 422, "3 keys"},
		{`{"refunds":{"amount":5}}`, 400, "invalid_document_structure"},
		{`{`, 400, "invalid_document_structure"},
	} {
		d := newDebits(t, sandbox.Config{})
		p := d.call("POST", "/payments", "k", "", tt.body)
		if p.status != tt.status || !strings.Contains(string(p.body), tt.reason) {
			t.Errorf("%s: %d %s", tt.body, p.status, p.body)
		}
		if c := d.g.Classify("payments_create", gcAnswer(p)); c.Outcome != claims.NotExecuted {
			t.Errorf("%s: %+v", tt.body, c)
		}
		d.executed("k", 0)
		d.pay("k")
	}
	d := newDebits(t, sandbox.Config{})
	if p := d.call("POST", "/payments", strings.Repeat("k", 129), "", collect); p.status != 400 || len(d.s.Ledger()) != 0 {
		t.Errorf("a long key: %d", p.status)
	}
	if p := d.say(strings.Replace(gcWire("POST", "/payments", collect, "k", ""), "GoCardless-Version", "X", 1)); p.status != 400 {
		t.Errorf("without a version: %d", p.status)
	}
}

// TestGoCardlessOperations walks through every operation.
func TestGoCardlessOperations(t *testing.T) {
	d := newDebits(t, sandbox.Config{})
	do := func(target, body, kind, status string) string {
		t.Helper()
		p := d.call("POST", target, "", "", body)
		if p.status/100 != 2 || p.at("/"+kind+"/status") != status {
			t.Fatalf("%s: %d %s", target, p.status, p.body)
		}
		return p.at("/" + kind + "/id")
	}
	simulated := func(scene, id string) {
		t.Helper()
		if p := d.simulate(scene, id); p.status != 200 || p.at("/scenario_simulators/id") != scene {
			t.Fatalf("%s: %d %s", scene, p.status, p.body)
		}
	}
	md := do("/mandates", `{"mandates":{"links":{"customer_bank_account":"BA1"}}}`, "mandates", "pending_submission")
	pm := do("/payments", strings.Replace(collect, "MD123", md, 1), "payments", "pending_submission")
	refund := fmt.Sprintf(`{"refunds":{"amount":400,"total_amount_confirmation":400,"links":{"payment":%q}}}`, pm)
	if p := d.call("POST", "/refunds", "", "", refund); p.status != 422 {
		t.Errorf("a payment under way is given back: %d", p.status)
	}
	simulated("payment_paid_out", pm)
	rf := do("/refunds", refund, "refunds", "created")
	if p := d.call("POST", "/refunds", "", "", refund); p.status != 422 || !strings.Contains(string(p.body), "total_amount_confirmation_invalid") {
		t.Errorf("another refund: %d %s", p.status, p.body)
	}
	simulated("refund_paid", rf)
	pm = do("/payments", collect, "payments", "pending_submission")
	simulated("payment_failed", pm)
	do("/payments/"+pm+"/actions/retry", "null", "payments", "pending_submission")
	do("/payments/"+pm+"/actions/cancel", `{"data":{}}`, "payments", "cancelled")
	if p := d.call("POST", "/payments/"+pm+"/actions/cancel", "", "", ""); p.status != 422 {
		t.Errorf("cancelled twice: %d", p.status)
	}
	do("/subscriptions", `{"subscriptions":{"amount":5,"currency":"GBP","links":{"mandate":"MD1"}}}`, "subscriptions", "active")
	do("/instalment_schedules", `{"instalment_schedules":{"total_amount":5,"currency":"GBP","links":{"mandate":"MD1"}}}`, "instalment_schedules", "pending")
	do("/outbound_payments", `{"outbound_payments":{"amount":5,"scheme":"faster_payments"}}`, "outbound_payments", "scheduled")
	br := do("/billing_requests", `{"billing_requests":{"payment_request":{"amount":7,"currency":"GBP"}}}`, "billing_requests", "ready_to_fulfil")
	do("/billing_requests/"+br+"/actions/fulfil", "", "billing_requests", "fulfilled")
	if p := d.call("POST", "/billing_requests/"+br+"/actions/fulfil", "", "", ""); p.status != 422 {
		t.Errorf("fulfilled twice: %d", p.status)
	}
	do("/mandates/"+md+"/actions/cancel", "", "mandates", "cancelled")
	if p := d.call("POST", "/payments", "", "", strings.Replace(collect, "MD123", md, 1)); p.status != 422 || !strings.Contains(string(p.body), "mandate_is_inactive") {
		t.Errorf("a cancelled mandate: %d %s", p.status, p.body)
	}
	var kinds []string
	for _, o := range d.s.Ledger() {
		if o.Money {
			kinds = append(kinds, fmt.Sprintf("%s %d %s", o.Kind, o.Amount, o.Currency))
		}
	}
	want := []string{
		"payments.create 1000 GBP", "refunds.create 400 GBP", "payments.create 1000 GBP", "payments.retry 1000 GBP", "subscriptions.create 5 GBP",
		"instalment_schedules.create 5 GBP", "outbound_payments.create 5 GBP", "billing_requests.fulfil 7 GBP",
	}
	if !slices.Equal(kinds, want) {
		t.Errorf("booked %q, want %q", kinds, want)
	}
	if o := d.s.Ledger()[1]; o.Reference != "r1" {
		t.Errorf("%+v", o)
	}
}

func TestGoCardlessCursors(t *testing.T) {
	d := newDebits(t, sandbox.Config{})
	for i := range 5 {
		d.pay(fmt.Sprint("k", i))
	}
	seen, pages, next := map[string]bool{}, 0, ""
	for {
		p := d.call("GET", "/payments?limit=2"+next, "", "", "")
		var l struct {
			Payments []struct{ ID string }
			Meta     struct{ Cursors struct{ After *string } }
		}
		if err := json.Unmarshal(p.body, &l); err != nil || p.status != 200 {
			t.Fatalf("%d %v %s", p.status, err, p.body)
		}
		for _, o := range l.Payments {
			seen[o.ID] = true
		}
		if pages++; l.Meta.Cursors.After == nil {
			break
		}
		next = "&after=" + *l.Meta.Cursors.After
	}
	if len(seen) != 5 || pages != 3 {
		t.Errorf("%d payments on %d pages", len(seen), pages)
	}
	soon := time.Now().Add(time.Hour).UTC().Format("2006-01-02T15%3A04%3A05Z")
	if p := d.call("GET", "/payments?created_at%5Bgte%5D="+soon, "", "", ""); strings.Contains(string(p.body), `"id"`) {
		t.Errorf("created_at does not filter: %s", p.body)
	}
	if p := d.call("GET", "/payments?limit=501", "", "", ""); p.status != 400 {
		t.Errorf("limit 501: %d", p.status)
	}
}

// TestGoCardlessLookups: the declaration against the sandbox, with the answer lost.
func TestGoCardlessLookups(t *testing.T) {
	for _, tt := range []struct{ target, body string }{
		{"/payments", collect},
		{"/subscriptions", `{"subscriptions":{"amount":5,"currency":"GBP","links":{"mandate":"MD1"}}}`},
		{"/instalment_schedules", `{"instalment_schedules":{"total_amount":5,"currency":"GBP","links":{"mandate":"MD1"}}}`},
		{"/refunds", `{"refunds":{"amount":400,"links":{"payment":"{id}"}}}`},
		{"/payments/{id}/actions/cancel", ""},
	} {
		d := newDebits(t, sandbox.Config{})
		id := d.pay("before")
		if tt.target == "/refunds" {
			d.simulate("payment_paid_out", id)
		}
		f, text := d.stamped(strings.ReplaceAll(tt.target, "{id}", id), strings.ReplaceAll(tt.body, "{id}", id), "call", "lose-fin")
		if got := d.find(f); got.Kind != claims.Missed {
			t.Errorf("%s before: %s (%s)", tt.target, got.Kind, got.Reason)
		}
		d.say(text)
		d.executed(f.GatewayKey, 1)
		got := d.find(f)
		if got.Kind != claims.FoundDone || got.Object == "" {
			t.Errorf("%s after: %s (%s)", tt.target, got.Kind, got.Reason)
		}
		// The repeat names what was made, and that is what the lookup reads then.
		if strings.HasSuffix(f.Route, "_create") {
			p := d.say(strings.Replace(text, "lose-fin", "delay=0s", 1))
			c := d.g.Classify(f.Route, gcAnswer(p))
			named := d.find(gateways.WithObject(f, c.Object))
			if c.Outcome != claims.Unknown || c.Object != got.Object || named.Kind != claims.FoundDone || named.Object != got.Object {
				t.Errorf("%s: the repeat: %d %+v, %+v", tt.target, p.status, c, named)
			}
			d.executed(f.GatewayKey, 1)
		}
	}
}

func TestGoCardlessLookupFaults(t *testing.T) {
	for fault, want := range map[string][2]claims.FindingKind{ // by list, by the id
		"list-lag":     {claims.Missed, claims.FoundDone},
		"lookup-blind": {claims.Missed, claims.CouldNotTell},
		"date-skew":    {claims.CouldNotTell, claims.CouldNotTell},
	} {
		d := newDebits(t, sandbox.Config{})
		f, text := d.stamped("/payments", collect, "call", "")
		id := d.say(text).at(gcID)
		d.s.Inject(sandbox.Fault{Name: fault})
		list, named := d.find(f), d.find(gateways.WithObject(f, id))
		if list.Kind != want[0] || named.Kind != want[1] {
			t.Errorf("%s: %s (%s), %s (%s)", fault, list.Kind, list.Reason, named.Kind, named.Reason)
		}
	}
	d := newDebits(t, sandbox.Config{})
	d.s.Inject(sandbox.Fault{Name: "ignore-key"})
	f, text := d.stamped("/payments", collect, "call", "")
	d.say(text)
	d.say(text)
	if got := d.find(f); got.Kind != claims.Contradiction || !got.Alarm {
		t.Errorf("two under one reference: %s (%s)", got.Kind, got.Reason)
	}
}
