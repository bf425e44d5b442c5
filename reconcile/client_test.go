package reconcile

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fence-sidecar/fence-sidecar/gateways"
	"github.com/fence-sidecar/fence-sidecar/gateways/tunnel"
	"github.com/fence-sidecar/fence-sidecar/gateways/tunnel/tunneltest"
)

// Lookups go the way of the calls: through the gateway's proxy, with its client certificate, by no other.
func TestLookupsGoTheWayOfCalls(t *testing.T) {
	good := tunneltest.NewClient(t, "shop", 24*time.Hour)
	cert, key := good.Write(t, t.TempDir())
	held, err := gateways.LoadCertificate(cert, key, func(err error) { t.Error(err) })
	if err != nil {
		t.Fatal(err)
	}
	var leaked atomic.Bool
	gateway := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		leaked.Store(leaked.Load() || r.Header.Get("Proxy-Authorization") != "" || r.URL.Host != "")
	})
	plain := httptest.NewServer(gateway)
	defer plain.Close()
	secure := httptest.NewUnstartedServer(gateway)
	secure.TLS = &tls.Config{ClientAuth: tls.RequireAndVerifyClientCert, ClientCAs: good.CA}
	secure.StartTLS()
	defer secure.Close()
	roots := x509.NewCertPool()
	roots.AddCert(secure.Certificate())

	p := tunneltest.New(t, tunneltest.Config{Credential: "corp:s3cret"})
	ambient := tunneltest.New(t, tunneltest.Config{})
	for _, name := range []string{"HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"} {
		t.Setenv(name, ambient.URL().String())
	}
	secret := "corp:old"
	link := Link{Roots: roots, Certificate: held.Get, Via: &tunnel.Proxy{
		URL: p.URL(), Credential: func() (string, error) { return secret, nil },
	}}
	get := func(l Link, url string) error {
		c := newClient(l)
		defer c.CloseIdleConnections()
		resp, err := c.Get(url)
		if err == nil {
			resp.Body.Close()
		}
		return err
	}
	if e, ok := errors.AsType[*tunnel.Error](get(link, secure.URL)); !ok || e.Status != 407 {
		t.Errorf("with a wrong credential: %v", e)
	}
	secret = "corp:s3cret" // rotated
	for _, url := range []string{secure.URL, plain.URL} {
		if err := get(link, url); err != nil {
			t.Errorf("%s: %v", url, err)
		}
	}
	if n := len(p.Connects()); n != 3 || leaked.Load() {
		t.Errorf("%d tunnels, want 3; the gateway saw what is the proxy's: %t", n, leaked.Load())
	}
	if err := get(Link{Roots: roots}, secure.URL); err == nil {
		t.Error("a gateway that demands a certificate served without one")
	}
	if err := get(Link{}, plain.URL); err != nil {
		t.Error(err)
	}
	if n := len(p.Connects()); n != 3 {
		t.Errorf("%d tunnels: a link without a proxy used one", n)
	}
	if n := len(ambient.Connects()); n != 0 {
		t.Errorf("a proxy out of the environment was used %d times", n)
	}
}
