// Package memory keeps calls and leases in this process's memory. It is for tests: nothing survives the process, and no
// other process sees it. It starts no goroutine and reads no clock but the injected one, so that it works inside a
// testing/synctest bubble.
package memory

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/fence-sidecar/fence-sidecar/claims"
)

// Config says what a Store is made of. The zero value works.
type Config struct {
	// Now is the store's time; nil: the time that passed since New, counted from the wall time of New. It is called with
	// the store locked, so that a condition is judged by a time read after the lock was got.
	Now func() claims.Now
}

// Store is a claims.Backend.
type Store struct {
	now func() claims.Now

	mu     sync.Mutex
	closed bool
	data   Data
}

var _ claims.Backend = (*Store)(nil)

var errClosed = errors.New("memory store: closed")

// New makes an empty store.
func New(cfg Config) *Store {
	s := &Store{now: cfg.Now}
	if s.now == nil {
		s.now = elapsed(time.Now())
	}
	s.data = Data{Calls: map[claims.Key]*Call{}, Leases: map[string]*Lease{}, Log: map[string][]claims.LeaseEvent{}, Members: map[string]claims.Member{}}
	return s
}

// elapsed counts store time from start by the monotonic clock, as a step of the wall clock must not move it.
func elapsed(start time.Time) func() claims.Now {
	return func() claims.Now {
		now := time.Now()
		return claims.Now{Store: start.Round(0).UTC().Add(now.Sub(start)), Wall: now.Round(0).UTC()}
	}
}

// enter locks the store for one transaction and reads its time. The caller unlocks, unless there is an error.
func (s *Store) enter(ctx context.Context) (claims.Now, error) {
	if err := ctx.Err(); err != nil {
		return claims.Now{}, fmt.Errorf("memory store: %w", err)
	}
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return claims.Now{}, errClosed
	}
	return s.now(), nil
}

// Get implements claims.Store.
func (s *Store) Get(ctx context.Context, key claims.Key, guard claims.Guard) (claims.View, error) {
	now, err := s.enter(ctx)
	if err != nil {
		return claims.View{}, err
	}
	defer s.mu.Unlock()
	v := claims.View{
		Guard: s.data.standing(guard, now), Now: now,
		Era: s.data.era(), Quarantine: max(s.data.Quarantine.Sub(now.Store), 0),
	}
	if v.Record, err = s.data.read(key); err != nil {
		return claims.View{}, err
	}
	v.Sender = s.data.standing(v.Record.Sender, now)
	v.Loss = s.data.loss(&v.Record, now)
	return v, nil
}

// Swap implements claims.Store.
func (s *Store) Swap(ctx context.Context, cond claims.Condition, writes ...claims.Write) (claims.Swapped, error) {
	if err := claims.CheckWrites(writes); err != nil {
		return claims.Swapped{}, err
	}
	now, err := s.enter(ctx)
	if err != nil {
		return claims.Swapped{}, err
	}
	defer s.mu.Unlock()
	out := claims.Swapped{
		Guard:  s.data.standing(cond.Guard, now),
		Sender: s.data.standing(cond.Sender, now),
		Now:    now,
	}
	if err := s.data.hold(cond, out, now); err != nil {
		return out, err
	}
	lost := false
	for _, w := range writes {
		r, err := s.data.read(w.Next.Key)
		if err != nil {
			return out, err
		}
		out.Records = append(out.Records, r)
		lost = lost || r.Version != w.Version || w.Claim && w.Next.Era < s.data.era()
	}
	if lost {
		return out, claims.ErrLost
	}
	for i, w := range writes {
		r := w.Stamp(now)
		s.data.Calls[w.Next.Key] = &Call{Record: r}
		s.data.record(w.Event, now)
		out.Records[i] = r.Clone()
	}
	return out, nil
}

// Confirm implements claims.Store: all that is visible is as lasting as it will be.
func (s *Store) Confirm(ctx context.Context) error {
	_, err := s.enter(ctx)
	if err == nil {
		s.mu.Unlock()
	}
	return err
}

// Realm implements claims.Backend.
func (s *Store) Realm() string { return "memory" }

// Keyset implements claims.Backend. It is one for the whole process.
func (s *Store) Keyset() []byte { return slices.Clone(keyset()) }

// Close makes every later operation fail. It may be called again.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	return nil
}
