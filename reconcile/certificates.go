package reconcile

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
)

const (
	maxChain     = 64 << 10  // bytes of a certificate with its chain
	maxCerts     = 16        // that are remembered
	certLife     = time.Hour // after which one is fetched again; while it cannot be, it holds until it runs out
	certTimeout  = 5 * time.Second
	certsAtOnce  = 10 // fetches in a row; then one in certInterval
	certInterval = 2 * time.Second
)

var errTooMany = errors.New("too many certificates were asked for lately")

// certificates fetches the certificates that a gateway signs its notices with. Which address is asked was checked before: it is on
// one of the declared hosts. Whoever sends a notice still chooses the path, so that fetches are few, small and shared.
type certificates struct {
	client  *http.Client
	roots   *x509.CertPool
	flights singleflight.Group

	mu    sync.Mutex
	known map[string]knownCert
	left  float64 // fetches that may begin now
	at    time.Time
}

type knownCert struct {
	cert *x509.Certificate
	at   time.Time
}

func newCertificates(l Link) *certificates {
	return &certificates{client: newClient(l), roots: l.Roots, known: map[string]knownCert{}, left: certsAtOnce, at: time.Now()}
}

// CertificateFetcher fetches the certificates that a gateway's notices name, over the way that its lookups take, each verified up to the
// gateway's authorities, remembered and rate limited.
func CertificateFetcher(l Link) func(ctx context.Context, address string) (*x509.Certificate, error) {
	return newCertificates(l).get
}

// get returns the certificate at an address, its chain verified up to the gateway's authorities.
func (c *certificates) get(ctx context.Context, address string) (*x509.Certificate, error) {
	if cert := c.remembered(address, time.Now()); cert != nil {
		return cert, nil
	}
	done := c.flights.DoChan(address, func() (any, error) {
		old := c.valid(address, time.Now()) // made-up addresses must not keep a known one from being trusted
		if !c.may(time.Now()) {
			return old, unless(old, errTooMany)
		}
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), certTimeout)
		defer cancel()
		cert, err := c.fetch(ctx, address)
		if err != nil {
			return old, unless(old, err)
		}
		c.remember(address, cert, time.Now())
		return cert, nil
	})
	select {
	case d := <-done:
		if d.Err != nil {
			return nil, d.Err
		}
		return d.Val.(*x509.Certificate), nil
	case <-ctx.Done():
		return nil, errGivenUp
	}
}

func (c *certificates) remembered(address string, now time.Time) *x509.Certificate {
	c.mu.Lock()
	defer c.mu.Unlock()
	k, ok := c.known[address]
	if !ok || now.Sub(k.at) > certLife || now.After(k.cert.NotAfter) {
		return nil
	}
	return k.cert
}

// valid is a certificate that was verified once and has not run out, however long ago it was fetched.
func (c *certificates) valid(address string, now time.Time) *x509.Certificate {
	c.mu.Lock()
	defer c.mu.Unlock()
	if k, ok := c.known[address]; ok && !now.After(k.cert.NotAfter) {
		return k.cert
	}
	return nil
}

func unless(cert *x509.Certificate, err error) error {
	if cert != nil {
		return nil
	}
	return err
}

// remember keeps only what was verified, so that made-up addresses push nothing out.
func (c *certificates) remember(address string, cert *x509.Certificate, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.known) >= maxCerts {
		clear(c.known)
	}
	c.known[address] = knownCert{cert, now}
}

// may reports whether a fetch may begin.
func (c *certificates) may(now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.left = min(certsAtOnce, c.left+float64(now.Sub(c.at))/float64(certInterval))
	c.at = now
	if c.left < 1 {
		return false
	}
	c.left--
	return true
}

func (c *certificates) fetch(ctx context.Context, address string) (*x509.Certificate, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, errMalformed
	}
	resp, err := c.client.Do(req)
	if err != nil {
		return nil, plain(err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("status %d", resp.StatusCode)
	}
	b, err := io.ReadAll(io.LimitReader(resp.Body, maxChain+1))
	if err != nil {
		return nil, plain(err)
	}
	if len(b) > maxChain {
		return nil, fmt.Errorf("it has over %d bytes", maxChain)
	}
	return c.verify(b, time.Now())
}

// verify reads a chain in PEM, the signer first. The name is not compared: the host that it came from was, by TLS.
func (c *certificates) verify(b []byte, now time.Time) (*x509.Certificate, error) {
	var chain []*x509.Certificate
	for block, rest := pem.Decode(b); block != nil; block, rest = pem.Decode(rest) {
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil || block.Type != "CERTIFICATE" || len(chain) == 10 {
			return nil, errMalformed
		}
		chain = append(chain, cert)
	}
	if len(chain) == 0 {
		return nil, errMalformed
	}
	between := x509.NewCertPool()
	for _, cert := range chain[1:] {
		between.AddCert(cert)
	}
	_, err := chain[0].Verify(x509.VerifyOptions{
		Roots: c.roots, Intermediates: between, CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny},
	})
	if err != nil {
		return nil, errVerify
	}
	return chain[0], nil
}
