package claims

import (
	"testing"
	"time"
)

// undo asks for the undo of call a under key u, at a snapshot of its target.
func undo(target *build, own *build, now Now, change ...func(*Request, *View)) Decision {
	return decide(own, now, append([]func(*Request, *View){func(q *Request, v *View) {
		q.Key.Call, q.Undoes, q.Canonical = "u", "a", []byte("refund")
		q.Facts.GatewayKey = "gk:u"
		q.Target = &View{Record: target.r, Guard: v.Guard, Sender: v.Sender, Now: now}
	}}, change...)...)
}

func held(g Guard) func(*Request, *View) { return func(q *Request, _ *View) { q.Guard = g } }

// TestUndo has one row for each state of the call that is to be undone.
func TestUndo(t *testing.T) {
	now := at(time.Hour)
	for name, c := range map[string]struct {
		target *build
		action Action
		why    Reason
		state  State // of what is written to the target
	}{
		"succeeded": {target: fresh(t).claim(t0).settle(t0, paid), action: Claim, state: StateSucceeded},
		"declined":  {target: fresh(t).claim(t0).settle(t0, no), action: Amend, state: StateCancelled},
		"open":      {target: fresh(t).claim(t0).settle(t0, unsent), action: Amend, state: StateCancelled},
		"pending":   {target: fresh(t).claim(now), why: InFlight},
		"unknown":   {target: fresh(t).claim(t0).settle(t0, lostWord), why: InFlight},
		"review":    {target: fresh(t).claim(t0).settle(t0, lostWord).verdict(now, Contradiction, strong), why: NeedsReview},
		"none":      {target: fresh(t), why: Fenced},
	} {
		t.Run(name, func(t *testing.T) {
			d := undo(c.target, fresh(t), now)
			if c.action == Refuse {
				outcome := NotExecuted
				if c.why == Fenced {
					outcome = Unknown
				}
				wantRefused(t, d, c.why, outcome)
				return
			}
			wantAction(t, d, c.action)
			if c.action == Amend {
				if d.Next.Key.Call != "a" || d.Next.State != c.state || d.Next.Version != c.target.r.Version || d.Condition.Guard != me {
					t.Fatalf("writes %+v under %+v", d.Next, d.Condition)
				}
				after := &build{t: t, r: c.target.r}
				after.write(d.Next, now, false)
				wantRefused(t, undo(after, fresh(t), now), NothingToUndo, NotExecuted)
				wantRefused(t, decide(after, now), CallCancelled, NotExecuted)
				wantRefused(t, decide(after, now, second), CallCancelled, NotExecuted)
				return
			}
			if d.Next.Key.Call != "u" || d.Next.Undoes != "a" || d.Target == nil || len(d.Target.Undos) != 1 || d.Target.Undos[0] != (Undo{"u", ""}) || d.Target.State != c.state {
				t.Fatalf("writes %+v and %+v", d.Next, d.Target)
			}
		})
	}
}

// TestUndoAsksFirst: a target in doubt is looked up before anything is said.
func TestUndoAsksFirst(t *testing.T) {
	for name, b := range map[string]*build{"unknown": fresh(t).claim(t0).settle(t0, lostWord), "past its deadline": fresh(t).claim(t0)} {
		d := undo(b, fresh(t), at(time.Hour), func(q *Request, _ *View) { q.Asked = false })
		if d.Action != Reconcile || d.Look.Call != "a" {
			t.Errorf("%s: %s of %s", name, d.Action, d.Look)
		}
	}
}

