package postgres

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fence-sidecar/fence-sidecar/claims"
	"github.com/fence-sidecar/fence-sidecar/claims/postgres/pgtest"
)

// wantRows compares what was committed.
func (s *shop) wantRows(t *testing.T, want ...string) {
	t.Helper()
	got := s.rows(t)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("committed rows %q, want %q", got, want)
	}
}

// TestEffectInTheApplicationsTransaction: its rows go with the application's others, and an effect that fails leaves the
// transaction as it was.
func TestEffectInTheApplicationsTransaction(t *testing.T) {
	s := newShop(t)
	g := s.take(t, "shop:order")
	begin := func() pgx.Tx {
		tx, err := s.pool.Begin(t.Context())
		ok(t, err)
		t.Cleanup(func() { tx.Rollback(context.Background()) }) //nolint:errcheck // over
		return tx
	}
	once := func(tx pgx.Tx, e claims.Effect, work Work) (string, bool, error) {
		result, replayed, err := s.Once(t.Context(), tx, e, work)
		return string(result), replayed, err
	}
	tx := begin()
	if got, replayed, err := once(tx, charge(g, "a"), s.writes("a")); got != "of a" || replayed || err != nil {
		t.Errorf("%q, %v, %v", got, replayed, err)
	}
	ok(t, tx.Rollback(t.Context()))
	s.wantRows(t)

	tx = begin()
	ok(t, s.put(t.Context(), tx, "beside"))
	stop := errors.New("the work's")
	stale := claims.Guard{Scope: g.Scope, Token: g.Token + 1}
	for _, c := range []struct {
		e    claims.Effect
		work Work
		want error
	}{
		{charge(g, "a"), func(ctx context.Context, tx pgx.Tx) ([]byte, error) {
			return nil, errors.Join(s.put(ctx, tx, "undone"), stop)
		}, stop},
		{charge(g, "a"), func(ctx context.Context, tx pgx.Tx) ([]byte, error) {
			_, _, err := s.Do(ctx, charge(g, "b"), s.writes("b"))
			return nil, err
		}, claims.ErrEffectNested},
		{charge(g, "a"), func(ctx context.Context, tx pgx.Tx) ([]byte, error) {
			_, _, err := s.Once(t.Context(), tx, charge(g, "b"), s.writes("b")) // by the database
			return nil, err
		}, claims.ErrEffectNested},
		{charge(g, "a"), func(ctx context.Context, tx pgx.Tx) ([]byte, error) {
			return make([]byte, claims.EffectResultLimit+1), s.put(ctx, tx, "undone")
		}, claims.ErrEffectOversize},
		{charge(stale, "a"), s.writes("undone"), &claims.FencedError{Guard: stale}},
	} {
		_, _, err := once(tx, c.e, c.work)
		fenced, isFenced := errors.AsType[*claims.FencedError](err)
		if want, is := c.want.(*claims.FencedError); is && (!isFenced || *fenced != *want) || !is && !errors.Is(err, c.want) {
			t.Errorf("%v, want %v", err, c.want)
		}
	}
	func() {
		defer func() { recover() }() //nolint:errcheck // the work's
		once(tx, charge(g, "a"), func(ctx context.Context, tx pgx.Tx) ([]byte, error) { panic(s.put(ctx, tx, "undone")) })
	}()
	if got, _, err := once(tx, charge(g, "a"), s.writes("a")); got != "of a" || err != nil {
		t.Errorf("%q, %v", got, err)
	}
	if got, replayed, err := once(tx, charge(g, "a"), s.writes("again")); got != "of a" || !replayed || err != nil {
		t.Errorf("repeated in the same transaction: %q, %v, %v", got, replayed, err)
	}
	ok(t, tx.Commit(t.Context()))
	s.wantRows(t, "a", "beside")

	tx = begin()
	_, _, err := once(tx, charge(g, "late"), s.writes("late"))
	ok(t, err)
	s.expire(t, g)
	err = s.Explain(charge(g, "late"), tx.Commit(t.Context()))
	if e, is := errors.AsType[*claims.FencedError](err); !is || e.Status != claims.LeaseExpired || !claims.EffectRefused(err) {
		t.Errorf("a commit after the lease: %v", err)
	}
	s.wantRows(t, "a", "beside")
}

