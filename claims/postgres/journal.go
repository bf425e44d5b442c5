package postgres

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fence-sidecar/fence-sidecar/claims"
	"github.com/fence-sidecar/fence-sidecar/claims/codec"
)

// place is an event's, in the order in which events are read: the store's era, the writing transaction, the number of the line.
//
// Numbers of a sequence and ids of transactions are given out in order but become visible as their transactions commit. So only
// events of transactions before the oldest one that runs are read: whatever commits later has a higher id, and comes after. A line of
// one transaction comes before all of a later one whatever the sequence said.
//
// Ids go back on another server (a restored dump, a copy of before). Such a server is a loss to the store, which begins an era before
// anything is written there: a place of before then comes before all that is told from then on. An event's era is read under a lock
// that the change of the era waits for, so that none of an era is written after one of the next. A promotion that is proved to have
// lost nothing goes on in the same era, and with higher ids than any event that was returned: what is returned was confirmed first. A
// place that is ahead of the store was given out by a server with more than this one has, and is refused instead of waited for.
type place struct{ era, xid, seq int64 }

func (p place) String() string { return fmt.Sprintf("%d.%d.%d", p.era, p.xid, p.seq) }

// parsePlace is the inverse of String; "" is before all events.
func parsePlace(id string) (place, error) {
	if id == "" {
		return place{-1, 0, 0}, nil
	}
	var p place
	era, rest, _ := strings.Cut(id, ".")
	xid, seq, _ := strings.Cut(rest, ".")
	p.era, _ = strconv.ParseInt(era, 10, 64) // what is no number does not come out as it came in
	p.xid, _ = strconv.ParseInt(xid, 10, 64)
	p.seq, _ = strconv.ParseInt(seq, 10, 64)
	if p.String() != id || min(p.era, p.xid, p.seq) < 0 {
		return p, fmt.Errorf("%w: %q", claims.ErrBadEvent, id)
	}
	return p, nil
}

// insertEvent locks the store's row, which the beginning of an era changes.
const insertEvent = `INSERT INTO {schema}.events (era, xid, tenant, call_key, revision, attempt, from_state, state, outcome, payment,
	at_store, at_wall) SELECT st.era, pg_current_xact_id()::text::bigint, $1, $2, $3, $4, $5, $6, $7, $8, $9, $10
	FROM {schema}.store st FOR SHARE`

// tell queues an event; nil is none.
func (t *tx) tell(e *claims.Event) {
	if e == nil {
		return
	}
	t.change(insertEvent,
		[]byte(e.Key.Tenant), []byte(e.Key.Call), e.Revision, e.Attempt, string(e.From), string(e.State), e.Outcome.String(),
		plain(e.Payment), t.now.Store.UnixNano(), t.now.Wall.UnixNano())
}

const eventColumns = "era, xid, seq, tenant, call_key, revision, attempt, from_state, state, outcome, payment, at_store, at_wall"

// rawEvent is a row before its content is understood.
type rawEvent struct {
	place
	tenant, call              []byte
	revision, attempt         int
	from, state, out, payment string
	store, wall               int64
}

func (w *rawEvent) targets() []any {
	return []any{
		&w.era, &w.xid, &w.seq, &w.tenant, &w.call, &w.revision, &w.attempt, &w.from, &w.state, &w.out, &w.payment, &w.store, &w.wall,
	}
}

func (w *rawEvent) event() (claims.Event, error) {
	e := claims.Event{
		ID: w.String(), Key: claims.Key{Tenant: string(w.tenant), Call: string(w.call)}, Revision: w.revision, Attempt: w.attempt,
		From: claims.State(w.from), State: claims.State(w.state), At: claims.Now{Store: codec.Moment(w.store), Wall: codec.Moment(w.wall)},
	}
	for _, known := range outcomes {
		if known.String() == w.out {
			e.Outcome = known
		}
	}
	payment, err := unplain(w.payment)
	e.Payment = payment
	if err != nil || e.Outcome.String() != w.out || !e.From.Readable() || !e.State.Readable() {
		return e, fmt.Errorf("event %s: %w: outcome %q, state %q", w, claims.ErrUnreadable, w.out, w.state)
	}
	return e, nil
}

var outcomes = []claims.Outcome{claims.Unknown, claims.Succeeded, claims.Declined, claims.NotExecuted}

// ripe are the events that nothing can come before (see place), where $1 is the store's era as an earlier statement saw it. Those of the
// eras before were all committed before that one's beginning could be; their transactions are perhaps another server's.
const ripe = "(era < $1 OR xid < pg_snapshot_xmin(pg_current_snapshot())::text::bigint)"

