package postgres

import (
	"testing"

	"github.com/fence-sidecar/fence-sidecar/claims/claimstest"
)

func TestMachine(t *testing.T) {
	claimstest.Machine(t, 10, func(t *testing.T) claimstest.Harness { return rules(t, migrated(t)) })
}
