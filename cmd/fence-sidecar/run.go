package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	stdlog "log"
	"log/slog"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fence-sidecar/fence-sidecar/claims"
	"github.com/fence-sidecar/fence-sidecar/claims/keys"
	"github.com/fence-sidecar/fence-sidecar/gateways"
	"github.com/fence-sidecar/fence-sidecar/proxy"
	"github.com/fence-sidecar/fence-sidecar/proxy/console"
	"github.com/fence-sidecar/fence-sidecar/reconcile"
)

type runCmd struct{ configFlag }

// Run serves until SIGTERM or SIGINT, then drains.
func (r runCmd) Run(ctx context.Context) error {
	c, err := loadConfig(r.Config)
	if err != nil {
		return err
	}
	return c.serve(ctx, false)
}

// serve is what a sidecar and a worker do.
func (c *Config) serve(ctx context.Context, worker bool) error {
	log := newLogger(c.Log)
	slog.SetDefault(log)
	stdlog.SetOutput(io.Discard) // net/http's client prints there what came unasked on an idle connection: bytes of answers
	p := &probes{}
	defer p.close()
	store, err := awaitStore(ctx, c, log, func() error { return p.start(c, log) })
	switch {
	case ctx.Err() != nil: // told to end while it waited
		return nil
	case err != nil:
		return fmt.Errorf("store: %w", err)
	}
	defer store.Close()
	ring, err := c.ring(store)
	if err != nil {
		return err
	}
	s, err := newSidecar(c, store, ring, log, worker)
	if err != nil {
		return err
	}
	if c.Keys.IsZero() {
		log.Warn("no keys are configured: the store's own are used, which lie beside what they protect (docs/keys.md)", "setting", "keys")
	}
	p.serve(s.telemetry())
	if err := p.start(c, log); err != nil {
		return err
	}
	return s.serve(ctx)
}

func newLogger(c LogConfig) *slog.Logger {
	var level slog.Level
	level.UnmarshalText([]byte(c.Level)) // checked with the configuration
	o := &slog.HandlerOptions{Level: level}
	if c.Format == "text" {
		return slog.New(slog.NewTextHandler(os.Stderr, o))
	}
	return slog.New(slog.NewJSONHandler(os.Stderr, o))
}

// sidecar is one process's parts, wired.
type sidecar struct {
	cfg        *Config
	log        *slog.Logger
	store      claims.Backend
	ring       *keys.Ring
	registry   *gateways.Registry
	metrics    *prometheus.Registry
	instance   *claims.Instance
	fence      *claims.Fence
	proxy      *proxy.Proxy
	egress     map[string]*proxy.Egress
	reconciler *reconcile.Reconciler
	intake     *reconcile.Intake    // nil: the process is no worker
	events     *reconcile.Deliverer // nil: none are delivered
	console    *console.Console
	health     health
}

// newSidecar wires a process. A worker sends nothing: it has neither a proxy nor a way to send.
func newSidecar(c *Config, plain claims.Backend, ring *keys.Ring, log *slog.Logger, worker bool) (*sidecar, error) {
	store := keys.Sealed(plain, ring)
	effects, _ := plain.(reconcile.Effects)
	s := &sidecar{cfg: c, log: log, store: store, ring: ring, metrics: newRegistry(), egress: map[string]*proxy.Egress{}}
	var err error
	if s.registry, err = c.registry(); err != nil {
		return nil, err
	}
	links := map[string]reconcile.Link{}
	for _, g := range s.registry.All() {
		if links[g.Name], err = linkTo(g, log); err != nil {
			return nil, err
		}
		warnSecrets(log, g)
		if worker {
			continue
		}
		if s.egress[g.Name], err = egressTo(g, links[g.Name]); err != nil {
			return nil, fmt.Errorf("gateway %s: %w", g.Name, err)
		}
	}
	tokens := reconcile.NewTokens(s.registry, links, nil)
	for _, g := range s.registry.All() {
		g.Mint = tokens.Mint(g)
	}
	times := claims.LeaseTimes{TTL: c.Lease.TTL, Margin: c.Lease.Margin}
	host, _ := os.Hostname()
	s.instance = claims.NewInstance(store, claims.SystemClock, times, fmt.Sprintf("%s/%d", host, os.Getpid()), log)
	s.instance.OnTake = s.announce
	s.fence = claims.New(claims.Config{
		Store: store, Leases: store, Keys: ring, Instance: s.instance, Clock: claims.SystemClock, Times: times, Log: log,
		Reconcile: func(ctx context.Context, k claims.Key) error { return s.reconciler.Inline(ctx, k) },
		Twin:      newTwin(s.metrics, log),
		Happened:  func() { s.console.Nudge() },
	})
	m := newReconcileMetrics(s.metrics)
	s.reconciler = reconcile.New(reconcile.Config{
		Store: store, Realm: store.Realm(), Gateways: s.registry, Tenants: c.Tenants, Links: links, GiveUp: s.fence.GiveUpOwn, Log: log, Tokens: tokens,
		Effects: effects, KeepEffects: c.Effects.Retention, Interval: c.Reconcile.Interval, Batch: c.Reconcile.Batch, LookupTimeout: c.Reconcile.LookupTimeout,
		Verdict: m.verdict, Settled: func(r claims.Record) { m.settled(r); s.console.Nudge() },
	})
	if s.events, err = s.deliverer(); err != nil {
		return nil, err
	}
	if worker {
		s.intake = s.newIntake()
	} else if s.proxy, err = s.newProxy(); err != nil {
		return nil, err
	}
	s.console = console.New(console.Config{
		Leases: store, Lister: store, Confirm: store.Confirm, Clock: claims.SystemClock, Times: times, MaxTTL: c.Lease.MaxTTL, Tenants: c.Tenants,
		Calls: store, Journal: store, Gateways: s.registry, Attempts: c.Attempts, Operators: c.operators(log),
		Draining: s.health.draining.Load, Log: log, Metrics: console.NewMetrics(s.metrics),
	})
	registerInstance(s.metrics, s)
	return s, nil
}

