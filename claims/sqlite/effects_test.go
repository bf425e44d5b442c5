package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fence-sidecar/fence-sidecar/claims"
	"github.com/fence-sidecar/fence-sidecar/claims/claimstest"
)

// shop is a store with an application's table in its file.
type shop struct {
	*Effects
	store *Store
	*machine
	guard claims.Guard
}

func newShop(t *testing.T) *shop {
	t.Helper()
	path := migrated(t)
	alter(t, path, `CREATE TABLE charges (what TEXT NOT NULL)`)
	m := newMachine()
	s := openAt(t, path, m)
	f, err := NewEffects(s, EffectsConfig{Realm: s.Realm()})
	if err != nil {
		t.Fatal(err)
	}
	l, err := s.Acquire(t.Context(), "shop:guard", "test", time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	return &shop{f, s, m, l.Guard}
}

func (s *shop) effect(key string) claims.Effect {
	return claims.Effect{Guard: s.guard, Tenant: "shop", Name: "charge", Key: key, Fingerprint: []byte{1}}
}

// rows are those that were committed.
func (s *shop) rows(t *testing.T) (all []string) {
	t.Helper()
	err := s.store.read(context.WithoutCancel(t.Context()), func(tx *tx) error {
		rows, err := tx.query(`SELECT what FROM charges`)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var what string
			if err := rows.Scan(&what); err != nil {
				return err
			}
			all = append(all, what)
		}
		return rows.Err()
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestEffectRules(t *testing.T) {
	claimstest.RunEffects(t, func(t *testing.T) claimstest.EffectHarness {
		s := newShop(t)
		return claimstest.EffectHarness{
			Leases: s.store,
			Do: func(ctx context.Context, e claims.Effect, work func(claimstest.Put) ([]byte, error)) ([]byte, bool, error) {
				return s.Do(ctx, e, func(_ context.Context, tx *EffectTx) ([]byte, error) {
					return work(func(row string) error {
						_, err := tx.Exec(`INSERT INTO charges (what) VALUES (?)`, row)
						return err
					})
				})
			},
			Rows:   func() []string { return s.rows(t) },
			Expire: func(claims.Guard) { s.Advance(30 * time.Second) },
			Restore: func(g claims.Guard) {
				spoil(t, s.store, `UPDATE leases SET token = ?, standing = 'held', expiry = expiry + 1000000000000 WHERE scope = ?`, int64(g.Token), g.Scope)
			},
		}
	})
}

func TestEffectsOfAnotherStore(t *testing.T) {
	s := newShop(t).store
	for _, realm := range []string{"", "another"} {
		if _, err := NewEffects(s, EffectsConfig{Realm: realm}); !errors.Is(err, claims.ErrEffectBackend) || !strings.Contains(err.Error(), "realm") {
			t.Errorf("realm %q: %v", realm, err)
		}
	}
}

// TestEffectWorkCannotEndItsTransaction: neither by a statement that is refused, nor by one that is not seen.
func TestEffectWorkCannotEndItsTransaction(t *testing.T) {
	s := newShop(t)
	for _, text := range []string{
		"COMMIT", "commit;", " /* a */ END", "-- a\nROLLBACK", "SELECT 1; ROLLBACK TO effect", "RELEASE effect", "\ufeffCOMMIT",
		"INSERT INTO charges VALUES (';'); COMMIT", "BEGIN", "PRAGMA foreign_keys = OFF", "ATTACH 'x' AS y", "SAVEPOINT x", ";;vacuum",
		`SELECT [;] FROM (SELECT 1 AS [;]); COMMIT`, "SELECT 1 /* ; */; COMMIT",
	} {
		_, _, err := s.Do(t.Context(), s.effect(text[:1]+"x"), func(_ context.Context, tx *EffectTx) ([]byte, error) {
			if _, err := tx.Exec(`INSERT INTO charges VALUES ('lost')`); err != nil {
				t.Error(err)
			}
			_, err := tx.Exec(text)
			if _, e := tx.Query(text); !errors.Is(e, claims.ErrBadEffect) {
				t.Errorf("query %q: %v", text, e)
			}
			return nil, err
		})
		if !errors.Is(err, claims.ErrBadEffect) && !strings.Contains(text, "\ufeff") {
			t.Errorf("%q: %v", text, err)
		}
	}
	if got := s.rows(t); len(got) > 0 {
		t.Errorf("committed: %q", got)
	}
	// what the words do not catch, SQLite does
	for _, text := range []string{"COMMIT", "ROLLBACK"} {
		_, _, err := s.Do(t.Context(), s.effect(text), func(_ context.Context, tx *EffectTx) ([]byte, error) {
			if _, err := tx.Exec(`INSERT INTO charges VALUES ('lost')`); err != nil {
				t.Error(err)
			}
			if _, err := tx.c.sql.ExecContext(t.Context(), text); (err == nil) != (text == "ROLLBACK") {
				t.Errorf("%s: %v", text, err)
			}
			return nil, nil
		})
		if text == "ROLLBACK" && !errors.Is(err, errEndedByWork) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestEffectStatementsThatOnlyLookLikeAnEnd(t *testing.T) {
	s := newShop(t)
	_, _, err := s.Do(t.Context(), s.effect("a"), func(_ context.Context, tx *EffectTx) ([]byte, error) {
		for _, text := range []string{
			`INSERT INTO charges VALUES ('; COMMIT')`, `INSERT INTO charges SELECT CASE WHEN 1 THEN 'a' END`, `/* COMMIT */ SELECT 1`,
			`SELECT 'it''s; COMMIT'`, "-- ; COMMIT\nSELECT 1",
		} {
			if _, err := tx.Exec(text); err != nil {
				t.Errorf("%s: %v", text, err)
			}
		}
		return nil, nil
	})
	if got := s.rows(t); err != nil || !slices.Equal(got, []string{"; COMMIT", "a"}) {
		t.Errorf("%q, %v", got, err)
	}
}

// TestEffectTxEndsWithItsWork: what a goroutine of the work does later is refused, and rows left open harm nobody.
func TestEffectTxEndsWithItsWork(t *testing.T) {
	s := newShop(t)
	for _, key := range []string{"returns", "panics"} {
		var kept *EffectTx
		func() {
			defer func() { recover() }() //nolint:errcheck // the work's
			_, _, err := s.Do(t.Context(), s.effect(key), func(_ context.Context, tx *EffectTx) ([]byte, error) {
				kept = tx
				if _, err := tx.Query(`SELECT 1 UNION SELECT 2`); err != nil {
					t.Error(err)
				}
				tx.QueryRow(`SELECT 1`)
				if key == "panics" {
					panic("the work's")
				}
				return nil, nil
			})
			if err != nil {
				t.Error(err)
			}
		}()
		if _, err := kept.Exec(`INSERT INTO charges VALUES ('late')`); !errors.Is(err, ErrEffectOver) {
			t.Errorf("exec: %v", err)
		}
		if err := kept.QueryRow(`SELECT 1`).Scan(new(int)); !errors.Is(err, ErrEffectOver) {
			t.Errorf("query: %v", err)
		}
	}
	var n int
	_, _, err := s.Do(t.Context(), s.effect("b"), func(_ context.Context, tx *EffectTx) ([]byte, error) {
		if err := tx.QueryRow(`SELECT count(*) FROM charges`).Scan(&n); err != nil {
			return nil, err
		}
		if err := tx.QueryRow(`SELECT what FROM charges`).Scan(new(string)); !errors.Is(err, sql.ErrNoRows) {
			t.Errorf("no row: %v", err)
		}
		return nil, nil
	})
	if err != nil || n != 0 {
		t.Errorf("%d rows, %v", n, err)
	}
}

func TestEffectsDoNotNest(t *testing.T) {
	s := newShop(t)
	_, _, err := s.Do(t.Context(), s.effect("a"), func(ctx context.Context, _ *EffectTx) ([]byte, error) {
		_, _, err := s.Do(ctx, s.effect("b"), func(context.Context, *EffectTx) ([]byte, error) { return nil, nil })
		return nil, err
	})
	if !errors.Is(err, claims.ErrEffectNested) {
		t.Errorf("%v", err)
	}
}

func TestPruneEffects(t *testing.T) {
	s := newShop(t)
	nothing := func(context.Context, *EffectTx) ([]byte, error) { return nil, nil }
	do := func(key string) (replayed bool) {
		t.Helper()
		_, replayed, err := s.Do(t.Context(), s.effect(key), nothing)
		if err != nil {
			t.Fatal(err)
		}
		return replayed
	}
	do("a")
	do("b")
	s.Advance(time.Second)
	do("c")
	l, err := s.store.clockNow(t)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []int{1, 1, 0} {
		if n, err := s.store.PruneEffects(t.Context(), l.Store, 1); err != nil || n != want {
			t.Errorf("pruned %d, %v; want %d", n, err, want)
		}
	}
	if do("a") || do("b") || !do("c") {
		t.Error("the wrong ones were pruned")
	}
}

func (s *Store) clockNow(t *testing.T) (now claims.Now, err error) {
	err = s.read(t.Context(), func(tx *tx) error { now = tx.now; return nil })
	return now, err
}

// TestEffectsOfAClosedStore end with it.
func TestEffectsOfAClosedStore(t *testing.T) {
	s := newShop(t)
	if _, _, err := s.Do(t.Context(), s.effect("a"), func(context.Context, *EffectTx) ([]byte, error) { return nil, nil }); err != nil {
		t.Fatal(err)
	}
	if err := s.store.Close(); err != nil {
		t.Fatal(err)
	}
	_, _, err := s.Do(t.Context(), s.effect("a"), func(context.Context, *EffectTx) ([]byte, error) { return nil, nil })
	if !errors.Is(err, ErrClosed) {
		t.Errorf("%v", err)
	}
}
