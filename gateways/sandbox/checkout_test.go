package sandbox_test

import (
	"bufio"
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/fence-sidecar/fence-sidecar/claims"
	"github.com/fence-sidecar/fence-sidecar/gateways"
	"github.com/fence-sidecar/fence-sidecar/gateways/sandbox"
)

// ckoPair is Checkout.com's declaration and the sandbox that plays it.
type ckoPair struct {
	*rig
	g *gateways.Gateway
}

func newCko(t *testing.T, hooks ...sandbox.Hook) ckoPair {
	t.Helper()
	t.Setenv("CKO_HOOK", "whs")
	g := gateways.CheckoutCom()
	g.Accounts = []gateways.Account{{Name: "main", WebhookSecrets: []gateways.Secret{{Env: "CKO_HOOK"}}}}
	if err := g.Validate(); err != nil {
		t.Fatal(err)
	}
	return ckoPair{start(t, sandbox.Config{Profile: "checkout", Hooks: hooks}), g}
}

const ckoCharge = `{"source":{"type":"token","token":"tok_1"},"amount":1000,"currency":"GBP","reference":"r1"}`

// ckoDunning has the gateway try a declined payment again by itself.
const ckoDunning = `"retry":{"dunning":{"enabled":true}}`

func ckoWith(body, field string) string {
	return strings.Replace(body, `"amount"`, field+`,"amount"`, 1)
}

func ckoRaw(method, target, key, fault, body string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s HTTP/1.1\r\nHost: s\r\nAuthorization: Bearer sk_sbox_1\r\n", method, target)
	for name, v := range map[string]string{"Cko-Idempotency-Key": key, sandbox.FaultHeader: fault} {
		if v != "" {
			fmt.Fprintf(&b, "%s: %s\r\n", name, v)
		}
	}
	if method == "POST" {
		fmt.Fprintf(&b, "Content-Type: application/json\r\nContent-Length: %d\r\n", len(body))
	}
	return b.String() + "\r\n" + body
}

func (p ckoPair) do(method, target, key, fault, body string) reply {
	p.t.Helper()
	return exchange(p.dial(), ckoRaw(method, target, key, fault, body))
}

func (p ckoPair) pay(key, fault, body string) reply {
	p.t.Helper()
	return p.do("POST", "/payments", key, fault, body)
}

// made is the id of a payment that is made for a test.
func (p ckoPair) made(body string) string {
	p.t.Helper()
	id, _ := p.pay("", "", body).object()["id"].(string)
	if id == "" {
		p.t.Fatal("no payment")
	}
	return id
}

// stamped prepares a call and returns its facts and its text as it would be sent.
func (p ckoPair) stamped(target, body, fault string) (claims.Facts, string) {
	p.t.Helper()
	in := gateways.Inbound{Method: "POST", Target: target, Body: []byte(body), Header: []claims.Field{
		{Name: "Authorization", Value: "Bearer sk_sbox_1"}, {Name: "Content-Type", Value: "application/json"},
	}}
	if fault != "" {
		in.Header = append(in.Header, claims.Field{Name: sandbox.FaultHeader, Value: fault})
	}
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
	var b strings.Builder
	fmt.Fprintf(&b, "POST %s HTTP/1.1\r\nHost: s\r\nContent-Length: %d\r\n", target, len(raw))
	for _, f := range header {
		fmt.Fprintf(&b, "%s: %s\r\n", f.Name, f.Value)
	}
	return c.Facts, b.String() + "\r\n" + string(raw)
}

func (p ckoPair) ask(_ context.Context, target string) (*claims.Answer, error) {
	c := p.dial()
	io.WriteString(c, ckoRaw("GET", target, "", "", ""))
	res, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return nil, err
	}
	defer res.Body.Close()
	a := &claims.Answer{Status: res.StatusCode}
	for name, vs := range res.Header {
		a.Header = append(a.Header, claims.Field{Name: name, Value: vs[0]})
	}
	a.Body, err = io.ReadAll(res.Body)
	return a, err
}

