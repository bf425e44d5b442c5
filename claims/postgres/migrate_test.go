package postgres

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fence-sidecar/fence-sidecar/claims"
	"github.com/fence-sidecar/fence-sidecar/claims/postgres/pgtest"
)

func TestMigrateTwiceAtOnce(t *testing.T) {
	url, schema := pgtest.Shared(t).Schema(t)
	reports := make([]Report, 8)
	var wg sync.WaitGroup
	for i := range reports {
		wg.Go(func() {
			var err error
			if reports[i], err = Migrate(t.Context(), MigrateConfig{URL: url, Schema: schema}); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	applied, keys := 0, 0
	for _, r := range reports {
		applied += len(r.Applied)
		if r.KeyMade {
			keys++
		}
		if r.Realm == "" || r.Realm != reports[0].Realm || r.To != 3 {
			t.Errorf("report %+v", r)
		}
	}
	if applied != 3 || keys != 1 {
		t.Errorf("%d migrations applied, %d keys made", applied, keys)
	}
}

func TestMigrateBesideServing(t *testing.T) {
	cfg := migrated(t)
	s := open(t, cfg)
	written := load(t, s, 4)
	for range 5 {
		r, err := Migrate(t.Context(), MigrateConfig{URL: cfg.URL, Schema: cfg.Schema})
		if err != nil || len(r.Applied) > 0 || r.KeyMade || r.Realm != s.Realm() {
			t.Errorf("%+v, %v", r, err)
		}
	}
	if all := written(func() bool { return true }); len(all) == 0 {
		t.Error("nothing was written meanwhile")
	}
}

func TestOpenRefusesOtherSchemas(t *testing.T) {
	for name, change := range map[string]string{
		"older":                     `DELETE FROM {schema}.schema_version`,
		"newer, not for us":         `INSERT INTO {schema}.schema_version VALUES (4, '0004_more.sql', 'x', 4)`,
		"much newer, not for us":    `INSERT INTO {schema}.schema_version VALUES (4, 'x', 'x', 1), (5, 'y', 'y', 5)`,
		"changed":                   `UPDATE {schema}.schema_version SET sum = 'x'`,
		"renamed":                   `UPDATE {schema}.schema_version SET name = 'x'`,
		"with a gap":                `UPDATE {schema}.schema_version SET version = 5 WHERE version = 2`,
		"without a realm":           `DELETE FROM {schema}.store`,
		"without a key":             `DELETE FROM {schema}.keys`,
		"another's":                 `DROP TABLE {schema}.schema_version`,
		"without one of its tables": `DROP TABLE {schema}.answers`,
		"not there":                 `DROP SCHEMA {schema} CASCADE`,
	} {
		t.Run(name, func(t *testing.T) {
			cfg := migrated(t)
			alter(t, cfg, change)
			_, err := Open(t.Context(), cfg)
			if !errors.Is(err, ErrSchema) || !strings.Contains(err.Error(), "store migrate") || Unavailable(err) {
				t.Errorf("open: %v", err)
			}
		})
	}
}

// TestNewerSchema: a rolling upgrade migrates first. What only adds lets this version go on.
func TestNewerSchema(t *testing.T) {
	cfg := migrated(t)
	alter(t, cfg, `ALTER TABLE {schema}.calls ADD later text COLLATE "C"`)
	alter(t, cfg, `INSERT INTO {schema}.schema_version VALUES (4, '0004_later.sql', 'x', 1)`)
	s := open(t, cfg)
	r := put(t, s, record("c"))
	put(t, s, r)
	if _, err := Migrate(t.Context(), MigrateConfig{URL: cfg.URL, Schema: cfg.Schema}); err != nil {
		t.Errorf("migrate by the older version: %v", err)
	}
}

func TestMigrateRefusesAnothersSchema(t *testing.T) {
	url, schema := pgtest.Shared(t).Schema(t)
	cfg := Config{URL: url, Schema: schema}
	alter(t, cfg, `CREATE SCHEMA {schema}`)
	alter(t, cfg, `CREATE TABLE {schema}.theirs (a int)`)
	if _, err := Migrate(t.Context(), MigrateConfig{URL: url, Schema: schema}); !errors.Is(err, ErrSchema) {
		t.Errorf("migrate: %v", err)
	}
	url, schema = pgtest.Shared(t).Schema(t)
	cfg = Config{URL: url, Schema: schema}
	alter(t, cfg, `CREATE SCHEMA {schema}`) // by somebody who may
	if _, err := Migrate(t.Context(), MigrateConfig{URL: url, Schema: schema}); err != nil {
		t.Errorf("migrate into an empty schema: %v", err)
	}
}

// as is the URL of another role, without a password.
func as(t *testing.T, raw, role string) string {
	t.Helper()
	u, err := url.Parse(raw)
	ok(t, err)
	u.User = url.User(role)
	return u.String()
}

// TestRoles: the sidecars' role has what they need and no more, the application's no table.
func TestRoles(t *testing.T) {
	server := pgtest.Shared(t)
	for _, role := range []string{"owner", "sidecar", "app"} {
		ok(t, server.Exec(t.Context(), fmt.Sprintf(`create role "%s" login nosuperuser`, role)))
	}
	database := server.Database(t)
	t.Cleanup(func() {
		for _, role := range []string{"owner", "sidecar", "app"} {
			ok(t, server.Exec(context.Background(), fmt.Sprintf(`drop role "%s"`, role)))
		}
	})
	admin := Config{URL: database, Schema: "fence"}
	t.Cleanup(func() { alter(t, admin, `DROP SCHEMA {schema} CASCADE`) })
	alter(t, admin, `CREATE SCHEMA {schema} AUTHORIZATION owner`)
	migration := MigrateConfig{URL: as(t, database, "owner"), SidecarRole: "sidecar", AppRole: "app"}
	if _, err := Migrate(t.Context(), migration); err != nil {
		t.Fatal(err)
	}
	cfg := Config{URL: as(t, database, "sidecar"), MayLose: true}
	h := rules(t, Config{URL: cfg.URL, Schema: "fence", MayLose: true})
	s := h.Backend.(*Store)
	everything(t, s)
	h.Lose()
	if v := get(t, s, key("a")); v.Era != 1 {
		t.Errorf("the sidecars' role cannot write down a loss: %+v", v)
	}
	sidecar, app := Config{URL: cfg.URL, Schema: "fence"}, Config{URL: as(t, database, "app"), Schema: "fence"}
	for _, c := range []struct {
		cfg Config
		sql string
	}{
		{sidecar, `DELETE FROM {schema}.lease_log`}, {sidecar, `UPDATE {schema}.lease_log SET token = 1`}, {sidecar, `TRUNCATE {schema}.calls`},
		{sidecar, `DELETE FROM {schema}.calls`}, {sidecar, `DELETE FROM {schema}.leases`}, {sidecar, `UPDATE {schema}.store SET realm = 'x'`},
		{sidecar, `CREATE TABLE {schema}.x (a int)`}, {sidecar, `INSERT INTO {schema}.keys VALUES (2, '\x00', 1)`},
		{app, `SELECT 1 FROM {schema}.leases`}, {app, `UPDATE {schema}.leases SET token = 1`}, {app, `SELECT 1 FROM {schema}.calls`},
		{app, `SELECT 1 FROM {schema}.keys`}, {app, `SELECT 1 FROM {schema}.events`}, {app, `SELECT 1 FROM {schema}.members`},
		{app, `SELECT 1 FROM {schema}.notices`}, {app, `SELECT 1 FROM {schema}.earlier`}, {app, `DELETE FROM {schema}.notices`},
		{sidecar, `DELETE FROM {schema}.earlier`}, {sidecar, `UPDATE {schema}.earlier SET reference = 'x'`}, {sidecar, `TRUNCATE {schema}.notices`},
		{sidecar, `DELETE FROM {schema}.members`}, {sidecar, `TRUNCATE {schema}.events`}, {app, `SELECT {schema}.in_time(1)`}, {app, `INSERT INTO {schema}.lease_log (scope) VALUES ('')`},
	} {
		err := try(t, c.cfg, c.sql)
		if e, ok := errors.AsType[*pgconn.PgError](err); !ok || e.Code != "42501" {
			t.Errorf("%s: %v, want no permission", c.sql, err)
		}
	}
	for _, c := range [][2]string{
		{`REVOKE INSERT ON {schema}.losses FROM sidecar`, "INSERT"}, {`REVOKE DELETE ON {schema}.answers FROM sidecar`, "DELETE"},
		{`REVOKE EXECUTE ON FUNCTION {schema}.in_time FROM sidecar`, "EXECUTE"},
	} {
		alter(t, admin, c[0])
		_, err := Open(t.Context(), cfg)
		if e, ok := errors.AsType[*GrantError](err); !ok || e.Privilege != c[1] || e.Role != "sidecar" || Unavailable(err) {
			t.Errorf("after %s: %v", c[0], err)
		}
		if _, err := Migrate(t.Context(), migration); err != nil {
			t.Fatal(err)
		}
	}
}

// everything writes by every method.
func everything(t *testing.T, s *Store) {
	t.Helper()
	l, err := s.Acquire(t.Context(), "shop:a", "a", time.Minute)
	ok(t, err)
	_, err = s.Renew(t.Context(), l.Guard, time.Minute)
	ok(t, err)
	_, err = s.Renew(t.Context(), claims.Guard{Scope: "@external:shop:b", Token: 7}, time.Minute)
	ok(t, err)
	r := record("a")
	r.State, r.Answer = claims.StateSucceeded, &claims.Answer{Status: 200}
	out, err := s.Swap(t.Context(), claims.Condition{Guard: l.Guard}, claims.Write{Next: r, Event: eventOf("a")})
	ok(t, err)
	put(t, s, out.Records[0])
	list, err := s.Untold(t.Context(), claims.Sweep{Limit: 10, Base: time.Second})
	if err != nil || len(list) != 1 {
		t.Fatalf("untold: %+v, %v", list, err)
	}
	ok(t, s.Told(t.Context(), list[0].ID))
	last, err := s.LastEvent(t.Context())
	if err != nil || last != wantEvents(t, s, "", "a") {
		t.Errorf("last event %q, %v", last, err)
	}
	past := claims.Past{Revision: 1, State: claims.StateOpen, Facts: claims.Facts{Gateway: "g", Reference: "ref"}}
	revised := record("revised")
	revised.Past = []claims.Past{past}
	put(t, s, put(t, s, revised))
	if found, err := s.Find(t.Context(), "shop", "g", claims.Handles{Reference: "ref"}, 10); err != nil || len(found) != 1 {
		t.Errorf("found: %v, %v", found, err)
	}
	notice := claims.Early{Tenant: "shop", Gateway: "g", ID: "n"}
	ok(t, s.Keep(t.Context(), notice))
	ok(t, s.Keep(t.Context(), notice))
	if kept, err := s.Kept(t.Context(), nil, 10); err != nil || len(kept) != 1 {
		t.Errorf("kept: %v, %v", kept, err)
	}
	ok(t, s.Drop(t.Context(), notice.Tenant, notice.Gateway, notice.ID))
	for range 2 {
		ok(t, s.Announce(t.Context(), claims.Member{Guard: l.Guard, Version: "1"}))
	}
	_, err = s.Members(t.Context())
	ok(t, err)
	u := record("unknown")
	u.State = claims.StateUnknown
	put(t, s, u)
	keys, err := s.Unsettled(t.Context(), claims.Sweep{Limit: 10, Base: time.Second})
	if err != nil || len(keys) != 1 {
		t.Errorf("unsettled: %v, %v", keys, err)
	}
	if n, err := s.Prune(t.Context(), out.Now.Store.Add(time.Hour), 10); err != nil || n != 2 { // the answer and the event
		t.Errorf("prune: %d, %v", n, err)
	}
	_, err = s.Cancel(t.Context(), "shop:a")
	ok(t, err)
	ok(t, s.Release(t.Context(), l.Guard))
	_, err = s.Status(t.Context())
	ok(t, err)
}
