// Package claimstest holds the rules that every claims.Backend keeps, as tests that any store runs. Each rule is shown
// to bite by a store that breaks it (see Broken).
//
// What it does not check: that a commit survives a power cut, that several processes or machines agree, and that an
// error of a write is never taken for a refusal. These are each store's own tests.
package claimstest

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/fence-sidecar/fence-sidecar/claims"
)

// Harness is a fresh, empty store with its clock in the test's hand.
type Harness struct {
	Backend claims.Backend
	// Advance lets d pass on the store's clock and on the wall clock. The finest step used is a microsecond.
	Advance func(d time.Duration)
	// StepWall sets the wall clock alone forward or (negative) back.
	StepWall func(d time.Duration)
	// Lose lets the store notice that it perhaps lost what it acknowledged in the last minute, though nothing is gone, and
	// returns how long its quarantine is: at least the longest lease that a rule takes.
	Lose func() time.Duration
	// Spoil makes a stored record one that this version cannot read.
	Spoil func(key claims.Key)
	// Fill keeps n notices of a tenant at a gateway named filled, faster than one by one.
	Fill func(tenant string, n int)
	// Except names rules that the store does not keep, with the reason. They are not run.
	Except map[string]string
}

// T is what a rule needs of a *testing.T.
type T interface {
	Helper()
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
	Context() context.Context
}

// Rule is one thing that a store promises.
type Rule struct {
	Name  string
	Check func(t T, h Harness)
}

// Rules are all of them, in the order of the documentation of package claims.
func Rules() []Rule {
	var all []Rule
	for _, part := range [][]rule{leaseRules, endRules, markRules, lossRules, readRules, swapRules, contentRules,
		findRules, sweepRules, eventRules, toldRules, inboxRules, memberRules, raceRules} {
		for _, r := range part {
			all = append(all, Rule{r.name, func(t T, h Harness) { r.check(&kit{T: t, Harness: h}) }})
		}
	}
	return all
}

type rule struct {
	name  string
	check func(k *kit)
}

// Run runs every rule against a store of its own. open registers the store's Close with t.Cleanup.
func Run(t *testing.T, open func(t *testing.T) Harness) {
	for _, r := range Rules() {
		t.Run(r.Name, func(t *testing.T) {
			h := open(t)
			if reason, ok := h.Except[r.Name]; ok {
				t.Logf("not kept by this store: %s", reason)
				return
			}
			r.Check(t, h)
		})
	}
}

// Failures runs one rule and returns what it complained about, instead of failing a test.
func Failures(ctx context.Context, r Rule, h Harness) []string {
	rec := &recorder{ctx: ctx}
	done := make(chan struct{})
	go func() { // of its own, as Fatalf ends it
		defer close(done)
		r.Check(rec, h)
	}()
	<-done
	rec.mu.Lock()
	defer rec.mu.Unlock()
	return rec.failures
}

type recorder struct {
	ctx      context.Context
	mu       sync.Mutex
	failures []string
}

func (r *recorder) Helper() {}

func (r *recorder) Errorf(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.failures = append(r.failures, fmt.Sprintf(format, args...))
}

func (r *recorder) Fatalf(format string, args ...any) {
	r.Errorf(format, args...)
	runtime.Goexit()
}

func (r *recorder) Context() context.Context { return r.ctx }
