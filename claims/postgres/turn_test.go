package postgres

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fence-sidecar/fence-sidecar/claims"
)

// openEffect leaves an application's transaction with an effect open, which keeps the lease's row from whoever would take it.
func openEffect(t *testing.T, s *shop, g claims.Guard) {
	t.Helper()
	tx, err := s.pool.Begin(t.Context())
	ok(t, err)
	t.Cleanup(func() { tx.Rollback(context.Background()) }) //nolint:errcheck // over
	_, _, err = s.Once(t.Context(), tx, charge(g, "a"), s.writes("a"))
	ok(t, err)
}

// TestHeldIsToldWithoutALock: of a live lease, a taker is told at once, whatever is done under it.
func TestHeldIsToldWithoutALock(t *testing.T) {
	s := newShop(t)
	g := s.take(t, "shop:order")
	openEffect(t, s, g)
	l, err := s.store.Acquire(t.Context(), g.Scope, "next", time.Minute)
	if !errors.Is(err, claims.ErrHeld) || l.Guard != g || l.Holder != "test" || l.Remaining <= 0 || l.Status != claims.LeaseLive {
		t.Errorf("%+v, %v", l, err)
	}
}

// TestRenewalsBesideTakersThatWait: those who wait for an application's transaction to end leave a connection to renewals.
func TestRenewalsBesideTakersThatWait(t *testing.T) {
	const ttl = 10 * time.Second
	s := newShop(t)
	own, err := s.store.Acquire(t.Context(), "@instance:a", "a", ttl)
	ok(t, err)
	g := s.take(t, "shop:order")
	openEffect(t, s, g)
	s.expire(t, g)
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	var waited atomic.Int64
	for range 6 {
		wg.Go(func() {
			for ctx.Err() == nil {
				if _, err := s.store.Acquire(ctx, g.Scope, "next", time.Minute); err == nil {
					t.Error("the lease was taken under an effect")
				}
				waited.Add(1)
			}
		})
	}
	c := sqlCase{t: t, shop: s}
	if !c.waiting("leases", &taking{}) {
		t.Error("nobody waits")
	}
	var longest time.Duration
	for start := time.Now(); time.Since(start) < 6*time.Second; time.Sleep(10 * time.Millisecond) {
		asked := time.Now()
		_, err := s.store.Renew(t.Context(), own.Guard, ttl)
		ok(t, errors.Join(err, s.store.Confirm(t.Context())))
		longest = max(longest, time.Since(asked))
	}
	stop()
	wg.Wait()
	if longest > ttl/3 {
		t.Errorf("a renewal and a confirmation took %s of a lease of %s", longest, ttl)
	}
	if waited.Load() == 0 {
		t.Error("no taker gave up")
	}
}

// TestTurnIsWaitedForWithinTheContext: who comes later is told that nothing was written.
func TestTurnIsWaitedForWithinTheContext(t *testing.T) {
	s := open(t, migrated(t))
	s.turn <- struct{}{}
	ctx, stop := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer stop()
	if _, err := s.Acquire(ctx, "shop:order", "a", time.Minute); !errors.Is(err, context.DeadlineExceeded) || claims.Refused(err) {
		t.Errorf("beside one that waits: %v", err)
	}
	<-s.turn
	_, err := s.Acquire(t.Context(), "shop:order", "a", time.Minute)
	ok(t, err)
}
