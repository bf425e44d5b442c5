package claims

import (
	"slices"
	"testing"
	"time"
)

func TestDecideNone(t *testing.T) {
	d := decide(fresh(t), t0)
	wantAction(t, d, Claim)
	if d.Condition != (Condition{Guard: me, Sender: me}) || d.Probe {
		t.Errorf("condition %+v", d.Condition)
	}
	n := Write{Next: d.Next, Claim: true, Timeout: attemptTime}.Stamp(t0)
	a := n.Attempts[0]
	if n.State != StatePending || n.Attempt != 1 || n.Revision != 1 || n.Claim != (ClaimID{99}) || n.Sender != me || n.Scope != "" ||
		!n.Deadline.Equal(t0.Store.Add(attemptTime)) || n.FirstStarted != t0 || n.Fingerprint.KeyID != "k" || !a.Wrote || !a.Doubtful() || a.Started != t0 {
		t.Errorf("record %+v", n)
	}
	d = decide(fresh(t), t0, func(q *Request, _ *View) { q.Guard = app })
	if wantAction(t, d, Claim); d.Next.Scope != app.Scope || d.Condition.Guard != app || d.Condition.Sender != me {
		t.Errorf("scope %q, condition %+v", d.Next.Scope, d.Condition)
	}
	wantRefused(t, decide(fresh(t), t0, func(q *Request, _ *View) { q.Revision = 2 }), RevisionBlocked, NotExecuted)
	for name, change := range map[string]func(*Request, *View){
		"no instance lease": func(q *Request, _ *View) { q.Guard, q.Instance = app, Guard{} },
		"no guard at all":   func(q *Request, _ *View) { q.Guard, q.Instance = Guard{}, Guard{} },
	} {
		t.Run(name, func(t *testing.T) { wantRefused(t, decide(fresh(t), t0, change), LeaseLost, Unknown) })
	}
}

// TestGuardComesFirst: nothing of the record is looked at under a guard that is not live.
func TestGuardComesFirst(t *testing.T) {
	records := map[string]*build{
		"none":      fresh(t),
		"pending":   fresh(t).claim(t0),
		"succeeded": fresh(t).claim(t0).settle(t0, paid),
		"unknown":   fresh(t).claim(t0).settle(t0, lostWord),
		"open":      fresh(t).claim(t0).settle(t0, unsent),
	}
	foreign := fresh(t).claim(t0, func(q *Request) { q.Guard = Guard{"shop:foreign", 1} }).settle(t0, paid)
	records["foreign scope"] = foreign
	odd := fresh(t).claim(t0).settle(t0, paid)
	odd.r.Fingerprint.KeyID = "gone"
	records["unreadable fingerprint"] = odd
	for name, b := range records {
		for _, s := range []LeaseStatus{LeaseAbsent, LeaseExpired, LeaseSuperseded, LeaseReleased, LeaseFinished} {
			for _, text := range []string{string(canonical), "amount=900"} {
				t.Run(name+" "+s.String()+" "+text, func(t *testing.T) {
					stale := func(g Guard) Decision {
						return decide(b, t0, func(q *Request, v *View) {
							q.Guard, v.Guard.Status, q.Canonical = g, s, []byte(text)
						})
					}
					want := Fenced
					if s == LeaseFinished {
						want = ScopeFinished
					}
					wantRefused(t, stale(app), want, Unknown)
					wantRefused(t, stale(me), LeaseLost, Unknown)
				})
			}
		}
	}
}

func TestScope(t *testing.T) {
	scoped := fresh(t).claim(t0, func(q *Request) { q.Guard = app }).settle(t0, paid)
	bare := fresh(t).claim(t0).settle(t0, paid)
	with := func(g Guard) func(*Request, *View) { return func(q *Request, _ *View) { q.Guard = g } }
	wantAction(t, decide(scoped, t0, with(app)), Replay)
	wantAction(t, decide(scoped, t0, with(Guard{app.Scope, 8})), Replay) // the next holder
	wantRefused(t, decide(scoped, t0, with(Guard{"shop:other", 1})), Fenced, Unknown)
	wantRefused(t, decide(scoped, t0, with(me)), Fenced, Unknown)
	wantRefused(t, decide(scoped, t0, with(Guard{"shop:other", 1}), func(q *Request, _ *View) { q.Canonical = nil }), Fenced, Unknown)
	wantAction(t, decide(bare, t0, with(app)), Replay)
	wantAction(t, decide(bare, t0, with(me)), Replay)
}

