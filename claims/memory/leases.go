package memory

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/fence-sidecar/fence-sidecar/claims"
)

// Acquire implements claims.Leases. With ErrHeld and ErrFinished it also returns the lease that stands in the way.
func (s *Store) Acquire(ctx context.Context, scope, holder string, ttl time.Duration) (claims.Lease, error) {
	if err := claims.CheckScope(scope); err != nil {
		return claims.Lease{}, err
	}
	if ttl <= 0 {
		return claims.Lease{}, fmt.Errorf("acquire %s: a lease of %s", scope, ttl)
	}
	now, err := s.enter(ctx)
	if err != nil {
		return claims.Lease{}, err
	}
	defer s.mu.Unlock()
	was := s.data.lease(scope, now)
	event := "take"
	switch was.Status {
	case claims.LeaseLive:
		return was, claims.ErrHeld
	case claims.LeaseFinished:
		return was, claims.ErrFinished
	case claims.LeaseExpired:
		event = "takeover"
	}
	g := claims.Guard{Scope: scope, Token: was.Token + 1}
	s.data.Leases[scope] = &Lease{Token: g.Token, Holder: holder, Expiry: now.Store.Add(ttl)}
	s.data.log(g, event, holder, now)
	return s.data.lease(scope, now), nil
}

// Renew implements claims.Leases.
func (s *Store) Renew(ctx context.Context, g claims.Guard, ttl time.Duration) (claims.Lease, error) {
	now, err := s.enter(ctx)
	if err != nil {
		return claims.Lease{}, err
	}
	defer s.mu.Unlock()
	if v := s.data.standing(g, now); !v.Live() {
		return claims.Lease{}, &claims.FencedError{Guard: g, Status: v.Status}
	}
	l := s.data.Leases[g.Scope]
	if e := now.Store.Add(ttl); e.After(l.Expiry) {
		l.Expiry = e
	}
	return s.data.lease(g.Scope, now), nil
}

// Release implements claims.Leases.
func (s *Store) Release(ctx context.Context, g claims.Guard) error {
	return s.end(ctx, g, claims.LeaseReleased, "release")
}

// Finish implements claims.Leases.
func (s *Store) Finish(ctx context.Context, g claims.Guard) error {
	return s.end(ctx, g, claims.LeaseFinished, "finish")
}

func (s *Store) end(ctx context.Context, g claims.Guard, as claims.LeaseStatus, event string) error {
	now, err := s.enter(ctx)
	if err != nil {
		return err
	}
	defer s.mu.Unlock()
	if v := s.data.standing(g, now); !v.Live() {
		return &claims.FencedError{Guard: g, Status: v.Status}
	}
	if s.data.inFlight(g) {
		return claims.ErrCallsInFlight
	}
	l := s.data.Leases[g.Scope]
	l.End = as
	s.data.log(g, event, l.Holder, now)
	return nil
}

// State implements claims.Leases.
func (s *Store) State(ctx context.Context, scope string) (claims.Lease, error) {
	now, err := s.enter(ctx)
	if err != nil {
		return claims.Lease{}, err
	}
	defer s.mu.Unlock()
	return s.data.lease(scope, now), nil
}

// Log implements claims.Leases.
func (s *Store) Log(ctx context.Context, scope string) ([]claims.LeaseEvent, error) {
	if _, err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	return slices.Clone(s.data.Log[scope]), nil
}

func (d *Data) lease(scope string, now claims.Now) claims.Lease {
	l, ok := d.Leases[scope]
	if !ok {
		return claims.Lease{Guard: claims.Guard{Scope: scope}}
	}
	g := claims.Guard{Scope: scope, Token: l.Token}
	v := d.standing(g, now)
	return claims.Lease{Guard: g, Status: v.Status, Holder: l.Holder, Remaining: v.Remaining}
}

func (d *Data) log(g claims.Guard, event, holder string, now claims.Now) {
	d.Log[g.Scope] = append(d.Log[g.Scope], claims.LeaseEvent{Guard: g, Event: event, Holder: holder, At: now})
}

// inFlight reports whether a call of the scope is in doubt, or an attempt sent under the lease is pending.
func (d *Data) inFlight(g claims.Guard) bool {
	for _, c := range d.Calls {
		pending := c.Record.State == claims.StatePending
		if c.Record.Scope == g.Scope && (pending || c.Record.State == claims.StateUnknown) || pending && c.Record.Sender == g {
			return true
		}
	}
	return false
}
