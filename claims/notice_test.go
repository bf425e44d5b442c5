package claims

import (
	"errors"
	"strings"
	"testing"
	"time"
)

// hear gives a record a notice, and writes what became of it.
func (b *build) hear(now Now, n Noticed, change ...func(*View)) (Hearing, bool, error) {
	b.t.Helper()
	if n.ID == "" {
		n.ID = "evt_1"
	}
	n.By, n.Why = "ada", "seen"
	v := View{Record: b.r, Now: now}
	for _, f := range change {
		f(&v)
	}
	before := b.r.Clone()
	next, h, changed, err := Notice(v, n)
	if err == nil && changed {
		b.write(next, now, false)
	}
	if err != nil && changed {
		b.t.Errorf("refused with %v, and changed", err)
	}
	if next.State == StatePending && before.State != StatePending || next.Attempt != before.Attempt || next.Claim != before.Claim {
		b.t.Errorf("a notice made an attempt: %+v", next)
	}
	return h, changed, err
}

func cancelledCall(t *testing.T) *build {
	b := fresh(t).claim(t0).settle(t0, unsent)
	next := b.r.Clone()
	next.State = StateCancelled
	return b.write(next, t0, false)
}

func inReview(t *testing.T) *build { return doubt(t).verdict(at(100*time.Hour), CouldNotTell, strong) }

// secondRevision is a call whose first revision was declined and whose second one is in doubt.
func secondRevision(t *testing.T) *build {
	b := fresh(t).claim(t0).settle(t0, no)
	next := b.r.Clone()
	next.Past = []Past{{Revision: 1, State: StateDeclined, Facts: next.Facts, Attempts: next.Attempts, FirstStarted: next.FirstStarted}}
	next.Revision, next.State, next.Answer = 2, StateUnknown, nil
	next.Facts.Reference = "ref2"
	next.Claim = ClaimID{77}
	next.Attempts = []Attempt{{Number: 1, Claim: next.Claim, Wrote: true, Started: t0, Deadline: t0.Store.Add(attemptTime)}}
	return b.write(next, t0, false)
}

var (
	later  = at(attemptTime + settleTime)
	early  = at(attemptTime)
	yes    = Noticed{Outcome: Succeeded}
	denied = Noticed{Outcome: Declined}
	never  = Noticed{Outcome: NotExecuted}
)

