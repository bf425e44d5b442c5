package proxy

import (
	"errors"
	"time"

	"github.com/sony/gobreaker/v2"

	"github.com/fence-sidecar/fence-sidecar/claims"
)

// BreakerConfig says when a gateway's circuit breaker opens.
type BreakerConfig struct {
	Failures uint32        // in a row; default 20
	Open     time.Duration // how long it stays open before one call tries; default 10 s
}

// breaker is one gateway's circuit breaker. It is asked after "send" was decided and before the claim, so that an open
// breaker leaves no record; a claim that was lost or a fence that refused counts neither way.
type breaker struct {
	two *gobreaker.TwoStepCircuitBreaker[struct{}]
}

func newBreaker(gateway string, cfg BreakerConfig, m *Metrics) *breaker {
	if cfg.Failures == 0 {
		cfg.Failures = 20
	}
	if cfg.Open == 0 {
		cfg.Open = 10 * time.Second
	}
	m.breaker(gateway, gobreaker.StateClosed)
	return &breaker{two: gobreaker.NewTwoStepCircuitBreaker[struct{}](gobreaker.Settings{
		Name: gateway, Timeout: cfg.Open, MaxRequests: 1,
		ReadyToTrip:   func(c gobreaker.Counts) bool { return c.ConsecutiveFailures >= cfg.Failures },
		IsExcluded:    func(err error) bool { return errors.Is(err, claims.ErrNotCounted) },
		OnStateChange: func(name string, _, to gobreaker.State) { m.breaker(name, to) },
	})}
}

func (b *breaker) admit() (func(error), error) { return b.two.Allow() }