func (p ckoPair) find(f claims.Facts, done bool) claims.Finding {
	p.t.Helper()
	now := claims.Now{Store: time.Now(), Wall: time.Now()}
	look := p.g.AskAt
	if done {
		look = p.g.AskPayment
	}
	got, err := look(p.t.Context(), f, now, now, p.ask)
	if err != nil {
		p.t.Fatal(err)
	}
	return got
}

func (p ckoPair) move(id, to string) {
	p.t.Helper()
	if err := p.s.Move(id, to); err != nil {
		p.t.Fatal(err)
	}
}

// TestCheckoutKeys: what a key keeps: 2xx answers, declines among them, and nothing else. A repeat after a 5xx that hid a
// charge charges again: the trap that forbids resending.
func TestCheckoutKeys(t *testing.T) {
	declined := strings.Replace(ckoCharge, "1000", "1005", 1)
	for _, tt := range []struct {
		fault, body             string
		first, second, executed int
	}{
		{"", ckoCharge, 201, 201, 1},
		{"decline", ckoCharge, 201, 201, 0},
		{"", declined, 201, 201, 0},
		{"error-after;times=1", ckoCharge, 500, 201, 2},
		{"error-after-unstored;times=1", ckoCharge, 500, 201, 1},
		{"error-before=502;times=1", ckoCharge, 502, 201, 1},
		{"rate-limit;times=1", ckoCharge, 429, 201, 1},
		{"unauthorized;times=1", ckoCharge, 401, 201, 1},
		{"in-use;times=1", ckoCharge, 409, 201, 1},
		{"forget", ckoCharge, 201, 201, 2},
		{"", `{"amount":1}`, 422, 422, 0},
	} {
		p := newCko(t)
		a, b := p.pay("k", tt.fault, tt.body), p.pay("k", tt.fault, tt.body)
		if a.status != tt.first || b.status != tt.second {
			t.Errorf("%q: %d, %d; want %d, %d", tt.fault, a.status, b.status, tt.first, tt.second)
		}
		if tt.fault == "" && string(a.body) != string(b.body) && a.status == 201 {
			t.Errorf("the repeat differs: %s", b.body)
		}
		p.executed("k", tt.executed)
	}
}

// TestCheckoutLoss: whatever is lost on the way, one charge is executed, and another body under the key gets the first answer.
func TestCheckoutLoss(t *testing.T) {
	for _, fault := range []string{"lose-fin", "lose-rst", "truncate-length", "truncate-chunked", "truncate-head", "empty", "html"} {
		p := newCko(t)
		p.pay("k", fault+";times=1", ckoCharge)
		other := p.pay("k", "", strings.Replace(ckoCharge, "1000", "1001", 1))
		if other.status != 201 || other.object()["amount"] != 1000.0 {
			t.Errorf("%s: %d %s", fault, other.status, other.body)
		}
		p.executed("k", 1)
	}
}

// TestCheckoutInFlight: two at once under one key, in any order: one is processed, the other gets 409.
func TestCheckoutInFlight(t *testing.T) {
	p := newCko(t)
	p.s.Inject(sandbox.Fault{Name: "hold-before"})
	got := make(chan reply, 1)
	go func() { got <- p.pay("k", "", ckoCharge) }()
	if err := p.s.WaitHold(within(t, 10*time.Second), "hold"); err != nil {
		t.Fatal(err)
	}
	if r := p.pay("k", "", ckoCharge); r.status != 409 {
		t.Errorf("in flight: %d %s", r.status, r.body)
	}
	p.s.Release("hold")
	if r := <-got; r.status != 201 {
		t.Errorf("first: %d", r.status)
	}
	p.executed("k", 1)
}

// TestCheckoutReversalTakesNoKey: a repeat of a reversal is another one.
func TestCheckoutReversalTakesNoKey(t *testing.T) {
	p := newCko(t)
	id := p.made(ckoCharge)
	p.move(id, "done")
	for range 2 {
		if r := p.do("POST", "/payments/"+id+"/reversals", "k", "", `{"amount":10}`); r.status != 202 {
			t.Fatalf("%d %s", r.status, r.body)
		}
	}
	p.executed("k", 2)
}

