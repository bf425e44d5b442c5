package main

import (
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fence-sidecar/fence-sidecar/gateways"
	"github.com/fence-sidecar/fence-sidecar/reconcile"
)

// EventsConfig says where events are delivered to, and how they are signed.
type EventsConfig struct {
	URL      string            `yaml:"url"`
	Secrets  []gateways.Secret `yaml:"secrets"`
	CABundle string            `yaml:"caBundle"`
}

// maxSecrets bounds the secrets that a delivery is signed with: the old and the new one, and room for a mistake.
const maxSecrets = 4

func (c *Config) checkEvents() error {
	e := &c.Events
	if e.URL == "" {
		if len(e.Secrets) > 0 || e.CABundle != "" {
			return c.bad("events.url", "", "where events are delivered, if events are configured")
		}
		return nil
	}
	u, err := url.Parse(e.URL)
	switch {
	case err != nil:
		return c.errorf("events.url: it cannot be parsed: a URL such as https://orders.internal/fence-events")
	case u.User != nil:
		return c.errorf("events.url: a user in it is not allowed: deliveries are signed, see events.secrets")
	case u.Hostname() == "" || u.Fragment != "" || u.Scheme != "https" && u.Scheme != "http":
		return c.bad("events.url", u.Redacted(), "https://host[:port][/path]")
	case u.Scheme == "http" && !isLoopback(u.Hostname()):
		return c.bad("events.url", u.Redacted(), "https, but for a loopback address")
	case e.CABundle != "" && u.Scheme != "https":
		return c.bad("events.caBundle", e.CABundle, "a url with https, as only TLS needs it")
	case len(e.Secrets) < 1 || len(e.Secrets) > maxSecrets:
		return c.bad("events.secrets", len(e.Secrets), fmt.Sprintf("1 to %d secrets", maxSecrets))
	}
	for i, s := range e.Secrets {
		if (s.Env == "") == (s.File == "") {
			return c.bad(fmt.Sprintf("events.secrets[%d]", i), strings.Trim(s.Env+" "+s.File, " "), "either env or file, not both")
		}
	}
	return nil
}

func isLoopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}

// warn says at the start which secret cannot be used: it is read anew for each delivery.
func (e EventsConfig) warn(log *slog.Logger) {
	for _, s := range e.Secrets {
		if err := reconcile.CheckWebhookSecret(s); err != nil {
			log.Warn("a secret of events cannot be used: nothing is signed with it", "error", err)
		}
	}
}

// deliverer makes what delivers events; nil where none is configured.
func (s *sidecar) deliverer() (*reconcile.Deliverer, error) {
	e := s.cfg.Events
	if e.URL == "" {
		return nil, nil
	}
	pool, err := gateways.LoadRoots(e.CABundle)
	if err != nil {
		return nil, fmt.Errorf("events.caBundle: %w", err)
	}
	e.warn(s.log)
	delivered := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "fence_events_delivered_total", Help: "Deliveries of events by what became of them.",
	}, []string{"result"})
	s.metrics.MustRegister(delivered)
	return reconcile.NewDeliverer(reconcile.DelivererConfig{
		Journal: s.store, Confirm: s.store.Confirm, Realm: s.store.Realm(), Tenants: s.cfg.Tenants,
		URL: e.URL, Secrets: e.Secrets, Roots: pool, Log: s.log,
		Result: func(result string) { delivered.WithLabelValues(result).Inc() },
	}), nil
}