func TestNotice(t *testing.T) {
	twice := func(t *testing.T) *build { return doubt(t).claim(t0).settle(t0, lostWord) }
	for _, tc := range []struct {
		name string
		b    func(*testing.T) *build
		n    Noticed
		now  Now
		h    Hearing
		to   State
	}{
		{"success of a pending call", func(t *testing.T) *build { return fresh(t).claim(t0) }, yes, t0, HeardTaken, StateSucceeded},
		{"success of a doubt", doubt, yes, t0, HeardTaken, StateSucceeded},
		{"success of several doubts", twice, yes, t0, HeardTaken, StateSucceeded},
		{"success in review", inReview, yes, at(100 * time.Hour), HeardTaken, StateSucceeded},
		{"success of an open call", func(t *testing.T) *build { return fresh(t).claim(t0).settle(t0, unsent) }, yes, t0, HeardTaken, StateSucceeded},
		{"success again", func(t *testing.T) *build { return fresh(t).claim(t0).settle(t0, paid) }, yes, t0, HeardBefore, StateSucceeded},
		{"success of a declined call", func(t *testing.T) *build { return fresh(t).claim(t0).settle(t0, no) }, yes, t0, HeardConflict, StateReview},
		{"success of a cancelled call", cancelledCall, yes, t0, HeardConflict, StateReview},
		{"success by its reference", doubt, Noticed{Outcome: Succeeded, Reference: "ref"}, t0, HeardTaken, StateSucceeded},
		{"success of an earlier revision", secondRevision, Noticed{Outcome: Succeeded, Reference: "ref"}, t0, HeardConflict, StateReview},
		{"success of the second revision", secondRevision, Noticed{Outcome: Succeeded, Reference: "ref2"}, t0, HeardTaken, StateSucceeded},

		{"declined, settled", doubt, denied, later, HeardTaken, StateDeclined},
		{"not executed, settled", doubt, never, later, HeardTaken, StateOpen},
		{"not executed, of a pending call whose sender is gone", func(t *testing.T) *build { return fresh(t).claim(t0) }, never, later, HeardTaken, StateOpen},
		{"a failure of one of two attempts that is not named", twice, never, later, HeardNoted, StateUnknown},
		{"a failure of the first of two", twice, Noticed{Outcome: NotExecuted, Attempt: 1}, later, HeardNoted, StateUnknown},
		{"a failure of an earlier revision", secondRevision, Noticed{Outcome: Declined, Reference: "ref"}, later, HeardNoted, StateUnknown},
		{"a failure of an earlier revision, at once", secondRevision, Noticed{Outcome: Declined, Reference: "ref"}, t0, HeardNoted, StateUnknown},
		{"a failure of an earlier revision of a success", func(t *testing.T) *build {
			b := secondRevision(t)
			b.r.State = StateSucceeded
			return b
		}, Noticed{Outcome: Declined, Reference: "ref"}, t0, HeardNoted, StateSucceeded},
		{"a failure in review", inReview, denied, at(100 * time.Hour), HeardNoted, StateReview},
		{"declined again", func(t *testing.T) *build { return fresh(t).claim(t0).settle(t0, no) }, denied, t0, HeardBefore, StateDeclined},
		{"not executed again", func(t *testing.T) *build { return fresh(t).claim(t0).settle(t0, unsent) }, never, t0, HeardBefore, StateOpen},
		{"not executed, of a cancelled call", cancelledCall, never, t0, HeardBefore, StateCancelled},
		{"declined after a success", func(t *testing.T) *build { return fresh(t).claim(t0).settle(t0, paid) }, denied, t0, HeardConflict, StateReview},
		{"not executed after a success", func(t *testing.T) *build { return fresh(t).claim(t0).settle(t0, paid) }, never, t0, HeardConflict, StateReview},
		{"not executed after a decline", func(t *testing.T) *build { return fresh(t).claim(t0).settle(t0, no) }, never, t0, HeardConflict, StateReview},
		{"declined, of an open call", func(t *testing.T) *build { return fresh(t).claim(t0).settle(t0, unsent) }, denied, t0, HeardConflict, StateReview},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := tc.b(t)
			was := b.r.Clone()
			h, changed, err := b.hear(tc.now, tc.n)
			if err != nil || h != tc.h || changed == (h == HeardBefore) {
				t.Fatalf("heard as %s, changed %v, %v; want %s", h, changed, err, tc.h)
			}
			b.want(tc.to)
			if h == HeardConflict && (b.r.Review == nil || !b.r.Review.Alarm || b.r.Answer.Clone() == nil != (was.Answer == nil)) {
				t.Errorf("a conflict: review %+v, answer %+v, which was %+v", b.r.Review, b.r.Answer, was.Answer)
			}
			if changed {
				e := b.r.Evidence[len(b.r.Evidence)-1]
				if e.Source != "notice" || e.By != "ada" || e.Note != `notice "evt_1": seen` || !e.Read || e.At.IsZero() {
					t.Errorf("evidence %+v", e)
				}
			}
			version := b.r.Version
			again, changed, err := b.hear(tc.now, tc.n)
			if changed || err != nil || b.r.Version != version || tc.h == HeardConflict && again != HeardConflict {
				t.Errorf("the same notice again: %s, changed %v, %v", again, changed, err)
			}
		})
	}
}

