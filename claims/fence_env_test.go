package claims_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fence-sidecar/fence-sidecar/claims"
	"github.com/fence-sidecar/fence-sidecar/claims/memory"
)

// world is one store, one gateway and one process around them, inside a synctest bubble: every timer is virtual.
type world struct {
	t     *testing.T
	mem   *memory.Store
	tap   *tap
	gw    *gateway
	times claims.LeaseTimes
	p     *process
	stop  context.CancelFunc
	run   context.Context
}

// process is one sidecar: its clock, its instance lease, its fence.
type process struct {
	clock *bent
	inst  *claims.Instance
	fence *claims.Fence
}

// bubble runs f in a world whose process holds and keeps its instance lease.
func bubble(t *testing.T, f func(w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		w := &world{t: t, gw: newGateway()}
		w.run, w.stop = context.WithCancel(t.Context())
		w.mem = memory.New(memory.Config{})
		w.tap = &tap{Store: w.mem}
		w.p = w.process("p1")
		f(w)
		w.stop()
		w.drain(w.p)
		synctest.Wait()
	})
}

func (w *world) process(name string) *process {
	w.t.Helper()
	return w.processOn(name, newBent())
}

func (w *world) processOn(name string, clock *bent) *process {
	w.t.Helper()
	p := &process{clock: clock}
	log := slog.New(slog.DiscardHandler)
	p.inst = claims.NewInstance(w.tap, p.clock.read, w.times, name, log)
	if err := p.inst.Take(w.run); err != nil {
		w.t.Fatal(err)
	}
	p.fence = claims.New(claims.Config{
		Store: w.tap, Leases: w.tap, Keys: memory.Ring{}, Instance: p.inst, Clock: p.clock.read, Times: w.times, Log: log,
		Reconcile: func(ctx context.Context, k claims.Key) error { return w.lookup(ctx, p, k) },
	})
	return p
}

// keep renews the instance lease until the world ends.
func (w *world) keep(p *process) { go p.inst.Run(w.run) }

func (w *world) drain(p *process) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), time.Hour)
	defer cancel()
	if err := p.fence.Drain(ctx); err != nil {
		w.t.Errorf("drain: %v", err)
	}
}

// lookup asks the gateway once and applies the verdict, as the reconcile room does.
func (w *world) lookup(ctx context.Context, p *process, k claims.Key) error {
	v, err := w.tap.Get(ctx, k, claims.Guard{})
	if err != nil {
		return err
	}
	if err := p.fence.GiveUpOwn(ctx, v); err != nil {
		return err
	}
	if v, err = w.tap.Get(ctx, k, claims.Guard{}); err != nil {
		return err
	}
	next, moved := claims.Apply(v.Record, claims.Verdict{
		Looked: true, Finding: w.gw.find(v.Record.Facts), Rules: w.gw.rules, Version: v.Record.Version, Asked: v.Now,
	})
	if !moved {
		return nil
	}
	_, err = w.tap.Swap(ctx, claims.Condition{}, claims.Write{Version: v.Record.Version, Next: next})
	if errors.Is(err, claims.ErrLost) {
		return nil
	}
	return err
}

// call is a charge with ten seconds for an attempt, at a gateway that keeps its keys for a day.
func (w *world) call(key string) claims.Call {
	return claims.Call{
		Key: claims.Key{Tenant: "shop", Call: key}, Revision: 1,
		Canonical: []byte("amount=100"), CanonicalVersion: 1,
		Facts:  claims.Facts{Gateway: "g", GatewayKey: "gk:" + key, Retention: 24 * time.Hour, SettleAfter: 10 * time.Minute},
		Policy: claims.Policy{AttemptTimeout: 10 * time.Second, MaxAttempts: 5, Probe: true},
		Send:   w.gw.send,
	}
}

func (w *world) do(c claims.Call) claims.Result { return w.p.fence.Do(context.Background(), c) }

// lease takes an application scope.
func (w *world) lease(scope string, ttl time.Duration) claims.Guard {
	w.t.Helper()
	l, err := w.mem.Acquire(context.Background(), scope, "app", ttl)
	if err != nil {
		w.t.Fatal(err)
	}
	return l.Guard
}

