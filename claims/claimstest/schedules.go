package claimstest

import (
	"context"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/fence-sidecar/fence-sidecar/claims"
	"github.com/fence-sidecar/fence-sidecar/claims/explore"
)

// A scene is a few instances that work on the same calls, and time that passes meanwhile. Every order of their steps is a
// schedule: each instance's own steps stay in order, each request to the store is one step (or more, where a store lets others
// in between), and so is the way of a request to the gateway and back.
type scene struct {
	name  string
	roles []role
	pass  []time.Duration // what passes, one step each
	// gateway is the number of the machine's kind of gateway.
	gateway int
	// mute is how many answers the gateway gives that nobody gets.
	mute int
	// standstill is how long an instance may stand still between a decision and its write; 0: for less than the margin.
	standstill time.Duration
	// skew is what the clocks of the instances show beside the store's.
	skew []time.Duration
	// want is how many of the scene's charges the gateway has executed in the end, where nothing can come in between.
	want int
}

// role is what an instance does.
type role struct {
	call   string // its charge
	scope  string // "": under its own lease
	shared bool   // the application holds the scope all along, and gives its token to every instance
	undoes string // the charge that it undoes: it makes none
	dies   int    // after so many steps; 0: it does not
	finish bool   // ends its scope for good, else gives it back
}

const freeze = ttl + time.Second // a lease runs out in it

// scenes are small, so that every schedule of them can be run.
var scenes = []scene{
	{name: "two under one scope", roles: []role{{call: "a", scope: "1", finish: true}, {call: "a", scope: "1"}}, pass: []time.Duration{freeze, freeze}, standstill: 3 * freeze, skew: []time.Duration{0, freeze}},
	{name: "two without a token", roles: []role{{call: "a"}, {call: "a"}}, pass: []time.Duration{unit + time.Second, freeze}, standstill: 3 * freeze},
	{name: "one dies, one takes over", roles: []role{{call: "a", scope: "1", dies: 4}, {call: "a", scope: "1"}}, pass: []time.Duration{freeze, freeze}, standstill: 3 * freeze},
	{name: "one dies after its send", roles: []role{{call: "a", dies: 3}, {call: "a"}}, pass: []time.Duration{unit + time.Second, freeze}, gateway: 4, standstill: 3 * freeze},
	{name: "two sidecars under one token", roles: []role{{call: "a", scope: "1", shared: true}, {call: "a", scope: "1", shared: true}}, pass: []time.Duration{freeze, freeze}, standstill: 3 * freeze},
	{name: "two business keys", roles: []role{{call: "é", scope: "1"}, {call: "É", scope: "2"}}, want: 2, standstill: 3 * freeze},
	{name: "one charges, one undoes", roles: []role{{call: "a", scope: "1"}, {undoes: "a", scope: "1"}}, pass: []time.Duration{freeze, freeze}, standstill: 3 * freeze},
	{name: "two scopes for one call", roles: []role{{call: "a", scope: "1"}, {call: "a", scope: "2"}}, pass: []time.Duration{freeze}, standstill: 3 * freeze},
	{name: "answers are lost until the key is forgotten", roles: []role{{call: "a"}, {call: "a"}}, pass: []time.Duration{keepKeys / 2, keepKeys / 2, keepKeys / 2}, gateway: 24, mute: 2},
}

// three is for walks: too many schedules to run them all.
var three = scene{
	name: "three under one scope", roles: []role{{call: "a", scope: "1", dies: 5}, {call: "a", scope: "1"}, {call: "a", scope: "1", finish: true}},
	pass: []time.Duration{freeze, unit + time.Second, freeze, freeze}, standstill: 5 * freeze,
}

// play is a scene that is played once.
type play struct {
	scene
	m      *callMachine
	tenant string
	broken *violation
	actors []explore.Actor
	clock  *actorClock
	muted  int
}

// actorClock says whose step it is, for stores that do wrong by it.
type actorClock struct {
	who  int
	skew []time.Duration
	// pause lets others in between, within a request.
	pause func(what string) bool
}

// Skew is what the clock of whoever acts now shows beside the store's.
func (c *actorClock) Skew() time.Duration {
	if c.who < 0 || c.who >= len(c.skew) {
		return 0
	}
	return c.skew[c.who]
}

// stages makes fresh plays of a scene on one store; each has a tenant of its own.
type stages struct {
	ctx   context.Context
	h     Harness
	rules rules
	clock *actorClock
	n     int
}

