package claimstest

import (
	"time"

	"github.com/fence-sidecar/fence-sidecar/claims"
)

var sweepRules = []rule{
	{"unsettled/unknown", unsettledUnknown},
	{"unsettled/pending-past-deadline", unsettledPending},
	{"unsettled/unread-success-evidence", unsettledEvidence},
	{"unsettled/polled", unsettledPolled},
	{"unsettled/nothing-settled", unsettledNothingSettled},
	{"unsettled/only-when-due", unsettledOnlyWhenDue},
	{"unsettled/only-asked-tenants", unsettledTenants},
	{"unsettled/longest-due-first", unsettledLongestDueFirst},
	{"unsettled/backs-off", unsettledBacksOff},
	{"unsettled/a-write-starts-anew", unsettledStartsAnew},
	{"unsettled/keeps-version", unsettledKeepsVersion},
	{"prune/drops-answers-not-outcomes", pruneDropsAnswers},
	{"prune/never-what-is-unsettled", pruneNeverUnsettled},
	{"prune/only-before", pruneOnlyBefore},
	{"prune/limit", pruneLimit},
}

var sweep = claims.Sweep{Limit: 10, Base: time.Minute, Max: 10 * time.Minute}

func (k *kit) unsettled() []string {
	k.Helper()
	return k.sweep(sweep)
}

func (k *kit) sweep(s claims.Sweep) (names []string) {
	k.Helper()
	keys, err := k.Backend.Unsettled(k.Context(), s)
	k.ok("unsettled", err)
	for _, key := range keys {
		names = append(names, key.Call)
	}
	return names
}

func (k *kit) now() time.Time {
	k.Helper()
	return k.get(call("none"), claims.Guard{}).Now.Store
}

func unsettledUnknown(k *kit) {
	k.put(record(call("c"), claims.StateUnknown))
	k.equal("unsettled", k.unsettled(), []string{"c"})
}

func unsettledTenants(k *kit) {
	other := claims.Key{Tenant: "other", Call: "theirs"}
	k.put(record(call("ours"), claims.StateUnknown))
	k.put(record(other, claims.StateUnknown))
	asked := sweep
	asked.Tenants = []string{"nobody"}
	k.equal("of nobody", k.sweep(asked), []string(nil))
	asked.Tenants = []string{call("x").Tenant}
	k.equal("of one tenant", k.sweep(asked), []string{"ours"})
	asked.Tenants = []string{"nobody", "somebody", "other"}
	k.equal("of several, the last one's", k.sweep(asked), []string{"theirs"})
}

func unsettledPending(k *kit) {
	k.claim(call("c"), app, claims.Guard{})
	early := claim(call("early"), app, claims.Guard{})
	s, err := k.swap(claims.Condition{}, early)
	k.ok("claim", err)
	s.Records[0].NextCheck = time.Time{} // due, but in flight
	k.put(s.Records[0])
	k.Advance(timeout - tick)
	k.equal("before the deadline", k.unsettled(), []string(nil))
	k.Advance(tick)
	k.equal("at the deadline", k.unsettled(), []string{"early", "c"})
}

func unsettledEvidence(k *kit) {
	for _, st := range []claims.State{claims.StateDeclined, claims.StateCancelled, claims.StateOpen, claims.StatePending} {
		r := record(call(string(st)), st)
		r.Deadline = k.now().Add(time.Hour)
		r.Evidence = []claims.Evidence{{Outcome: claims.Declined}, {Outcome: claims.Succeeded}}
		k.put(r)
	}
	r := record(call("read"), claims.StateDeclined)
	r.Evidence = []claims.Evidence{{Outcome: claims.Succeeded, Read: true}}
	k.put(r)
	r = record(call("failure"), claims.StateDeclined)
	r.Evidence = []claims.Evidence{{Outcome: claims.Declined}}
	k.put(r)
	k.equal("unsettled", k.unsettled(), []string{"cancelled", "declined", "open", "pending"})
}

// unsettledPolled: a call that succeeded is looked at while where its money is has still to be asked for.
func unsettledPolled(k *kit) {
	r := record(call("c"), claims.StateSucceeded)
	r.Poll, r.NextCheck = true, k.now().Add(time.Minute)
	r.Deadline = k.now().Add(time.Hour) // of a claim that was answered early
	r = k.put(r)
	k.Advance(time.Minute - tick)
	k.equal("before its time", k.unsettled(), []string(nil))
	k.Advance(tick)
	k.equal("at its time", k.unsettled(), []string{"c"})
	k.equal("at once again", k.unsettled(), []string(nil))
	k.Advance(2 * time.Hour)
	r = k.get(r.Key, claims.Guard{}).Record
	r.Poll = false
	k.put(r)
	k.equal("when nothing is asked any more", k.unsettled(), []string(nil))
}

func unsettledNothingSettled(k *kit) {
	for _, st := range []claims.State{claims.StateSucceeded, claims.StateDeclined, claims.StateOpen, claims.StateReview, claims.StateCancelled} {
		k.put(record(call(string(st)), st))
	}
	k.Advance(8760 * time.Hour)
	k.equal("unsettled", k.unsettled(), []string(nil))
}

