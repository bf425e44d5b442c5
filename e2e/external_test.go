package e2e

import (
	"strings"
	"testing"
)

// external is a request with a token that the application counts itself.
func (r request) external(token string) request { return r.with("Fence-External-Token: " + token) }

// TestExternal_off: such tokens are refused unless the operator has written down what they do not protect from.
func TestExternal_off(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, d database) {
		s := newScoped(t, settings{store: d})
		s.charge(charge("k").external("default:order#5")).want(t, 400, "bad-request")
		if v := s.a.metric("fence_external_tokens_enabled"); v != "0" || strings.Contains(s.a.logs(), "external tokens are served") {
			t.Errorf("off, but the metric says %q", v)
		}
		s.wantSends(0)
	})
}

func TestExternal(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, d database) {
		s := newScoped(t, settings{store: d, tenants: "default, other", extra: "externalTokens: without-double-charge-protection\n"})
		if v := s.a.metric("fence_external_tokens_enabled"); v != "1" || !warned(s.a, "external tokens are served") {
			t.Errorf("on, but the metric says %q, or the log has no warning:\n%s", v, s.a.logs())
		}
		of := func(key string) request { return charge(key, "Fence-Tenant: default") }
		first := s.charge(of("k").external("default:order#5"))
		first.wantResult(t, "succeeded", "sent")
		if l := first.header("Fence-Lease"); l != "external" {
			t.Errorf("Fence-Lease is %q", l)
		}
		if v := s.a.metric(`fence_calls_external_token_total{gateway="stripe"}`); v != "1" {
			t.Errorf("counted %q", v)
		}
		higher := s.charge(of("k").external("default:order#7"))
		higher.wantResult(t, "succeeded", "replayed")
		if higher.id() != first.id() || higher.header("Fence-Lease") != "external" {
			t.Errorf("a higher token of the scope gets: %s", higher)
		}
		for _, key := range []string{"k", "new"} { // on both sidecars, whether there is a record or not
			s.charge(of(key).external("default:order#5")).wantFenced(t)
			send(s.b.at("stripe"), of(key).external("default:order#6")).wantFenced(t)
		}
		s.charge(another(of("k")).external("default:order#6")).wantFenced(t)
		s.charge(of("k").external("default:order#7")).wantResult(t, "succeeded", "replayed")
		s.charge(of("k").external("default:another#9")).wantFencedAs(t, "external")
		s.charge(of("k")).wantFencedAs(t, "instance")
		s.charge(of("k").external("other:order#7")).want(t, 409, "fenced")
		s.wantSends(1)

		t.Run("kinds", func(t *testing.T) { externalKinds(t, s, of) })
	})
}

// externalKinds: a lease's token and one that the application counts do not stand in for each other, though their scopes are
// spelt alike.
func externalKinds(t *testing.T, s scoped, of func(string) request) {
	sends := len(s.gateway.Sends("POST"))
	lease := s.a.acquire("order", minute) // default:order#1
	s.charge(of("k").under(lease)).wantFencedAs(t, "live")
	s.charge(of("k").under("default:order#7")).wantFenced(t)
	s.charge(of("leased").under(lease)).wantResult(t, "succeeded", "sent")
	s.charge(of("leased").external(lease)).wantFenced(t)
	s.charge(of("leased").external("default:order#9")).wantFencedAs(t, "external")
	for _, r := range []request{of("k").external("default:order#9").under(lease), of("k").under(lease).external("default:order#9")} {
		s.charge(r).want(t, 400, "bad-request")
	}
	if p := s.a.ask("/v1/leases/confirm", "@external:default:order#9", "{}"); p.status != 400 {
		t.Errorf("the lease API took an external token: %s", p)
	}
	s.charge(of("k").external("@external:default:order#9")).want(t, 400, "bad-request")
	if n := len(s.gateway.Sends("POST")); n != sends+1 {
		t.Errorf("%d sends, want 1", n-sends)
	}
}

// warned reports whether a warning is in a sidecar's log.
func warned(s *sidecar, what string) bool {
	for line := range strings.SplitSeq(s.logs(), "\n") {
		if strings.Contains(line, `"level":"WARN"`) && strings.Contains(line, what) {
			return true
		}
	}
	return false
}
