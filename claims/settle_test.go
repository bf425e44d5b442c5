package claims

import (
	"testing"
	"time"
)

func TestSettle(t *testing.T) {
	for _, tc := range []struct {
		name  string
		s     Sent
		state State
		out   Outcome
		proof string
		wrote bool
	}{
		{"nothing said", Sent{}, StateUnknown, Unknown, "", true},
		{"cut", lostWord, StateUnknown, Unknown, "", true},
		{"unlisted 500", fiveHundr, StateUnknown, Unknown, "", true},
		{"in use", keyInUse, StateUnknown, Unknown, "", true},
		{"succeeded", paid, StateSucceeded, Succeeded, proofAnswer, true},
		{"declined", no, StateDeclined, Declined, proofAnswer, true},
		{"stored decline", storedNo, StateDeclined, Declined, proofAnswer, true},
		{"listed refusal", slowDown, StateOpen, NotExecuted, proofAnswer, true},
		{"zero bytes", unsent, StateOpen, NotExecuted, proofZero, false},
		{"zero bytes beat everything else that is claimed", Sent{Unsent: true, Outcome: Succeeded}, StateOpen, NotExecuted, proofZero, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := fresh(t).claim(t0).settle(t0, tc.s).want(tc.state)
			if a := b.r.Attempts[0]; a.Outcome != tc.out || a.Proof != tc.proof || a.Wrote != tc.wrote {
				t.Errorf("attempt %+v", a)
			}
		})
	}
}

// TestSettleAfterAnEarlierDoubt: a failure proves its own attempt only, unless it is the stored first answer.
func TestSettleAfterAnEarlierDoubt(t *testing.T) {
	for _, tc := range []struct {
		name   string
		s      Sent
		state  State
		first  Outcome
		answer string
	}{
		{"lost again", lostWord, StateUnknown, Unknown, ""},
		{"zero bytes", unsent, StateUnknown, Unknown, ""},
		{"refused", slowDown, StateUnknown, Unknown, "slow down"},
		{"declined", no, StateUnknown, Unknown, "no"},
		{"stored decline", storedNo, StateDeclined, Declined, "stored no"},
		{"succeeded", paid, StateSucceeded, Unknown, "paid"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := fresh(t).claim(t0).settle(t0, lostWord).claim(t0).settle(t0, tc.s).want(tc.state).wantAnswer(tc.answer)
			b.wantOutcomes(tc.first, tc.s.outcome())
		})
	}
}

func TestSettleNamesItsClaim(t *testing.T) {
	b := fresh(t).claim(t0)
	for name, f := range map[string]func() (int, int, ClaimID){
		"other revision": func() (int, int, ClaimID) { return 2, 1, b.r.Claim },
		"other attempt":  func() (int, int, ClaimID) { return 1, 2, b.r.Claim },
		"other claim":    func() (int, int, ClaimID) { return 1, 1, ClaimID{42} },
	} {
		rev, att, id := f()
		if next, ok := Settle(b.r, rev, att, id, paid); ok || next.State != StatePending {
			t.Errorf("%s: settled as %q", name, next.State)
		}
	}
	if _, ok := Settle(Record{State: StatePending, Revision: 1, Attempt: 1}, 1, 1, ClaimID{}, paid); ok {
		t.Error("settled what does not exist")
	}
	for _, s := range []Sent{paid, no, unsent, lostWord} {
		done := fresh(t).claim(t0).settle(t0, s)
		if _, ok := Settle(done.r, 1, 1, done.r.Claim, paid); ok {
			t.Errorf("settled twice, after %q", done.r.State)
		}
	}
}

// TestSuccessEvidence: success counts for its whole revision, and contradicts what was final.
func TestSuccessEvidence(t *testing.T) {
	hour := at(time.Hour)
	review := func() *build {
		return fresh(t).claim(t0).settle(t0, lostWord).verdict(hour, Contradiction, strong).want(StateReview)
	}
	alarmed := func() *build {
		b := review()
		b.r.Review.Alarm = true // as Apply writes it of a Finding with Alarm
		return b
	}
	cancelled := func() *build {
		b := fresh(t).claim(t0).settle(t0, unsent)
		b.r.State = StateCancelled
		return b
	}
	next := func() *build { // as a later stage will write it
		b := fresh(t).claim(t0).settle(t0, no)
		b.r.Revision, b.r.State = 2, StateOpen
		return b
	}
	second := func() *build { return fresh(t).claim(t0).settle(t0, lostWord).claim(t0) }
	for _, tc := range []struct {
		name  string
		b     *build
		state State
	}{
		{"pending", fresh(t).claim(t0), StateSucceeded},
		{"pending, of the attempt before", second(), StateSucceeded},
		{"unknown", fresh(t).claim(t0).settle(t0, lostWord), StateSucceeded},
		{"open", fresh(t).claim(t0).settle(t0, lostWord).verdict(hour, Missed, LookupRules{Proves: true, Keyed: true}).want(StateOpen), StateSucceeded},
		{"review", review(), StateSucceeded},
		{"review of two successes", alarmed(), StateReview},
		{"declined", fresh(t).claim(t0).settle(t0, no), StateReview},
		{"cancelled", cancelled(), StateReview},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.b.late(hour, 1, Succeeded, func(e *Evidence) { e.Payment = "done" }).want(tc.state)
			if tc.state == StateSucceeded {
				tc.b.wantAnswer("late succeeded")
				if a := tc.b.r.Attempts[0]; a.Outcome != Succeeded && a.Outcome != NotExecuted {
					t.Errorf("its attempt is left %s", a.Outcome)
				}
				if tc.b.r.Review != nil || tc.b.r.Payment != "done" || tc.b.r.Outcome() != Succeeded {
					t.Errorf("record %+v", tc.b.r)
				}
			} else if tc.b.r.Review == nil || tc.b.r.Outcome() != Unknown {
				t.Errorf("record %+v", tc.b.r)
			}
			if _, changed := Late(tc.b.r, Evidence{Revision: 1, Attempt: 1, Claim: ClaimID{1}, Outcome: Succeeded, Source: proofAnswer}); changed {
				t.Error("the same evidence was taken twice")
			}
		})
	}
	t.Run("earlier revision", func(t *testing.T) {
		b := next()
		b.late(hour, 1, Succeeded, func(e *Evidence) { e.Revision = 1 }).want(StateReview)
	})
	if _, changed := Late(Record{}, Evidence{Outcome: Succeeded}); changed {
		t.Error("evidence of a call that does not exist was kept")
	}
}

