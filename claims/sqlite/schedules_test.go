package sqlite

import (
	"testing"

	"github.com/fence-sidecar/fence-sidecar/claims/claimstest"
)

func TestSchedules(t *testing.T) {
	m := newMachine()
	claimstest.Schedules(t, claimstest.ExploreConfig{Depth: 4, Walks: 50, Seed: 1},
		claimstest.Harness{Backend: openAt(t, migrated(t), m), Advance: m.Advance, StepWall: m.StepWall})
}
