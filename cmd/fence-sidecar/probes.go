package main

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"time"
)

// probes is the telemetry listener. Where the store does not answer at the start it is there before the store is, so that an
// outage is told by /startupz and /readyz, and does not look like a dead process.
type probes struct {
	server  *http.Server
	handler atomic.Value // of http.HandlerFunc
	done    chan struct{}
}

// start listens, if the configuration says so and it does not yet.
func (p *probes) start(c *Config, log *slog.Logger) error {
	if c.Listen.Telemetry == "" || p.server != nil {
		return nil
	}
	l, err := net.Listen("tcp", c.Listen.Telemetry)
	if err != nil {
		return fmt.Errorf("listen for telemetry: %w", err)
	}
	if p.handler.Load() == nil {
		p.serve(waiting())
	}
	p.server = ownServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.handler.Load().(http.HandlerFunc)(w, r)
	}), log)
	p.done = make(chan struct{})
	go func() {
		defer close(p.done)
		if err := p.server.Serve(l); err != http.ErrServerClosed {
			log.Error("the telemetry listener ended", "error", err)
		}
	}()
	log.Info("listening", "for", "telemetry", "address", l.Addr().String())
	return nil
}

// serve changes what is answered from now on.
func (p *probes) serve(h http.Handler) { p.handler.Store(http.HandlerFunc(h.ServeHTTP)) }

func (p *probes) close() {
	if p.server == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	if p.server.Shutdown(ctx) != nil {
		p.server.Close()
	}
	<-p.done
}

// waiting answers while the store is waited for.
func waiting() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", probe(func() string { return "" }))
	for _, path := range []string{"GET /startupz", "GET /readyz"} {
		mux.HandleFunc(path, probe(func() string { return "the store does not answer yet" }))
	}
	return mux
}

// ownServer serves a listener that carries no calls.
func ownServer(h http.Handler, log *slog.Logger) *http.Server {
	return &http.Server{
		Handler: h, ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute, ErrorLog: slog.NewLogLogger(log.Handler(), slog.LevelDebug),
	}
}
