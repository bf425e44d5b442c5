package claimstest

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fence-sidecar/fence-sidecar/claims"
	"github.com/fence-sidecar/fence-sidecar/claims/memory"
)

// brokenWorld is a store, or a rule, that breaks one promise on purpose.
type brokenWorld struct {
	name   string
	leases bool            // for the machine of leases
	store  func(d *double) // nil: sound
	rules  func(r *rules)  // nil: sound
	want   string          // begins what must be found; "": whatever it is
}

// from is a store that the suite's rules have their own names for.
func from(name string) func(*double) {
	all := BrokenStores()
	return all[slices.IndexFunc(all, func(b Broken) bool { return b.Name == name })].wrap
}

// onDecide lets decisions see something else than there is, or changes them.
func onDecide(before func(v *claims.View, q *claims.Request), after func(d *claims.Decision)) func(*rules) {
	return func(r *rules) {
		r.decide = func(v claims.View, q claims.Request, ring claims.Ring) claims.Decision {
			v.Record = v.Record.Clone()
			if q.Target != nil {
				t := *q.Target
				t.Record = t.Record.Clone()
				q.Target = &t
			}
			if before != nil {
				before(&v, &q)
			}
			d := claims.Decide(v, q, ring)
			if after != nil {
				after(&d)
			}
			return d
		}
	}
}

func onVerdict(f func(v *claims.Verdict)) func(*rules) {
	return func(r *rules) {
		r.apply = func(rec claims.Record, v claims.Verdict) (claims.Record, bool) {
			f(&v)
			return claims.Apply(rec, v)
		}
	}
}

