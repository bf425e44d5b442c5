package claimstest

import (
	"context"
	"time"

	"github.com/fence-sidecar/fence-sidecar/claims"
)

var readRules = []rule{
	{"get/no-record", getNoRecord},
	{"get/snapshot", getSnapshot},
	{"get/time-moves", getTimeMoves},
	{"get/unreadable", getUnreadable},
	{"get/cancelled-is-no-refusal", cancelledIsNoRefusal},
}

var swapRules = []rule{
	{"swap/expected-version", swapExpectedVersion},
	{"swap/lost-returns-the-winner", lostReturnsTheWinner},
	{"swap/guard-live", swapGuardLive},
	{"swap/finisher", swapFinisher},
	{"swap/sender-live", swapSenderLive},
	{"swap/dead-sender", swapDeadSender},
	{"swap/no-condition", swapNoCondition},
	{"swap/order-of-refusals", orderOfRefusals},
	{"swap/judged-at-the-write", judgedAtTheWrite},
	{"swap/refused-writes-nothing", refusedWritesNothing},
	{"swap/returns-standings", swapReturnsStandings},
	{"swap/two-records-both", twoRecordsBoth},
	{"swap/two-records-none", twoRecordsNone},
	{"swap/unreadable", swapUnreadable},
	{"swap/stamps-every-write", stampsEveryWrite},
	{"swap/stamps-a-claim", stampsAClaim},
}

func getNoRecord(k *kit) {
	v := k.get(call("c"), claims.Guard{})
	k.equal("record", v.Record, claims.Record{})
	k.equal("guard", v.Guard, claims.GuardView{})
	k.equal("sender", v.Sender, claims.GuardView{})
	if v.Now.Store.IsZero() || v.Now.Wall.IsZero() {
		k.Errorf("no time: %+v", v.Now)
	}
}

func getSnapshot(k *kit) {
	sender := k.take(instance)
	k.Advance(10 * time.Second)
	g := k.take(app)
	r := k.claim(call("c"), app, sender)
	v := k.get(call("c"), g)
	k.equal("record", v.Record, r)
	k.equal("guard", v.Guard, claims.GuardView{Status: claims.LeaseLive, Remaining: ttl})
	k.equal("sender", v.Sender, claims.GuardView{Status: claims.LeaseLive, Remaining: ttl - 10*time.Second})
	k.Advance(20 * time.Second)
	v = k.get(call("c"), g)
	k.equal("guard", v.Guard, claims.GuardView{Status: claims.LeaseLive, Remaining: 10 * time.Second})
	k.equal("sender", v.Sender, claims.GuardView{Status: claims.LeaseExpired})
}

func getTimeMoves(k *kit) {
	first := k.get(call("c"), claims.Guard{}).Now
	k.Advance(time.Minute)
	k.equal("after a minute", k.get(call("c"), claims.Guard{}).Now,
		claims.Now{Store: first.Store.Add(time.Minute), Wall: first.Wall.Add(time.Minute)})
	k.StepWall(-time.Hour)
	k.equal("after a step of the wall clock", k.get(call("c"), claims.Guard{}).Now,
		claims.Now{Store: first.Store.Add(time.Minute), Wall: first.Wall.Add(time.Minute - time.Hour)})
}

func getUnreadable(k *kit) {
	k.put(record(call("c"), claims.StateSucceeded))
	k.put(record(call("fine"), claims.StateSucceeded))
	k.Spoil(call("c"))
	_, err := k.Backend.Get(k.Context(), call("c"), claims.Guard{})
	k.refused("get", err, claims.ErrUnreadable)
	list, err := k.Backend.List(k.Context(), "", nil, 10)
	k.refused("list", err, claims.ErrUnreadable)
	if len(list) != 1 || list[0].Key != call("fine") {
		k.Errorf("one unreadable record hides the others: %v", list)
	}
}

func cancelledIsNoRefusal(k *kit) {
	g := k.take(app)
	ctx, cancel := context.WithCancel(k.Context())
	cancel()
	_, err := k.Backend.Swap(ctx, claims.Condition{}, claim(call("c"), app, g))
	_, err2 := k.Backend.Get(ctx, call("c"), g)
	_, err3 := k.Backend.Acquire(ctx, "shop:other", "holder", ttl)
	_, err4 := k.Backend.Renew(ctx, g, ttl)
	err5 := k.Backend.Release(ctx, g)
	_, err6 := k.Backend.Events(ctx, "", 1)
	_, err7 := k.Backend.Untold(ctx, sweep)
	err8 := k.Backend.Announce(ctx, claims.Member{Guard: g})
	_, err9 := k.Backend.Members(ctx)
	for i, err := range []error{err, err2, err3, err4, err5, err6, err7, err8, err9} {
		if err == nil || claims.Refused(err) {
			k.Errorf("operation %d after its context ended: %v, want an error that is no refusal", i, err)
		}
	}
}

