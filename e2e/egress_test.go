package e2e

import (
	"crypto/tls"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fence-sidecar/fence-sidecar/claims"
	"github.com/fence-sidecar/fence-sidecar/gateways/tunnel/tunneltest"
)

// TestEgress_proxyAndClientCertificate: calls and lookups reach a gateway that demands a client certificate through a proxy that
// demands a credential, and by no other way; a tunnel that is cut after the send is a doubt, which the lookup ends.
func TestEgress_proxyAndClientCertificate(t *testing.T) {
	const credential = "corp:e2e-proxy-secret"
	client := tunneltest.NewClient(t, "shop", 24*time.Hour)
	server, ca := certificate(t)
	cfg := server.TLS()
	cfg.ClientAuth, cfg.ClientCAs = tls.RequireAndVerifyClientCert, client.CA
	var p *tunneltest.Proxy
	g := startRaw(t, func(c *rawCall) verdict {
		if c.method() == http.MethodPost && strings.Contains(c.body, "cut=1") {
			c.book() // executed, and its answer is lost
			p.Cut()
			return hangUp
		}
		return behave
	}, cfg)
	p = tunneltest.New(t, tunneltest.Config{Credential: credential})
	ambient := tunneltest.New(t, tunneltest.Config{})
	t.Setenv("HTTPS_PROXY", ambient.URL().String())

	dir := t.TempDir()
	cert, key := client.Write(t, dir)
	secretFile := filepath.Join(dir, "proxy-secret")
	if err := os.WriteFile(secretFile, []byte(credential+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	u := rawUse(g)
	u.ca, u.settle = ca, "100ms"
	u.more = fmt.Sprintf("    clientCert: %q\n    clientKey: %q\n    egressProxy: {url: %q, credential: {file: %q}}\n", cert, key, p.URL(), secretFile)
	w := rawWorld(t, settings{gateway: []use{u}, level: "debug"})
	s := w.start("A")

	send(s.at("raw"), charge("plain")).want(t, 200, "")
	r := charge("cut")
	r.body += "&cut=1"
	insist(t, r, "raw", s)
	w.wantState("cut", claims.StateSucceeded)
	g.wantSends(2)
	g.wantExecuted(2)
	if n := len(g.sends(http.MethodGet)); n == 0 {
		t.Error("no lookup came through")
	}
	if conns := len(p.Connects()); conns < 2 || len(ambient.Connects()) != 0 {
		t.Errorf("%d tunnels, %d through a proxy out of the environment", conns, len(ambient.Connects()))
	}
	for _, c := range append(g.sends(""), g.sends(http.MethodGet)...) {
		if c.has("Proxy-Authorization") {
			t.Error("the gateway got the proxy's credential")
		}
	}
	if strings.Contains(s.logs(), "e2e-proxy-secret") {
		t.Error("the log shows the proxy's credential")
	}

	// Another client certificate: said at the start, and nothing is executed.
	other := tunneltest.NewClient(t, "stranger", 24*time.Hour)
	other.Write(t, dir)
	b := w.start("B")
	eventually(t, "the start says that the gateway turns the certificate down", func() bool {
		return strings.Contains(b.logs(), "cannot be reached as configured")
	})
	if p := send(b.at("raw"), charge("stranger")); p.definite() {
		t.Errorf("a stranger was served: %s", p)
	}
	g.wantExecuted(2)
	client.Write(t, dir) // rotated: it needs no restart
	insist(t, charge("rotated"), "raw", b)
	g.wantExecuted(3)
	if n, err := strconv.Atoi(b.metric(`fence_attempts_total{cause="answered",gateway="raw",wrote="yes"}`)); err != nil || n != 1 {
		t.Errorf("%d answered attempts of B, want 1", n)
	}
}
