package claimstest

import (
	"context"
	"strings"
	"testing"

	"github.com/fence-sidecar/fence-sidecar/claims/explore"
)

// ExploreConfig says how far Explore goes. Steps beyond Depth are not chosen.
type ExploreConfig struct {
	Depth int    // of the schedules that are all run, of two instances
	Walks int    // drawn schedules of three instances, of any length
	Seed  uint64 // of the walks
}

// Explored is what came of one scene. The search proves nothing where Err is set: explore.ErrOutOfTime, or what the store said.
type Explored struct {
	Scene string
	explore.Report
	Err error
}

// Explore plays small scenes on a store in every order of their steps, up to a depth, and compares each answer of the store with
// a sequential model, what is told with what the gateway executed, and what is done with P1, P3, P4 and P5; the charge of a
// business key is one charge. One request to the store is one step: what happens when two of them meet is for the rules.
//
// h is one empty store for all; each schedule has a tenant of its own.
func Explore(ctx context.Context, h Harness, cfg ExploreConfig) []Explored {
	s := &stages{ctx: ctx, h: h, rules: sound, clock: &actorClock{}}
	var all []Explored
	for _, sc := range scenes {
		r, err := explore.Every(ctx, s.open(sc), cfg.Depth)
		all = append(all, Explored{sc.name, r, err})
	}
	r, err := explore.Walks(ctx, s.open(three), cfg.Walks, cfg.Seed)
	return append(all, Explored{three.name, r, err})
}

// Schedules is Explore as a test.
func Schedules(t *testing.T, cfg ExploreConfig, h Harness) {
	t.Helper()
	var sum explore.Report
	for _, e := range Explore(t.Context(), h, cfg) {
		switch {
		case e.Err != nil || e.Found != nil:
			t.Errorf("%s: %s, %v", e.Scene, e.Report, e.Err)
		case e.Switched == 0:
			t.Errorf("%s: no schedule switched, which says nothing: %s", e.Scene, e.Report)
		}
		sum.Schedules += e.Schedules
		sum.Switched += e.Switched
		sum.Steps += e.Steps
		sum.Longest = max(sum.Longest, e.Longest)
	}
	t.Logf("proof: explorer depth=%d %s", cfg.Depth, strings.TrimSpace(sum.String()))
}
