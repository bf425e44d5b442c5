package claimstest

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fence-sidecar/fence-sidecar/claims/explore"
)

// TestSchedules runs every schedule of each scene on the memory store: nothing is broken.
func TestSchedules(t *testing.T) {
	Schedules(t, ExploreConfig{Depth: 8, Walks: 1000, Seed: 1}, naive{}.stages(t.Context()).h)
}

// TestExploreOutOfTime: a search that was not finished is a failure with its counts.
func TestExploreOutOfTime(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	for _, e := range Explore(ctx, naive{}.stages(t.Context()).h, ExploreConfig{Depth: 8, Walks: 10}) {
		if !errors.Is(e.Err, explore.ErrOutOfTime) {
			t.Errorf("%s: %v", e.Scene, e.Err)
		}
	}
}

// TestNaiveWaysAreCaught in the shortest schedule that shows them.
func TestNaiveWaysAreCaught(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	for _, n := range naives {
		t.Run(strings.ReplaceAll(n.name, " ", "-"), func(t *testing.T) {
			i := slices.IndexFunc(scenes, func(s scene) bool { return s.name == n.scene })
			if i < 0 {
				t.Fatalf("no scene %q", n.scene)
			}
			r, err := explore.Every(ctx, n.stages(ctx).open(scenes[i]), 8)
			if err == nil && r.Found == nil {
				r, err = explore.Walks(ctx, n.stages(ctx).open(scenes[i]), 20_000, 1)
			}
			if err != nil || r.Found == nil {
				t.Fatalf("not caught: %s, %v", r, err)
			}
			if !strings.Contains(r.Found.Violation.Rule, n.want) {
				t.Errorf("breaks %q, want %q", r.Found.Violation.Rule, n.want)
			}
			t.Log(r)
		})
	}
}
