package postgres

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fence-sidecar/fence-sidecar/claims"
	"github.com/fence-sidecar/fence-sidecar/claims/claimstest"
)

// TestEveryFieldSurvives: also with bytes in every string that PostgreSQL's text cannot hold, as some come from outside.
func TestEveryFieldSurvives(t *testing.T) {
	s := open(t, migrated(t))
	for _, odd := range []string{"", "\xff\x00\xfe é\ufffd<&>\u2028", "\x00", coded} {
		r := claimstest.FullRecord(key("full" + odd))
		strange(reflect.ValueOf(&r).Elem(), odd)
		if p := claimstest.ZeroField(r); p != "" {
			t.Fatalf("%s is empty", p)
		}
		want := put(t, s, r)
		if d := cmp.Diff(want, get(t, s, r.Key).Record); d != "" {
			t.Errorf("-want +got:\n%s", d)
		}
	}
	holder := "\xff\x00" + coded
	_, err := s.Acquire(t.Context(), "shop:a", holder, time.Minute)
	ok(t, err)
	l, err := s.State(t.Context(), "shop:a")
	ok(t, err)
	log, err := s.Log(t.Context(), "shop:a")
	if err != nil || l.Holder != holder || len(log) != 1 || log[0].Holder != holder {
		t.Errorf("holder %q, log %+v, %v", l.Holder, log, err)
	}
}

// strange puts odd before and after every string below v but the state.
func strange(v reflect.Value, odd string) {
	switch {
	case v.Type() == reflect.TypeFor[claims.State](), v.Type().PkgPath() == "time":
	case v.Kind() == reflect.String:
		v.SetString(odd + v.String() + odd)
	case v.Kind() == reflect.Pointer:
		strange(v.Elem(), odd)
	case v.Kind() == reflect.Slice:
		for i := range v.Len() {
			strange(v.Index(i), odd)
		}
	case v.Kind() == reflect.Map:
		v.SetMapIndex(reflect.ValueOf("k"+odd), reflect.ValueOf("v"+odd))
	case v.Kind() == reflect.Struct && v.Type() != reflect.TypeFor[claims.Key]():
		for _, field := range v.Fields() {
			strange(field, odd)
		}
	}
}

func TestUndecodableIsUnreadable(t *testing.T) {
	cfg := migrated(t)
	s := open(t, cfg)
	for column, text := range map[string]string{
		"attempts": `[{"number":"one"}]`,
		"evidence": `[{"outcome":"maybe"}]`,
		"lookup":   `[["a"`,
		"review":   `[{"reason":"x","since":{},"severity":3}]`, // a field of a later version
		"state":    "martian",
		"payment":  coded + "?",
	} {
		r := put(t, s, claimstest.FullRecord(key(column)))
		alter(t, cfg, `UPDATE {schema}.calls SET `+column+` = $1 WHERE call_key = $2`, text, []byte(column))
		if _, err := s.Get(t.Context(), r.Key, claims.Guard{}); !errors.Is(err, claims.ErrUnreadable) {
			t.Errorf("%s = %s: %v, want unreadable", column, text, err)
		}
	}
	r := put(t, s, claimstest.FullRecord(key("header")))
	alter(t, cfg, `UPDATE {schema}.answers SET header = '{}' WHERE call_key = 'header'`)
	if _, err := s.Get(t.Context(), r.Key, claims.Guard{}); !errors.Is(err, claims.ErrUnreadable) {
		t.Errorf("header = {}: %v, want unreadable", err)
	}
}

func TestLogsAreAppendOnly(t *testing.T) {
	cfg := migrated(t)
	s := open(t, cfg)
	_, err := s.Acquire(t.Context(), "shop:a", "holder", time.Minute)
	ok(t, err)
	for _, q := range []string{
		`DELETE FROM {schema}.lease_log`, `UPDATE {schema}.lease_log SET token = 7`, `TRUNCATE {schema}.lease_log`, `DELETE FROM {schema}.losses`,
	} {
		if err := try(t, cfg, q); err == nil || !strings.Contains(err.Error(), "append-only") {
			t.Errorf("%s: %v", q, err)
		}
	}
}

// TestSessionsKeepNothing: a pooler would hand on whatever stays.
func TestSessionsKeepNothing(t *testing.T) {
	s := open(t, migrated(t))
	everything(t, s)
	for _, pool := range []*pgxpool.Pool{s.leases, s.calls} {
		var left int
		err := pool.QueryRow(t.Context(), `SELECT (SELECT count(*) FROM pg_prepared_statements)
			+ (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid())
			+ (SELECT count(*) FROM pg_listening_channels())
			+ (SELECT count(*) FROM pg_settings WHERE source = 'session' AND name NOT IN ('client_encoding'))`).Scan(&left)
		if err != nil || left != 0 {
			t.Errorf("%d things are left in the session, %v", left, err)
		}
	}
}

// TestNoConnectionIsHeld: after each operation all of them are back.
func TestNoConnectionIsHeld(t *testing.T) {
	cfg := migrated(t)
	cfg.Connections = 3
	s := open(t, cfg)
	everything(t, s)
	load := load(t, s, 20) // 20 writers share one connection
	load(func() bool { return true })
	for _, p := range []*pgxpool.Pool{s.leases, s.calls} { // the pool closes those of the writers that were cancelled by and by
		eventually(t, func() bool { return p.Stat().AcquiredConns() == 0 })
	}
	held, err := s.calls.Acquire(t.Context())
	ok(t, err)
	defer held.Release()
	start := time.Now()
	_, err = s.Get(t.Context(), key("a"), claims.Guard{})
	if err == nil || claims.Refused(err) || time.Since(start) > 30*time.Second {
		t.Errorf("with all connections taken: %v after %s", err, time.Since(start))
	}
	l, err := s.Acquire(t.Context(), "shop:z", "a", time.Minute)
	ok(t, err)
	_, err = s.Renew(t.Context(), l.Guard, time.Minute)
	ok(t, err)
}
