package postgres

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fence-sidecar/fence-sidecar/claims"
)

// sqlRule is one thing that the SQL functions promise to a client of any language.
type sqlRule struct {
	name  string
	check func(c *sqlCase)
}

// problems runs the rule and returns what it complained about.
func (r sqlRule) problems(t *testing.T, s *shop) (found []string) {
	t.Helper()
	s.empty(t)
	c := &sqlCase{t: t, shop: s}
	defer func() {
		for _, o := range c.sessions {
			o.exec("ROLLBACK") //nolint:errcheck // where none is open
			o.conn.Release()
		}
		if r := recover(); r != nil && r != any(c) {
			panic(r)
		}
		found = c.found
	}()
	r.check(c)
	return nil
}

type sqlCase struct {
	t *testing.T
	*shop
	sessions []*session
	found    []string
}

func (c *sqlCase) errorf(format string, args ...any) {
	c.found = append(c.found, fmt.Sprintf(format, args...))
}

func (c *sqlCase) fatalf(format string, args ...any) {
	c.errorf(format, args...)
	panic(c)
}

func (c *sqlCase) rowsAre(want ...string) {
	got := c.rows(c.t)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		c.errorf("committed rows %q, want %q", got, want)
	}
}

// session is one connection of the application, with the SQL functions alone.
type session struct {
	c    *sqlCase
	conn *pgxpool.Conn
}

func (c *sqlCase) session() *session {
	c.t.Helper()
	conn, err := c.pool.Acquire(c.t.Context())
	ok(c.t, err)
	s := &session{c, conn}
	c.sessions = append(c.sessions, s)
	return s
}

func (s *session) exec(sql string, args ...any) error {
	_, err := s.conn.Exec(s.c.t.Context(), s.c.schema.sql(sql), args...)
	return err
}

func (s *session) must(sql string, args ...any) {
	if err := s.exec(sql, args...); err != nil {
		s.c.fatalf("%s: %v", sql, err)
	}
}

// wants runs SQL that is refused.
func (s *session) wants(want, sql string, args ...any) {
	if got := code(s.exec(sql, args...)); got != want {
		s.c.errorf("%s: SQLSTATE %s, want %s", sql, got, want)
	}
}

// code is an error's SQLSTATE.
func code(err error) string {
	if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		return e.Code
	}
	return fmt.Sprint(err)
}

const beginEffect = `SELECT replayed, coalesce(convert_from(result, 'UTF8'), '') FROM {schema}.begin_effect($1, 'shop', 'charge', $2, '\x01')`

func (s *session) begin(g claims.Guard, key string) (replayed bool, result string, err error) {
	err = s.conn.QueryRow(s.c.t.Context(), s.c.schema.sql(beginEffect), g.String(), key).Scan(&replayed, &result)
	return replayed, result, err
}

// begins wants the effect to run now.
func (s *session) begins(g claims.Guard, key string) {
	if replayed, _, err := s.begin(g, key); err != nil || replayed {
		s.c.fatalf("begin %s: replayed %v, %v", key, replayed, err)
	}
}

func (s *session) replays(g claims.Guard, key, want string) {
	if replayed, got, err := s.begin(g, key); err != nil || !replayed || got != want {
		s.c.errorf("begin %s: replayed %v, %q, %v; want %q of before", key, replayed, got, err, want)
	}
}

func (s *session) refuses(g claims.Guard, key, want string) {
	if _, _, err := s.begin(g, key); code(err) != want {
		s.c.errorf("begin %s: %v, want SQLSTATE %s", key, err, want)
	}
}

func (s *session) put(row string) { s.must(`INSERT INTO {schema}.charges (what) VALUES ($1)`, row) }

func (s *session) ends(key, result string) {
	s.must(`SELECT {schema}.end_effect('shop', 'charge', $1, $2)`, key, []byte(result))
}

// charges is a whole effect in a transaction that is not committed yet.
func (s *session) charges(g claims.Guard, key string) {
	s.must("BEGIN")
	s.begins(g, key)
	s.put(key)
	s.ends(key, "of "+key)
}

// later runs f beside the test, once it waits for a lock or has ended.
func (s *session) later(f func()) (wait func()) {
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() {
			if r := recover(); r != nil && r != any(s.c) {
				panic(r)
			}
		}()
		f()
	}()
	eventually(s.c.t, func() bool {
		select {
		case <-done:
			return true
		default:
		}
		var waits bool
		ok(s.c.t, s.c.pool.QueryRow(s.c.t.Context(), `SELECT coalesce(wait_event_type = 'Lock', false) FROM pg_stat_activity WHERE pid = $1`,
			s.conn.Conn().PgConn().PID()).Scan(&waits))
		return waits
	})
	return func() { <-done }
}

func TestEffectFunctions(t *testing.T) {
	s := newShop(t)
	for _, r := range sqlRules {
		t.Run(r.name, func(t *testing.T) {
			if found := r.problems(t, s); len(found) > 0 {
				t.Error(strings.Join(found, "\n"))
			}
		})
	}
}

// taking is an acquire beside the test.
type taking struct {
	wait  sync.WaitGroup
	ended atomic.Bool
	guard claims.Guard
	err   error
}

func (c *sqlCase) takesLater(scope string) *taking {
	t := &taking{}
	t.wait.Go(func() {
		defer t.ended.Store(true)
		var l claims.Lease
		l, t.err = c.store.Acquire(c.t.Context(), scope, "next", time.Minute)
		t.guard = l.Guard
	})
	return t
}

func (t *taking) done() (claims.Guard, error) {
	t.wait.Wait()
	return t.guard, t.err
}
