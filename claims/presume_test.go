package claims

import (
	"testing"
	"time"
)

// lostAt is a loss noticed at t0 + 1 h, of what was written in the hour before.
var lostAt = &Loss{From: t0, At: at(time.Hour)}

func lost(_ *Request, v *View) { v.Loss, v.Era = lostAt, 1 }

// presumed is the build's record after the decision presumed a lost attempt.
func (b *build) presume(now Now) *build {
	b.t.Helper()
	d := decide(b, now, lost)
	if wantAction(b.t, d, Amend); d.Condition != (Condition{Guard: me}) {
		b.t.Errorf("condition %+v", d.Condition)
	}
	return b.write(d.Next, now, false).want(StateUnknown)
}

func TestDecideAfterALoss(t *testing.T) {
	now := at(2 * time.Hour)
	for name, b := range map[string]*build{
		"none":                      fresh(t),
		"open":                      fresh(t).claim(t0).settle(t0, unsent),
		"unknown":                   fresh(t).claim(t0).settle(t0, lostWord),
		"pending past its deadline": fresh(t).claim(t0),
	} {
		t.Run(name, func(t *testing.T) {
			known := len(b.r.Attempts)
			b.t = t
			b.presume(now)
			a := b.r.Attempts[len(b.r.Attempts)-1]
			if len(b.r.Attempts) != known+1 || !a.Presumed || !a.Doubtful() || !a.Wrote || b.r.Era != 1 || b.r.Attempt != known+1 || b.r.Claim != a.Claim {
				t.Errorf("record %+v", b.r)
			}
			if want := lostAt.At.Store.Add(attemptTime); !b.r.Deadline.Equal(want) {
				t.Errorf("deadline %s, want %s: a lost attempt ended by then", b.r.Deadline, want)
			}
			if b.r.FirstStarted != t0 {
				t.Errorf("the key's age counts from %v", b.r.FirstStarted)
			}
			// with the loss taken in, the doubt is one like any other
			wantAction(t, decide(b, now, func(q *Request, _ *View) { q.Asked = false }), Reconcile)
			if d := decide(b, now); d.Action != Claim || !d.Probe {
				t.Errorf("%s %v", d.Action, d.Refusal)
			}
		})
	}
	for name, b := range map[string]*build{
		"succeeded": fresh(t).claim(t0).settle(t0, paid), "declined": fresh(t).claim(t0).settle(t0, no),
	} {
		t.Run(name, func(t *testing.T) { wantAction(t, decide(b, now, lost), Replay) })
	}
	review := fresh(t).claim(t0).settle(t0, lostWord).verdict(at(time.Hour), Contradiction, strong)
	wantRefused(t, decide(review, now, lost), NeedsReview, Unknown)
	pending := fresh(t).claim(now)
	wantRefused(t, decide(pending, now, lost), InFlight, Unknown)
	working := fresh(t).claim(t0)
	wantRefused(t, decide(working, now, func(q *Request, v *View) { lost(q, v); q.Working = true }), InFlight, Unknown)
}

// TestNothingIsSaidUnsentAfterALoss: what the store perhaps forgot may have been executed.
func TestNothingIsSaidUnsentAfterALoss(t *testing.T) {
	second := func(q *Request, v *View) { lost(q, v); q.Revision = 3 }
	wantRefused(t, decide(fresh(t), t0, second), RevisionBlocked, Unknown)
	wantRefused(t, decide(fresh(t).claim(t0).settle(t0, unsent), t0, second), RevisionBlocked, Unknown)
	conflict := func(q *Request, v *View) { lost(q, v); q.Canonical = []byte("amount=900") }
	wantRefused(t, decide(fresh(t).claim(t0).settle(t0, unsent), t0, conflict), KeyConflict, Unknown)
}