func swapExpectedVersion(k *kit) {
	r := record(call("c"), claims.StateOpen)
	write := func(version int64) error {
		_, err := k.swap(claims.Condition{}, claims.Write{Version: version, Next: r})
		return err
	}
	k.refused("over a record that is not there", write(1), claims.ErrLost)
	k.ok("first", write(0))
	k.refused("first again", write(0), claims.ErrLost)
	k.refused("over a version to come", write(2), claims.ErrLost)
	k.ok("over the stored version", write(1))
	k.refused("over a version that is gone", write(1), claims.ErrLost)
	if v := k.get(call("c"), claims.Guard{}).Record.Version; v != 2 {
		k.Errorf("version is %d after two writes", v)
	}
}

func lostReturnsTheWinner(k *kit) {
	won := k.put(FullRecord(call("c")))
	s, err := k.swap(claims.Condition{},
		claims.Write{Next: record(call("c"), claims.StateOpen)}, claims.Write{Version: 7, Next: record(call("none"), claims.StateOpen)})
	k.refused("swap", err, claims.ErrLost)
	k.equal("as they stand", s.Records, []claims.Record{won, {}})
	if s.Now.IsZero() {
		k.Errorf("a lost swap tells no time")
	}
}

func swapGuardLive(k *kit) {
	for status, g := range k.ended() {
		_, err := k.swap(claims.Condition{Guard: g}, claim(call("c"), app, claims.Guard{}))
		k.fenced("swap", err, claims.FencedError{Guard: g, Status: status})
	}
	g := k.take(app)
	g.Token++
	_, err := k.swap(claims.Condition{Guard: g}, claim(call("c"), app, claims.Guard{}))
	k.fenced("swap", err, claims.FencedError{Guard: g, Status: claims.LeaseAbsent})
	g.Token--
	_, err = k.swap(claims.Condition{Guard: g}, claim(call("c"), app, claims.Guard{}))
	k.ok("swap under a live guard", err)
}

// swapFinisher: where the condition says so, the token that finished its scope passes, and it alone.
func swapFinisher(k *kit) {
	ended := k.ended()
	g := ended[claims.LeaseFinished]
	finisher := claims.GuardView{Status: claims.LeaseFinished, Finisher: true}
	k.equal("by get", k.standing(g), finisher)
	s, err := k.swap(claims.Condition{Guard: g}, claim(call("c"), app, claims.Guard{}))
	k.fenced("not said", err, claims.FencedError{Guard: g, Status: claims.LeaseFinished})
	k.equal("by a refused swap", s.Guard, finisher)
	_, err = k.swap(claims.Condition{Sender: g, Finisher: true}, claim(call("c"), app, claims.Guard{}))
	k.fenced("as the sender", err, claims.FencedError{Guard: g, Status: claims.LeaseFinished, Sender: true})
	for _, d := range []time.Duration{0, 8760 * time.Hour} { // it does not age
		k.Advance(d)
		s, err = k.swap(claims.Condition{Guard: g, Finisher: true}, claim(call(d.String()), app, claims.Guard{}))
		k.ok("swap by the finisher", err)
		k.equal("by a swap", s.Guard, finisher)
	}
	live := k.take(app)
	s, err = k.swap(claims.Condition{Guard: live, Finisher: true}, claim(call("live"), app, claims.Guard{}))
	k.ok("swap under a live guard", err)
	k.equal("live", s.Guard, claims.GuardView{Status: claims.LeaseLive, Remaining: ttl})
	delete(ended, claims.LeaseFinished)
	for status, g := range ended {
		k.notFinisher(g, status)
	}
	k.notFinisher(claims.Guard{Scope: g.Scope, Token: g.Token + 1}, claims.LeaseAbsent)
	first := k.take("shop:twice")
	k.Advance(ttl)
	k.ok("finish", k.Backend.Finish(k.Context(), k.take("shop:twice")))
	k.notFinisher(first, claims.LeaseSuperseded)
}

// notFinisher wants a guard refused though the condition lets finishers pass.
func (k *kit) notFinisher(g claims.Guard, status claims.LeaseStatus) {
	k.Helper()
	k.equal("by get", k.standing(g), claims.GuardView{Status: status})
	s, err := k.swap(claims.Condition{Guard: g, Finisher: true}, claim(call("other"), app, claims.Guard{}))
	k.fenced("swap", err, claims.FencedError{Guard: g, Status: status})
	k.equal("by a swap", s.Guard, claims.GuardView{Status: status})
}

