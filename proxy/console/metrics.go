package console

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/fence-sidecar/fence-sidecar/claims"
)

// Metrics are the control listener's. No scope, holder, token, call or operator becomes a label: every label's values come from
// a closed list.
type Metrics struct {
	leases   *prometheus.CounterVec
	refusals *prometheus.CounterVec
	watches  prometheus.Gauge

	callRefusals *prometheus.CounterVec
	words        *prometheus.CounterVec
	notices      *prometheus.CounterVec
	streams      prometheus.Gauge
}

// NewMetrics registers the control listener's metrics.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	m := &Metrics{
		leases: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fence_leases_total", Help: "What became of applications' leases through this process: acquired, confirmed, released, finished, cancelled, lost.",
		}, []string{"event"}),
		refusals: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fence_lease_refusals_total", Help: "Requests to the lease API that got a problem answer, by its type; \"http\" for those of HTTP itself.",
		}, []string{"reason"}),
		watches: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "fence_lease_watches", Help: "Watch streams that are open.",
		}),
		callRefusals: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fence_calls_api_refusals_total", Help: "Requests to the calls API that got a problem answer, by its type; \"http\" for those of HTTP itself.",
		}, []string{"reason"}),
		words: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fence_calls_resolved_total", Help: "Words of operators that were applied to calls in review: executed, not-executed, look-again.",
		}, []string{"word"}),
		notices: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "fence_notices_total", Help: "Notices of a call's outcome that came through the calls API, by what became of them: taken, known, noted, conflict, early, refused, orphan.",
		}, []string{"result"}),
		streams: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "fence_event_streams", Help: "Streams of events that are open.",
		}),
	}
	reg.MustRegister(m.leases, m.refusals, m.watches, m.callRefusals, m.words, m.notices, m.streams)
	for _, result := range []string{heardTaken, heardKnown, heardNoted, heardConflict, heardEarly, heardRefused, heardOrphan} {
		m.notices.WithLabelValues(result)
	}
	return m
}

// The values of the label event.
const (
	eventAcquired  = "acquired"
	eventConfirmed = "confirmed" // renewed, by confirm or by a pong
	eventReleased  = "released"
	eventFinished  = "finished"
	eventCancelled = "cancelled"
	eventLost      = "lost" // told on a watch
)

// The values of the label result; the first four are claims.Hearing's.
const (
	heardTaken    = "taken"
	heardKnown    = "known"
	heardNoted    = "noted"
	heardConflict = "conflict"
	heardEarly    = "early"
	heardRefused  = "refused"
	heardOrphan   = "orphan"
)

func (m *Metrics) count(event string) {
	if m != nil {
		m.leases.WithLabelValues(event).Inc()
	}
}

func (m *Metrics) refused(r claims.Reason, calls bool) {
	switch {
	case m == nil:
	case calls:
		m.callRefusals.WithLabelValues(string(r)).Inc()
	default:
		m.refusals.WithLabelValues(string(r)).Inc()
	}
}

func (m *Metrics) watching(by float64) {
	if m != nil {
		m.watches.Add(by)
	}
}

func (m *Metrics) resolved(word string) {
	if m != nil {
		m.words.WithLabelValues(word).Inc()
	}
}

func (m *Metrics) noticed(result string) {
	if m != nil {
		m.notices.WithLabelValues(result).Inc()
	}
}

func (m *Metrics) streaming(by float64) {
	if m != nil {
		m.streams.Add(by)
	}
}