// TestSuccessWithoutAnAnswerIsFilledIn: a notice or a lookup may know the outcome before the gateway's answer comes.
func TestSuccessWithoutAnAnswerIsFilledIn(t *testing.T) {
	noAnswer := func(e *Evidence) { e.Source, e.Answer = "notice", nil }
	for name, b := range map[string]*build{
		"notice": fresh(t).claim(t0).late(t0, 1, Succeeded, noAnswer),
		"lookup": fresh(t).claim(t0).verdict(at(time.Minute), FoundDone, strong),
	} {
		t.Run(name, func(t *testing.T) {
			b.want(StateSucceeded).wantAnswer("").late(at(time.Hour), 1, Succeeded).want(StateSucceeded).wantAnswer("late succeeded")
			if b.r.Reconciled {
				t.Error("the gateway's own answer is marked as reconciled")
			}
		})
	}
	b := fresh(t).claim(t0).settle(t0, paid).late(at(time.Hour), 2, Succeeded)
	b.want(StateSucceeded).wantAnswer("paid") // one that was perhaps told stays
	over := fresh(t).claim(t0).settle(t0, Sent{Outcome: Succeeded, Answer: &Answer{Status: 200}})
	if _, changed := Late(over.r, Evidence{Revision: 1, Attempt: 1, Claim: ClaimID{1}, Outcome: Succeeded, Source: proofAnswer, Answer: &Answer{Status: 200}}); changed {
		t.Error("an answer that is not kept was taken for a new one")
	}
}

// TestFailureEvidence: failure counts for its own attempt only.
func TestFailureEvidence(t *testing.T) {
	t.Run("of the current attempt settles it", func(t *testing.T) {
		fresh(t).claim(t0).late(t0, 1, NotExecuted).want(StateOpen)
		fresh(t).claim(t0).late(t0, 1, Declined).want(StateDeclined).wantAnswer("late declined")
		fresh(t).claim(t0).settle(t0, lostWord).late(t0, 1, NotExecuted).want(StateOpen)
		fresh(t).claim(t0).settle(t0, lostWord).late(t0, 1, Declined).want(StateDeclined)
	})
	t.Run("of an earlier one leaves the current in doubt", func(t *testing.T) {
		b := fresh(t).claim(t0).settle(t0, lostWord).claim(t0).late(t0, 1, NotExecuted).want(StatePending)
		b.wantOutcomes(NotExecuted, Unknown)
		b.settle(t0, lostWord).want(StateUnknown)
		b.late(t0, 2, NotExecuted).want(StateOpen)
	})
	t.Run("of the current one leaves the earlier in doubt", func(t *testing.T) {
		b := fresh(t).claim(t0).settle(t0, lostWord).claim(t0).late(t0, 2, NotExecuted).want(StateUnknown)
		b.wantOutcomes(Unknown, NotExecuted)
	})
	t.Run("of an unknown claim says nothing", func(t *testing.T) {
		fresh(t).claim(t0).settle(t0, lostWord).late(t0, 7, NotExecuted).want(StateUnknown)
	})
	t.Run("stored speaks of all", func(t *testing.T) {
		b := fresh(t).claim(t0).settle(t0, lostWord).claim(t0).late(t0, 2, Declined, func(e *Evidence) { e.Stored = true }).want(StateDeclined)
		b.wantOutcomes(Declined, Declined)
	})
	t.Run("of another revision says nothing", func(t *testing.T) {
		b := fresh(t).claim(t0).settle(t0, lostWord)
		b.late(t0, 1, NotExecuted, func(e *Evidence) { e.Revision = 2 }).want(StateUnknown)
	})
	t.Run("never undoes what is settled", func(t *testing.T) {
		fresh(t).claim(t0).settle(t0, lostWord).claim(t0).settle(t0, paid).late(t0, 1, NotExecuted).want(StateSucceeded).wantAnswer("paid")
		fresh(t).claim(t0).settle(t0, lostWord).claim(t0).settle(t0, storedNo).late(t0, 1, NotExecuted).want(StateDeclined).wantAnswer("stored no")
	})
	t.Run("never changes what an attempt proved", func(t *testing.T) {
		fresh(t).claim(t0).settle(t0, no).late(t0, 1, NotExecuted).want(StateDeclined).wantOutcomes(Declined)
		fresh(t).claim(t0).settle(t0, slowDown).late(t0, 1, Declined).want(StateOpen).wantOutcomes(NotExecuted)
		b := fresh(t).claim(t0).settle(t0, slowDown)
		b.r.note(b.r.Claim, no)
		b.wantOutcomes(NotExecuted)
	})
	t.Run("a notice without an outcome says nothing", func(t *testing.T) {
		b := fresh(t).claim(t0)
		b.r.Evidence = []Evidence{{Revision: 1, Claim: b.r.Claim, Source: "notice", Stored: true}}
		next, _ := ReadEvidence(b.r)
		if next.State != StatePending || !next.Attempts[0].Doubtful() || next.Attempts[0].Proof != "" {
			t.Errorf("%q %+v", next.State, next.Attempts)
		}
	})
	t.Run("success goes before it", func(t *testing.T) {
		b := fresh(t).claim(t0)
		b.r.Evidence = []Evidence{
			{Revision: 1, Claim: ClaimID{1}, Outcome: NotExecuted, Source: "notice"},
			{Revision: 1, Claim: ClaimID{1}, Outcome: Succeeded, Source: "notice"},
		}
		next, moved := ReadEvidence(b.r)
		if !moved || next.State != StateSucceeded || next.Unread() {
			t.Errorf("%q", next.State)
		}
		if again, moved := ReadEvidence(next); moved {
			t.Errorf("read twice: %q", again.State)
		}
	})
}

