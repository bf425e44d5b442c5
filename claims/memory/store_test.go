package memory_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/fence-sidecar/fence-sidecar/claims"
	"github.com/fence-sidecar/fence-sidecar/claims/claimstest"
	"github.com/fence-sidecar/fence-sidecar/claims/memory"
)

func TestRules(t *testing.T) {
	claimstest.Run(t, func(t *testing.T) claimstest.Harness {
		clock := claimstest.NewClock()
		s := memory.New(memory.Config{Now: clock.Now})
		t.Cleanup(func() { s.Close() })
		return claimstest.Harness{
			Backend: s, Advance: clock.Advance, StepWall: clock.StepWall, Spoil: s.Spoil, Fill: s.Fill,
			Lose: func() time.Duration {
				from := clock.Now()
				from.Store, from.Wall = from.Store.Add(-time.Minute), from.Wall.Add(-time.Minute)
				s.Lose(from, time.Minute)
				return time.Minute
			},
		}
	})
}

func TestOwnClockFollowsTheBubble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New(memory.Config{})
		l, err := s.Acquire(t.Context(), "shop:a", "holder", time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute - 1)
		v, err := s.Get(t.Context(), claims.Key{Tenant: "shop", Call: "c"}, l.Guard)
		if err != nil || v.Guard.Remaining != 1 {
			t.Fatalf("after a minute less 1 ns: %+v, %v", v.Guard, err)
		}
		time.Sleep(time.Nanosecond)
		if _, err := s.Renew(t.Context(), l.Guard, time.Minute); !claims.Refused(err) {
			t.Fatalf("renewal at the expiry: %v", err)
		}
	})
}
