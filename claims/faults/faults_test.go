package faults

import (
	"context"
	"errors"
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fence-sidecar/fence-sidecar/claims"
	"github.com/fence-sidecar/fence-sidecar/claims/memory"
)

// passes are the methods that no hook sees.
var passes = map[string]bool{"Realm": true, "Keyset": true, "Close": true}

// requests calls every method of a store with zero arguments and hands over its name and what it returned as its error.
func requests(t *testing.T, b claims.Backend, told func(name string, err error)) {
	t.Helper()
	all := reflect.TypeFor[claims.Backend]()
	n := 0
	for method := range all.Methods() {
		name := method.Name
		if passes[name] {
			continue
		}
		n++
		f := reflect.ValueOf(b).MethodByName(name)
		args := []reflect.Value{reflect.ValueOf(t.Context())}
		for i := 1; i < f.Type().NumIn(); i++ {
			args = append(args, reflect.Zero(f.Type().In(i)))
		}
		call := f.Call
		if f.Type().IsVariadic() {
			call = f.CallSlice
		}
		out := call(args)
		err, _ := out[len(out)-1].Interface().(error)
		told(name, err)
	}
	if n < 20 {
		t.Fatalf("only %d methods were found", n)
	}
}

// counted is a memory store that counts what comes to it.
func counted(t *testing.T) (claims.Backend, map[string]int) {
	t.Helper()
	n := map[string]int{}
	m := memory.New(memory.Config{})
	t.Cleanup(func() { m.Close() })
	return Wrap(m, Hooks{Before: func(_ context.Context, op Op) (bool, error) {
		n[op.Name]++
		return true, nil
	}}), n
}

// TestEveryRequest: each method of a store asks the hooks under its own name, and each of the hooks' words is obeyed.
func TestEveryRequest(t *testing.T) {
	for what, tc := range map[string]struct {
		hooks   Hooks
		applied int
		want    error // nil: the store's own
	}{
		"nothing is done to it":    {Hooks{}, 1, nil},
		"not applied":              {Hooks{Before: func(context.Context, Op) (bool, error) { return false, ErrInjected }}, 0, ErrInjected},
		"applied, the answer lost": {Hooks{Before: func(context.Context, Op) (bool, error) { return true, ErrInjected }}, 1, ErrInjected},
		"its answer lost later":    {Hooks{After: func(context.Context, Op, error) error { return ErrInjected }}, 1, ErrInjected},
		"passed on":                {Hooks{After: func(_ context.Context, _ Op, err error) error { return err }}, 1, nil},
	} {
		t.Run(what, func(t *testing.T) {
			b, n := counted(t)
			var own []error
			requests(t, b, func(_ string, err error) { own = append(own, err) })
			clear(n)
			i := 0
			requests(t, Wrap(b, tc.hooks), func(name string, err error) {
				if n[name] != tc.applied {
					t.Errorf("%s came to the store %d times, want %d", name, n[name], tc.applied)
				}
				if want := tc.want; want != nil && err != want {
					t.Errorf("%s: %v, want %v", name, err, want)
				} else if want == nil && (err == nil) != (own[i] == nil) {
					t.Errorf("%s: %v, want %v", name, err, own[i])
				}
				i++
			})
		})
	}
}

// TestHooksSeeNames: a hook is asked before and after, once each, under the method's name.
func TestHooksSeeNames(t *testing.T) {
	b, _ := counted(t)
	var before, after []string
	w := Wrap(b, Hooks{
		Before: func(_ context.Context, op Op) (bool, error) { before = append(before, op.Name); return true, nil },
		After:  func(_ context.Context, op Op, err error) error { after = append(after, op.Name); return err },
	})
	var called []string
	requests(t, w, func(name string, _ error) { called = append(called, name) })
	if !reflect.DeepEqual(before, called) || !reflect.DeepEqual(after, called) {
		t.Errorf("called %v, the hooks saw %v and %v", called, before, after)
	}
}

// TestLostRequest: nobody answers, and its caller's patience ends it.
func TestLostRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, n := counted(t)
		w := Wrap(b, Hooks{Before: func(context.Context, Op) (bool, error) { return false, nil }})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		began := time.Now()
		_, err := w.Get(ctx, claims.Key{}, claims.Guard{})
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != time.Minute || n["Get"] != 0 {
			t.Errorf("%v after %s, %d requests came to the store", err, time.Since(began), n["Get"])
		}
	})
}

// TestOpSays what a request is about, and the answer that comes with a refusal passes.
func TestOpSays(t *testing.T) {
	b, _ := counted(t)
	var op Op
	w := Wrap(b, Hooks{Before: func(_ context.Context, o Op) (bool, error) { op = o; return true, nil }})
	l, err := w.Acquire(t.Context(), "shop:order", "me", time.Minute)
	if err != nil || op.Name != "Acquire" || op.Scope != "shop:order" {
		t.Fatalf("%+v, %v", op, err)
	}
	key := claims.Key{Tenant: "shop", Call: "c"}
	write := claims.Write{Claim: true, Timeout: time.Minute, Next: claims.Record{Key: key, State: claims.StatePending, Revision: 1, Attempt: 1, Claim: claims.NewClaimID()}}
	for i, want := range []error{nil, claims.ErrLost} {
		got, err := w.Swap(t.Context(), claims.Condition{Guard: l.Guard}, write)
		if !errors.Is(err, want) || len(got.Records) != 1 || got.Records[0].Claim != write.Next.Claim {
			t.Errorf("swap %d: %+v, %v", i+1, got, err)
		}
		if !op.Claims() || op.Scope != "shop:order" || len(op.Keys) != 1 || op.Keys[0] != key {
			t.Errorf("swap %d is %+v", i+1, op)
		}
	}
	if _, err := w.Get(t.Context(), key, l.Guard); err != nil || op.Claims() || op.Scope != "shop:order" || op.Keys[0] != key {
		t.Errorf("%+v, %v", op, err)
	}
	if w.Realm() != b.Realm() {
		t.Error("another realm")
	}
}
