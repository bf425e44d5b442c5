package claims

import (
	"fmt"
	"time"
)

// MaxRevision bounds a call's revisions: each leaves its attempts in the record.
const MaxRevision = 100

// decideRevision begins the next revision of a call: another request under the same call key, with a fingerprint and a gateway
// key of its own. Nothing of the revision before may be able to be executed any more.
func decideRevision(v View, q Request, ring Ring) Decision {
	r := &v.Record
	if next, moved := ReadEvidence(*r); moved {
		return Decision{Action: Amend, Next: next}
	}
	if r.unseen() {
		return decideUnseen(r)
	}
	if v.Loss != nil && r.losable(v.Now) {
		return Decision{Action: Amend, Next: Presume(v, q.Policy.AttemptTimeout, q.Claim), Condition: q.condition()}
	}
	switch r.State {
	case StateDeclined, StateOpen:
	case StateCancelled:
		return cancelled(r)
	case StatePending, StateUnknown:
		if r.Reconcilable(v.Now) && !q.Asked {
			return Decision{Action: Reconcile}
		}
		return blocked(r, time.Minute, fmt.Sprintf("revision %d is not settled yet", r.Revision))
	default:
		return blocked(r, 0, fmt.Sprintf("revision %d is %s", r.Revision, r.State))
	}
	if left, detail := unproved(r, q, v.Now); detail != "" {
		return blocked(r, left, detail)
	}
	if q.Revision > MaxRevision {
		return blocked(r, 0, fmt.Sprintf("a call has at most %d revisions", MaxRevision))
	}
	next, err := r.revise(v, q, ring)
	if err != nil {
		return unreadable(err.Error())
	}
	if loss := v.lostRevision(); loss != nil {
		v.Record, v.Loss = next, loss
		return Decision{Action: Amend, Next: Presume(v, q.Policy.AttemptTimeout, q.Claim), Condition: q.condition()}
	}
	return claim(next, q, Guard{})
}

// lostRevision is the loss in which an attempt of the next revision may have gone with the record of it.
func (v *View) lostRevision() *Loss {
	if v.Loss != nil {
		return v.Loss
	}
	for _, a := range v.Record.Attempts {
		if a.Presumed { // the loss was looked into for this revision only
			return &Loss{From: v.Record.FirstStarted, At: a.Started}
		}
	}
	return nil
}

func blocked(r *Record, after time.Duration, detail string) Decision {
	d := refuse(r, RevisionBlocked, detail)
	d.Refusal.RetryAfter = after
	return d
}

// unproved says what is missing for every attempt of the revision to have a proof that it cannot be executed any more, and how
// long that may take: absence is one only once the gateway has forgotten the old key, since until then a send that is still on
// its way under it would be executed.
func unproved(r *Record, q Request, now Now) (left time.Duration, detail string) {
	keep, known := r.Facts.Retention, r.Facts.Retention > 0
	if r.Facts.Gateway == q.Facts.Gateway && r.Facts.Route == q.Facts.Route { // the longer of both settings counts
		keep, known = max(keep, q.Facts.Retention), known && q.Facts.Retention > 0
	}
	keep += q.Policy.margin(keep)
	for _, a := range r.Attempts {
		switch {
		case a.Doubtful() || a.Outcome == Succeeded:
			return time.Minute, fmt.Sprintf("attempt %d of revision %d has no proof", a.Number, r.Revision)
		case a.Outcome == Declined, a.Proof == proofAnswer, a.Proof == proofStored, a.Proof == proofZero, a.Proof == proofOperator:
			continue
		case !known:
			return 0, "that nothing was executed was found by a lookup, and the gateway does not say how long it keeps its keys: a new call key is needed"
		}
		if age := now.oldest(a.ended()); age < keep {
			left = max(left, keep-age)
			detail = "that nothing was executed was found by a lookup: the next revision follows once the gateway has forgotten the key of this one"
		}
	}
	return left, detail
}

// ended is the last moment, by both clocks, at which the attempt may have reached the gateway. One that was only presumed started when
// it was presumed.
func (a Attempt) ended() Now {
	length := max(a.Deadline.Sub(a.Started.Store), 0)
	return Now{Store: a.Started.Store.Add(length), Wall: a.Started.Wall.Add(length)}
}

// oldest is how long ago an instant was at least: by the clock that has counted less.
func (n Now) oldest(since Now) time.Duration {
	return min(n.Store.Sub(since.Store), n.Wall.Sub(since.Wall))
}

// revise is the record at its next revision, with nothing sent of it.
func (r *Record) revise(v View, q Request, ring Ring) (Record, error) {
	f, err := ring.Sign(q.CanonicalVersion, q.Canonical)
	if err != nil {
		return Record{}, err
	}
	next := r.Clone()
	next.Past = append(next.Past, Past{
		Revision: r.Revision, State: r.State, Facts: r.Facts, FirstStarted: r.FirstStarted, Attempts: r.Attempts,
	})
	next.Revision, next.Attempt, next.Claim, next.Attempts = q.Revision, 0, ClaimID{}, nil
	next.State, next.Era = StateOpen, v.Era
	next.Fingerprint, next.Facts, next.FirstStarted = f, q.Facts, Now{}
	next.Sender, next.Deadline = Guard{}, time.Time{}
	next.Answer, next.Reconciled, next.Object, next.Payment, next.Poll = nil, false, "", "", false
	next.Misses, next.LastMiss, next.NextCheck = 0, time.Time{}, time.Time{}
	return next, nil
}
