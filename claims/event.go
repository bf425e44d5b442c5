package claims

// EventOf is what is to be told of a record's change: that a doubt came to rest, that what was thought open has succeeded after
// all, that a person is needed, or that the money of a call that succeeded moved. nil: nothing. A send that is answered by its own
// sender without an earlier doubt is no event: its caller has the answer.
func EventOf(was, is Record) *Event {
	doubt := was.inDoubt() || was.foundOut(is) || was.State == StateOpen && is.State == StateSucceeded
	rested := doubt && is.State != was.State && is.State != StatePending && is.State != StateUnknown
	alarmed := is.State == StateReview && was.State != StateReview
	moved := was.State == StateSucceeded && is.State == StateSucceeded && was.Payment != is.Payment
	if !was.Exists() || !rested && !alarmed && !moved {
		return nil
	}
	return &Event{
		Key: is.Key, Revision: is.Revision, Attempt: is.Attempt,
		From: was.State, State: is.State, Outcome: is.Outcome(), Payment: is.Payment,
	}
}

// foundOut reports whether the outcome of the pending attempt was learnt from anybody but its sender.
func (r *Record) foundOut(is Record) bool {
	for _, a := range is.Attempts {
		if r.State == StatePending && a.Claim == r.Claim {
			return a.Proof != "" && a.Proof != proofAnswer && a.Proof != proofStored && a.Proof != proofZero
		}
	}
	return false
}

// inDoubt reports whether the record waited for somebody to find out, before its sender spoke or instead of it.
func (r *Record) inDoubt() bool {
	if r.State != StatePending {
		return r.State == StateUnknown || r.State == StateReview
	}
	for _, a := range r.Attempts {
		if a.Claim != r.Claim && a.Doubtful() {
			return true
		}
	}
	return false
}