func swapSenderLive(k *kit) {
	for status, g := range k.ended() {
		_, err := k.swap(claims.Condition{Sender: g}, claim(call("c"), app, g))
		k.fenced("swap", err, claims.FencedError{Guard: g, Status: status, Sender: true})
	}
	g := k.take(instance)
	_, err := k.swap(claims.Condition{Sender: g}, claim(call("c"), app, g))
	k.ok("swap by a live sender", err)
}

func swapDeadSender(k *kit) {
	sender := k.take(instance)
	next := func(r claims.Record) claims.Write { return claims.Write{Version: r.Version, Next: r} }
	r := k.claim(call("c"), app, sender)
	_, err := k.swap(claims.Condition{Dead: sender}, next(r))
	k.refused("over a live sender", err, claims.ErrSenderLives)
	k.Advance(ttl - tick)
	_, err = k.swap(claims.Condition{Dead: sender}, next(r))
	k.refused("just before its expiry", err, claims.ErrSenderLives)
	k.Advance(tick)
	_, err = k.swap(claims.Condition{Dead: sender}, next(r))
	k.ok("after its expiry", err)
	for _, g := range k.ended() {
		r = k.get(call("c"), claims.Guard{}).Record
		_, err = k.swap(claims.Condition{Dead: g}, next(r))
		k.ok("over a dead sender", err)
	}
}

// swapNoCondition: a verdict needs no lease, also where the record names some.
func swapNoCondition(k *kit) {
	sender := k.take(instance)
	k.take(app)
	r := k.claim(call("c"), app, sender)
	k.Advance(2 * ttl)
	r.State = claims.StateSucceeded
	k.put(r)
}

func orderOfRefusals(k *kit) {
	r := k.put(record(call("c"), claims.StateOpen))
	dead, sender, live := claims.Guard{Scope: "shop:no", Token: 1}, claims.Guard{Scope: "@instance:no", Token: 1}, k.take(instance)
	w := claims.Write{Version: r.Version + 5, Next: r}
	_, err := k.swap(claims.Condition{Guard: dead, Sender: sender, Dead: live}, w)
	k.fenced("all wrong", err, claims.FencedError{Guard: dead})
	_, err = k.swap(claims.Condition{Sender: sender, Dead: live}, w)
	k.fenced("sender, dead and version wrong", err, claims.FencedError{Guard: sender, Sender: true})
	_, err = k.swap(claims.Condition{Dead: live}, w)
	k.refused("dead and version wrong", err, claims.ErrSenderLives)
	_, err = k.swap(claims.Condition{}, w)
	k.refused("version wrong", err, claims.ErrLost)
}

// judgedAtTheWrite: what Get said of a lease is worth nothing when the Swap comes (field report R45).
func judgedAtTheWrite(k *kit) {
	g, sender := k.take(app), k.take(instance)
	v := k.get(call("c"), g)
	if !v.Guard.Live() {
		k.Fatalf("the guard is %s", v.Guard.Status)
	}
	k.Advance(v.Guard.Remaining)
	_, err := k.swap(claims.Condition{Guard: g}, claim(call("c"), app, sender))
	k.fenced("the guard expired since", err, claims.FencedError{Guard: g, Status: claims.LeaseExpired})
	_, err = k.swap(claims.Condition{Sender: sender}, claim(call("c"), app, sender))
	k.fenced("the sender expired since", err, claims.FencedError{Guard: sender, Status: claims.LeaseExpired, Sender: true})
}

func refusedWritesNothing(k *kit) {
	r := k.put(record(call("c"), claims.StateOpen))
	live, dead := k.take(instance), claims.Guard{Scope: app, Token: 1}
	next := r
	next.State = claims.StateCancelled
	for _, c := range []claims.Condition{{Guard: dead}, {Sender: dead}, {Dead: live}} {
		if _, err := k.swap(c, claims.Write{Version: r.Version, Next: next}); !claims.Refused(err) {
			k.Errorf("swap under %+v: %v", c, err)
		}
	}
	if _, err := k.swap(claims.Condition{}, claims.Write{Version: 9, Next: next}); !claims.Refused(err) {
		k.Errorf("swap over version 9: %v", err)
	}
	k.equal("record", k.get(call("c"), claims.Guard{}).Record, r)
}

func swapReturnsStandings(k *kit) {
	g := k.take(app)
	k.Advance(time.Second)
	sender := k.take(instance)
	s, err := k.swap(claims.Condition{Guard: g, Sender: sender}, claim(call("c"), app, sender))
	k.ok("swap", err)
	k.equal("guard", s.Guard, claims.GuardView{Status: claims.LeaseLive, Remaining: ttl - time.Second})
	k.equal("sender", s.Sender, claims.GuardView{Status: claims.LeaseLive, Remaining: ttl})
	k.equal("now", s.Now, k.get(call("c"), g).Now)
}

