package claims

import (
	"fmt"
	"slices"
	"time"
)

// decideUndo decides about a call that undoes another. It runs only for a call that really succeeded, once, and never because of
// a hand-over (guarantee P5): the target's scope must be held, or have been finished, by the very token that asks.
func decideUndo(v View, q Request, ring Ring) Decision {
	t := q.Target
	if t == nil {
		return unreadable("the call that is to be undone was not read")
	}
	if t.Quarantine > 0 { // it began between the two reads
		return quarantined(t.Quarantine)
	}
	q.finisher = t.Guard.Finisher && finishes(&t.Record, &v.Record, q.Guard)
	if d, ok := checkUndoGuard(v, q); !ok {
		return d
	}
	if r := &v.Record; r.Exists() {
		if d, ok := checkPlace(r, q); !ok {
			return d
		}
	}
	if next, lacks := relist(t.Record, &v.Record); lacks { // the write of both was lost, and the undo's record put back by its sender
		return Decision{Action: Amend, Next: next}
	}
	d := decideCall(v, q, ring)
	if d.Action != Claim && (v.Record.Exists() || d.Action != Amend) {
		return d
	}
	if stop, ok := decideTarget(v, q); !ok {
		return stop
	}
	if !slices.Contains(t.Record.Undos, Undo{q.Key.Call, q.Part}) { // also where the undo was perhaps claimed before, and lost
		next := t.Record.Clone()
		next.Undos = append(next.Undos, Undo{q.Key.Call, q.Part})
		d.Target = &next
	}
	return d
}

// relist writes the key of an undo that was claimed into a target that lacks it.
func relist(target Record, own *Record) (next Record, lacks bool) {
	u := Undo{own.Key.Call, own.Part}
	if !own.Exists() || own.Undoes != target.Key.Call || target.State != StateSucceeded || slices.Contains(target.Undos, u) {
		return target, false
	}
	next = target.Clone()
	next.Undos = append(next.Undos, u)
	return next, true
}

// finishes reports whether a guard's scope is the target's; or, of a target without one, that in which the undo was begun.
func finishes(target, own *Record, g Guard) bool {
	return target.Scope == g.Scope || target.Scope == "" && own.Exists() && own.Scope == g.Scope
}

// checkUndoGuard demands a live token, of the target's scope where the target has one; or the one that finished that scope.
func checkUndoGuard(v View, q Request) (Decision, bool) {
	t := &q.Target.Record
	if t.Scope != "" && t.Scope != q.Guard.Scope {
		return refuse(nil, Fenced, "the call that is to be undone belongs to a scope: a token of that scope is needed"), false
	}
	if q.finisher {
		return Decision{}, true
	}
	if d, ok := checkGuard(q.Target.Guard, q.Guard); !ok {
		return d, false
	}
	return checkGuard(v.Guard, q.Guard)
}

// decideTarget says whether the target's state lets it be undone by this call.
func decideTarget(v View, q Request) (Decision, bool) {
	t := q.Target
	r := &t.Record
	if next, moved := ReadEvidence(*r); r.Exists() && moved {
		return Decision{Action: Amend, Next: next}, false
	}
	if t.Loss != nil && (!r.Exists() || r.State != StateReview) {
		return decideLostTarget(v, q)
	}
	if r.Facts.Gateway != "" && r.Facts.Gateway != q.Facts.Gateway {
		return refuse(&v.Record, BadRequest, fmt.Sprintf("the call that is to be undone was made at gateway %s", r.Facts.Gateway)), false
	}
	switch r.State {
	case None:
		return cancelNone(v, q)
	case StateOpen, StateDeclined:
		if r.Undoes != "" { // its key is on the call that it was to undo: cancelled, it would stand in every other's way
			return refuse(&v.Record, BadRequest, "the call that is to be undone is itself an undo that was not executed: it cannot be cancelled, only repeated"), false
		}
		next := r.Clone()
		next.State = StateCancelled
		return Decision{Action: Amend, Next: next, Condition: q.condition()}, false
	case StateCancelled:
		return refuse(&v.Record, NothingToUndo, "the call was never executed: it is cancelled, and will not be sent"), false
	case StateReview:
		return refuse(&v.Record, NeedsReview, "the call that is to be undone: "+reviewDetail(r)), false
	case StatePending, StateUnknown:
		if r.Reconcilable(t.Now) && !q.Asked {
			return Decision{Action: Reconcile, Look: r.Key}, false
		}
		return inFlight(&v.Record, r.Deadline.Sub(t.Now.Store), "the call that is to be undone has no outcome yet"), false
	case StateSucceeded:
		return checkUndone(v, q)
	}
	return unreadable("the call that is to be undone is in a state that this version does not know"), false
}