// TestCheckoutShapes: ids, statuses and codes look like the gateway's.
func TestCheckoutShapes(t *testing.T) {
	p := newCko(t)
	o := p.pay("", "", ckoCharge).object()
	for name, want := range map[string]string{
		"id": `^pay_[a-z2-7]{26}$`, "action_id": `^act_[a-z2-7]{26}$`, "status": "^Authorized$", "response_code": "^10000$",
	} {
		if got := fmt.Sprint(o[name]); !regexp.MustCompile(want).MatchString(got) {
			t.Errorf("%s: %s", name, got)
		}
	}
	if o["approved"] != true || o["_links"] == nil {
		t.Errorf("%v", o)
	}
	for amount, code := range map[string]string{"1005": "20005", "12351": "20051", "9998": "20068", "1054": "20087"} {
		d := p.pay("", "", strings.Replace(ckoCharge, "1000", amount, 1)).object()
		if d["approved"] != false || d["status"] != "Declined" || d["response_code"] != code {
			t.Errorf("%s: %v", amount, d)
		}
	}
	yen := strings.NewReplacer("1000", "1005", "GBP", "JPY").Replace(ckoCharge)
	if d := p.pay("", "", yen).object(); d["approved"] != true {
		t.Errorf("JPY: %v", d)
	}
	secure := p.pay("", "", ckoWith(ckoCharge, `"3ds":{"enabled":true}`))
	if secure.status != 202 || secure.object()["status"] != "Pending" || !strings.Contains(string(secure.body), "redirect") {
		t.Errorf("3-D Secure: %d %s", secure.status, secure.body)
	}
	for target, want := range map[string]int{"/payments/pay_x/captures": 404, "/payments": 422, "/nowhere": 404} {
		if r := p.do("POST", target, "", "", "{}"); r.status != want {
			t.Errorf("%s: %d", target, r.status)
		}
	}
}

// TestCheckoutLookups: for each operation that can be found, with the answer lost: missed before, found after, and what the lookup
// makes of a payment is classified as its success.
func TestCheckoutLookups(t *testing.T) {
	charge := strings.Replace(ckoCharge, `,"reference":"r1"`, "", 1)
	payout := `{"source":{"type":"currency_account"},"destination":{"type":"id","id":"src_1"},"amount":7,"currency":"EUR"}`
	for _, tt := range []struct {
		before  string // a move of the payment first, "": none is needed
		target  string
		body    string
		payment string
	}{
		{"", "/payments", charge, "pending"},
		{"", "/payments", ckoWith(charge, `"3ds":{"enabled":true}`), "pending"},
		{"", "/payments", ckoWith(strings.Replace(charge, "1000", "1005", 1), ckoDunning), "pending"},
		{"", "/payments", payout, "pending"},
		{"hold", "/payments/{id}/authorizations", `{"amount":100}`, "pending"},
		{"hold", "/payments/{id}/captures", `{"amount":400}`, "done"},
		{"hold", "/payments/{id}/voids", `{}`, "done"},
		{"done", "/payments/{id}/refunds", `{"amount":10}`, "done"},
		{"done", "/payments/{id}/reversals", `{}`, "done"},
	} {
		p := newCko(t)
		target := tt.target
		if tt.before != "" {
			id := p.made(ckoCharge)
			target = strings.ReplaceAll(target, "{id}", id)
			if tt.before == "done" {
				p.move(id, "done")
			}
		}
		f, text := p.stamped(target, tt.body, "lose-fin")
		if got := p.find(f, false); got.Kind != claims.Missed {
			t.Errorf("%s before: %s (%s)", target, got.Kind, got.Reason)
		}
		if r := exchange(p.dial(), text); r.err == nil {
			t.Fatalf("%s: the answer was not lost: %d %s", target, r.status, r.body)
		}
		got := p.find(f, false)
		if ops := p.s.Ledger(); tt.target != "/payments" && !strings.HasSuffix(target, "authorizations") {
			if got.Kind != claims.CouldNotTell { // accepted, not yet carried out
				t.Errorf("%s under way: %s (%s)", target, got.Kind, got.Reason)
			}
			p.move(ops[len(ops)-1].ID, "done")
			got = p.find(f, false)
		}
		if got.Kind != claims.FoundDone || got.Payment != tt.payment || got.Object == "" {
			t.Errorf("%s after: %+v", target, got)
		}
		if c := p.g.Classify(f.Route, got.Answer); tt.target == "/payments" && (c.Outcome != claims.Succeeded || c.Object != got.Object) {
			t.Errorf("%s: the made answer is %+v", target, c)
		}
		if n := p.s.Executed(f.GatewayKey); n > 1 && f.GatewayKey != "" {
			t.Errorf("%s: executed %d times", target, n)
		}
	}
}

