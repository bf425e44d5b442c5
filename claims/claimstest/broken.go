package claimstest

import (
	"context"
	"runtime"
	"time"

	"github.com/fence-sidecar/fence-sidecar/claims"
	"github.com/fence-sidecar/fence-sidecar/claims/memory"
)

// Broken is a store that breaks one promise on purpose, so that the rules can be seen to bite.
type Broken struct {
	Name string // what it does wrong
	Rule string // the rule that must catch it
	wrap func(d *double)
}

// Open makes a fresh one.
func (b Broken) Open() Harness {
	clock := NewClock()
	d := &double{clock: clock, now: clock.Now}
	d.Store = memory.New(memory.Config{Now: func() claims.Now { return d.now() }})
	b.wrap(d)
	return Harness{Backend: d, Advance: clock.Advance, StepWall: clock.StepWall, Spoil: d.Spoil, Fill: d.Fill, Lose: d.lose}
}

// BrokenStores are all of them.
func BrokenStores() []Broken {
	var all []Broken
	for _, part := range [][]Broken{brokenLeases, brokenEnds, brokenMarks, brokenLosses, brokenReads, brokenSwaps, brokenContents,
		brokenFinds, brokenSweeps, brokenEvents, brokenTold, brokenInboxes, brokenMembers, brokenRaces} {
		all = append(all, part...)
	}
	return all
}

// double is a memory store some of whose methods are replaced.
type double struct {
	*memory.Store
	clock *Clock
	now   func() claims.Now

	get       func(context.Context, claims.Key, claims.Guard) (claims.View, error)
	swap      func(context.Context, claims.Condition, []claims.Write) (claims.Swapped, error)
	unsettled func(context.Context, claims.Sweep) ([]claims.Key, error)
	prune     func(context.Context, time.Time, int) (int, error)
	list      func(context.Context, string, []claims.State, int) ([]claims.Record, error)
	acquire   func(context.Context, string, string, time.Duration) (claims.Lease, error)
	renew     func(context.Context, claims.Guard, time.Duration) (claims.Lease, error)
	release   func(context.Context, claims.Guard) error
	finish    func(context.Context, claims.Guard) error
	state     func(context.Context, string) (claims.Lease, error)
	cancel    func(context.Context, string) (claims.Lease, error)
	confirm   func(context.Context) error
	events    func(context.Context, string, int) ([]claims.Event, error)
	lastEvent func(context.Context) (string, error)
	untold    func(context.Context, claims.Sweep) ([]claims.Event, error)
	told      func(context.Context, string) error
	announce  func(context.Context, claims.Member) error
	members   func(context.Context) ([]claims.Member, error)
	find      func(context.Context, string, string, claims.Handles, int) ([]claims.Key, error)
	keep      func(context.Context, claims.Early) error
	kept      func(context.Context, []string, int) ([]claims.Early, error)
	drop      func(context.Context, string, string, string) error
	realm     func() string
	keyset    func() []byte
	close     func() error
}

func (d *double) Get(ctx context.Context, key claims.Key, g claims.Guard) (claims.View, error) {
	if d.get != nil {
		return d.get(ctx, key, g)
	}
	return d.Store.Get(ctx, key, g)
}

func (d *double) Swap(ctx context.Context, c claims.Condition, w ...claims.Write) (claims.Swapped, error) {
	if d.swap != nil {
		return d.swap(ctx, c, w)
	}
	return d.Store.Swap(ctx, c, w...)
}

func (d *double) Unsettled(ctx context.Context, s claims.Sweep) ([]claims.Key, error) {
	if d.unsettled != nil {
		return d.unsettled(ctx, s)
	}
	return d.Store.Unsettled(ctx, s)
}

func (d *double) Prune(ctx context.Context, before time.Time, limit int) (int, error) {
	if d.prune != nil {
		return d.prune(ctx, before, limit)
	}
	return d.Store.Prune(ctx, before, limit)
}

func (d *double) List(ctx context.Context, tenant string, states []claims.State, limit int) ([]claims.Record, error) {
	if d.list != nil {
		return d.list(ctx, tenant, states, limit)
	}
	return d.Store.List(ctx, tenant, states, limit)
}

func (d *double) Acquire(ctx context.Context, scope, holder string, ttl time.Duration) (claims.Lease, error) {
	if d.acquire != nil {
		return d.acquire(ctx, scope, holder, ttl)
	}
	return d.Store.Acquire(ctx, scope, holder, ttl)
}

func (d *double) Renew(ctx context.Context, g claims.Guard, ttl time.Duration) (claims.Lease, error) {
	if d.renew != nil {
		return d.renew(ctx, g, ttl)
	}
	return d.Store.Renew(ctx, g, ttl)
}

func (d *double) Release(ctx context.Context, g claims.Guard) error {
	if d.release != nil {
		return d.release(ctx, g)
	}
	return d.Store.Release(ctx, g)
}

