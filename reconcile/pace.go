package reconcile

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"

	"github.com/fence-sidecar/fence-sidecar/claims"
)

// pace keeps many requests that wait for one call from asking the gateway once each.
type pace struct {
	flights singleflight.Group
	mu      sync.Mutex
	last    map[claims.Key]time.Time
}

// Inline looks a call up for a request that waits: requests of one call share a lookup, and between two of them Pace
// passes. A request that comes too early is told nothing new, and that is no error.
func (r *Reconciler) Inline(ctx context.Context, key claims.Key) error {
	done := r.pace.flights.DoChan(key.Tenant+"\x00"+key.Call, func() (any, error) {
		if !r.pace.due(key, time.Now(), r.Pace) {
			return nil, nil
		}
		defer func() { r.pace.done(key, time.Now()) }()
		return nil, r.Call(context.WithoutCancel(ctx), key) // it is not one request's alone; LookupTimeout ends it
	})
	select {
	case d := <-done:
		return d.Err
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (p *pace) due(key claims.Key, now time.Time, gap time.Duration) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	for k, at := range p.last {
		if now.Sub(at) >= gap {
			delete(p.last, k)
		}
	}
	_, recent := p.last[key]
	return !recent
}

func (p *pace) done(key claims.Key, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.last == nil {
		p.last = map[claims.Key]time.Time{}
	}
	p.last[key] = now
}