func (s *stages) open(sc scene) func() explore.World {
	return func() explore.World {
		s.n++
		p := &play{scene: sc, tenant: fmt.Sprintf("t%d", s.n), clock: s.clock}
		p.clock.skew, p.clock.who = sc.skew, -1
		p.m = &callMachine{ctx: s.ctx, h: s.h, rules: s.rules, recs: map[claims.Key]claims.Record{}, gateway: newGateway(sc.gateway), standstill: sc.standstill}
		p.m.w = newWorld(p.m.get(claims.Key{Tenant: p.tenant, Call: "none"}, claims.Guard{}).Now)
		for i, r := range sc.roles {
			proc := &process{n: i, life: s.n}
			p.m.procs = append(p.m.procs, proc)
			p.actors = append(p.actors, explore.Actor{Name: string(rune('A' + i)), Run: p.guarded(i, r.dies, p.instance(proc, r))})
		}
		if len(sc.pass) > 0 {
			p.actors = append(p.actors, explore.Actor{Name: "time", Run: p.guarded(len(sc.roles), 0, p.time)})
		}
		return explore.World{Actors: p.actors, Check: p.check, End: p.end}
	}
}

// check hands over what a step found to be broken, and looks at what is said of each call.
func (p *play) check() error {
	if p.broken == nil {
		p.judge()
	}
	if p.broken == nil {
		return nil
	}
	return &explore.Violation{Rule: p.broken.rule, Detail: p.broken.detail}
}

func (p *play) judge() {
	defer caught(&p.broken)
	for key, r := range p.m.recs {
		p.m.checkSaid(key, &r)
	}
}

// guarded catches what an actor finds to be broken, tells the clock who acts, and ends an actor that dies.
func (p *play) guarded(who, dies int, seq iter.Seq[string]) iter.Seq[string] {
	return func(yield func(string) bool) {
		var found *violation
		steps, stopped := 0, false
		defer func() {
			if found != nil && p.broken == nil && !stopped { // a request that was left half done is nobody's fault
				p.broken = found
			}
		}()
		defer caught(&found)
		var say func(what string) bool
		say = func(what string) bool {
			steps++
			if dies > 0 && steps > dies || !yield(what) {
				stopped = true
				return false
			}
			p.clock.who, p.clock.pause = who, say
			return true
		}
		seq(say)
	}
}

// time passes. What is under way when nothing can be executed any more is executed right before.
func (p *play) time(yield func(string) bool) {
	for _, d := range p.pass {
		if !yield(fmt.Sprintf("%s pass", d)) {
			return
		}
		p.advance(d)
	}
}

func (p *play) advance(d time.Duration) {
	m := p.m
	m.expire(m.w.now.Store.Add(d), 1)
	m.h.Advance(d)
	m.w.advance(d)
}

// end lets the sweeper work for as long as it takes: every call must come to rest, and what was asked for is carried out.
func (p *play) end() error {
	if err := p.check(); err != nil {
		return err
	}
	func() {
		defer caught(&p.broken)
		p.rest()
	}()
	return p.check()
}

func (p *play) rest() {
	m := p.m
	for range 30 {
		var left []claims.Key
		for key, r := range m.recs {
			if r.State.Unsettled() && r.State != claims.StateReview {
				left = append(left, key)
			}
		}
		if len(left) == 0 {
			break
		}
		slices.SortFunc(left, byKey)
		p.advance(2 * unit)
		for _, key := range left {
			if l := p.ask(key); l != nil {
				m.lookup = l
				m.conclude()
			}
		}
	}
	executed := 0
	for key, r := range m.recs {
		m.check(key)
		if r.State == claims.StatePending || r.State == claims.StateUnknown {
			wrong("every call comes to rest", "%q is left %s", key.Call, r.State)
		}
		if r.Undoes == "" {
			executed += m.gateway.executed[key]
		}
	}
	if executed < p.want {
		wrong("what was asked for is carried out", "%d of %d charges were executed", executed, p.want)
	}
}

// ask is a lookup that the gateway answers as well as it can; nil: there is nothing to be looked up.
func (p *play) ask(key claims.Key) *lookup {
	m := p.m
	v := m.get(key, claims.Guard{})
	r := v.Record
	if !r.Reconcilable(v.Now) {
		return nil
	}
	d := claims.Verdict{
		Finding: claims.Finding{Kind: m.gateway.findings(&r, m.w.now.Store)[0], Reason: "seen"}, Rules: m.gateway.rules(), Looked: !m.gateway.noLookup,
		Version: r.Version, Asked: v.Now,
	}
	if d.Kind == claims.FoundDone {
		d.Answer = body("found")
	}
	return &lookup{key, d}
}
