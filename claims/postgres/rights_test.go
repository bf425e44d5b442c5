package postgres

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fence-sidecar/fence-sidecar/claims/postgres/pgtest"
)

// hba replaces who may connect how.
func hba(s *pgtest.Server, lines string) error {
	ctx := context.Background()
	if err := os.WriteFile(filepath.Join(s.Dir(), "pg_hba.conf"), []byte(lines), 0o600); err != nil {
		return err
	}
	if err := s.Exec(ctx, "select pg_reload_conf()"); err != nil {
		return err
	}
	n := strings.Count(lines, "\n")
	return s.Wait(ctx, "select count(*) = $1 and count(error) = 0 from pg_hba_file_rules", n)
}

// roles makes roles, dropped after what the test makes later.
func roles(t *testing.T, s *pgtest.Server, names ...string) {
	t.Helper()
	for _, role := range names {
		ok(t, s.Exec(t.Context(), fmt.Sprintf(`create role "%s" login nosuperuser`, role)))
		t.Cleanup(func() { ok(t, s.Exec(context.Background(), fmt.Sprintf(`drop role "%s"`, role))) })
	}
}

// TestEveryGrantIsChecked: each privilege that Migrate gives is missed by name when it is taken away, with no advice that
// gives the application's role the tables.
func TestEveryGrantIsChecked(t *testing.T) {
	server := pgtest.Shared(t)
	roles(t, server, "sidecar2")
	cfg := migrate(t, server.Database(t), "fence")
	t.Cleanup(func() { alter(t, cfg, `DROP SCHEMA {schema} CASCADE`) })
	migration := MigrateConfig{URL: cfg.URL, Schema: cfg.Schema, SidecarRole: "sidecar2"}
	side := cfg
	side.URL = as(t, cfg.URL, "sidecar2")
	type missing struct{ privilege, object string }
	all := []missing{{"EXECUTE", "FUNCTION {schema}.in_time(bigint)"}}
	for _, g := range grants {
		for p := range strings.SplitSeq(g.privileges, ", ") {
			if g.table != "store" || p != "UPDATE" {
				all = append(all, missing{p, "{schema}." + g.table})
			}
		}
	}
	for column := range strings.SplitSeq(storeColumns, ", ") {
		all = append(all, missing{"UPDATE (" + column + ")", "{schema}.store"})
	}
	for _, c := range all {
		_, err := Migrate(t.Context(), migration)
		ok(t, err)
		alter(t, cfg, "REVOKE "+c.privilege+" ON "+c.object+" FROM sidecar2")
		_, err = Open(t.Context(), side)
		e, ok := errors.AsType[*GrantError](err)
		if !ok || e.Privilege != c.privilege || e.Role != "sidecar2" || Unavailable(err) {
			t.Errorf("without %s on %s: %v", c.privilege, c.object, err)
		}
		if ok && (!strings.Contains(e.Error(), "store.url") || strings.Contains(e.Error(), "this role as the sidecars'")) {
			t.Errorf("advice: %v", e)
		}
	}
	_, err := Migrate(t.Context(), migration)
	ok(t, err)
	open(t, side)
}

// TestMigrateNamesTheMissingRight: for a database and a schema that are another's.
func TestMigrateNamesTheMissingRight(t *testing.T) {
	server := pgtest.Shared(t)
	roles(t, server, "owner3", "other3")
	database := server.Database(t)
	admin := Config{URL: database, Schema: "fence"}
	t.Cleanup(func() { alter(t, admin, `DROP SCHEMA IF EXISTS {schema} CASCADE`) })
	other := MigrateConfig{URL: as(t, database, "other3")}
	wants := func(parts ...string) {
		t.Helper()
		_, err := Migrate(t.Context(), other)
		if _, ok := errors.AsType[*OwnerError](err); !ok {
			t.Fatalf("migrate: %v", err)
		}
		for _, p := range parts {
			if !strings.Contains(err.Error(), p) {
				t.Errorf("no %s in: %v", p, err)
			}
		}
		if strings.Contains(err.Error(), "store.url)") {
			t.Errorf("a sidecar's advice: %v", err)
		}
	}
	wants(`GRANT CREATE ON DATABASE "test_`, `TO "other3"`, `CREATE SCHEMA "fence" AUTHORIZATION "other3"`)
	alter(t, admin, `CREATE SCHEMA {schema} AUTHORIZATION owner3`)
	wants(`"fence" belongs to role "owner3"`, `role "other3" may not`)
	_, err := Migrate(t.Context(), MigrateConfig{URL: as(t, database, "owner3")})
	ok(t, err)
	wants(`"fence" belongs to role "owner3"`, `role "other3" may not`)
	_, err = Migrate(t.Context(), MigrateConfig{URL: as(t, database, "owner3"), SidecarRole: "other3"})
	ok(t, err)
	wants(`"fence" belongs to role "owner3"`, `role "other3" may not`)
}

// TestRoleThatCannotProveIsToldSo: without pg_read_all_settings every failover is a loss.
func TestRoleThatCannotProveIsToldSo(t *testing.T) {
	pair := pgtest.NewPair(t, pgtest.PairOptions{Synchronous: true})
	ok(t, pair.A.Exec(t.Context(), "create role side login"))
	_, err := Migrate(t.Context(), MigrateConfig{URL: pair.A.URL(), SidecarRole: "side"})
	ok(t, err)
	for _, c := range []struct {
		grant   string
		mayLose bool
		warns   bool
	}{
		{"select 1", false, true}, {"select 1", true, false}, {"grant pg_read_all_settings to side", false, false},
	} {
		ok(t, pair.A.Exec(t.Context(), c.grant))
		var log bytes.Buffer
		s, err := Open(t.Context(), Config{
			URL: as(t, pair.A.URL(), "side"), MayLose: c.mayLose, Log: slog.New(slog.NewTextHandler(&log, nil)),
		})
		ok(t, err)
		ok(t, s.Close())
		if warned := strings.Contains(log.String(), "GRANT pg_read_all_settings TO"); warned != c.warns {
			t.Errorf("after %s, may lose %v: log %q", c.grant, c.mayLose, log.String())
		}
	}
}
