package checklist_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/fence-sidecar/fence-sidecar/checklist"
	"github.com/fence-sidecar/fence-sidecar/gateways"
	"github.com/fence-sidecar/fence-sidecar/gateways/sandbox"
)

const (
	// credential is what no output may show.
	credential = "sk_test_51HnotToBeShownAnywhere0987"
	hookSecret = "00112233445566778899aabbccddeeff"
)

// world is a sandbox with the configuration of a run against it.
type world struct {
	t   *testing.T
	s   *sandbox.Server
	url string
	cfg checklist.Config
}

// start plays a gateway. set changes its declaration.
func start(t *testing.T, profile string, scfg sandbox.Config, set func(*gateways.Gateway)) *world {
	t.Helper()
	g := declared(t, profile)
	if set != nil {
		set(g)
	}
	if err := g.Validate(); err != nil {
		t.Fatal(err)
	}
	scfg.Profile = profile
	if profile == "paypal" { // whose notices name a certificate at an https address
		scfg.TLS = tlsOf(t, g)
	}
	s, err := sandbox.Open(scfg)
	if err != nil {
		t.Fatal(err)
	}
	addr, err := s.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	if g.Webhook != nil && g.Webhook.Signature.CertHeader != "" {
		g.Webhook.Signature.CertHosts = append(g.Webhook.Signature.CertHosts, addr.String())
	}
	w := &world{t: t, s: s, url: s.URL(addr)}
	w.cfg = checklist.Config{
		Gateway: g, BaseURL: w.url, Credential: func() (string, error) { return credential, nil }, Vars: vars(g),
		LookupWait: 400 * time.Millisecond, OutcomeWait: 900 * time.Millisecond, Poll: 20 * time.Millisecond, AttemptTimeout: 20 * time.Second,
		Now: scfg.Clock, Progress: func(step, text string) { t.Logf("%-9s %s", step, text) },
	}
	return w
}

// tlsOf makes a certificate, which the gateway's declaration trusts.
func tlsOf(t *testing.T, g *gateways.Gateway) *tls.Config {
	t.Helper()
	cert, err := sandbox.NewCertificate(time.Now(), "127.0.0.1")
	if err != nil {
		t.Fatal(err)
	}
	g.CABundle = filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(g.CABundle, cert.CA, 0o600); err != nil {
		t.Fatal(err)
	}
	return cert.TLS()
}

// vars supplies what the checks leave to the tester.
func vars(g *gateways.Gateway) map[string]string {
	out := map[string]string{}
	for name, v := range g.Checks.Vars {
		if v == "" {
			out[name] = "MD0001"
		}
	}
	return out
}

// declared is a gateway's declaration. Where the gateway's own sandbox cannot fail after the money moved, or has no payment that
// is pending, ours is asked for it.
func declared(t *testing.T, name string) *gateways.Gateway {
	t.Helper()
	make := map[string]func() *gateways.Gateway{
		"stripe": gateways.Stripe, "adyen": gateways.Adyen, "paypal": gateways.PayPal, "checkout": gateways.CheckoutCom, "gocardless": gateways.GoCardless,
	}[name]
	g := make()
	c := g.Checks
	if c == nil {
		t.Fatalf("gateway %s declares no checks", name)
	}
	checklist.Sandbox{}.Complete(g)
	return g
}

// listen gives the run a webhook that the sandbox tells.
func (w *world) listen() {
	w.t.Setenv("CHECKLIST_HOOK", hookSecret)
	w.cfg.Hook = &checklist.HookConfig{
		Listen: "127.0.0.1:0", Secrets: []gateways.Secret{{Env: "CHECKLIST_HOOK"}}, Certificate: certificate,
		Ready: func(a net.Addr) { w.s.AddHook(sandbox.Hook{URL: "http://" + a.String() + "/", Secret: hookSecret}) },
	}
}

// certificate is the sandbox's, as if it were fetched.
func certificate(context.Context, string) (*x509.Certificate, error) {
	b, _ := pem.Decode(bytes.Clone(sandbox.PayPalCertificate()))
	return x509.ParseCertificate(b.Bytes)
}

func (w *world) inject(f sandbox.Fault) {
	w.t.Helper()
	if err := w.s.Inject(f); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) run() *checklist.Report {
	w.t.Helper()
	rep, err := checklist.Run(w.t.Context(), w.cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, r := range rep.Rows {
		w.t.Logf("%s %s: %s [%s: %s]", r.Name, r.Verdict, r.Reason, r.Documented.Level, r.Agrees)
	}
	return rep
}

// verdicts are a report's, by row.
func verdicts(rep *checklist.Report) map[string]string {
	out := map[string]string{}
	for _, r := range rep.Rows {
		out[r.Name] = r.Verdict
	}
	return out
}

// fails are the rows that are FAIL.
func fails(rep *checklist.Report) []string {
	v := verdicts(rep)
	maps.DeleteFunc(v, func(_, verdict string) bool { return verdict != checklist.Fail })
	return slices.Sorted(maps.Keys(v))
}