// TestDeclineKeepsItsAnswer: what is replayed as declined is the decline, whatever else was answered.
func TestDeclineKeepsItsAnswer(t *testing.T) {
	for name, b := range map[string]*build{
		"late refusal of the attempt before": fresh(t).claim(t0).settle(t0, lostWord).claim(t0).settle(t0, no).late(t0, 1, NotExecuted),
		"late decline, then a refusal": fresh(t).claim(t0).settle(t0, lostWord).claim(t0).
			late(t0, 1, Declined, func(e *Evidence) { e.Answer = body("no") }).settle(t0, slowDown),
	} {
		t.Run(name, func(t *testing.T) { b.want(StateDeclined).wantAnswer("no") })
	}
	for name, b := range map[string]*build{
		"found failed after a refusal": fresh(t).claim(t0).settle(t0, slowDown).claim(t0).settle(t0, lostWord).verdict(at(time.Hour), FoundFailed, strong),
		"notice of a decline after a refusal": fresh(t).claim(t0).settle(t0, slowDown).claim(t0).settle(t0, lostWord).
			late(t0, 2, Declined, func(e *Evidence) { e.Source, e.Answer = "notice", nil }),
	} {
		t.Run(name, func(t *testing.T) { b.want(StateDeclined).wantAnswer("") })
	}
}

func TestSettleReadsEvidence(t *testing.T) {
	for _, s := range []Sent{lostWord, no, unsent} {
		b := fresh(t).claim(t0)
		b.r.Evidence = []Evidence{{Revision: 1, Claim: ClaimID{9}, Outcome: Succeeded, Source: "notice", Answer: body("noticed")}}
		b.settle(t0, s).want(StateSucceeded).wantAnswer("noticed")
	}
}

func TestGiveUp(t *testing.T) {
	b := fresh(t).claim(t0)
	b.write(GiveUp(b.r), at(time.Minute), false).want(StateUnknown)
	if !b.r.NextCheck.IsZero() {
		t.Error("the sweeper waits")
	}
	b.late(at(time.Hour), 1, Succeeded).want(StateSucceeded)
}

func TestOutcome(t *testing.T) {
	for s, want := range map[State]Outcome{
		None: NotExecuted, StatePending: Unknown, StateUnknown: Unknown, StateSucceeded: Succeeded, StateDeclined: Declined,
		StateOpen: NotExecuted, StateReview: Unknown, StateCancelled: NotExecuted, "martian": Unknown,
	} {
		r := Record{State: s}
		if got := r.Outcome(); got != want {
			t.Errorf("%q says %s, want %s", s, got, want)
		}
		r.Evidence = []Evidence{{Outcome: Succeeded}}
		if got := r.Outcome(); got != Unknown {
			t.Errorf("%q beside unread success says %s", s, got)
		}
	}
	var zero Outcome
	var sent Sent
	if zero != Unknown || zero.Definite() || sent.outcome() != Unknown || Outcome(77).Definite() || Outcome(77).String() != "unknown" {
		t.Error("the zero value must be unknown")
	}
}