var brokenWorlds = []brokenWorld{
	{name: "an expired lease is renewed", leases: true, store: from("an expired lease is renewed")},
	{name: "a release forgets the token", leases: true, store: from("a release forgets the token")},
	{name: "a finished scope is taken", leases: true, store: from("a finished scope is taken"), want: "a finished scope is never granted"},
	{name: "live at its expiry", leases: true, store: func(d *double) {
		d.acquire = func(ctx context.Context, scope, holder string, ttl time.Duration) (claims.Lease, error) {
			return d.Store.Acquire(ctx, scope, holder, ttl+tick)
		}
	}},
	{name: "a takeover keeps the token", leases: true, store: from("a takeover keeps the token")},
	{name: "a renewal can shorten", leases: true, store: from("a renewal can shorten")},
	{name: "leases by wall clock", leases: true, store: from("leases by wall clock")},
	{name: "tokens do not jump", leases: true, store: from("tokens do not jump")},
	{name: "a lease outlives a loss", leases: true, store: from("a lease outlives a loss")},
	{name: "a quarantine grants", leases: true, store: from("a quarantine grants"), want: "acquire"},
	{name: "scopes without case", leases: true, store: from("scopes without case")},
	{name: "scopes in NFC", leases: true, store: func(d *double) {
		d.acquire = func(ctx context.Context, scope, holder string, ttl time.Duration) (claims.Lease, error) {
			return d.Store.Acquire(ctx, strings.ReplaceAll(scope, "e%CC%81", "%C3%A9"), holder, ttl)
		}
	}},
	{name: "released while calls are in flight", leases: true, store: from("released while calls are in flight"), want: "the end of a lease"},
	{name: "every finisher passes", leases: true, store: from("every finisher passes"), want: "nothing is done under a token"},
	{name: "the last writer wins in leases", leases: true, store: from("the last writer wins")},

	{name: "the last writer wins", store: from("the last writer wins"), want: "a write compares"},
	{name: "the guard is not checked", store: from("the guard is not checked"), want: "swap"},
	{name: "the own instance is not checked", store: from("the own instance is not checked"), want: "nothing is done under a token"},
	{name: "a live sender is overtaken", leases: true, store: from("a live sender is overtaken"), want: "a live sender is never overtaken"},
	{name: "keys without case", store: func(d *double) {
		d.onKeys(strings.NewReplacer("É", "é", "S", "s").Replace)
	}},
	{name: "keys without trailing space", store: from("keys without trailing space")},
	{name: "keys in NFC", store: from("keys without accents")},
	{name: "the key's age counts from the last claim", store: from("the key's age counts from the last claim")},
	{name: "the unknown is pruned", want: "what is pruned", store: func(d *double) {
		d.prune = func(ctx context.Context, before time.Time, limit int) (int, error) {
			n, err := d.Store.Prune(ctx, before, limit)
			d.calls(func(c *memory.Call, _ claims.Now) {
				if c.Record.State == claims.StateUnknown && c.Record.Updated.Store.Before(before) {
					c.Record.State = claims.StateOpen
					n++
				}
			})
			return n, err
		}
	}},
	{name: "late success is not looked at", store: from("late success is not looked at"), want: "who is to be looked at"},
	{name: "nobody looks after the unknown", store: from("nobody looks after the unknown"), want: "who is to be looked at"},

	{name: "nobody asks whether the sender lives", rules: onDecide(
		func(v *claims.View, _ *claims.Request) { v.Sender = claims.GuardView{} },
		func(d *claims.Decision) { d.Condition.Dead = claims.Guard{} },
	), want: "a live sender is never overtaken"},
	{name: "absence counts before the settling time", rules: onVerdict(func(v *claims.Verdict) { v.Asked.Store = v.Asked.Store.Add(3 * unit) })},
	{name: "the retention is not looked at", rules: onDecide(func(v *claims.View, q *claims.Request) {
		v.Record.Facts.Retention, q.Facts.Retention = time.Hour, time.Hour
	}, nil)},
	{name: "a revision without proof", want: "a further attempt follows proof", rules: onDecide(func(v *claims.View, q *claims.Request) {
		if q.Revision == v.Record.Revision+1 && v.Record.State == claims.StateUnknown {
			v.Record.State = claims.StateOpen
			for i := range v.Record.Attempts {
				v.Record.Attempts[i].Outcome, v.Record.Attempts[i].Proof = claims.NotExecuted, "answer"
			}
		}
	}, nil)},
	{name: "a revision before the key's end", want: "a revision after absence", rules: onDecide(func(v *claims.View, _ *claims.Request) {
		for i := range v.Record.Attempts {
			if v.Record.Attempts[i].Proof == "lookup" {
				v.Record.Attempts[i].Proof = "answer"
			}
		}
	}, nil)},
	{name: "an undo of a call in doubt: nothing to undo", rules: onDecide(func(_ *claims.View, q *claims.Request) {
		if q.Target != nil && q.Target.Record.State.Unsettled() {
			q.Target.Record.State = claims.StateCancelled
		}
	}, nil), want: "only of a cancelled call"},
	{name: "an undo of a call in doubt is sent", rules: onDecide(func(_ *claims.View, q *claims.Request) {
		if q.Target != nil && q.Target.Record.State.Unsettled() {
			q.Target.Record.State = claims.StateSucceeded
		}
	}, nil)},
	{name: "a second undo key", rules: onDecide(func(_ *claims.View, q *claims.Request) {
		if q.Target != nil {
			q.Target.Record.Undos = nil
		}
	}, nil)},
	{name: "evidence is not read", rules: onDecide(func(v *claims.View, q *claims.Request) {
		for i := range v.Record.Evidence {
			v.Record.Evidence[i].Read = true
		}
		if q.Target != nil {
			for i := range q.Target.Record.Evidence {
				q.Target.Record.Evidence[i].Read = true
			}
		}
	}, nil)},
	{name: "a late answer is dropped", rules: func(r *rules) {
		r.late = func(rec claims.Record, _ claims.Evidence) (claims.Record, bool) { return rec, false }
	}},
	{name: "in doubt is said to be not executed", rules: onDecide(nil, func(d *claims.Decision) {
		if d.Refusal != nil && d.Refusal.Reason == claims.InDoubt {
			d.Refusal.Outcome = claims.NotExecuted
		}
	}), want: "what "},
	{name: "unread success is said to be declined", rules: func(r *rules) {
		r.outcome = func(rec *claims.Record) claims.Outcome {
			c := rec.Clone()
			c.Evidence = nil
			return c.Outcome()
		}
	}, want: "what "},
	{name: "a zombie is served", rules: onDecide(func(v *claims.View, q *claims.Request) {
		v.Guard = claims.GuardView{Status: claims.LeaseLive}
		if q.Target != nil {
			q.Target.Guard = v.Guard
		}
	}, nil), want: "without a live guard"},
	{name: "a time-out is zero bytes", rules: func(r *rules) {
		r.settle = func(rec claims.Record, rev, att int, id claims.ClaimID, s claims.Sent) (claims.Record, bool) {
			s.Unsent = s.Unsent || s.Cause == "timeout"
			return claims.Settle(rec, rev, att, id, s)
		}
	}},
	{name: "no event of what was found out", want: "one event", rules: func(r *rules) {
		r.event = func(was, is claims.Record) *claims.Event {
			if was.State == claims.StateUnknown {
				return nil
			}
			return claims.EventOf(was, is)
		}
	}},
	{name: "an event for every write", want: "one event", rules: func(r *rules) {
		r.event = func(was, is claims.Record) *claims.Event {
			return &claims.Event{Key: is.Key, State: is.State, From: was.State, Outcome: is.Outcome()}
		}
	}},
	{name: "a hasty operator", rules: func(r *rules) {
		r.resolve = func(rec claims.Record, w claims.Word, who, why string, now claims.Now) (claims.Record, error) {
			now.Store = now.Store.Add(time.Hour)
			return claims.Resolve(rec, w, who, why, now)
		}
	}},
}

// play runs one case against a broken world.
func (b brokenWorld) play(ctx context.Context, s script) ([]string, *violation) {
	store, r := b.store, sound
	if store == nil {
		store = func(*double) {}
	}
	if b.rules != nil {
		b.rules(&r)
	}
	h := Broken{wrap: store}.Open()
	if b.leases {
		return playLeases(ctx, h, s)
	}
	return playCalls(ctx, h, s, r)
}

const biteCases, biteSteps = 2000, 80

// TestMachineBites: within a fixed number of cases of one seed, every broken world is found.
func TestMachineBites(t *testing.T) {
	setFlag(t, "rapid.seed", 7)
	setFlag(t, "rapid.checks", biteCases)
	setFlag(t, "rapid.steps", biteSteps)
	for _, b := range brokenWorlds {
		t.Run(strings.ReplaceAll(b.name, " ", "-"), func(t *testing.T) {
			var found *violation
			var lines []string
			cases := 0
			rapid.Check(t, func(rt *rapid.T) {
				if found != nil {
					return
				}
				s := scripts.Draw(rt, "script")
				lines, found = b.play(t.Context(), s)
				cases++
			})
			switch {
			case found == nil:
				t.Fatalf("nothing was found in %d cases", cases)
			case !strings.HasPrefix(found.rule, b.want):
				t.Errorf("found %q, want %q\n%s\n%s", found.rule, b.want, found.detail, strings.Join(lines, "\n"))
			}
			t.Logf("%s: after %d cases", found.rule, cases)
		})
	}
}
