package claimstest

import (
	"context"
	"fmt"
	"reflect"
	"sync"
	"time"

	"github.com/fence-sidecar/fence-sidecar/claims"
)

var eventRules = []rule{
	{"event/every-field-kept", everyEventFieldKept},
	{"event/none-without-its-record", noEventWithoutRecord},
	{"event/of-two-records-both", eventsOfTwoRecords},
	{"event/of-two-records-none", noEventsOfTwoRecords},
	{"event/oldest-first-after-the-cursor", eventsAfterCursor},
	{"event/last", lastEvent},
	{"event/unknown-id", unknownEvent},
	{"event/reading-on-misses-none", readingOnMissesNone},
	{"prune/events-only-before", pruneEventsOnlyBefore},
	{"prune/events-limit", pruneEventsLimit},
}

// fullEvent has no field of zero but those that the store sets.
func fullEvent(key claims.Key) *claims.Event {
	return &claims.Event{
		Key: key, Revision: 2, Attempt: 3,
		From: claims.StateUnknown, State: claims.StateReview, Outcome: claims.Declined, Payment: "pending",
	}
}

// happen writes a record with an event over whatever is stored.
func (k *kit) happen(key claims.Key) {
	k.Helper()
	r := k.get(key, claims.Guard{}).Record
	if !r.Exists() {
		r = record(key, claims.StateSucceeded)
	}
	_, err := k.swap(claims.Condition{}, claims.Write{Version: r.Version, Next: r, Event: fullEvent(key)})
	k.ok("swap with an event", err)
}

func (k *kit) events(after string, limit int) []claims.Event {
	k.Helper()
	list, err := k.Backend.Events(k.Context(), after, limit)
	k.ok("events after "+after, err)
	return some(list)
}

// some is a list; an empty one is none.
func some[E any](list []E) []E {
	if len(list) == 0 {
		return nil
	}
	return list
}

// eventsOf names the calls of a list of events.
func eventsOf(list []claims.Event) (names []string) {
	for _, e := range list {
		names = append(names, e.Key.Call)
	}
	return names
}

func (k *kit) happened(what string, want ...string) {
	k.Helper()
	k.equal(what, eventsOf(k.events("", 100)), want)
}

func everyEventFieldKept(k *kit) {
	key := claims.Key{Tenant: "Shöp/", Call: "c é"}
	e := fullEvent(key)
	e.ID, e.At = "the writer's", claims.Now{Store: start, Wall: start}
	given := *e
	if path := zeroField("Event", reflect.ValueOf(given)); path != "" {
		k.Fatalf("the test's event leaves %s empty", path)
	}
	now := k.get(key, claims.Guard{}).Now
	_, err := k.swap(claims.Condition{}, claims.Write{Next: record(key, claims.StateSucceeded), Event: e})
	k.ok("swap", err)
	k.equal("the writer's own, after the write", *e, given)
	list := k.events("", 10)
	if len(list) != 1 || list[0].ID == "" || list[0].ID == given.ID {
		k.Fatalf("events: %+v", list)
	}
	want := given
	want.ID, want.At = list[0].ID, now
	k.equal("as stored", list[0], want)
	k.Advance(time.Hour)
	k.put(k.get(key, claims.Guard{}).Record)
	k.equal("after a write without an event", k.events("", 10), []claims.Event{want})
}

// noEventWithoutRecord: what was refused did not happen.
func noEventWithoutRecord(k *kit) {
	r := k.put(record(call("c"), claims.StateOpen))
	live, dead := k.take(instance), claims.Guard{Scope: app, Token: 1}
	w := claims.Write{Version: r.Version, Next: r, Event: fullEvent(r.Key)}
	for _, c := range []claims.Condition{{Guard: dead}, {Sender: dead}, {Dead: live}} {
		if _, err := k.swap(c, w); !claims.Refused(err) {
			k.Errorf("swap under %+v: %v", c, err)
		}
	}
	stale := w
	stale.Version++
	_, err := k.swap(claims.Condition{}, stale)
	k.refused("swap over a version to come", err, claims.ErrLost)
	ctx, cancel := context.WithCancel(k.Context())
	cancel()
	if _, err := k.Backend.Swap(ctx, claims.Condition{}, w); err == nil {
		k.Errorf("swap with a cancelled context passed")
	}
	k.Spoil(r.Key)
	_, err = k.swap(claims.Condition{}, w)
	k.refused("swap over what cannot be read", err, claims.ErrUnreadable)
	k.happened("after refusals")
}

func eventsOfTwoRecords(k *kit) {
	write := func(name string, e *claims.Event) claims.Write {
		return claims.Write{Next: record(call(name), claims.StateSucceeded), Event: e}
	}
	_, err := k.swap(claims.Condition{}, write("z", fullEvent(call("z"))), write("a", fullEvent(call("a"))))
	k.ok("both with an event", err)
	_, err = k.swap(claims.Condition{}, write("y", nil), write("b", fullEvent(call("b"))))
	k.ok("the second with an event", err)
	_, err = k.swap(claims.Condition{}, write("x", fullEvent(call("x"))), write("c", nil))
	k.ok("the first with an event", err)
	got := eventsOf(k.events("", 10))
	if len(got) >= 2 && got[0] == "a" { // those of one write are in any order
		got[0], got[1] = got[1], got[0]
	}
	k.equal("events", got, []string{"z", "a", "b", "x"})
}

