package e2e

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/fence-sidecar/fence-sidecar/claims"
	"github.com/fence-sidecar/fence-sidecar/gateways/sandbox"
)

// TestGatewayNotices: no lookup shows anything, and the gateways' own signed notices alone tell the worker that the money arrived.
func TestGatewayNotices(t *testing.T) {
	for _, p := range players() {
		if p.name == "paypal" { // it signs by a certificate that an https address has; its notices of captures wake the lookup
			continue
		}
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			a := p.hooked(t)
			gateway, w := a.gateway, a.w
			inject(t, gateway, sandbox.Fault{Name: "lookup-blind"})
			r := p.slow(a.request(t, "told"))
			a.send(r).wantOutcome(t, "succeeded")
			rec := w.record("told")
			for range 1 + p.steps {
				if err := gateway.Move(rec.Object, "done"); err != nil {
					t.Fatal(err)
				}
			}
			eventually(t, "the notice is taken", func() bool { return w.record("told").Payment == "done" })
			a.wantExecuted(t, "told", 1)
			if n := a.sends("told"); n != 1 {
				t.Errorf("%d sends", n)
			}
			if evidence := w.record("told").Evidence; !slices.ContainsFunc(evidence, func(e claims.Evidence) bool { return e.Source == "notice" }) {
				t.Errorf("not by a notice: %+v", evidence)
			}
		})
	}
}

// hooked is an act whose gateway tells a worker.
func (p player) hooked(t *testing.T) *act {
	t.Helper()
	const hookSecret = "00112233445566778899aabbccddeeff" // hexadecimal, as one gateway wants it
	gateway, u := p.open(t, sandbox.Config{})
	w := newWorld(t, settings{gateway: []use{u}})
	a := &act{t: t, p: p, gateway: gateway, url: u.url, w: w, s: w.start("A")}
	config := w.write("worker.yaml", strings.NewReplacer(
		"lookupCredential: {env: E2E_CREDENTIAL}}]",
		fmt.Sprintf("lookupCredential: {env: E2E_CREDENTIAL}, webhookSecrets: [{file: %q}]}]", w.write("hook", hookSecret)),
		"  control: 127.0.0.1:0\n", "  control: 127.0.0.1:0\n  webhooks: 127.0.0.1:0\n",
	).Replace(settings{gateway: []use{u}}.yaml(w.dir)))
	worker := w.spawnAs("worker", "reconcile", config)
	eventually(t, "the worker is ready", func() bool { return worker.ready() != "" })
	gateway.AddHook(sandbox.Hook{URL: fmt.Sprintf("http://%s/webhooks/default/%s/shop", worker.at("webhooks"), p.name), Secret: hookSecret})
	return a
}

// TestGatewayNoticeAndAnswer: the answer is lost and a notice settles the call before anybody looks. The app gets the gateway's answer
// all the same, where a lookup can show it.
func TestGatewayNoticeAndAnswer(t *testing.T) {
	for _, p := range players() {
		if !p.finds {
			continue
		}
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			a := p.hooked(t)
			for _, lag := range []string{"list-lag", "search-lag"} { // no lookup shows it before the notice comes
				inject(t, a.gateway, sandbox.Fault{Name: lag, Arg: "1s"})
			}
			r := a.request(t, "lost", fault+"lose-rst;times=1", "Prefer: wait=0")
			first := a.send(r)
			got := first
			eventually(t, "the app gets its answer", func() bool {
				got = a.send(r)
				return got.header("Fence-Outcome") == "succeeded" && got.slug() != "answer-gone"
			})
			if got.status/100 != 2 || len(got.body) == 0 {
				t.Errorf("%s", got)
			}
			a.wantExecuted(t, "lost", 1)
		})
	}
}
