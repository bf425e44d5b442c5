package claims

import (
	"slices"
	"testing"
	"time"
)

var settledAt = attemptTime + settleTime // the first instant at which absence may count

func doubt(t *testing.T) *build { return fresh(t).claim(t0).settle(t0, lostWord) }

// apply applies a verdict that may move nothing.
func (b *build) apply(now Now, k FindingKind, rules LookupRules, change ...func(*Verdict)) bool {
	v := Verdict{Looked: true, Finding: Finding{Kind: k, Reason: "seen"}, Rules: rules, Version: b.r.Version, Asked: now}
	for _, f := range change {
		f(&v)
	}
	next, moved := Apply(b.r, v)
	if moved {
		b.write(next, now, false)
	}
	return moved
}

func TestFoundDone(t *testing.T) {
	for name, b := range map[string]*build{"unknown": doubt(t), "pending past its deadline": fresh(t).claim(t0)} {
		t.Run(name, func(t *testing.T) {
			b.apply(at(attemptTime), FoundDone, LookupRules{}, func(v *Verdict) { v.Answer, v.Payment = body("found"), "pending" })
			b.want(StateSucceeded).wantAnswer("found").wantOutcomes(Succeeded)
			if !b.r.Reconciled || b.r.Payment != "pending" {
				t.Errorf("record %+v", b.r)
			}
		})
	}
}

func TestVerdictApplies(t *testing.T) {
	kinds := []FindingKind{CouldNotTell, FoundDone, FoundFailed, Missed, Contradiction}
	for _, k := range kinds {
		for name, b := range map[string]*build{
			"pending before its deadline": fresh(t).claim(at(time.Hour)),
			"succeeded":                   fresh(t).claim(t0).settle(t0, paid),
			"declined":                    fresh(t).claim(t0).settle(t0, no),
			"open":                        fresh(t).claim(t0).settle(t0, unsent),
			"review":                      doubt(t).verdict(at(time.Hour), Contradiction, strong),
		} {
			if b.apply(at(time.Hour), k, LookupRules{Proves: true, Keyed: true, FirstStored: true}) {
				t.Errorf("%s moved a call that is %s", k, name)
			}
		}
		b := doubt(t)
		if b.apply(at(100*time.Hour), k, strong, func(v *Verdict) { v.Version-- }) {
			t.Errorf("%s of another version moved the record", k)
		}
	}
	b := fresh(t).claim(t0)
	asked := at(attemptTime - 1) // the lookup left before the deadline, its answer came after
	if b.apply(asked, FoundDone, strong) {
		t.Error("a verdict asked for before the deadline settled a pending call")
	}
}

func TestAbsence(t *testing.T) {
	gap := strong.MissGap
	miss := func(b *build, d time.Duration, r LookupRules) bool { return b.apply(at(d), Missed, r) }
	t.Run("enough, late enough, far enough apart", func(t *testing.T) {
		b := doubt(t)
		if miss(b, settledAt-1, strong) || b.r.Misses != 0 {
			t.Fatal("a miss before the settling time counted")
		}
		if !miss(b, settledAt, strong) || b.r.Misses != 1 {
			t.Fatal("the first miss did not count")
		}
		b.want(StateUnknown)
		if miss(b, settledAt+gap-1, strong) || b.r.Misses != 1 {
			t.Fatal("a miss too soon after another counted")
		}
		miss(b, settledAt+gap, strong)
		b.want(StateOpen).wantOutcomes(NotExecuted)
		if b.r.Attempts[0].Proof != proofLookup || b.r.Outcome() != NotExecuted {
			t.Errorf("attempt %+v", b.r.Attempts[0])
		}
	})
	t.Run("every number of misses", func(t *testing.T) {
		for n := range 5 {
			r := strong
			r.Misses = n
			b, got := doubt(t), 0
			for i := 0; b.r.State == StateUnknown; i++ {
				miss(b, settledAt+time.Duration(i)*gap, r)
				got++
			}
			if got != max(n, 1) {
				t.Errorf("%d misses, want %d", got, max(n, 1))
			}
		}
	})
	t.Run("a row is broken by what is no miss", func(t *testing.T) {
		for _, k := range []FindingKind{CouldNotTell, FoundFailed} {
			b := doubt(t)
			miss(b, settledAt, strong)
			b.apply(at(settledAt+gap), k, LookupRules{Proves: true, Misses: 2, MissGap: gap, Keyed: true})
			if k == FoundFailed { // where no first answer is stored it is a miss like any other
				b.want(StateOpen)
				continue
			}
			miss(b, settledAt+2*gap, strong)
			b.want(StateUnknown)
			miss(b, settledAt+3*gap, strong)
			b.want(StateOpen)
		}
	})
	t.Run("an index proves nothing", func(t *testing.T) {
		b, r := doubt(t), strong
		r.Proves = false
		for i := range 20 {
			miss(b, settledAt+time.Duration(i)*time.Minute, r)
		}
		b.want(StateUnknown)
	})
	t.Run("without G1 a written byte is a person's", func(t *testing.T) {
		r := strong
		r.Keyed, r.Misses = false, 1
		b := doubt(t)
		miss(b, settledAt, r)
		b.want(StateReview)
	})
	t.Run("stored decline of another attempt stays the outcome", func(t *testing.T) {
		b := doubt(t).claim(t0).settle(t0, no).want(StateUnknown)
		miss(b, settledAt, strong)
		miss(b, settledAt+gap, strong)
		b.want(StateDeclined).wantOutcomes(NotExecuted, Declined)
		b.wantAnswer("no")
	})
	t.Run("a further attempt begins a new row", func(t *testing.T) {
		b := doubt(t)
		miss(b, settledAt, strong)
		b.claim(at(settledAt+time.Second)).settle(at(settledAt+time.Second), lostWord)
		if b.r.Misses != 0 {
			t.Error("misses outlived a claim")
		}
		miss(b, settledAt+gap, strong)
		b.want(StateUnknown)
		if b.r.Misses != 0 {
			t.Error("settling time must count from the last attempt's deadline")
		}
	})
	t.Run("the stricter settling time wins", func(t *testing.T) {
		b, r := doubt(t), strong
		r.Misses, r.SettleAfter = 1, time.Hour
		miss(b, settledAt, r)
		b.want(StateUnknown)
		miss(b, attemptTime+time.Hour, r)
		b.want(StateOpen)
		b, r.SettleAfter = doubt(t), time.Second
		miss(b, settledAt-1, r)
		b.want(StateUnknown)
	})
}

