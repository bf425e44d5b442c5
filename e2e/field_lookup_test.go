package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fence-sidecar/fence-sidecar/claims"
	"github.com/fence-sidecar/fence-sidecar/gateways/sandbox"
)

// acme is the worked example's gateway, played by the sandbox, as its file says but for some replaced texts.
func acme(t *testing.T, cfg sandbox.Config, replace ...string) (*sandbox.Server, use) {
	t.Helper()
	b, err := os.ReadFile("../examples/gateway/acme.yaml")
	if err != nil {
		t.Fatal(err)
	}
	text := string(b)
	for i := 0; i+1 < len(replace); i += 2 {
		if !strings.Contains(text, replace[i]) {
			t.Fatalf("the example does not say %q", replace[i])
		}
		text = strings.Replace(text, replace[i], replace[i+1], 1)
	}
	file := filepath.Join(t.TempDir(), "acme.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if cfg.Profile == "" {
		cfg.Profile = "acme"
	}
	gateway, u := newSandbox(t, cfg)
	u.builtin, u.file = "", file
	return gateway, u
}

// pay is a payment at Acme.
func pay(key string, lines ...string) request {
	return request{
		target: "/payments", body: `{"amount":4990,"currency":"eur","card":"ok"}`,
		lines: append([]string{"Fence-Key: " + key, "Content-Type: application/json"}, lines...),
	}
}

// TestField_R68_unstampable: a lookup needs a handle in the first request. A body that takes none is refused before the claim.
func TestField_R68_unstampable(t *testing.T) {
	t.Parallel()
	gateway, u := acme(t, sandbox.Config{})
	w := newWorld(t, settings{gateway: []use{u}})
	a := w.start("A")
	digest := pay("digest", "Content-Digest: sha-256=:AAAA:")
	list := pay("list")
	list.body = `[1]`
	text := pay("text")
	text.lines[1] = "Content-Type: text/plain"
	for _, r := range []request{digest, list, text} {
		p := send(a.at("acme"), r)
		p.want(t, 400, "bad-request")
		if !strings.Contains(string(p.body), "reference") {
			t.Errorf("it is not said why: %s", p)
		}
	}
	if n := len(gateway.Sends()); n != 0 || len(w.all()) != 0 {
		t.Errorf("%d sends, %d records", n, len(w.all()))
	}
	insist(t, pay("k"), "acme", a).wantResult(t, "succeeded", "sent")
	if l := gateway.Ledger(); len(l) != 1 || len(l[0].Reference) != 32 {
		t.Errorf("%+v", l)
	}
}

// TestField_R68_notReconcilable: where such a body is let through, its call cannot be found: what is lost ends with a person, and
// never as absent, however long nothing is found.
func TestField_R68_notReconcilable(t *testing.T) {
	t.Parallel()
	gateway, u := acme(t, sandbox.Config{},
		"{field: reference, owned: true, required: true,", "{field: reference, owned: true,",
		"      proves: true\n      answer: {status: 201}", "      answer: {status: 201}", "    probe: true\n", "",
		"      pages: {more: /has_more, param: after}\n      proves: true\n      answer: {status: 201}\n  # Whatever",
		"      pages: {more: /has_more, param: after}\n      answer: {status: 201}\n  # Whatever")
	u.settle = "3s"
	w := newWorld(t, settings{gateway: []use{u}})
	a := w.start("A")
	inject(t, gateway, sandbox.Fault{Name: "lose-fin", Times: 1})
	r := pay("k", "Prefer: wait=0", "Content-Digest: sha-256=:AAAA:")
	send(a.at("acme"), r).want(t, 504, "in-doubt")
	out, _, ok := w.cli("calls", "explain", "k")
	if !ok || !strings.Contains(out, "no lookup can find it: the call was sent without a reference") {
		t.Errorf("it is not said from the start: %s", out)
	}
	w.wantState("k", claims.StateReview)
	send(a.at("acme"), r).want(t, 409, "needs-review")
	if rec := w.record("k"); rec.Misses != 0 || rec.Facts.Reference != "" {
		t.Errorf("%d misses, reference %q", rec.Misses, rec.Facts.Reference)
	}
	if gets := gateway.Sends("GET"); len(gets) != 0 {
		t.Errorf("%d lookups for nothing", len(gets))
	}
	if gateway.Moved() != 1 || len(gateway.Sends("POST")) != 1 {
		t.Errorf("%d charges of %d sends", gateway.Moved(), len(gateway.Sends("POST")))
	}
}
