package postgres

import (
	"context"
	"errors"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/fence-sidecar/fence-sidecar/claims"
	"github.com/fence-sidecar/fence-sidecar/claims/postgres/pgtest"
)

func wantSetting(t *testing.T, err error, name string) {
	t.Helper()
	e, ok := errors.AsType[*SettingError](err)
	if !ok || e.Setting != name || e.Want == "" {
		t.Errorf("%v, want a refusal of %s", err, name)
	}
	if claims.Refused(err) {
		t.Errorf("%v counts as a refusal by the rules", err)
	}
	if Unavailable(err) {
		t.Errorf("%v is taken for what goes away by waiting", err)
	}
}

// TestUnsafeSettings: each is refused by name at the start, and by a store that serves when it changes.
func TestUnsafeSettings(t *testing.T) {
	server := pgtest.New(t, pgtest.Options{})
	cfg := migrate(t, server.URL(), "fence")
	s := open(t, cfg)
	strict := cfg
	strict.MayLose = false
	for _, c := range []struct {
		name, bad, good string
		cfg             Config
		onlyAtStart     bool
	}{
		{"fsync", "off", "on", cfg, false},
		{"full_page_writes", "off", "on", cfg, false},
		{"synchronous_commit", "off", "on", cfg, false},
		{"synchronous_commit", "local", "on", cfg, false},
		{"synchronous_commit", "remote_write", "on", strict, true},
		{"default_transaction_isolation", "serializable", "read committed", cfg, true},
		{"default_transaction_isolation", "repeatable read", "read committed", cfg, true},
		{"default_transaction_read_only", "on", "off", cfg, true},
		{"synchronous_standby_names", "", "", strict, true},
		{"synchronous_standby_names", "*", "", strict, true},
		{"synchronous_standby_names", "ANY 1 (b, c)", "", strict, true},
	} {
		passed := t.Run(c.name+" "+c.bad, func(t *testing.T) {
			ok(t, server.Set(t.Context(), c.name, c.bad))
			if c.cfg.MayLose && strings.HasPrefix(c.name, "synchronous_standby") {
				t.Fatal("the write would wait")
			}
			s2, err := Open(t.Context(), c.cfg)
			wantSetting(t, err, c.name)
			if err == nil {
				s2.Close()
			}
			if !c.onlyAtStart {
				eventually(t, func() bool { // a reload reaches each session by itself
					_, err := s.Swap(t.Context(), claims.Condition{}, claims.Write{Next: record(c.name + c.bad)})
					e, ok := errors.AsType[*SettingError](err)
					return ok && e.Setting == c.name
				})
			}
			ok(t, server.Exec(t.Context(), "alter system reset "+c.name))
			ok(t, server.Exec(t.Context(), "select pg_reload_conf()"))
			ok(t, server.Wait(t.Context(), "select current_setting($1) = $2", c.name, c.good))
		})
		if !passed {
			return // the setting is perhaps still there
		}
	}
	eventually(t, func() bool {
		_, err := s.Swap(t.Context(), claims.Condition{}, claims.Write{Next: record("after all")})
		return err == nil
	})
}

func eventually(t *testing.T, f func() bool) {
	t.Helper()
	for start := time.Now(); !f(); time.Sleep(20 * time.Millisecond) {
		if time.Since(start) > time.Minute {
			t.Fatal("still not after a minute")
		}
	}
}

func TestStandbyIsRefused(t *testing.T) {
	pair := pgtest.NewPair(t, pgtest.PairOptions{})
	cfg := migrate(t, pair.A.URL(), "fence")
	ok(t, pair.CatchUp(t.Context()))
	cfg.URL = pair.B.URL()
	_, err := Open(t.Context(), cfg)
	wantSetting(t, err, "pg_is_in_recovery()")
}

func TestOtherEncodingIsRefused(t *testing.T) {
	server := pgtest.Shared(t)
	ok(t, server.Exec(t.Context(), "create database latin template template0 encoding 'LATIN1' locale 'C'"))
	t.Cleanup(func() { ok(t, server.Exec(context.Background(), "drop database latin with (force)")) })
	cfg := migrate(t, strings.Replace(server.URL(), "/postgres?", "/latin?", 1), "fence")
	_, err := Open(t.Context(), cfg)
	wantSetting(t, err, "server_encoding")
}

func TestColumnsOfOtherTypesAreRefused(t *testing.T) {
	for change, name := range map[string]string{
		`ALTER TABLE {schema}.calls ALTER call_key TYPE text USING encode(call_key, 'escape')`: "type of %.calls.call_key",
		`ALTER TABLE {schema}.leases ALTER token TYPE integer`:                                 "type of %.leases.token",
		`CREATE COLLATION {schema}.folding (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
			ALTER TABLE {schema}.calls ALTER state TYPE text COLLATE {schema}.folding`: "collation of %.calls.state",
	} {
		cfg := migrated(t)
		for sql := range strings.SplitSeq(change, ";") {
			alter(t, cfg, sql)
		}
		_, err := Open(t.Context(), cfg)
		wantSetting(t, err, strings.Replace(name, "%", cfg.Schema, 1))
	}
}

func TestConfigIsRefused(t *testing.T) {
	cfg := migrated(t)
	u, err := url.Parse(cfg.URL)
	ok(t, err)
	q := u.Query()
	q.Set("search_path", "public")
	u.RawQuery = q.Encode()
	bad := cfg
	bad.URL = u.String()
	_, err = Open(t.Context(), bad)
	wantSetting(t, err, "url: search_path")
	bad = cfg
	bad.Connections = 2
	_, err = Open(t.Context(), bad)
	wantSetting(t, err, "connections")
}

func TestLongestLease(t *testing.T) {
	cfg := migrated(t)
	cfg.MaxLease = time.Minute
	s := open(t, cfg)
	if _, err := s.Acquire(t.Context(), "shop:a", "a", time.Minute+1); err == nil || claims.Refused(err) {
		t.Errorf("a lease that is too long: %v", err)
	}
	l, err := s.Acquire(t.Context(), "shop:a", "a", time.Minute)
	ok(t, err)
	if _, err := s.Renew(t.Context(), l.Guard, time.Minute+1); err == nil || claims.Refused(err) {
		t.Errorf("a renewal that is too long: %v", err)
	}
}
