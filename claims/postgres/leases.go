package postgres

import (
	"context"
	"database/sql"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fence-sidecar/fence-sidecar/claims"
	"github.com/fence-sidecar/fence-sidecar/claims/codec"
)

// How a lease stands in its row; expired is not among them, as the clock decides it.
const (
	held     = "held"
	released = "released"
	finished = "finished"
)

const leaseColumns = "token, era, holder, standing, expiry, cancelled"

// lease is a scope's row; token 0 where the scope was never taken.
type lease struct {
	found     bool
	token     uint64
	era       int64
	holder    string
	standing  string
	expiry    time.Time
	cancelled bool
	external  bool // the application counts the tokens: neither standing nor expiry counts
}

// rawLease is a row, or none of an outer join.
type rawLease struct {
	token, era, expiry sql.Null[int64]
	holder, standing   sql.Null[string]
	cancelled          sql.Null[bool]
}

func (w *rawLease) targets() []any {
	return []any{&w.token, &w.era, &w.holder, &w.standing, &w.expiry, &w.cancelled}
}

// lease fails only for a holder that this package did not write.
func (w *rawLease) lease(scope string) (lease, error) {
	l := lease{external: claims.Guard{Scope: scope}.External()}
	if !w.token.Valid {
		return l, nil
	}
	holder, err := unplain(w.holder.V)
	if err != nil {
		return l, fmt.Errorf("postgres store: holder of lease %s: %w", scope, err)
	}
	l.found, l.token, l.era, l.holder = true, uint64(w.token.V), w.era.V, holder
	l.standing, l.expiry, l.cancelled = w.standing.V, codec.Moment(w.expiry.V), w.cancelled.V
	return l, nil
}

// view is what the lease is worth to a token now. At its expiry it has expired; so has one that was granted before a loss.
func (l lease) view(token uint64, h *header) claims.GuardView {
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
		return claims.GuardView{Status: claims.LeaseFinished, Finisher: true} // for good: no time at which it ends
	case !h.now.Store.Before(l.expiry) || l.era < h.era:
		return claims.GuardView{Status: claims.LeaseExpired}
	}
	return claims.GuardView{Status: claims.LeaseLive, Remaining: l.expiry.Sub(h.now.Store)}
}

func (l lease) public(scope string, h *header) claims.Lease {
	v := l.view(l.token, h)
	g := claims.Guard{Scope: scope, Token: l.token}
	return claims.Lease{Guard: g, Status: v.Status, Holder: l.holder, Remaining: v.Remaining, Cancelled: l.cancelled}
}

// Strengths of locks on lease rows. A claim's lets renewals pass, whose own lets claims pass; whoever must know that no
// renewal is under way takes forShare; what ends a lease, or may, waits for the claims under it.
const (
	forKeyShare = " FOR KEY SHARE"
	forShare    = " FOR SHARE"
	forRenewal  = " FOR NO KEY UPDATE"
	forUpdate   = " FOR UPDATE"
)

// lockLease locks a scope's row, if there is one, and reads it.
func (s *Store) lockLease(scope, strength string, w *rawLease) statement {
	var found bool
	row := one(&found, w.targets()...)
	return statement{
		sql:  s.schema.sql("SELECT " + leaseColumns + " FROM {schema}.leases WHERE scope = $1" + strength),
		args: []any{[]byte(scope)},
		rows: func(rows pgx.Rows) error {
			*w = rawLease{}
			return row(rows)
		},
	}
}

// waits takes the turn of those who lock a lease against what is done under it.
func (s *Store) waits(ctx context.Context) (done func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	select {
	case s.turn <- struct{}{}:
		return func() { <-s.turn }, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("postgres store: not applied: others wait for leases: %w", ctx.Err())
	}
}

// onLease runs a transaction on one scope over the connections that are kept for leases. Whoever locks it against what is done under it
// may have to wait for an application's transaction: only one at a time, so that renewals always have the other connection.
func (s *Store) onLease(ctx context.Context, scope, strength string, f func(*tx, lease) (claims.Lease, error)) (claims.Lease, error) {
	if strength == forUpdate {
		done, err := s.waits(ctx)
		if err != nil {
			return claims.Lease{}, err
		}
		defer done()
	}
	var w rawLease
	var out claims.Lease
	err := s.write(ctx, s.leases, []statement{s.lockLease(scope, strength, &w)}, func(t *tx) error {
		l, err := w.lease(scope)
		if err == nil {
			out, err = f(t, l)
		}
		return err
	})
	if err != nil && !claims.Refused(err) {
		return claims.Lease{}, err
	}
	return out, err
}

func (s *Store) checkTTL(scope string, ttl time.Duration) error {
	if ttl <= 0 || ttl > s.cfg.MaxLease {
		return fmt.Errorf("postgres store: a lease of %s on %s: want more than 0, at most %s", ttl, scope, s.cfg.MaxLease)
	}
	return nil
}