func TestFoundFailed(t *testing.T) {
	b := doubt(t)
	if b.apply(at(settledAt-1), FoundFailed, strong) {
		t.Error("taken before the settling time")
	}
	b.apply(at(settledAt), FoundFailed, strong, func(v *Verdict) { v.Answer = body("found failed") })
	b.want(StateDeclined).wantOutcomes(Declined)
	b.wantAnswer("found failed")

	family := strong
	family.FirstStored = false
	b = doubt(t)
	b.apply(at(settledAt), FoundFailed, family)
	b.want(StateUnknown)
	b.apply(at(settledAt+strong.MissGap), FoundFailed, family)
	b.want(StateOpen)

	family.Proves = false
	b = doubt(t)
	b.apply(at(settledAt), FoundFailed, family)
	b.apply(at(settledAt+time.Hour), FoundFailed, family)
	b.want(StateUnknown)
}

func TestContradictionIsReviewed(t *testing.T) {
	b := doubt(t)
	b.apply(at(attemptTime), Contradiction, strong)
	if b.want(StateReview); b.r.Review.Reason != "seen" || b.r.Review.Since.IsZero() {
		t.Errorf("review %+v", b.r.Review)
	}
}

func TestDoubtThatIsTooOld(t *testing.T) {
	for name, tc := range map[string]struct {
		retention time.Duration
		limit     time.Duration
	}{"a day": {0, Patience}, "retention": {2 * time.Hour, 2 * time.Hour}, "a long one": {1000 * time.Hour, Patience}} {
		t.Run(name, func(t *testing.T) {
			b := fresh(t).claim(t0, func(q *Request) { q.Facts.Retention = tc.retention }).settle(t0, lostWord)
			if b.apply(at(tc.limit-1), CouldNotTell, strong) {
				t.Fatalf("a person is asked too early: %q", b.r.State)
			}
			b.apply(at(tc.limit), CouldNotTell, strong)
			b.want(StateReview)
		})
	}
	b := doubt(t)
	b.apply(at(100*time.Hour), FoundDone, strong)
	b.want(StateSucceeded) // late, but found
}

func TestNoWayToTell(t *testing.T) {
	b := doubt(t)
	if b.apply(at(settledAt-1), CouldNotTell, LookupRules{NoWay: true}) {
		t.Error("asked a person before it settled")
	}
	b.apply(at(settledAt), CouldNotTell, LookupRules{NoWay: true})
	b.want(StateReview)
}

