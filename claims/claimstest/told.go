package claimstest

import (
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/fence-sidecar/fence-sidecar/claims"
)

var toldRules = []rule{
	{"told/ends-it", toldEndsIt},
	{"told/of-what-is-gone", toldOfWhatIsGone},
	{"untold/backs-off", untoldBacksOff},
	{"untold/only-asked-tenants", untoldTenants},
	{"untold/limit", untoldLimit},
	{"untold/one-teller-gets-an-event", oneTellerGetsAnEvent},
}

func (k *kit) untold(s claims.Sweep) []claims.Event {
	k.Helper()
	list, err := k.Backend.Untold(k.Context(), s)
	k.ok("untold", err)
	return some(list)
}

func (k *kit) told(id string) {
	k.Helper()
	k.ok("told "+id, k.Backend.Told(k.Context(), id))
}

func toldEndsIt(k *kit) {
	k.happen(call("a"))
	k.happen(call("b"))
	all := k.events("", 10)
	k.equal("events", len(all), 2)
	k.equal("untold", k.untold(sweep), all)
	k.told(all[0].ID)
	k.told(all[0].ID)
	k.Advance(time.Hour)
	k.equal("after the first was told", k.untold(sweep), some(all[1:]))
	k.told(all[1].ID)
	k.Advance(time.Hour)
	k.equal("after both were told", k.untold(sweep), []claims.Event(nil))
	k.equal("all", k.events("", 10), all) // told is not gone
	k.happen(call("a"))
	k.equal("the next of a call", eventsOf(k.untold(sweep)), []string{"a"})
}

func toldOfWhatIsGone(k *kit) {
	k.happen(call("a"))
	id := k.events("", 10)[0].ID
	k.Advance(time.Second)
	k.prune(k.now(), 10, 1)
	k.told(id)
	k.equal("untold", k.untold(sweep), []claims.Event(nil))
}

func untoldBacksOff(k *kit) {
	k.happen(call("a"))
	for i, d := range []time.Duration{1, 2, 4, 8, 10, 10} {
		k.equal(fmt.Sprintf("try %d", i+1), eventsOf(k.untold(sweep)), []string{"a"})
		k.equal("at once again", k.untold(sweep), []claims.Event(nil))
		k.Advance(d*time.Minute - tick)
		k.equal("just before the next", k.untold(sweep), []claims.Event(nil))
		k.Advance(tick)
	}
	k.happen(call("a")) // another event of the call has its own
	k.equal("both", len(k.untold(sweep)), 2)
	k.Advance(time.Minute)
	k.equal("the second again", len(k.untold(sweep)), 1)
}

func untoldTenants(k *kit) {
	k.happen(call("ours"))
	k.happen(claims.Key{Tenant: "other", Call: "theirs"})
	asked := sweep
	asked.Tenants = []string{"nobody"}
	k.equal("of nobody", k.untold(asked), []claims.Event(nil))
	asked.Tenants = []string{call("x").Tenant}
	k.equal("of one tenant", eventsOf(k.untold(asked)), []string{"ours"})
	asked.Tenants = []string{"nobody", "somebody", "other"}
	k.equal("of several, the last one's", eventsOf(k.untold(asked)), []string{"theirs"})
	k.Advance(time.Minute)
	k.equal("everybody's", len(k.untold(sweep)), 2)
}

func untoldLimit(k *kit) {
	for _, name := range []string{"c", "a", "b"} {
		k.happen(call(name))
	}
	few := sweep
	few.Limit = 0
	k.equal("none", k.untold(few), []claims.Event(nil))
	few.Limit = 2
	first := k.untold(few)
	k.equal("first", len(first), 2)
	got := append(eventsOf(first), eventsOf(k.untold(few))...)
	slices.Sort(got)
	k.equal("one after the other", got, []string{"a", "b", "c"})
}

func oneTellerGetsAnEvent(k *kit) {
	for round := range rounds {
		k.happen(call(fmt.Sprint(round)))
		var got atomic.Int64
		race(4, func(int) {
			list, err := k.Backend.Untold(k.Context(), sweep)
			if err != nil {
				k.Errorf("untold: %v", err)
			}
			got.Add(int64(len(list)))
		})
		if got.Load() != 1 {
			k.Fatalf("round %d: %d tellers got the event", round, got.Load())
		}
	}
}
