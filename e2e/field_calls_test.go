package e2e

import (
	"fmt"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/fence-sidecar/fence-sidecar/claims"
	"github.com/fence-sidecar/fence-sidecar/gateways/sandbox"
)

// Field reports (numbered as in the project's collection) about calls and what becomes of them.

// TestField_R14_doubleClick: 20 identical refunds at once through two sidecars, 200 rounds.
func TestField_R14_doubleClick(t *testing.T) {
	gateway, u := newSandbox(t, sandbox.Config{})
	u.attempt = "30s"
	w := newWorld(t, settings{gateway: []use{u}})
	a, b := w.pair()
	paid := insist(t, charge("charge:order:1"), "stripe", a)
	refund := func(key string, lines ...string) request {
		r := charge(key, lines...)
		r.target, r.body = "/v1/refunds", "amount=1&charge="+paid.id()
		return r
	}
	send(a.at("stripe"), refund("refund:unsaid")).want(t, 400, "bad-request")
	inject(t, gateway, sandbox.Fault{Name: "delay", Arg: "20ms", Route: "POST /v1/refunds", Times: -1})
	const rounds = 200
	for i := range rounds {
		key := fmt.Sprintf("refund:order:1:%d", i)
		crowd(t, refund(key, "Fence-Undo: none"), 20, a.at("stripe"), b.at("stripe"))
		r := w.record(key)
		if n := gateway.Executed(r.Facts.GatewayKey); n != 1 || r.Attempt != 1 || r.State != claims.StateSucceeded {
			t.Fatalf("round %d: %d refunds executed, record %s after attempt %d", i, n, r.State, r.Attempt)
		}
		if t.Failed() {
			return
		}
	}
	if n := len(gateway.Sends("POST")); n != 1+rounds {
		t.Errorf("the gateway got %d sends, want %d", n, 1+rounds)
	}
	if n := len(w.all()); n != 1+rounds {
		t.Errorf("the store has %d records, want %d", n, 1+rounds)
	}
}

// TestField_R15_emptyAnswer: an empty answer is an answer.
func TestField_R15_emptyAnswer(t *testing.T) {
	for name, answer := range map[string]string{
		"empty200": "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n",
		"204":      "HTTP/1.1 204 No Content\r\n\r\n",
		"null":     "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nnull",
	} {
		t.Run(name, func(t *testing.T) {
			g := newRaw(t, func(c *rawCall) verdict { c.say("%s", answer); return keep })
			w := rawWorld(t, settings{gateway: []use{rawUse(g)}})
			a, b := w.pair()
			r := request{target: "/plain/pay", lines: []string{"Fence-Key: k", "Content-Type: text/plain"}, body: "x"}
			first := send(a.at("raw"), r)
			first.wantResult(t, "succeeded", "sent")
			for _, s := range []*sidecar{a, b} {
				again := send(s.at("raw"), r)
				again.wantResult(t, "succeeded", "replayed")
				if again.status != first.status || string(again.body) != string(first.body) ||
					again.header("Content-Length") != first.header("Content-Length") {
					t.Errorf("the replay differs:\n%s\n%s", first, again)
				}
			}
			if rec := w.record("k"); rec.Answer == nil || rec.Answer.Body == nil {
				t.Errorf("the stored answer is not the one that came: %+v", rec.Answer)
			}
			g.wantSends(1)
		})
	}
	t.Run("stripe", func(t *testing.T) { // an empty 200 proves nothing there: the lookup tells
		gateway, u := newSandbox(t, sandbox.Config{})
		w := newWorld(t, settings{gateway: []use{u}})
		a := w.start("A")
		inject(t, gateway, sandbox.Fault{Name: "empty"})
		got := insist(t, charge("k"), "stripe", a)
		if l := gateway.Ledger(); len(l) != 1 || got.id() != l[0].ID || len(gateway.Sends("POST")) != 1 {
			t.Errorf("want one send, one charge, and that one answered; got %s, ledger %+v", got, l)
		}
	})
}

// bookAndHang executes the first charge and answers it only when released, or never.
func bookAndHang(release <-chan struct{}) func(*rawCall) verdict {
	var seen atomic.Bool
	return func(c *rawCall) verdict {
		if c.method() == http.MethodGet || seen.Swap(true) {
			return behave
		}
		c.book()
		select {
		case <-release:
			return behave
		case <-c.g.stop:
			return hangUp
		}
	}
}

// TestField_R19_orphanedClaim: killed after the gateway read the request, started again; the app asks until it is told.
func TestField_R19_orphanedClaim(t *testing.T) {
	t.Parallel()
	g := newRaw(t, bookAndHang(nil))
	w := rawWorld(t, settings{gateway: []use{rawUse(g)}})
	a := w.start("A")
	first := later(a.at("raw"), charge("k"))
	eventually(t, "the gateway has booked", func() bool { return len(g.executed()) == 1 })
	a.kill()
	if p := await(t, first); p.err == nil {
		t.Errorf("a killed sidecar answered: %s", p)
	}
	restarted := w.start("A again")
	seen := map[string]bool{}
	var got reply
	eventually(t, "a definite answer", func() bool {
		got = send(restarted.at("raw"), charge("k"))
		seen[got.slug()] = true
		return got.definite()
	})
	delete(seen, "")
	delete(seen, "in-flight")
	delete(seen, "in-doubt")
	if len(seen) > 0 {
		t.Errorf("the app was also told %v", seen)
	}
	got.wantResult(t, "succeeded", "reconciled")
	if got.id() != "ch_1" {
		t.Errorf("want the answer that the lookup found, got %s", got)
	}
	g.wantSends(1)
	g.wantExecuted(1)
	w.settled()
}