func TestIdentity(t *testing.T) {
	changed := func(q *Request, _ *View) { q.Canonical = []byte("amount=900") }
	for name, b := range map[string]*build{
		"pending": fresh(t).claim(t0), "succeeded": fresh(t).claim(t0).settle(t0, paid), "declined": fresh(t).claim(t0).settle(t0, no),
		"unknown": fresh(t).claim(t0).settle(t0, lostWord), "open": fresh(t).claim(t0).settle(t0, unsent),
		"review": fresh(t).claim(t0).settle(t0, lostWord).verdict(at(time.Hour), Contradiction, strong),
	} {
		t.Run(name, func(t *testing.T) {
			wantRefused(t, decide(b, at(time.Second), changed), KeyConflict, b.r.Outcome())
			wantRefused(t, decide(b, at(time.Second), func(q *Request, _ *View) { q.Revision = 0 }), SupersededRev, b.r.Outcome())
			wantRefused(t, decide(b, at(time.Second), func(q *Request, _ *View) { q.Revision = 3 }), RevisionBlocked, b.r.Outcome())
			wantRefused(t, decide(b, at(time.Second), func(q *Request, _ *View) { q.CanonicalVersion = 2 }), Unreadable, Unknown)
			wantRefused(t, decide(b, at(time.Second), func(q *Request, _ *View) { q.CanonicalVersion = 2 }, changed), Unreadable, Unknown)
			if d := decide(b, at(time.Second), func(q *Request, _ *View) { q.CanonicalVersion = 2 }); d.Refusal.RetryAfter <= 0 {
				t.Error("unreadable without Retry-After")
			}
			gone := *b
			gone.r.Fingerprint.KeyID = "gone"
			wantRefused(t, decide(&gone, at(time.Second), changed), Unreadable, Unknown)
		})
	}
	b := fresh(t).claim(t0).settle(t0, paid)
	b.r.State = "martian"
	wantRefused(t, decide(b, t0), Unreadable, Unknown)
}

func TestDecidePending(t *testing.T) {
	theirs := func(q *Request) { q.Guard, q.Instance = other, other }
	b := fresh(t).claim(t0, theirs)
	for _, d := range []time.Duration{0, time.Second, attemptTime - 1} {
		got := decide(b, at(d), func(_ *Request, v *View) { v.Sender.Status = LeaseExpired })
		wantRefused(t, got, InFlight, Unknown)
		if r := got.Refusal.RetryAfter; r < time.Second || r > 5*time.Second {
			t.Errorf("Retry-After %s", r)
		}
	}
	past := at(attemptTime)
	wantAction(t, decide(b, past, func(q *Request, _ *View) { q.Asked = false }), Reconcile)
	wantRefused(t, decide(b, past, func(_ *Request, v *View) { v.Sender.Status = LeaseLive }), InDoubt, Unknown)
	for _, s := range []LeaseStatus{LeaseExpired, LeaseSuperseded, LeaseReleased, LeaseAbsent} {
		d := decide(b, past, func(_ *Request, v *View) { v.Sender.Status = s })
		if wantAction(t, d, Claim); !d.Probe || d.Condition != (Condition{Guard: me, Sender: me, Dead: other}) || d.Next.Attempt != 2 {
			t.Errorf("%s: probe %v, condition %+v", s, d.Probe, d.Condition)
		}
	}
	for name, change := range map[string]func(*Request, *View){
		"no probe declared":    func(q *Request, _ *View) { q.Policy.Probe = false },
		"probed already":       func(q *Request, _ *View) { q.Probed = true },
		"attempts used":        func(q *Request, _ *View) { q.Policy.MaxAttempts = 1 },
		"configured retention": func(q *Request, _ *View) { q.Facts.Retention = 0 },
	} {
		t.Run(name, func(t *testing.T) { wantRefused(t, decide(b, past, change), InDoubt, Unknown) })
	}
	own := fresh(t).claim(t0)
	wantRefused(t, decide(own, at(time.Hour), func(q *Request, _ *View) { q.Working = true }), InFlight, Unknown)
	d := decide(own, past)
	if wantAction(t, d, Amend); d.Next.State != StateUnknown || d.Condition != (Condition{Sender: me}) {
		t.Errorf("gave up as %q under %+v", d.Next.State, d.Condition)
	}
}

