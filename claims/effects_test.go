package claims

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
)

func anEffect() Effect {
	return Effect{
		Guard: Guard{Scope: "shop:order", Token: 1}, Tenant: "shop", Name: "charge", Key: "a", Fingerprint: []byte{1},
	}
}

func TestEffectCheck(t *testing.T) {
	long := strings.Repeat("k", MaxKey)
	for name, c := range map[string]struct {
		change func(e *Effect)
		ok     bool
	}{
		"as it is":           {func(*Effect) {}, true},
		"long":               {func(e *Effect) { e.Name, e.Key, e.Fingerprint = long, long, []byte(long) }, true},
		"tenant":             {func(e *Effect) { e.Tenant = "other" }, false},
		"encoded tenant":     {func(e *Effect) { e.Guard.Scope, e.Tenant = "a%2Fb:c", "a/b" }, true},
		"tenant as encoded":  {func(e *Effect) { e.Guard.Scope, e.Tenant = "a%2Fb:c", "a%2Fb" }, false},
		"no key":             {func(e *Effect) { e.Key = "" }, false},
		"no name":            {func(e *Effect) { e.Name = "" }, false},
		"key too long":       {func(e *Effect) { e.Key = long + "k" }, false},
		"NUL":                {func(e *Effect) { e.Name = "a\x00" }, false},
		"no fingerprint":     {func(e *Effect) { e.Fingerprint = nil }, false},
		"fingerprint, long":  {func(e *Effect) { e.Fingerprint = []byte(long + "k") }, false},
		"no guard":           {func(e *Effect) { e.Guard = Guard{} }, false},
		"instance":           {func(e *Effect) { e.Guard.Scope = InstancePrefix + "x" }, false},
		"external":           {func(e *Effect) { e.Guard.Scope = ExternalPrefix + e.Guard.Scope }, false},
		"scope not as made":  {func(e *Effect) { e.Guard.Scope = "shop:%41" }, false},
		"token out of range": {func(e *Effect) { e.Guard.Token = 1 << 63 }, false},
	} {
		e := anEffect()
		c.change(&e)
		if err := e.Check(); (err == nil) != c.ok || err != nil && !errors.Is(err, ErrBadEffect) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestEffectRefused(t *testing.T) {
	refused := []error{
		ErrBadEffect, ErrEffectConflict, ErrEffectOversize, ErrEffectNested, ErrEffectOpen,
		ErrEffectServer, ErrEffectBackend, &FencedError{}, &QuarantineError{},
	}
	for _, err := range refused {
		if !EffectRefused(err) || EffectRefused(errors.Join(ErrEffectPerhaps, err)) {
			t.Errorf("%v", err)
		}
	}
	if EffectRefused(errors.New("else")) || EffectRefused(nil) {
		t.Error("an unknown error counts as refused")
	}
}

// TestEffectFlights: one leads; who waits is checked first, runs at once after a success, and in turn after a failure.
func TestEffectFlights(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var f EffectFlights
		leads := make(chan error)
		var checks, runs, running atomic.Int64
		go f.Do(t.Context(), anEffect(), nil, func() error { return <-leads }) //nolint:errcheck // given
		synctest.Wait()
		stale := errors.New("stale")
		if err := f.Do(t.Context(), anEffect(), func() error { return stale }, nil); err != stale {
			t.Errorf("a stale one waited: %v", err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := f.Do(ctx, anEffect(), func() error { return nil }, nil); !errors.Is(err, context.Canceled) {
			t.Errorf("one that gives up: %v", err)
		}
		other := anEffect()
		other.Fingerprint = []byte{2}
		if err := f.Do(t.Context(), other, nil, func() error { return nil }); err != nil {
			t.Errorf("another fingerprint waited: %v", err)
		}
		next := make(chan error)
		for range 3 {
			go func() {
				f.Do(t.Context(), anEffect(), func() error { checks.Add(1); return nil }, func() error { //nolint:errcheck // given
					running.Add(1)
					runs.Add(1)
					defer running.Add(-1)
					return <-next
				})
			}()
			synctest.Wait()
		}
		leads <- errors.New("failed")
		synctest.Wait()
		if checks.Load() < 3 || runs.Load() != 1 || running.Load() != 1 {
			t.Errorf("after a failure: %d checks, %d of %d run", checks.Load(), running.Load(), runs.Load())
		}
		next <- nil
		synctest.Wait()
		if runs.Load() != 3 || running.Load() != 2 {
			t.Errorf("after a success: %d of %d run", running.Load(), runs.Load())
		}
		next <- nil
		next <- nil
	})
}

func TestInEffect(t *testing.T) {
	if InEffect(t.Context()) || !InEffect(WithinEffect(t.Context())) {
		t.Error("the mark is wrong")
	}
}
