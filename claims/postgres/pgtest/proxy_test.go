package pgtest

import (
	"context"
	"errors"
	"net"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgproto3"
)

// front is a shared server's proxy with an empty table t of a fresh schema.
func front(t *testing.T) (p *Proxy, s *Server, table string) {
	t.Helper()
	s = Shared(t)
	_, schema := s.Schema(t)
	must(t, s.Exec(t.Context(), "create schema "+schema+"; create table "+schema+".t (k int)"))
	return NewProxy(t, s.Addr()), s, schema + ".t"
}

func dial(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	must(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		conn.Close(ctx) //nolint:errcheck // perhaps it was cut
	})
	return conn
}

func rows(t *testing.T, s *Server, table string) int {
	t.Helper()
	return value[int](t, s, "select count(*) from "+table)
}

// transact writes k in a transaction and gives what COMMIT said.
func transact(t *testing.T, conn *pgx.Conn, table string, k int) error {
	t.Helper()
	tx, err := conn.Begin(t.Context())
	must(t, err)
	_, err = tx.Exec(t.Context(), "insert into "+table+" values ($1)", k)
	must(t, err)
	return tx.Commit(t.Context())
}

func TestProxyDropsCommitOrItsAnswer(t *testing.T) {
	for _, c := range []struct {
		name   string
		action Action
		rows   int
		answer string
	}{
		{"request", DropRequest, 1, ""},
		{"answer", DropAnswer, 2, "COMMIT"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, s, table := front(t)
			caught := p.OnCommit(2, c.action)
			conn := dial(t, p.URL())
			must(t, transact(t, conn, table, 1))
			if err := transact(t, conn, table, 2); err == nil || !conn.IsClosed() {
				t.Errorf("the caught COMMIT was answered: %v", err)
			}
			if got := caught.Answer(); got != c.answer {
				t.Errorf("the server answered %q, want %q", got, c.answer)
			}
			must(t, s.Wait(t.Context(), "select count(*) = 0 from pg_stat_activity where query ~ $1 and pid <> pg_backend_pid()", table))
			if n := rows(t, s, table); n != c.rows {
				t.Errorf("%d rows, want %d", n, c.rows)
			}
			must(t, transact(t, dial(t, p.URL()), table, 3))
			if p.Commits() != 3 || p.Connections() != 2 {
				t.Errorf("%d commits over %d connections", p.Commits(), p.Connections())
			}
		})
	}
}

// TestProxyKeepsToTheRightAnswer: three transactions in one segment. The answers before the caught COMMIT arrive, nothing after.
func TestProxyKeepsToTheRightAnswer(t *testing.T) {
	for action, want := range map[Action]int{DropRequest: 1, DropAnswer: 2} {
		p, s, table := front(t)
		p.OnCommit(2, action)
		conn, err := net.Dial("tcp", p.Addr())
		must(t, err)
		defer conn.Close()
		fe := pgproto3.NewFrontend(conn, conn)
		fe.Send(&pgproto3.StartupMessage{ProtocolVersion: pgproto3.ProtocolVersion30, Parameters: map[string]string{"user": "postgres"}})
		for range 3 {
			for _, sql := range []string{"begin", "insert into " + table + " values (1)", "commit"} {
				fe.Send(&pgproto3.Query{String: sql})
			}
		}
		must(t, fe.Flush())
		var tags []string
		for {
			m, err := fe.Receive()
			if err != nil {
				break
			}
			if tag, ok := m.(*pgproto3.CommandComplete); ok {
				tags = append(tags, string(tag.CommandTag))
			}
		}
		if len(tags) != 5 || tags[2] != "COMMIT" || tags[4] != "INSERT 0 1" {
			t.Errorf("action %d: answers %q", action, tags)
		}
		if n := rows(t, s, table); n != want || p.Commits() != 2 {
			t.Errorf("action %d: %d rows, want %d; %d commits were read", action, n, want, p.Commits())
		}
	}
}

// TestProxyCatchesPreparedStatements: the text is that of the Parse message, and the commit is the implicit one at Sync.
func TestProxyCatchesPreparedStatements(t *testing.T) {
	p, s, table := front(t)
	conn := dial(t, p.URL())
	insert := "insert into " + table + " values ($1)"
	for k := range 3 {
		_, err := conn.Exec(t.Context(), insert, k)
		must(t, err)
	}
	caught := p.On(func(sql string) bool { return sql == insert }, 1, DropAnswer)
	if _, err := conn.Exec(t.Context(), insert, 3); err == nil {
		t.Error("the caught INSERT was answered")
	}
	if got, n := caught.Answer(), rows(t, s, table); got != "INSERT 0 1" || n != 4 {
		t.Errorf("answer %q, %d rows", got, n)
	}
	caught = p.OnCommit(1, DropRequest)
	b := &pgx.Batch{}
	b.Queue("begin")
	b.Queue(insert, 4)
	b.Queue("commit")
	if err := dial(t, p.URL()).SendBatch(t.Context(), b).Close(); err == nil {
		t.Error("the caught batch was answered")
	}
	if got, n := caught.Answer(), rows(t, s, table); got != "" || n != 4 {
		t.Errorf("answer %q, %d rows", got, n)
	}
}

