package claims

import (
	"slices"
	"time"
)

// Where the money of a call that succeeded is.
const (
	PaymentPending  = "pending"
	PaymentDone     = "done"
	PaymentFailed   = "failed"
	PaymentReversed = "reversed"
)

// ToldOnly reports whether a call has succeeded by the word of a notice that brought no answer.
func (r *Record) ToldOnly() bool {
	return r.State == StateSucceeded && r.answerGone() && slices.ContainsFunc(r.Attempts, func(a Attempt) bool {
		return a.Outcome == Succeeded && a.Proof == proofNotice
	})
}

// Bring takes the answer of a call that is ToldOnly from a lookup. changed is false where it brought none.
func Bring(r Record, d Verdict) (next Record, changed bool) {
	if d.Version != r.Version || !r.ToldOnly() || d.Kind != FoundDone || d.Answer == nil {
		return r, false
	}
	next = r.Clone()
	next.Answer, next.Reconciled = d.Answer.Clone(), true
	next.names(d.Object)
	return next, true
}

// PollFor is how long a call that succeeded is asked about while its money is still under way: longer than any bank debit takes.
const PollFor = 30 * 24 * time.Hour

// paid takes in where the money is, as an answer or a lookup tells; "" tells nothing.
func (r *Record) paid(payment string) {
	if payment != "" {
		r.Payment = payment
	}
	r.Poll = r.State == StateSucceeded && r.Payment == PaymentPending
}

// Recheckable reports whether a call that succeeded is to be looked up again: its money is under way, or the store perhaps lost
// what came after its success.
func (v *View) Recheckable() bool {
	r := &v.Record
	return r.State == StateSucceeded && (r.Poll || v.Loss != nil)
}

// Recheck takes in what a lookup found of a call that succeeded. It moves the payment state alone: the call stays what it is,
// whatever its money does, unless the gateway shows two successes. moved is false where nothing is to be written.
func Recheck(v View, d Verdict) (next Record, moved bool) {
	r := &v.Record
	if d.Version != r.Version || !v.Recheckable() {
		return *r, false
	}
	next = r.Clone()
	payment := d.Payment
	switch {
	case d.Kind == Contradiction && d.Alarm:
		return alarm(*r, d.Reason), true
	case d.Kind == FoundFailed:
		payment = PaymentFailed
	case d.Kind != FoundDone:
		payment = ""
	}
	if paymentStage(payment) >= max(paymentStage(r.Payment), 1) { // never back: not every object that is looked up tells of a refund
		next.paid(payment)
		next.Poll = next.Poll || d.Kind == FoundFailed && d.Payment == PaymentPending // the money can come yet
	}
	if d.Rules.NoWay || d.Asked.Age(r.FirstStarted) >= PollFor {
		next.Poll = false
	}
	if d.Looked && d.Kind != CouldNotTell {
		next.Era = v.Era // looked at once: nothing that was lost is missing any more
	}
	return next, next.Payment != r.Payment || next.Poll != r.Poll || next.Era != r.Era
}