func TestQuarantineComesFirst(t *testing.T) {
	for _, b := range []*build{fresh(t), fresh(t).claim(t0).settle(t0, paid), fresh(t).claim(t0).settle(t0, unsent)} {
		for _, s := range []LeaseStatus{LeaseLive, LeaseExpired, LeaseFinished, LeaseAbsent} {
			d := decide(b, t0, func(_ *Request, v *View) { v.Quarantine, v.Guard.Status = time.Minute, s })
			if wantRefused(t, d, Quarantine, Unknown); d.Refusal.RetryAfter != time.Minute {
				t.Errorf("retry after %s", d.Refusal.RetryAfter)
			}
		}
	}
}

// TestPresumedAbsence: one lookup that finds nothing ends a doubt that was only presumed, not before a lost attempt has
// settled; the call is then as new. A doubt of its own keeps its own rules.
func TestPresumedAbsence(t *testing.T) {
	over := time.Hour + attemptTime + settleTime
	b := fresh(t).presume(at(2 * time.Hour))
	b.r.Deadline = at(time.Hour + attemptTime).Store
	if b.apply(at(over-1), Missed, strong) {
		t.Fatal("absence counted before a lost attempt had settled")
	}
	if !b.apply(at(over), Missed, strong) {
		t.Fatal("absence did not count")
	}
	b.want(StateOpen).wantOutcomes(NotExecuted)
	d := decide(b, at(100*time.Hour))
	if wantAction(t, d, Claim); !d.Next.FirstStarted.IsZero() {
		t.Error("the key of a call that never was is taken for old")
	}
	if d := decide(b, at(100*time.Hour), func(q *Request, _ *View) { q.Policy.MaxAttempts = 1 }); d.Action != Claim {
		t.Errorf("a presumed attempt was counted: %s %v", d.Action, d.Refusal)
	}

	both := fresh(t).claim(t0).settle(t0, lostWord).presume(at(2 * time.Hour))
	both.apply(at(over), Missed, strong)
	both.want(StateUnknown)
	both.apply(at(over+30*time.Second), Missed, strong)
	both.want(StateOpen).wantOutcomes(NotExecuted, NotExecuted)
	if d := decide(both, at(100*time.Hour)); d.Action != Refuse || d.Refusal.Reason != RetentionPassed {
		t.Errorf("%s %v: the gateway has seen the key, and it is too old", d.Action, d.Refusal)
	}

	keyless := fresh(t).presume(at(2 * time.Hour))
	rules := strong
	rules.Keyed = false
	keyless.apply(at(over), Missed, rules)
	keyless.want(StateOpen)
	written := fresh(t).claim(t0).settle(t0, lostWord).presume(at(2 * time.Hour))
	written.apply(at(over), Missed, rules)
	written.apply(at(over+30*time.Second), Missed, rules)
	written.want(StateReview)
}

// TestPresumedPatience: a person is asked only after the doubt itself is old, not because the loss is.
func TestPresumedPatience(t *testing.T) {
	now := at(100 * time.Hour)
	b := fresh(t).presume(now)
	if b.apply(now, CouldNotTell, strong) {
		t.Fatal("a fresh doubt went to a person")
	}
	b.apply(at(100*time.Hour+Patience), CouldNotTell, strong)
	b.want(StateReview)
}

// TestPresumeLeavesWhatIsKnown: a record that says what became of the call is not put in doubt.
func TestPresumeLeavesWhatIsKnown(t *testing.T) {
	now := at(2 * time.Hour)
	for name, b := range map[string]*build{
		"succeeded": fresh(t).claim(t0).settle(t0, paid), "declined": fresh(t).claim(t0).settle(t0, no), "in flight": fresh(t).claim(now),
		"review": fresh(t).claim(t0).settle(t0, lostWord).verdict(at(time.Hour), Contradiction, strong),
	} {
		next := Presume(View{Record: b.r, Era: 1, Loss: lostAt, Now: now}, attemptTime, ClaimID{9})
		if next.State != b.r.State || len(next.Attempts) != len(b.r.Attempts) || next.Era != b.r.Era {
			t.Errorf("%s became %s with %d attempts", name, next.State, len(next.Attempts))
		}
	}
}