func (d *double) Finish(ctx context.Context, g claims.Guard) error {
	if d.finish != nil {
		return d.finish(ctx, g)
	}
	return d.Store.Finish(ctx, g)
}

func (d *double) State(ctx context.Context, scope string) (claims.Lease, error) {
	if d.state != nil {
		return d.state(ctx, scope)
	}
	return d.Store.State(ctx, scope)
}

func (d *double) Cancel(ctx context.Context, scope string) (claims.Lease, error) {
	if d.cancel != nil {
		return d.cancel(ctx, scope)
	}
	return d.Store.Cancel(ctx, scope)
}

// lose has a quarantine of the longest lease and a second.
func (d *double) lose() time.Duration {
	now := d.clock.Now()
	const back = -time.Minute
	d.Lose(claims.Now{Store: now.Store.Add(back), Wall: now.Wall.Add(back)}, ttl+time.Second)
	return ttl + time.Second
}

func (d *double) Confirm(ctx context.Context) error {
	if d.confirm != nil {
		return d.confirm(ctx)
	}
	return d.Store.Confirm(ctx)
}

func (d *double) Events(ctx context.Context, after string, limit int) ([]claims.Event, error) {
	if d.events != nil {
		return d.events(ctx, after, limit)
	}
	return d.Store.Events(ctx, after, limit)
}

func (d *double) LastEvent(ctx context.Context) (string, error) {
	if d.lastEvent != nil {
		return d.lastEvent(ctx)
	}
	return d.Store.LastEvent(ctx)
}

func (d *double) Untold(ctx context.Context, s claims.Sweep) ([]claims.Event, error) {
	if d.untold != nil {
		return d.untold(ctx, s)
	}
	return d.Store.Untold(ctx, s)
}

func (d *double) Told(ctx context.Context, id string) error {
	if d.told != nil {
		return d.told(ctx, id)
	}
	return d.Store.Told(ctx, id)
}

func (d *double) Announce(ctx context.Context, m claims.Member) error {
	if d.announce != nil {
		return d.announce(ctx, m)
	}
	return d.Store.Announce(ctx, m)
}

func (d *double) Members(ctx context.Context) ([]claims.Member, error) {
	if d.members != nil {
		return d.members(ctx)
	}
	return d.Store.Members(ctx)
}

func (d *double) Find(ctx context.Context, tenant, gateway string, h claims.Handles, limit int) ([]claims.Key, error) {
	if d.find != nil {
		return d.find(ctx, tenant, gateway, h, limit)
	}
	return d.Store.Find(ctx, tenant, gateway, h, limit)
}

func (d *double) Keep(ctx context.Context, e claims.Early) error {
	if d.keep != nil {
		return d.keep(ctx, e)
	}
	return d.Store.Keep(ctx, e)
}

func (d *double) Kept(ctx context.Context, tenants []string, limit int) ([]claims.Early, error) {
	if d.kept != nil {
		return d.kept(ctx, tenants, limit)
	}
	return d.Store.Kept(ctx, tenants, limit)
}

func (d *double) Drop(ctx context.Context, tenant, gateway, id string) error {
	if d.drop != nil {
		return d.drop(ctx, tenant, gateway, id)
	}
	return d.Store.Drop(ctx, tenant, gateway, id)
}

func (d *double) Realm() string {
	if d.realm != nil {
		return d.realm()
	}
	return d.Store.Realm()
}

func (d *double) Keyset() []byte {
	if d.keyset != nil {
		return d.keyset()
	}
	return d.Store.Keyset()
}

func (d *double) Close() error {
	if d.close != nil {
		return d.close()
	}
	return d.Store.Close()
}

// edit changes the stored data of one lease, where there is one.
func (d *double) edit(scope string, f func(l *memory.Lease, now claims.Now)) {
	d.Edit(func(data *memory.Data, now claims.Now) {
		if l, ok := data.Leases[scope]; ok {
			f(l, now)
		}
	})
}

// calls visits all stored records.
func (d *double) calls(f func(c *memory.Call, now claims.Now)) {
	d.Edit(func(data *memory.Data, now claims.Now) {
		for _, c := range data.Calls {
			f(c, now)
		}
	})
}

// onWrites changes what a Swap is asked to write.
func (d *double) onWrites(f func(c *claims.Condition, w *claims.Write)) {
	d.swap = func(ctx context.Context, c claims.Condition, writes []claims.Write) (claims.Swapped, error) {
		writes = append([]claims.Write(nil), writes...)
		for i := range writes {
			f(&c, &writes[i])
		}
		return d.Store.Swap(ctx, c, writes...)
	}
}

// onView changes what a Get returns.
func (d *double) onView(f func(v *claims.View)) {
	d.get = func(ctx context.Context, key claims.Key, g claims.Guard) (claims.View, error) {
		v, err := d.Store.Get(ctx, key, g)
		f(&v)
		return v, err
	}
}

// gap is the time between a check and its write in a store that does not do both at once.
func gap() {
	for range 10 {
		runtime.Gosched()
	}
	time.Sleep(20 * time.Microsecond)
}