// TestField_R51_zombieAfterClaim: frozen between claim and send; another takes over; the zombie does not send.
func TestField_R51_zombieAfterClaim(t *testing.T) {
	t.Parallel()
	g, ca := newRawTLS(t, nil)
	front := newRelay(t, g.ln.Addr().String())
	u := rawUse(g)
	u.url, u.ca, u.settle = "https://"+front.ln.Addr().String(), ca, "1s"
	w := rawWorld(t, settings{lease: "3s", gateway: []use{u}})
	a, b := w.pair()
	front.hold()
	first := later(a.at("raw"), charge("k"))
	eventually(t, "A has claimed and connected", func() bool { return front.count() > 0 && w.state("k") == claims.StatePending })
	a.stop()
	front.release()
	a.leaseOver()
	got := insist(t, charge("k"), "raw", b)
	g.wantSends(1) // B's
	a.resume()
	late := await(t, first)
	if late.definite() && late.id() != got.id() {
		t.Errorf("the zombie answered otherwise: %s", late)
	}
	g.wantSends(1)
	g.wantExecuted(1)
	if rec := w.record("k"); rec.Attempt != 2 || rec.State != claims.StateSucceeded {
		t.Errorf("want the second attempt to have succeeded: %+v", rec)
	}
}

// TestField_R51_zombieAfterSend: frozen after the send; another reconciles; the zombie's late word changes nothing.
func TestField_R51_zombieAfterSend(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	g := newRaw(t, bookAndHang(release))
	w := rawWorld(t, settings{lease: "3s", gateway: []use{rawUse(g)}})
	a, b := w.pair()
	first := later(a.at("raw"), charge("k"))
	eventually(t, "the gateway has booked", func() bool { return len(g.executed()) == 1 })
	a.stop()
	close(release) // the answer waits in A's socket
	a.leaseOver()
	got := insist(t, charge("k"), "raw", b)
	got.wantResult(t, "succeeded", "reconciled")
	a.resume()
	late := await(t, first)
	if !late.mayRepeat() && late.id() != got.id() {
		t.Errorf("the zombie answered otherwise: %s", late)
	}
	insist(t, charge("k"), "raw", a)
	if rec := w.record("k"); rec.State != claims.StateSucceeded || rec.Attempt != 1 {
		t.Errorf("want one attempt, succeeded: %+v", rec)
	}
	g.wantSends(1)
	g.wantExecuted(1)
}

// lookups is how many lookups came to the gateway.
func (g *rawGateway) lookups() int { return len(g.sends(http.MethodGet)) }

// TestField_R62_laggingLookup: a lookup that does not show the charge yet proves nothing before the settling time.
func TestField_R62_laggingLookup(t *testing.T) {
	t.Parallel()
	g := newRaw(t, bookAndHang(nil))
	g.hide(true)
	w := rawWorld(t, settings{gateway: []use{rawUse(g)}})
	a := w.start("A")
	r := charge("k", "Prefer: wait=0")
	send(a.at("raw"), r).want(t, 504, "in-doubt")
	eventually(t, "lookups missed", func() bool {
		send(a.at("raw"), r).want(t, 504, "in-doubt")
		return g.lookups() >= 6
	})
	if rec := w.record("k"); rec.Misses != 0 || rec.State != claims.StateUnknown {
		t.Errorf("misses before the settling time were counted: %d, %s", rec.Misses, rec.State)
	}
	g.hide(false)
	insist(t, r, "raw", a).wantResult(t, "succeeded", "reconciled")
	g.wantSends(1)
	g.wantExecuted(1)
}

// TestField_R62_search: a search index never proves absence, however long it misses.
func TestField_R62_search(t *testing.T) {
	t.Parallel()
	g := newRaw(t, bookAndHang(nil))
	g.hide(true)
	u := rawUse(g)
	u.settle = "10ms"
	w := rawWorld(t, settings{gateway: []use{u}})
	a := w.start("A")
	r := charge("k", "Prefer: wait=0")
	r.target = "/v1/searched"
	send(a.at("raw"), r).want(t, 504, "in-doubt")
	before := g.lookups()
	eventually(t, "searches missed", func() bool {
		send(a.at("raw"), r).want(t, 504, "in-doubt")
		return g.lookups() >= before+8
	})
	w.wantState("k", claims.StateUnknown)
	g.hide(false)
	insist(t, r, "raw", a).wantResult(t, "succeeded", "reconciled")
	g.wantSends(1)
}

// TestField_R62_absence: what really was not executed comes to rest as open after the settling time, and a repeat may be
// sent. It is what the two tests above must not show.
func TestField_R62_absence(t *testing.T) {
	t.Parallel()
	var dropped atomic.Bool
	g := newRaw(t, func(c *rawCall) verdict {
		if c.method() == http.MethodGet || dropped.Swap(true) {
			return behave
		}
		return c.fin()
	})
	u := rawUse(g)
	u.settle = "500ms"
	w := rawWorld(t, settings{gateway: []use{u}})
	a := w.start("A")
	send(a.at("raw"), charge("k", "Prefer: wait=0")).want(t, 504, "in-doubt")
	w.wantState("k", claims.StateOpen) // by the sweeper
	insist(t, charge("k"), "raw", a).wantResult(t, "succeeded", "sent")
	g.wantSends(2)
	g.wantExecuted(1)
	keys := map[string]bool{}
	for _, c := range g.sends("") {
		keys[c.header("Idempotency-Key")] = true
	}
	if len(keys) != 1 || strings.Contains(fmt.Sprint(keys), "k:") {
		t.Errorf("the attempts went out under different keys: %v", keys)
	}
}
