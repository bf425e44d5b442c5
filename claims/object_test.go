package claims

import (
	"errors"
	"log/slog"
	"testing"
)

// underWay is a call whose money is under way, of an object that the gateway named.
func underWay(t *testing.T) *build {
	return fresh(t).claim(t0).settle(t0, Sent{Outcome: Succeeded, Payment: PaymentPending, Object: "ob_1", Cause: "answered", Answer: &Answer{Status: 200, Body: []byte("{}")}})
}

// A notice names an object only where none is known, and only of a success.
func TestObject_notices(t *testing.T) {
	b := underWay(t)
	if b.hear(t0, Noticed{ID: "n1", Payment: PaymentDone, Object: "order_9"}); b.r.Object != "ob_1" || b.r.Payment != PaymentDone {
		t.Errorf("object %q, payment %q", b.r.Object, b.r.Payment)
	}
	// The failed object of one attempt is not what the next one made.
	b = doubt(t)
	b.hear(later, Noticed{ID: "n1", Outcome: NotExecuted, Object: "ob_failed"})
	b.want(StateOpen).claim(later).settle(later, lostWord)
	if b.r.State != StateUnknown || b.r.Object != "" {
		t.Errorf("%s, to be looked up as %q", b.r.State, b.r.Object)
	}
}

// A decline that is about another object than the one under way, or about nobody knows which attempt, moves nothing: the gateway is
// asked.
func TestObject_declineOfAnother(t *testing.T) {
	b := underWay(t)
	if h, _, err := b.hear(t0, Noticed{ID: "n1", Outcome: Declined, Object: "ob_2"}); err != nil || h != HeardNoted {
		t.Errorf("%v, %v", h, err)
	}
	if b.r.Payment != PaymentPending || b.r.Object != "ob_1" || !b.r.Poll || !b.r.NextCheck.IsZero() {
		t.Errorf("payment %q, object %q, poll %v at %v", b.r.Payment, b.r.Object, b.r.Poll, b.r.NextCheck)
	}
	b = doubt(t).claim(t0).settle(t0, Sent{Outcome: Succeeded, Payment: PaymentPending, Answer: &Answer{Status: 200, Body: []byte("{}")}})
	if h, _, err := b.hear(later, denied); err != nil || h != HeardNoted || b.r.Payment != PaymentPending {
		t.Errorf("one of two attempts: %v, %v, payment %q", h, err, b.r.Payment)
	}
}

// The same decline, delivered again after the money arrived all the same, is no contradiction.
func TestObject_declineAgain(t *testing.T) {
	b := underWay(t)
	b.hear(t0, Noticed{ID: "n1", Outcome: Declined, Object: "ob_1"})
	next := b.r.Clone()
	next.paid(PaymentDone) // by a poll
	b.write(next, t0, false)
	if h, changed, err := b.hear(t0, Noticed{ID: "n1", Outcome: Declined, Object: "ob_1"}); h != HeardBefore || changed || err != nil || b.r.State != StateSucceeded {
		t.Errorf("%v, %v, %v: %s", h, changed, err, b.r.State)
	}
}

// What a notice called a success, and the gateway's own answer to that very attempt calls a no, goes to a person.
func TestObject_noticeThenAnswer(t *testing.T) {
	for _, o := range []Outcome{Declined, NotExecuted} {
		b := fresh(t).claim(t0)
		mine := b.r
		b.hear(t0, Noticed{ID: "n1", Outcome: Succeeded, Payment: PaymentPending, Object: "ob_1", Answer: &Answer{Status: 200, Body: []byte(`{"n":1}`)}})
		next, changed := Late(b.r, Evidence{Revision: 1, Attempt: 1, Claim: mine.Claim, Outcome: o, Source: proofAnswer, Answer: &Answer{Status: 402, Body: []byte("{}")}})
		if !changed || next.State != StateReview || !next.Review.Alarm {
			t.Errorf("%s: %v, %s", o, changed, next.State)
		}
	}
}

