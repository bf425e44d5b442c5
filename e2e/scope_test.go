package e2e

import (
	"strings"
	"testing"
	"time"

	"github.com/fence-sidecar/fence-sidecar/claims"
	"github.com/fence-sidecar/fence-sidecar/gateways/sandbox"
)

// A call belongs to the scope under whose token it was first claimed.

// scoped is one world with two sidecars and a gateway that counts.
type scoped struct {
	*world
	gateway *sandbox.Server
	a, b    *sidecar
}

func newScoped(t *testing.T, s settings) scoped {
	t.Helper()
	gateway, u := newSandbox(t, sandbox.Config{})
	u.attempt = "20s"
	s.gateway = []use{u}
	s.maxTTL = "60s"
	w := newWorld(t, s)
	a, b := w.pair()
	return scoped{w, gateway, a, b}
}

// charge sends a charge through sidecar A.
func (s scoped) charge(r request) reply { s.t.Helper(); return send(s.a.at("stripe"), r) }

// wantSends fails the test unless the gateway got, and executed, so many charges.
func (s scoped) wantSends(n int) {
	s.t.Helper()
	if sends, moved := len(s.gateway.Sends("POST")), s.gateway.Moved(); sends != n || moved != n {
		s.t.Errorf("the gateway got %d sends and executed %d, want %d", sends, moved, n)
	}
}

// another is the same call key with another request.
func another(r request) request {
	r.body = strings.Replace(r.body, "4990", "1", 1)
	return r
}

const minute = 60 * time.Second

func TestScope(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, d database) {
		s := newScoped(t, settings{store: d})
		one, two := s.a.acquire("order:1", minute), s.b.acquire("order:2", minute)
		first := s.charge(charge("k").under(one))
		first.want(t, 200, "")
		first.wantResult(t, "succeeded", "sent")
		if l := first.header("Fence-Lease"); l != "live" || first.header("Fence-Attempt") != "1" {
			t.Errorf("the first claim under a token: %s", first)
		}
		if got := s.record("k").Scope; got != claims.ScopeKey("default", "order:1") {
			t.Errorf("the record's scope is %q", got)
		}
		s.charge(charge("k")).wantFencedAs(t, "instance")
		s.charge(charge("k").under(two)).wantFencedAs(t, "live")
		s.charge(another(charge("k")).under(two)).wantFencedAs(t, "live")
		s.charge(charge("k").with("Fence-Revision: 2").under(two)).wantFencedAs(t, "live")
		for _, x := range []*sidecar{s.a, s.b} {
			again := send(x.at("stripe"), charge("k").under(one))
			again.wantResult(t, "succeeded", "replayed")
			if again.id() != first.id() {
				t.Errorf("the holder gets another answer: %s", again)
			}
		}
		s.charge(another(charge("k")).under(one)).want(t, 422, "key-conflict")
		s.wantSends(1)
	})
}

// TestScope_stale: a token that is over is refused before anything of the record is looked at, so that a zombie learns nothing
// of what became of the call.
func TestScope_stale(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, d database) {
		s := newScoped(t, settings{store: d})
		released := s.a.acquire("order:1", minute)
		s.charge(charge("k").under(released)).want(t, 200, "")
		s.charge(charge("bare")).want(t, 200, "")
		s.a.release(released)
		expired := s.b.acquire("order:1", time.Second)
		s.leaseOver("order:1")
		stale := map[string]string{"released": released, "expired": expired}
		check := func(now string) {
			t.Helper()
			for name, token := range stale {
				for what, r := range map[string]request{
					"a replay":          charge("k"),
					"another request":   another(charge("k")),
					"another revision":  charge("k").with("Fence-Revision: 3"),
					"a new call":        charge("new"),
					"a call of nobody":  charge("bare"),
					"another operation": {target: "/v1/refunds", lines: charge("k", "Fence-Undo: none").lines, body: "amount=1&charge=ch_1"},
				} {
					t.Run(now+"/"+name+"/"+what, func(t *testing.T) { s.charge(r.under(token)).wantFenced(t) })
				}
			}
		}
		check("free")
		live := s.a.acquire("order:1", minute)
		check("taken over")
		stale = map[string]string{"never granted": claims.ScopeKey("default", "order:1") + "#99", "never taken": "default:nobody#1"}
		check("absent")
		if st := s.state("new"); st != claims.None {
			t.Errorf("a refused call has a record: %s", st)
		}
		s.charge(charge("k").under(live)).wantResult(t, "succeeded", "replayed")
		s.wantSends(2)
	})
}

