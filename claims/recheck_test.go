package claims

import (
	"testing"
	"time"
)

// TestRecheckAfterAFailedCard: an intent's first card failed; it is told, and asked about on, so that the next card's money is
// seen. Its undo is left to the gateway meanwhile.
func TestRecheckAfterAFailedCard(t *testing.T) {
	b := fresh(t).claim(t0).settle(t0, Sent{Outcome: Succeeded, Answer: body("created"), Payment: PaymentPending})
	look := func(now Now, f Finding) {
		t.Helper()
		next, moved := Recheck(View{Record: b.r, Now: now}, Verdict{Looked: true, Finding: f, Rules: strong, Version: b.r.Version, Asked: now})
		if !moved {
			t.Fatal("nothing moved")
		}
		b.write(next, now, false).want(StateSucceeded)
	}
	look(at(time.Hour), Finding{Kind: FoundFailed, Payment: PaymentPending})
	if b.r.Payment != PaymentFailed || !b.r.Poll {
		t.Errorf("payment %s, polled %t", b.r.Payment, b.r.Poll)
	}
	wantAction(t, undo(b, fresh(t), at(time.Hour)), Claim)
	look(at(2*time.Hour), Finding{Kind: FoundDone, Payment: PaymentDone})
	if b.r.Payment != PaymentDone || b.r.Poll {
		t.Errorf("payment %s, polled %t", b.r.Payment, b.r.Poll)
	}
	final := fresh(t).claim(t0).settle(t0, Sent{Outcome: Succeeded, Answer: body("created"), Payment: PaymentPending})
	b = final
	look(at(time.Hour), Finding{Kind: FoundFailed, Payment: PaymentFailed})
	if b.r.Payment != PaymentFailed || b.r.Poll {
		t.Errorf("a debit that bounced: payment %s, polled %t", b.r.Payment, b.r.Poll)
	}
}

// TestRecheckKeepsMoneyThatWentBack: what was reversed is not undone again because an object that is looked up says that it failed.
func TestRecheckKeepsMoneyThatWentBack(t *testing.T) {
	b := fresh(t).claim(t0).settle(t0, paid)
	b.r.Payment = PaymentReversed
	v := View{Record: b.r, Now: at(2 * time.Hour), Era: 1, Loss: &Loss{From: at(time.Hour), At: at(time.Hour)}}
	next, moved := Recheck(v, Verdict{Looked: true, Finding: Finding{Kind: FoundFailed, Payment: PaymentFailed}, Rules: strong, Version: b.r.Version, Asked: v.Now})
	if !moved || next.Payment != PaymentReversed || next.Poll || next.Era != 1 {
		t.Errorf("payment %s, polled %t, era %d", next.Payment, next.Poll, next.Era)
	}
}