// decideLostTarget: after a loss the target's record may miss a success, an undo or a revision. It is looked up once first; where
// nothing can be looked up, it is left alone for as long as a call without a record is.
func decideLostTarget(v View, q Request) (Decision, bool) {
	t := *q.Target
	switch r := &t.Record; {
	case r.State == StateOpen:
		next := Presume(t, max(q.Policy.AttemptTimeout, longestAttempt), q.Claim)
		return Decision{Action: Amend, Next: next, Condition: q.condition()}, false
	case r.State == StateCancelled, r.Exists() && t.Now.Store.Sub(t.Loss.At.Store) > LossWatch:
		t.Loss = nil
		q.Target = &t
		return decideTarget(v, q)
	case r.Exists() && !q.Asked:
		return Decision{Action: Reconcile, Look: r.Key}, false
	}
	return inFlight(&v.Record, 0, "the store perhaps lost what came of the call that is to be undone: it has to be looked up first"), false
}

// longestAttempt stands in for the timeout of a route that this request does not know.
const longestAttempt = 10 * time.Minute

// cancelNone cancels a call that was never claimed, so that a late sender of it is refused.
func cancelNone(v View, q Request) (Decision, bool) {
	if q.Guard.Instance() && !q.Policy.NoTokens {
		return refuse(nil, Fenced, "there is no call to undo: to have it cancelled for good, a token of its scope is needed"), false
	}
	next := Record{Key: Key{q.Key.Tenant, q.Undoes}, State: StateCancelled, Revision: 1, Era: v.Era, Facts: Facts{Gateway: q.Facts.Gateway}}
	if !q.Guard.Instance() {
		next.Scope = q.Guard.Scope
	}
	return Decision{Action: Amend, Next: next, Condition: q.condition()}, false
}

// checkUndone lets one undo of all pass, or one for each part.
func checkUndone(v View, q Request) (Decision, bool) {
	r := &q.Target.Record
	for _, u := range r.Undos {
		switch {
		case u.Key == q.Key.Call && u.Part == q.Part:
			return Decision{}, true
		case u.Key == q.Key.Call:
			return refuse(&v.Record, KeyConflict, "this call key undoes another part of the call"), false
		case u.Part == "" || q.Part == "" || u.Part == q.Part:
			return refuse(&v.Record, AlreadyUndone, "another call undoes it already: "+clip(u.Key)), false
		}
	}
	// Of money that did not come the gateway itself decides: what failed once may have come since.
	if r.Payment == PaymentReversed && len(r.Undos) == 0 {
		return refuse(&v.Record, AlreadyUndone, "the gateway says that the money went back already"), false
	}
	if len(r.Undos) >= MaxParts {
		return refuse(&v.Record, BadRequest, fmt.Sprintf("a call is undone in at most %d parts", MaxParts)), false
	}
	return Decision{}, true
}

// MaxParts bounds a call's partial undos: each is kept in its record.
const MaxParts = 1000

// unseen reports whether the call was undone before it came: there is no request to compare with.
func (r *Record) unseen() bool { return r.Exists() && r.Fingerprint.IsZero() }

// decideUnseen never sends, and gives no answer: whether it is this request's cannot be told.
func decideUnseen(r *Record) Decision {
	switch r.State {
	case StateCancelled:
		return cancelled(r)
	case StateReview:
		return refuse(r, NeedsReview, reviewDetail(r))
	case StateSucceeded:
		return refuse(r, AnswerGone, "the call succeeded although it had been cancelled before it came; its answer is not known")
	}
	return unreadable("the call was cancelled before it came, and is " + string(r.State))
}