func TestProxyHoldsAnswer(t *testing.T) {
	p, s, table := front(t)
	caught := p.OnCommit(1, HoldAnswer)
	conn := dial(t, p.URL())
	answered := make(chan error, 1)
	tx, err := conn.Begin(t.Context())
	must(t, err)
	_, err = tx.Exec(t.Context(), "insert into "+table+" values (1)")
	must(t, err)
	go func() { answered <- tx.Commit(context.Background()) }()
	<-caught.Done()
	if n := rows(t, s, table); n != 1 {
		t.Errorf("%d rows while the answer is held", n)
	}
	select {
	case err := <-answered:
		t.Errorf("answered while held: %v", err)
	case <-time.After(100 * time.Millisecond):
	}
	caught.Release()
	must(t, <-answered)
	must(t, transact(t, conn, table, 2))
}

// TestProxyDeliversLate: a COMMIT that arrives after its client gave up.
func TestProxyDeliversLate(t *testing.T) {
	p, s, table := front(t)
	caught := p.OnCommit(1, HoldRequest)
	conn := dial(t, p.URL())
	tx, err := conn.Begin(t.Context())
	must(t, err)
	_, err = tx.Exec(t.Context(), "insert into "+table+" values (1)")
	must(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if err := tx.Commit(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the held COMMIT: %v", err)
	}
	must(t, conn.PgConn().Conn().Close())
	if n := rows(t, s, table); n != 0 {
		t.Errorf("%d rows while the request is held", n)
	}
	caught.Release()
	must(t, s.Wait(t.Context(), "select count(*) = 1 from "+table))
}

func TestProxyStallsAndHeals(t *testing.T) {
	p, s, table := front(t)
	conn := dial(t, p.URL())
	_, err := conn.Exec(t.Context(), "select")
	must(t, err)
	p.Stall()
	answered := make(chan error, 2)
	insert := func(conn *pgx.Conn) {
		_, err := conn.Exec(context.Background(), "insert into "+table+" values (1)")
		answered <- err
	}
	go insert(conn)
	go func() {
		conn, err := pgx.Connect(context.Background(), p.URL())
		if err != nil {
			answered <- err
			return
		}
		defer conn.Close(context.Background())
		insert(conn)
	}()
	eventually(t, "both are connected", func() bool { return p.Connections() == 2 })
	if n := rows(t, s, table); n != 0 || len(answered) > 0 {
		t.Errorf("%d rows, %d answers while stalled", n, len(answered))
	}
	must(t, p.Heal())
	must(t, errors.Join(<-answered, <-answered))
	if n := rows(t, s, table); n != 2 {
		t.Errorf("%d rows after that", n)
	}
}

func TestProxyBlackholeAndHeal(t *testing.T) {
	p, s, table := front(t)
	quiet, busy := dial(t, p.URL()), dial(t, p.URL())
	p.Blackhole()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := busy.Exec(ctx, "insert into "+table+" values (1)"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("through the black hole: %v", err)
	}
	if _, err := pgx.Connect(ctx, p.URL()); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("connect through the black hole: %v", err)
	}
	must(t, p.Heal())
	_, err := quiet.Exec(t.Context(), "insert into "+table+" values (2)")
	must(t, err)
	must(t, transact(t, dial(t, p.URL()), table, 3))
	if n := rows(t, s, table); n != 2 {
		t.Errorf("%d rows: what the black hole took came through, or what was sent after it did not", n)
	}
}

func TestProxyCutsRefusesAndChangesServer(t *testing.T) {
	t.Parallel()
	p, s, table := front(t)
	other := New(t, Options{})
	conn := dial(t, p.URL())
	p.Cut()
	if _, err := conn.Exec(t.Context(), "select"); err == nil {
		t.Error("a cut connection answered")
	}
	if c, err := net.Dial("tcp", p.Addr()); err == nil {
		c.Close()
		t.Error("a new connection was accepted")
	}
	p.Target(other.Addr())
	must(t, p.Heal())
	id, err := other.SystemID(t.Context())
	must(t, err)
	var got string
	must(t, dial(t, p.URL()).QueryRow(t.Context(), "select system_identifier::text from pg_control_system()").Scan(&got))
	if got != id {
		t.Errorf("system id %s, want %s", got, id)
	}
	must(t, s.Wait(t.Context(), "select count(*) = 0 from pg_stat_activity where query ~ $1 and pid <> pg_backend_pid()", table))
	must(t, other.Kill())
	if conn, err := pgx.Connect(t.Context(), p.URL()); err == nil {
		conn.Close(t.Context())
		t.Error("a dead server answered")
	}
}

func TestIsCommit(t *testing.T) {
	for sql, want := range map[string]bool{
		"commit": true, "  COMMIT;": true, "Commit work": true, "insert into t values (1); commit": true, "/* x */ commit": true,
		"-- note\ncommit": true, "end": true, "END;": true, "begin": false, "rollback": false, "select 'commit'": false, "": false,
		"committed": false, "create function f() returns void as $$ begin null; end; $$ language plpgsql": false,
	} {
		if IsCommit(sql) != want {
			t.Errorf("IsCommit(%q) is %v", sql, !want)
		}
	}
}
