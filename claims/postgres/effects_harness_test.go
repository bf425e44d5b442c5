package postgres

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fence-sidecar/fence-sidecar/claims"
	"github.com/fence-sidecar/fence-sidecar/claims/claimstest"
)

// shop is a store with an application's table beside it, and the application's own connections.
type shop struct {
	*Effects
	cfg   Config
	store *Store
	pool  *pgxpool.Pool
}

// newShop makes one in a fresh schema.
func newShop(t *testing.T) *shop {
	t.Helper()
	cfg := migrated(t)
	return openShop(t, cfg, cfg.URL)
}

// openShop makes the application's table, and connects it by a URL of its own.
func openShop(t *testing.T, cfg Config, url string) *shop {
	t.Helper()
	alter(t, cfg, `CREATE TABLE {schema}.charges (what text COLLATE "C" NOT NULL)`)
	s := &shop{cfg: cfg, store: open(t, cfg)}
	pc, err := pgxpool.ParseConfig(url)
	ok(t, err)
	pc.MaxConns = 16 // a rule's sessions, callers and changes
	s.pool, err = pgxpool.NewWithConfig(t.Context(), pc)
	ok(t, err)
	t.Cleanup(s.pool.Close)
	s.Effects, err = OpenEffects(t.Context(), s.pool, EffectsConfig{Schema: cfg.Schema, Realm: s.store.Realm()})
	ok(t, err)
	return s
}

func (s *shop) put(ctx context.Context, tx pgx.Tx, row string) error {
	_, err := tx.Exec(ctx, s.schema.sql(`INSERT INTO {schema}.charges (what) VALUES ($1)`), row)
	return err
}

// writes is a work that puts a row.
func (s *shop) writes(row string) Work {
	return func(ctx context.Context, tx pgx.Tx) ([]byte, error) { return []byte("of " + row), s.put(ctx, tx, row) }
}

func (s *shop) rows(t *testing.T) []string {
	t.Helper()
	rows, err := s.pool.Query(context.WithoutCancel(t.Context()), s.schema.sql(`SELECT what FROM {schema}.charges`))
	ok(t, err)
	all, err := pgx.CollectRows(rows, pgx.RowTo[string])
	ok(t, err)
	return all
}

func (s *shop) take(t *testing.T, scope string) claims.Guard {
	t.Helper()
	l, err := s.store.Acquire(t.Context(), scope, "test", time.Minute)
	ok(t, err)
	return l.Guard
}

// expire lets a lease run out at once.
func (s *shop) expire(t *testing.T, g claims.Guard) {
	t.Helper()
	s.lease(t, `UPDATE {schema}.leases SET expiry = 1 WHERE scope = $1`, []byte(g.Scope))
}

// lease changes leases behind the store's back, which would take it for a loss.
func (s *shop) lease(t *testing.T, sql string, args ...any) {
	t.Helper()
	s.change(t, sql, args...)
	s.store.seen.Lock()
	defer s.store.seen.Unlock()
	s.store.seen.witness = witness{}
}

// change runs SQL over a connection that is there: quicker than alter.
func (s *shop) change(t *testing.T, sql string, args ...any) {
	t.Helper()
	if s.pool == nil {
		alter(t, s.cfg, sql, args...)
		return
	}
	_, err := s.pool.Exec(context.WithoutCancel(t.Context()), s.schema.sql(sql), append([]any{pgx.QueryExecModeSimpleProtocol}, args...)...)
	ok(t, err)
}

// empty forgets all leases, effects and rows: quicker than another schema.
func (s *shop) empty(t *testing.T) {
	t.Helper()
	s.lease(t, `DELETE FROM {schema}.leases; DELETE FROM {schema}.effects; DELETE FROM {schema}.effect_marks; DELETE FROM {schema}.charges`)
}

func charge(g claims.Guard, key string) claims.Effect {
	return claims.Effect{Guard: g, Tenant: "shop", Name: "charge", Key: key, Fingerprint: []byte{1}}
}

func (s *shop) harness(t *testing.T) claimstest.EffectHarness {
	return claimstest.EffectHarness{
		Leases: s.store,
		Do: func(ctx context.Context, e claims.Effect, work func(claimstest.Put) ([]byte, error)) ([]byte, bool, error) {
			return s.Do(ctx, e, func(ctx context.Context, tx pgx.Tx) ([]byte, error) {
				return work(func(row string) error { return s.put(ctx, tx, row) })
			})
		},
		Rows:   func() []string { return s.rows(t) },
		Expire: func(g claims.Guard) { s.expire(t, g) },
		Restore: func(g claims.Guard) {
			s.lease(t, `UPDATE {schema}.leases SET token = $2, standing = 'held', expiry = $3 WHERE scope = $1`,
				[]byte(g.Scope), int64(g.Token), time.Now().Add(time.Hour).UnixNano())
		},
	}
}

func TestEffectRules(t *testing.T) {
	s := newShop(t)
	claimstest.RunEffects(t, func(t *testing.T) claimstest.EffectHarness {
		s.empty(t)
		return s.harness(t)
	})
}