// Events implements claims.Journal. A transaction that stays open holds back what was written after it began: it comes late.
func (s *Store) Events(ctx context.Context, after string, limit int) ([]claims.Event, error) {
	from, err := parsePlace(after)
	if err != nil || limit <= 0 {
		return nil, err
	}
	var out []claims.Event
	err = s.write(ctx, s.calls, nil, func(t *tx) error {
		if err := t.gave(from); err != nil {
			return err
		}
		out, err = t.events("SELECT "+eventColumns+" FROM {schema}.events WHERE (era, xid, seq) > ($2, $3, $4) AND "+ripe+
			" ORDER BY era, xid, seq LIMIT $5", t.era, from.era, from.xid, from.seq, limit)
		if len(out) > 0 {
			t.change(message) // seen is not acknowledged
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("events: %w", err)
	}
	return out, nil
}

// gave refuses a place that the store cannot have given out.
func (t *tx) gave(p place) error {
	var ahead bool
	err := t.conn.QueryRow(t.ctx, `SELECT $1::bigint >= pg_snapshot_xmax(pg_current_snapshot())::text::bigint`, p.xid).Scan(&ahead)
	if err != nil {
		return fmt.Errorf("postgres store: not applied: %w", err)
	}
	if p.era > t.era || p.era == t.era && ahead {
		return fmt.Errorf("%w: %s is ahead of the store", claims.ErrBadEvent, p)
	}
	return nil
}

func (t *tx) events(sql string, args ...any) ([]claims.Event, error) {
	rows, err := t.conn.Query(t.ctx, t.s.schema.sql(sql), args...)
	if err != nil {
		return nil, fmt.Errorf("postgres store: not applied: %w", err)
	}
	var out []claims.Event
	var w rawEvent
	_, err = pgx.ForEachRow(rows, w.targets(), func() error {
		e, err := w.event()
		out = append(out, e)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("postgres store: not applied: %w", err)
	}
	return out, nil
}

// LastEvent implements claims.Journal.
func (s *Store) LastEvent(ctx context.Context) (id string, err error) {
	err = s.write(ctx, s.calls, nil, func(t *tx) error {
		last, err := t.events("SELECT "+eventColumns+" FROM {schema}.events WHERE "+ripe+" ORDER BY era DESC, xid DESC, seq DESC LIMIT 1", t.era)
		id = ""
		if len(last) > 0 {
			id = last[0].ID
			t.change(message)
		}
		return err
	})
	if err != nil {
		return "", fmt.Errorf("last event: %w", err)
	}
	return id, nil
}

// Untold implements claims.Journal. Rows that others have locked are left out, and so are those that this version cannot read: a newer
// one tells them.
func (s *Store) Untold(ctx context.Context, sweep claims.Sweep) ([]claims.Event, error) {
	limit := min(max(sweep.Limit, 0), maxSweep)
	if limit == 0 {
		return nil, nil
	}
	var due []claims.Event
	err := s.write(ctx, s.calls, nil, func(t *tx) (err error) {
		due, err = t.untold(sweep, limit)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("events: %w", err)
	}
	return due, nil
}

func (t *tx) untold(sweep claims.Sweep, limit int) ([]claims.Event, error) {
	now := t.now.Store.UnixNano()
	args, tenants := []any{now, limit}, "true"
	if len(sweep.Tenants) > 0 {
		args, tenants = append(args, bytesOf(sweep.Tenants)), "tenant = ANY ($3::bytea[])"
	}
	rows, err := t.conn.Query(t.ctx, t.s.schema.sql("SELECT tries, "+eventColumns+` FROM {schema}.events
		WHERE NOT told AND (next_try IS NULL OR next_try <= $1) AND `+tenants+`
		ORDER BY era, xid, seq LIMIT $2 FOR NO KEY UPDATE SKIP LOCKED`), args...)
	if err != nil {
		return nil, fmt.Errorf("postgres store: not applied: %w", err)
	}
	var out []claims.Event
	var tries int
	var w rawEvent
	_, err = pgx.ForEachRow(rows, append([]any{&tries}, w.targets()...), func() error {
		t.change(`UPDATE {schema}.events SET next_try = $4, tries = tries + 1 WHERE era = $1 AND xid = $2 AND seq = $3`,
			w.era, w.xid, w.seq, now+int64(sweep.Backoff(tries)))
		if e, err := w.event(); err == nil {
			out = append(out, e)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("postgres store: not applied: %w", err)
	}
	return out, nil
}

// Told implements claims.Journal.
func (s *Store) Told(ctx context.Context, id string) error {
	p, err := parsePlace(id)
	if err != nil {
		return nil //nolint:nilerr // as one that is gone
	}
	return s.write(ctx, s.calls, nil, func(t *tx) error {
		t.change(`UPDATE {schema}.events SET told = true WHERE era = $1 AND xid = $2 AND seq = $3 AND NOT told`, p.era, p.xid, p.seq)
		return nil
	})
}

// forget queues the end of at most limit events of before a time, the oldest first.
func (t *tx) forget(before time.Time, limit int) (int, error) {
	rows, err := t.conn.Query(t.ctx, t.s.schema.sql(`SELECT era, xid, seq FROM {schema}.events WHERE at_store < $1
		ORDER BY at_store, era, xid, seq LIMIT $2 FOR UPDATE SKIP LOCKED`), before.UnixNano(), limit)
	if err != nil {
		return 0, fmt.Errorf("postgres store: prune: %w", err)
	}
	var eras, xids, seqs []int64
	var p place
	_, err = pgx.ForEachRow(rows, []any{&p.era, &p.xid, &p.seq}, func() error {
		eras, xids, seqs = append(eras, p.era), append(xids, p.xid), append(seqs, p.seq)
		return nil
	})
	if err != nil {
		return 0, fmt.Errorf("postgres store: prune: %w", err)
	}
	if len(eras) > 0 {
		t.change(`DELETE FROM {schema}.events e USING unnest($1::bigint[], $2::bigint[], $3::bigint[]) AS o (era, xid, seq)
			WHERE e.era = o.era AND e.xid = o.xid AND e.seq = o.seq`, eras, xids, seqs)
	}
	return len(eras), nil
}

func bytesOf(list []string) [][]byte {
	out := make([][]byte, len(list))
	for i, s := range list {
		out[i] = []byte(s)
	}
	return out
}
