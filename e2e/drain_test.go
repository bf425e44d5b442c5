package e2e

import (
	"strings"
	"syscall"
	"testing"

	"github.com/fence-sidecar/fence-sidecar/claims"
	"github.com/fence-sidecar/fence-sidecar/gateways/sandbox"
)

// TestField_R54_sigterm: SIGTERM while a send is under way. Its answer is given and stored; a new call is refused and not
// sent, or the listener is closed; the process ends with 0 and leaves nothing pending.
func TestField_R54_sigterm(t *testing.T) {
	gateway, u := newSandbox(t, sandbox.Config{})
	u.attempt = "30s"
	w := newWorld(t, settings{gateway: []use{u}})
	a, b := w.pair()
	inject(t, gateway, sandbox.Fault{Name: "hold-after"})
	first := later(a.at("stripe"), charge("k1"))
	waitHold(t, gateway)
	a.signal(syscall.SIGTERM)
	eventually(t, "A drains", func() bool { return strings.Contains(a.logs(), `"draining"`) })
	if code, body := a.get("/readyz"); code != 503 || !strings.Contains(body, "draining") {
		t.Errorf("readyz while draining: %d %s", code, body)
	}
	second := send(a.at("stripe"), charge("k2"))
	second.want(t, 503, "draining")
	if second.header("Retry-After") == "" {
		t.Errorf("no Retry-After: %s", second)
	}
	gateway.Release("hold")
	p := await(t, first)
	p.want(t, 200, "")
	p.wantResult(t, "succeeded", "sent")
	if code := a.wait(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	if rec := w.record("k1"); rec.State != claims.StateSucceeded || rec.Answer == nil || string(rec.Answer.Body) != string(p.body) {
		t.Errorf("the answer was not stored: %+v", rec)
	}
	if w.state("k2") != claims.None || len(gateway.Sends("POST")) != 1 {
		t.Errorf("the refused call was stored or sent: %d sends", len(gateway.Sends("POST")))
	}
	w.settled()
	if l, err := w.store.State(t.Context(), a.ready()); err != nil || l.Status != claims.LeaseReleased {
		t.Errorf("the instance lease was not given back: %+v, %v", l, err)
	}
	send(b.at("stripe"), charge("k1")).wantResult(t, "succeeded", "replayed")
	insist(t, charge("k2"), "stripe", b)
}

// TestDrain_silentGateway: the gateway never answers. The process ends all the same, and says of the call that nothing is
// known: another sidecar finds out.
func TestDrain_silentGateway(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ attempt, drain string }{
		"attempt ends first": {"2s", ""},
		"drain ends first":   {"50s", "2s"},
	} {
		t.Run(name, func(t *testing.T) {
			g := newRaw(t, bookAndHang(nil))
			g.hide(true)
			u := rawUse(g)
			u.attempt = c.attempt
			w := rawWorld(t, settings{gateway: []use{u}, drain: c.drain})
			a, b := w.pair()
			first := later(a.at("raw"), charge("k", "Prefer: wait=0"))
			eventually(t, "the gateway has booked", func() bool { return len(g.executed()) == 1 })
			a.signal(syscall.SIGTERM)
			await(t, first).want(t, 504, "in-doubt")
			if code := a.wait(); code != 0 {
				t.Errorf("exit code %d", code)
			}
			w.wantState("k", claims.StateUnknown)
			g.hide(false)
			insist(t, charge("k"), "raw", b).wantResult(t, "succeeded", "reconciled")
			g.wantSends(1)
		})
	}
}

// TestDrain_unfenced: a request that passes without a fence is no call, and is waited for all the same: its app has no other way to
// learn what became of it.
func TestDrain_unfenced(t *testing.T) {
	t.Parallel()
	gateway, u := newSandbox(t, sandbox.Config{})
	u.attempt, u.untagged = "60s", "pass"
	w := newWorld(t, settings{gateway: []use{u}})
	a := w.start("A")
	inject(t, gateway, sandbox.Fault{Name: "delay", Arg: "8s"})
	bare := charge("")
	bare.lines = []string{"Content-Type: application/x-www-form-urlencoded"}
	first := later(a.at("stripe"), bare)
	if err := gateway.WaitSends(t.Context(), 1, "POST"); err != nil {
		t.Fatal(err)
	}
	a.signal(syscall.SIGTERM)
	if p := await(t, first); p.status != 200 || p.id() == "" {
		t.Errorf("its answer was cut off: %s", p)
	}
	if code := a.wait(); code != 0 {
		t.Errorf("exit code %d", code)
	}
}
