package sandbox

import (
	"context"
	"slices"
	"time"

	"github.com/fence-sidecar/fence-sidecar/claims"
)

// Operation is one executed operation: a row of the ledger.
type Operation struct {
	ID        string    `json:"id"`
	Kind      string    `json:"kind"` // payment_intents.create, charges.capture …
	At        time.Time `json:"time"`
	Key       string    `json:"idempotency_key"`
	Reference string    `json:"reference"` // metadata[fence_ref], or another fence_* name
	Amount    int64     `json:"amount"`    // minor units
	Currency  string    `json:"currency"`
	Account   string    `json:"account,omitempty"`
	// Money says that money or a hold on it moved; an intent that was only created moves none.
	Money bool `json:"money"`
}

// Line is one header line as it came in.
type Line struct{ Name, Value string }

// Send is one request, counted as soon as its head was read.
type Send struct {
	N      int       `json:"n"`    // from 1
	Conn   int       `json:"conn"` // number of the connection, from 1
	At     time.Time `json:"time"`
	Proto  string    `json:"proto"`
	Method string    `json:"method"`
	Target string    `json:"target"` // raw
	Key    string    `json:"idempotency_key"`
	Header []Line    `json:"-"` // holds credentials
	Body   []byte    `json:"-"` // what was read of it
}

// Ledger returns what was executed, oldest first.
func (s *Server) Ledger() []Operation {
	s.mu.Lock()
	defer s.mu.Unlock()
	return append([]Operation{}, s.ledger...)
}

// Executed counts the operations executed under an idempotency key.
func (s *Server) Executed(key string) int {
	n := 0
	for _, o := range s.Ledger() {
		if o.Key == key {
			n++
		}
	}
	return n
}

// Moved counts the operations that moved money.
func (s *Server) Moved() int {
	n := 0
	for _, o := range s.Ledger() {
		if o.Money {
			n++
		}
	}
	return n
}

// Sends returns the requests with one of the methods (none: all), oldest first. Control requests are not counted.
func (s *Server) Sends(methods ...string) []Send {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := []Send{}
	for _, x := range s.sends {
		if len(methods) == 0 || slices.Contains(methods, x.Method) {
			out = append(out, x.copy())
		}
	}
	return out
}

// WaitSends waits until n requests with one of the methods (none: all) have come in.
func (s *Server) WaitSends(ctx context.Context, n int, methods ...string) error {
	return s.wait(ctx, func() bool {
		count := 0
		for _, x := range s.sends {
			if len(methods) == 0 || slices.Contains(methods, x.Method) {
				count++
			}
		}
		return count >= n
	})
}

// WaitExecuted waits until n operations were executed.
func (s *Server) WaitExecuted(ctx context.Context, n int) error {
	return s.wait(ctx, func() bool { return len(s.ledger) >= n })
}

// wait blocks until a condition holds; it is looked at, under the lock, after every change.
func (s *Server) wait(ctx context.Context, holds func() bool) error {
	for {
		s.mu.Lock()
		ok, changed := holds(), s.changed
		s.mu.Unlock()
		if ok {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// wake tells the waiters that something changed. The lock is held.
func (s *Server) wake() {
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *Server) counted(x Send) *Send {
	s.mu.Lock()
	defer s.mu.Unlock()
	x.N, x.At = len(s.sends)+1, s.now()
	s.sends = append(s.sends, &x)
	s.wake()
	return &x
}

// hold is a place where requests stop.
type hold struct {
	waiting int
	gate    chan struct{}
}

func (s *Server) holdNamed(name string) *hold {
	if s.holds[name] == nil {
		s.holds[name] = &hold{gate: make(chan struct{})}
	}
	return s.holds[name]
}

// stop holds a request until its release or the server's end; false: the end.
func (s *Server) stop(name string) bool {
	s.mu.Lock()
	h := s.holdNamed(name)
	h.waiting++
	gate := h.gate
	s.wake()
	s.mu.Unlock()
	select {
	case <-gate:
		return true
	case <-s.done:
		return false
	}
}

// WaitHold waits until a request stands at the named hold.
func (s *Server) WaitHold(ctx context.Context, name string) error {
	return s.wait(ctx, func() bool { return s.holdNamed(name).waiting > 0 })
}

// Release lets all requests go that stand at the named hold, and returns how many.
func (s *Server) Release(name string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	h := s.holdNamed(name)
	n := h.waiting
	close(h.gate)
	delete(s.holds, name)
	s.wake()
	return n
}

// Reset forgets everything: objects, keys, ledger, sends, faults, stalls. Held requests are released.
func (s *Server) Reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, h := range s.holds {
		close(h.gate)
		delete(s.holds, name)
	}
	s.resume(nil)
	s.leases.seen, s.leases.stalled = map[claims.Guard]bool{}, map[claims.Guard]chan struct{}{}
	s.era++
	s.told, s.faults, s.headerUses = 0, nil, map[string]int{}
	s.ledger, s.sends = nil, nil
	s.keys, s.objects, s.order = map[string]*entry{}, map[string]*object{}, nil
	s.wake()
}

// memory tells what is remembered now from what was before a Reset.
func (s *Server) memory() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.era
}

func (x *Send) copy() Send {
	c := *x
	c.Header, c.Body = slices.Clone(x.Header), slices.Clone(x.Body)
	return c
}