func noEventsOfTwoRecords(k *kit) {
	write := func(name string, version int64) claims.Write {
		return claims.Write{Version: version, Next: record(call(name), claims.StateSucceeded), Event: fullEvent(call(name))}
	}
	_, err := k.swap(claims.Condition{}, write("a", 0), write("b", 1))
	k.refused("the second is stale", err, claims.ErrLost)
	_, err = k.swap(claims.Condition{}, write("a", 1), write("b", 0))
	k.refused("the first is stale", err, claims.ErrLost)
	k.happened("after lost swaps")
}

func eventsAfterCursor(k *kit) {
	names := []string{"g", "b", "f", "c", "e", "d", "b", "a", "g", "h", "i", "j"} // more than nine: ids are no text to compare
	for _, name := range names {
		k.happen(call(name))
		k.Advance(time.Second)
	}
	all := k.events("", 100)
	k.equal("all", eventsOf(all), names)
	for i, e := range all {
		k.equal("after "+e.ID, k.events(e.ID, 100), some(all[i+1:]))
		k.equal("two after "+e.ID, k.events(e.ID, 2), some(all[i+1:min(i+3, len(all))]))
	}
	k.equal("the oldest three", k.events("", 3), all[:3])
	k.equal("none", k.events("", 0), []claims.Event(nil))
}

func (k *kit) lastEvent() string {
	k.Helper()
	id, err := k.Backend.LastEvent(k.Context())
	k.ok("last event", err)
	return id
}

func lastEvent(k *kit) {
	k.equal("before any", k.lastEvent(), "")
	for _, name := range []string{"a", "b"} {
		k.happen(call(name))
		list := k.events("", 10)
		k.equal("last", k.lastEvent(), list[len(list)-1].ID)
	}
	k.Advance(time.Hour)
	k.prune(k.now(), 10, 2)
	last := k.lastEvent()
	k.equal("after the last, all dropped", k.events(last, 10), []claims.Event(nil))
	k.happen(call("c"))
	k.equal("after what was the last", eventsOf(k.events(last, 10)), []string{"c"})
	k.equal("after the last", k.events(k.lastEvent(), 10), []claims.Event(nil))
}

// unknownEvent: whoever reads on from an id that is none, or is not given yet, would miss what it does not know of.
func unknownEvent(k *kit) {
	k.happen(call("c"))
	const toCome, over = "9223372036854775807", "9223372036854775808"
	for _, id := range []string{"x", "0", "-1", " 1", "1 ", "01", "1x", toCome, over, "1'--", "\xff", "../1"} {
		list, err := k.Backend.Events(k.Context(), id, 10)
		k.refused(fmt.Sprintf("events after %q", id), err, claims.ErrBadEvent)
		if len(list) > 0 {
			k.Errorf("with an error: %+v", list)
		}
	}
}

// readingOnMissesNone: beside many writers, whoever reads on from the last one that it got gets every event once.
func readingOnMissesNone(k *kit) {
	const writers, each = 8, 15
	var seen []claims.Event
	done := make(chan struct{})
	var reader sync.WaitGroup
	reader.Go(func() { seen = k.readOn(done) })
	race(writers, func(i int) {
		for n := range each {
			var w []claims.Write
			for _, name := range []string{"a", "b"}[:1+n%2] {
				key := call(fmt.Sprintf("%d-%d-%s", i, n, name))
				w = append(w, claims.Write{Next: record(key, claims.StateSucceeded), Event: fullEvent(key)})
			}
			if _, err := k.swap(claims.Condition{}, w...); err != nil {
				k.Errorf("swap: %v", err)
			}
		}
	})
	close(done)
	reader.Wait()
	all := k.events("", 10000)
	k.equal("read on (want: as listed afterwards)", eventsOf(seen), eventsOf(all))
	calls := map[claims.Key]bool{}
	for _, e := range all {
		calls[e.Key] = true
	}
	if want := writers * (each + each/2); len(all) != want || len(calls) != want {
		k.Errorf("%d events of %d calls, want %d", len(all), len(calls), want)
	}
}

// readOn reads a few at a time until none came after done.
func (k *kit) readOn(done <-chan struct{}) (seen []claims.Event) {
	cursor := ""
	for {
		over := false
		select {
		case <-done:
			over = true
		default:
		}
		list, err := k.Backend.Events(k.Context(), cursor, 3)
		if err != nil {
			k.Errorf("events after %q: %v", cursor, err)
			return seen
		}
		if len(list) == 0 && over {
			return seen
		}
		if seen = append(seen, list...); len(list) > 0 {
			cursor = list[len(list)-1].ID
		}
	}
}

func pruneEventsOnlyBefore(k *kit) {
	k.happen(call("old"))
	old := k.events("", 10)[0]
	k.Advance(time.Second)
	k.happen(call("young"))
	k.prune(old.At.Store, 10, 0)
	k.happened("at its time", "old", "young")
	k.prune(old.At.Store.Add(tick), 10, 1)
	k.happened("after it", "young")
	k.equal("after the dropped one", eventsOf(k.events(old.ID, 10)), []string{"young"})
	if r := k.get(call("old"), claims.Guard{}).Record; !r.Exists() {
		k.Errorf("the call went with its event")
	}
}

// pruneEventsLimit: the limit is of answers and of events, each for itself.
func pruneEventsLimit(k *kit) {
	for _, name := range []string{"z", "y", "x"} {
		r := FullRecord(call(name))
		r.State = claims.StateSucceeded
		_, err := k.swap(claims.Condition{}, claims.Write{Next: r, Event: fullEvent(r.Key)})
		k.ok("swap", err)
		k.Advance(time.Second)
	}
	k.prune(k.now(), 0, 0)
	k.happened("after none", "z", "y", "x")
	k.prune(k.now(), 2, 4)
	k.happened("after two", "x")
	k.prune(k.now(), 2, 2)
	k.happened("after all")
	k.prune(k.now(), 2, 0)
}