func TestDecideUnknown(t *testing.T) {
	theirs := func(q *Request) { q.Guard, q.Instance = other, other }
	b := fresh(t).claim(t0, theirs).settle(t0, lostWord)
	wantAction(t, decide(b, t0, func(q *Request, _ *View) { q.Asked = false }), Reconcile)
	d := decide(b, t0, func(_ *Request, v *View) { v.Sender.Status = LeaseLive }) // it gave up: it need not be dead
	if wantAction(t, d, Claim); !d.Probe || !d.Condition.Dead.IsZero() {
		t.Errorf("probe %v under %+v", d.Probe, d.Condition)
	}
	wantRefused(t, decide(b, t0, func(q *Request, _ *View) { q.Policy.Probe = false }), InDoubt, Unknown)
	wantRefused(t, decide(fresh(t).claim(t0).settle(t0, fiveHundr), t0), InDoubt, Unknown)
	wantAction(t, decide(fresh(t).claim(t0).settle(t0, keyInUse), t0), Claim)
	wantAction(t, decide(fresh(t).claim(t0).settle(t0, balancer), t0), Claim) // nothing stands under the key
	limited := Sent{Outcome: NotExecuted, Refused: true, Error: true, Answer: &Answer{Status: 429, Body: []byte("slow down")}}
	wantAction(t, decide(fresh(t).claim(t0).settle(t0, lostWord).claim(t0).settle(t0, limited).want(StateUnknown), t0), Claim)
	// The next refusal of a repeat, and every one after it, has the next one wait.
	slowed := fresh(t).claim(t0).settle(t0, lostWord).claim(t0).settle(t0, limited).claim(t0).settle(t0, limited)
	wantRefused(t, decide(slowed, t0), InDoubt, Unknown)
	wantAction(t, decide(slowed, at(6*time.Second)), Claim)
	for name, elsewhere := range map[string]func(*Request, *View){
		"another address":    func(q *Request, _ *View) { q.Facts.Endpoint = "https://other.example" },
		"another credential": func(q *Request, _ *View) { q.Facts.Credential = "c0ffee" },
		"another key header": func(q *Request, _ *View) { q.Facts.KeyPlace = "header X-Key" },
		"found another way":  func(q *Request, _ *View) { q.Facts.LookupForm = "f00d" },
	} {
		t.Run(name, func(t *testing.T) { wantRefused(t, decide(b, t0, elsewhere), InDoubt, Unknown) })
	}
	d = decide(b, at(retention-time.Minute))
	wantRefused(t, d, RetentionPassed, Unknown)
}

func TestDecideSettled(t *testing.T) {
	for _, s := range []Sent{paid, no} {
		b := fresh(t).claim(t0).settle(t0, s)
		wantAction(t, decide(b, at(1000*time.Hour)), Replay)
		b.r.Answer = nil
		wantRefused(t, decide(b, t0), AnswerGone, s.Outcome)
		b.r.Answer = &Answer{Status: 204, Body: []byte{}}
		wantAction(t, decide(b, t0), Replay)
		b.r.Answer = &Answer{Status: 200} // the answer was over the limit
		wantRefused(t, decide(b, t0), AnswerGone, s.Outcome)
	}
	b := fresh(t).claim(t0).settle(t0, lostWord).verdict(at(time.Hour), Contradiction, strong)
	wantRefused(t, decide(b, t0), NeedsReview, Unknown)
	b.r.State = StateCancelled
	wantRefused(t, decide(b, t0), CallCancelled, NotExecuted)
}

func TestDecideOpen(t *testing.T) {
	open := fresh(t).claim(t0).settle(t0, invalid)
	d := decide(open, at(time.Hour))
	if wantAction(t, d, Claim); d.Probe || d.Next.Attempt != 2 || d.Next.FirstStarted != t0 {
		t.Errorf("claim %+v", d.Next)
	}
	n := Write{Version: 2, Next: d.Next, Claim: true, Timeout: attemptTime}.Stamp(at(time.Hour))
	if n.FirstStarted != t0 {
		t.Error("the key's age counts from the last attempt")
	}
	never := fresh(t).claim(t0).settle(t0, unsent)
	if d := decide(never, at(1000*time.Hour)); d.Action != Claim || !d.Next.FirstStarted.IsZero() {
		t.Errorf("%s with a first start of %v: the gateway has never seen the key, so it cannot be too old", d.Action, d.Next.FirstStarted)
	}
	used := fresh(t).claim(t0).settle(t0, invalid).claim(t0).settle(t0, invalid).claim(t0).settle(t0, invalid)
	wantAction(t, decide(used, t0), Replay)
	used.r.Answer = nil
	wantRefused(t, decide(used, t0), AttemptsUsed, NotExecuted)
}

