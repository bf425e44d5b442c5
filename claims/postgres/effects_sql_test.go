package postgres

import (
	"strings"
	"time"

	"github.com/fence-sidecar/fence-sidecar/claims"
)

var sqlRules = []sqlRule{
	{"commit/in-time", func(c *sqlCase) {
		g, a := c.take(c.t, "shop:order"), c.session()
		a.charges(g, "a")
		c.expire(c.t, g)
		a.wants("FS104", "COMMIT")
		c.rowsAre()
		g = c.take(c.t, "shop:order")
		a.charges(g, "a")
		a.must("COMMIT")
		c.rowsAre("a")
	}},
	{"commit/expires-by-itself", func(c *sqlCase) {
		g, a := c.take(c.t, "shop:order"), c.session()
		a.charges(g, "a")
		c.lease(c.t, `UPDATE {schema}.leases SET expiry = $1`, time.Now().Add(50*time.Millisecond).UnixNano())
		a.must("SELECT pg_sleep(0.1)")
		a.wants("FS104", "COMMIT")
		c.rowsAre()
	}},
	{"commit/waits-for-the-disk", func(c *sqlCase) {
		g, a := c.take(c.t, "shop:order"), c.session()
		for _, s := range []struct{ set, standbys, want string }{
			{"off", "NULL", "on"}, {"local", "NULL", "on"}, {"remote_write", "NULL", "remote_write"},
			{"remote_write", "'b'", "on"}, {"on", "'b'", "on"}, {"remote_apply", "'b'", "remote_apply"},
		} {
			c.change(c.t, `UPDATE {schema}.store SET standbys = `+s.standbys)
			a.must("BEGIN")
			a.must("SET LOCAL synchronous_commit = " + s.set)
			a.begins(g, "a")
			a.must(`DO $$ BEGIN ASSERT current_setting('synchronous_commit') = '` + s.want + `', '` + s.set + `'; END $$`)
			a.must("ROLLBACK")
		}
		c.change(c.t, `UPDATE {schema}.store SET standbys = NULL`)
	}},
	// Only the present expiry counts, not how long the lease had left in the beginning.
	{"commit/renewed-meanwhile", func(c *sqlCase) {
		g, a := c.take(c.t, "shop:order"), c.session()
		a.charges(g, "a")
		a.must(`UPDATE {schema}.effects SET created = 1`) // long ago
		_, err := c.store.Renew(c.t.Context(), g, time.Minute)
		ok(c.t, err)
		a.must("COMMIT")
		c.rowsAre("a")
	}},
	{"commit/not-ended", func(c *sqlCase) {
		g, a := c.take(c.t, "shop:order"), c.session()
		for _, text := range []string{"COMMIT", "SET CONSTRAINTS ALL IMMEDIATE"} {
			a.must("BEGIN")
			a.begins(g, "a")
			a.put("a")
			a.wants("FS114", text)
			a.must("ROLLBACK")
		}
		c.rowsAre()
		a.charges(g, "a")
		a.must("COMMIT")
	}},
	{"commit/immediate-constraints", func(c *sqlCase) {
		g, a := c.take(c.t, "shop:order"), c.session()
		a.must("BEGIN")
		a.must("SET CONSTRAINTS ALL IMMEDIATE")
		a.begins(g, "a")
		a.put("a")
		a.ends("a", "of a")
		c.expire(c.t, g)
		a.wants("FS104", "COMMIT")
		c.rowsAre()
	}},
	// Whatever the transaction does: who gets the lease next comes after it.
	{"lease/take-waits", func(c *sqlCase) {
		g, a := c.take(c.t, "shop:order"), c.session()
		a.must("BEGIN")
		a.begins(g, "a")
		c.expire(c.t, g)
		wait := c.takesLater("shop:order")
		if c.waiting("leases", wait) {
			a.must("ROLLBACK")
		} else {
			c.errorf("the lease was taken over under a transaction with an effect")
		}
		next, err := wait.done()
		if err != nil || next.Token != g.Token+1 {
			c.errorf("take: %v, %v", next, err)
		}
	}},
	{"lease/dead-token-waits-for-nobody", func(c *sqlCase) {
		g, a, b := c.take(c.t, "shop:order"), c.session(), c.session()
		c.expire(c.t, g)
		b.must("BEGIN")
		b.must(`SELECT 1 FROM {schema}.leases FOR UPDATE`) // as a take
		a.must("BEGIN")
		a.must("SET LOCAL lock_timeout = '1s'")
		a.refuses(g, "a", "FS104")
	}},
	{"lease/judged-after-the-wait", func(c *sqlCase) {
		g, a, b := c.take(c.t, "shop:order"), c.session(), c.session()
		b.must("BEGIN")
		b.must(`SELECT 1 FROM {schema}.leases FOR UPDATE`)
		b.must(`UPDATE {schema}.leases SET token = token + 1`)
		a.must("BEGIN")
		wait := a.later(func() {
			replayed, _, err := a.begin(g, "a")
			if code(err) != "FS105" || replayed {
				c.errorf("begin beside a take: %v", err)
			}
		})
		b.must("COMMIT")
		wait()
	}},
	{"lease/idle-is-ended", func(c *sqlCase) {
		g, a := c.take(c.t, "shop:order"), c.session()
		const is = `DO $$ BEGIN ASSERT (SELECT setting::integer FROM pg_settings WHERE name = 'idle_in_transaction_session_timeout') BETWEEN %; END $$`
		a.must("BEGIN")
		a.begins(g, "a")
		a.must(strings.Replace(is, "%", "1000 AND 60000", 1))
		a.must("ROLLBACK")
		a.must(strings.Replace(is, "%", "0 AND 0", 1))
		a.must("BEGIN")
		a.must("SET LOCAL idle_in_transaction_session_timeout = '1h'") // longer than the lease
		a.begins(g, "a")
		a.must(strings.Replace(is, "%", "1000 AND 60000", 1))
		a.must("ROLLBACK")
		a.must("BEGIN")
		a.must("SET LOCAL idle_in_transaction_session_timeout = '2s'")
		a.begins(g, "a")
		a.must(strings.Replace(is, "%", "2000 AND 2000", 1))
	}},
	{"lease/quarantine", func(c *sqlCase) {
		g, a := c.take(c.t, "shop:order"), c.session()
		c.change(c.t, `UPDATE {schema}.store SET quarantine_until = $1`, time.Now().Add(time.Hour).UnixNano())
		a.refuses(g, "a", "FS108")
		a.wants("FS108", `SELECT {schema}.check_token($1, 'shop')`, g.String())
		c.change(c.t, `UPDATE {schema}.store SET quarantine_until = NULL`)
	}},
	{"lease/earlier-era", func(c *sqlCase) {
		g, a := c.take(c.t, "shop:order"), c.session()
		c.change(c.t, `UPDATE {schema}.store SET era = era + 1`)
		a.refuses(g, "a", "FS104")
		c.change(c.t, `UPDATE {schema}.store SET era = era - 1`)
	}},
	{"lease/other-server", func(c *sqlCase) {
		g, a := c.take(c.t, "shop:order"), c.session()
		for _, change := range []string{"timeline = timeline + 1", "system_id = system_id || '0'"} {
			undo := strings.NewReplacer("+ 1", "- 1", "system_id || '0'", "left(system_id, -1)").Replace(change)
			c.change(c.t, `UPDATE {schema}.store SET `+change)
			a.refuses(g, "a", "FS109")
			c.change(c.t, `UPDATE {schema}.store SET `+undo)
		}
	}},
	{"nested/refused", func(c *sqlCase) {
		g, a := c.take(c.t, "shop:order"), c.session()
		other := c.take(c.t, "shop:other")
		for _, n := range []struct {
			g   claims.Guard
			key string
		}{{g, "a"}, {g, "b"}, {other, "b"}} {
			a.must("BEGIN")
			a.begins(g, "a")
			a.refuses(n.g, n.key, "FS112")
			a.must("ROLLBACK")
		}
	}},
	{"nested/one-after-the-other", func(c *sqlCase) {
		g, a := c.take(c.t, "shop:order"), c.session()
		a.charges(g, "a")
		a.replays(g, "a", "of a")
		a.begins(c.take(c.t, "shop:other"), "b")
		a.put("b")
		a.ends("b", "of b")
		a.wants("FS113", `SELECT {schema}.end_effect('shop', 'charge', 'b', '')`)
		a.must("ROLLBACK")
		a.wants("FS113", `SELECT {schema}.end_effect('shop', 'charge', 'a', '')`)
		c.rowsAre()
	}},
	{"rollback/frees-the-key", func(c *sqlCase) {
		g, a := c.take(c.t, "shop:order"), c.session()
		a.charges(g, "a")
		a.must("ROLLBACK")
		c.rowsAre()
		a.charges(g, "a")
		a.must("COMMIT")
		c.rowsAre("a")
	}},
	{"rollback/to-a-savepoint", func(c *sqlCase) {
		g, a := c.take(c.t, "shop:order"), c.session()
		a.must("BEGIN")
		a.must("SAVEPOINT s")
		a.begins(g, "a")
		a.put("undone")
		a.must("ROLLBACK TO s")
		a.begins(g, "a")
		a.put("a")
		a.must("SAVEPOINT t")
		a.ends("a", "of a")
		a.must("ROLLBACK TO t")
		a.must("SAVEPOINT u")
		a.wants("FS114", "SET CONSTRAINTS ALL IMMEDIATE")
		a.must("ROLLBACK TO u")
		a.ends("a", "again")
		a.must("COMMIT")
		a.replays(g, "a", "again")
		c.rowsAre("a")
	}},
	{"at-once/second-waits", func(c *sqlCase) {
		g, a, b := c.take(c.t, "shop:order"), c.session(), c.session()
		for _, end := range []string{"ROLLBACK", "COMMIT"} {
			a.charges(g, "a")
			wait := b.later(func() {
				b.must("BEGIN")
				if end == "COMMIT" {
					b.replays(g, "a", "of a")
				} else {
					b.begins(g, "a")
				}
				b.must("ROLLBACK")
			})
			a.must(end)
			wait()
		}
		c.rowsAre("a")
	}},
	{"at-once/expired-while-waiting", func(c *sqlCase) {
		g, other, a, b := c.take(c.t, "shop:order"), c.take(c.t, "shop:other"), c.session(), c.session()
		a.charges(g, "a")
		wait := b.later(func() { b.refuses(other, "a", "FS104") })
		c.expire(c.t, other)
		a.must("COMMIT")
		wait()
	}},
	{"at-once/repeatable-read", func(c *sqlCase) {
		g, a, b := c.take(c.t, "shop:order"), c.session(), c.session()
		for _, level := range []string{"REPEATABLE READ", "SERIALIZABLE"} {
			a.charges(g, level)
			wait := b.later(func() {
				b.must("BEGIN ISOLATION LEVEL " + level)
				b.refuses(g, level, "40001")
				b.must("ROLLBACK")
			})
			a.must("COMMIT")
			wait()
			b.must("BEGIN ISOLATION LEVEL " + level)
			b.replays(g, level, "of "+level)
			b.begins(g, level+" too")
			b.ends(level+" too", "")
			_, err := c.store.Renew(c.t.Context(), g, time.Minute)
			ok(c.t, err)
			b.must("COMMIT")
		}
	}},
	{"arguments/tokens", func(c *sqlCase) {
		g, a := c.take(c.t, "shop:order"), c.session()
		for _, token := range []string{
			"", "shop:order", "shop:order#", "shop:order#0", "shop:order#01", "shop:order#-1", "shop:order# 1", "shop:order#1 ", "shop:order#1\n",
			"shop:order#1#1", "shop:order#9223372036854775808", "shop:order#99999999999999999999", "#1", "shop#1", ":order#1", "shop:#1",
			"@external:shop:order#1", "@instance:x#1", "shop:order:x#1", "shop:order#١", "shop:" + strings.Repeat("x", 1100) + "#1",
		} {
			a.wants("FS101", `SELECT {schema}.begin_effect($1, 'shop', 'charge', 'a', '\x01')`, token)
		}
		a.wants("FS103", `SELECT {schema}.begin_effect($1, 'shop', 'charge', 'a', '\x01')`, "shop:order#9223372036854775807")
		for _, null := range []string{
			`NULL, 'shop', 'charge', 'a', '\x01'`, `$1, NULL, 'charge', 'a', '\x01'`, `$1, 'shop', NULL, 'a', '\x01'`, `$1, 'shop', 'charge', NULL, '\x01'`,
			`$1, 'shop', 'charge', 'a', NULL`, `$1, 'shop', 'charge', 'a', ''`, `$1, 'shop', '', 'a', '\x01'`, `$1, 'shop', 'charge', E'a\u0085', '\x01'`,
			`$1, 'shop', 'charge', E'\na', '\x01'`, `$1, 'shop', 'charge', repeat('a', 256), '\x01'`, `$1, 'shop', 'charge', repeat('é', 128), '\x01'`,
		} {
			a.wants("FS101", `SELECT {schema}.begin_effect(`+null+`) WHERE $1 <> ''`, g.String())
		}
		a.wants("FS102", `SELECT {schema}.begin_effect($1, 'shap', 'charge', 'a', '\x01')`, g.String())
		a.must(`SELECT {schema}.check_token($1, 'shop')`, g.String())
		a.must("BEGIN READ ONLY")
		a.refuses(g, "a", "25006")
	}},
	// A collation for which case is nothing, given by the caller, must not make one tenant of two.
	{"arguments/collation", func(c *sqlCase) {
		g, a := c.take(c.t, "shop:order"), c.session()
		a.must(`CREATE COLLATION IF NOT EXISTS {schema}.folds (provider = icu, locale = 'und-u-ks-level1', deterministic = false)`)
		a.wants("FS102", `SELECT {schema}.begin_effect($1 COLLATE {schema}.folds, 'SHOP' COLLATE {schema}.folds, 'charge', 'a', '\x01')`, g.String())
		a.charges(g, "a")
		a.must("COMMIT")
		a.must(`DO $$ BEGIN ASSERT (SELECT count(*) FROM {schema}.effects) = 1; END $$`)
		a.must("BEGIN")
		a.must(`SELECT {schema}.begin_effect($1, 'shop', 'charge', 'A' COLLATE {schema}.folds, '\x01')`, g.String())
		a.must(`SELECT {schema}.end_effect('shop', 'charge', 'A' COLLATE {schema}.folds, '')`)
		a.must("COMMIT")
		a.must(`DO $$ BEGIN ASSERT (SELECT count(*) FROM {schema}.effects) = 2; END $$`)
	}},
	{"settings/max-result", func(c *sqlCase) {
		g, a := c.take(c.t, "shop:order"), c.session()
		c.change(c.t, `UPDATE {schema}.effect_settings SET max_result = 3`)
		for result, want := range map[string]string{"123": "<nil>", "1234": "FS111"} {
			a.must("BEGIN")
			a.begins(g, result)
			a.wants(want, `SELECT {schema}.end_effect('shop', 'charge', $1, $2)`, result, []byte(result))
			a.must("ROLLBACK")
		}
		c.change(c.t, `UPDATE {schema}.effect_settings SET max_result = 65536`)
	}},
}

// waiting waits until somebody waits for a row of a table, or a take is through: false.
func (c *sqlCase) waiting(table string, t *taking) (waits bool) {
	eventually(c.t, func() bool {
		ok(c.t, c.pool.QueryRow(c.t.Context(), `SELECT EXISTS (SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'
			AND position($1 IN query) > 0)`, c.schema.quoted+"."+table).Scan(&waits))
		return waits || t.ended.Load()
	})
	return waits
}