// TestEffectWorkThatEndsItsTransaction gets nothing committed.
func TestEffectWorkThatEndsItsTransaction(t *testing.T) {
	s := newShop(t)
	g := s.take(t, "shop:order")
	for name, end := range map[string]func(ctx context.Context, tx pgx.Tx) error{
		"commit": func(ctx context.Context, tx pgx.Tx) error { return tx.Commit(ctx) }, "rollback": func(ctx context.Context, tx pgx.Tx) error { return tx.Rollback(ctx) },
		"sql": func(ctx context.Context, tx pgx.Tx) error { _, err := tx.Exec(ctx, "COMMIT"); return err },
	} {
		_, _, err := s.Do(t.Context(), charge(g, "a"), func(ctx context.Context, tx pgx.Tx) ([]byte, error) {
			ok(t, s.put(ctx, tx, name))
			if err := end(ctx, tx); err != nil && code(err) != "FS114" {
				t.Errorf("%s: %v", name, err)
			}
			return nil, nil
		})
		if err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	s.wantRows(t)
}

// TestEffectWhoseTransactionHasEnded: what the first end was, the second one cannot tell.
func TestEffectWhoseTransactionHasEnded(t *testing.T) {
	s := newShop(t)
	e := charge(s.take(t, "shop:order"), "a")
	tx, err := s.pool.Begin(t.Context())
	ok(t, err)
	_, _, err = s.Once(t.Context(), tx, e, s.writes("a"))
	ok(t, err)
	ok(t, s.Explain(e, tx.Commit(t.Context())))
	if err := s.Explain(e, tx.Commit(t.Context())); !errors.Is(err, claims.ErrEffectPerhaps) || claims.EffectRefused(err) {
		t.Errorf("committed again: %v, want perhaps applied", err)
	}
	s.wantRows(t, "a")
}

// TestEffectWhoseCommitAnswerIsLost is perhaps applied, and a repeat tells.
func TestEffectWhoseCommitAnswerIsLost(t *testing.T) {
	server := pgtest.Shared(t)
	cfg := migrated(t)
	proxy := pgtest.NewProxy(t, server.Addr())
	s := openShop(t, cfg, proxy.URL())
	g := s.take(t, "shop:order")
	for _, c := range []struct {
		action  pgtest.Action
		applied bool
		key     string
	}{{pgtest.DropAnswer, true, "a"}, {pgtest.DropRequest, false, "b"}} {
		catch := proxy.OnCommit(1, c.action)
		_, _, err := s.Do(t.Context(), charge(g, c.key), s.writes(c.key))
		<-catch.Done()
		if !errors.Is(err, claims.ErrEffectPerhaps) || claims.EffectRefused(err) {
			t.Errorf("%v, want perhaps applied", err)
		}
		got, replayed, err := s.Do(t.Context(), charge(g, c.key), s.writes(c.key))
		if string(got) != "of "+c.key || replayed != c.applied || err != nil {
			t.Errorf("repeated: %q, replayed %v, %v; applied: %v", got, replayed, err, c.applied)
		}
	}
	s.wantRows(t, "a", "b")
	proxy.Cut()
	if _, _, err := s.Do(t.Context(), charge(g, "c"), s.writes("c")); err == nil || errors.Is(err, claims.ErrEffectPerhaps) {
		t.Errorf("without a server: %v", err)
	}
}

// TestEffectsOfAnotherStoreAreRefused at the start, by name.
func TestEffectsOfAnotherStoreAreRefused(t *testing.T) {
	s := newShop(t)
	realm := s.store.Realm()
	bare, schema := pgtest.Shared(t).Schema(t)
	alter(t, Config{URL: bare, Schema: schema}, `CREATE SCHEMA {schema}`)
	for _, c := range []struct {
		cfg  EffectsConfig
		want string
	}{
		{EffectsConfig{Schema: s.cfg.Schema}, "store status"}, {EffectsConfig{Schema: s.cfg.Schema, Realm: "another"}, "realm " + realm},
		{EffectsConfig{Schema: schema, Realm: realm}, "store migrate"}, {EffectsConfig{Schema: "none", Realm: realm}, "store migrate"},
	} {
		_, err := OpenEffects(t.Context(), s.pool, c.cfg)
		if !errors.Is(err, claims.ErrEffectBackend) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v", c.cfg, err)
		}
	}
	c, err := pgx.Connect(t.Context(), s.cfg.URL)
	ok(t, err)
	defer c.Close(context.Background())
	_, err = c.Exec(t.Context(), `SET default_transaction_read_only = on`)
	ok(t, err)
	if _, err = OpenEffects(t.Context(), c, EffectsConfig{Schema: s.cfg.Schema, Realm: realm}); !errors.Is(err, ErrReadOnly) {
		t.Errorf("read-only: %v", err)
	}
}

