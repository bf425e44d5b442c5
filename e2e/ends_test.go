package e2e

import (
	"syscall"
	"testing"
	"time"

	"github.com/fence-sidecar/fence-sidecar/claims"
	"github.com/fence-sidecar/fence-sidecar/gateways/sandbox"
)

// How a lease ends while a send under it is under way.

// inFlight makes a charge under a token through sidecar A that the gateway has executed and not answered; answer lets it.
func (s scoped) inFlight(key, token string) (first <-chan reply, answer func()) {
	s.t.Helper()
	inject(s.t, s.gateway, sandbox.Fault{Name: "hold-after", Arg: key, Route: "POST /v1/**"})
	r := charge(key)
	if token != "" {
		r = r.under(token)
	}
	first = later(s.a.at("stripe"), r)
	if err := s.gateway.WaitHold(s.t.Context(), key); err != nil {
		s.t.Fatal(err)
	}
	return first, func() { s.gateway.Release(key) }
}

// TestEnds_callsInFlight: neither release nor finish ends a lease under a call that is in flight.
func TestEnds_callsInFlight(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, d database) {
		s := newScoped(t, settings{store: d})
		for _, end := range []string{"release", "finish"} {
			token := s.a.acquire(end, minute)
			first, answer := s.inFlight(end, token)
			for _, x := range []*sidecar{s.a, s.b} {
				for _, how := range []string{"release", "finish"} {
					p := x.ask("/v1/leases/"+how, token, "{}")
					p.want(t, 409, "calls-in-flight")
					if p.retryAfter() < 1 {
						t.Errorf("no Retry-After: %s", p)
					}
				}
			}
			x := s.b.ask("/v1/leases/acquire", "", wanted(end, "other", minute))
			x.want(t, 409, "held")
			answer()
			got := await(t, first)
			got.wantResult(t, "succeeded", "sent")
			if l := got.header("Fence-Lease"); l != "live" {
				t.Errorf("Fence-Lease is %s", l)
			}
			if st := s.b.ask("/v1/leases/"+end, token, "{}").lease(t).Status; st != end+"d" && st != end+"ed" {
				t.Errorf("%s: the lease is %s", end, st)
			}
		}
		s.wantSends(2)
		s.charge(charge("release").under("default:release#1")).wantFenced(t)
		next := s.b.acquire("release", minute)
		send(s.b.at("stripe"), charge("release").under(next)).wantResult(t, "succeeded", "replayed")
		s.wantFinished("finish", "default:finish#1")
		s.wantSends(2)
	})
}

// wantFinished fails the test unless a scope is over for good, for calls and for leases, on both sidecars.
func (s scoped) wantFinished(id, token string) {
	s.t.Helper()
	for _, x := range []*sidecar{s.a, s.b} {
		for _, key := range []string{id, "new"} {
			p := send(x.at("stripe"), charge(key).under(token))
			p.want(s.t, 410, "scope-finished")
			p.wantResult(s.t, "unknown", "refused")
			if p.header("Fence-Lease") != "lost" || p.header("Fence-Attempt") != "" || p.id() != "" {
				s.t.Errorf("a finished scope: %s", p)
			}
		}
		x.ask("/v1/leases/acquire", "", wanted(id, "late", minute)).want(s.t, 410, "scope-finished")
		x.ask("/v1/leases/confirm", token, "{}").want(s.t, 410, "scope-finished")
		x.ask("/v1/leases/cancel", "", `{"tenant":"default","id":"`+id+`"}`).want(s.t, 410, "scope-finished")
	}
}

// TestEnds_expiryInFlight: the lease runs out while the gateway works, and another holder takes the scope. The first one gets
// the gateway's answer and learns that it was superseded; the record gets it as evidence, and the next holder from there.
func TestEnds_expiryInFlight(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, d database) {
		s := newScoped(t, settings{store: d, lease: "3s"})
		token := s.a.acquire("order", 3*time.Second)
		first, answer := s.inFlight("k", token)
		release := s.holdLease("order") // A's own renewals fail
		s.leaseOver("order")
		release()
		next := s.b.acquire("order", minute)
		busy := insistUntil(t, s.b.at("stripe"), charge("k", "Prefer: wait=0").under(next), "in-flight")
		busy.want(t, 409, "in-flight")
		answer()
		got := await(t, first)
		got.want(t, 200, "")
		got.wantResult(t, "succeeded", "sent")
		if l := got.header("Fence-Lease"); l != "lost" {
			t.Errorf("the lease ran out, and Fence-Lease says %s", l)
		}
		rec := s.record("k")
		if rec.State != claims.StateSucceeded || len(rec.Evidence) != 1 || rec.Evidence[0].Outcome != claims.Succeeded ||
			rec.Evidence[0].Source != "answer" || rec.Attempt != 1 {
			t.Errorf("the late answer is not in the record: %s after attempt %d, evidence %+v", rec.State, rec.Attempt, rec.Evidence)
		}
		again := insist(t, charge("k").under(next), "stripe", s.b)
		again.wantResult(t, "succeeded", "replayed")
		if string(again.body) != string(got.body) || again.header("Fence-Lease") != "live" {
			t.Errorf("the next holder gets another answer: %s", again)
		}
		s.charge(charge("k").under(token)).wantFenced(t)
		s.wantSends(1)
	})
}

