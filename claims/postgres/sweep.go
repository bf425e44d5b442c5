package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fence-sidecar/fence-sidecar/claims"
	"github.com/fence-sidecar/fence-sidecar/claims/codec"
)

// List implements claims.Lister: newest by creation, ties in key order. Records that cannot be read are named by an
// error beside the others, so that one of them does not hide all.
func (s *Store) List(ctx context.Context, tenant string, states []claims.State, limit int) ([]claims.Record, error) {
	where, args := []string{"true"}, []any{max(limit, 0)}
	if tenant != "" {
		args = append(args, []byte(tenant))
		where = append(where, fmt.Sprintf("c.tenant = $%d", len(args)))
	}
	if len(states) > 0 {
		var names []string
		for _, st := range states {
			names = append(names, string(st))
		}
		args = append(args, names)
		where = append(where, fmt.Sprintf("c.state = ANY ($%d::text[])", len(args)))
	}
	var all []*raw
	err := s.read(ctx, s.calls, func(ctx context.Context, c *pgxpool.Conn) error {
		rows, err := c.Query(ctx, s.schema.sql("SELECT "+callColumns+", "+answerColumns+" FROM "+callsAnswers+
			" WHERE "+strings.Join(where, " AND ")+" ORDER BY c.created_store DESC NULLS LAST, c.tenant, c.call_key LIMIT $1"), args...)
		if err != nil {
			return err
		}
		all, err = raws(rows)
		return err
	})
	if err != nil {
		return nil, err
	}
	var out []claims.Record
	var unreadable []error
	for _, w := range all {
		r, err := w.record()
		if err != nil {
			unreadable = append(unreadable, err)
			continue
		}
		out = append(out, r)
	}
	return out, errors.Join(unreadable...)
}

// maxSweep bounds how many rows one transaction locks.
const maxSweep = 500

// Unsettled implements claims.Store: the longest due first, ties in key order. Rows that others have locked are left out:
// somebody is at them.
//
// The time is read before the rows are locked, which can only make fewer of them due. It is that of the first transaction for all that the
// limit needs, so that none comes twice. Where a later one fails, what the others found counts: it is not due again for a while.
func (s *Store) Unsettled(ctx context.Context, sweep claims.Sweep) ([]claims.Key, error) {
	var due []claims.Key
	var asked int64
	for len(due) < sweep.Limit {
		limit := min(sweep.Limit-len(due), maxSweep)
		var found []claims.Key
		err := s.write(ctx, s.calls, nil, func(t *tx) (err error) {
			if len(due) == 0 {
				asked = t.now.Store.UnixNano()
			}
			found, err = t.unsettled(sweep, asked, limit)
			return err
		})
		if err != nil && len(due) > 0 {
			return due, nil //nolint:nilerr // the next sweep meets it
		}
		if err != nil {
			return nil, err
		}
		due = append(due, found...)
		if len(found) < limit {
			break
		}
	}
	return due, nil
}

func (t *tx) unsettled(sweep claims.Sweep, asked int64, limit int) ([]claims.Key, error) {
	now := t.now.Store.UnixNano()
	args, tenants := []any{asked, limit}, "true"
	if len(sweep.Tenants) > 0 {
		args, tenants = append(args, bytesOf(sweep.Tenants)), "tenant = ANY ($3::bytea[])"
	}
	// the first condition is the index's
	rows, err := t.conn.Query(t.ctx, t.s.schema.sql(`SELECT tenant, call_key, checks FROM {schema}.calls
		WHERE (state IN ('pending', 'unknown') OR unread OR poll)
		AND (next_check IS NULL OR next_check <= $1)
		AND (unread OR poll OR state = 'unknown' OR deadline IS NULL OR deadline <= $1)
		AND state IN ('pending', 'unknown', 'succeeded', 'declined', 'open', 'review', 'cancelled')
		AND `+tenants+` ORDER BY next_check NULLS FIRST, tenant, call_key LIMIT $2 FOR NO KEY UPDATE SKIP LOCKED`), args...)
	if err != nil {
		return nil, fmt.Errorf("postgres store: sweep: %w", err)
	}
	var keys []claims.Key
	var tenant, call []byte
	var checks int
	_, err = pgx.ForEachRow(rows, []any{&tenant, &call, &checks}, func() error {
		keys = append(keys, claims.Key{Tenant: string(tenant), Call: string(call)})
		t.change(`UPDATE {schema}.calls SET next_check = $3, checks = checks + 1 WHERE tenant = $1 AND call_key = $2`,
			append([]byte{}, tenant...), append([]byte{}, call...), now+int64(sweep.Backoff(checks)))
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("postgres store: sweep: %w", err)
	}
	return keys, nil
}

// message is a write that touches no row.
const message = `SELECT pg_logical_emit_message(true, 'fence-sidecar', '')`

// Confirm implements claims.Store by a commit that locks nothing: it waits for the standbys, which get the log in order.
func (s *Store) Confirm(ctx context.Context) error {
	return s.write(ctx, s.leases, nil, func(t *tx) error {
		t.change(message)
		return nil
	})
}

// Prune implements claims.Store: the longest unwritten first. Evidence that was read loses its answers too.
func (s *Store) Prune(ctx context.Context, before time.Time, limit int) (int, error) {
	answers, err := s.batches(ctx, limit, func(t *tx, n int) (int, error) { return t.prune(before, n) })
	if err != nil {
		return answers, err
	}
	events, err := s.batches(ctx, limit, func(t *tx, n int) (int, error) { return t.forget(before, n) })
	return answers + events, err
}

// batches runs f in as many transactions as limit needs, until one finds less than it may take.
func (s *Store) batches(ctx context.Context, limit int, f func(t *tx, limit int) (int, error)) (int, error) {
	total := 0
	for limit > 0 {
		batch := min(limit, maxSweep)
		n := 0
		err := s.write(ctx, s.calls, nil, func(t *tx) (err error) {
			n, err = f(t, batch)
			return err
		})
		if err != nil {
			return total, err
		}
		total, limit = total+n, limit-n
		if n < batch {
			break
		}
	}
	return total, nil
}

func (t *tx) prune(before time.Time, limit int) (int, error) {
	rows, err := t.conn.Query(t.ctx, t.s.schema.sql("SELECT "+callColumns+", "+answerColumns+" FROM "+callsAnswers+`
		WHERE c.answered AND NOT c.unread AND c.state IN ('succeeded', 'declined', 'open', 'cancelled') AND c.updated_store < $1
		ORDER BY c.updated_store, c.tenant, c.call_key LIMIT $2 FOR NO KEY UPDATE OF c SKIP LOCKED`), before.UnixNano(), limit)
	if err != nil {
		return 0, fmt.Errorf("postgres store: prune: %w", err)
	}
	all, err := raws(rows)
	if err != nil {
		return 0, fmt.Errorf("postgres store: prune: %w", err)
	}
	n := 0
	for _, w := range all {
		r, err := w.record()
		if err != nil {
			continue // a newer version's: it will prune it
		}
		for i := range r.Evidence {
			r.Evidence[i].Answer = nil
		}
		evidence, err := codec.Evidence(r.Evidence)
		if err != nil {
			return 0, fmt.Errorf("postgres store: prune: %w", err)
		}
		t.change(`UPDATE {schema}.calls SET evidence = $3, answered = false WHERE tenant = $1 AND call_key = $2`, w.tenant, w.call, evidence)
		t.change(`DELETE FROM {schema}.answers WHERE tenant = $1 AND call_key = $2`, w.tenant, w.call)
		n++
	}
	return n, nil
}