// TestWhatCounts: refusals and unsent attempts are not counted against the few, however many there are.
func TestWhatCounts(t *testing.T) {
	b := fresh(t)
	for range 20 {
		b.claim(t0).settle(t0, slowDown).claim(t0).settle(t0, unsent)
	}
	if n := len(b.r.Attempts); n > keepIdle+2 || b.r.Attempt != 40 {
		t.Errorf("%d attempts kept of %d", n, b.r.Attempt)
	}
	b.claim(t0).settle(t0, invalid).claim(t0).settle(t0, invalid)
	wantAction(t, decide(b, t0), Claim)
	b.claim(t0).settle(t0, invalid)
	wantAction(t, decide(b, t0), Replay) // three of three
}

func TestTrimKeepsWhatMatters(t *testing.T) {
	idle := Attempt{Outcome: NotExecuted}
	doubt := Attempt{Wrote: true, Number: 1}
	declined := Attempt{Wrote: true, Outcome: Declined, Number: 2}
	counted := Attempt{Wrote: true, Outcome: NotExecuted, Number: 3}
	got := []int{}
	for _, a := range trim([]Attempt{counted, idle, doubt, idle, idle, declined, idle, idle, counted}) {
		got = append(got, a.Number)
	}
	if want := []int{3, 1, 0, 2, 0, 0, 3}; !slices.Equal(got, want) {
		t.Errorf("kept %v, want %v: all that count, and the three newest that did nothing", got, want)
	}
}

func TestRetention(t *testing.T) {
	margin := Policy{}.margin(retention)
	if margin != retention/100 || (Policy{}).margin(time.Hour) != 5*time.Minute || (Policy{Margin: time.Second}).margin(retention) != time.Second {
		t.Error("margin")
	}
	last := retention - attemptTime - margin // from here on nothing is sent
	open := func() *build { return fresh(t).claim(t0).settle(t0, invalid) }
	wantAction(t, decide(open(), at(last-1)), Claim)
	wantRefused(t, decide(open(), at(last)), RetentionPassed, NotExecuted)
	doubt := fresh(t).claim(t0).settle(t0, lostWord)
	wantAction(t, decide(doubt, at(last-1)), Claim)
	wantRefused(t, decide(doubt, at(last)), RetentionPassed, Unknown)

	// It counts from the first attempt, not from the last.
	b := open().claim(at(last-time.Hour)).settle(at(last-time.Hour), invalid)
	wantRefused(t, decide(b, at(last)), RetentionPassed, NotExecuted)
	// The stricter of stored and configured wins.
	shorter := func(q *Request, _ *View) { q.Facts.Retention = time.Hour }
	longer := func(q *Request, _ *View) { q.Facts.Retention = 1000 * time.Hour }
	wantRefused(t, decide(open(), at(2*time.Hour), shorter), RetentionPassed, NotExecuted)
	wantRefused(t, decide(open(), at(last), longer), RetentionPassed, NotExecuted)
	// Neither clock makes an old key young.
	wall := at(time.Hour)
	wall.Wall = at(last).Wall
	wantRefused(t, decide(open(), wall), RetentionPassed, NotExecuted)
	store := at(last)
	store.Wall = at(time.Hour).Wall
	wantRefused(t, decide(open(), store), RetentionPassed, NotExecuted)
}

func TestNoRetentionDeclared(t *testing.T) {
	none := func(q *Request) { q.Facts.Retention = 0 }
	view := func(q *Request, _ *View) { q.Facts.Retention = 0 }
	claimed := func() *build { return fresh(t).claim(t0, none) }
	wantAction(t, decide(claimed().settle(t0, invalid), at(time.Hour), view), Claim) // the gateway's own word: no doubt
	wantAction(t, decide(claimed().settle(t0, unsent), at(time.Hour), view), Claim)
	wantRefused(t, decide(claimed().settle(t0, lostWord), at(time.Hour), view), InDoubt, Unknown)
	b := claimed().settle(t0, lostWord).verdict(at(time.Hour), Missed, LookupRules{Proves: true, Misses: 1, Keyed: true}).want(StateOpen)
	wantRefused(t, decide(b, at(time.Hour), view), RetentionPassed, NotExecuted)
	wantRefused(t, decide(b, at(time.Hour)), RetentionPassed, NotExecuted) // configured later: the stored one is stricter
}