// TestUndoOnce: one undo key for each target, or one for each part.
func TestUndoOnce(t *testing.T) {
	part := func(p string) func(*Request, *View) { return func(q *Request, _ *View) { q.Part = p } }
	as := func(key string) func(*Request, *View) { return func(q *Request, _ *View) { q.Key.Call = key } }
	target := func(us ...Undo) *build {
		b := fresh(t).claim(t0).settle(t0, paid)
		b.r.Undos = us
		return b
	}
	now := at(time.Minute)
	whole, one, two := target(Undo{"u", ""}), target(Undo{"u", "1"}), target(Undo{"u", "1"}, Undo{"w", "2"})
	wantAction(t, undo(whole, fresh(t), now), Claim)
	wantRefused(t, undo(whole, fresh(t), now, as("other")), AlreadyUndone, NotExecuted)
	wantRefused(t, undo(whole, fresh(t), now, as("other"), part("1")), AlreadyUndone, NotExecuted)
	wantRefused(t, undo(whole, fresh(t), now, part("1")), KeyConflict, NotExecuted)
	wantAction(t, undo(one, fresh(t), now, part("1")), Claim)
	wantAction(t, undo(one, fresh(t), now, as("other"), part("2")), Claim)
	wantRefused(t, undo(one, fresh(t), now, as("other"), part("1")), AlreadyUndone, NotExecuted)
	wantRefused(t, undo(one, fresh(t), now, as("other")), AlreadyUndone, NotExecuted)
	wantRefused(t, undo(two, fresh(t), now, as("other"), part("2")), AlreadyUndone, NotExecuted)
	back := target()
	back.r.Payment = PaymentReversed
	wantRefused(t, undo(back, fresh(t), now), AlreadyUndone, NotExecuted)
	elsewhere := target()
	elsewhere.r.Facts.Gateway = "another"
	wantRefused(t, undo(elsewhere, fresh(t), now), BadRequest, NotExecuted)
}

// TestUndoRecord: the undo's own record is a call like any other, and says what it undoes.
func TestUndoRecord(t *testing.T) {
	now := at(time.Minute)
	target := fresh(t).claim(t0).settle(t0, paid)
	d := undo(target, fresh(t), now)
	target.r.Undos = d.Target.Undos
	own := fresh(t).write(d.Next, now, true)
	wantRefused(t, undo(target, own, now), InFlight, Unknown)
	done := fresh(t).write(d.Next, now, true).settle(now, paid)
	wantAction(t, undo(target, done, now), Replay)
	wantRefused(t, undo(target, done, now, func(q *Request, _ *View) { q.Undoes = "b" }), KeyConflict, Succeeded)
	wantRefused(t, undo(target, done, now, func(q *Request, _ *View) { q.Part = "1" }), KeyConflict, Succeeded)
	plain := func(q *Request, _ *View) { q.Key.Call, q.Canonical = "u", []byte("refund") }
	wantRefused(t, decide(done, now, plain), KeyConflict, Succeeded)
	again := fresh(t).write(d.Next, now, true).settle(now, unsent)
	if d := undo(target, again, now); d.Action != Claim || d.Target != nil || d.Next.Attempt != 2 {
		t.Errorf("a further attempt: %s %+v, target %+v", d.Action, d.Refusal, d.Target)
	}
	// The target turned out to be contradictory meanwhile: nothing more is undone.
	odd := &build{t: t, r: alarm(target.r, "two successes")}
	wantRefused(t, undo(odd, again, now), NeedsReview, NotExecuted)
	unread := &build{t: t, r: target.r.Clone()}
	unread.r.Evidence = append(unread.r.Evidence, Evidence{Revision: 1, Claim: ClaimID{9}, Outcome: Succeeded, Source: "notice"})
	if d := undo(unread, fresh(t), now); d.Action != Amend || d.Next.Key.Call != "a" {
		t.Errorf("evidence of the target passed unread: %s", d.Action)
	}
}

// TestUndoFence: a stale token, another scope's, none, or an earlier one of a finished scope undoes nothing.
func TestUndoFence(t *testing.T) {
	now := at(time.Minute)
	scoped := fresh(t).claim(t0, func(q *Request) { q.Guard = app }).settle(t0, paid)
	bare := fresh(t).claim(t0).settle(t0, paid)
	stands := func(s LeaseStatus, finisher bool) func(*Request, *View) {
		return func(q *Request, v *View) {
			v.Guard = GuardView{Status: s, Finisher: finisher}
			q.Target.Guard = v.Guard
		}
	}
	wantAction(t, undo(scoped, fresh(t), now, held(app)), Claim)
	wantRefused(t, undo(scoped, fresh(t), now, held(me)), Fenced, Unknown)
	wantRefused(t, undo(scoped, fresh(t), now, held(Guard{"shop:other", 1})), Fenced, Unknown)
	for _, s := range []LeaseStatus{LeaseAbsent, LeaseExpired, LeaseSuperseded, LeaseReleased} {
		wantRefused(t, undo(scoped, fresh(t), now, held(app), stands(s, false)), Fenced, Unknown)
		wantRefused(t, undo(bare, fresh(t), now, held(app), stands(s, false)), Fenced, Unknown)
	}
	d := undo(scoped, fresh(t), now, held(app), stands(LeaseFinished, true))
	if wantAction(t, d, Claim); !d.Condition.Finisher || d.Condition.Guard != app {
		t.Errorf("condition %+v", d.Condition)
	}
	// A finished scope's token is good for what belongs to that scope alone, and for nothing but undoing.
	wantRefused(t, undo(bare, fresh(t), now, held(app), stands(LeaseFinished, true)), ScopeFinished, Unknown)
	wantRefused(t, undo(fresh(t), fresh(t), now, held(app), stands(LeaseFinished, true)), ScopeFinished, Unknown)
	wantRefused(t, decide(scoped, now, held(app), func(_ *Request, v *View) { v.Guard = GuardView{Status: LeaseFinished, Finisher: true} }), ScopeFinished, Unknown)
	declined := fresh(t).claim(t0, func(q *Request) { q.Guard = app }).settle(t0, no)
	if d := undo(declined, fresh(t), now, held(app), stands(LeaseFinished, true)); d.Action != Amend || !d.Condition.Finisher {
		t.Errorf("cancelling under the finishing token: %s %+v", d.Action, d.Condition)
	}
}

