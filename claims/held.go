package claims

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"
)

// LeaseTimes are the lease's settings. The defaults are a lease of 30 s and a margin of 1 s, which bounds the clocks'
// drift (assumption A4).
type LeaseTimes struct {
	TTL    time.Duration
	Margin time.Duration // how much earlier than the store the holder stops trusting
}

// Defaults fills in what is zero.
func (t LeaseTimes) Defaults() LeaseTimes {
	if t.TTL == 0 {
		t.TTL = 30 * time.Second
	}
	if t.Margin == 0 {
		t.Margin = time.Second
	}
	return t
}

// Held is the process's live view of one lease: scope, token and how long it may be trusted, counted from before the
// request that granted it left.
type Held struct {
	leases Leases
	clock  Clock
	times  LeaseTimes

	mu    sync.Mutex
	guard Guard
	trust Trust
}

func newHeld(l Leases, c Clock, t LeaseTimes, g Guard, asked Reading, remaining time.Duration) *Held {
	h := &Held{leases: l, clock: c, times: t.Defaults()}
	h.set(g, asked, remaining)
	return h
}

func (h *Held) set(g Guard, asked Reading, remaining time.Duration) {
	h.mu.Lock()
	defer h.mu.Unlock()
	t := Trust{From: asked, For: remaining - h.times.Margin}
	if g.Token < h.guard.Token {
		return // an answer that was overtaken by a newer take
	}
	if g != h.guard || t.Left(asked) > h.trust.Left(asked) {
		h.guard, h.trust = g, t
	}
}

// Guard is the lease's scope and token.
func (h *Held) Guard() Guard {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.guard
}

// Left is how long the lease may still be trusted; not positive: not any more.
func (h *Held) Left() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.guard.IsZero() {
		return 0
	}
	return h.trust.Left(h.clock())
}

// AssertHeld fails once the lease may no longer be trusted. It asks nobody.
func (h *Held) AssertHeld() error {
	if g := h.Guard(); h.Left() <= 0 {
		return &FencedError{Guard: g, Status: LeaseExpired, Sender: g.Instance()}
	}
	return nil
}

// ConfirmNow renews the lease: a strict check against the store.
func (h *Held) ConfirmNow(ctx context.Context) error {
	g, asked := h.Guard(), h.clock()
	l, err := h.leases.Renew(ctx, g, h.times.TTL)
	if err != nil {
		return err
	}
	h.set(g, asked, min(l.Remaining, h.times.TTL))
	return nil
}

// keep renews every third of the lease, sooner after an error, until ctx ends or the store refuses. The first renewal comes
// within a third of what is left, which may be little.
func (h *Held) keep(ctx context.Context) {
	wait := min(h.times.TTL, h.Left()) / 3
	for sleep(ctx, wait) {
		c, cancel := context.WithTimeout(ctx, h.times.TTL/3)
		err := h.ConfirmNow(c)
		cancel()
		if Refused(err) {
			return
		}
		wait = h.times.TTL / 3
		if err != nil {
			wait = h.times.TTL / 15
		}
	}
}

// Instance is a process's own lease: scope @instance:<uuid>, new at each process start. It makes the process known as a
// sender. An expired lease is never renewed; the process takes its scope again, which grants the next token.
type Instance struct {
	*Held
	// OnTake, where it is set before the first Take, is called each time that the store has granted the lease, before anything
	// is done under it. With an error the lease is not taken into use; the next Take calls it again.
	OnTake func(context.Context, Guard) error

	scope, holder string
	log           *slog.Logger
	taken         Guard // granted last, in use or not; under Held.mu
}

// NewInstance makes an instance that holds nothing yet. name tells people who holds the lease.
func NewInstance(l Leases, c Clock, t LeaseTimes, name string, log *slog.Logger) *Instance {
	return &Instance{
		Held:  &Held{leases: l, clock: c, times: t.Defaults()},
		scope: InstancePrefix + newUUID(), holder: name + " " + newUUID(), log: log,
	}
}

// newUUID draws a version 4 UUID (RFC 9562).
func newUUID() string {
	var u [16]byte
	rand.Read(u[:])
	u[6], u[8] = u[6]&0x0f|0x40, u[8]&0x3f|0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", u[:4], u[4:6], u[6:8], u[8:10], u[10:])
}

// Take acquires the instance's scope. An acquire whose answer was lost, now or in an earlier Take, is recognised by the
// holder's nonce.
func (i *Instance) Take(ctx context.Context) error {
	asked := i.clock()
	l, err := i.leases.Acquire(ctx, i.scope, i.holder, i.times.TTL)
	if err != nil && (!Refused(err) || errors.Is(err, ErrHeld)) {
		if s, serr := i.leases.State(ctx, i.scope); serr == nil && s.Holder == i.holder && s.Status == LeaseLive {
			l, err = i.leases.Renew(ctx, s.Guard, i.times.TTL) // seen is not acknowledged
		}
	}
	if err != nil {
		return fmt.Errorf("take the instance lease: %w", err)
	}
	i.mu.Lock()
	i.taken = l.Guard
	i.mu.Unlock()
	if i.OnTake != nil {
		if err := i.OnTake(ctx, l.Guard); err != nil {
			return fmt.Errorf("instance lease %s is not taken into use: %w", l.Guard, err)
		}
	}
	i.set(l.Guard, asked, min(l.Remaining, i.times.TTL))
	return nil
}

// Run keeps the lease until ctx ends: it renews every third, sooner after an error, and takes the scope again when it
// was lost.
func (i *Instance) Run(ctx context.Context) {
	wait := i.times.TTL / 3
	for sleep(ctx, wait) {
		c, cancel := context.WithTimeout(ctx, i.times.TTL/3)
		err := i.ConfirmNow(c)
		if lost, ok := errors.AsType[*FencedError](err); ok {
			i.log.Warn("instance lease lost; taking it again", "status", lost.Status.String())
			err = i.Take(c)
		}
		cancel()
		wait = i.times.TTL / 3
		if err != nil && ctx.Err() == nil {
			i.log.Warn("instance lease not renewed", "error", err, "left", i.Left())
			wait = i.times.TTL / 15
		}
	}
}

// Close gives the lease back. Attempts that are still pending keep it until it expires.
func (i *Instance) Close(ctx context.Context) error {
	i.mu.Lock()
	g := i.taken
	i.mu.Unlock()
	if g.IsZero() {
		return nil
	}
	err := i.leases.Release(ctx, g)
	i.mu.Lock()
	i.guard, i.taken = Guard{}, Guard{}
	i.mu.Unlock()
	return err
}

// sleep waits; false: ctx ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return ctx.Err() == nil
	}
}
