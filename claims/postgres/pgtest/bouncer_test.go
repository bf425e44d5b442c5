//go:build pgbouncer

package pgtest

import (
	"errors"
	"os"
	"testing"

	"github.com/jackc/pgx/v5"
)

// backends are those that one client meets while others come and go: two that hold a transaction, then nobody.
func backends(t *testing.T, url string) map[int]bool {
	t.Helper()
	url += "&default_query_exec_mode=exec"
	met := map[int]bool{}
	client := dial(t, url)
	meet := func() {
		t.Helper()
		var pid int
		must(t, client.QueryRow(t.Context(), "select pg_backend_pid()").Scan(&pid))
		met[pid] = true
	}
	meet()
	var open []pgx.Tx
	for range 2 {
		tx, err := dial(t, url).Begin(t.Context())
		must(t, err)
		open = append(open, tx)
		meet()
	}
	for _, tx := range open {
		must(t, tx.Rollback(t.Context()))
	}
	for range 9 {
		meet()
	}
	return met
}

func TestBouncerHandsOutBackends(t *testing.T) {
	s := Shared(t)
	for mode, want := range map[string]int{"transaction": 3, "session": 1} {
		b := NewBouncer(t, s.Addr(), BouncerOptions{PoolMode: mode})
		if met := backends(t, b.URL()); len(met) != want {
			t.Errorf("%s mode: one client met the backends %v, want %d", mode, met, want)
		}
	}
}

func TestBouncerEndsAndStartsAgain(t *testing.T) {
	var b *Bouncer
	t.Run("runs", func(t *testing.T) {
		p := NewProxy(t, Shared(t).Addr())
		b = NewBouncer(t, p.Addr(), BouncerOptions{})
		conn := dial(t, b.URL())
		must(t, conn.Ping(t.Context()))
		must(t, b.Kill())
		if err := conn.Ping(t.Context()); err == nil {
			t.Error("a dead PgBouncer answered")
		}
		must(t, b.Start(t.Context()))
		must(t, dial(t, b.URL()).Ping(t.Context()))
		if p.Connections() != 2 {
			t.Errorf("%d connections to the server", p.Connections())
		}
	})
	if _, err := os.Stat(b.dir); !errors.Is(err, os.ErrNotExist) || !b.proc.over() {
		t.Errorf("it is left: %v", err)
	}
}
