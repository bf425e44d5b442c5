package gateways

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/url"
	"os"
	"sync"
	"time"
)

// EgressProxy is an HTTP proxy between the sidecar and a gateway.
type EgressProxy struct {
	// URL is http://host:port or https://host:port.
	URL string `yaml:"url"`
	// Credential names where "user:password" is, for Basic authentication. It is for the proxy alone.
	Credential Secret `yaml:"credential"`
	// CABundle is a PEM file that replaces the system's roots for an https proxy.
	CABundle string `yaml:"caBundle"`
}

func (p *problems) egressProxy(path string, e *EgressProxy) {
	if e == nil {
		return
	}
	u, err := url.Parse(e.URL)
	ok := err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Hostname() != "" && u.User == nil &&
		(u.Path == "" || u.Path == "/") && u.RawQuery == "" && !u.ForceQuery && u.Fragment == ""
	p.want(ok, path+".url", e.URL, "http://host:port or https://host:port; a user and password are named by credential")
	p.want(e.Credential.Env == "" || e.Credential.File == "", path+".credential", e.Credential.Env, "env or file, not both")
	p.want(e.CABundle == "" || ok && u.Scheme == "https", path+".caBundle", e.CABundle, "a url with https, as only TLS needs it")
}

// Certificate is a client certificate with its key, in two PEM files. It follows the files, so that a rotated certificate
// needs no restart. It is safe for concurrent use.
type Certificate struct {
	certFile, keyFile string
	warn              func(error)

	mu   sync.Mutex
	cert *tls.Certificate
	seen [2]os.FileInfo // of cert, or of what was tried last
}

// LoadRoots reads a CA bundle, a PEM file; nil where none is named: the system's roots.
func LoadRoots(file string) (*x509.CertPool, error) {
	if file == "" {
		return nil, nil
	}
	b, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(b) {
		return nil, fmt.Errorf("%s: no PEM certificate in it", file)
	}
	return pool, nil
}

// LoadCertificate reads both files. warn is told, once for each state of the files, that they cannot be used any more (the
// last good certificate stays) or that the certificate is out of its time.
func LoadCertificate(certFile, keyFile string, warn func(error)) (*Certificate, error) {
	c := &Certificate{certFile: certFile, keyFile: keyFile, warn: warn}
	if err := c.reload(); err != nil {
		return nil, err
	}
	return c, nil
}

// Get is for tls.Config.GetClientCertificate. It gives the certificate whatever authorities the gateway names: which one it takes
// is the gateway's to say.
func (c *Certificate) Get(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.reload(); err != nil {
		c.warn(fmt.Errorf("the certificate of before stays in use: %w", err))
	}
	return c.cert, nil
}

// reload reads the files if they are others than those seen last. What was seen is noted before they are read, so that a file
// that changes meanwhile is read again the next time.
func (c *Certificate) reload() error {
	var now [2]os.FileInfo
	var gone error
	for i, f := range []string{c.certFile, c.keyFile} {
		fi, err := os.Stat(f)
		if err != nil {
			gone = err
		} else {
			now[i] = fi
		}
	}
	if c.cert != nil && sameFile(c.seen[0], now[0]) && sameFile(c.seen[1], now[1]) {
		return nil
	}
	c.seen = now
	if gone != nil {
		return gone
	}
	cert, err := tls.LoadX509KeyPair(c.certFile, c.keyFile)
	if err != nil {
		return fmt.Errorf("%s with %s: %w", c.certFile, c.keyFile, err)
	}
	c.cert = &cert
	if err := outOfTime(cert.Leaf, time.Now()); err != nil {
		c.warn(fmt.Errorf("%s: %w", c.certFile, err))
	}
	return nil
}

// sameFile reports whether a file is as it was seen; nil: it could not be looked at.
func sameFile(a, b os.FileInfo) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	return os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
}

// outOfTime says that a certificate is not valid now.
func outOfTime(c *x509.Certificate, now time.Time) error {
	switch {
	case now.After(c.NotAfter):
		return fmt.Errorf("the certificate expired at %s", c.NotAfter.UTC().Format(time.RFC3339))
	case now.Before(c.NotBefore):
		return fmt.Errorf("the certificate is not valid before %s", c.NotBefore.UTC().Format(time.RFC3339))
	}
	return nil
}
