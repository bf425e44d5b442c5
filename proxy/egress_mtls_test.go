package proxy

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"testing"
	"time"

	"github.com/fence-sidecar/fence-sidecar/gateways"
	"github.com/fence-sidecar/fence-sidecar/gateways/tunnel/tunneltest"
)

// demanding is a gateway that serves only the holder of a client certificate.
func demanding(t *testing.T, version uint16, ca *x509.CertPool) *wireGateway {
	t.Helper()
	like := newTLSWireGateway(t, func(*wireCall) bool { return false }) // for its certificate
	cfg := like.ln.(tlsAcceptor).cfg.Clone()
	cfg.ClientAuth, cfg.ClientCAs, cfg.MinVersion, cfg.MaxVersion = tls.RequireAndVerifyClientCert, ca, version, version
	g := newWireGatewayOn(t, func(c *wireCall) bool { return c.ok("paid") }, cfg)
	g.roots = like.roots
	return g
}

// holding makes the sender present a certificate from two files.
func holding(t *testing.T, c tunneltest.Client) func(*EgressConfig) {
	t.Helper()
	cert, key := c.Write(t, t.TempDir())
	held, err := gateways.LoadCertificate(cert, key, func(err error) { t.Error(err) })
	if err != nil {
		t.Fatal(err)
	}
	return func(c *EgressConfig) { c.Certificate = held.Get }
}

var tlsVersions = map[string]uint16{"TLS 1.2": tls.VersionTLS12, "TLS 1.3": tls.VersionTLS13}

func TestEgressClientCertificate(t *testing.T) {
	for name, version := range tlsVersions {
		for _, proxied := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				wireNoLeaks(t)
				good := tunneltest.NewClient(t, "shop", 24*time.Hour)
				g := demanding(t, version, good.CA)
				e := wireEgress(t, g, holding(t, good))
				if proxied {
					e = through(t, g, tunneltest.New(t, tunneltest.Config{Credential: proxySecret}), nil, holding(t, good))
				}
				for i := range 2 {
					if x := wireSend(t, e, wirePost("x")); x.Answer == nil || x.Reused != (i == 1) {
						t.Fatalf("%s %v, reused %t", x.Cause, x.Err, x.Reused)
					}
				}
				g.count("POST", 2)
			})
		}
	}
}

// Without the certificate that the gateway wants, TLS 1.2 fails in the handshake, which proves zero bytes. In TLS 1.3 the gateway
// looks at the certificate after our side of the handshake is done: bytes may have been written, so nothing is claimed.
func TestEgressClientCertificateTurnedDown(t *testing.T) {
	for name, version := range tlsVersions {
		for what, change := range map[string][]func(*EgressConfig){
			"none": nil, "another's": {holding(t, tunneltest.NewClient(t, "shop", 24*time.Hour))},
			"expired": {func(c *EgressConfig) {
				cert, key := tunneltest.NewClient(t, "shop", time.Minute).Write(t, t.TempDir())
				held, err := gateways.LoadCertificate(cert, key, func(error) {})
				if err != nil {
					t.Fatal(err)
				}
				c.Certificate = held.Get
			}},
		} {
			t.Run(name+"/"+what, func(t *testing.T) {
				wireNoLeaks(t)
				g := demanding(t, version, tunneltest.NewClient(t, "shop", 24*time.Hour).CA)
				e := wireEgress(t, g, change...)
				x := wireSend(t, e, wirePost("x"))
				g.count("", 0)
				if version == tls.VersionTLS12 && (x.Wrote || x.Cause != CauseTLS) {
					t.Errorf("wrote %t, cause %q (%v); want zero bytes", x.Wrote, x.Cause, x.Err)
				}
				ends := x.Cause == CauseTLS || x.Cause == CauseCut || x.Cause == CauseWrite // a reset may overtake the alert
				if version == tls.VersionTLS13 && (!x.Wrote || !ends) {
					t.Errorf("wrote %t, cause %q (%v); want a doubt", x.Wrote, x.Cause, x.Err)
				}
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
				defer cancel()
				err := e.Probe(ctx)
				if s, ok := errors.AsType[*SendError](err); !ok || s.Cause != CauseTLS || s.Wrote {
					t.Errorf("the probe says %v, want tls", err)
				}
			})
		}
	}
}

// A probe passes no byte of a request, and finds nothing wrong where nothing is.
func TestEgressProbe(t *testing.T) {
	wireNoLeaks(t)
	good := tunneltest.NewClient(t, "shop", 24*time.Hour)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	for name, version := range tlsVersions {
		g := demanding(t, version, good.CA)
		if err := wireEgress(t, g, holding(t, good)).Probe(ctx); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		g.count("", 0)
	}
	g := echoing(t, false)
	p := tunneltest.New(t, tunneltest.Config{Credential: "corp:another"})
	if err := through(t, g, p, nil).Probe(ctx); err == nil {
		t.Error("a proxy that opens no tunnel was not noticed")
	}
	if err := wireEgress(t, g).Probe(ctx); err != nil {
		t.Error(err)
	}
	if _, bytes := g.received(); bytes != 0 {
		t.Errorf("the probe passed %d bytes", bytes)
	}
}
