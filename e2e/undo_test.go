package e2e

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fence-sidecar/fence-sidecar/claims"
	"github.com/fence-sidecar/fence-sidecar/gateways/sandbox"
)

// refund gives the money of a charge back, as the undo of a call.
func refund(key, of, object string, lines ...string) request {
	return request{
		target: "/v1/refunds", body: "charge=" + object,
		lines: append([]string{"Fence-Key: " + key, "Fence-Undo: " + of, "Content-Type: application/x-www-form-urlencoded"}, lines...),
	}
}

// refunded is how many refunds the gateway executed.
func refunded(g *sandbox.Server) (n int) {
	for _, o := range g.Ledger() {
		if o.Kind == "refunds.create" {
			n++
		}
	}
	return n
}

// TestUndoSurvivesAKill: the sidecar that refunds is killed after the gateway gave the money back. The repeat, through another one,
// brings that refund's answer; any other undo of the charge is refused.
func TestUndoSurvivesAKill(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, d database) {
		s := newScoped(t, settings{store: d, lease: "2s"})
		paid := s.charge(charge("k"))
		paid.wantResult(t, "succeeded", "sent")
		inject(t, s.gateway, sandbox.Fault{Name: "hold-after", Arg: "r", Route: "POST /v1/refunds"})
		later(s.a.at("stripe"), refund("r1", "k", paid.id()))
		if err := s.gateway.WaitHold(t.Context(), "r"); err != nil {
			t.Fatal(err)
		}
		s.a.kill()
		s.gateway.Release("r")
		send(s.b.at("stripe"), refund("r2", "k", paid.id())).want(t, 409, "already-undone")
		got := insist(t, refund("r1", "k", paid.id()), "stripe", s.b)
		if got.status != 200 || !strings.Contains(string(got.body), `"refund"`) {
			t.Errorf("the repeat: %s", got)
		}
		if n := refunded(s.gateway); n != 1 {
			t.Errorf("%d refunds were executed", n)
		}
		r := s.record("k")
		if r.State != claims.StateSucceeded || !slices.Equal(r.Undos, []claims.Undo{{Key: "r1"}}) {
			t.Errorf("the charge is %s, undone by %v", r.State, r.Undos)
		}
	})
}

// TestZombieUndoesNothing: whoever was taken over compensates nothing, whatever it says or leaves out; once the scope is finished
// only the token that finished it does.
func TestZombieUndoesNothing(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, d database) {
		s := newScoped(t, settings{store: d})
		old := s.a.acquire("order:1", 2*time.Second)
		paid := s.charge(charge("k").under(old))
		paid.wantResult(t, "succeeded", "sent")
		s.leaseOver("order:1")
		next := s.b.acquire("order:1", minute)
		refused := func(what string) {
			t.Helper()
			for name, lines := range map[string][]string{
				"stale": {"Fence-Token: " + old}, "none": nil, "another scope's": {"Fence-Token: " + s.b.acquire("order:"+what, minute)},
			} {
				if p := s.charge(refund("r1", "k", paid.id(), lines...)); p.slug() != "fenced" || p.header("Fence-Outcome") != "unknown" {
					t.Errorf("%s, %s token: %s", what, name, p)
				}
			}
			unsaid := refund("r1", "k", paid.id()).under(old)
			unsaid.lines = slices.DeleteFunc(unsaid.lines, func(l string) bool { return strings.HasPrefix(l, "Fence-Undo") })
			s.charge(unsaid).want(t, 400, "bad-request")
			s.charge(refund("r1", "never claimed", paid.id()).under(old)).want(t, 409, "fenced")
		}
		refused("held")
		if p := s.b.ask("/v1/leases/finish", next, "{}"); p.status/100 != 2 {
			t.Fatalf("finish: %s", p)
		}
		refused("finished")
		if refunded(s.gateway) != 0 {
			t.Fatal("a zombie gave money back")
		}
		send(s.b.at("stripe"), charge("k").under(next)).want(t, 410, "scope-finished")
		for range 2 {
			if p := send(s.b.at("stripe"), refund("r1", "k", paid.id()).under(next)); p.status != 200 {
				t.Errorf("the finishing token: %s", p)
			}
		}
		if n := refunded(s.gateway); n != 1 {
			t.Errorf("%d refunds were executed", n)
		}
	})
}

