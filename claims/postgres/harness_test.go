package postgres

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fence-sidecar/fence-sidecar/claims"
	"github.com/fence-sidecar/fence-sidecar/claims/claimstest"
	"github.com/fence-sidecar/fence-sidecar/claims/postgres/pgtest"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Run(m)) }

// migrated is a fresh schema on the shared server.
func migrated(t *testing.T) Config {
	t.Helper()
	url, schema := pgtest.Shared(t).Schema(t)
	return migrate(t, url, schema)
}

func migrate(t *testing.T, url, schema string) Config {
	t.Helper()
	if _, err := Migrate(t.Context(), MigrateConfig{URL: url, Schema: schema}); err != nil {
		t.Fatal(err)
	}
	return Config{URL: url, Schema: schema, MayLose: true}
}

func open(t *testing.T, cfg Config) *Store {
	t.Helper()
	s, err := Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return s
}

// try runs SQL behind the store's back, over a connection of its own.
func try(t *testing.T, cfg Config, sql string, args ...any) error {
	t.Helper()
	ctx := context.WithoutCancel(t.Context()) // also in a cleanup
	c, err := pgx.Connect(ctx, cfg.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close(ctx)
	// Without a prepared statement: a pooler gives the next message to another session.
	_, err = c.Exec(ctx, schemaOf(cfg.Schema).sql(sql), append([]any{pgx.QueryExecModeExec}, args...)...)
	return err
}

func alter(t *testing.T, cfg Config, sql string, args ...any) {
	t.Helper()
	if err := try(t, cfg, sql, args...); err != nil {
		t.Fatal(err)
	}
}

func key(name string) claims.Key { return claims.Key{Tenant: "shop", Call: name} }

func record(name string) claims.Record {
	return claims.Record{Key: key(name), State: claims.StateOpen, Revision: 1, Claim: claims.NewClaimID()}
}

// rules is the harness of the conformance suite: a clock in the test's hand instead of the server's.
func rules(t *testing.T, cfg Config) claimstest.Harness {
	clock := claimstest.NewClock()
	cfg.Clock = func(time.Time) claims.Now { return clock.Now() }
	cfg.MaxLease = 24 * time.Hour
	s := open(t, cfg)
	return claimstest.Harness{
		Backend: s, Advance: clock.Advance, StepWall: clock.StepWall,
		Lose: func() time.Duration {
			owner := cfg
			owner.URL = as(t, cfg.URL, "postgres")
			alter(t, owner, `UPDATE {schema}.store SET system_id = 'another'`)
			if _, err := s.State(t.Context(), "shop:any"); err != nil { // notices it
				t.Fatal(err)
			}
			return cfg.MaxLease + time.Second
		},
		Fill: func(tenant string, n int) {
			alter(t, cfg, `INSERT INTO {schema}.notices (tenant, gateway, id, body, at_store, at_wall)
				SELECT $1, 'filled', convert_to(n::text, 'UTF8'), '', 0, 0 FROM generate_series(1, $2) n`, []byte(tenant), n)
		},
		Spoil: func(k claims.Key) {
			alter(t, cfg, `UPDATE {schema}.calls SET state = 'martian' WHERE tenant = $1 AND call_key = $2`, []byte(k.Tenant), []byte(k.Call))
		},
	}
}

func TestRules(t *testing.T) {
	claimstest.Run(t, func(t *testing.T) claimstest.Harness { return rules(t, migrated(t)) })
}
