package claims

import (
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// What can prove an attempt's outcome.
const (
	proofAnswer   = "answer"        // the gateway's own answer to this attempt
	proofStored   = "stored-answer" // the stored first answer of the key, which speaks of every attempt
	proofZero     = "zero-bytes"    // no byte was passed on
	proofLookup   = "lookup"
	proofOperator = "operator"
)

// Sent is what the sender saw of one attempt. Its zero value says: perhaps executed.
type Sent struct {
	// Unsent: no byte of the request was passed to Write above TLS. Proves not executed, of this attempt.
	Unsent  bool
	Outcome Outcome
	Stored  bool // the answer is the stored first answer of its key
	Refused bool // a listed refusal: does not count against the attempts
	InUse   bool // another request with the key is in flight
	// Transient: the gateway says that the key may be asked again: its answer does not stand under the key.
	Transient bool
	Answer    *Answer
	Local     bool // it failed on our side, which says nothing of the gateway
	Error     bool // the answer is an error in the gateway's own shape: no SDK takes it for a success
	Payment   string
	Object    string // the gateway's own id of what the call made or changed, also where only a refusal names it
	Cause     string // one word for logs and the attempt's note
	Detail    string // of what failed on our side, for people: no bytes of the request
}

func (s Sent) outcome() Outcome {
	if s.Unsent {
		return NotExecuted
	}
	return s.Outcome
}

func (s Sent) proof() string {
	switch {
	case s.Unsent:
		return proofZero
	case s.Outcome.Definite():
		return proofAnswer
	}
	return ""
}

// Settle applies the sender's word to the record that still names its claim. ok is false where the record has moved on:
// the word is then evidence (see Late).
func Settle(r Record, revision, attempt int, id ClaimID, s Sent) (next Record, ok bool) {
	if r.State != StatePending || !r.Mine(revision, attempt, id) {
		return r, false
	}
	next = r.Clone()
	next.keep(s.outcome(), s.Answer, false)
	next.note(id, s)
	if s.Stored && s.outcome().Definite() {
		next.resolve(s.outcome(), proofStored)
	}
	next.State = StateUnknown
	next.NextCheck = time.Time{}
	if s.outcome() == Succeeded {
		next.State = StateSucceeded
	}
	next.paid(s.Payment)
	next.names(s.Object)
	next, _ = ReadEvidence(next)
	return next, true
}

// names takes in the gateway's own id of the call's object, if it is told. A success about another object than the one that the
// gateway named before is a second one.
func (r *Record) names(object string) {
	switch {
	case object == "" || len(object) > MaxKey || !utf8.ValidString(object) || strings.ContainsFunc(object, unicode.IsControl):
	case r.Object == "":
		r.Object = object
	case r.Object != object && r.State == StateSucceeded:
		*r = alarm(*r, "the gateway names two objects of the call: "+r.Object+" and "+object)
	}
}

// note writes what the sender saw into its attempt.
func (r *Record) note(id ClaimID, s Sent) {
	for i := range r.Attempts {
		a := &r.Attempts[i]
		if a.Claim != id {
			continue
		}
		a.Wrote, a.Refused, a.InUse, a.Cause = !s.Unsent, s.Refused, s.InUse, s.Cause
		a.Stands = s.Stored || s.Error && !s.InUse && !s.Transient
		if a.Outcome == Unknown {
			a.Outcome, a.Proof = s.outcome(), s.proof()
		}
		if s.Answer != nil {
			a.Status = s.Answer.Status
		}
	}
}

// keep takes the answer, or its absence, that came with the outcome of one attempt, before the attempt is marked. A
// decline decides the revision: a refusal of another attempt does not replace its answer, nor stand in for it.
func (r *Record) keep(o Outcome, a *Answer, reconciled bool) {
	declined := slices.ContainsFunc(r.Attempts, func(a Attempt) bool { return a.Outcome == Declined })
	switch {
	case o == Unknown, o == NotExecuted && (a == nil || declined), o == Declined && a == nil && declined:
		return
	}
	r.Answer, r.Reconciled = a.Clone(), reconciled && a != nil
}

// answerGone reports whether no answer is kept.
func (r *Record) answerGone() bool { return r.Answer == nil || r.Answer.Body == nil }

// resolve gives every doubtful attempt of the revision its outcome.
func (r *Record) resolve(o Outcome, proof string) {
	for i := range r.Attempts {
		if r.Attempts[i].Doubtful() {
			r.Attempts[i].Outcome, r.Attempts[i].Proof = o, proof
		}
	}
}

// rest is where a record without doubt comes to rest: succeeded or declined if an attempt was, else open.
func (r *Record) rest() State {
	s := StateOpen
	for _, a := range r.Attempts {
		switch {
		case a.Doubtful():
			return StateUnknown
		case a.Outcome == Succeeded:
			s = StateSucceeded
		case a.Outcome == Declined && s == StateOpen:
			s = StateDeclined
		}
	}
	return s
}

// Late appends the word of a sender whose record has moved on, or whose guard is gone, and lets it count as far as
// evidence does. changed is false where the record tells it already.
func Late(r Record, e Evidence) (next Record, changed bool) {
	if !r.Exists() {
		return r, false
	}
	for _, have := range r.Evidence {
		if have.Revision == e.Revision && have.Claim == e.Claim && have.Outcome == e.Outcome && have.Source == e.Source {
			return r, false
		}
	}
	brings := e.Outcome == Succeeded && r.answerGone() && e.Answer != nil && e.Answer.Body != nil
	if r.Revision == e.Revision && !brings {
		for _, a := range r.Attempts {
			if a.Claim == e.Claim && a.Outcome == e.Outcome && (e.Outcome != Succeeded || r.State == StateSucceeded) {
				return r, false
			}
		}
	}
	next = r.Clone()
	next.Evidence = append(next.Evidence, e)
	next, _ = ReadEvidence(next)
	return next, true
}

// ReadEvidence takes in what evidence the record holds. Success counts for its whole revision; failure for its own
// attempt only. It also settles a record whose last doubt has gone.
func ReadEvidence(r Record) (next Record, moved bool) {
	next = r.Clone()
	for i := range next.Evidence {
		e := &next.Evidence[i]
		if e.Read {
			continue
		}
		e.Read, moved = true, true
		if e.Outcome == Succeeded {
			next.takeSuccess(*e)
		} else if e.Revision == next.Revision {
			next.takeFailure(*e)
		}
	}
	if s := next.rest(); next.State == StateUnknown && s != StateUnknown {
		next.State, moved = s, true
	}
	return next, moved
}

func (r *Record) takeSuccess(e Evidence) {
	switch {
	case r.State == StateSucceeded && e.Revision == r.Revision: // told already, but perhaps by a notice without an answer
		if e.Answer != nil && r.answerGone() {
			r.Answer, r.Reconciled = e.Answer.Clone(), e.Source != proofAnswer
		}
	case e.Revision != r.Revision:
		*r = alarm(*r, "an earlier revision turns out to have succeeded")
	case r.State == StateDeclined:
		*r = alarm(*r, "an attempt succeeded after the call had been declined")
	case r.State == StateCancelled:
		*r = alarm(*r, "an attempt succeeded after the call had been cancelled")
	case r.State == StateReview && r.Review != nil && r.Review.Alarm:
		if e.Answer != nil {
			r.keep(Succeeded, e.Answer, e.Source != proofAnswer)
		}
		r.mark(e, Succeeded)
	default: // pending, unknown, open, review
		r.State = StateSucceeded
		r.Review = nil
		r.Answer, r.Reconciled = e.Answer.Clone(), e.Source != proofAnswer
		r.paid(e.Payment)
		r.mark(e, Succeeded)
	}
}

func (r *Record) takeFailure(e Evidence) {
	if !e.Outcome.Definite() {
		return
	}
	if r.State == StateUnknown || r.State == StatePending {
		r.keep(e.Outcome, e.Answer, e.Source != proofAnswer)
	}
	for _, a := range r.Attempts {
		if a.Claim == e.Claim && a.Outcome == Succeeded && a.Proof == proofNotice && e.Source == proofAnswer {
			*r = alarm(*r, "the gateway's own answer says "+e.Outcome.String()+" of what a notice called a success")
			return
		}
	}
	r.mark(e, e.Outcome)
	if e.Stored {
		r.resolve(e.Outcome, proofStored)
	}
	// The sender of the current attempt has spoken: it is no longer in flight.
	if r.State == StatePending && e.Claim == r.Claim {
		r.State = StateUnknown
		r.NextCheck = time.Time{}
	}
}

// mark writes an evidence's outcome into its attempt.
func (r *Record) mark(e Evidence, o Outcome) {
	for i := range r.Attempts {
		if a := &r.Attempts[i]; a.Claim == e.Claim && a.Doubtful() {
			a.Outcome, a.Proof = o, e.Source
		}
	}
}

// GiveUp moves a process's own pending record, past its deadline and worked on by nobody, to unknown.
func GiveUp(r Record) Record {
	next := r.Clone()
	next.State = StateUnknown
	next.NextCheck = time.Time{}
	return next
}
