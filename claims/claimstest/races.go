package claimstest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"

	"github.com/fence-sidecar/fence-sidecar/claims"
)

var raceRules = []rule{
	{"race/one-swap-wins", oneSwapWins},
	{"race/one-acquire-wins", oneAcquireWins},
	{"race/renewal-or-takeover", renewalOrTakeover},
	{"race/claim-or-release", func(k *kit) { claimOrEnd(k, k.Backend.Release) }},
	{"race/claim-or-finish", func(k *kit) { claimOrEnd(k, k.Backend.Finish) }},
	{"race/one-sweeper-gets-a-call", oneSweeperGetsACall},
	{"race/two-records-at-once", twoRecordsAtOnce},
}

const (
	rounds = 40
	racers = 20
)

// race runs f in n goroutines that start together, in any order: the last to be made would otherwise mostly run first.
func race(n int, f func(i int)) {
	var wg sync.WaitGroup
	gate := make(chan struct{})
	for _, i := range rand.Perm(n) {
		wg.Go(func() {
			<-gate
			f(i)
		})
	}
	close(gate)
	wg.Wait()
}

// oneSwapWins: of many writers over one version exactly one wins, and the others see that it was not they.
func oneSwapWins(k *kit) {
	for round := range rounds {
		base := k.get(call("c"), claims.Guard{}).Record
		var wins atomic.Int64
		winner := make([]claims.ClaimID, racers)
		race(racers, func(i int) {
			r := record(call("c"), claims.StateOpen)
			winner[i] = r.Claim
			_, err := k.swap(claims.Condition{}, claims.Write{Version: base.Version, Next: r})
			switch {
			case err == nil:
				wins.Add(1)
			case !errors.Is(err, claims.ErrLost):
				k.Errorf("swap: %v", err)
			default:
				winner[i] = claims.ClaimID{}
			}
		})
		r := k.get(call("c"), claims.Guard{}).Record
		if n := wins.Load(); n != 1 || r.Version != base.Version+1 {
			k.Fatalf("round %d: %d of %d swaps won, version %d became %d", round, n, racers, base.Version, r.Version)
		}
		for _, id := range winner {
			if id != (claims.ClaimID{}) && id != r.Claim {
				k.Fatalf("round %d: %s won, %s is stored", round, id, r.Claim)
			}
		}
	}
}

func oneAcquireWins(k *kit) {
	for round := range rounds {
		var wins, token atomic.Int64
		race(racers, func(i int) {
			l, err := k.Backend.Acquire(k.Context(), app, fmt.Sprint(i), ttl)
			switch {
			case err == nil:
				wins.Add(1)
				token.Store(int64(l.Token))
			case !errors.Is(err, claims.ErrHeld):
				k.Errorf("acquire: %v", err)
			}
		})
		if wins.Load() != 1 || token.Load() != int64(round+1) {
			k.Fatalf("round %d: %d takes, token %d", round+1, wins.Load(), token.Load())
		}
		k.Advance(ttl)
	}
}

// renewalOrTakeover: around the expiry either the holder keeps the lease or another gets it, never both.
func renewalOrTakeover(k *kit) {
	for round := range rounds * 2 {
		scope := fmt.Sprintf("shop:%d", round)
		g := k.take(scope)
		k.Advance(ttl - tick)
		var renewed, taken error
		race(2, func(i int) {
			if i == 0 {
				_, renewed = k.Backend.Renew(k.Context(), g, ttl)
			} else {
				k.Advance(tick)
				_, taken = k.Backend.Acquire(k.Context(), scope, "other", ttl)
			}
		})
		if (renewed == nil) == (taken == nil) {
			k.Fatalf("round %d: renewal: %v, takeover: %v; want exactly one", round, renewed, taken)
		}
		for _, err := range []error{renewed, taken} {
			if err != nil && !claims.Refused(err) {
				k.Errorf("round %d: %v", round, err)
			}
		}
	}
}

// claimOrEnd: a lease that ends has no call in flight; a claim that came first keeps it, one that came later is fenced.
func claimOrEnd(k *kit, end end) {
	for round := range rounds * 3 {
		scope := fmt.Sprintf("shop:%d", round)
		g := k.take(scope)
		var claimed, ended error
		race(2, func(i int) {
			if i == 0 {
				_, claimed = k.swap(claims.Condition{Guard: g}, claim(call(scope), scope, claims.Guard{}))
			} else {
				ended = end(k.Context(), g)
			}
		})
		if (claimed == nil) == (ended == nil) {
			k.Fatalf("round %d: claim: %v, end of its lease: %v; want exactly one", round, claimed, ended)
		}
	}
}

func oneSweeperGetsACall(k *kit) {
	for round := range rounds {
		name := fmt.Sprint(round)
		k.put(record(call(name), claims.StateUnknown))
		var got atomic.Int64
		race(4, func(int) {
			keys, err := k.Backend.Unsettled(k.Context(), sweep)
			if err != nil {
				k.Errorf("unsettled: %v", err)
			}
			got.Add(int64(len(keys)))
		})
		if got.Load() != 1 {
			k.Fatalf("round %d: %d sweepers got the call", round, got.Load())
		}
	}
}

// twoRecordsAtOnce: a reader's lost swap over both sees both as of one write, in whatever order they are named.
func twoRecordsAtOnce(k *kit) {
	a, b := k.put(record(call("a"), claims.StateOpen)), k.put(record(call("b"), claims.StateOpen))
	race(8, func(i int) {
		for range rounds {
			w := []claims.Write{{Version: -1, Next: a}, {Version: -1, Next: b}}
			s, err := k.swap(claims.Condition{}, w...)
			if !errors.Is(err, claims.ErrLost) || len(s.Records) != 2 {
				k.Errorf("read by a lost swap: %v", err)
				return
			}
			if s.Records[0].Version != s.Records[1].Version {
				k.Errorf("half of a write is seen: versions %d and %d", s.Records[0].Version, s.Records[1].Version)
			}
			w = []claims.Write{{Version: s.Records[0].Version, Next: a}, {Version: s.Records[1].Version, Next: b}}
			if i%2 == 0 {
				w[0], w[1] = w[1], w[0]
			}
			if _, err := k.swap(claims.Condition{}, w...); err != nil && !errors.Is(err, claims.ErrLost) {
				k.Errorf("swap: %v", err)
			}
		}
	})
}
