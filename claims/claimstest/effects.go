package claimstest

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/fence-sidecar/fence-sidecar/claims"
)

// Put writes one business row in the effect's transaction.
type Put func(row string) error

// EffectHarness is a fresh store with fenced effects, and an application's table of rows in the same database.
type EffectHarness struct {
	Leases claims.Leases
	// Do runs an effect in a transaction of its own and commits it.
	Do func(ctx context.Context, e claims.Effect, work func(Put) ([]byte, error)) (result []byte, replayed bool, err error)
	// Rows are the rows that were committed.
	Rows func() []string
	// Expire lets a lease run out at once, also in the middle of an effect's work.
	Expire func(g claims.Guard)
	// Restore makes a lease's row one of before: live, and its token g's, whatever was granted since.
	Restore func(g claims.Guard)
}

// EffectRule is one thing that fenced effects promise.
type EffectRule struct {
	Name  string
	Check func(t T, h EffectHarness)
}

// EffectRules are all of them.
func EffectRules() []EffectRule {
	var all []EffectRule
	for _, r := range slices.Concat(effectRules, effectCallerRules) {
		all = append(all, EffectRule{r.name, func(t T, h EffectHarness) { r.check(&effects{kit{T: t, Harness: Harness{}}, h}) }})
	}
	return all
}

type effectRule struct {
	name  string
	check func(k *effects)
}

// RunEffects runs every rule against effects of their own.
func RunEffects(t *testing.T, open func(t *testing.T) EffectHarness) {
	for _, r := range EffectRules() {
		t.Run(r.Name, func(t *testing.T) { r.Check(t, open(t)) })
	}
}

// EffectFailures runs one rule and returns what it complained about, instead of failing a test.
func EffectFailures(ctx context.Context, r EffectRule, h EffectHarness) []string {
	return Failures(ctx, Rule{r.Name, func(t T, _ Harness) { r.Check(t, h) }}, Harness{})
}

// effects is what rules are written with.
type effects struct {
	kit
	EffectHarness
}

func (k *effects) take(scope string) claims.Guard {
	k.Helper()
	l, err := k.Leases.Acquire(k.Context(), scope, "holder", ttl)
	k.ok("acquire "+scope, err)
	return l.Guard
}

// takeover lets the lease run out and gives it to another holder.
func (k *effects) takeover(g claims.Guard) claims.Guard {
	k.Helper()
	k.Expire(g)
	return k.take(g.Scope)
}

func effect(g claims.Guard, key string) claims.Effect {
	return claims.Effect{Guard: g, Tenant: "shop", Name: "charge", Key: key, Fingerprint: []byte("4990 eur")}
}

// writes is a work that puts rows and returns a result.
func writes(result string, rows ...string) func(Put) ([]byte, error) {
	return func(put Put) ([]byte, error) {
		for _, r := range rows {
			if err := put(r); err != nil {
				return nil, err
			}
		}
		return []byte(result), nil
	}
}

// runs wants the effect to run now.
func (k *effects) runs(e claims.Effect, result string, rows ...string) {
	k.Helper()
	got, replayed, err := k.Do(k.Context(), e, writes(result, rows...))
	if err != nil || replayed || string(got) != result {
		k.Fatalf("effect %s under %s: %q, replayed %v, %v; want %q by running", e, e.Guard, got, replayed, err, result)
	}
}

// replays wants the result of before, without a run.
func (k *effects) replays(e claims.Effect, result string) {
	k.Helper()
	got, replayed, err := k.Do(k.Context(), e, func(Put) ([]byte, error) {
		k.Errorf("effect %s ran again", e)
		return nil, nil
	})
	if err != nil || !replayed || string(got) != result {
		k.Errorf("effect %s under %s: %q, replayed %v, %v; want %q of before", e, e.Guard, got, replayed, err, result)
	}
}

// refuses wants an error before the work, and no result with it.
func (k *effects) refuses(e claims.Effect, want error) {
	k.Helper()
	got, replayed, err := k.Do(k.Context(), e, func(Put) ([]byte, error) {
		k.Errorf("the work of %s under %s ran", e, e.Guard)
		return nil, nil
	})
	k.refusal(e, err, want)
	if got != nil || replayed {
		k.Errorf("effect %s under %s: a refusal came with %q, replayed %v", e, e.Guard, got, replayed)
	}
}