func TestClockBehindTheRecord(t *testing.T) {
	back := map[string]func(Now) Now{
		"store": func(n Now) Now { n.Store = n.Store.Add(-time.Nanosecond); return n },
		"wall":  func(n Now) Now { n.Wall = n.Wall.Add(-time.Hour); return n },
	}
	for name, step := range back {
		t.Run(name, func(t *testing.T) {
			for _, s := range []Sent{unsent, lostWord} {
				b := fresh(t).claim(t0).settle(at(time.Minute), s)
				d := decide(b, step(at(time.Minute)))
				if wantAction(t, d, Amend); d.Next.State != StateReview || d.Next.Review == nil {
					t.Errorf("state %q", d.Next.State)
				}
			}
		})
	}
	b := fresh(t).claim(t0).settle(at(time.Minute), unsent)
	small := at(time.Minute)
	small.Wall = small.Wall.Add(-time.Minute) // within the margin
	wantAction(t, decide(b, small), Claim)
}

// TestClockBehindIsNotForgotten: a write at a stepped-back time does not make the record look young again.
func TestClockBehindIsNotForgotten(t *testing.T) {
	b := fresh(t).claim(at(20*time.Hour)).settle(at(10*time.Hour), unsent)
	d := decide(b, at(11*time.Hour))
	if wantAction(t, d, Amend); d.Next.State != StateReview {
		t.Errorf("state %q", d.Next.State)
	}
	if u := b.r.Updated.Store; u.Before(at(20 * time.Hour).Store) {
		t.Errorf("updated moved back to %s", u)
	}
}

func TestUnreadEvidenceIsReadFirst(t *testing.T) {
	for _, s := range []Sent{unsent, lostWord, no} {
		b := fresh(t).claim(t0).settle(t0, s)
		b.r.Evidence = append(b.r.Evidence, Evidence{Revision: 1, Claim: ClaimID{1}, Outcome: Succeeded, Source: "notice"})
		if b.r.Outcome() != Unknown {
			t.Errorf("outcome %s beside unread success", b.r.Outcome())
		}
		d := decide(b, t0)
		if wantAction(t, d, Amend); d.Next.Unread() || d.Next.State != StateSucceeded && d.Next.State != StateReview || d.Condition != (Condition{}) {
			t.Errorf("amended to %q under %+v", d.Next.State, d.Condition)
		}
	}
}

// TestDecideOtherForm: a request that older settings saw in another canonical form is the same request, and its record
// takes the form and the account of now; any other form is a conflict.
func TestDecideOtherForm(t *testing.T) {
	b := fresh(t).claim(t0).settle(t0, lostWord)
	now := func(q *Request, _ *View) {
		q.Also, q.Canonical = [][]byte{q.Canonical}, []byte("with the account mapped")
		q.Facts.Account = "shop"
	}
	d := decide(b, t0, now)
	if wantAction(t, d, Amend); d.Next.Facts.Account != "shop" || d.Next.State != StateUnknown || d.Condition != (Condition{}) {
		t.Errorf("%+v under %+v", d.Next.Facts, d.Condition)
	}
	b.r = d.Next
	wantAction(t, decide(b, t0, now), Claim)
	wantRefused(t, decide(b, t0, func(q *Request, _ *View) { q.Also = [][]byte{[]byte("x"), []byte("y")} }), KeyConflict, Unknown)
}

// TestProbesAreSpaced: an app that repeats at once does not use up the attempts; "in use" uses none up, however often, and
// the record stays small and in doubt.
func TestProbesAreSpaced(t *testing.T) {
	b := fresh(t).claim(t0).settle(t0, lostWord).claim(t0).settle(t0, lostWord)
	wantRefused(t, decide(b, at(4*time.Second)), InDoubt, Unknown)
	if d := decide(b, at(4*time.Second)); d.Refusal.RetryAfter < time.Second {
		t.Errorf("Retry-After %s", d.Refusal.RetryAfter)
	}
	wantAction(t, decide(b, at(5*time.Second)), Claim)
	used := fresh(t).claim(t0).settle(t0, lostWord)
	now := t0
	for range 20 {
		now = Now{Store: now.Store.Add(time.Minute), Wall: now.Wall.Add(time.Minute)}
		d := decide(used, now)
		if wantAction(t, d, Claim); !d.Probe {
			t.Fatal("no probe")
		}
		used.claim(now).settle(now, keyInUse).want(StateUnknown)
	}
	if n := len(used.r.Attempts); n > 2*keepIdle+1 {
		t.Errorf("%d attempts are kept", n)
	}
	if used.r.Attempts[0].Number != 1 || !used.r.Attempts[0].Doubtful() {
		t.Error("the attempt that was in doubt first is gone")
	}
}
