package postgres

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fence-sidecar/fence-sidecar/claims"
	"github.com/fence-sidecar/fence-sidecar/claims/postgres/pgtest"
)

// hostile is what an application's role may make of its own, to stand in for what the functions use.
const hostile = `
	CREATE SCHEMA evil;
	GRANT USAGE ON SCHEMA evil TO PUBLIC; -- else the owner, whose rights the functions have, would not see it
	CREATE FUNCTION evil.lie() RETURNS bigint LANGUAGE sql AS 'SELECT 0::bigint';
	CREATE FUNCTION evil.clock_timestamp() RETURNS timestamptz LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'evil'; END $$;
	CREATE FUNCTION evil.octet_length(bytea) RETURNS integer LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'evil'; END $$;
	CREATE FUNCTION evil.convert_to(text, text) RETURNS bytea LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'evil'; END $$;
	CREATE FUNCTION evil.never(bigint, bigint) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'evil'; END $$;
	CREATE FUNCTION evil.never(bytea, bytea) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'evil'; END $$;
	CREATE OPERATOR evil.< (LEFTARG = bigint, RIGHTARG = bigint, FUNCTION = evil.never);
	CREATE OPERATOR evil.<= (LEFTARG = bigint, RIGHTARG = bigint, FUNCTION = evil.never);
	CREATE OPERATOR evil.> (LEFTARG = bigint, RIGHTARG = bigint, FUNCTION = evil.never);
	CREATE OPERATOR evil.= (LEFTARG = bytea, RIGHTARG = bytea, FUNCTION = evil.never);
	CREATE OPERATOR evil.<> (LEFTARG = bytea, RIGHTARG = bytea, FUNCTION = evil.never);
	CREATE TABLE evil.leases (scope bytea, token bigint, era bigint, standing text, expiry bigint);
	CREATE TEMP TABLE leases (scope bytea, token bigint, era bigint, standing text, expiry bigint);
	CREATE TEMP TABLE store (era bigint, quarantine_until bigint, system_id text, timeline bigint);
	CREATE TEMP TABLE effects (ended boolean);
	CREATE FUNCTION pg_temp.effect_lease(bytea, bigint) RETURNS bigint LANGUAGE sql AS 'SELECT 1000000000000';
	CREATE DOMAIN pg_temp.bigint AS text;
	SET search_path = pg_temp, evil, pg_catalog, public`