// TestCheckoutLookupTraps: what a lookup must not take for an answer.
func TestCheckoutLookupTraps(t *testing.T) {
	charge := strings.Replace(ckoCharge, `,"reference":"r1"`, "", 1)
	for _, tt := range []struct {
		name, fault, body string
		after             func(p ckoPair, f claims.Facts)
		want              claims.FindingKind
	}{
		{"decline", "lose-rst", strings.Replace(charge, "1000", "1005", 1), nil, claims.FoundFailed},
		{"lag", "", charge, func(p ckoPair, _ claims.Facts) { p.s.Inject(sandbox.Fault{Name: "list-lag"}) }, claims.Missed},
		{"index", "", charge, func(p ckoPair, _ claims.Facts) { p.s.Inject(sandbox.Fault{Name: "search-lag"}) }, claims.Missed},
		{"blind", "", charge, func(p ckoPair, _ claims.Facts) { p.s.Inject(sandbox.Fault{Name: "lookup-blind"}) }, claims.Missed},
		{"no clock", "", charge, func(p ckoPair, _ claims.Facts) { p.s.Inject(sandbox.Fault{Name: "no-date"}) }, claims.CouldNotTell},
		{"other amount", "", charge, func(p ckoPair, f claims.Facts) { f.Lookup["amount"] = "1001" }, claims.Contradiction},
		{"other currency", "", charge, func(p ckoPair, f claims.Facts) { f.Lookup["currency"] = "EUR" }, claims.Contradiction},
		{"two", "", charge, func(p ckoPair, f claims.Facts) {
			p.pay("", "", strings.Replace(ckoCharge, "r1", f.Reference, 1))
		}, claims.Contradiction},
		{"more than a page", "drop", charge, func(p ckoPair, f claims.Facts) {
			for range 11 {
				p.pay("", "", strings.Replace(strings.Replace(ckoCharge, "r1", f.Reference, 1), "1000", "1005", 1))
			}
		}, claims.CouldNotTell},
		{"the app's own reference", "", ckoCharge, nil, claims.CouldNotTell},
	} {
		p := newCko(t)
		f, text := p.stamped("/payments", tt.body, tt.fault)
		exchange(p.dial(), text)
		if tt.after != nil {
			tt.after(p, f)
		}
		if got := p.find(f, false); got.Kind != tt.want {
			t.Errorf("%s: %s (%s)", tt.name, got.Kind, got.Reason)
		}
		if n := p.s.Executed(f.GatewayKey); n > 1 {
			t.Errorf("%s: executed %d times", tt.name, n)
		}
	}
}