// insistUntil repeats a request while the sidecar or the store is busy, until it gets a refusal.
func insistUntil(t *testing.T, addr string, r request, slug string) (p reply) {
	t.Helper()
	eventually(t, "the answer "+slug, func() bool {
		p = send(addr, r)
		s := p.slug()
		return s != "instance-lease-lost" && s != "store-unavailable"
	})
	return p
}

// TestEnds_expiryBeforeFirstByte: the lease runs out between claim and first byte, while the attempt's own time goes on.
// Nothing is sent under it, and the next holder need not wait.
func TestEnds_expiryBeforeFirstByte(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, d database) {
		h := newHandover(t, d, "30s", claimed)
		h.relay.hold()
		h.apps[claimed].charge(claimed)
		eventually(t, "A has claimed and connected", func() bool { return h.relay.count() > 0 && h.w.state(claimed) == claims.StatePending })
		release := h.w.holdLease(claimed)
		h.w.leaseOver(claimed)
		release()
		h.relay.release()
		late := await(t, h.apps[claimed].replies)
		if d.url != "" {
			late.wantFenced(t)
		} else if s := late.slug(); s != "fenced" && s != "instance-lease-lost" { // in SQLite A could not renew its own either
			t.Errorf("want a refusal, got %s", late)
		}
		if late.header("Fence-Outcome") != "unknown" {
			t.Errorf("a holder that was superseded is told what became of the call: %s", late)
		}
		if n := len(h.gateway.Sends("POST")); n != 0 {
			t.Errorf("%d sends under a lease that had run out", n)
		}
		h.w.wantState(claimed, claims.StateOpen)
		_, got := h.takeOver(claimed)
		got.wantResult(t, "succeeded", "sent")
		if n := len(h.gateway.Sends("POST")); n != 1 || h.gateway.Moved() != 1 {
			t.Errorf("%d sends, %d executed", n, h.gateway.Moved())
		}
	})
}

// TestEnds_restart: a sidecar ends, by itself or killed, and comes again beside an application whose lease goes on. The token
// is good through the new process, and the call that was in flight ends settled.
func TestEnds_restart(t *testing.T) {
	t.Parallel()
	for _, sig := range []syscall.Signal{syscall.SIGKILL, syscall.SIGTERM} {
		t.Run(sig.String(), func(t *testing.T) {
			t.Parallel()
			onBoth(t, func(t *testing.T, d database) { testRestart(t, d, sig) })
		})
	}
}

func testRestart(t *testing.T, d database, sig syscall.Signal) {
	gateway, u := newSandbox(t, sandbox.Config{})
	w := newWorld(t, settings{store: d, lease: "3s", maxTTL: "60s", gateway: []use{u}})
	a := w.start("A")
	s := scoped{w, gateway, a, a}
	token := a.acquire("order", minute)
	first, answer := s.inFlight("k", token)
	if sig == syscall.SIGKILL {
		a.kill()
		if p := await(t, first); p.err == nil {
			t.Errorf("a killed sidecar answered: %s", p)
		}
		answer()
	} else {
		a.signal(sig)
		answer()
		p := await(t, first)
		p.wantResult(t, "succeeded", "sent")
		if code := a.wait(); code != 0 || p.header("Fence-Lease") != "live" {
			t.Errorf("exit code %d, answer %s", code, p)
		}
	}
	s.a = w.start("A again")
	got := insist(t, charge("k").under(token), "stripe", s.a)
	got.want(t, 200, "")
	if l := s.a.ask("/v1/leases/confirm", token, "{}").lease(t); l.Status != "live" || l.FenceToken != token || got.header("Fence-Lease") != "live" {
		t.Errorf("the application's lease did not outlive its sidecar: %+v, %s", l, got)
	}
	if n := gateway.Executed(w.record("k").Facts.GatewayKey); n != 1 {
		t.Errorf("executed %d times", n)
	}
	s.charge(charge("next").under(token)).wantResult(t, "succeeded", "sent")
	s.a.release(token)
	w.settled()
	s.wantSends(2)
}
