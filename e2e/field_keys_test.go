package e2e

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fence-sidecar/fence-sidecar/claims"
	"github.com/fence-sidecar/fence-sidecar/gateways/sandbox"
)

// Field reports about what names a call.

// bare is a charge without any Fence header; key is what the SDK puts into Idempotency-Key.
func bare(key, body string) request {
	r := request{target: "/v1/charges", body: body, lines: []string{"Content-Type: application/x-www-form-urlencoded"}}
	if key != "" {
		r.lines = append(r.lines, "Idempotency-Key: "+key)
	}
	return r
}

// TestField_R01_newKeyOnRetry: the SDK makes up another key for its retry. Where the call key is the order's own reference the
// retry is the same call; where it is the header it is another one, which is all that can be seen, and counted.
func TestField_R01_newKeyOnRetry(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		source      string
		sends       int
		twins, slug string
	}{
		"order reference": {"{field: order}", 1, "0", "in-doubt"},
		"key header":      {"{header: Idempotency-Key}", 2, "1", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newRaw(t, bookAndHang(nil))
			g.hide(true)
			u := rawUse(g)
			u.callKey = c.source
			w := rawWorld(t, settings{gateway: []use{u}})
			a := w.start("A")
			body := "amount=4990&order=o-1"
			send(a.at("raw"), bare("A-1", body).with("Prefer: wait=0")).want(t, 504, "in-doubt")
			if p := send(a.at("raw"), bare("B-2", body).with("Prefer: wait=0")); p.slug() != c.slug {
				t.Errorf("the retry: %s", p)
			}
			g.wantSends(c.sends)
			if n := a.metric("fence_twin_calls_total"); n != c.twins {
				t.Errorf("fence_twin_calls_total %s, want %s", n, c.twins)
			}
		})
	}
}

// TestField_R03_noKey: a money route without any key. Nothing is sent or stored, and the answer names the header.
func TestField_R03_noKey(t *testing.T) {
	t.Parallel()
	gateway, u := newSandbox(t, sandbox.Config{})
	w := newWorld(t, settings{gateway: []use{u}})
	a := w.start("A")
	intent := charge("")
	intent.target, intent.body = "/v1/payment_intents", "amount=4990&currency=eur&confirm=true&payment_method=pm_card_visa"
	intent.lines = slices.DeleteFunc(intent.lines, func(l string) bool { return strings.HasPrefix(l, "Fence-Key") })
	for _, lines := range [][]string{nil, {"Fence-Timeout: 30"}, {"Idempotency-Key: made-up"}} {
		for range 2 {
			p := send(a.at("stripe"), intent.with(lines...))
			if p.status != 403 && p.status != 400 || !strings.Contains(string(p.body), "Fence-Key") {
				t.Errorf("%v: %s", lines, p)
			}
		}
	}
	if n := len(gateway.Sends("POST")); n != 0 || len(w.all()) != 0 {
		t.Errorf("%d sends, %d records", n, len(w.all()))
	}
	send(a.at("stripe"), intent.with("Fence-Key: K")).wantResult(t, "succeeded", "sent")
	send(a.at("stripe"), intent.with("Fence-Key: K")).wantResult(t, "succeeded", "replayed")
	if n := len(gateway.Sends("POST")); n != 1 {
		t.Errorf("%d sends", n)
	}
}

// TestField_R07_keyLostWithItsRow: the refund's row, and with it its key, was thrown away on an error. A refund that says what it
// undoes, and which part, cannot be made twice by another key; a genuine second part can.
func TestField_R07_keyLostWithItsRow(t *testing.T) {
	t.Parallel()
	gateway, u := newSandbox(t, sandbox.Config{})
	w := newWorld(t, settings{gateway: []use{u}})
	a := w.start("A")
	paid := send(a.at("stripe"), charge("p1"))
	part := func(key, part string) request {
		r := refund(key, "p1; part="+part, paid.id())
		r.body += "&amount=500"
		return r
	}
	inject(t, gateway, sandbox.Fault{Name: "lose-fin", Route: "POST /v1/refunds"})
	inject(t, gateway, sandbox.Fault{Name: "list-lag", Arg: "1h"}) // nothing can be found out yet
	first := send(a.at("stripe"), part("rf-1", "return-1").with("Prefer: wait=0"))
	if again := send(a.at("stripe"), part("rf-2", "return-1")); again.slug() != "already-undone" {
		t.Errorf("a new key for the same return: %s (the first: %s)", again, first)
	}
	gateway.ClearFaults()
	insist(t, part("rf-1", "return-1"), "stripe", a)
	if n := refunded(gateway); n != 1 {
		t.Errorf("%d refunds for one return", n)
	}
	send(a.at("stripe"), part("rf-3", "return-2")).wantResult(t, "succeeded", "sent")
	if n := refunded(gateway); n != 2 {
		t.Errorf("%d refunds for two returns", n)
	}
}

// TestField_R11_volatileBody: the same key with a body that changes by the clock. It is a conflict, no server error, and the first
// answer stays.
func TestField_R11_volatileBody(t *testing.T) {
	t.Parallel()
	g := newRaw(t, nil)
	w := rawWorld(t, settings{gateway: []use{rawUse(g)}})
	a := w.start("A")
	body := func(expires string) request {
		return request{target: "/plain/pay", lines: []string{"Fence-Key: K", "Content-Type: application/json"}, body: `{"amount":1,"expires_at":` + expires + `}`}
	}
	first := send(a.at("raw"), body("100"))
	first.wantResult(t, "succeeded", "sent")
	p := send(a.at("raw"), body("160"))
	p.want(t, 422, "key-conflict")
	if strings.Contains(string(p.body), "160") || strings.Contains(string(p.body), "expires_at") {
		t.Errorf("the refusal echoes the body: %s", p)
	}
	if again := send(a.at("raw"), body("100")); again.header("Fence-Result") != "replayed" || string(again.body) != string(first.body) {
		t.Errorf("the first answer has changed: %s", again)
	}
	g.wantSends(1)
}