// Acquire implements claims.Leases. With ErrHeld and ErrFinished it also returns the lease that stands in the way.
func (s *Store) Acquire(ctx context.Context, scope, holder string, ttl time.Duration) (claims.Lease, error) {
	if err := claims.CheckScope(scope); err != nil {
		return claims.Lease{}, err
	}
	if err := s.checkTTL(scope, ttl); err != nil {
		return claims.Lease{}, err
	}
	// A lease that is live needs no lock to be told so, nor a wait for what is done under it: at worst it was released meanwhile.
	switch l, err := s.state(ctx, s.leases, scope); {
	case err != nil:
		return claims.Lease{}, fmt.Errorf("not applied: %w", err)
	case l.Status == claims.LeaseLive:
		return l, claims.ErrHeld
	}
	return s.onLease(ctx, scope, forUpdate, func(t *tx, l lease) (claims.Lease, error) {
		if err := t.open(); err != nil {
			return claims.Lease{}, err
		}
		event := "take"
		switch was := l.public(scope, t.header); was.Status {
		case claims.LeaseLive:
			return was, claims.ErrHeld
		case claims.LeaseFinished:
			return was, claims.ErrFinished
		case claims.LeaseExpired:
			event = "takeover"
		}
		next := l
		next.token = l.token + 1 + claims.TokenJump*uint64(t.era-l.era) // era 0 where there is no row
		next.era, next.holder, next.standing, next.expiry = t.era, holder, held, t.now.Store.Add(ttl)
		t.putLease(scope, next)
		t.log(scope, next, event)
		return next.public(scope, t.header), nil
	})
}

// putLease queues a row; one that another transaction inserts meanwhile is errRaced.
func (t *tx) putLease(scope string, l lease) {
	t.witness.lease = &seenLease{scope, l.token, l.expiry.UnixNano()}
	sql := `INSERT INTO {schema}.leases (scope, token, era, holder, standing, expiry, cancelled, renewed_store, renewed_wall)
		VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9)`
	if l.found {
		sql = `UPDATE {schema}.leases SET token = $2, era = $3, holder = $4, standing = $5, expiry = $6, cancelled = $7,
			renewed_store = $8, renewed_wall = $9 WHERE scope = $1`
	}
	t.change(sql, []byte(scope), int64(l.token), l.era, plain(l.holder), l.standing, l.expiry.UnixNano(), l.cancelled,
		t.now.Store.UnixNano(), t.now.Wall.UnixNano())
}

func (t *tx) log(scope string, l lease, event string) {
	t.change(`INSERT INTO {schema}.lease_log (scope, token, event, holder, at_store, at_wall) VALUES ($1, $2, $3, $4, $5, $6)`,
		[]byte(scope), int64(l.token), event, plain(l.holder), t.now.Store.UnixNano(), t.now.Wall.UnixNano())
}

// mine refuses a guard that is not live, and lets the transaction commit only while it is.
func (t *tx) mine(g claims.Guard, l lease) error {
	v := l.view(g.Token, t.header)
	if !v.Live() {
		return &claims.FencedError{Guard: g, Status: v.Status}
	}
	t.within(v.Remaining)
	return nil
}

// Renew implements claims.Leases.
func (s *Store) Renew(ctx context.Context, g claims.Guard, ttl time.Duration) (claims.Lease, error) {
	if g.External() {
		return s.raise(ctx, g)
	}
	if err := s.checkTTL(g.Scope, ttl); err != nil {
		return claims.Lease{}, err
	}
	return s.onLease(ctx, g.Scope, forRenewal, func(t *tx, l lease) (claims.Lease, error) {
		if err := t.open(); err != nil {
			return claims.Lease{}, err
		}
		if err := t.mine(g, l); err != nil {
			return claims.Lease{}, err
		}
		if e := t.now.Store.Add(ttl); e.After(l.expiry) {
			l.expiry = e
		}
		t.witness.lease = &seenLease{g.Scope, g.Token, l.expiry.UnixNano()}
		t.change(`UPDATE {schema}.leases SET expiry = $2, renewed_store = $3, renewed_wall = $4 WHERE scope = $1`,
			[]byte(g.Scope), l.expiry.UnixNano(), t.now.Store.UnixNano(), t.now.Wall.UnixNano())
		return l.public(g.Scope, t.header), nil
	})
}

