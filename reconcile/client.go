package reconcile

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/fence-sidecar/fence-sidecar/claims"
	"github.com/fence-sidecar/fence-sidecar/gateways"
	"github.com/fence-sidecar/fence-sidecar/gateways/tunnel"
)

// maxPage bounds one page of a lookup, in bytes.
const maxPage = 8 << 20

// Link is how lookups reach a gateway: as its calls do.
type Link struct {
	// Roots are the certificate authorities. nil: the system's.
	Roots *x509.CertPool
	// Certificate returns the client certificate that the gateway may ask for. nil: none.
	Certificate func(*tls.CertificateRequestInfo) (*tls.Certificate, error)
	// Via is the proxy to go through, by CONNECT, whatever the gateway's scheme. nil: none.
	Via *tunnel.Proxy
}

// dialTimeout bounds the connecting of a lookup, with the proxy's tunnel.
const dialTimeout = 10 * time.Second

// newClient makes a client for lookups. They are reads, so that a repeat below does no harm; redirects are not followed
// (a credential stays with its host), no proxy is taken from the environment.
func newClient(l Link) *http.Client {
	return &http.Client{
		Transport: &http.Transport{
			DialContext:         l.dial,
			TLSClientConfig:     &tls.Config{RootCAs: l.Roots, MinVersion: tls.VersionTLS12, GetClientCertificate: l.Certificate},
			TLSHandshakeTimeout: dialTimeout,
			DisableCompression:  true,
			MaxIdleConnsPerHost: 4,
			IdleConnTimeout:     30 * time.Second,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// dial connects to the gateway, or opens a tunnel to it. The proxy is not the transport's, which would show a proxy the requests
// to a plain gateway, and its credential with them.
func (l Link) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	var d net.Dialer
	if l.Via == nil {
		return d.DialContext(ctx, network, addr)
	}
	c, err := d.DialContext(ctx, network, l.Via.Addr())
	if err != nil {
		return nil, l.Via.Fail(err)
	}
	inside, err := l.Via.Open(ctx, c, addr)
	if err != nil {
		c.Close()
		return nil, err
	}
	return inside, nil
}

// get makes one lookup request.
func (r *Reconciler) get(ctx context.Context, g *gateways.Gateway, target string, header []claims.Field) (*claims.Answer, error) {
	u, err := url.Parse(strings.TrimSuffix(g.BaseURL, "/") + target)
	if err != nil {
		return nil, fmt.Errorf("lookup target of %s cannot be parsed", g.Name)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, fmt.Errorf("lookup target of %s cannot be requested", g.Name)
	}
	for _, f := range header {
		req.Header.Add(f.Name, f.Value)
	}
	resp, err := r.clients[g.Name].Do(req)
	if err != nil {
		return nil, fmt.Errorf("lookup at %s: %w", g.Name, plain(err))
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxPage+1))
	if err != nil {
		return nil, fmt.Errorf("lookup at %s: in the body: %w", g.Name, plain(err))
	}
	if len(body) > maxPage {
		return nil, fmt.Errorf("lookup at %s: answer over %d bytes", g.Name, maxPage)
	}
	a := &claims.Answer{Status: resp.StatusCode, Body: body}
	for name, vs := range resp.Header {
		for _, v := range vs {
			a.Header = append(a.Header, claims.Field{Name: name, Value: v})
		}
	}
	slices.SortStableFunc(a.Header, func(x, y claims.Field) int { return strings.Compare(x.Name, y.Name) })
	return a, nil
}