func (s *sidecar) newProxy() (*proxy.Proxy, error) {
	c := s.cfg
	if c.ExternalTokens == externalOn {
		s.log.Warn("external tokens are served: the store cannot see a hand-over made elsewhere, so that an earlier holder may still charge (A2)", "setting", "externalTokens: "+externalOn)
	}
	return proxy.New(proxy.Config{
		Fence: s.fence, Realm: s.store.Realm(), Gateways: s.registry, Egress: s.egress, Tenants: c.Tenants,
		TurnedDown: func(gateway, account, value string) {
			name, _, _ := strings.Cut(account, "/")
			s.reconciler.Tokens.Drop(gateway, name, strings.TrimPrefix(value, "Bearer "))
		},
		MaxAttempts: c.Attempts, Wait: c.Wait, Breaker: proxy.BreakerConfig{Failures: c.Breaker.Failures, Open: c.Breaker.Open},
		ExternalTokens: c.ExternalTokens == externalOn, Shadow: c.Mode == modeShadow, Metrics: proxy.NewMetrics(s.metrics), Log: s.log,
	})
}

// warnSecrets says at the start which secret cannot be read: calls of its account will be refused until it can.
func warnSecrets(log *slog.Logger, g *gateways.Gateway) {
	for _, a := range g.Accounts {
		secrets := map[string]gateways.Secret{"credential": a.Credential, "lookupCredential": a.LookupCredential}
		if o := a.OAuth2; o != nil {
			secrets["oauth2.clientID"], secrets["oauth2.clientSecret"] = o.ClientID, o.ClientSecret
		}
		for name, s := range secrets {
			if s.IsZero() {
				continue
			}
			if _, err := s.Value(); err != nil {
				log.Warn("a secret cannot be read", "gateway", g.Name, "account", a.Name, "which", name, "error", err)
			}
		}
	}
}

// listening is one listener and what serves it.
type listening struct {
	name   string
	l      net.Listener
	server *http.Server
}

// serve runs everything and, when ctx ends, drains: no new fenced call is taken, those in flight end and are recorded,
// the listeners close last.
func (s *sidecar) serve(ctx context.Context) error {
	ls, err := s.listen()
	if err != nil {
		return err
	}
	errs := make(chan error, len(ls)+1)
	var servers sync.WaitGroup
	for _, l := range ls {
		servers.Go(func() {
			if err := l.server.Serve(l.l); !errors.Is(err, http.ErrServerClosed) {
				errs <- fmt.Errorf("listener %s: %w", l.name, err)
			}
		})
		s.log.Info("listening", "for", l.name, "address", l.l.Addr().String())
	}
	work, stop := context.WithCancel(context.WithoutCancel(ctx))
	var workers sync.WaitGroup
	workers.Go(func() {
		if err := s.keepLease(work); err != nil {
			errs <- err
		}
	})
	if s.cfg.Reconcile.Sweeper == sweeperOn {
		workers.Go(func() { s.reconciler.Run(work) })
	}
	if s.intake != nil {
		workers.Go(func() { s.intake.Run(work) })
	}
	if s.events != nil {
		workers.Go(func() { s.events.Run(work) })
	}
	workers.Go(func() { s.probeLinks(work) })
	workers.Go(func() { s.warnShadow(work) })
	select {
	case <-ctx.Done():
	case err = <-errs:
	}
	err = errors.Join(err, s.drain(ls))
	stop()
	workers.Wait()
	servers.Wait()
	return errors.Join(err, s.release())
}