func TestVerdictReadsEvidenceFirst(t *testing.T) {
	b := doubt(t)
	b.r.Evidence = []Evidence{{Revision: 1, Claim: ClaimID{1}, Outcome: Succeeded, Source: "notice"}}
	r := strong
	r.Misses = 1
	b.apply(at(settledAt), Missed, r)
	b.want(StateSucceeded)
}

func TestOperator(t *testing.T) {
	inReview := func() *build { return doubt(t).verdict(at(attemptTime), Contradiction, strong).want(StateReview) }
	say := func(b *build, w Word, now Now) error {
		next, err := Resolve(b.r, w, "ada", "dashboard", now)
		if err == nil {
			b.write(next, now, false)
		}
		return err
	}
	t.Run("executed", func(t *testing.T) {
		b := inReview()
		if err := say(b, WasExecuted, t0); err != nil {
			t.Fatal(err)
		}
		b.want(StateSucceeded).wantOutcomes(Succeeded)
		e := b.r.Evidence[len(b.r.Evidence)-1]
		if b.r.Review != nil || e.Source != proofOperator || e.By != "ada" || e.Note != "dashboard" || e.Outcome != Succeeded {
			t.Errorf("record %+v", b.r)
		}
	})
	t.Run("executed, against a kept decline", func(t *testing.T) {
		b := fresh(t).claim(t0).settle(t0, no).late(t0, 1, Succeeded, func(e *Evidence) { e.Answer = nil; e.Source = "notice" }).want(StateReview)
		if err := say(b, WasExecuted, t0); err != nil {
			t.Fatal(err)
		}
		b.want(StateSucceeded).wantAnswer("")
	})
	t.Run("executed, and the evidence holds the answer", func(t *testing.T) {
		b := fresh(t).claim(t0).settle(t0, no).late(t0, 1, Succeeded).want(StateReview)
		if err := say(b, WasExecuted, t0); err != nil {
			t.Fatal(err)
		}
		b.want(StateSucceeded).wantAnswer("late succeeded")
	})
	t.Run("not executed", func(t *testing.T) {
		b := inReview()
		if err := say(b, WasNotExecuted, at(settledAt-1)); err == nil {
			t.Error("taken while the gateway may still execute it")
		}
		if err := say(b, WasNotExecuted, at(settledAt)); err != nil {
			t.Fatal(err)
		}
		b.want(StateOpen).wantOutcomes(NotExecuted)
		b.late(at(time.Hour), 1, Succeeded).want(StateSucceeded)
	})
	t.Run("not executed, against success evidence", func(t *testing.T) {
		b := fresh(t).claim(t0).settle(t0, no).late(t0, 1, Succeeded).want(StateReview)
		if err := say(b, WasNotExecuted, at(time.Hour)); err == nil {
			t.Error("a word against evidence of success was taken")
		}
	})
	t.Run("look again", func(t *testing.T) {
		b := inReview()
		if err := say(b, LookAgain, t0); err != nil {
			t.Fatal(err)
		}
		b.want(StateUnknown)
		if b.r.Review != nil || b.r.Misses != 0 || !b.r.NextCheck.IsZero() {
			t.Errorf("record %+v", b.r)
		}
		proved := fresh(t).claim(t0).settle(t0, no).late(t0, 1, Succeeded).want(StateReview)
		if err := say(proved, LookAgain, t0); err == nil {
			t.Error("looking again at what is proved")
		}
	})
	t.Run("only in review, only with a name and a reason", func(t *testing.T) {
		for _, b := range []*build{doubt(t), fresh(t).claim(t0), fresh(t).claim(t0).settle(t0, paid), fresh(t).claim(t0).settle(t0, unsent)} {
			for _, w := range []Word{WasExecuted, WasNotExecuted, LookAgain} {
				if err := say(b, w, at(time.Hour)); err == nil {
					t.Errorf("word %d taken for a call that is %s", w, b.r.State)
				}
			}
		}
		for _, who := range [][2]string{{"", "x"}, {"x", ""}} {
			if _, err := Resolve(inReview().r, WasExecuted, who[0], who[1], t0); err == nil {
				t.Error("an anonymous word was taken")
			}
		}
	})
}

func TestReconcilable(t *testing.T) {
	p := fresh(t).claim(t0)
	if p.r.Reconcilable(at(attemptTime-1)) || !p.r.Reconcilable(at(attemptTime)) {
		t.Error("pending: from its deadline on")
	}
	for _, s := range []State{None, StateSucceeded, StateDeclined, StateOpen, StateReview, StateCancelled} {
		r := Record{State: s}
		if r.Reconcilable(at(1000*time.Hour)) || r.State.Unsettled() != slices.Contains([]State{StateReview}, s) {
			t.Errorf("%q", s)
		}
	}
}
