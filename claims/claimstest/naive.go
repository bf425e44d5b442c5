package claimstest

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/fence-sidecar/fence-sidecar/claims"
	"github.com/fence-sidecar/fence-sidecar/claims/memory"
)

// naive is a way to keep leases and calls that looks right: a store that gets one thing wrong, or a rule.
type naive struct {
	name  string
	scene string // in which it comes out
	want  string // the promise that it breaks
	store func(d *double, c *actorClock)
	rule  func(r *rules)
}

var errStopped = errors.New("stopped within a request")

var naives = []naive{
	{
		name: "checks, then writes", scene: "two without a token", want: "a write compares",
		store: func(d *double, c *actorClock) { d.swap = checkThenWrite(d, c) },
	},
	{
		name: "does not ask whether the sender lives", scene: "two without a token", want: "a live sender is never overtaken",
		store: func(d *double, _ *actorClock) {
			d.get = func(ctx context.Context, k claims.Key, g claims.Guard) (claims.View, error) {
				v, err := d.Store.Get(ctx, k, g)
				v.Sender = claims.GuardView{Status: claims.LeaseExpired}
				return v, err
			}
			d.swap = func(ctx context.Context, c claims.Condition, w []claims.Write) (claims.Swapped, error) {
				c.Dead = claims.Guard{}
				return d.Store.Swap(ctx, c, w...)
			}
		},
	},
	{
		name: "tells expiry by the caller's clock", scene: "two under one scope", want: "a scope has one holder",
		store: func(d *double, c *actorClock) {
			d.now = func() claims.Now {
				n := d.clock.Now()
				n.Store = n.Store.Add(c.Skew())
				return n
			}
		},
	},
	{
		name: "counts tokens anew after a release", scene: "two under one scope", want: "every token is granted once",
		store: func(d *double, _ *actorClock) {
			released := map[string]uint64{}
			d.release = func(ctx context.Context, g claims.Guard) error {
				err := d.Store.Release(ctx, g)
				if err == nil {
					released[g.Scope] = g.Token
				}
				return err
			}
			d.acquire = func(ctx context.Context, scope, holder string, ttl time.Duration) (claims.Lease, error) {
				l, err := d.Store.Acquire(ctx, scope, holder, ttl)
				l.Token -= released[scope]
				return l, err
			}
		},
	},
	{
		name: "folds keys", scene: "two business keys", want: "what was asked for is carried out",
		store: func(d *double, _ *actorClock) {
			d.get = func(ctx context.Context, k claims.Key, g claims.Guard) (claims.View, error) {
				k.Call = strings.ToLower(k.Call)
				return d.Store.Get(ctx, k, g)
			}
			d.swap = func(ctx context.Context, c claims.Condition, w []claims.Write) (claims.Swapped, error) {
				w = slices.Clone(w)
				w[0].Next.Key.Call = strings.ToLower(w[0].Next.Key.Call)
				return d.Store.Swap(ctx, c, w...)
			}
		},
	},
	{
		name: "settles whatever attempt is current", scene: "two sidecars under one token", want: "a settle names the claim",
		rule: func(r *rules) {
			r.settle = func(rec claims.Record, _, _ int, _ claims.ClaimID, s claims.Sent) (claims.Record, bool) {
				return claims.Settle(rec, rec.Revision, rec.Attempt, rec.Claim, s)
			}
		},
	},
	{
		name: "takes absence for proof before the deadline", scene: "one dies after its send", want: "what was executed is never said not to be",
		rule: func(r *rules) {
			r.apply = func(rec claims.Record, v claims.Verdict) (claims.Record, bool) {
				hasty := rec.Clone()
				hasty.Facts.SettleAfter, v.Rules.SettleAfter = 0, 0
				next, moved := claims.Apply(hasty, v)
				next.Facts.SettleAfter = rec.Facts.SettleAfter
				return next, moved
			}
		},
	},
	{
		name: "grants a finished scope", scene: "two under one scope", want: "a finished scope is never granted again",
		store: func(d *double, _ *actorClock) {
			d.acquire = func(ctx context.Context, scope, holder string, ttl time.Duration) (claims.Lease, error) {
				l, err := d.Store.Acquire(ctx, scope, holder, ttl)
				if errors.Is(err, claims.ErrFinished) {
					return d.Store.State(ctx, scope)
				}
				return l, err
			}
		},
	},
	{
		name: "replays before it looks at the lease", scene: "two under one scope", want: "without a live guard everything is refused",
		rule: func(r *rules) {
			r.decide = func(v claims.View, q claims.Request, ring claims.Ring) claims.Decision {
				if v.Record.State == claims.StateSucceeded {
					return claims.Decision{Action: claims.Replay}
				}
				return claims.Decide(v, q, ring)
			}
		},
	},
	{
		name: "counts a key's age from the last attempt", scene: "answers are lost until the key is forgotten", want: "nothing is sent past the key's retention",
		rule: func(r *rules) {
			r.decide = func(v claims.View, q claims.Request, ring claims.Ring) claims.Decision {
				if n := len(v.Record.Attempts); n > 0 {
					v.Record.FirstStarted = v.Record.Attempts[n-1].Started
				}
				return claims.Decide(v, q, ring)
			}
		},
	},
}

// checkThenWrite is a store without compare-and-set: what it reads and what it writes are two requests.
func checkThenWrite(d *double, c *actorClock) func(context.Context, claims.Condition, []claims.Write) (claims.Swapped, error) {
	return func(ctx context.Context, cond claims.Condition, all []claims.Write) (claims.Swapped, error) {
		for _, w := range all {
			if v, err := d.Store.Get(ctx, w.Next.Key, claims.Guard{}); err != nil || v.Record.Version != w.Version {
				return d.Store.Swap(ctx, cond, all...)
			}
		}
		if !c.pause("has checked the version") {
			return claims.Swapped{}, errStopped
		}
		all = slices.Clone(all)
		for i := range all {
			v, err := d.Store.Get(ctx, all[i].Next.Key, claims.Guard{})
			if err != nil {
				return claims.Swapped{}, err
			}
			all[i].Version = v.Record.Version
		}
		return d.Store.Swap(ctx, cond, all...)
	}
}

// stages is where a naive way is played, on memory.
func (n naive) stages(ctx context.Context) *stages {
	clock := NewClock()
	d := &double{clock: clock, now: clock.Now}
	d.Store = memory.New(memory.Config{Now: func() claims.Now { return d.now() }})
	s := &stages{ctx: ctx, h: Harness{Backend: d, Advance: clock.Advance}, rules: sound, clock: &actorClock{who: -1}}
	if n.store != nil {
		n.store(d, s.clock)
	}
	if n.rule != nil {
		n.rule(&s.rules)
	}
	return s
}
