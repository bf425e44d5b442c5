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
	if err := s.data.open(now); err != nil {
		return claims.Lease{}, err
	}
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
	g := claims.Guard{Scope: scope, Token: s.data.next(scope)}
	s.data.Leases[scope] = &Lease{
		Token: g.Token, Holder: holder, Expiry: now.Store.Add(ttl), Cancelled: was.Cancelled, Era: s.data.era(),
	}
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
	if err := s.data.open(now); err != nil {
		return claims.Lease{}, err
	}
	v := s.data.standing(g, now)
	if g.External() && v.Status == claims.LeaseAbsent {
		if err := claims.CheckExternal(g); err != nil {
			return claims.Lease{}, err
		}
		s.data.Leases[g.Scope] = &Lease{Token: g.Token, Era: s.data.era()}
		v = s.data.standing(g, now)
	}
	if !v.Live() {
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
	if g.External() {
		return fmt.Errorf("%w: an external token is not ended here", claims.ErrBadScope)
	}
	now, err := s.enter(ctx)
	if err != nil {
		return err
	}
	defer s.mu.Unlock()
	if err := s.data.open(now); err != nil {
		return err
	}
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

// Cancel implements claims.Leases.
func (s *Store) Cancel(ctx context.Context, scope string) (claims.Lease, error) {
	if err := claims.CheckApp(scope); err != nil {
		return claims.Lease{}, err
	}
	now, err := s.enter(ctx)
	if err != nil {
		return claims.Lease{}, err
	}
	defer s.mu.Unlock()
	was := s.data.lease(scope, now)
	if was.Status == claims.LeaseFinished {
		return was, claims.ErrFinished
	}
	if s.data.Leases[scope] == nil {
		s.data.Leases[scope] = &Lease{}
	}
	s.data.Leases[scope].Cancelled = true
	if !was.Cancelled {
		s.data.log(was.Guard, "cancel", was.Holder, now)
	}
	return s.data.lease(scope, now), nil
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

// Log implements claims.Lister.
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
	return claims.Lease{Guard: g, Status: v.Status, Holder: l.Holder, Remaining: v.Remaining, Cancelled: l.Cancelled}
}

// next is the token of a scope's next take.
func (d *Data) next(scope string) uint64 {
	l, ok := d.Leases[scope]
	if !ok {
		return 1 + claims.TokenJump*d.era()
	}
	return l.Token + 1 + claims.TokenJump*(d.era()-l.Era)
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
