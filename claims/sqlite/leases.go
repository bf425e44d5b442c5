package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"time"

	"github.com/fence-sidecar/fence-sidecar/claims"
)

// How a lease stands in its row; expired is not among them, as the clock decides it.
const (
	held     = "held"
	released = "released"
	finished = "finished"
)

// lease is a scope's row.
type lease struct {
	token    uint64
	holder   string
	standing string
	expiry   time.Time
	// cancelled is kept across takes
	cancelled bool
	external  bool // the application counts the tokens: neither standing nor expiry counts
}

// lease reads a scope's row; token 0 where the scope was never taken.
func (t *tx) lease(scope string) (l lease, err error) {
	var token, expiry int64
	l.external = claims.Guard{Scope: scope}.External()
	err = t.row(`SELECT token, holder, standing, expiry, cancelled FROM leases WHERE scope = ?`, scope).
		Scan(&token, &l.holder, &l.standing, &expiry, &l.cancelled)
	if errors.Is(err, sql.ErrNoRows) {
		return l, nil
	}
	if err != nil {
		return lease{}, fmt.Errorf("sqlite store: lease %s: %w", scope, err)
	}
	l.token, l.expiry = uint64(token), moment(expiry)
	return l, nil
}

// view is what the lease is worth to a token now. At its expiry it has expired.
func (l lease) view(token uint64, now claims.Now) claims.GuardView {
	switch {
	case token == 0 || token > l.token:
		return claims.GuardView{Status: claims.LeaseAbsent}
	case token < l.token:
		return claims.GuardView{Status: claims.LeaseSuperseded}
	case l.external:
		return claims.GuardView{Status: claims.LeaseLive, Remaining: claims.ExternalTrust}
	case l.standing == released:
		return claims.GuardView{Status: claims.LeaseReleased}
	case l.standing == finished:
		return claims.GuardView{Status: claims.LeaseFinished, Finisher: true}
	case !now.Store.Before(l.expiry):
		return claims.GuardView{Status: claims.LeaseExpired}
	}
	return claims.GuardView{Status: claims.LeaseLive, Remaining: l.expiry.Sub(now.Store)}
}

func (l lease) public(scope string, now claims.Now) claims.Lease {
	v := l.view(l.token, now)
	g := claims.Guard{Scope: scope, Token: l.token}
	return claims.Lease{Guard: g, Status: v.Status, Holder: l.holder, Remaining: v.Remaining, Cancelled: l.cancelled}
}

func (t *tx) standing(g claims.Guard) (claims.GuardView, error) {
	if g.IsZero() {
		return claims.GuardView{}, nil
	}
	l, err := t.lease(g.Scope)
	return l.view(g.Token, t.now), err
}

// Acquire implements claims.Leases. With ErrHeld and ErrFinished it also returns the lease that stands in the way.
func (s *Store) Acquire(ctx context.Context, scope, holder string, ttl time.Duration) (claims.Lease, error) {
	if err := claims.CheckScope(scope); err != nil {
		return claims.Lease{}, err
	}
	if ttl <= 0 {
		return claims.Lease{}, fmt.Errorf("acquire %s: a lease of %s", scope, ttl)
	}
	return s.onLease(ctx, func(t *tx) (claims.Lease, error) { return t.acquire(scope, holder, ttl) })
}

// onLease queues a write ahead of those of calls.
func (s *Store) onLease(ctx context.Context, f func(*tx) (claims.Lease, error)) (claims.Lease, error) {
	var l claims.Lease
	err := s.writer.do(ctx, true, func(t *tx) (err error) {
		l, err = f(t)
		return err
	})
	if err != nil && !claims.Refused(err) {
		return claims.Lease{}, err // l may still be written to
	}
	return l, err
}

func (t *tx) acquire(scope, holder string, ttl time.Duration) (claims.Lease, error) {
	l, err := t.lease(scope)
	if err != nil {
		return claims.Lease{}, err
	}
	event := "take"
	switch was := l.public(scope, t.now); was.Status {
	case claims.LeaseLive:
		return was, claims.ErrHeld
	case claims.LeaseFinished:
		return was, claims.ErrFinished
	case claims.LeaseExpired:
		event = "takeover"
	}
	l = lease{token: l.token + 1, holder: holder, standing: held, expiry: t.now.Store.Add(ttl), cancelled: l.cancelled}
	if err := t.putLease(scope, l); err != nil {
		return claims.Lease{}, err
	}
	return l.public(scope, t.now), t.log(scope, l, event)
}

func (t *tx) putLease(scope string, l lease) error {
	err := t.change(`INSERT INTO leases (scope, token, holder, standing, expiry, cancelled, renewed_store, renewed_wall)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (scope) DO UPDATE SET token = excluded.token, holder = excluded.holder,
		standing = excluded.standing, expiry = excluded.expiry, cancelled = excluded.cancelled, renewed_store = excluded.renewed_store,
		renewed_wall = excluded.renewed_wall`,
		scope, int64(l.token), l.holder, l.standing, l.expiry.UnixNano(), bit(l.cancelled), t.now.Store.UnixNano(), t.now.Wall.UnixNano())
	if err != nil {
		return fmt.Errorf("sqlite store: lease %s: %w", scope, err)
	}
	return nil
}