// Two objects of one revision are two charges.
func TestObject_two(t *testing.T) {
	yes := func(object string) Sent {
		return Sent{Outcome: Succeeded, Object: object, Cause: "answered", Answer: &Answer{Status: 200, Body: []byte("{}")}}
	}
	f := &Fence{Config: Config{Log: slog.New(slog.DiscardHandler)}}
	for second, want := range map[string]State{"ob_2": StateReview, "ob_1": StateSucceeded, "": StateSucceeded} {
		b := doubt(t)
		first := b.r
		b.claim(t0).settle(t0, yes("ob_1"))
		next, _ := f.late(b.r, first, yes(second))
		if next.State != want || next.Object != "ob_1" {
			t.Errorf("late %q: %s, object %q", second, next.State, next.Object)
		}
		b = doubt(t).claim(t0).settle(t0, Sent{Object: "ob_1", Cause: "unlisted", Answer: &Answer{Status: 409}})
		if b.r.State != StateUnknown || b.r.Object != "ob_1" {
			t.Fatalf("a refusal that points: %s, %q", b.r.State, b.r.Object)
		}
		found := applied(b.r, Finding{Kind: FoundDone, Object: second, Answer: &Answer{Status: 200, Body: []byte("{}")}})
		if found.State != want {
			t.Errorf("found %q: %s", second, found.State)
		}
	}
}

// applied applies a finding at once.
func applied(r Record, f Finding) Record {
	next, _ := Apply(r, Verdict{Finding: f, Looked: true, Version: r.Version, Asked: later})
	return next
}

// A late refusal that points at the first object still tells which.
func TestObject_latePointer(t *testing.T) {
	b := doubt(t)
	f := &Fence{Config: Config{Log: slog.New(slog.DiscardHandler)}}
	next, changed := f.late(b.r, b.r, Sent{Object: "ob_1", Cause: "unlisted", Answer: &Answer{Status: 409}})
	if !changed || next.Object != "ob_1" || next.State != StateUnknown {
		t.Errorf("%v, %q, %s", changed, next.Object, next.State)
	}
	b = secondRevision(t)
	if b.r.Object != "" {
		t.Errorf("a new revision has the earlier one's object %q", b.r.Object)
	}
}

// Where a stored server error may be followed by the operation all the same, nothing found after one proves nothing.
func TestStoredErrorIsNoAbsence(t *testing.T) {
	for rolls, want := range map[bool]State{true: StateUnknown, false: StateOpen} {
		rules := strong
		rules.RollsForward = rolls
		b := fresh(t).claim(t0).settle(t0, Sent{Error: true, Answer: &Answer{Status: 500, Body: []byte(`{"error":{"type":"api_error"}}`)}}).want(StateUnknown)
		b.apply(at(settledAt), Missed, rules)
		b.apply(at(settledAt+strong.MissGap), Missed, rules)
		if b.r.State != want {
			t.Errorf("%v: %s, want %s", rolls, b.r.State, want)
		}
	}
}

// A success that only a notice told has no answer: a repeat has the gateway asked for one, once.
func TestToldOnly(t *testing.T) {
	b := doubt(t)
	b.hear(later, yes)
	b.want(StateSucceeded)
	if !b.r.ToldOnly() {
		t.Fatal("it has an answer")
	}
	wantAction(t, decide(b, later, func(q *Request, _ *View) { q.Asked = false }), Reconcile)
	wantRefused(t, decide(b, later), AnswerGone, Succeeded)
	v := Verdict{Version: b.r.Version, Finding: Finding{Kind: FoundDone, Object: "ob_1", Answer: &Answer{Status: 200, Body: []byte("{}")}}}
	for _, bad := range []Verdict{
		{Version: v.Version + 1, Finding: v.Finding}, {Version: v.Version, Finding: Finding{Kind: FoundDone}}, {Version: v.Version, Finding: Finding{Kind: Missed, Answer: v.Answer}},
	} {
		if _, brought := Bring(b.r, bad); brought {
			t.Errorf("brought by %+v", bad)
		}
	}
	next, brought := Bring(b.r, v)
	if !brought || next.Answer == nil || !next.Reconciled || next.Object != "ob_1" || next.ToldOnly() {
		t.Errorf("%v: %+v", brought, next)
	}
	if _, brought := Bring(underWay(t).r, v); brought {
		t.Error("an answer was replaced")
	}
}

// The same reference on two revisions, as apps write their own, tells neither.
func TestNoticeOfTwoRevisions(t *testing.T) {
	b := secondRevision(t)
	b.r.Past[0].Facts.Reference = b.r.Facts.Reference
	for _, n := range []Noticed{yes, denied} {
		n.Reference = b.r.Facts.Reference
		if _, changed, err := b.hear(later, n); !errors.Is(err, ErrWhichRevision) || changed {
			t.Errorf("%v: %v, %v", n.Outcome, err, changed)
		}
	}
}