// A failure that comes before the gateway can no longer execute the call is not taken, nor one of an attempt in flight.
func TestNoticeTooEarly(t *testing.T) {
	for name, b := range map[string]*build{"unknown": doubt(t), "in flight": fresh(t).claim(t0)} {
		for _, n := range []Noticed{denied, never} {
			for _, now := range []Now{t0, early, at(attemptTime + settleTime - 1)} {
				was := b.r.Version
				_, _, err := b.hear(now, n)
				if e, ok := errors.AsType[*EarlyError](err); !ok || e.Left <= 0 || b.r.Version != was {
					t.Errorf("%s, %s: %v", name, n.Outcome, err)
				}
			}
		}
	}
	_, _, err := doubt(t).hear(later, Noticed{Payment: PaymentDone})
	if e, ok := errors.AsType[*EarlyError](err); !ok || e.Left != 0 {
		t.Errorf("a payment of a doubt: %v", err)
	}
}

// Where attempts may have been lost, a failure cannot be about the only one.
func TestNoticeAfterALoss(t *testing.T) {
	b := doubt(t)
	h, _, err := b.hear(later, never, func(v *View) { v.Loss = &Loss{} })
	if h != HeardNoted || err != nil {
		t.Errorf("heard as %s, %v", h, err)
	}
	b.want(StateUnknown)
	b = doubt(t)
	b.r.Attempts[0].Presumed = true
	if h, _, _ := b.hear(later, never); h != HeardNoted || b.r.State != StateUnknown {
		t.Errorf("of an attempt that was only presumed: %s, %s", h, b.r.State)
	}
}

// Two notices of failure never end the doubt of two attempts, unless each is named.
func TestNoticesOfSeveralAttempts(t *testing.T) {
	b := doubt(t).claim(t0).settle(t0, lostWord)
	for _, id := range []string{"a", "b", "c"} {
		b.hear(later, Noticed{ID: id, Outcome: NotExecuted})
	}
	b.want(StateUnknown).wantOutcomes(Unknown, Unknown)
	b.hear(later, Noticed{ID: "d", Outcome: NotExecuted, Attempt: 1})
	b.want(StateUnknown).wantOutcomes(NotExecuted, Unknown)
	b.hear(later, Noticed{ID: "e", Outcome: Declined, Attempt: 1}) // it has its proof
	b.want(StateUnknown).wantOutcomes(NotExecuted, Unknown)
	b.hear(later, Noticed{ID: "f", Outcome: NotExecuted, Attempt: 2})
	b.want(StateOpen).wantOutcomes(NotExecuted, NotExecuted)
}

// A failure of an attempt that has its proof changes nothing of what is kept.
func TestNoticeOfAProvedAttempt(t *testing.T) {
	b := fresh(t).claim(t0).settle(t0, slowDown).claim(t0).settle(t0, lostWord)
	if h, _, err := b.hear(later, Noticed{Outcome: Declined, Attempt: 1}); h != HeardNoted || err != nil {
		t.Errorf("heard as %s, %v", h, err)
	}
	b.want(StateUnknown).wantAnswer("slow down").wantOutcomes(NotExecuted, Unknown)
}

// The money moves forward only, in whatever order the notices come, and each counts once.
func TestNoticeOfPayment(t *testing.T) {
	b := doubt(t)
	b.hear(t0, Noticed{Outcome: Succeeded, Payment: PaymentPending})
	if b.want(StateSucceeded); b.r.Payment != PaymentPending || !b.r.Poll {
		t.Fatalf("payment %q, poll %v", b.r.Payment, b.r.Poll)
	}
	open := true // the gateway is to be asked
	for _, step := range []struct {
		id, says string
		h        Hearing
		is       string
	}{
		{"1", PaymentPending, HeardBefore, PaymentPending},
		{"2", PaymentDone, HeardTaken, PaymentDone},
		{"3", PaymentPending, HeardBefore, PaymentDone},
		{"4", PaymentFailed, HeardNoted, PaymentDone},  // of an earlier card, late
		{"4", PaymentFailed, HeardBefore, PaymentDone}, // delivered once more
		{"2", PaymentDone, HeardBefore, PaymentDone},
		{"5", PaymentReversed, HeardTaken, PaymentReversed},
		{"6", PaymentDone, HeardBefore, PaymentReversed},
	} {
		h, _, err := b.hear(t0, Noticed{ID: step.id, Payment: step.says})
		if h == HeardNoted {
			open = true
		} else if h == HeardTaken {
			open = step.is == PaymentPending
		}
		if h != step.h || err != nil || b.r.Payment != step.is || b.r.State != StateSucceeded || b.r.Poll != open {
			t.Errorf("%+v: %s, %v, payment %q of a call that is %s", step, h, err, b.r.Payment, b.r.State)
		}
	}
	if _, _, err := fresh(t).claim(t0).settle(t0, no).hear(t0, Noticed{Payment: PaymentDone}); err == nil {
		t.Error("a declined call got a payment")
	}
	if _, _, err := secondRevision(t).hear(t0, Noticed{Payment: PaymentDone, Reference: "ref"}); err == nil {
		t.Error("a payment of an earlier revision counted")
	}
}