// TestApplicationsRole: it may call the functions and nothing else, and cannot turn them to its own ends.
func TestApplicationsRole(t *testing.T) {
	server := pgtest.Shared(t)
	roles(t, server, "owner4", "app4", "stranger4")
	database := server.Database(t)
	admin := Config{URL: database, Schema: "fence"}
	t.Cleanup(func() {
		alter(t, admin, `DROP SCHEMA IF EXISTS {schema} CASCADE`)
		alter(t, admin, `DROP OWNED BY owner4, app4, stranger4 CASCADE`)
	})
	alter(t, admin, `CREATE SCHEMA {schema} AUTHORIZATION owner4`)
	alter(t, admin, `DO $$ BEGIN EXECUTE format('GRANT CREATE, TEMP ON DATABASE %I TO app4, stranger4', current_database()); END $$`)
	_, err := Migrate(t.Context(), MigrateConfig{URL: as(t, database, "owner4"), AppRole: "app4"})
	ok(t, err)
	cfg := Config{URL: as(t, database, "owner4"), Schema: "fence", MayLose: true}
	s := &shop{cfg: cfg, store: open(t, cfg)}
	l, err := s.store.Acquire(t.Context(), "shop:order", "x", time.Minute)
	ok(t, err)

	app, err := pgx.Connect(t.Context(), as(t, database, "app4"))
	ok(t, err)
	defer app.Close(context.Background())
	_, err = app.Exec(t.Context(), hostile)
	ok(t, err)
	f, err := OpenEffects(t.Context(), app, EffectsConfig{Realm: s.store.Realm()})
	ok(t, err)
	work := func(context.Context, pgx.Tx) ([]byte, error) { return []byte("result"), nil }
	for _, want := range []bool{false, true} {
		got, replayed, err := f.Do(t.Context(), charge(l.Guard, "a"), work)
		if string(got) != "result" || replayed != want || err != nil {
			t.Errorf("%q, %v, %v", got, replayed, err)
		}
	}
	stale := claims.Guard{Scope: "shop:other", Token: 1}
	if _, err = app.Exec(t.Context(), `INSERT INTO pg_temp.leases VALUES ('shop:other', 1, 0, 'held', 9e18)`); err != nil {
		t.Fatal(err)
	}
	_, _, err = f.Do(t.Context(), charge(stale, "b"), work)
	if e, is := errors.AsType[*claims.FencedError](err); !is || e.Status != claims.LeaseAbsent {
		t.Errorf("a lease in a table of its own: %v", err)
	}
	s.expire(t, l.Guard)
	if _, _, err = f.Do(t.Context(), charge(l.Guard, "c"), work); !claims.EffectRefused(err) {
		t.Errorf("expired: %v", err)
	}

	for _, text := range []string{
		`SELECT 1 FROM fence.effects`, `UPDATE fence.effects SET ended = true`, `DELETE FROM fence.effects`, `INSERT INTO fence.effects (tenant) VALUES ('')`,
		`SELECT 1 FROM fence.effect_marks`, `UPDATE fence.effect_marks SET token = 1`, `UPDATE fence.effect_settings SET max_result = 1`,
		`SELECT 1 FROM fence.leases`, `UPDATE fence.leases SET expiry = 0`, `SELECT 1 FROM fence.store`, `SELECT 1 FROM fence.leases FOR KEY SHARE`,
		`SELECT fence.effect_lease('shop:order', 1)`, `SELECT fence.effect_mark('shop:order', 9)`, `SELECT fence.effect_clock()`,
		`SELECT fence.effect_bytes('a', 'b')`, `SELECT fence.effect_token('shop:order#1', 'shop')`, `SELECT fence.effect_component('a')`,
		`CREATE TABLE fence.x (a int)`, `CREATE TRIGGER x AFTER INSERT ON evil.leases FOR EACH ROW EXECUTE FUNCTION fence.effect_commit()`,
		`ALTER TABLE fence.effects DISABLE TRIGGER ALL`, `DROP TRIGGER effects_are_ended ON fence.effects`, `SET session_replication_role = replica`,
		`CREATE OR REPLACE FUNCTION fence.effect_clock() RETURNS bigint LANGUAGE sql AS 'SELECT 1::bigint'`, `SELECT fence.in_time(1)`,
	} {
		if _, err := app.Exec(t.Context(), text); code(err) != "42501" {
			t.Errorf("%s: %v, want no permission", text, err)
		}
	}
	stranger, err := pgx.Connect(t.Context(), as(t, database, "stranger4"))
	ok(t, err)
	defer stranger.Close(context.Background())
	_, err = OpenEffects(t.Context(), stranger, EffectsConfig{Realm: s.store.Realm()})
	if !errors.Is(err, claims.ErrEffectBackend) || !strings.Contains(err.Error(), "store.appRole") {
		t.Errorf("a role without the right: %v", err)
	}
	alter(t, admin, `GRANT USAGE ON SCHEMA {schema} TO stranger4`)
	for _, function := range appFunctions {
		name, args, _ := strings.Cut(function, "(")
		n := strings.Count(args, ",") + 1
		if args == ")" {
			n = 0
		}
		text := "SELECT fence." + name + "(" + strings.TrimSuffix(strings.Repeat("NULL,", n), ",") + ")"
		if _, err := stranger.Exec(t.Context(), text); code(err) != "42501" {
			t.Errorf("%s by a role without the right: %v", text, err)
		}
	}
}

// TestEffectFunctionsArePinned: each that runs with the owner's rights has a search_path of its own, and only the application's
// are for others.
func TestEffectFunctionsArePinned(t *testing.T) {
	cfg := migrated(t)
	c, err := pgx.Connect(t.Context(), cfg.URL)
	ok(t, err)
	defer c.Close(context.Background())
	rows, err := c.Query(t.Context(), `SELECT p.proname, p.prosecdef, coalesce(p.proconfig::text, ''), has_function_privilege('public', p.oid, 'EXECUTE')
		FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace WHERE n.nspname = $1`, cfg.Schema)
	ok(t, err)
	var name, config string
	var definer, public bool
	pinned := 0
	_, err = pgx.ForEachRow(rows, []any{&name, &definer, &config, &public}, func() error {
		if public {
			t.Errorf("%s is for everybody", name)
		}
		if definer && config != `{"search_path=pg_catalog, pg_temp"}` {
			t.Errorf("%s has %s", name, config)
		}
		if definer {
			pinned++
		}
		return nil
	})
	if err != nil || pinned != len(appFunctions)+1 { // and the trigger's
		t.Errorf("%d functions run with the owner's rights, %v", pinned, err)
	}
}