// TestUndoOfNone cancels what was never claimed, so that a late sender is refused.
func TestUndoOfNone(t *testing.T) {
	noTokens := func(q *Request, _ *View) { q.Policy.NoTokens = true }
	wantRefused(t, undo(fresh(t), fresh(t), t0), Fenced, Unknown)
	for name, c := range map[string]struct {
		change []func(*Request, *View)
		scope  string
	}{"token": {[]func(*Request, *View){held(app)}, app.Scope}, "no tokens served": {[]func(*Request, *View){noTokens}, ""}} {
		d := undo(fresh(t), fresh(t), t0, c.change...)
		wantAction(t, d, Amend)
		if d.Next.Key.Call != "a" || d.Next.State != StateCancelled || d.Next.Scope != c.scope || d.Next.Revision != 1 {
			t.Errorf("%s: writes %+v", name, d.Next)
		}
		b := fresh(t).write(d.Next, t0, false)
		wantRefused(t, decide(b, t0, held(app)), CallCancelled, NotExecuted)
		wantRefused(t, undo(b, fresh(t), t0, c.change...), NothingToUndo, NotExecuted)
	}
}

// TestUndoAfterALoss: neither the target nor the undo's own record is believed before it was looked up once.
func TestUndoAfterALoss(t *testing.T) {
	now := at(2 * time.Hour)
	loss := &Loss{From: t0, At: at(time.Hour)}
	lossy := func(q *Request, v *View) { q.Target.Loss, q.Target.Era = loss, 1 }
	asked := func(a bool) func(*Request, *View) { return func(q *Request, _ *View) { q.Asked = a } }
	good, declined := fresh(t).claim(t0).settle(t0, paid), fresh(t).claim(t0).settle(t0, no)
	for name, b := range map[string]*build{"succeeded": good, "declined": declined} {
		if d := undo(b, fresh(t), now, lossy, asked(false)); d.Action != Reconcile || d.Look.Call != "a" {
			t.Errorf("%s: %s", name, d.Action)
		}
		wantRefused(t, undo(b, fresh(t), now, lossy), InFlight, NotExecuted)
	}
	if d := undo(declined, fresh(t), at(time.Hour+LossWatch+time.Second), lossy); d.Action != Amend || d.Next.State != StateCancelled {
		t.Errorf("long after the loss: %s", d.Action)
	}
	wantRefused(t, undo(fresh(t), fresh(t), now, lossy, held(app)), InFlight, NotExecuted)
	if d := undo(fresh(t).claim(t0).settle(t0, unsent), fresh(t), now, lossy); d.Action != Amend || d.Next.State != StateUnknown || !d.Next.presumed() {
		t.Errorf("open: %s %+v", d.Action, d.Next)
	}
	d := undo(good, fresh(t), now, func(_ *Request, v *View) { v.Loss, v.Era = loss, 1 })
	wantAction(t, d, Amend)
	if d.Next.Key.Call != "u" || d.Next.State != StateUnknown || !d.Next.presumed() || d.Target == nil || d.Target.Undos[0].Key != "u" {
		t.Errorf("an undo that was perhaps lost: %+v, target %+v", d.Next, d.Target)
	}
}