// TestScope_tenants: a token of another tenant guards nothing here.
func TestScope_tenants(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, d database) {
		s := newScoped(t, settings{store: d, tenants: "default, other"})
		as := func(tenant, key, token string) reply {
			return s.charge(charge(key, "Fence-Tenant: "+tenant).under(token))
		}
		own := s.a.acquire("order:1", minute)
		foreign := s.a.ask("/v1/leases/acquire", "", `{"tenant":"other","id":"order:1"}`).lease(t).FenceToken
		as("default", "k", own).want(t, 200, "")
		for _, p := range []reply{as("default", "k", foreign), as("other", "k", own), as("default", "new", foreign)} {
			p.want(t, 409, "fenced")
			p.wantResult(t, "unknown", "refused")
			if p.header("Fence-Attempt") != "" {
				t.Errorf("the record was read: %s", p)
			}
		}
		s.wantSends(1)
		as("other", "k", foreign).wantResult(t, "succeeded", "sent") // the same call key, another call
		as("nobody", "k", own).want(t, 403, "tenant-not-served")
		s.wantSends(2)
	})
}

// TestScope_firstWithoutToken: a call that was first claimed without a token belongs to no scope, and no later token changes
// that.
func TestScope_firstWithoutToken(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, d database) {
		s := newScoped(t, settings{store: d})
		one, two := s.a.acquire("order:1", minute), s.a.acquire("order:2", minute)
		first := s.charge(charge("k"))
		first.wantResult(t, "succeeded", "sent")
		if l := first.header("Fence-Lease"); l != "instance" {
			t.Errorf("Fence-Lease without a token: %s", l)
		}
		for _, r := range []request{charge("k").under(one), charge("k").under(two), charge("k")} {
			again := s.charge(r)
			again.wantResult(t, "succeeded", "replayed")
			if again.id() != first.id() {
				t.Errorf("another answer: %s", again)
			}
		}
		if got := s.record("k").Scope; got != "" {
			t.Errorf("the record took the scope %q", got)
		}
		s.a.release(one)
		s.charge(charge("k").under(one)).wantFenced(t)
		s.wantSends(1)
	})
}

// TestScope_firstNotExecuted: the scope is kept where the first attempt sent nothing.
func TestScope_firstNotExecuted(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, d database) {
		s := newScoped(t, settings{store: d})
		one, two := s.a.acquire("order:1", minute), s.a.acquire("order:2", minute)
		inject(t, s.gateway, sandbox.Fault{Name: "rate-limit"})
		s.charge(charge("k").under(one)).want(t, 429, "")
		if rec := s.record("k"); rec.State != claims.StateOpen || rec.Scope != claims.ScopeKey("default", "order:1") {
			t.Fatalf("want an open call of its scope: %s of %q", rec.State, rec.Scope)
		}
		s.charge(charge("k").under(two)).wantFencedAs(t, "live")
		s.charge(charge("k")).wantFencedAs(t, "instance")
		if n := len(s.gateway.Sends("POST")); n != 1 {
			t.Errorf("%d sends under no or another scope's token", n-1)
		}
		s.charge(charge("k").under(one)).wantResult(t, "succeeded", "sent")
		if n := s.gateway.Moved(); n != 1 {
			t.Errorf("executed %d times", n)
		}
	})
}

// TestTokens: whether a gateway serves calls without a token.
func TestTokens(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, d database) {
		gateway, u := newSandbox(t, sandbox.Config{})
		var uses []use
		for _, name := range []string{"required", "optional", "none", "unsaid"} {
			g := use{builtin: u.builtin, name: name, url: u.url, hosts: []string{name + ".example"}, tokens: name}
			if name == "unsaid" {
				g.tokens = ""
			}
			uses = append(uses, g)
		}
		w := newWorld(t, settings{store: d, gateway: uses})
		a := w.start("A")
		token := a.acquire("order:1", 10*time.Second)
		for _, name := range []string{"required", "optional", "none", "unsaid"} {
			before := len(gateway.Sends("POST"))
			bare := send(a.at(name), charge(name+":bare"))
			count := a.metric(`fence_calls_without_token_total{gateway="` + name + `"}`)
			if name == "required" {
				bare.want(t, 400, "bad-request")
				if n := len(gateway.Sends("POST")); n != before || w.state(name+":bare") != claims.None || count != "" {
					t.Errorf("%s: a call without a token left something: %d sends, counted %q", name, n-before, count)
				}
			} else {
				bare.wantResult(t, "succeeded", "sent")
				if l := bare.header("Fence-Lease"); l != "instance" || count != "1" {
					t.Errorf("%s: without a token Fence-Lease is %q, counted %q", name, l, count)
				}
			}
			with := send(a.at(name), charge(name+":under").under(token))
			with.wantResult(t, "succeeded", "sent")
			if again := a.metric(`fence_calls_without_token_total{gateway="` + name + `"}`); with.header("Fence-Lease") != "live" || again != count {
				t.Errorf("%s: under a token: %s, counted %q", name, with, again)
			}
		}
	})
}
