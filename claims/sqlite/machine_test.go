package sqlite

import (
	"testing"

	"github.com/fence-sidecar/fence-sidecar/claims/claimstest"
)

func TestMachine(t *testing.T) {
	claimstest.Machine(t, claimstest.MachineConfig{Percent: 10}, func(t *testing.T) claimstest.Harness {
		m := newMachine()
		return claimstest.Harness{Backend: openAt(t, migrated(t), m), Advance: m.Advance, StepWall: m.StepWall}
	})
}
