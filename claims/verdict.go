package claims

import (
	"fmt"
	"time"
)

// Patience is how long a doubt is left to lookups before a person is asked; a shorter key retention ends it earlier.
const Patience = 24 * time.Hour

// Reconcilable reports whether anybody may find out about the record: its sender gave up, or its deadline has passed.
func (r *Record) Reconcilable(now Now) bool {
	return r.State == StateUnknown || r.State == StatePending && !now.Store.Before(r.Deadline)
}

// Apply makes of a verdict what the record's rules allow. moved is false where the record stays as it is: the verdict
// came too early, said nothing, or was about another version. A verdict carries no guard; the version decides.
func Apply(r Record, v Verdict) (next Record, moved bool) {
	if v.Version != r.Version || !r.Reconcilable(v.Asked) {
		return r, false
	}
	if next, moved := ReadEvidence(r); moved {
		return next, true
	}
	next = r.Clone()
	switch v.Kind {
	case FoundDone:
		next.State, next.Review = StateSucceeded, nil
		next.Answer, next.Reconciled = v.Answer.Clone(), true
		next.Payment = ""
		next.paid(v.Payment)
		next.names(v.Object)
		next.resolve(Succeeded, proofLookup)
		return next, true
	case Contradiction:
		if v.Alarm {
			return alarm(r, v.Reason), true
		}
		return review(r, v.Reason), true
	case FoundFailed:
		if v.Rules.FirstStored && settled(&r, v) {
			next.keep(Declined, v.Answer, true)
			next.resolve(Declined, proofLookup)
			next.State = StateDeclined
			return next, true
		}
		if v.Rules.FirstStored {
			break
		}
		fallthrough // no first answer is stored: a failed object says no more than that nothing was carried out
	case Missed:
		if next, moved := miss(next, v); moved {
			return next, true
		}
	}
	if tooOld(&r, v) {
		return review(r, "the outcome could not be found out in time: "+v.Reason), true
	}
	if r.Misses > 0 && v.Looked && (v.Kind == CouldNotTell || v.Kind == FoundFailed && v.Rules.FirstStored) { // only misses in a row prove absence
		next.Misses, next.LastMiss = 0, time.Time{}
		return next, true
	}
	return r, false
}

// settled reports whether the attempt can no longer be executed nor be missing from an index, at a store time that was
// read before the lookup left.
func settled(r *Record, v Verdict) bool {
	return !v.Asked.Store.Before(r.Deadline.Add(max(r.Facts.SettleAfter, v.Rules.SettleAfter)))
}

// miss counts a lookup that found nothing. Enough of them prove that nothing was executed; one that came too early, too
// soon after another, or from an index that proves nothing counts for nothing (field report R62).
func miss(r Record, v Verdict) (Record, bool) {
	switch {
	case !v.Rules.Proves || !settled(&r, v):
		return r, false
	case v.Rules.RollsForward && r.standing5xx():
		return r, false
	case r.Misses > 0 && v.Asked.Store.Before(r.LastMiss.Add(v.Rules.MissGap)):
		return r, false
	}
	r.Misses++
	r.LastMiss = v.Asked.Store
	r.NextCheck = v.Asked.Store.Add(v.Rules.MissGap)
	if r.Misses < max(v.Rules.Misses, 1) && !r.presumed() {
		return r, true
	}
	if !v.Rules.Keyed && r.wroteInDoubt() {
		return review(r, "the gateway does not know the call, but without idempotency keys that is no proof"), true
	}
	r.resolve(NotExecuted, proofLookup)
	r.State = r.rest()
	return r, true
}

// standing5xx reports whether an attempt in doubt was answered with a server error that is kept under its key.
func (r *Record) standing5xx() bool {
	for _, a := range r.Attempts {
		if a.Doubtful() && a.Stands && a.Status >= 500 {
			return true
		}
	}
	return false
}

func (r *Record) wroteInDoubt() bool {
	for _, a := range r.Attempts {
		if a.Doubtful() && a.Wrote && !a.Presumed {
			return true
		}
	}
	return false
}

// tooOld reports whether the doubt is a person's: after Patience or the key's retention, or at once (when it has
// settled) where neither a lookup nor a probe can ever tell.
func tooOld(r *Record, v Verdict) bool {
	limit := Patience
	if r.Facts.Retention > 0 {
		limit = min(limit, r.Facts.Retention)
	}
	return v.Asked.Age(r.doubted()) >= limit || v.Rules.NoWay && settled(r, v)
}

// Word is what a person says of a call in review.
type Word uint8

const (
	LookAgain Word = iota // zero: decides nothing
	WasExecuted
	WasNotExecuted
)

// Resolve applies a person's word to a call in review. "Not executed" is taken only after the deadline and the settling
// time, and never against success evidence.
func Resolve(r Record, w Word, who, why string, now Now) (Record, error) {
	if r.State != StateReview {
		return r, fmt.Errorf("the call is %s: only a call in review is resolved by a person", r.State)
	}
	if who == "" || why == "" {
		return r, fmt.Errorf("who decides and what was seen at the gateway must both be said")
	}
	next := r.Clone()
	e := Evidence{Revision: r.Revision, Attempt: r.Attempt, Claim: r.Claim, Source: proofOperator, At: now, By: who, Note: why, Read: true}
	switch w {
	case WasExecuted:
		e.Outcome = Succeeded
		next.resolve(Succeeded, proofOperator)
		next.State, next.Review = StateSucceeded, nil
		next.paid("")
		if next.Answer != nil && !next.answered(Succeeded) {
			next.Answer = next.successAnswer() // the kept answer said something else
		}
	case WasNotExecuted:
		if at := r.Deadline.Add(r.Facts.SettleAfter); now.Store.Before(at) {
			return r, fmt.Errorf("the gateway may still execute it: say so again in %s", at.Sub(now.Store).Round(time.Second))
		}
		if r.succeededEvidence() {
			return r, fmt.Errorf("the record holds evidence that an attempt succeeded")
		}
		e.Outcome = NotExecuted
		next.resolve(NotExecuted, proofOperator)
		next.State, next.Review = next.rest(), nil
	default:
		if r.rest() != StateUnknown {
			return r, fmt.Errorf("every attempt has its own proof: looking again cannot change it")
		}
		next.State, next.Review, next.NextCheck = StateUnknown, nil, time.Time{}
		next.Misses, next.LastMiss = 0, time.Time{}
	}
	next.Evidence = append(next.Evidence, e)
	next.Updated = Now{} // a person has looked: a clock that once ran ahead holds nothing back any more
	return next, nil
}

// successAnswer is the answer that came with evidence of this revision's success, if any.
func (r *Record) successAnswer() *Answer {
	for _, e := range r.Evidence {
		if e.Outcome == Succeeded && e.Revision == r.Revision && e.Answer != nil {
			return e.Answer.Clone()
		}
	}
	return nil
}

func (r *Record) answered(o Outcome) bool {
	for _, a := range r.Attempts {
		if a.Outcome == o && a.Proof == proofAnswer {
			return true
		}
	}
	return false
}

func (r *Record) succeededEvidence() bool {
	for _, e := range r.Evidence {
		if e.Outcome == Succeeded {
			return true
		}
	}
	for _, a := range r.Attempts {
		if a.Outcome == Succeeded {
			return true
		}
	}
	return false
}
