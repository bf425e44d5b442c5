package checklist_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/fence-sidecar/fence-sidecar/checklist"
	"github.com/fence-sidecar/fence-sidecar/gateways"
	"github.com/fence-sidecar/fence-sidecar/gateways/sandbox"
)

// The built-in sandbox is found, and told where notices go to.
func TestSandboxCheck(t *testing.T) {
	for _, name := range slices.DeleteFunc(slices.Clone(profiles), func(n string) bool { return n == "paypal" }) { // which has TLS here
		w := start(t, name, sandbox.Config{}, nil)
		w.cfg.Gateway.BaseURL = w.url
		s, ok := checklist.FindSandbox(t.Context(), w.cfg.Gateway)
		if !ok || !s.Tell(t.Context(), "http://127.0.0.1:9/", hookSecret) {
			t.Errorf("%s: the sandbox was not found, or not told", name)
		}
	}
}

// Where money moves, where that cannot be told, and where calls take a way of their own, nothing is asked; and only the built-in
// sandbox is believed to be one.
func TestSandboxCheckAsksNobodyElse(t *testing.T) {
	const profile = `{"profile":"stripe"}`
	for name, c := range map[string]struct {
		set    func(g *gateways.Gateway)
		answer string
		asked  bool
		found  bool
	}{
		"the sandbox":        {func(*gateways.Gateway) {}, profile, true, true},
		"live host":          {func(g *gateways.Gateway) { g.Checks.LiveHosts = []string{"127.*"} }, profile, false, false},
		"no checks":          {func(g *gateways.Gateway) { g.Checks = nil }, profile, false, false},
		"egress proxy":       {func(g *gateways.Gateway) { g.EgressProxy = &gateways.EgressProxy{} }, profile, false, false},
		"own roots":          {func(g *gateways.Gateway) { g.CABundle = "ca.pem" }, profile, false, false},
		"client certificate": {func(g *gateways.Gateway) { g.ClientCert = "cert.pem" }, profile, false, false},
		"path":               {func(g *gateways.Gateway) { g.BaseURL += "/v1" }, profile, false, false},
		"nothing tells, on this machine": {func(g *gateways.Gateway) {
			g.Checks.Live, g.Checks.LiveHosts = nil, nil
		}, profile, true, true},
		"another profile": {func(*gateways.Gateway) {}, `{"profile":"somebody"}`, true, false},
		"another JSON":    {func(*gateways.Gateway) {}, `{"name":"stripe"}`, true, false},
		"no JSON":         {func(*gateways.Gateway) {}, `hello`, true, false},
	} {
		t.Run(name, func(t *testing.T) {
			var asked, told atomic.Int32
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.Method != http.MethodGet {
					told.Add(1)
				}
				asked.Add(1)
				io.WriteString(w, c.answer)
			}))
			defer server.Close()
			g := gateways.Stripe()
			g.BaseURL = server.URL
			c.set(g)
			s, ok := checklist.FindSandbox(t.Context(), g)
			if ok != c.found || (asked.Load() > 0) != c.asked {
				t.Errorf("found %v, asked %d times", ok, asked.Load())
			}
			if s.Tell(t.Context(), "http://127.0.0.1:9/", hookSecret); (told.Load() > 0) != c.found {
				t.Errorf("the secret was told %d times", told.Load())
			}
		})
	}
}
