package proxy

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/sony/gobreaker/v2"

	"github.com/fence-sidecar/fence-sidecar/claims"
)

// Metrics are the proxy's. Every label's values come from a closed list (configured gateways and routes, our own words):
// no key, path, host or method of a request becomes one (field report R70).
type Metrics struct {
	calls    *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
	attempts *prometheus.CounterVec
	refusals *prometheus.CounterVec
	unfenced *prometheus.CounterVec
	noToken  *prometheus.CounterVec
	external *prometheus.CounterVec
	state    *prometheus.GaugeVec
	shadow   *prometheus.CounterVec
	repeats  *prometheus.CounterVec
}

// NewMetrics registers the proxy's metrics.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	m := &Metrics{
		calls: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fence_calls_total", Help: "Fenced requests by what is known of their call and where their answer came from.",
		}, []string{"gateway", "route", "outcome", "result"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "fence_call_seconds", Help: "Time from a fenced request to its answer.",
			Buckets: []float64{.005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 120},
		}, []string{"gateway"}),
		attempts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fence_attempts_total", Help: "Attempts by how they ended; cause \"answered\" has a complete answer.",
		}, []string{"gateway", "cause", "wrote"}),
		refusals: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fence_refusals_total", Help: "Requests that got a problem answer, by its type.",
		}, []string{"gateway", "reason"}),
		unfenced: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fence_unfenced_total", Help: "Requests that passed without a fence.",
		}, []string{"gateway"}),
		noToken: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fence_calls_without_token_total", Help: "Fenced requests without an application's token: they have no hand-over protection.",
		}, []string{"gateway"}),
		external: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fence_calls_external_token_total", Help: "Fenced requests under a token that the application counts itself: without double-charge protection at a hand-over.",
		}, []string{"gateway"}),
		state: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "fence_breaker_state", Help: "The gateway's circuit breaker: 0 closed, 1 half-open, 2 open.",
		}, []string{"gateway"}),
	}
	m.shadow = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "fence_shadow_requests_total", Help: "Requests that passed in shadow mode, by what enforcing would have done.",
	}, []string{"gateway", "would"})
	m.repeats = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "fence_shadow_repeats_total", Help: "Requests in shadow mode that enforcing would have replayed, by what the gateway made of them.",
	}, []string{"gateway", "answer"})
	reg.MustRegister(m.shadow, m.repeats)
	reg.MustRegister(m.calls, m.seconds, m.attempts, m.refusals, m.unfenced, m.noToken, m.external, m.state)
	return m
}

func (m *Metrics) attempt(gateway string, ex *Exchange) {
	if m == nil {
		return
	}
	cause, wrote := ex.Cause, "no"
	if cause == "" {
		cause = "answered"
	}
	if ex.Wrote {
		wrote = "yes"
	}
	m.attempts.WithLabelValues(gateway, cause, wrote).Inc()
}

func (m *Metrics) breaker(gateway string, to gobreaker.State) {
	if m != nil {
		m.state.WithLabelValues(gateway).Set(float64(to))
	}
}

// done counts a finished request.
func (m *Metrics) done(x *exchange) {
	if m == nil {
		return
	}
	gateway, route := "none", "none"
	if x.gateway != nil {
		gateway = x.gateway.Name
	}
	if x.match.Route != nil {
		route = x.match.Route.Name
	}
	if x.p.Shadow {
		m.shadow.WithLabelValues(gateway, x.would).Inc()
		if x.repeat != "" {
			m.repeats.WithLabelValues(gateway, x.repeat).Inc()
		}
	}
	switch x.kind {
	case "passed":
		m.unfenced.WithLabelValues(gateway).Inc()
	case "fenced":
		m.calls.WithLabelValues(gateway, route, x.result.Outcome.String(), string(x.result.Source)).Inc()
		m.seconds.WithLabelValues(gateway).Observe(time.Since(x.began).Seconds())
		if x.tags.Token.IsZero() {
			m.noToken.WithLabelValues(gateway).Inc()
		}
		if x.tags.Token.External() {
			m.external.WithLabelValues(gateway).Inc()
		}
	}
	if x.result.Refusal != nil {
		m.refusals.WithLabelValues(gateway, string(reasonLabel(x.result.Refusal.Reason))).Inc()
	}
}

// reasonLabel keeps the label's values closed.
func reasonLabel(r claims.Reason) claims.Reason {
	if _, ok := problems[r]; ok {
		return r
	}
	return "other"
}
