package claims

import (
	"context"
	"fmt"
	"sync"
)

// EffectFlights lets the callers in one process that want the same effect wait for the first of them, without a connection each.
// The zero value is ready.
type EffectFlights struct {
	mu  sync.Mutex
	all map[string]*effectFlight
}

type effectFlight struct {
	done chan struct{}
	ok   bool // before done is closed: what it ran is stored
}

// Do runs run, at most one at a time of an effect until one succeeds; whoever waited for that one then runs at once: it finds
// the result stored, and is judged by its own fence. Errors and panics are their caller's alone: the next one runs. check is
// called before a wait.
func (f *EffectFlights) Do(ctx context.Context, e Effect, check, run func() error) error {
	// the parts before the fingerprint hold no NUL
	key := e.Tenant + "\x00" + e.Name + "\x00" + e.Key + "\x00" + string(e.Fingerprint)
	for {
		leader, first := f.join(key)
		if first {
			return f.lead(key, leader, run)
		}
		if err := check(); err != nil {
			return err
		}
		select {
		case <-leader.done:
		case <-ctx.Done():
			return fmt.Errorf("effect %s: not begun: %w", e, ctx.Err())
		}
		if leader.ok {
			return run()
		}
	}
}

func (f *EffectFlights) join(key string) (_ *effectFlight, first bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if there := f.all[key]; there != nil {
		return there, false
	}
	if f.all == nil {
		f.all = map[string]*effectFlight{}
	}
	f.all[key] = &effectFlight{done: make(chan struct{})}
	return f.all[key], true
}

func (f *EffectFlights) lead(key string, own *effectFlight, run func() error) error {
	defer func() { // also if run panics
		f.mu.Lock()
		delete(f.all, key)
		f.mu.Unlock()
		close(own.done)
	}()
	err := run()
	own.ok = err == nil
	return err
}

type inEffect struct{}

// WithinEffect marks the context of an effect's work, so that an effect inside of it is refused instead of waiting for itself.
func WithinEffect(ctx context.Context) context.Context {
	return context.WithValue(ctx, inEffect{}, true)
}

// InEffect reports whether ctx is one of an effect's work.
func InEffect(ctx context.Context) bool { return ctx.Value(inEffect{}) != nil }
