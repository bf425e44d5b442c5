package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/fence-sidecar/fence-sidecar/claims"
	"github.com/fence-sidecar/fence-sidecar/claims/codec"
)

// Get implements claims.Store, in one read transaction.
func (s *Store) Get(ctx context.Context, key claims.Key, guard claims.Guard) (v claims.View, err error) {
	err = s.read(ctx, func(t *tx) error {
		v.Now = t.now
		if v.Record, err = t.call(key); err != nil {
			return err
		}
		if v.Guard, err = t.standing(guard); err != nil {
			return err
		}
		v.Sender, err = t.standing(v.Record.Sender)
		return err
	})
	if err != nil {
		return claims.View{}, err
	}
	return v, nil
}

// Swap implements claims.Store.
func (s *Store) Swap(ctx context.Context, cond claims.Condition, writes ...claims.Write) (claims.Swapped, error) {
	if err := claims.CheckWrites(writes); err != nil {
		return claims.Swapped{}, err
	}
	var out claims.Swapped
	err := s.writer.do(ctx, false, func(t *tx) (err error) {
		out, err = t.swap(cond, writes)
		return err
	})
	if err != nil && !claims.Refused(err) {
		return claims.Swapped{}, err // out may still be written to
	}
	return out, err
}

// swap reads all that can refuse before it writes anything.
func (t *tx) swap(cond claims.Condition, writes []claims.Write) (out claims.Swapped, err error) {
	if out, err = t.hold(cond); err != nil {
		return out, err
	}
	lost := false
	had := make([]bool, len(writes))
	for i, w := range writes {
		var version int64
		if version, had[i], err = t.version(w.Next.Key); err != nil {
			return out, err
		}
		lost = lost || version != w.Version
	}
	for i, w := range writes {
		var r claims.Record
		if lost {
			r, err = t.call(w.Next.Key)
		} else {
			r = w.Stamp(t.now)
			if err = t.put(&r, had[i]); err == nil {
				err = t.record(w.Event)
			}
		}
		if err != nil {
			return out, err
		}
		out.Records = append(out.Records, r)
	}
	if lost {
		return out, claims.ErrLost
	}
	return out, nil
}

// hold looks at the leases of the condition; it refuses in the documented order.
func (t *tx) hold(c claims.Condition) (claims.Swapped, error) {
	out := claims.Swapped{Now: t.now}
	var dead claims.GuardView
	for _, l := range []struct {
		guard claims.Guard
		view  *claims.GuardView
	}{{c.Guard, &out.Guard}, {c.Sender, &out.Sender}, {c.Dead, &dead}} {
		v, err := t.standing(l.guard)
		if err != nil {
			return out, err
		}
		*l.view = v
	}
	switch {
	case !c.Guard.IsZero() && !out.Guard.Live() && !(c.Finisher && out.Guard.Finisher):
		return out, &claims.FencedError{Guard: c.Guard, Status: out.Guard.Status}
	case !c.Sender.IsZero() && !out.Sender.Live():
		return out, &claims.FencedError{Guard: c.Sender, Status: out.Sender.Status, Sender: true}
	case !c.Dead.IsZero() && dead.Live():
		return out, claims.ErrSenderLives
	}
	return out, nil
}

// version is the stored version, 0 where there is no record, and whether it may have an answer in answers.
func (t *tx) version(key claims.Key) (version int64, answered bool, err error) {
	var state string
	err = t.row(`SELECT version, state, answered FROM calls WHERE tenant = ? AND call_key = ?`,
		[]byte(key.Tenant), []byte(key.Call)).Scan(&version, &state, &answered)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return 0, false, nil
	case err != nil:
		return 0, false, fmt.Errorf("sqlite store: %s: %w", key, err)
	}
	if err := readable(state); err != nil {
		return 0, false, fmt.Errorf("%s: %w: %w", key, claims.ErrUnreadable, err)
	}
	return version, answered, nil
}