func (k *effects) refusal(e claims.Effect, err, want error) {
	k.Helper()
	if f, ok := want.(*claims.FencedError); ok {
		k.fenced("effect "+e.String()+" under "+e.Guard.String(), err, *f)
	} else if !isError(err, want) {
		k.Errorf("effect %s under %s: %v, want %v", e, e.Guard, err, want)
	}
	if !claims.EffectRefused(err) {
		k.Errorf("effect %s under %s: %v does not count as refused", e, e.Guard, err)
	}
}

// fences wants a refusal by the lease.
func (k *effects) fences(e claims.Effect, status claims.LeaseStatus) {
	k.Helper()
	k.refuses(e, &claims.FencedError{Guard: e.Guard, Status: status})
}

func (k *effects) rows(want ...string) {
	k.Helper()
	got := k.Rows()
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		k.Errorf("committed rows %q, want %q", got, want)
	}
}

var effectRules = []effectRule{
	{"effect/runs-once", func(k *effects) {
		g := k.take("shop:order")
		k.runs(effect(g, "a"), "receipt", "a")
		k.replays(effect(g, "a"), "receipt")
		k.rows("a")
	}},
	{"effect/replays-under-a-later-token", func(k *effects) {
		g := k.take("shop:order")
		k.runs(effect(g, "a"), "receipt", "a")
		k.replays(effect(k.takeover(g), "a"), "receipt")
		k.rows("a")
	}},
	{"effect/other-fingerprint", func(k *effects) {
		e := effect(k.take("shop:order"), "a")
		k.runs(e, "receipt", "a")
		e.Fingerprint = []byte("5990 eur")
		k.refuses(e, claims.ErrEffectConflict)
		k.rows("a")
	}},
	// The new holder has written nothing yet: only the lease knows of it.
	{"effect/zombie-comes-first", func(k *effects) {
		g := k.take("shop:order")
		next := k.takeover(g)
		k.fences(effect(g, "a"), claims.LeaseSuperseded)
		k.runs(effect(next, "a"), "receipt", "next")
		k.rows("next")
	}},
	// A stale token is refused before the key is looked at: it gets neither the result nor the conflict.
	{"effect/zombie-gets-no-result", func(k *effects) {
		g := k.take("shop:order")
		e := effect(k.takeover(g), "a")
		k.runs(e, "receipt", "next")
		k.fences(effect(g, "a"), claims.LeaseSuperseded)
		other := effect(g, "a")
		other.Fingerprint = []byte("other")
		k.fences(other, claims.LeaseSuperseded)
		k.rows("next")
	}},
	{"effect/lease-must-be-live", func(k *effects) {
		k.fences(effect(claims.Guard{Scope: "shop:none", Token: 1}, "a"), claims.LeaseAbsent)
		ahead := k.take("shop:ahead")
		ahead.Token++
		k.fences(effect(ahead, "a"), claims.LeaseAbsent)
		g := k.take("shop:expired")
		k.Expire(g)
		k.fences(effect(g, "a"), claims.LeaseExpired)
		g = k.take("shop:released")
		k.ok("release", k.Leases.Release(k.Context(), g))
		k.fences(effect(g, "a"), claims.LeaseReleased)
		g = k.take("shop:finished")
		k.ok("finish", k.Leases.Finish(k.Context(), g))
		k.fences(effect(g, "a"), claims.LeaseFinished)
		k.rows()
	}},
	// Rows of leases of before: only the mark knows that a later token came.
	{"effect/mark", func(k *effects) {
		g := k.take("shop:order")
		k.runs(effect(k.takeover(g), "a"), "receipt", "next")
		k.Restore(g)
		k.fences(effect(g, "a"), claims.LeaseSuperseded)
		k.fences(effect(g, "b"), claims.LeaseSuperseded)
		k.rows("next")
	}},
	{"effect/replay-advances-the-mark", func(k *effects) {
		g := k.take("shop:order")
		k.runs(effect(g, "a"), "receipt", "a")
		k.replays(effect(k.takeover(g), "a"), "receipt")
		k.Restore(g)
		k.fences(effect(g, "b"), claims.LeaseSuperseded)
		k.rows("a")
	}},
	{"effect/marks-are-by-scope", func(k *effects) {
		high := k.takeover(k.takeover(k.take("shop:high")))
		k.runs(effect(high, "a"), "1", "a")
		k.runs(effect(k.take("shop:low"), "b"), "2", "b")
		k.rows("a", "b")
	}},
	{"effect/expires-while-working", func(k *effects) {
		g := k.take("shop:order")
		e := effect(g, "a")
		_, _, err := k.Do(k.Context(), e, func(put Put) ([]byte, error) {
			k.ok("put", put("late"))
			k.Expire(g)
			return []byte("late"), nil
		})
		k.refusal(e, err, &claims.FencedError{Guard: g, Status: claims.LeaseExpired})
		k.rows()
		k.runs(effect(k.take("shop:order"), "a"), "receipt", "next")
		k.rows("next")
	}},
	{"effect/result-limit", func(k *effects) {
		g := k.take("shop:order")
		full := strings.Repeat("\x00\xff", claims.EffectResultLimit/2)
		k.runs(effect(g, "full"), full, "full")
		k.replays(effect(g, "full"), full)
		e := effect(g, "over")
		_, _, err := k.Do(k.Context(), e, writes(full+"x", "over"))
		k.refusal(e, err, claims.ErrEffectOversize)
		k.rows("full")
		k.runs(e, "less", "less")
	}},
	{"effect/nil-and-empty-results", func(k *effects) {
		g := k.take("shop:order")
		for key, result := range map[string][]byte{"nil": nil, "empty": {}} {
			for range 2 {
				got, _, err := k.Do(k.Context(), effect(g, key), func(Put) ([]byte, error) { return result, nil })
				if err != nil || len(got) > 0 || (got == nil) != (result == nil) {
					k.Errorf("result %s: %#v, %v", key, got, err)
				}
			}
		}
	}},
	{"effect/tenants", func(k *effects) {
		e := effect(k.take("shop:order"), "a")
		k.runs(e, "receipt", "shop")
		e.Tenant = "other"
		k.refuses(e, claims.ErrBadEffect)
		e.Guard = k.take("other:order")
		k.runs(e, "theirs", "other")
		odd := effect(k.take(claims.ScopeKey("Shöp/1 %", "order")), "a")
		odd.Tenant = "Shöp/1 %"
		k.runs(odd, "odd", "odd")
		for _, tenant := range []string{"shöp/1 %", "Sho\u0308p/1 %", "Sh%C3%B6p%2F1%20%25"} {
			odd.Tenant = tenant
			k.refuses(odd, claims.ErrBadEffect)
		}
		k.rows("shop", "other", "odd")
	}},
	{"effect/keys-are-bytes", func(k *effects) {
		g := k.take("shop:order")
		var want []string
		for _, key := range []string{"a", "A", "a ", " a", "á", "a\u0301", "ß", "ss", "%61", "a%", "a_", `a\`, "a'"} {
			k.runs(effect(g, key), "of "+key, key)
			want = append(want, key)
			e := effect(g, "same")
			e.Name = key
			k.runs(e, "of "+key, "name "+key)
			want = append(want, "name "+key)
		}
		k.rows(want...)
	}},
	{"effect/bad", func(k *effects) {
		good := effect(k.take("shop:order"), "a")
		long := strings.Repeat("k", claims.MaxKey+1)
		for _, change := range []func(e *claims.Effect){
			func(e *claims.Effect) { e.Key = "" }, func(e *claims.Effect) { e.Key = long }, func(e *claims.Effect) { e.Key = "a\x00" },
			func(e *claims.Effect) { e.Name = "" }, func(e *claims.Effect) { e.Name = long }, func(e *claims.Effect) { e.Name = "a\n" },
			func(e *claims.Effect) { e.Tenant = "" }, func(e *claims.Effect) { e.Key = "\xff" }, func(e *claims.Effect) { e.Key = "\u0085" },
			func(e *claims.Effect) { e.Fingerprint = nil }, func(e *claims.Effect) { e.Fingerprint = []byte(long) },
			func(e *claims.Effect) { e.Guard = claims.Guard{} }, func(e *claims.Effect) { e.Guard.Token = 0 },
			func(e *claims.Effect) { e.Guard.Scope = claims.ExternalPrefix + e.Guard.Scope },
			func(e *claims.Effect) { e.Guard.Scope = claims.InstancePrefix + "x" }, func(e *claims.Effect) { e.Guard.Token = 1 << 63 },
		} {
			e := good
			change(&e)
			k.refuses(e, claims.ErrBadEffect)
		}
		good.Key, good.Name = long[1:], long[1:]
		k.runs(good, "receipt", "long")
	}},
}