func TestPruneEffects(t *testing.T) {
	s := newShop(t)
	g := s.take(t, "shop:order")
	do := func(key string) (replayed bool) {
		t.Helper()
		_, replayed, err := s.Do(t.Context(), charge(g, key), s.writes(key))
		ok(t, err)
		return replayed
	}
	for _, key := range []string{"a", "b", "c"} {
		do(key)
	}
	tx, err := s.pool.Begin(t.Context())
	ok(t, err)
	defer tx.Rollback(t.Context()) //nolint:errcheck // over
	_, _, err = s.Once(t.Context(), tx, charge(g, "running"), func(ctx context.Context, tx pgx.Tx) ([]byte, error) {
		s.change(t, `UPDATE {schema}.effects SET created = 1 WHERE effect_key <> 'c'`)
		for _, want := range []int{1, 1, 0} {
			if n, err := s.store.PruneEffects(ctx, time.Now().Add(-time.Hour), 1); err != nil || n != want {
				t.Errorf("pruned %d, %v; want %d", n, err, want)
			}
		}
		return nil, nil
	})
	ok(t, err)
	ok(t, tx.Commit(t.Context()))
	if do("a") || do("b") || !do("c") || !do("running") {
		t.Error("the wrong ones were pruned")
	}
	s.change(t, `UPDATE {schema}.effects SET created = 1`)
	if n, err := s.store.PruneEffects(t.Context(), time.Now(), 100); err != nil || n != 4 {
		t.Errorf("pruned %d, %v", n, err)
	}
}

// TestEffectsDoNotDeadlock: many sessions, few keys and scopes, beside renewals, takes and releases.
func TestEffectsDoNotDeadlock(t *testing.T) {
	s := newShop(t)
	pools := []*pgxpool.Pool{s.pool}
	for len(pools) < 3 {
		p, err := pgxpool.New(t.Context(), s.cfg.URL)
		ok(t, err)
		t.Cleanup(p.Close)
		pools = append(pools, p)
	}
	end := time.Now().Add(time.Second)
	var wg sync.WaitGroup
	for i := range 12 {
		f := &Effects{db: pools[i%3], schema: s.schema}
		wg.Go(func() {
			for time.Now().Before(end) {
				scope := fmt.Sprint("shop:", rand.N(2))
				l, err := s.store.State(t.Context(), scope)
				if err != nil {
					t.Error(err)
				}
				switch rand.N(6) {
				case 0:
					l, err = s.store.Acquire(t.Context(), scope, "x", time.Minute)
				case 1:
					err = s.store.Release(t.Context(), l.Guard)
				case 2:
					_, err = s.store.Renew(t.Context(), l.Guard, time.Minute)
				default:
					if l.Token > 0 {
						key := fmt.Sprint(rand.N(20))
						_, _, err = f.Do(t.Context(), charge(l.Guard, key), s.writes(key))
					}
				}
				if err != nil && !claims.EffectRefused(err) {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	rows := s.rows(t)
	slices.Sort(rows)
	if n := len(rows); n == 0 || n != len(slices.Compact(rows)) {
		t.Errorf("%d rows, %q", n, rows)
	}
}
