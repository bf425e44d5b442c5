package console

import (
	"github.com/prometheus/client_golang/prometheus"

	"github.com/fence-sidecar/fence-sidecar/claims"
)

// Metrics are the lease API's. No scope, holder or token becomes a label: every label's values come from a closed list.
type Metrics struct {
	leases   *prometheus.CounterVec
	refusals *prometheus.CounterVec
	watches  prometheus.Gauge
}

// NewMetrics registers the lease API's metrics.
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
	}
	reg.MustRegister(m.leases, m.refusals, m.watches)
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

func (m *Metrics) count(event string) {
	if m != nil {
		m.leases.WithLabelValues(event).Inc()
	}
}

func (m *Metrics) refused(r claims.Reason) {
	if m != nil {
		m.refusals.WithLabelValues(string(r)).Inc()
	}
}

func (m *Metrics) watching(by float64) {
	if m != nil {
		m.watches.Add(by)
	}
}