func twoRecordsBoth(k *kit) {
	target := k.put(record(call("z"), claims.StateSucceeded))
	target.Undos = []claims.Undo{{Key: "a"}}
	undo := claim(call("a"), app, claims.Guard{})
	undo.Next.Undoes = "z"
	s, err := k.swap(claims.Condition{}, claims.Write{Version: target.Version, Next: target}, undo)
	k.ok("swap", err)
	if len(s.Records) != 2 {
		k.Fatalf("%d records written, want 2", len(s.Records))
	}
	for i, want := range []struct {
		key     claims.Key
		version int64
	}{{call("z"), 2}, {call("a"), 1}} {
		got := k.get(want.key, claims.Guard{}).Record
		k.equal("as written", got, s.Records[i])
		if got.Key != want.key || got.Version != want.version {
			k.Errorf("record %d is %s version %d, want %s version %d", i, got.Key, got.Version, want.key, want.version)
		}
	}
}

func twoRecordsNone(k *kit) {
	a, b := k.put(record(call("a"), claims.StateSucceeded)), k.put(record(call("b"), claims.StateSucceeded))
	write := func(r claims.Record, version int64) claims.Write { return claims.Write{Version: version, Next: r} }
	_, err := k.swap(claims.Condition{}, write(a, a.Version), write(b, b.Version+1))
	k.refused("the second is stale", err, claims.ErrLost)
	_, err = k.swap(claims.Condition{}, write(a, a.Version+1), write(b, b.Version))
	k.refused("the first is stale", err, claims.ErrLost)
	_, err = k.swap(claims.Condition{Guard: claims.Guard{Scope: app, Token: 1}}, write(a, a.Version), write(b, b.Version))
	k.fenced("the guard is not live", err, claims.FencedError{Guard: claims.Guard{Scope: app, Token: 1}})
	k.equal("a", k.get(a.Key, claims.Guard{}).Record, a)
	k.equal("b", k.get(b.Key, claims.Guard{}).Record, b)
}

func swapUnreadable(k *kit) {
	r := k.put(record(call("c"), claims.StateOpen))
	k.Spoil(r.Key)
	for _, version := range []int64{0, r.Version, r.Version + 1} {
		_, err := k.swap(claims.Condition{}, claims.Write{Version: version, Next: r})
		k.refused("swap", err, claims.ErrUnreadable)
	}
}

func stampsEveryWrite(k *kit) {
	now := k.get(call("c"), claims.Guard{}).Now
	next := record(call("c"), claims.StateUnknown)
	next.Deadline, next.NextCheck = now.Store.Add(time.Hour), now.Store.Add(time.Minute)
	next.Review, next.Evidence = &claims.Review{Reason: "why"}, []claims.Evidence{{Source: "notice"}}
	r := k.put(next)
	want := next.Clone()
	want.Review.Since, want.Evidence[0].At = now, now
	want.Version, want.Created, want.Updated = 1, now, now
	k.equal("first", r, want)
	k.Advance(time.Second)
	later := k.get(call("c"), claims.Guard{}).Now
	want.Version, want.Updated = 2, later
	k.equal("second", k.put(r), want)
	k.equal("stored", k.get(call("c"), claims.Guard{}).Record, want)
	r = want.Clone()
	r.Updated.Store = later.Store.Add(time.Hour) // written before the clock stepped back
	want.Version, want.Updated.Store = 3, r.Updated.Store
	k.equal("after a step back", k.put(r), want)
}

func stampsAClaim(k *kit) {
	w := claim(call("c"), app, claims.Guard{Scope: instance, Token: 1})
	now := k.get(call("c"), claims.Guard{}).Now
	s, err := k.swap(claims.Condition{}, w)
	k.ok("claim", err)
	want := w.Next.Clone()
	want.Version, want.Created, want.Updated, want.FirstStarted = 1, now, now, now
	want.Deadline = now.Store.Add(timeout)
	want.NextCheck = want.Deadline
	want.Attempts[0].Started, want.Attempts[0].Deadline = now, want.Deadline
	k.equal("first", s.Records, []claims.Record{want})
	k.Advance(time.Hour)
	w.Version, w.Next = 1, s.Records[0]
	s, err = k.swap(claims.Condition{}, w)
	k.ok("claim again", err)
	r := k.get(call("c"), claims.Guard{}).Record
	k.equal("first started", r.FirstStarted, now)
	if d := r.Deadline.Sub(now.Store); d != time.Hour+timeout {
		k.Errorf("the second deadline is %s after the first claim", d)
	}
}
