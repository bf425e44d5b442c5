package claims

import (
	"testing"
	"time"
)

// TestTrimKeepsTheLoss: however often the gateway cannot be reached, it stays known that an attempt was perhaps lost: the next
// revision is looked for before it is sent.
func TestTrimKeepsTheLoss(t *testing.T) {
	lossy := func(_ *Request, v *View) { v.Loss, v.Era = &Loss{From: t0, At: at(time.Hour)}, 1 }
	open := fresh(t).claim(t0).settle(t0, unsent)
	d := decide(open, at(2*time.Hour), lossy)
	wantAction(t, d, Amend)
	open.write(d.Next, at(2*time.Hour), false)
	open.verdict(at(3*time.Hour), Missed, strong).want(StateOpen)
	d = decide(open, at(retention*3), second)
	wantAction(t, d, Amend) // presumes revision 2, as TestRevisionAfterALoss wants
	for i := range 4 {      // the gateway cannot be reached
		when := at(3*time.Hour + time.Duration(i+1)*time.Minute)
		open.claim(when, func(q *Request) { q.Claim = ClaimID{byte(50 + i)} }).settle(when, unsent)
	}
	open.want(StateOpen)
	d = decide(open, at(retention*3), second)
	wantAction(t, d, Amend)
	d = decide(open, at(4*time.Hour), second)
	if d.Action == Claim {
		t.Errorf("revision 2 is claimed although the presumed attempt of revision 1 was proved by absence only and the key is still kept")
	}
}

// TestRevisionAfterALossWaitsFromItsEnd: an attempt that was lost may have been made until the loss was noticed.
func TestRevisionAfterALossWaitsFromItsEnd(t *testing.T) {
	loss := &Loss{From: t0, At: at(72 * time.Hour)} // a copy of three days ago was put back
	lossy := func(_ *Request, v *View) { v.Loss, v.Era = loss, 1 }
	b := fresh(t)
	d := decide(b, at(72*time.Hour+time.Minute), lossy)
	wantAction(t, d, Amend)
	b.write(d.Next, at(72*time.Hour+time.Minute), false)
	b.verdict(at(72*time.Hour+time.Hour), Missed, strong).want(StateOpen)
	d = decide(b, at(72*time.Hour+time.Hour+time.Second), second)
	if d.Action == Amend { // it has begun revision 2; one lookup, and it is sent
		b.write(d.Next, at(72*time.Hour+time.Hour+time.Second), false)
		b.verdict(at(72*time.Hour+time.Hour+20*time.Minute), Missed, strong).want(StateOpen)
		d = decide(b, at(72*time.Hour+time.Hour+21*time.Minute), second)
	}
	wantRefused(t, d, RevisionBlocked, NotExecuted)
}

// TestRevisionWaitsFromTheLastAttempt: not from the first one, though it is the older.
func TestRevisionWaitsFromTheLastAttempt(t *testing.T) {
	b := fresh(t).claim(t0).settle(t0, lostWord).verdict(at(time.Hour), Missed, strong).verdict(at(2*time.Hour), Missed, strong).want(StateOpen)
	late := at(retention - 20*time.Minute)
	b.claim(late).settle(late, lostWord)
	b.verdict(at(retention-9*time.Minute), Missed, strong).verdict(at(retention-8*time.Minute), Missed, strong).want(StateOpen)
	now := at(retention + retention/100)
	d := decide(b, now, second)
	wantRefused(t, d, RevisionBlocked, NotExecuted)
}

// TestRevisionWaitsForTheLongerRetention: of the stored and the configured one.
func TestRevisionWaitsForTheLongerRetention(t *testing.T) {
	b := fresh(t).claim(t0).settle(t0, lostWord).verdict(at(time.Hour), Missed, strong).verdict(at(2*time.Hour), Missed, strong).want(StateOpen)
	now := at(retention + retention/100)
	d := decide(b, now, second, func(q *Request, _ *View) { q.Facts.Retention = 72 * time.Hour })
	wantRefused(t, d, RevisionBlocked, NotExecuted)
}

// TestLateUndoThatWasCancelled: the undo's own key was cancelled before it came.
func TestLateUndoThatWasCancelled(t *testing.T) {
	// u2 undoes u (never claimed): u is cancelled; then u itself comes, which undoes a.
	d := undo(fresh(t), fresh(t), t0, held(app), func(q *Request, _ *View) { q.Key.Call, q.Undoes = "u2", "u" })
	wantAction(t, d, Amend)
	own := fresh(t).write(d.Next, t0, false)
	target := fresh(t).claim(t0, func(q *Request) { q.Guard = app }).settle(t0, paid)
	wantRefused(t, undo(target, own, at(time.Minute), held(app)), CallCancelled, NotExecuted)
}

// TestRecheckMovesMoneyForwardOnly: an object that is looked up does not always tell of a refund.
func TestRecheckMovesMoneyForwardOnly(t *testing.T) {
	b := fresh(t).claim(t0).settle(t0, paid)
	next, h, changed, err := Notice(View{Record: b.r, Now: at(time.Minute)}, Noticed{ID: "evt", By: "shop", Payment: PaymentReversed})
	if err != nil || !changed || h != HeardTaken {
		t.Fatal(h, err)
	}
	b.write(next, at(time.Minute), false)
	wantRefused(t, undo(b, fresh(t), at(2*time.Minute)), AlreadyUndone, NotExecuted)
	v := View{Record: b.r, Now: at(2 * time.Hour), Era: 1, Loss: &Loss{From: at(time.Hour), At: at(time.Hour)}}
	next, moved := Recheck(v, Verdict{Looked: true, Finding: Finding{Kind: FoundDone, Payment: PaymentDone}, Rules: strong, Version: b.r.Version, Asked: v.Now})
	if !moved {
		t.Fatal("not moved")
	}
	b.write(next, v.Now, false)
	wantRefused(t, undo(b, fresh(t), at(3*time.Hour)), AlreadyUndone, NotExecuted)
}

