package main

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/fence-sidecar/fence-sidecar/claims"
)

// health is what the probes tell.
type health struct {
	started  atomic.Bool // the instance's lease was taken: calls can be claimed
	draining atomic.Bool
}

// telemetry serves /metrics and the probes. Liveness knows nothing of the store, so that an outage of it does not restart
// every pod; readiness says whether a call could be claimed now (field report R60).
func (s *sidecar) telemetry() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /livez", probe(func() string { return "" }))
	mux.HandleFunc("GET /startupz", probe(func() string {
		if !s.health.started.Load() {
			return "the instance lease is not taken yet"
		}
		return ""
	}))
	mux.HandleFunc("GET /readyz", probe(s.unready))
	mux.Handle("GET /metrics", promhttp.HandlerFor(s.metrics, promhttp.HandlerOpts{Registry: s.metrics}))
	return mux
}

// probe answers 200, or 503 with what check says.
func probe(check func() string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		if why := check(); why != "" {
			w.WriteHeader(http.StatusServiceUnavailable)
			w.Write([]byte(why + "\n"))
			return
		}
		w.Write([]byte("ok\n"))
	}
}

func (s *sidecar) unready() string {
	switch {
	case s.health.draining.Load():
		return "draining"
	case s.instance.Left() <= 0:
		return "the instance lease is not held: the store does not answer, or the lease was lost"
	}
	return ""
}

func newRegistry() *prometheus.Registry {
	r := prometheus.NewRegistry()
	r.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	info := prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "fence_build_info", Help: "Always 1."}, []string{"version"})
	info.WithLabelValues(buildVersion()).Set(1)
	r.MustRegister(info)
	return r
}

// registerInstance adds what is read from the process when it is scraped.
func registerInstance(r *prometheus.Registry, s *sidecar) {
	r.MustRegister(
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "fence_lease_remaining_seconds", Help: "How long the process may still trust its own lease; 0: not at all.",
		}, func() float64 { return max(s.instance.Left(), 0).Seconds() }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "fence_calls_in_flight", Help: "Fenced requests being worked on by this process.",
		}, func() float64 { return float64(s.fence.InFlight()) }),
		&doubtCollector{s: s},
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "fence_shadow_mode", Help: "1 where the process runs in shadow mode: it refuses nothing and protects nothing.",
		}, func() float64 {
			if s.cfg.Mode == modeShadow {
				return 1
			}
			return 0
		}),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{
			Name: "fence_external_tokens_enabled", Help: "1 where applications may present tokens of their own, without double-charge protection.",
		}, func() float64 {
			if s.cfg.ExternalTokens == externalOn {
				return 1
			}
			return 0
		}),
	)
}

// doubtCollector counts the store's calls that are not at rest; the same on every sidecar of one store.
type doubtCollector struct{ s *sidecar }

var (
	doubtDesc  = prometheus.NewDesc("fence_calls_unsettled", "Calls in the store by state, at most 1000 each: pending, unknown, review.", []string{"state"}, nil)
	oldestDesc = prometheus.NewDesc("fence_doubt_oldest_seconds", "Age of the oldest call that is unknown or in review, among those counted.", nil, nil)
)

// Describe implements prometheus.Collector.
func (d *doubtCollector) Describe(ch chan<- *prometheus.Desc) { ch <- doubtDesc; ch <- oldestDesc }

// Collect implements prometheus.Collector. A store that does not answer leaves the series out.
func (d *doubtCollector) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	oldest := time.Duration(0)
	for _, st := range []claims.State{claims.StatePending, claims.StateUnknown, claims.StateReview} {
		rs, err := d.s.store.List(ctx, "", []claims.State{st}, 1000)
		if err != nil && !errors.Is(err, claims.ErrUnreadable) {
			return
		}
		ch <- prometheus.MustNewConstMetric(doubtDesc, prometheus.GaugeValue, float64(len(rs)), string(st))
		for i := range rs {
			if st != claims.StatePending {
				oldest = max(oldest, time.Since(rs[i].FirstStarted.Wall))
			}
		}
	}
	ch <- prometheus.MustNewConstMetric(oldestDesc, prometheus.GaugeValue, oldest.Seconds())
}

// reconcileMetrics are the sweeper's.
type reconcileMetrics struct {
	verdicts *prometheus.CounterVec
	moved    *prometheus.CounterVec
}

func newReconcileMetrics(r *prometheus.Registry) *reconcileMetrics {
	m := &reconcileMetrics{
		verdicts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fence_lookups_total", Help: "Lookups by what they found.",
		}, []string{"gateway", "found"}),
		moved: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fence_reconciled_total", Help: "Calls that a verdict moved, by the state they came to.",
		}, []string{"gateway", "state"}),
	}
	r.MustRegister(m.verdicts, m.moved)
	return m
}

func (m *reconcileMetrics) verdict(gateway, _ string, kind claims.FindingKind) {
	m.verdicts.WithLabelValues(gateway, kind.String()).Inc()
}

func (m *reconcileMetrics) settled(r claims.Record) {
	m.moved.WithLabelValues(r.Facts.Gateway, string(r.State)).Inc()
}

// newTwin counts, and logs, calls whose request equals that of another call in doubt: two keys for what is perhaps one charge.
func newTwin(r *prometheus.Registry, log *slog.Logger) func(call, inDoubt claims.Key) {
	n := prometheus.NewCounter(prometheus.CounterOpts{
		Name: "fence_twin_calls_total", Help: "Calls whose request equals that of another call which was in doubt in this process.",
	})
	r.MustRegister(n)
	return func(call, inDoubt claims.Key) {
		n.Inc()
		log.Warn("the same request is in doubt under another call key: if both are one charge, it is made twice",
			"tenant", call.Tenant, "call", call.Call, "in_doubt", inDoubt.Call)
	}
}
