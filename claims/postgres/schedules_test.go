package postgres

import (
	"testing"

	"github.com/fence-sidecar/fence-sidecar/claims/claimstest"
)

func TestSchedules(t *testing.T) {
	claimstest.Schedules(t, claimstest.ExploreConfig{Depth: 4, Walks: 20, Seed: 1}, rules(t, migrated(t)))
}