// TestField_R12_keyOnAnotherEndpoint: the key of creating an invoice comes with the call that pays it.
func TestField_R12_keyOnAnotherEndpoint(t *testing.T) {
	t.Parallel()
	g := newRaw(t, nil)
	u := rawUse(g)
	u.callKey = "{header: Idempotency-Key}"
	w := rawWorld(t, settings{gateway: []use{u}})
	a := w.start("A")
	to := func(target string) request {
		return request{target: target, lines: []string{"Idempotency-Key: K", "Content-Type: text/plain"}}
	}
	send(a.at("raw"), to("/plain/v1/invoices")).wantResult(t, "succeeded", "sent")
	p := send(a.at("raw"), to("/plain/v1/invoices/in_1/pay"))
	p.want(t, 422, "key-conflict")
	if p.id() != "" {
		t.Errorf("it looks like a payment: %s", p)
	}
	g.wantSends(1)
}

// requestIDs is a gateway whose key header is PayPal-Request-Id.
const requestIDs = `name: raw
baseURL: http://127.0.0.1:1
keyRetention: 24h
key: {header: PayPal-Request-Id}
callKey: {header: PayPal-Request-Id}
answers: [{status: ["2xx"], outcome: succeeded}]
routes: [{name: capture, method: POST, path: "/v2/checkout/orders/{id}/capture", noReference: true}]
`

// TestField_R18_oneKeyForAll: the key header was set once for the client, so that every call carries the same one.
func TestField_R18_oneKeyForAll(t *testing.T) {
	t.Parallel()
	g := newRaw(t, nil)
	file := filepath.Join(t.TempDir(), "ids.yaml")
	if err := os.WriteFile(file, []byte(requestIDs), 0o600); err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, settings{gateway: []use{{file: file, name: "raw", url: g.url()}}})
	a := w.start("A")
	capture := func(order string, lines ...string) request {
		return request{target: "/v2/checkout/orders/" + order + "/capture", lines: append([]string{"Content-Type: application/json"}, lines...), body: "{}"}
	}
	first := send(a.at("raw"), capture("O1", "PayPal-Request-Id: X", "Idempotency-Key: one"))
	first.wantResult(t, "succeeded", "sent")
	p := send(a.at("raw"), capture("O2", "PayPal-Request-Id: X"))
	p.want(t, 422, "key-conflict")
	send(a.at("raw"), capture("O3", "Idempotency-Key: X")).want(t, 403, "untagged") // not this gateway's key header
	if again := send(a.at("raw"), capture("O1", "PayPal-Request-Id: X", "Idempotency-Key: two")); again.header("Fence-Result") != "replayed" {
		t.Errorf("another header counted as the key: %s", again)
	}
	g.wantSends(1)
	if s := g.sends("POST")[0]; s.header("PayPal-Request-Id") == "X" || s.header("Idempotency-Key") != "one" {
		t.Errorf("the gateway saw %q", s.lines)
	}
}

// TestField_R21_twoCaptures: webhook and checkout capture at the same moment under two call keys. One loses at the gateway; its
// refusal is its own, says that nothing is known, and touches nothing of the other.
func TestField_R21_twoCaptures(t *testing.T) {
	t.Parallel()
	gateway, u := newSandbox(t, sandbox.Config{})
	w := newWorld(t, settings{gateway: []use{u}})
	a, b := w.pair()
	auth := charge("auth")
	auth.target, auth.body = "/v1/payment_intents", "amount=4990&currency=eur&confirm=true&capture_method=manual&payment_method=pm_card_visa"
	intent := send(a.at("stripe"), auth)
	intent.want(t, 200, "")
	capture := func(key string) request {
		r := charge(key)
		r.target, r.body = "/v1/payment_intents/"+intent.id()+"/capture", ""
		return r
	}
	one, two := later(a.at("stripe"), capture("webhook")), later(b.at("stripe"), capture("checkout"))
	outcomes := map[string]int{}
	for _, p := range []reply{await(t, one), await(t, two)} {
		outcomes[p.header("Fence-Outcome")]++
	}
	// "Already captured" may be the answer to a capture of our own whose answer was lost: it is no failure, and in doubt.
	if outcomes["succeeded"] != 1 || outcomes["unknown"] != 1 {
		t.Errorf("outcomes %v", outcomes)
	}
	captured := 0
	for _, o := range gateway.Ledger() {
		if strings.Contains(o.Kind, "capture") {
			captured++
		}
	}
	if captured != 1 {
		t.Errorf("%d captures", captured)
	}
	won, lost := w.record("webhook"), w.record("checkout")
	if lost.State == claims.StateSucceeded {
		won, lost = lost, won
	}
	if won.State != claims.StateSucceeded || lost.State != claims.StateUnknown || len(lost.Attempts) != 1 || lost.Attempts[0].Status != 400 {
		t.Errorf("records %s and %s", won.State, lost.State)
	}
	// The same key for both is one call.
	before := len(gateway.Sends("POST"))
	for _, s := range []*sidecar{a, b} {
		send(s.at("stripe"), capture(won.Key.Call)).wantResult(t, "succeeded", "replayed")
	}
	if n := len(gateway.Sends("POST")); n != before {
		t.Errorf("%d sends more", n-before)
	}
}