func (t *tx) log(scope string, l lease, event string) error {
	err := t.change(`INSERT INTO lease_log (scope, token, event, holder, at_store, at_wall) VALUES (?, ?, ?, ?, ?, ?)`,
		scope, int64(l.token), event, l.holder, t.now.Store.UnixNano(), t.now.Wall.UnixNano())
	if err != nil {
		return fmt.Errorf("sqlite store: log of lease %s: %w", scope, err)
	}
	return nil
}

// mine reads the guard's lease; *claims.FencedError where it is not live.
func (t *tx) mine(g claims.Guard) (lease, error) {
	l, err := t.lease(g.Scope)
	if err != nil {
		return l, err
	}
	if v := l.view(g.Token, t.now); !v.Live() {
		return l, &claims.FencedError{Guard: g, Status: v.Status}
	}
	return l, nil
}

// Renew implements claims.Leases.
func (s *Store) Renew(ctx context.Context, g claims.Guard, ttl time.Duration) (claims.Lease, error) {
	return s.onLease(ctx, func(t *tx) (claims.Lease, error) {
		l, err := t.mine(g)
		if fenced, ok := errors.AsType[*claims.FencedError](err); ok && g.External() && fenced.Status == claims.LeaseAbsent {
			return t.raise(g)
		}
		if err != nil {
			return claims.Lease{}, err
		}
		if e := t.now.Store.Add(ttl); e.After(l.expiry) {
			l.expiry = e
		}
		return l.public(g.Scope, t.now), t.putLease(g.Scope, l)
	})
}

// raise takes in an external token that is higher than any before.
func (t *tx) raise(g claims.Guard) (claims.Lease, error) {
	if err := claims.CheckExternal(g); err != nil {
		return claims.Lease{}, err
	}
	l := lease{token: g.Token, standing: held, expiry: t.now.Store, external: true}
	return l.public(g.Scope, t.now), t.putLease(g.Scope, l)
}

// Release implements claims.Leases.
func (s *Store) Release(ctx context.Context, g claims.Guard) error {
	return s.end(ctx, g, released, "release")
}

// Finish implements claims.Leases.
func (s *Store) Finish(ctx context.Context, g claims.Guard) error {
	return s.end(ctx, g, finished, "finish")
}

func (s *Store) end(ctx context.Context, g claims.Guard, as, event string) error {
	if g.External() {
		return fmt.Errorf("%w: an external token is not ended here", claims.ErrBadScope)
	}
	return s.writer.do(ctx, true, func(t *tx) error {
		l, err := t.mine(g)
		if err != nil {
			return err
		}
		var inFlight bool
		err = t.row(`SELECT EXISTS (SELECT 1 FROM calls WHERE scope = ? AND state IN ('pending', 'unknown'))
			OR EXISTS (SELECT 1 FROM calls WHERE sender_scope = ? AND sender_token = ? AND state = 'pending')`,
			g.Scope, g.Scope, int64(g.Token)).Scan(&inFlight)
		if err != nil {
			return fmt.Errorf("sqlite store: calls of %s: %w", g.Scope, err)
		}
		if inFlight {
			return claims.ErrCallsInFlight
		}
		l.standing = as
		if err := t.putLease(g.Scope, l); err != nil {
			return err
		}
		return t.log(g.Scope, l, event)
	})
}

// Cancel implements claims.Leases.
func (s *Store) Cancel(ctx context.Context, scope string) (claims.Lease, error) {
	if err := claims.CheckApp(scope); err != nil {
		return claims.Lease{}, err
	}
	return s.onLease(ctx, func(t *tx) (claims.Lease, error) {
		l, err := t.lease(scope)
		if err != nil || l.cancelled || l.standing == finished {
			out := l.public(scope, t.now)
			if err == nil && l.standing == finished {
				err = claims.ErrFinished
			}
			return out, err
		}
		if l.standing == "" { // never taken
			l.standing, l.expiry = released, t.now.Store
		}
		l.cancelled = true
		if err := t.putLease(scope, l); err != nil {
			return claims.Lease{}, err
		}
		return l.public(scope, t.now), t.log(scope, l, "cancel")
	})
}

// State implements claims.Leases.
func (s *Store) State(ctx context.Context, scope string) (out claims.Lease, err error) {
	err = s.read(ctx, func(t *tx) error {
		l, err := t.lease(scope)
		out = l.public(scope, t.now)
		return err
	})
	return out, err
}

// Log implements claims.Lister.
func (s *Store) Log(ctx context.Context, scope string) (log []claims.LeaseEvent, err error) {
	err = s.read(ctx, func(t *tx) error {
		rows, err := t.query(`SELECT token, event, holder, at_store, at_wall FROM lease_log WHERE scope = ? ORDER BY line`,
			scope)
		if err != nil {
			return fmt.Errorf("sqlite store: log of lease %s: %w", scope, err)
		}
		defer rows.Close()
		for rows.Next() {
			e := claims.LeaseEvent{Guard: claims.Guard{Scope: scope}}
			var token, store, wall int64
			if err := rows.Scan(&token, &e.Event, &e.Holder, &store, &wall); err != nil {
				return fmt.Errorf("sqlite store: log of lease %s: %w", scope, err)
			}
			e.Token, e.At = uint64(token), claims.Now{Store: moment(store), Wall: moment(wall)}
			log = append(log, e)
		}
		return rows.Err()
	})
	return log, err
}