func (w *world) record(key string) claims.Record {
	w.t.Helper()
	v, err := w.mem.Get(context.Background(), claims.Key{Tenant: "shop", Call: key}, claims.Guard{})
	if err != nil {
		w.t.Fatal(err)
	}
	return v.Record
}

// executed fails unless the gateway executed the key exactly n times.
func (w *world) executed(key string, n int) {
	w.t.Helper()
	if got := w.gw.executed("gk:" + key); got != n {
		w.t.Errorf("the gateway executed %s %d times, want %d", key, got, n)
	}
}

func (w *world) sends(n int) {
	w.t.Helper()
	if got := w.gw.sends(); got != n {
		w.t.Errorf("the gateway got %d requests, want %d", got, n)
	}
}

func wantRefusal(t *testing.T, r claims.Result, why claims.Reason, o claims.Outcome) {
	t.Helper()
	if r.Refusal == nil || r.Refusal.Reason != why {
		t.Fatalf("result %s, want the refusal %s", show(r), why)
	}
	if r.Outcome != o || r.Refusal.Outcome != o {
		t.Errorf("%s says outcome %s (the refusal: %s), want %s", why, r.Outcome, r.Refusal.Outcome, o)
	}
}

func wantAnswer(t *testing.T, r claims.Result, src claims.Source, o claims.Outcome, body string) {
	t.Helper()
	if r.Answer == nil || r.Source != src || r.Outcome != o || string(r.Answer.Body) != body {
		t.Fatalf("result %s, want %s %s with %q", show(r), src, o, body)
	}
}

func wantState(t *testing.T, r claims.Record, s claims.State) {
	t.Helper()
	if r.State != s {
		t.Fatalf("the record is %q, want %q: %+v", r.State, s, r.Attempts)
	}
}

func show(r claims.Result) string {
	s := fmt.Sprintf("{%s outcome=%s state=%s lease=%s sends=%d", r.Source, r.Outcome, r.State, r.Lease, r.Sends)
	if r.Answer != nil {
		s += fmt.Sprintf(" answer=%d %q", r.Answer.Status, r.Answer.Body)
	}
	if r.Refusal != nil {
		s += " refusal=" + r.Refusal.Error()
	}
	return s + "}"
}

// bent is a process's clocks; each can be moved on alone.
type bent struct {
	mu               sync.Mutex
	start            time.Time
	mono, boot, wall time.Duration
}

func newBent() *bent { return &bent{start: time.Now()} }

func (b *bent) read() claims.Reading {
	b.mu.Lock()
	defer b.mu.Unlock()
	d := time.Since(b.start)
	return claims.Reading{Mono: d + b.mono, Boot: d + b.boot, Wall: b.start.Round(0).Add(d + b.wall)}
}

func (b *bent) bend(mono, boot, wall time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mono, b.boot, b.wall = b.mono+mono, b.boot+boot, b.wall+wall
}

// tap stands before the memory store and may lose, delay, fail or half-apply a request.
type tap struct {
	*memory.Store
	mu    sync.Mutex
	swaps int
	onGet func(ctx context.Context) error
	onGot func() // after a Get
	// onSwap sees the n-th swap (from 1); do applies it.
	onSwap  func(n int, w claims.Write, do func() (claims.Swapped, error)) (claims.Swapped, error)
	onRenew func(g claims.Guard, do func() (claims.Lease, error)) (claims.Lease, error)
	onTake  func(do func() (claims.Lease, error)) (claims.Lease, error)
	// onConfirm comes before a Confirm.
	onConfirm func() error
}

func (t *tap) hooks() tap {
	t.mu.Lock()
	defer t.mu.Unlock()
	return tap{onGet: t.onGet, onGot: t.onGot, onSwap: t.onSwap, onRenew: t.onRenew, onTake: t.onTake, onConfirm: t.onConfirm}
}

func (t *tap) set(f func(t *tap)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	f(t)
}

