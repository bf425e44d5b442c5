package postgres

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// limits keep a transaction of a sidecar that stands still, waits, or is cut off, from holding rows for ever. The first three
// do not fire in the middle of a message of a batch: the keepalives end it if the network is gone, from
// PostgreSQL 17 on transaction_timeout ($1, ms) whatever the reason. That one cannot be raised once it runs.
const limits = `SELECT set_config('lock_timeout', '4s', true), set_config('statement_timeout', '4s', true),
	set_config('idle_in_transaction_session_timeout', '5s', true), set_config('tcp_keepalives_idle', '5', true),
	set_config('tcp_keepalives_interval', '2', true), set_config('tcp_keepalives_count', '3', true),
	set_config('tcp_user_timeout', '10000', true), CASE WHEN current_setting('server_version_num')::int >= 170000
		THEN set_config('transaction_timeout', $1::text, true) END`

// limit is limits for a transaction that this process gives up at the end of ctx: the server ends it soon after.
func limit(ctx context.Context) statement {
	left := patience
	if end, ok := ctx.Deadline(); ok {
		left = max(time.Until(end), 0)
	}
	return statement{sql: limits, args: []any{strconv.FormatInt((left + 2*time.Second).Milliseconds(), 10)}}
}

// statement is one of a batch. rows may be nil.
type statement struct {
	sql  string
	args []any
	rows func(pgx.Rows) error
}

// one makes a row function of a scan into targets; found says whether there was a row.
func one(found *bool, targets ...any) func(pgx.Rows) error {
	return func(rows pgx.Rows) error {
		*found = false
		if !rows.Next() {
			return nil
		}
		*found = true
		return rows.Scan(targets...)
	}
}

// tx is one transaction after its locks were got, at one instant of the store's time.
type tx struct {
	*header
	s      *Store
	ctx    context.Context
	conn   *pgxpool.Conn
	writes []statement
	// until is when the leases that were found live run out, by the server's clock; zero: none was asked for.
	until   time.Time
	witness witness // what is written
}

// change queues a statement for the second round trip.
func (t *tx) change(sql string, args ...any) {
	t.writes = append(t.writes, statement{sql: t.s.schema.sql(sql), args: args})
}

// within lets the transaction commit only for so long from the instant on at which it was judged.
func (t *tx) within(left time.Duration) {
	until := time.UnixMicro(t.micros).Add(left)
	if t.until.IsZero() || until.Before(t.until) {
		t.until = until
	}
}

// Outcomes of a second round trip that surely applied nothing, and that the callers translate.
var (
	errLate  = errors.New("the lease ran out before the commit")
	errRaced = errors.New("another transaction made the row first")
)

// errGone says that the connection was gone before anything was written.
var errGone = errors.New("the connection is gone")

const (
	codeLate  = "FS001" // in_time
	codeRaced = "23505" // unique_violation
)

// write runs one transaction: the locks, in the order given, then f with the header, then what f queued. If f queued
// nothing, nothing is committed. It begins again after the store's row had to be brought up to date, and where another
// transaction inserted the same row meanwhile.
func (s *Store) write(ctx context.Context, p *pgxpool.Pool, locks []statement, f func(*tx) error) error {
	gone := 0
	for range 20 {
		err := s.transact(ctx, p, patience, locks, s.judge, f)
		switch {
		case errors.Is(err, errStale):
			if err := s.settle(ctx); err != nil {
				return err
			}
		case errors.Is(err, errRaced), errors.Is(err, errLate): // what is there now is judged anew
		case errors.Is(err, errGone) && gone < 2: // the server of before: there may be another one
			gone++
		default:
			return err
		}
	}
	return fmt.Errorf("postgres store: not applied: the rows kept changing")
}

// transact is one attempt, which may last so long.
func (s *Store) transact(ctx context.Context, p *pgxpool.Pool, bound time.Duration, locks []statement,
	judge func(*header, mark) error, f func(*tx) error) error {
	ctx, c, release, err := s.acquire(ctx, p, bound)
	if err != nil {
		return err
	}
	defer release()
	t := &tx{header: &header{}, s: s, ctx: ctx, conn: c}
	before := s.seen.load()
	if err := t.begin(locks, before); err != nil {
		t.abort(err)
		if t.conn.Conn().IsClosed() && ctx.Err() == nil {
			return fmt.Errorf("postgres store: not applied: %w: %w", errGone, err)
		}
		return fmt.Errorf("postgres store: not applied: %w", err)
	}
	if err = judge(t.header, before); err != nil {
		err = fmt.Errorf("postgres store: not applied: %w", err)
	} else {
		err = f(t)
	}
	if err != nil || len(t.writes) == 0 {
		t.abort(err)
		return err
	}
	return t.commit()
}