// keepLease takes the instance's lease, trying until it is granted, and keeps it. Its error ends the process: others cannot
// read what it would write.
func (s *sidecar) keepLease(ctx context.Context) error {
	for began := time.Now(); ; {
		c, cancel := context.WithTimeout(ctx, 5*time.Second)
		err := s.instance.Take(c)
		cancel()
		if err == nil {
			break
		}
		if s.hopeless(err, time.Since(began)) {
			return err
		}
		s.log.Warn("instance lease not taken yet", "error", err)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(time.Second):
		}
	}
	s.health.started.Store(true)
	s.log.Info("ready", "instance", s.instance.Guard().Scope, "version", buildVersion())
	s.instance.Run(ctx)
	return nil
}

// drain lets the calls in flight end; at most the longest attempt, or what the configuration says.
func (s *sidecar) drain(ls []listening) error {
	s.health.draining.Store(true)
	limit := s.cfg.Drain
	if limit == 0 {
		limit = s.longestAttempt() + 5*time.Second
	}
	s.log.Info("draining", "in_flight", s.fence.InFlight(), "at_most", limit.String())
	end := time.Now().Add(limit)
	ctx, cancel := context.WithDeadline(context.Background(), end)
	defer cancel()
	err := s.fence.Drain(ctx)
	s.console.Close() // its watches would keep the listener open
	// Requests that pass without a fence are no calls in flight: the listeners wait for them, with what is left of the time.
	last, cancelLast := context.WithTimeout(context.Background(), max(time.Until(end), 5*time.Second))
	defer cancelLast()
	var closing sync.WaitGroup
	for _, l := range ls {
		closing.Go(func() {
			if e := l.server.Shutdown(last); e != nil {
				l.server.Close()
			}
		})
	}
	closing.Wait()
	for _, e := range s.egress {
		e.Close()
	}
	return err
}

func (s *sidecar) longestAttempt() (longest time.Duration) {
	for _, g := range s.registry.All() {
		longest = max(longest, g.AttemptTimeout)
		for _, r := range g.Routes {
			longest = max(longest, r.AttemptTimeout)
		}
	}
	return longest
}

// release gives the instance's lease back. A store that is away costs nothing: the lease expires.
func (s *sidecar) release() error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if err := s.instance.Close(ctx); err != nil && !claims.Refused(err) {
		s.log.Warn("instance lease not released; it expires", "error", err)
	}
	s.log.Info("stopped")
	return nil
}

// listen opens every listener before anything is served.
func (s *sidecar) listen() (ls []listening, err error) {
	defer func() {
		if err != nil {
			for _, l := range ls {
				l.l.Close()
			}
		}
	}()
	if s.intake != nil {
		return s.listenWebhooks()
	}
	data := func(name, network, addr string, h http.Handler) error {
		l, err := net.Listen(network, addr)
		if err != nil {
			return fmt.Errorf("listen for %s: %w", name, err)
		}
		ls = append(ls, listening{name, proxy.Listen(l, 0), proxy.NewServer(s.withCalls(h), proxy.ServerConfig{Log: s.log})})
		return nil
	}
	if a := s.cfg.Listen.Any; a != "" {
		if err := data("any gateway", "tcp", a, s.proxy.Any()); err != nil {
			return ls, err
		}
	}
	if p := s.cfg.Listen.Socket; p != "" {
		if err := removeStale(p); err != nil {
			return ls, err
		}
		if err := data("any gateway", "unix", p, s.proxy.Any()); err != nil {
			return ls, err
		}
	}
	for i, g := range s.registry.All() {
		if a := s.cfg.Gateways[i].Listen; a != "" {
			if err := data(g.Name, "tcp", a, s.proxy.For(g)); err != nil {
				return ls, err
			}
		}
	}
	if a := s.cfg.Listen.Control; a != "" {
		l, err := net.Listen("tcp", a)
		if err != nil {
			return ls, fmt.Errorf("listen for control: %w", err)
		}
		ls = append(ls, listening{"control", l, ownServer(s.console.Handler(), s.log)})
	}
	return ls, nil
}

// withCalls serves how a call stands beside the calls themselves, for applications that know a data listener only.
func (s *sidecar) withCalls(data http.Handler) http.Handler {
	byKey := s.console.CallByKey()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == console.CallByKeyPath {
			byKey.ServeHTTP(w, r)
			return
		}
		data.ServeHTTP(w, r)
	})
}

// removeStale removes a Unix socket that a killed process left; one that is served is left alone.
func removeStale(path string) error {
	if c, err := net.Dial("unix", path); err == nil {
		c.Close()
		return fmt.Errorf("listen.socket: %s is served by another process", path)
	}
	st, err := os.Lstat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err != nil:
		return err
	case st.Mode()&os.ModeSocket == 0:
		return fmt.Errorf("listen.socket: %s is there and no socket", path)
	}
	return os.Remove(path)
}
