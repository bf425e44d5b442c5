// Package faults is a store of which single requests are lost, delayed, failed, or applied without an answer, as a test says.
package faults

import (
	"context"
	"errors"
	"time"

	"github.com/fence-sidecar/fence-sidecar/claims"
)

// ErrInjected is an error that tells nothing: the request was perhaps applied. It is for hooks that have no better one.
var ErrInjected = errors.New("injected: no answer from the store")

// Op is one request of a store.
type Op struct {
	Name  string       // of the method, as Swap
	Keys  []claims.Key // the calls that it names, in its order
	Scope string       // the scope that it names, "" where it names none
	// Write says what a Swap writes; nil: the request is no Swap.
	Write []claims.Write
}

// Claims reports whether the request claims an attempt.
func (o Op) Claims() bool {
	for _, w := range o.Write {
		if w.Claim {
			return true
		}
	}
	return false
}

// Hooks are what a test does to requests. They may wait: a request is held, before or after it is applied, for as long as its
// hook does not return. Several requests come at a time.
type Hooks struct {
	// Before decides on a request: whether it is applied, and what its caller gets. (true, nil): nothing is done to it.
	// (true, err): it is applied and the answer is lost. (false, err): it is not applied. (false, nil): it is lost, and its
	// caller waits for as long as its context lets it. nil: (true, nil).
	Before func(ctx context.Context, op Op) (apply bool, err error)
	// After is told of a request that was applied and was not already given an error by Before, with the store's own error; its
	// own is what the caller gets. With another one than the store's the caller gets no result. nil: the store's.
	After func(ctx context.Context, op Op, err error) error
}

// Wrap is b behind the hooks. Realm, Keyset and Close pass.
func Wrap(b claims.Backend, h Hooks) claims.Backend { return &store{Backend: b, hooks: h} }

type store struct {
	claims.Backend
	hooks Hooks
}

// do runs one request.
func do[T any](ctx context.Context, s *store, op Op, request func() (T, error)) (T, error) {
	var none T
	apply, err := true, error(nil)
	if s.hooks.Before != nil {
		apply, err = s.hooks.Before(ctx, op)
	}
	switch {
	case !apply && err == nil:
		<-ctx.Done()
		return none, ctx.Err()
	case !apply:
		return none, err
	}
	v, own := request()
	if err != nil {
		return none, err
	}
	if s.hooks.After == nil {
		return v, own
	}
	if told := s.hooks.After(ctx, op, own); told != own { //nolint:errorlint // the very error, or another
		return none, told
	}
	return v, own // with ErrLost comes the record that won
}

// only is do for a request without a result.
func only(ctx context.Context, s *store, op Op, request func() error) error {
	_, err := do(ctx, s, op, func() (struct{}, error) { return struct{}{}, request() })
	return err
}

// Get implements claims.Store.
func (s *store) Get(ctx context.Context, key claims.Key, g claims.Guard) (claims.View, error) {
	op := Op{Name: "Get", Keys: []claims.Key{key}, Scope: g.Scope}
	return do(ctx, s, op, func() (claims.View, error) { return s.Backend.Get(ctx, key, g) })
}

// Swap implements claims.Store.
func (s *store) Swap(ctx context.Context, c claims.Condition, w ...claims.Write) (claims.Swapped, error) {
	op := Op{Name: "Swap", Scope: c.Guard.Scope, Write: w}
	for _, w := range w {
		op.Keys = append(op.Keys, w.Next.Key)
	}
	return do(ctx, s, op, func() (claims.Swapped, error) { return s.Backend.Swap(ctx, c, w...) })
}

// Unsettled implements claims.Store.
func (s *store) Unsettled(ctx context.Context, w claims.Sweep) ([]claims.Key, error) {
	return do(ctx, s, Op{Name: "Unsettled"}, func() ([]claims.Key, error) { return s.Backend.Unsettled(ctx, w) })
}

// Prune implements claims.Store.
func (s *store) Prune(ctx context.Context, before time.Time, limit int) (int, error) {
	return do(ctx, s, Op{Name: "Prune"}, func() (int, error) { return s.Backend.Prune(ctx, before, limit) })
}

// Confirm implements claims.Store.
func (s *store) Confirm(ctx context.Context) error {
	return only(ctx, s, Op{Name: "Confirm"}, func() error { return s.Backend.Confirm(ctx) })
}

// Acquire implements claims.Leases.
func (s *store) Acquire(ctx context.Context, scope, holder string, ttl time.Duration) (claims.Lease, error) {
	op := Op{Name: "Acquire", Scope: scope}
	return do(ctx, s, op, func() (claims.Lease, error) { return s.Backend.Acquire(ctx, scope, holder, ttl) })
}

// Renew implements claims.Leases.
func (s *store) Renew(ctx context.Context, g claims.Guard, ttl time.Duration) (claims.Lease, error) {
	op := Op{Name: "Renew", Scope: g.Scope}
	return do(ctx, s, op, func() (claims.Lease, error) { return s.Backend.Renew(ctx, g, ttl) })
}

// Release implements claims.Leases.
func (s *store) Release(ctx context.Context, g claims.Guard) error {
	return only(ctx, s, Op{Name: "Release", Scope: g.Scope}, func() error { return s.Backend.Release(ctx, g) })
}

// Finish implements claims.Leases.
func (s *store) Finish(ctx context.Context, g claims.Guard) error {
	return only(ctx, s, Op{Name: "Finish", Scope: g.Scope}, func() error { return s.Backend.Finish(ctx, g) })
}

// Cancel implements claims.Leases.
func (s *store) Cancel(ctx context.Context, scope string) (claims.Lease, error) {
	return do(ctx, s, Op{Name: "Cancel", Scope: scope}, func() (claims.Lease, error) { return s.Backend.Cancel(ctx, scope) })
}

// State implements claims.Leases.
func (s *store) State(ctx context.Context, scope string) (claims.Lease, error) {
	return do(ctx, s, Op{Name: "State", Scope: scope}, func() (claims.Lease, error) { return s.Backend.State(ctx, scope) })
}