// Done and failed never take each other's place by a notice: the gateway is asked, and its word counts.
func TestNoticeOfPaymentLate(t *testing.T) {
	for _, tc := range []struct{ is, says string }{{PaymentDone, PaymentFailed}, {PaymentFailed, PaymentDone}} {
		for _, found := range []string{PaymentDone, PaymentFailed} {
			b := doubt(t)
			b.hear(t0, Noticed{ID: "1", Outcome: Succeeded, Payment: tc.is})
			b.r.NextCheck = at(time.Hour).Store
			h, _, err := b.hear(t0, Noticed{ID: "2", Payment: tc.says})
			if h != HeardNoted || err != nil || b.r.Payment != tc.is || !b.r.Poll || !b.r.NextCheck.IsZero() {
				t.Fatalf("%s after %s: %s, %v, payment %q, polled %t at %s", tc.says, tc.is, h, err, b.r.Payment, b.r.Poll, b.r.NextCheck)
			}
			f := Finding{Kind: FoundDone, Payment: found}
			if found == PaymentFailed {
				f = Finding{Kind: FoundFailed}
			}
			next, _ := Recheck(View{Record: b.r, Now: t0}, Verdict{Looked: true, Finding: f, Rules: strong, Version: b.r.Version, Asked: t0})
			if next.Payment != found || next.Poll || next.State != StateSucceeded {
				t.Errorf("%s after %s, and found %s: payment %q, polled %t", tc.says, tc.is, found, next.Payment, next.Poll)
			}
		}
	}
}

// A word about a call that was revised counts only where it tells the revision: it may be a late one of an earlier revision.
func TestNoticeOfWhichRevision(t *testing.T) {
	for _, n := range []Noticed{yes, denied, never, {Outcome: Succeeded, Payment: PaymentDone}, {Payment: PaymentFailed}} {
		b := secondRevision(t)
		was := b.r.Version
		if _, _, err := b.hear(later, n); !errors.Is(err, ErrWhichRevision) || b.r.Version != was {
			t.Errorf("%+v: %v, and the call is %s", n, err, b.r.State)
		}
	}
}

// However many notices a record holds, a success that it does not know is taken.
func TestNoticeOfSuccessAfterMany(t *testing.T) {
	b := doubt(t)
	for i := range maxNotices {
		b.r.Evidence = append(b.r.Evidence, Evidence{Source: proofNotice, Attempt: i + 2, Read: true})
	}
	if _, _, err := b.hear(later, never); err == nil {
		t.Error("notices of failure have no end")
	}
	if h, _, err := b.hear(later, yes); h != HeardTaken || err != nil {
		t.Errorf("a success was %s, %v", h, err)
	}
	b.want(StateSucceeded)
}

