package reconcile

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// chain is an authority, one below it and a certificate that it signed.
type chain struct {
	root      *x509.Certificate
	leaf, mid []byte // PEM
}

func newChain(t *testing.T, from, to time.Time) chain {
	t.Helper()
	make := func(n int64, ca bool, from, to time.Time, parent *x509.Certificate, by *ecdsa.PrivateKey) (*x509.Certificate, *ecdsa.PrivateKey, []byte) {
		key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
		if err != nil {
			t.Fatal(err)
		}
		c := &x509.Certificate{
			SerialNumber: big.NewInt(n), Subject: pkix.Name{CommonName: string(rune('a' + n))}, NotBefore: from, NotAfter: to,
			IsCA: ca, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
		}
		if parent == nil {
			parent, by = c, key
		}
		der, err := x509.CreateCertificate(rand.Reader, c, parent, &key.PublicKey, by)
		if err != nil {
			t.Fatal(err)
		}
		if c, err = x509.ParseCertificate(der); err != nil {
			t.Fatal(err)
		}
		return c, key, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	}
	wide := time.Now().Add(-time.Hour)
	root, rootKey, _ := make(1, true, wide, wide.Add(100*time.Hour), nil, nil)
	mid, midKey, midPEM := make(2, true, wide, wide.Add(100*time.Hour), root, rootKey)
	_, _, leaf := make(3, false, from, to, mid, midKey)
	return chain{root, leaf, midPEM}
}

// certHost serves texts by path and counts requests; its own certificate is among the roots.
func certHost(t *testing.T, roots []*x509.Certificate, serve func(rw http.ResponseWriter, r *http.Request)) (*certificates, string, *atomic.Int64) {
	t.Helper()
	n := new(atomic.Int64)
	srv := httptest.NewTLSServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) { n.Add(1); serve(rw, r) }))
	t.Cleanup(srv.Close)
	pool := x509.NewCertPool()
	pool.AddCert(srv.Certificate())
	for _, r := range roots {
		pool.AddCert(r)
	}
	c := newCertificates(Link{Roots: pool})
	t.Cleanup(c.client.CloseIdleConnections)
	return c, srv.URL, n
}

func TestCertificates(t *testing.T) {
	now := time.Now()
	good, old := newChain(t, now.Add(-time.Hour), now.Add(time.Hour)), newChain(t, now.Add(-time.Hour), now.Add(-time.Minute))
	strange := newChain(t, now.Add(-time.Hour), now.Add(time.Hour))
	answers := map[string]string{
		"/good": string(good.leaf) + string(good.mid), "/no-chain": string(good.leaf), "/old": string(old.leaf) + string(old.mid),
		"/strange": string(strange.leaf) + string(strange.mid), "/none": "hello", "/long": strings.Repeat("x", maxChain+1),
		"/key": "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n", "/many": string(good.leaf) + strings.Repeat(string(good.mid), 10),
	}
	c, url, asked := certHost(t, []*x509.Certificate{good.root, old.root}, func(rw http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/moved":
			http.Redirect(rw, r, "/good", http.StatusFound)
		case answers[r.URL.Path] == "":
			http.NotFound(rw, r)
		default:
			rw.Write([]byte(answers[r.URL.Path]))
		}
	})
	var wg sync.WaitGroup
	for range 50 { // one fetch for all
		wg.Go(func() {
			if cert, err := c.get(t.Context(), url+"/good"); err != nil || cert.Subject.CommonName != "d" {
				t.Errorf("%v %v", cert, err)
			}
		})
	}
	wg.Wait()
	if n := asked.Load(); n != 1 {
		t.Errorf("asked %d times, want 1", n)
	}
	for _, bad := range []string{"/no-chain", "/old", "/strange", "/none", "/long", "/key", "/many", "/moved", "/404"} {
		c.left = certsAtOnce
		if cert, err := c.get(t.Context(), url+bad); err == nil {
			t.Errorf("%s: %v", bad, cert.Subject)
		}
	}
	if len(c.known) != 1 {
		t.Errorf("%d are remembered", len(c.known))
	}
	c.at, c.left = time.Now(), 0
	if _, err := c.get(t.Context(), url+"/new"); err != errTooMany {
		t.Errorf("any number of addresses is asked: %v", err)
	}
	was := asked.Load()
	if _, err := c.get(t.Context(), url+"/good"); err != nil || asked.Load() != was { // what is known needs no fetch
		t.Error(err)
	}
	if cert := c.remembered(url+"/good", now.Add(certLife+time.Minute)); cert != nil {
		t.Error("it is remembered for ever")
	}
	// Made-up addresses use the pace up; a certificate that is due to be fetched again still holds.
	c.known[url+"/good"] = knownCert{c.known[url+"/good"].cert, time.Now().Add(-certLife - time.Minute)}
	c.at, c.left = time.Now(), 0
	if cert, err := c.get(t.Context(), url+"/good"); err != nil || cert == nil {
		t.Errorf("a known certificate is turned down for want of a fetch: %v", err)
	}
	c.at, c.left = now, 0
	if c.may(now.Add(certInterval/2)) || !c.may(now.Add(certInterval)) {
		t.Error("the pace is another")
	}
}

// Whoever waits for a certificate that does not come goes on when its time is up.
func TestCertificateHangs(t *testing.T) {
	stop := make(chan struct{})
	c, url, _ := certHost(t, nil, func(http.ResponseWriter, *http.Request) { <-stop })
	defer close(stop)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := c.get(ctx, url+"/c"); err != errGivenUp {
		t.Error(err)
	}
}