// List implements claims.Lister: newest by creation, ties in key order. Records that cannot be read are named by an
// error beside the others, so that one of them does not hide all.
func (s *Store) List(ctx context.Context, tenant string, states []claims.State, limit int) ([]claims.Record, error) {
	where, args := []string{"true"}, []any{}
	if tenant != "" {
		where, args = append(where, "tenant = ?"), append(args, []byte(tenant))
	}
	if len(states) > 0 {
		where = append(where, "state IN (?"+strings.Repeat(", ?", len(states)-1)+")")
		for _, st := range states {
			args = append(args, string(st))
		}
	}
	query := selectCall + " WHERE " + strings.Join(where, " AND ") +
		" ORDER BY created_store DESC, tenant, call_key LIMIT ?"
	var out []claims.Record
	var unreadable []error
	err := s.read(ctx, func(t *tx) error {
		rows, err := t.raws(query, append(args, max(limit, 0))...)
		for _, w := range rows {
			r, err := t.complete(w)
			switch {
			case errors.Is(err, claims.ErrUnreadable):
				unreadable = append(unreadable, err)
				continue
			case err != nil:
				return err
			}
			out = append(out, r)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return out, errors.Join(unreadable...)
}

// raws reads all rows before anything else is asked of the connection.
func (t *tx) raws(query string, args ...any) ([]*raw, error) {
	rows, err := t.query(query, args...)
	if err != nil {
		return nil, fmt.Errorf("sqlite store: %w", err)
	}
	defer rows.Close()
	var all []*raw
	for rows.Next() {
		w := &raw{}
		if err := w.scan(rows); err != nil {
			return nil, fmt.Errorf("sqlite store: %w", err)
		}
		all = append(all, w)
	}
	return all, rows.Err()
}

// Unsettled implements claims.Store: the longest due first, ties in key order.
func (s *Store) Unsettled(ctx context.Context, sweep claims.Sweep) ([]claims.Key, error) {
	var due []claims.Key
	err := s.writer.do(ctx, false, func(t *tx) (err error) {
		due, err = t.unsettled(sweep)
		return err
	})
	if err != nil {
		return nil, err
	}
	return due, nil
}

// selectDue takes now and a limit; the first condition is the index's.
const (
	selectDue = `SELECT tenant, call_key, checks FROM calls
		WHERE (state IN ('pending', 'unknown') OR unread = 1 OR poll = 1)
		AND (next_check IS NULL OR next_check <= ?1)
		AND (unread = 1 OR poll = 1 OR state = 'unknown' OR deadline IS NULL OR deadline <= ?1)
		AND state IN ('pending', 'unknown', 'succeeded', 'declined', 'open', 'review', 'cancelled') AND `
	dueOrder = ` ORDER BY next_check, tenant, call_key LIMIT ?2`
)

func (t *tx) unsettled(sweep claims.Sweep) ([]claims.Key, error) {
	now := t.now.Store.UnixNano()
	args := []any{now, max(sweep.Limit, 0)}
	tenants := tenantsIn(sweep.Tenants, &args)
	rows, err := t.query(selectDue+tenants+dueOrder, args...)
	if err != nil {
		return nil, fmt.Errorf("sqlite store: sweep: %w", err)
	}
	defer rows.Close()
	var keys []claims.Key
	var checks []int
	for rows.Next() {
		var tenant, call []byte
		var n int
		if err := rows.Scan(&tenant, &call, &n); err != nil {
			return nil, fmt.Errorf("sqlite store: sweep: %w", err)
		}
		keys, checks = append(keys, claims.Key{Tenant: string(tenant), Call: string(call)}), append(checks, n)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("sqlite store: sweep: %w", err)
	}
	for i, k := range keys {
		err := t.change(`UPDATE calls SET next_check = ?, checks = checks + 1 WHERE tenant = ? AND call_key = ?`,
			now+int64(sweep.Backoff(checks[i])), []byte(k.Tenant), []byte(k.Call))
		if err != nil {
			return nil, fmt.Errorf("sqlite store: sweep of %s: %w", k, err)
		}
	}
	return keys, nil
}

// Confirm implements claims.Store by a write: its commit is on the disk after all that came before.
func (s *Store) Confirm(ctx context.Context) error {
	return s.writer.do(ctx, true, func(t *tx) error { return t.change(`UPDATE store SET last_wall = last_wall`) })
}

// Prune implements claims.Store: the longest unwritten first. Evidence that was read loses its answers too.
func (s *Store) Prune(ctx context.Context, before time.Time, limit int) (int, error) {
	var n int
	err := s.writer.do(ctx, false, func(t *tx) (err error) {
		if n, err = t.prune(before, limit); err != nil {
			return err
		}
		events, err := t.forget(before, limit)
		n += events
		return err
	})
	if err != nil {
		return 0, err
	}
	return n, nil
}

func (t *tx) prune(before time.Time, limit int) (int, error) {
	rows, err := t.raws(selectCall+` WHERE answered = 1 AND unread = 0
		AND state IN ('succeeded', 'declined', 'open', 'cancelled') AND updated_store < ?
		ORDER BY updated_store, tenant, call_key LIMIT ?`, before.UnixNano(), max(limit, 0))
	if err != nil {
		return 0, err
	}
	n := 0
	for _, w := range rows {
		evidence, err := w.withoutAnswers()
		if errors.Is(err, claims.ErrUnreadable) {
			continue // a newer version's: it will prune it
		}
		if err == nil {
			err = t.change(`UPDATE calls SET evidence = ?, answered = 0 WHERE tenant = ? AND call_key = ?`,
				evidence, w.tenant, w.call)
		}
		if err == nil {
			err = t.change(`DELETE FROM answers WHERE tenant = ? AND call_key = ?`, w.tenant, w.call)
		}
		if err != nil {
			return 0, fmt.Errorf("sqlite store: prune: %w", err)
		}
		n++
	}
	return n, nil
}

// withoutAnswers is the evidence column less its answers.
func (w *raw) withoutAnswers() (any, error) {
	r, err := w.record()
	if err != nil {
		return nil, err
	}
	for i := range r.Evidence {
		r.Evidence[i].Answer = nil
	}
	return codec.Evidence(r.Evidence)
}
