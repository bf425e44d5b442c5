package e2e

import (
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/fence-sidecar/fence-sidecar/claims"
)

// TestShadow_thenEnforce: a shadow lets every duplicate through and reports it; it says that it protects nothing. On the same store
// enforcing starts clean afterwards.
func TestShadow_thenEnforce(t *testing.T) {
	onBoth(t, func(t *testing.T, d database) {
		g := newRaw(t, nil)
		w := rawWorld(t, settings{store: d, extra: "mode: shadow\n", gateway: []use{rawUse(g)}})
		s := w.start("A")
		pay := func(own string) request { return charge("order-1", "Idempotency-Key: "+own) }

		for _, r := range []struct{ own, would string }{{"app-1", "would=send"}, {"app-2", "would=replay"}, {"app-3", "would=replay"}} {
			p := send(s.at("raw"), pay(r.own))
			p.want(t, 200, "")
			if p.header("Fence-Shadow") != r.would || p.header("Fence-Outcome") != "" {
				t.Errorf("with the app's key %s: %s, want %s", r.own, p, r.would)
			}
			w.closed("shadow:default", "order-1")
		}
		untagged := charge("x")
		untagged.lines = untagged.lines[1:]
		if p := send(s.at("raw"), untagged); p.status != 200 || p.header("Fence-Shadow") != "would=refused:untagged" {
			t.Errorf("without a call key: %s", p)
		}
		g.wantSends(4)
		g.wantExecuted(4) // it protects nothing
		for i, c := range g.sends("")[:3] {
			if c.has("Fence-Key") || c.header("Idempotency-Key") != []string{"app-1", "app-2", "app-3"}[i] || strings.Contains(c.body, "reference") {
				t.Errorf("the gateway got %q %q", c.lines, c.body)
			}
		}
		for series, want := range map[string]string{
			"fence_shadow_mode": "1", `fence_shadow_repeats_total{answer="executed",gateway="raw"}`: "2",
			`fence_shadow_requests_total{gateway="raw",would="replay"}`: "2", `fence_calls_unsettled{state="unknown"}`: "0",
		} {
			if got := s.metric(series); got != want {
				t.Errorf("%s is %q, want %s", series, got, want)
			}
		}
		if !strings.Contains(s.logs(), "SHADOW MODE") || !strings.Contains(s.logs(), `"would":"refused:untagged"`) {
			t.Error("the log does not say what it is, or what it saw")
		}
		s.term()

		text, err := os.ReadFile(w.config)
		if err != nil {
			t.Fatal(err)
		}
		w.write("fence.yaml", strings.Replace(string(text), "mode: shadow", "mode: enforce", 1))
		b := w.start("B")
		insist(t, pay("app-4"), "raw", b).wantResult(t, "succeeded", "sent")
		insist(t, pay("app-5"), "raw", b).wantResult(t, "succeeded", "replayed")
		g.wantSends(5)
		if got := b.metric("fence_shadow_mode"); got != "0" {
			t.Errorf("fence_shadow_mode is %q", got)
		}
		w.wantState("order-1", claims.StateSucceeded)
		w.settled()
		if n := len(g.sends(http.MethodGet)); n != 0 {
			t.Errorf("%d lookups of what only shadows saw", n)
		}
	})
}

// closed waits until a shadow's record has its outcome.
func (w *world) closed(tenant, call string) {
	w.t.Helper()
	eventually(w.t, "the shadow of "+call+" is closed", func() bool {
		v, err := w.store.Get(w.t.Context(), claims.Key{Tenant: tenant, Call: call}, claims.Guard{})
		return err == nil && v.Record.State == claims.StateSucceeded
	})
}
