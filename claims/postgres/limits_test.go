package postgres

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// TestLimitsOfAWrite: in force within its transaction, for the socket too, and gone after it on the same connection.
func TestLimitsOfAWrite(t *testing.T) {
	cfg := migrated(t)
	cfg.Connections = minConnections
	s := open(t, cfg)
	names := []string{
		"lock_timeout", "statement_timeout", "idle_in_transaction_session_timeout",
		"tcp_keepalives_idle", "tcp_keepalives_interval", "tcp_keepalives_count", "tcp_user_timeout",
	}
	ask := "SELECT pg_backend_pid()::text || ' ' || concat_ws(' ', current_setting('" +
		strings.Join(names, "'), current_setting('") + "'), coalesce(current_setting('transaction_timeout', true), '-'))"
	var before, within, after string
	ok(t, s.calls.QueryRow(t.Context(), ask).Scan(&before))
	ok(t, s.write(t.Context(), s.calls, nil, func(t *tx) error { return t.conn.QueryRow(t.ctx, ask).Scan(&within) }))
	ok(t, s.calls.QueryRow(t.Context(), ask).Scan(&after))
	pid, _, _ := strings.Cut(before, " ")
	want := pid + " 4s 4s 5s 5 2 3 10000 " + strings.TrimSpace(before[strings.LastIndex(before, " "):])
	if strings.HasSuffix(before, " 0") {
		want = strings.TrimSuffix(want, "0") + "8s"
	}
	if within != want {
		t.Errorf("within the transaction: %q, want %q", within, want)
	}
	if after != before || before == within {
		t.Errorf("before: %q, after: %q", before, after)
	}
}

// TestLimitOutlastsTheProcess: the server ends a transaction after the process gave it up, also a long one.
func TestLimitOutlastsTheProcess(t *testing.T) {
	for _, bound := range []time.Duration{patience, longer} {
		ctx, cancel := context.WithTimeout(t.Context(), bound)
		defer cancel()
		var ms int64
		_, err := fmt.Sscan(limit(ctx).args[0].(string), &ms)
		ok(t, err)
		if d := time.Duration(ms) * time.Millisecond; d <= bound || d > bound+2*time.Second {
			t.Errorf("%s for a bound of %s", d, bound)
		}
	}
}

// instances is how the newest renewal of a sidecar's own lease is found: by the primary key, since an index on the time of
// renewal would make every renewal write to all indexes of its row.
const instances = `scope >= '@instance:'::bytea AND scope < '@instance;'::bytea`

// TestRenewalsStayHot: and the sidecars' leases are found among many others.
func TestRenewalsStayHot(t *testing.T) {
	cfg := migrated(t)
	s := open(t, cfg)
	alter(t, cfg, `INSERT INTO {schema}.leases SELECT convert_to(p || n, 'UTF8'), 1, 0, 'h', 'held', n, false, n, n
		FROM (VALUES ('shop:a', 60000), ('@external:b', 1000), ('@instance:', 500)) s (p, c), generate_series(1, s.c) n`)
	alter(t, cfg, `ANALYZE {schema}.leases`)
	sql := s.schema.sql(`SELECT max(renewed_store) FROM {schema}.leases WHERE ` + instances)
	if plan := explain(t, s.calls, sql); strings.Contains(plan, "Seq Scan") || !strings.Contains(plan, "leases_pkey") {
		t.Errorf("plan:\n%s", plan)
	}
	var newest int64
	ok(t, s.calls.QueryRow(t.Context(), sql).Scan(&newest))
	if newest != 500 {
		t.Errorf("newest %d", newest)
	}
	const renewals = 20
	for _, scope := range []string{"shop:hot", "@instance:hot"} {
		l, err := s.Acquire(t.Context(), scope, "a", time.Minute)
		ok(t, err)
		for range renewals {
			_, err := s.Renew(t.Context(), l.Guard, time.Minute)
			ok(t, err)
		}
	}
	var updates, hot int
	eventually(t, func() bool { // sessions tell once they are idle
		ok(t, s.calls.QueryRow(t.Context(), `SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables
			WHERE schemaname = $1 AND relname = 'leases'`, cfg.Schema).Scan(&updates, &hot))
		return updates == 2*renewals
	})
	if hot < updates-2 { // the first of each may find its page full
		t.Errorf("of %d updates %d were HOT", updates, hot)
	}
}

func explain(t *testing.T, p *pgxpool.Pool, sql string) string {
	t.Helper()
	rows, err := p.Query(t.Context(), "EXPLAIN (ANALYZE, TIMING OFF) "+sql)
	ok(t, err)
	defer rows.Close()
	var b strings.Builder
	for rows.Next() {
		var line string
		ok(t, rows.Scan(&line))
		b.WriteString(line + "\n")
	}
	ok(t, rows.Err())
	return b.String()
}