// raise takes in an external token that is higher than any before.
func (s *Store) raise(ctx context.Context, g claims.Guard) (claims.Lease, error) {
	if err := claims.CheckExternal(g); err != nil {
		return claims.Lease{}, err
	}
	return s.onLease(ctx, g.Scope, forUpdate, func(t *tx, l lease) (claims.Lease, error) {
		if err := t.open(); err != nil {
			return claims.Lease{}, err
		}
		switch v := l.view(g.Token, t.header); v.Status {
		case claims.LeaseAbsent:
			l.token, l.era, l.standing, l.expiry = g.Token, t.era, held, t.now.Store
			t.putLease(g.Scope, l)
		case claims.LeaseLive:
		default:
			return claims.Lease{}, &claims.FencedError{Guard: g, Status: v.Status}
		}
		return l.public(g.Scope, t.header), nil
	})
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
	_, err := s.onLease(ctx, g.Scope, forUpdate, func(t *tx, l lease) (claims.Lease, error) {
		if err := t.open(); err != nil {
			return claims.Lease{}, err
		}
		if err := t.mine(g, l); err != nil {
			return claims.Lease{}, err
		}
		var inFlight bool
		err := t.conn.QueryRow(t.ctx, s.schema.sql(`SELECT
			EXISTS (SELECT 1 FROM {schema}.calls WHERE scope = $1 AND state IN ('pending', 'unknown'))
			OR EXISTS (SELECT 1 FROM {schema}.calls WHERE sender_scope = $1 AND sender_token = $2 AND state = 'pending')`),
			[]byte(g.Scope), int64(g.Token)).Scan(&inFlight)
		if err != nil {
			return claims.Lease{}, fmt.Errorf("postgres store: not applied: calls of %s: %w", g.Scope, err)
		}
		if inFlight {
			return claims.Lease{}, claims.ErrCallsInFlight
		}
		l.standing = as
		t.putLease(g.Scope, l)
		t.log(g.Scope, l, event)
		return l.public(g.Scope, t.header), nil
	})
	return err
}

// Cancel implements claims.Leases.
func (s *Store) Cancel(ctx context.Context, scope string) (claims.Lease, error) {
	if err := claims.CheckApp(scope); err != nil {
		return claims.Lease{}, err
	}
	return s.onLease(ctx, scope, forUpdate, func(t *tx, l lease) (claims.Lease, error) {
		if l.standing == finished {
			return l.public(scope, t.header), claims.ErrFinished
		}
		if l.cancelled { // seen is not acknowledged
			t.change(message)
			return l.public(scope, t.header), nil
		}
		if !l.found {
			l.standing, l.expiry = released, t.now.Store // token 0 of era 0: the next take counts from there
		}
		l.cancelled = true
		t.putLease(scope, l)
		t.log(scope, l, "cancel")
		return l.public(scope, t.header), nil
	})
}

// State implements claims.Leases.
func (s *Store) State(ctx context.Context, scope string) (claims.Lease, error) {
	return s.state(ctx, s.calls, scope)
}

func (s *Store) state(ctx context.Context, p *pgxpool.Pool, scope string) (out claims.Lease, err error) {
	err = s.look(ctx, p, func(ctx context.Context, c *pgxpool.Conn, h *header, columns string) error {
		var w rawLease
		err := c.QueryRow(ctx, s.schema.sql("SELECT "+columns+", l."+leaseJoined+headerFrom+
			" LEFT JOIN {schema}.leases l ON l.scope = $1"), []byte(scope)).Scan(append(h.targets(), w.targets()...)...)
		if err != nil {
			return err
		}
		if err := h.complete(s.cfg.Clock); err != nil {
			return err
		}
		l, err := w.lease(scope)
		out = l.public(scope, h)
		return err
	})
	return out, err
}

// leaseJoined are leaseColumns of a table l, less its first "l.".
const leaseJoined = "token, l.era, l.holder, l.standing, l.expiry, l.cancelled"

// Log implements claims.Lister.
func (s *Store) Log(ctx context.Context, scope string) (out []claims.LeaseEvent, err error) {
	err = s.read(ctx, s.calls, func(ctx context.Context, c *pgxpool.Conn) error {
		rows, err := c.Query(ctx, s.schema.sql(`SELECT token, event, holder, at_store, at_wall FROM {schema}.lease_log
			WHERE scope = $1 ORDER BY line`), []byte(scope))
		if err != nil {
			return err
		}
		defer rows.Close()
		out = nil
		for rows.Next() {
			e := claims.LeaseEvent{Guard: claims.Guard{Scope: scope}}
			var token, store, wall int64
			if err := rows.Scan(&token, &e.Event, &e.Holder, &store, &wall); err != nil {
				return err
			}
			if e.Holder, err = unplain(e.Holder); err != nil {
				return err
			}
			e.Token, e.At = uint64(token), claims.Now{Store: codec.Moment(store), Wall: codec.Moment(wall)}
			out = append(out, e)
		}
		return rows.Err()
	})
	if err != nil {
		return nil, fmt.Errorf("log of lease %s: %w", scope, err)
	}
	return out, nil
}