func (t *tap) Get(ctx context.Context, k claims.Key, g claims.Guard) (claims.View, error) {
	if on := t.hooks().onGet; on != nil {
		if err := on(ctx); err != nil {
			return claims.View{}, err
		}
	}
	v, err := t.Store.Get(ctx, k, g)
	if on := t.hooks().onGot; on != nil {
		on()
	}
	return v, err
}

func (t *tap) Swap(ctx context.Context, c claims.Condition, ws ...claims.Write) (claims.Swapped, error) {
	do := func() (claims.Swapped, error) { return t.Store.Swap(ctx, c, ws...) }
	on := t.hooks().onSwap
	if on == nil {
		return do()
	}
	t.mu.Lock()
	t.swaps++
	n := t.swaps
	t.mu.Unlock()
	return on(n, ws[0], do)
}

func (t *tap) Confirm(ctx context.Context) error {
	if on := t.hooks().onConfirm; on != nil {
		if err := on(); err != nil {
			return err
		}
	}
	return t.Store.Confirm(ctx)
}

func (t *tap) Renew(ctx context.Context, g claims.Guard, ttl time.Duration) (claims.Lease, error) {
	do := func() (claims.Lease, error) { return t.Store.Renew(ctx, g, ttl) }
	if on := t.hooks().onRenew; on != nil {
		return on(g, do)
	}
	return do()
}

func (t *tap) Acquire(ctx context.Context, scope, holder string, ttl time.Duration) (claims.Lease, error) {
	do := func() (claims.Lease, error) { return t.Store.Acquire(ctx, scope, holder, ttl) }
	if on := t.hooks().onTake; on != nil {
		return on(do)
	}
	return do()
}

// gateway is a tiny gateway with idempotency keys and a lookup. script decides what becomes of each request.
type gateway struct {
	mu     sync.Mutex
	done   map[string]int // executions by key
	n      int            // requests that got past the gate
	gates  int            // times that a sender stood before its gate
	script func(ctx context.Context, n int, p claims.Pass) claims.Sent
	before func(p claims.Pass) // runs before the gate
	rules  claims.LookupRules
	blind  bool // lookups cannot tell
}

func newGateway() *gateway {
	return &gateway{done: map[string]int{}, blind: true, rules: claims.LookupRules{Proves: true, Misses: 1, Keyed: true, FirstStored: true}}
}

func (g *gateway) send(ctx context.Context, p claims.Pass, gate func() error) claims.Sent {
	g.mu.Lock()
	g.gates++
	before := g.before
	g.mu.Unlock()
	if before != nil {
		before(p)
	}
	if err := gate(); err != nil {
		return claims.Sent{Unsent: true, Cause: "gate"}
	}
	g.mu.Lock()
	g.n++
	n := g.n
	g.mu.Unlock()
	if g.script != nil {
		return g.script(ctx, n, p)
	}
	return g.charge(p)
}

// charge executes a key once and gives its stored answer ever after.
func (g *gateway) charge(p claims.Pass) claims.Sent {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.done[p.Facts.GatewayKey] == 0 {
		g.done[p.Facts.GatewayKey]++
	}
	return claims.Sent{Outcome: claims.Succeeded, Stored: true, Answer: answer(200, "paid "+p.Facts.GatewayKey), Payment: "done"}
}

func (g *gateway) find(f claims.Facts) claims.Finding {
	g.mu.Lock()
	defer g.mu.Unlock()
	switch {
	case g.blind:
		return claims.Finding{Kind: claims.CouldNotTell}
	case g.done[f.GatewayKey] > 0:
		return claims.Finding{Kind: claims.FoundDone, Payment: "done", Answer: answer(200, "found "+f.GatewayKey)}
	}
	return claims.Finding{Kind: claims.Missed}
}

func (g *gateway) executed(key string) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.done[key]
}

func (g *gateway) sends() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.n
}

func answer(status int, body string) *claims.Answer {
	return &claims.Answer{Status: status, Header: []claims.Field{{Name: "X", Value: "y"}}, Body: []byte(body)}
}

var errNet = errors.New("connection reset")
