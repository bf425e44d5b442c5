package sqlite

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/fence-sidecar/fence-sidecar/claims"
	"github.com/fence-sidecar/fence-sidecar/claims/codec"
)

const (
	selectEvent = `SELECT id, tenant, call_key, revision, attempt, was, state, outcome, payment, at_store, at_wall, tries
		FROM events`
	untoldOf    = ` WHERE told = 0 AND next_try <= ?1 AND `
	untoldOrder = ` ORDER BY id LIMIT ?2`
	oldEvents   = `SELECT id FROM events WHERE at_store < ?1 ORDER BY at_store, id LIMIT ?2`
)

// record writes an event beside its record, where there is one.
func (t *tx) record(e *claims.Event) error {
	if e == nil {
		return nil
	}
	err := t.change(`INSERT INTO events (tenant, call_key, revision, attempt, was, state, outcome, payment, at_store, at_wall)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`,
		[]byte(e.Key.Tenant), []byte(e.Key.Call), e.Revision, e.Attempt, string(e.From), string(e.State), e.Outcome.String(), e.Payment,
		t.now.Store.UnixNano(), t.now.Wall.UnixNano())
	if err != nil {
		return fmt.Errorf("sqlite store: event of %s: %w", e.Key, err)
	}
	return nil
}

// eventID reads an id as it is handed out.
func eventID(id string) (int64, error) {
	n, err := strconv.ParseInt(id, 10, 64)
	if err != nil || n <= 0 || strconv.FormatInt(n, 10) != id {
		return 0, fmt.Errorf("%w: %q", claims.ErrBadEvent, id)
	}
	return n, nil
}

// lastEvent is the id that was given last, 0 where none was. It outlives its event.
func (t *tx) lastEvent() (last int64, err error) {
	err = t.row(`SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'events'`).Scan(&last)
	if err != nil {
		return 0, fmt.Errorf("sqlite store: last event: %w", err)
	}
	return last, nil
}

// Events implements claims.Journal. An id that was not given yet is claims.ErrBadEvent too: it is of another file, or of this
// one before an older copy was put back, and whoever waited for it to be passed would miss what comes until then.
func (s *Store) Events(ctx context.Context, after string, limit int) (out []claims.Event, err error) {
	var from int64
	if after != "" {
		if from, err = eventID(after); err != nil {
			return nil, err
		}
	}
	err = s.read(ctx, func(t *tx) error {
		last, err := t.lastEvent()
		if err != nil {
			return err
		}
		if from > last {
			return fmt.Errorf("%w: %q was not given yet", claims.ErrBadEvent, after)
		}
		all, err := t.events(` WHERE id > ? ORDER BY id LIMIT ?`, from, max(limit, 0))
		for _, w := range all {
			if w.err != nil {
				return w.err // left out, it would be missed
			}
			out = append(out, w.Event)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// LastEvent implements claims.Journal.
func (s *Store) LastEvent(ctx context.Context) (id string, err error) {
	err = s.read(ctx, func(t *tx) error {
		last, err := t.lastEvent()
		if last > 0 {
			id = strconv.FormatInt(last, 10)
		}
		return err
	})
	return id, err
}

// rawEvent is a row of events, and what it says if this version can read it.
type rawEvent struct {
	claims.Event
	id    int64
	tries int
	err   error // claims.ErrUnreadable
}

func (t *tx) events(where string, args ...any) ([]rawEvent, error) {
	rows, err := t.query(selectEvent+where, args...)
	if err != nil {
		return nil, fmt.Errorf("sqlite store: events: %w", err)
	}
	defer rows.Close()
	var all []rawEvent
	for rows.Next() {
		var w rawEvent
		if err := w.scan(rows); err != nil {
			return nil, fmt.Errorf("sqlite store: events: %w", err)
		}
		all = append(all, w)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("sqlite store: events: %w", err)
	}
	return all, nil
}

func (w *rawEvent) scan(row scanner) error {
	e := &w.Event
	var tenant, call []byte
	var store, wall int64
	var was, state, outcome string
	err := row.Scan(&w.id, &tenant, &call, &e.Revision, &e.Attempt, &was, &state, &outcome, &e.Payment, &store, &wall, &w.tries)
	if err != nil {
		return err
	}
	e.ID, e.Key = strconv.FormatInt(w.id, 10), claims.Key{Tenant: string(tenant), Call: string(call)}
	e.From, e.State, e.At = claims.State(was), claims.State(state), claims.Now{Store: moment(store), Wall: moment(wall)}
	known, err := codec.ParseOutcome(outcome)
	if e.Outcome = known; err != nil || !e.From.Readable() || !e.State.Readable() {
		w.err = fmt.Errorf("event %d: %w: outcome %q, states %q and %q", w.id, claims.ErrUnreadable, outcome, was, state)
	}
	return nil
}

// Untold implements claims.Journal: the oldest first. One that this version cannot read is left to a newer one.
func (s *Store) Untold(ctx context.Context, sweep claims.Sweep) ([]claims.Event, error) {
	var due []claims.Event
	err := s.writer.do(ctx, false, func(t *tx) (err error) {
		due, err = t.untold(sweep)
		return err
	})
	if err != nil {
		return nil, err
	}
	return due, nil
}

func (t *tx) untold(sweep claims.Sweep) ([]claims.Event, error) {
	now := t.now.Store.UnixNano()
	args := []any{now, max(sweep.Limit, 0)}
	tenants := tenantsIn(sweep.Tenants, &args)
	all, err := t.events(untoldOf+tenants+untoldOrder, args...)
	if err != nil {
		return nil, err
	}
	var due []claims.Event
	for _, w := range all {
		err := t.change(`UPDATE events SET next_try = ?, tries = tries + 1 WHERE id = ?`, now+int64(sweep.Backoff(w.tries)), w.id)
		if err != nil {
			return nil, fmt.Errorf("sqlite store: event %d: %w", w.id, err)
		}
		if w.err == nil {
			due = append(due, w.Event)
		}
	}
	return due, nil
}

// tenantsIn is the condition that a row is of one of the tenants, with its arguments added.
func tenantsIn(tenants []string, args *[]any) string {
	if len(tenants) == 0 {
		return "true"
	}
	var places []string
	for _, name := range tenants {
		*args = append(*args, []byte(name))
		places = append(places, fmt.Sprintf("?%d", len(*args)))
	}
	return "tenant IN (" + strings.Join(places, ", ") + ")"
}

// Told implements claims.Journal.
func (s *Store) Told(ctx context.Context, id string) error {
	n, err := eventID(id)
	if err != nil {
		return nil //nolint:nilerr // as one that is gone
	}
	return s.writer.do(ctx, false, func(t *tx) error {
		if err := t.change(`UPDATE events SET told = 1 WHERE id = ? AND told = 0`, n); err != nil {
			return fmt.Errorf("sqlite store: event %d: %w", n, err)
		}
		return nil
	})
}

// forget drops at most limit events of before a time.
func (t *tx) forget(before time.Time, limit int) (int, error) {
	t.wrote = true
	done, err := t.exec(`DELETE FROM events WHERE id IN (`+oldEvents+`)`, before.UnixNano(), max(limit, 0))
	if err != nil {
		return 0, fmt.Errorf("sqlite store: prune events: %w", err)
	}
	n, err := done.RowsAffected()
	return int(n), err
}
