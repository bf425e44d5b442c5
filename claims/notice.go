package claims

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// proofNotice marks what a notice from outside said.
const proofNotice = "notice"

// maxNotices bounds how many notices a record keeps, beside those of a success that it did not know.
const maxNotices = 100

// Noticed is what somebody tells of a call's outcome after the fact: a gateway's notice, passed on by an application or by a
// person. A notice knows the gateway's reference at most, never the claim whose attempt it is about.
type Noticed struct {
	ID string // the notice's own name, so that one which comes twice counts once
	// Reference is the one that the gateway was given: it tells the revision. "": the call has only one.
	Reference string
	// Attempt is the one that a failure is about; 0: unsaid.
	Attempt int
	Outcome Outcome // Unknown: the notice speaks of the money only
	Payment string  // where the money is; "": unsaid
	// Object is the gateway's own id of the call's object, Answer what the notice makes of it; zero: unsaid.
	Object  string
	Answer  *Answer
	By, Why string
}

// Hearing is what became of a notice. The zero value says that the record tells it already.
type Hearing uint8

const (
	HeardBefore   Hearing = iota // nothing is to be written
	HeardTaken                   // the outcome, or where the money is, counts
	HeardNoted                   // kept as evidence; it decides nothing
	HeardConflict                // it contradicts what was settled: a person decides, with alarm
)

func (h Hearing) String() string {
	return [...]string{"known", "taken", "noted", "conflict"}[h]
}

// ErrOrphan says that no call, or none of its revisions or attempts, is the one that a notice is about.
var ErrOrphan = errors.New("the notice is about no call that is known here")

// ErrWhichRevision says that a notice names a call that was revised, and not by the reference of one of its revisions: a late word
// of an earlier one would count for the current one.
var ErrWhichRevision = errors.New("the call was revised: name the reference that the gateway was given, it tells the revision")

// EarlyError says that a notice cannot be taken yet. It is to be sent again.
type EarlyError struct {
	Left time.Duration // 0: nobody can say
	Why  string
}

func (e *EarlyError) Error() string { return e.Why }

// Notice takes a notice in. Success counts for its whole revision, as any evidence of it does. A failure counts for its own
// attempt only, and only once the gateway can no longer execute that one; where it cannot be told which attempt is meant, it
// is kept and decides nothing. What contradicts a settled call goes to a person and overwrites nothing. No notice ever makes
// a send. changed is false where nothing is to be written.
func Notice(v View, n Noticed) (next Record, h Hearing, changed bool, err error) {
	r := v.Record
	if err := n.Check(); err != nil {
		return r, 0, false, err
	}
	e, err := n.evidence(&v)
	if err != nil {
		return r, 0, false, err
	}
	if r.heard(n, e) {
		if r.State == StateReview && r.Review != nil && r.Review.Alarm && e.Outcome.Definite() {
			return r, HeardConflict, false, nil // the same contradiction, which nobody has resolved yet
		}
		return r, HeardBefore, false, nil
	}
	succeeds := e.Outcome == Succeeded && (r.State != StateSucceeded || e.Revision != r.Revision)
	if !succeeds && r.notices() >= maxNotices { // a success is evidence that nothing else makes up for
		return r, 0, false, fmt.Errorf("the record holds %d notices: no more are taken, but of a success", maxNotices)
	}
	switch {
	case succeeds:
		next, h = hearSuccess(r, e)
	case e.Outcome == Declined || e.Outcome == NotExecuted:
		next, h, err = n.hearFailure(r, e, v.Now)
	default:
		next, h, err = hearPayment(r, e)
	}
	if h == HeardTaken && e.Outcome == Succeeded && e.Revision == next.Revision && next.Object == "" {
		next.names(n.Object) // of a failure, or beside what the gateway itself named, it may be another try's
	}
	return next, h, err == nil && h != HeardBefore, err
}

