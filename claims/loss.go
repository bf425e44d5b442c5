package claims

import (
	"slices"
	"time"
)

// losable reports whether an attempt that the store lost could make a difference: the record says that nothing is under way,
// or does not know. What succeeded or was declined stays so, and is replayed; a person decides a review.
func (r *Record) losable(now Now) bool {
	return r.State == StateOpen || r.Reconcilable(now)
}

// doubted is since when the record has been in doubt: of an attempt that was only presumed, since it was.
func (r *Record) doubted() Now {
	if n := len(r.Attempts); n > 0 && r.presumed() && r.Attempts[n-1].Presumed {
		return r.Attempts[n-1].Started
	}
	return r.FirstStarted
}

// Presume takes a call for in doubt after a loss (see View.Loss): it adds an attempt of which the store has no record, made at
// any time of the loss, and puts the record into the store's present era. What then ends the doubt is what ends any: evidence,
// a lookup, a probe with the same key. timeout is the route's attempt timeout, by which such an attempt ended at the latest
// after the loss was noticed; id names the presumed attempt. A record that says what became of the call is returned as it is.
func Presume(v View, timeout time.Duration, id ClaimID) Record {
	next := v.Record.Clone()
	if next.Exists() && !next.losable(v.Now) {
		return next
	}
	next.Era = v.Era
	next.State = StateUnknown
	next.Attempt++
	next.Claim, next.Sender = id, Guard{}
	if end := v.Loss.At.Store.Add(timeout); end.After(next.Deadline) {
		next.Deadline = end
	}
	if !slices.ContainsFunc(next.Attempts, Attempt.Counts) {
		next.FirstStarted = v.Loss.From
	}
	next.Attempts = append(trim(next.Attempts), Attempt{
		Number: next.Attempt, Claim: id, Started: v.Now, Deadline: next.Deadline, Wrote: true, Presumed: true, Cause: "lost",
	})
	next.Misses, next.LastMiss, next.NextCheck = 0, time.Time{}, time.Time{}
	return next
}

// lostUntil is when the last attempt that was presumed had surely ended: until then its sender may be at work, and nothing is
// sent beside it.
func (r *Record) lostUntil() (end time.Time) {
	for _, a := range r.Attempts {
		if a.Presumed && a.Doubtful() && a.Deadline.After(end) {
			end = a.Deadline
		}
	}
	return end
}

// presumed reports whether all that is in doubt are attempts that were only presumed: one lookup that finds nothing then ends
// the doubt, as it would be made before a first send.
func (r *Record) presumed() bool {
	for _, a := range r.Attempts {
		if a.Doubtful() && !a.Presumed {
			return false
		}
	}
	return true
}

// admit adds an attempt whose claim the store lost to the record that there is now: of this one it is known that it was made, so
// that it counts, and keeps the rules of any doubt, beside one that was presumed in its stead.
func (r Record) admit(mine Record, s Sent) (next Record, changed bool) {
	n := len(mine.Attempts)
	doubtful := r.State == StateUnknown || r.State == StateOpen || r.State == StatePending
	if s.Unsent || n == 0 || !doubtful || r.Revision != mine.Revision || r.knows(mine.Claim) {
		return r, false
	}
	next = r.Clone()
	next.Attempts = append(next.Attempts, mine.Attempts[n-1])
	if next.State != StatePending {
		next.State, next.Attempt = StateUnknown, max(next.Attempt, mine.Attempt)
	}
	if next.Deadline.Before(mine.Deadline) {
		next.Deadline = mine.Deadline
	}
	return next, true
}
