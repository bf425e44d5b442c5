package memory_test

import (
	"testing"
	"time"

	"github.com/fence-sidecar/fence-sidecar/claims"
	"github.com/fence-sidecar/fence-sidecar/claims/claimstest"
	"github.com/fence-sidecar/fence-sidecar/claims/memory"
)

func TestMachine(t *testing.T) {
	claimstest.Machine(t, claimstest.MachineConfig{Percent: 300}, func(*testing.T) claimstest.Harness {
		clock := claimstest.NewClock()
		s := memory.New(memory.Config{Now: clock.Now})
		return claimstest.Harness{
			Backend: s, Advance: clock.Advance, StepWall: clock.StepWall,
			Lose: func() time.Duration {
				now := clock.Now()
				s.Lose(claims.Now{Store: now.Store.Add(-time.Minute), Wall: now.Wall.Add(-time.Minute)}, time.Minute)
				return time.Minute
			},
		}
	})
}