// TestSuccessOfWhatWasCancelledBeforeItCame: a person has to look; then it can be undone, and a repeat is told so.
func TestSuccessOfWhatWasCancelledBeforeItCame(t *testing.T) {
	d := undo(fresh(t), fresh(t), t0, held(app))
	b := fresh(t).write(d.Next, t0, false)
	next, _, _, err := Notice(View{Record: b.r, Now: at(time.Minute)}, Noticed{ID: "evt", By: "shop", Outcome: Succeeded})
	if err != nil {
		t.Fatal(err)
	}
	b.write(next, at(time.Minute), false).want(StateReview)
	b.operator(at(time.Hour), WasExecuted).want(StateSucceeded)
	wantRefused(t, decide(b, at(2*time.Hour), held(app)), AnswerGone, Succeeded)
	d = undo(b, fresh(t), at(2*time.Hour), held(app))
	if d.Action != Claim {
		t.Error("a call that succeeded cannot be undone")
	}
}

// TestUndoBegunInAScopeThatIsFinished: the call itself has no scope. The undo goes on under the token that finished its own.
func TestUndoBegunInAScopeThatIsFinished(t *testing.T) {
	now := at(time.Minute)
	target := fresh(t).claim(t0).settle(t0, paid)
	d := undo(target, fresh(t), now, held(app))
	wantAction(t, d, Claim)
	own := fresh(t).write(d.Next, now, true).settle(now, unsent).want(StateOpen)
	target.write(*d.Target, now, false)
	fin := func(q *Request, v *View) {
		v.Guard = GuardView{Status: LeaseFinished, Finisher: true}
		q.Target.Guard = v.Guard
	}
	d = undo(target, own, now, held(app), fin)
	if wantAction(t, d, Claim); !d.Condition.Finisher {
		t.Errorf("condition %+v", d.Condition)
	}
	wantRefused(t, undo(target, own, now, held(Guard{"shop:next", 1})), Fenced, Unknown)
}

// TestUndoAtAnotherGatewayCancelsNothing: it is a mistake, whatever the call's state.
func TestUndoAtAnotherGatewayCancelsNothing(t *testing.T) {
	now := at(time.Minute)
	elsewhere := func(q *Request, _ *View) { q.Facts.Gateway = "another" }
	for name, b := range map[string]*build{"declined": fresh(t).claim(t0).settle(t0, no), "open": fresh(t).claim(t0).settle(t0, unsent)} {
		d := undo(b, fresh(t), now, elsewhere)
		if d.Action != Refuse {
			t.Errorf("%s: %s to %s", name, d.Action, d.Next.State)
		}
	}
}

// TestUndoOfAnUndo: one that was not executed stands on the call that it was to undo. It is not cancelled, so that it can be
// repeated, and is in nobody's way.
func TestUndoOfAnUndo(t *testing.T) {
	now := at(time.Minute)
	a := fresh(t).claim(t0).settle(t0, paid)
	d := undo(a, fresh(t), now)
	wantAction(t, d, Claim)
	u := fresh(t).write(d.Next, now, true).settle(now, unsent)
	a.write(*d.Target, now, false)
	other := func(q *Request, _ *View) { q.Key.Call, q.Undoes = "w", "u" }
	wantRefused(t, undo(u, fresh(t), now, other), BadRequest, NotExecuted)
	wantAction(t, undo(a, u, now), Claim)
	done := fresh(t).write(d.Next, now, true).settle(now, paid)
	wantAction(t, undo(done, fresh(t), now, other), Claim) // a refund that is cancelled
}

// TestCancelledStaysCancelled: its undo was told that there is nothing to undo. No notice of a failure, no person's word and no
// revision makes the call one that may be sent.
func TestCancelledStaysCancelled(t *testing.T) {
	before := fresh(t).write(undo(fresh(t), fresh(t), t0, held(app)).Next, t0, false)
	open := fresh(t).claim(t0, func(q *Request) { q.Guard = app }).settle(t0, unsent)
	open.write(undo(open, fresh(t), at(time.Minute), held(app)).Next, at(time.Minute), false)
	for name, b := range map[string]*build{"before it came": before, "open": open} {
		for _, o := range []Outcome{Declined, NotExecuted} {
			t.Run(name+" "+o.String(), func(t *testing.T) {
				c := &build{t: t, r: b.want(StateCancelled).r}
				now := at(time.Hour)
				next, _, changed, err := Notice(View{Record: c.r, Now: now}, Noticed{ID: "evt", By: "shop", Outcome: o})
				if err != nil {
					t.Fatal(err)
				}
				if changed {
					c.write(next, now, false)
				}
				if c.r.State == StateReview {
					if next, err := Resolve(c.r, WasNotExecuted, "ada", "dashboard", at(2*time.Hour)); err == nil {
						c.write(next, at(2*time.Hour), false)
					}
				}
				for _, change := range []func(*Request, *View){held(app), func(q *Request, v *View) { held(app)(q, v); second(q, v) }} {
					if d := decide(c, at(100*time.Hour), change); d.Action != Refuse {
						t.Errorf("state %s: %s", c.r.State, d.Action)
					}
				}
				wantRefused(t, decide(c, at(100*time.Hour), held(app)), CallCancelled, NotExecuted)
			})
		}
	}
}
