package postgres

import (
	"testing"
	"time"

	"github.com/fence-sidecar/fence-sidecar/claims/claimstest"
)

func TestMachine(t *testing.T) {
	claimstest.Machine(t, claimstest.MachineConfig{Percent: 3, Least: 5 * time.Second}, func(t *testing.T) claimstest.Harness { return rules(t, migrated(t)) })
}