func TestNoticeRefuses(t *testing.T) {
	for name, tc := range map[string]struct {
		b    *build
		n    Noticed
		want string
	}{
		"no call":            {fresh(t), yes, ErrOrphan.Error()},
		"another reference":  {doubt(t), Noticed{Outcome: Succeeded, Reference: "other"}, ErrOrphan.Error()},
		"no such attempt":    {doubt(t), Noticed{Outcome: Declined, Attempt: 2}, ErrOrphan.Error()},
		"nothing said":       {doubt(t), Noticed{}, "neither"},
		"a strange payment":  {doubt(t), Noticed{Outcome: Succeeded, Payment: "gone"}, "gone"},
		"no, and money":      {doubt(t), Noticed{Outcome: Declined, Payment: PaymentDone}, "do not go together"},
		"a strange outcome":  {doubt(t), Noticed{Outcome: Outcome(9)}, "neither"},
		"payment of no call": {fresh(t), Noticed{Payment: PaymentDone}, ErrOrphan.Error()},
	} {
		if _, _, err := tc.b.hear(later, tc.n); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, _, _, err := Notice(View{Record: doubt(t).r, Now: later}, Noticed{Outcome: Succeeded, By: "ada"}); err == nil {
		t.Error("a notice without an id was taken")
	}
	b := fresh(t).claim(t0).settle(t0, paid)
	for i := range maxNotices {
		b.r.Evidence = append(b.r.Evidence, Evidence{Source: proofNotice, Attempt: i, Read: true})
	}
	if _, _, err := b.hear(t0, Noticed{Payment: PaymentReversed}); err == nil {
		t.Error("notices have no end")
	}
}

// What a notice proved is undone by nothing: the sender's own late word comes beside it.
func TestNoticeThenTheSenderSpeaks(t *testing.T) {
	b := doubt(t)
	b.hear(t0, yes)
	b.want(StateSucceeded).wantAnswer("")
	b.late(t0, 1, Succeeded)
	b.want(StateSucceeded).wantAnswer("late succeeded")
	b = doubt(t)
	b.hear(later, never)
	b.late(later, 1, Succeeded).want(StateSucceeded)
	b = doubt(t)
	b.hear(later, denied)
	b.late(later, 1, Succeeded).want(StateReview)
}

// A decline that comes while the money of a call is under way says that it did not arrive: no contradiction. Once it has arrived, or
// where nothing is under way, it is one.
func TestNotice_declinedWhileUnderWay(t *testing.T) {
	for payment, want := range map[string]struct {
		h       Hearing
		state   State
		payment string
	}{
		PaymentPending: {HeardTaken, StateSucceeded, PaymentFailed},
		PaymentDone:    {HeardConflict, StateReview, PaymentDone},
		"":             {HeardConflict, StateReview, ""},
	} {
		b := fresh(t).claim(t0).settle(t0, Sent{Outcome: Succeeded, Payment: payment, Answer: &Answer{Status: 201}})
		h, _, err := b.hear(later, denied)
		if err != nil || h != want.h || b.r.State != want.state || b.r.Payment != want.payment {
			t.Errorf("%q: %v, %v: %s, %q; want %+v", payment, h, err, b.r.State, b.r.Payment, want)
		}
		if h, changed, err := b.hear(later, denied); err != nil || changed {
			t.Errorf("%q, once more: %v, %v, %v", payment, h, changed, err)
		}
	}
	b := fresh(t).claim(t0).settle(t0, Sent{Outcome: Succeeded, Payment: PaymentPending, Answer: &Answer{Status: 201}})
	if h, _, err := b.hear(later, never); err != nil || h != HeardConflict || b.r.State != StateReview {
		t.Errorf("not executed, of a call that answered: %v, %v, %s", h, err, b.r.State)
	}
}

// What a notice names of the call's object is kept, where it counts.
func TestNotice_object(t *testing.T) {
	b := doubt(t)
	if h, _, err := b.hear(later, Noticed{Outcome: Succeeded, Object: "pi_1", Answer: &Answer{Status: 200, Body: []byte("{}")}}); err != nil || h != HeardTaken {
		t.Fatal(h, err)
	}
	if b.r.Object != "pi_1" || b.r.Answer == nil || !b.r.Reconciled {
		t.Errorf("object %q, answer %v", b.r.Object, b.r.Answer)
	}
	for _, bad := range []string{"a\x00b", "\xff", strings.Repeat("x", MaxKey+1)} {
		b := doubt(t)
		if _, _, err := b.hear(later, Noticed{Outcome: Succeeded, Object: bad}); err != nil || b.r.Object != "" {
			t.Errorf("%q: %v, kept as %q", bad, err, b.r.Object)
		}
	}
}
