package pgtest

import (
	"context"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
)

var shared struct {
	mu      sync.Mutex
	allowed bool // within Run, which stops it
	server  *Server
	err     error
	names   atomic.Int64
}

// Run runs the tests of a binary and then ends all servers: func TestMain(m *testing.M) { os.Exit(pgtest.Run(m)) }.
func Run(m *testing.M) int {
	shared.mu.Lock()
	shared.allowed = true
	shared.mu.Unlock()
	code := m.Run()
	if err := end(); err != nil {
		fmt.Fprintln(os.Stderr, "pgtest:", err)
		code = max(code, 1)
	}
	return code
}

func end() error {
	shared.mu.Lock()
	defer shared.mu.Unlock()
	shared.allowed = false
	var err error
	if s := shared.server; s != nil {
		shared.server = nil
		err = s.remove()
	}
	if err := leave(); err != nil {
		return fmt.Errorf("watchdog: %w", err)
	}
	return err
}

// Shared is the one server of the test binary, started by the first who asks and stopped by Run. Tests leave its settings alone.
func Shared(tb testing.TB) *Server {
	tb.Helper()
	s, err := share()
	if err != nil {
		tb.Fatal(err)
	}
	return s
}

func share() (*Server, error) {
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if !shared.allowed {
		return nil, fmt.Errorf("call pgtest.Run from TestMain: it stops the shared server")
	}
	if shared.server == nil && shared.err == nil {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		shared.server, shared.err = create(ctx, Options{})
	}
	return shared.server, shared.err
}

// Schema is a fresh name, which nothing is made for, and the URL of the database to make it in. The schema is dropped after
// the test, which fails if a transaction was left open in it.
func (s *Server) Schema(tb testing.TB) (url, schema string) {
	tb.Helper()
	s.show(tb)
	schema = fmt.Sprintf("test_%d", shared.names.Add(1))
	tb.Cleanup(func() {
		if err := s.drop(schema); err != nil {
			tb.Errorf("drop schema %s: %v", schema, err)
		}
	})
	return s.URL(), schema
}

// drop waits for transactions that still hold its tables, not for ever. A test may have stopped the server for good.
func (s *Server) drop(schema string) error {
	if s.PID() == 0 {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return s.Exec(ctx, "set lock_timeout = '10s'; set client_min_messages = warning; drop schema if exists "+
		pgx.Identifier{schema}.Sanitize()+" cascade")
}

// Database is the URL of a fresh database, dropped after the test together with its connections. A schema is cheaper.
func (s *Server) Database(tb testing.TB) (url string) {
	tb.Helper()
	s.show(tb)
	ctx, cancel := context.WithTimeout(tb.Context(), patience)
	defer cancel()
	name := fmt.Sprintf("test_%d", shared.names.Add(1))
	if err := s.Exec(ctx, "create database "+name+" template template0"); err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if s.PID() == 0 {
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		if err := s.Exec(ctx, "drop database "+name+" with (force)"); err != nil {
			tb.Errorf("drop database %s: %v", name, err)
		}
	})
	return urlAt(s.Addr(), name)
}