// begin is the first round trip.
func (t *tx) begin(locks []statement, before mark) error {
	delete(t.conn.Conn().PgConn().CustomData(), syncWait)
	batch := []statement{{sql: "BEGIN ISOLATION LEVEL READ COMMITTED"}, limit(t.ctx)}
	batch = append(batch, locks...)
	var found bool
	batch = append(batch, statement{
		sql: t.s.schema.sql("SELECT " + before.columns() + headerFrom), rows: one(&found, t.targets()...),
	})
	if _, err := t.send(batch); err != nil {
		return err
	}
	if !found {
		return &SchemaError{Schema: t.s.cfg.Schema, Reason: "it has no realm"}
	}
	return t.complete(t.s.cfg.Clock)
}

// send runs a batch in one round trip; after an error the server skips the rest. n is how many statements went well.
func (t *tx) send(batch []statement) (n int, err error) {
	b := &pgx.Batch{}
	for _, st := range batch {
		b.Queue(st.sql, st.args...)
	}
	results := t.conn.SendBatch(t.ctx, b)
	for _, st := range batch {
		rows, err := results.Query()
		if err == nil && st.rows != nil {
			err = st.rows(rows)
		}
		if err == nil {
			rows.Close()
			err = rows.Err()
		}
		if err != nil {
			results.Close() //nolint:errcheck // the first error counts
			return n, err
		}
		n++
	}
	return n, results.Close()
}

// abort ends the transaction; a connection on which that fails is closed by the pool.
func (t *tx) abort(err error) {
	if c := t.conn.Conn(); !c.IsClosed() && c.PgConn().TxStatus() != 'I' && !broken(err) {
		if _, err := t.conn.Exec(t.ctx, "ROLLBACK"); err == nil {
			return
		}
	}
	if err != nil {
		t.s.drop(t.conn, err)
	}
}

// commit is the second round trip.
func (t *tx) commit() error {
	batch := t.writes
	if !t.until.IsZero() {
		batch = append(batch, statement{sql: t.s.schema.sql(`SELECT {schema}.in_time($1)`), args: []any{t.until.UnixMicro()}})
	}
	before := len(batch)
	var tag pgconn.CommandTag
	var standbys string
	var found bool
	batch = append(batch,
		statement{sql: "COMMIT", rows: func(rows pgx.Rows) error {
			rows.Close()
			tag = rows.CommandTag()
			return rows.Err()
		}},
		// who was to confirm may have changed while the commit waited
		statement{sql: "SELECT current_setting('synchronous_standby_names')", rows: one(&found, &standbys)})
	n, err := t.send(batch)
	if err != nil {
		t.abort(err)
		return t.failed(n, before, err)
	}
	switch {
	case tag.String() != "COMMIT":
		return fmt.Errorf("postgres store: not applied: the server answered COMMIT with %s", tag)
	case t.conn.Conn().PgConn().CustomData()[syncWait] != nil:
		return fmt.Errorf("postgres store: perhaps applied: the commit's wait for its standby was cancelled")
	case standbys != t.standbys && !t.s.cfg.MayLose:
		return fmt.Errorf("postgres store: perhaps applied: synchronous_standby_names changed to %q during the commit", standbys)
	}
	t.s.seen.saw(t.header, t.witness)
	return nil
}

// failed says what an error means that came after n statements, of which before stood before the COMMIT.
func (t *tx) failed(n, before int, err error) error {
	e, ok := errors.AsType[*pgconn.PgError](err)
	switch {
	case !ok || n >= before:
		return fmt.Errorf("postgres store: perhaps applied: %w", err)
	case e.Code == codeLate:
		return errLate
	case e.Code == codeRaced:
		return errRaced
	}
	return fmt.Errorf("postgres store: not applied: %w", err)
}