// TestUndoThatComesFirst: the undo is there before the charge. The charge is cancelled, through whichever sidecar it comes.
func TestUndoThatComesFirst(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, d database) {
		s := newScoped(t, settings{store: d})
		token := s.a.acquire("order:1", minute)
		s.charge(refund("r1", "k", "ch_none").under(token)).want(t, 409, "nothing-to-undo")
		for _, x := range []*sidecar{s.a, s.b} {
			p := send(x.at("stripe"), charge("k").under(token))
			p.want(t, 410, "call-cancelled")
			p.wantResult(t, "not-executed", "refused")
		}
		s.wantSends(0)
	})
}

// TestJoinAcrossSidecars: twenty requests at once through two sidecars while the gateway takes its time: one is sent, all get its
// answer.
func TestJoinAcrossSidecars(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, d database) {
		s := newScoped(t, settings{store: d, wait: "40s"})
		inject(t, s.gateway, sandbox.Fault{Name: "hold-after", Arg: "k"})
		var all []<-chan reply
		for i := range 20 {
			all = append(all, later([]*sidecar{s.a, s.b}[i%2].at("stripe"), charge("k")))
		}
		if err := s.gateway.WaitHold(t.Context(), "k"); err != nil {
			t.Fatal(err)
		}
		send(s.b.at("stripe"), charge("k").with("Prefer: wait=0")).want(t, 409, "in-flight")
		s.gateway.Release("k")
		results, ids := map[string]int{}, map[string]bool{}
		for _, c := range all {
			p := await(t, c)
			p.want(t, 200, "")
			results[p.header("Fence-Result")]++
			ids[p.id()] = true
		}
		if results["sent"] != 1 || results["sent"]+results["joined"]+results["replayed"] != 20 || results["joined"] == 0 || len(ids) != 1 {
			t.Errorf("results %v, answers %v", results, ids)
		}
		s.wantSends(1)
	})
}

// TestRevisionAcrossSidecars: two sidecars are asked at once for the next revision of a declined charge; it is made once.
func TestRevisionAcrossSidecars(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, d database) {
		s := newScoped(t, settings{store: d})
		declined := charge("k")
		declined.body = strings.Replace(declined.body, "tok_visa", "tok_chargeDeclined", 1)
		s.charge(declined).wantResult(t, "declined", "sent")
		s.charge(charge("k")).want(t, 422, "key-conflict")
		next := charge("k").with("Fence-Revision: 2")
		var all []<-chan reply
		for i := range 8 {
			all = append(all, later([]*sidecar{s.a, s.b}[i%2].at("stripe"), next))
		}
		for _, c := range all {
			if p := await(t, c); p.status != 200 {
				t.Errorf("revision 2: %s", p)
			}
		}
		s.charge(declined).want(t, 409, "superseded-revision")
		if sends, moved := len(s.gateway.Sends("POST")), s.gateway.Moved(); sends != 2 || moved != 1 {
			t.Errorf("%d sends, %d charges", sends, moved)
		}
		var keys []string
		for _, x := range s.gateway.Sends("POST") {
			keys = append(keys, fmt.Sprint(x.Key))
		}
		if keys[0] == keys[1] {
			t.Error("both revisions went out under one idempotency key")
		}
		out, _, ok := s.cli("calls", "show", "k")
		var shown struct{ Revision int }
		if err := json.Unmarshal([]byte(out), &shown); !ok || err != nil || shown.Revision != 2 {
			t.Errorf("calls show: %v %s", err, out)
		}
	})
}