// Check refuses a notice that says nothing, or what cannot be, of whatever call it is.
func (n Noticed) Check() error {
	switch {
	case n.ID == "" || n.By == "":
		return errors.New("a notice needs its own id and somebody who passes it on")
	case !n.Outcome.Definite() && n.Payment == "":
		return errors.New("the notice tells neither an outcome nor where the money is")
	case n.Payment != "" && paymentStage(n.Payment) == 0:
		return fmt.Errorf("payment %q is none of pending, done, failed, reversed", n.Payment)
	case n.Payment != "" && n.Outcome.Definite() && n.Outcome != Succeeded:
		return errors.New("a call that did not succeed moved no money: the notice tells an outcome and a payment that do not go together")
	}
	return nil
}

// evidence finds the revision and the attempt that a notice is about.
func (n Noticed) evidence(v *View) (Evidence, error) {
	r := &v.Record
	e := Evidence{
		Revision: r.Revision, Attempt: r.Attempt, Claim: r.Claim, Outcome: n.Outcome, Source: proofNotice, At: v.Now,
		Payment: n.Payment, By: n.By, Note: n.mark() + n.Why,
	}
	if n.Outcome.Definite() {
		e.Answer = n.Answer.Clone()
	}
	attempts := r.Attempts
	switch i := slices.IndexFunc(r.Past, func(p Past) bool { return p.Facts.Reference == n.Reference }); {
	case !r.Exists():
		return e, ErrOrphan
	case len(r.Past) > 0 && (n.Reference == "" || i >= 0 && n.Reference == r.Facts.Reference):
		return e, ErrWhichRevision
	case n.Reference == "" || n.Reference == r.Facts.Reference:
	case i < 0:
		return e, ErrOrphan
	default:
		attempts = r.Past[i].Attempts
		e.Revision, e.Attempt, e.Claim = r.Past[i].Revision, 0, ClaimID{}
	}
	if e.Outcome == Succeeded || !e.Outcome.Definite() { // of the whole revision
		if k := len(attempts) - 1; k >= 0 {
			e.Attempt, e.Claim = attempts[k].Number, attempts[k].Claim
		}
		return e, nil
	}
	return n.aim(e, attempts, v.Loss != nil)
}

// aim says which attempt a failure is about: the one that is named, or the only one that can have reached the gateway. Where
// the store perhaps lost attempts, nobody can say how many there were.
func (n Noticed) aim(e Evidence, attempts []Attempt, lost bool) (Evidence, error) {
	e.Attempt, e.Claim = 0, ClaimID{}
	reached := 0
	for _, a := range attempts {
		switch {
		case n.Attempt == a.Number && n.Attempt > 0:
			e.Attempt, e.Claim = a.Number, a.Claim
			return e, nil
		case n.Attempt == 0 && a.Counts():
			reached++
			lost = lost || a.Presumed
			e.Attempt, e.Claim = a.Number, a.Claim
		}
	}
	switch {
	case n.Attempt != 0:
		return e, ErrOrphan
	case reached > 1 || lost:
		e.Attempt, e.Claim = 0, ClaimID{}
	}
	return e, nil
}

// mark begins the note of a notice's evidence: it is known again by it.
func (n Noticed) mark() string { return "notice " + strconv.Quote(n.ID) + ": " }

// heard reports whether the record holds this very notice.
func (r *Record) heard(n Noticed, e Evidence) bool {
	return slices.ContainsFunc(r.Evidence, func(have Evidence) bool {
		same := have.Outcome == e.Outcome && have.Payment == e.Payment
		underWay := e.Outcome == Declined && have.Outcome == Unknown && have.Payment == PaymentFailed // see hearFailure
		return have.Source == proofNotice && have.Revision == e.Revision && (same || underWay) && strings.HasPrefix(have.Note, n.mark())
	})
}

func hearSuccess(r Record, e Evidence) (Record, Hearing) {
	next, changed := Late(r, e)
	switch {
	case !changed:
		if r.State == StateReview {
			return r, HeardConflict
		}
		return r, HeardBefore
	case next.State == StateReview:
		return next, HeardConflict
	}
	return next, HeardTaken
}

