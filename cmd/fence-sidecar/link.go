package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"sync"
	"time"

	"github.com/fence-sidecar/fence-sidecar/gateways"
	"github.com/fence-sidecar/fence-sidecar/gateways/tunnel"
	"github.com/fence-sidecar/fence-sidecar/proxy"
	"github.com/fence-sidecar/fence-sidecar/reconcile"
)

// linkTo reads what a gateway's sends and lookups need to reach it: certificate authorities, client certificate, proxy.
func linkTo(g *gateways.Gateway, log *slog.Logger) (l reconcile.Link, err error) {
	if l.Roots, err = gateways.LoadRoots(g.CABundle); err != nil {
		return l, fmt.Errorf("gateway %s: caBundle: %w", g.Name, err)
	}
	if g.ClientCert != "" {
		c, err := gateways.LoadCertificate(g.ClientCert, g.ClientKey, func(err error) {
			log.Warn("client certificate", "gateway", g.Name, "error", err)
		})
		if err != nil {
			return l, fmt.Errorf("gateway %s: clientCert: %w", g.Name, err)
		}
		l.Certificate = c.Get
	}
	if l.Via, err = proxyTo(g); err != nil {
		return l, fmt.Errorf("gateway %s: egressProxy.%w", g.Name, err)
	}
	if l.Via != nil && l.Via.Credential != nil {
		if _, err := l.Via.Credential(); err != nil {
			log.Warn("a secret cannot be read", "gateway", g.Name, "which", "egressProxy.credential", "error", err)
		}
	}
	return l, nil
}

// proxyTo is the gateway's proxy, nil without one.
func proxyTo(g *gateways.Gateway) (*tunnel.Proxy, error) {
	p := g.EgressProxy
	if p == nil {
		return nil, nil
	}
	u, err := url.Parse(p.URL)
	if err != nil {
		return nil, errors.New("url: cannot be parsed") // the error would repeat it
	}
	t := &tunnel.Proxy{URL: u}
	if t.RootCAs, err = gateways.LoadRoots(p.CABundle); err != nil {
		return nil, fmt.Errorf("caBundle: %w", err)
	}
	if !p.Credential.IsZero() {
		t.Credential = p.Credential.Value
	}
	return t, t.Check()
}

// egressTo makes the sender of a gateway's calls.
func egressTo(g *gateways.Gateway, l reconcile.Link) (*proxy.Egress, error) {
	base, err := url.Parse(g.BaseURL)
	if err != nil {
		return nil, fmt.Errorf("baseURL: %w", err)
	}
	return proxy.NewEgress(proxy.EgressConfig{
		Base: base, RootCAs: l.Roots, Certificate: l.Certificate, Via: l.Via, AnswerLimit: g.AnswerLimit,
	})
}

// probeLinks connects once to every gateway behind a proxy or with a client certificate and says which of them turn that down:
// calls would come to nothing there, or be in doubt. It passes no byte of a request.
func (s *sidecar) probeLinks(ctx context.Context) {
	var probes sync.WaitGroup
	defer probes.Wait()
	for _, g := range s.registry.All() {
		egress := s.egress[g.Name]
		if egress == nil || g.EgressProxy == nil && g.ClientCert == "" {
			continue
		}
		probes.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
			defer cancel()
			if err := egress.Probe(ctx); err != nil && ctx.Err() != context.Canceled {
				s.log.Warn("the gateway cannot be reached as configured", "gateway", g.Name, "error", err)
			}
		})
	}
}
