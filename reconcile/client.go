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
)

// maxPage bounds one page of a lookup, in bytes.
const maxPage = 8 << 20

// newClient makes a client for lookups. They are reads, so that a repeat below does no harm; redirects are not followed
// (a credential stays with its host), no proxy is taken from the environment.
func newClient(roots *x509.CertPool) *http.Client {
	return &http.Client{
		Transport: &http.Transport{
			DialContext:         (&net.Dialer{Timeout: 10 * time.Second}).DialContext,
			TLSClientConfig:     &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
			TLSHandshakeTimeout: 10 * time.Second,
			DisableCompression:  true,
			MaxIdleConnsPerHost: 4,
			IdleConnTimeout:     30 * time.Second,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
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
		return nil, fmt.Errorf("lookup at %s: answer cut: %w", g.Name, plain(err))
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

// plain takes the URL, which may hold what belongs in no log, off a client's error.
func plain(err error) error {
	if u, ok := err.(*url.Error); ok {
		return u.Err
	}
	return err
}
