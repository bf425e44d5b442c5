package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fence-sidecar/fence-sidecar/gateways"
	"github.com/fence-sidecar/fence-sidecar/reconcile"
)

type reconcileCmd struct{ configFlag }

// Run serves as a worker until SIGTERM or SIGINT: it sweeps, takes in what gateways tell and delivers events. It sends no call.
func (r reconcileCmd) Run(ctx context.Context) error {
	c, err := loadConfig(r.Config)
	if err != nil {
		return err
	}
	if c.Reconcile.Sweeper == sweeperOff {
		return c.bad("reconcile.sweeper", sweeperOff, sweeperOn+" for this command: sweeping is what it is for")
	}
	if c.Mode == modeShadow {
		return c.bad("mode", c.Mode, modeEnforce+" for this command: what passes in shadow mode is looked up by nobody")
	}
	return c.serve(ctx, true)
}

// newIntake makes what takes in gateways' notices.
func (s *sidecar) newIntake() *reconcile.Intake {
	results := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "fence_webhook_notices_total", Help: "Notices that gateways sent, by what became of them.",
	}, []string{"gateway", "result"})
	s.metrics.MustRegister(results)
	for _, g := range s.registry.All() {
		if g.Webhook == nil {
			continue
		}
		for _, result := range reconcile.NoticeResults {
			results.WithLabelValues(g.Name, result)
		}
	}
	return reconcile.NewIntake(reconcile.IntakeConfig{
		Store: s.store, Finder: s.store, Inbox: s.store, Reconciler: s.reconciler, PublicURL: s.cfg.Webhooks.PublicURL, Log: s.log,
		Result: func(gateway, result string) { results.WithLabelValues(gateway, result).Inc() },
	})
}

// listenWebhooks opens the listener of a worker, if one is configured.
func (s *sidecar) listenWebhooks() ([]listening, error) {
	addr, w := s.cfg.Listen.Webhooks, s.cfg.Webhooks
	if addr == "" {
		return nil, nil
	}
	s.warnWebhooks()
	var secure *tls.Config
	if w.Cert != "" {
		cert, err := gateways.LoadCertificate(w.Cert, w.Key, func(err error) { s.log.Warn("certificate of webhooks", "error", err) })
		if err != nil {
			return nil, fmt.Errorf("webhooks.cert: %w", err)
		}
		secure = &tls.Config{MinVersion: tls.VersionTLS12, GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return cert.Get(nil) }}
	}
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("listen for webhooks: %w", err)
	}
	if secure != nil {
		l = tls.NewListener(l, secure)
	}
	return []listening{{"webhooks", l, publicServer(s.intake, s.log)}}, nil
}

// publicServer serves a listener that anybody may reach.
func publicServer(h http.Handler, log *slog.Logger) *http.Server {
	return &http.Server{
		Handler: h, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 15 * time.Second, WriteTimeout: time.Minute, IdleTimeout: 2 * time.Minute,
		MaxHeaderBytes: 64 << 10, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
}

// warnWebhooks says at the start what keeps notices from being taken.
func (s *sidecar) warnWebhooks() {
	if host, _, _ := net.SplitHostPort(s.cfg.Listen.Webhooks); s.cfg.Webhooks.Cert == "" && !isLoopback(host) {
		s.log.Warn("webhooks are taken without TLS: put something before it that has it, or set webhooks.cert", "setting", "listen.webhooks")
	}
	for _, g := range s.registry.All() {
		if g.Webhook == nil {
			continue
		}
		if sig := g.Webhook.Signature; sig != nil && strings.Contains(sig.Signed, "{url}") && s.cfg.Webhooks.PublicURL == "" {
			s.log.Warn("the gateway signs its notices over the address that it knows: set webhooks.publicURL", "gateway", g.Name)
		}
		for i := range g.Accounts {
			if err := g.CheckWebhookSecrets(&g.Accounts[i]); err != nil {
				s.log.Warn("notices of an account cannot all be verified", "gateway", g.Name, "account", g.Accounts[i].Name, "error", err)
			}
		}
	}
}
