package claimstest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/fence-sidecar/fence-sidecar/claims"
)

func isError(err, want error) bool { return errors.Is(err, want) }

var errWork = errors.New("the work's own error")

// effectCallerRules are about what callers do to each other, and works to their effects.
var effectCallerRules = []effectRule{
	{"effect/failed-work-leaves-nothing", func(k *effects) {
		e := effect(k.take("shop:order"), "a")
		_, replayed, err := k.Do(k.Context(), e, func(put Put) ([]byte, error) {
			k.ok("put", put("undone"))
			return []byte("undone"), errWork
		})
		if !errors.Is(err, errWork) || replayed {
			k.Errorf("replayed %v, %v, want the work's error", replayed, err)
		}
		k.rows()
		k.runs(e, "receipt", "a")
		k.rows("a")
	}},
	{"effect/panic-leaves-nothing", func(k *effects) {
		e := effect(k.take("shop:order"), "a")
		func() {
			defer func() {
				if r := recover(); r != errWork {
					k.Errorf("recovered %v, want the work's panic", r)
				}
			}()
			k.Do(k.Context(), e, func(put Put) ([]byte, error) { //nolint:errcheck // it panics
				k.ok("put", put("undone"))
				panic(errWork)
			})
			k.Errorf("the panic did not pass")
		}()
		k.rows()
		k.runs(e, "receipt", "a")
		k.rows("a")
	}},
	{"effect/at-once", func(k *effects) {
		e := effect(k.take("shop:order"), "a")
		var ran, replays atomic.Int64
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() {
				got, replayed, err := k.Do(k.Context(), e, func(put Put) ([]byte, error) {
					return fmt.Appendf(nil, "result %d", ran.Add(1)), put(fmt.Sprint("row ", i))
				})
				if replayed {
					replays.Add(1)
				}
				if err != nil || string(got) != "result 1" {
					k.Errorf("caller %d: %q, %v", i, got, err)
				}
			})
		}
		wg.Wait()
		if n := len(k.Rows()); n != 1 || ran.Load() != 1 || replays.Load() != 7 {
			k.Errorf("%d runs, %d rows, %d replays of 8 callers", ran.Load(), n, replays.Load())
		}
	}},
	// Whoever waits for another's run is judged by its own lease, and does not wait to be told.
	{"effect/stale-caller-beside-a-run", func(k *effects) {
		old := k.take("shop:order")
		g := k.takeover(old)
		_, _, err := k.Do(k.Context(), effect(g, "a"), func(put Put) ([]byte, error) {
			k.fences(effect(old, "a"), claims.LeaseSuperseded)
			return nil, put("a")
		})
		k.ok("the run", err)
		k.rows("a")
	}},
	{"effect/lease-ends-while-waiting", func(k *effects) {
		other := k.take("shop:other")
		l, err := k.Leases.Acquire(k.Context(), "shop:own", "holder", 10*ttl)
		k.ok("acquire", err)
		own := l.Guard
		e := effect(other, "a")
		var wg sync.WaitGroup
		_, _, err = k.Do(k.Context(), effect(own, "a"), func(put Put) ([]byte, error) {
			started := make(chan struct{})
			wg.Go(func() {
				close(started)
				k.fences(e, claims.LeaseExpired)
			})
			<-started
			k.Expire(other)
			return []byte("receipt"), put("a")
		})
		wg.Wait()
		k.ok("the run", err)
	}},
	// Neither an error nor a panic is another caller's.
	{"effect/failures-are-not-shared", func(k *effects) {
		e := effect(k.take("shop:order"), "a")
		var tries atomic.Int64
		waiting := make(chan struct{})
		var once, wg = sync.Once{}, sync.WaitGroup{}
		call := func() {
			defer func() { recover() }() //nolint:errcheck // its own panic
			_, _, err := k.Do(k.Context(), e, func(put Put) ([]byte, error) {
				<-waiting
				switch tries.Add(1) {
				case 1:
					return nil, errWork
				case 2:
					panic(errWork)
				}
				return []byte("receipt"), put("a")
			})
			if err != nil && !errors.Is(err, errWork) {
				k.Errorf("%v", err)
			}
		}
		for range 4 {
			wg.Go(call)
		}
		once.Do(func() { close(waiting) })
		wg.Wait()
		if n := tries.Load(); n != 3 {
			k.Errorf("%d runs, want 3: one fails, one panics, one succeeds", n)
		}
		k.rows("a")
	}},
	{"effect/caller-who-gives-up", func(k *effects) {
		e := effect(k.take("shop:order"), "a")
		_, _, err := k.Do(k.Context(), e, func(put Put) ([]byte, error) {
			ctx, cancel := context.WithCancel(k.Context())
			cancel()
			if _, _, err := k.Do(ctx, e, writes("second", "second")); !errors.Is(err, context.Canceled) {
				k.Errorf("a caller without patience: %v", err)
			}
			return nil, put("a")
		})
		k.ok("the run", err)
		k.rows("a")
	}},
	// At once and apart: others must not wait for what they do not want.
	{"effect/other-keys-in-turn", func(k *effects) {
		g := k.take("shop:order")
		var wg sync.WaitGroup
		for i := range 8 {
			wg.Go(func() {
				if _, _, err := k.Do(k.Context(), effect(g, fmt.Sprint(i)), writes("", fmt.Sprint(i))); err != nil {
					k.Errorf("effect %d: %v", i, err)
				}
			})
		}
		wg.Wait()
		k.rows("0", "1", "2", "3", "4", "5", "6", "7")
	}},
}