// hearFailure takes in that an attempt was declined, or not executed.
func (n Noticed) hearFailure(r Record, e Evidence, now Now) (Record, Hearing, error) {
	after := r.Deadline.Add(r.Facts.SettleAfter)
	switch {
	case e.Revision != r.Revision: // every attempt of it has its own proof that no money moved
		return r.noted(e), HeardNoted, nil
	case r.State == StateSucceeded && e.Outcome == Declined && (r.Payment == PaymentPending || r.Payment == PaymentFailed):
		// It was carried out, and said so; what failed is what was under way, if the notice is about that and not about another try.
		e.Outcome, e.Payment = Unknown, PaymentFailed
		if e.Attempt != 0 && (n.Object == "" || r.Object == "" || n.Object == r.Object) {
			return hearPayment(r, e)
		}
		next := r.noted(e)
		next.Poll, next.NextCheck = true, time.Time{} // the gateway decides
		return next, HeardNoted, nil
	case r.State == StateSucceeded:
		next := alarm(r.noted(e), "a notice says "+e.Outcome.String()+" of a call that had succeeded")
		return next, HeardConflict, nil
	case r.State == StateReview: // only a person, or a word of success, ends it
		return r.noted(e), HeardNoted, nil
	case r.State != StatePending && r.State != StateUnknown: // declined, open, cancelled
		if r.agrees(e.Outcome) {
			return r, HeardBefore, nil
		}
		if r.State == StateCancelled { // no contradiction; and a review could make a call of it that may be sent
			return r.noted(e), HeardNoted, nil
		}
		next := alarm(r.noted(e), "a notice says "+e.Outcome.String()+" of a call that was "+string(r.State))
		return next, HeardConflict, nil
	case now.Store.Before(after):
		return r, 0, &EarlyError{Left: after.Sub(now.Store), Why: "the gateway may still execute the call: a failure counts only once it cannot"}
	case !slices.ContainsFunc(r.Attempts, func(a Attempt) bool { return a.Claim == e.Claim && a.Doubtful() }):
		next := r.noted(e)           // about no attempt, or about one that has its proof
		next.NextCheck = time.Time{} // ask the gateway at once
		return next, HeardNoted, nil
	}
	next, changed := Late(r, e)
	if !changed {
		return r, HeardBefore, nil
	}
	if next.State.Unsettled() {
		return next, HeardNoted, nil // other attempts are in doubt still
	}
	return next, HeardTaken, nil
}

// agrees reports whether a settled record says the same of one of its attempts, or of all.
func (r *Record) agrees(o Outcome) bool {
	return r.Outcome() == o || slices.ContainsFunc(r.Attempts, func(a Attempt) bool { return a.Outcome == o })
}

// hearPayment takes in where the money of a call that succeeded is. It never goes back, so that notices which come out of
// order do no harm: an object may fail with one card before it is paid with another.
func hearPayment(r Record, e Evidence) (Record, Hearing, error) {
	switch {
	case e.Revision != r.Revision, r.State == StateCancelled, r.State == StateDeclined, r.State == StateOpen:
		return r, 0, fmt.Errorf("the call is %s: it has no payment; tell the outcome, if the gateway executed it", r.State)
	case r.State != StateSucceeded:
		return r, 0, &EarlyError{Why: "the outcome of the call is not known yet: tell that too, or send the notice again later"}
	case e.Payment == "" || e.Payment == r.Payment || paymentStage(e.Payment) < paymentStage(r.Payment):
		return r, HeardBefore, nil
	case paymentStage(e.Payment) == paymentStage(r.Payment): // done or failed: the notice of an earlier try may come late
		next := r.noted(e)
		next.Poll, next.NextCheck = true, time.Time{} // the gateway decides
		return next, HeardNoted, nil
	}
	next := r.noted(e)
	next.paid(e.Payment)
	return next, HeardTaken, nil
}

// notices is how many of them the record holds.
func (r *Record) notices() int {
	n := 0
	for _, e := range r.Evidence {
		if e.Source == proofNotice {
			n++
		}
	}
	return n
}

// noted is the record with evidence that was read and counts for nothing.
func (r Record) noted(e Evidence) Record {
	next := r.Clone()
	e.Read = true
	next.Evidence = append(next.Evidence, e)
	return next
}

// paymentStage orders where money can be; 0: no such place.
func paymentStage(payment string) int {
	switch payment {
	case PaymentPending:
		return 1
	case PaymentDone, PaymentFailed:
		return 2
	case PaymentReversed:
		return 3
	}
	return 0
}