func unsettledOnlyWhenDue(k *kit) {
	r := record(call("c"), claims.StateUnknown)
	r.NextCheck = k.now().Add(time.Minute)
	k.put(r)
	k.Advance(time.Minute - tick)
	k.equal("before", k.unsettled(), []string(nil))
	k.Advance(tick)
	k.equal("at its time", k.unsettled(), []string{"c"})
	k.equal("at once again", k.unsettled(), []string(nil))
}

func unsettledLongestDueFirst(k *kit) {
	now := k.now()
	for i, name := range []string{"later", "soon", "sooner"} {
		r := record(call(name), claims.StateUnknown)
		r.NextCheck = now.Add(time.Duration(3-i) * time.Second)
		k.put(r)
	}
	k.put(record(call("never-checked"), claims.StateUnknown))
	k.Advance(time.Minute)
	two := sweep
	two.Limit = 2
	k.equal("first two", k.sweep(two), []string{"never-checked", "sooner"})
	k.equal("next two", k.sweep(two), []string{"soon", "later"})
	none := sweep
	none.Limit = 0
	k.equal("none", k.sweep(none), []string(nil))
}

func unsettledBacksOff(k *kit) {
	k.put(record(call("c"), claims.StateUnknown))
	for i, d := range []time.Duration{1, 2, 4, 8, 10, 10, 10} {
		k.equal("due", k.unsettled(), []string{"c"})
		want := k.now().Add(d * time.Minute)
		if got := k.get(call("c"), claims.Guard{}).Record.NextCheck; !got.Equal(want) {
			k.Fatalf("after check %d the next is at %s, want %s", i+1, got, want)
		}
		k.Advance(d*time.Minute - tick)
		k.equal("just before the next", k.unsettled(), []string(nil))
		k.Advance(tick)
	}
}

func unsettledStartsAnew(k *kit) {
	k.put(record(call("c"), claims.StateUnknown))
	for range 4 {
		k.unsettled()
		k.Advance(time.Hour)
	}
	r := k.get(call("c"), claims.Guard{}).Record
	r.NextCheck = time.Time{}
	k.put(r)
	k.equal("due", k.unsettled(), []string{"c"})
	if got := k.get(call("c"), claims.Guard{}).Record.NextCheck.Sub(k.now()); got != time.Minute {
		k.Errorf("the first check after a write waits %s, want a minute", got)
	}
}

func unsettledKeepsVersion(k *kit) {
	r := k.put(record(call("c"), claims.StateUnknown))
	k.Advance(time.Second)
	k.unsettled()
	got := k.get(call("c"), claims.Guard{}).Record
	if got.Version != r.Version || !got.Updated.Store.Equal(r.Updated.Store) {
		k.Errorf("a sweep moved version %d to %d", r.Version, got.Version)
	}
	r.State = claims.StateSucceeded
	k.put(r) // a verdict on the version that was read still applies
}

func (k *kit) prune(before time.Time, limit, want int) {
	k.Helper()
	n, err := k.Backend.Prune(k.Context(), before, limit)
	k.ok("prune", err)
	if n != want {
		k.Errorf("pruned %d, want %d", n, want)
	}
}

// answeredIn writes a record with answers of its own and of evidence.
func (k *kit) answeredIn(name string, st claims.State, unread bool) claims.Record {
	k.Helper()
	r := FullRecord(call(name))
	r.State = st
	r.Evidence[0].Read = !unread
	return k.put(r)
}

func pruneDropsAnswers(k *kit) {
	settled := []claims.State{claims.StateSucceeded, claims.StateDeclined, claims.StateOpen, claims.StateCancelled}
	var want []claims.Record
	for _, st := range settled {
		r := k.answeredIn(string(st), st, false)
		r.Answer, r.Evidence[0].Answer = nil, nil
		want = append(want, r)
	}
	k.Advance(time.Hour)
	k.prune(k.now(), 10, len(settled))
	for _, r := range want {
		k.equal("pruned", k.get(r.Key, claims.Guard{}).Record, r)
	}
	k.prune(k.now(), 10, 0)
}

func pruneNeverUnsettled(k *kit) {
	var want []claims.Record
	for _, st := range []claims.State{claims.StatePending, claims.StateUnknown, claims.StateReview} {
		want = append(want, k.answeredIn(string(st), st, false))
	}
	want = append(want, k.answeredIn("unread", claims.StateDeclined, true))
	k.Advance(8760 * time.Hour)
	k.prune(k.now(), 10, 0)
	for _, r := range want {
		k.equal("kept", k.get(r.Key, claims.Guard{}).Record, r)
	}
}

func pruneOnlyBefore(k *kit) {
	r := k.answeredIn("c", claims.StateSucceeded, false)
	k.prune(r.Updated.Store, 10, 0)
	k.equal("kept", k.get(r.Key, claims.Guard{}).Record, r)
	k.prune(r.Updated.Store.Add(tick), 10, 1)
}

func pruneLimit(k *kit) {
	for _, name := range []string{"z", "y", "x"} {
		k.answeredIn(name, claims.StateSucceeded, false)
		k.Advance(time.Second)
	}
	k.prune(k.now(), 2, 2)
	for name, kept := range map[string]bool{"z": false, "y": false, "x": true} {
		if got := k.get(call(name), claims.Guard{}).Record.Answer != nil; got != kept {
			k.Errorf("%s: answer kept: %v, want %v (the oldest go first)", name, got, kept)
		}
	}
	k.prune(k.now(), 0, 0)
	k.prune(k.now(), 2, 1)
}