// TestCheckoutPolls: where the money of a call that succeeded is, by the gateway's own statuses.
func TestCheckoutPolls(t *testing.T) {
	charge := strings.Replace(ckoCharge, `,"reference":"r1"`, "", 1)
	p := newCko(t)
	f, text := p.stamped("/payments", charge, "action")
	id, _ := exchange(p.dial(), text).object()["id"].(string)
	known := gateways.WithObject(f, id)
	for _, step := range [][2]string{{"done", "pending"}, {"done", "done"}} { // Authorized, Captured
		p.move(id, step[0])
		if got := p.find(known, true); got.Kind != claims.FoundDone || got.Payment != step[1] {
			t.Errorf("%v: %+v", step, got)
		}
	}
	p = newCko(t)
	f, text = p.stamped("/payments", charge, "action")
	id, _ = exchange(p.dial(), text).object()["id"].(string)
	p.move(id, "failed")
	if got := p.find(gateways.WithObject(f, id), true); got.Kind != claims.FoundFailed || got.Payment != "failed" {
		t.Errorf("3-D Secure failed: %+v", got)
	}
	p = newCko(t)
	pay := p.made(ckoCharge)
	f, text = p.stamped("/payments/"+pay+"/captures", `{"amount":400}`, "")
	act, _ := exchange(p.dial(), text).object()["action_id"].(string)
	p.move(act, "failed")
	if got := p.find(gateways.WithObject(f, act), true); got.Kind != claims.FoundFailed {
		t.Errorf("capture declined: %+v", got)
	}
}

// TestCheckoutNotices: events are signed as an independent computation says, and the declaration reads them.
func TestCheckoutNotices(t *testing.T) {
	type delivery struct {
		header http.Header
		body   []byte
	}
	came := make(chan delivery, 8)
	hook := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		came <- delivery{r.Header, b}
	}))
	t.Cleanup(hook.Close)
	p := newCko(t, sandbox.Hook{URL: hook.URL, Secret: "whs"})
	open := func(d delivery) ([]gateways.Notice, error) {
		return p.g.OpenNotice(t.Context(), "main", gateways.Delivery{
			Body: d.body, Header: []claims.Field{{Name: "Cko-Signature", Value: d.header.Get("Cko-Signature")}},
		})
	}
	next := func(kind, reading string) gateways.Notice {
		t.Helper()
		select {
		case d := <-came:
			mac := hmac.New(sha256.New, []byte("whs"))
			mac.Write(d.body)
			signed := d.header.Get("Cko-Signature") == hex.EncodeToString(mac.Sum(nil))
			if !signed || !strings.Contains(string(d.body), `"type":"`+kind+`"`) {
				t.Errorf("%s: %s %s", kind, d.header.Get("Cko-Signature"), d.body)
			}
			ns, err := open(d)
			if err != nil || len(ns) != 1 {
				t.Fatalf("%s: %v", kind, err)
			}
			o, payment, ok := ns[0].Reading("payments_create")
			if got := fmt.Sprint(o, " ", payment, " ", ok); got != reading {
				t.Errorf("%s: %s, want %s", kind, got, reading)
			}
			return ns[0]
		case <-time.After(10 * time.Second):
			t.Fatalf("%s never came", kind)
		}
		return gateways.Notice{}
	}
	id := p.made(ckoCharge)
	n := next("payment_approved", "succeeded pending true")
	if n.Object != id || n.References[0] != "r1" || n.Amount != "1000" || n.Currency != "GBP" {
		t.Errorf("%+v", n)
	}
	act, _ := p.do("POST", "/payments/"+id+"/captures", "", "", `{"reference":"c1"}`).object()["action_id"].(string)
	next("payment_capture_pending", "unknown  false")
	p.move(act, "done")
	next("payment_captured", "unknown done true")
	p.pay("", "", strings.NewReplacer("token\"", "card\"", "1000", "1005").Replace(ckoCharge))
	next("payment_declined", "declined  true")
	p.pay("", "", ckoWith(strings.Replace(ckoCharge, "1000", "1005", 1), ckoDunning))
	next("payment_declined", "unknown  false")
	secure, _ := p.pay("", "action", ckoCharge).object()["id"].(string)
	next("payment_pending", "unknown  false")
	p.move(secure, "failed")
	next("payment_declined", "unknown  false")
	if err := p.s.Tell(id, "created", "forged"); err != nil {
		t.Fatal(err)
	}
	if _, err := open(<-came); err == nil {
		t.Error("a forged event was read")
	}
}
