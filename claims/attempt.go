package claims

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

// attempt claims, sends once and settles. done is false where the decision must be made again.
func (r *round) attempt(ctx context.Context, d Decision) (Result, bool) {
	admitted, err := r.admit()
	if err != nil {
		return refused(&Refusal{
			Reason: BreakerOpen, Detail: "the gateway's circuit breaker is open: " + err.Error(), RetryAfter: 5 * time.Second,
			Outcome: r.view.Record.Outcome(),
		}), true
	}
	id := d.Next.Claim
	fl := &flight{done: make(chan struct{})}
	r.f.work(id, fl)
	defer func() { r.f.work(id, nil); close(fl.done) }()
	anchor := r.f.Clock() // before the claim leaves: the sender's time ends before the store's deadline
	rec, guard, err := r.claim(ctx, d)
	if err != nil {
		admitted(ErrNotCounted)
		return r.notClaimed(err)
	}
	s, gate := r.send(rec, guard, anchor)
	r.last, r.asked, r.probed = &s, false, r.probed || d.Probe
	fl.sent = s
	if !s.Unsent {
		r.sends++
		r.sent = id
	}
	admitted(verdictOnGateway(s, gate))
	rec, err = r.f.settle(rec, Condition{Guard: d.Condition.Guard, Finisher: d.Condition.Finisher}, r.kept(s), &r.lease)
	if err != nil {
		return refused(&Refusal{Reason: InDoubt, Detail: "the attempt was made; its outcome could not be stored", RetryAfter: time.Second}), true
	}
	r.view.Record, r.since = rec, r.f.Clock()
	r.f.relist(rec)
	r.tellTwin(rec)
	res, done := attempted(rec, id, s, gate)
	if r.lease == "lost" && res.Outcome == NotExecuted {
		// The record was not read under this request's fence: the next holder may have it sent at any moment.
		res.Outcome = Unknown
		if res.Refusal != nil {
			res.Refusal.Outcome = Unknown
		}
	}
	return res, done
}

// tellTwin asks the store whether the other call is still in doubt: another process may have found out.
func (r *round) tellTwin(rec Record) {
	other, ok := r.f.twins.other(&r.c)
	if !ok || rec.Revision != 1 || rec.Attempt != 1 || r.f.Twin == nil {
		return
	}
	if v, err := r.f.get(r.f.sending, other, Guard{}); err == nil && v.Record.State != StateUnknown && v.Record.State != StatePending {
		r.f.twins.forget(&r.c)
		return
	}
	r.f.Twin(rec.Key, other)
}

// relist writes the key of an undo whose record its sender has put back, after the store had lost both, on the call that it undoes
// too. Where that fails, the next repeat of the undo does it.
func (f *Fence) relist(own Record) {
	if own.Undoes == "" || own.Version != 1 {
		return
	}
	v, err := f.get(f.life, Key{own.Key.Tenant, own.Undoes}, Guard{})
	if err != nil {
		return
	}
	if next, lacks := relist(v.Record, &own); lacks {
		if _, err := f.swap(f.life, Condition{}, change(v.Record, next)); err != nil {
			f.Log.Warn("the call that was undone does not name its undo yet", "call", own.Undoes, "undo", own.Key.Call, "error", err)
		}
	}
}

// kept is what of a sender's word may be stored.
func (r *round) kept(s Sent) Sent {
	if r.c.Keep != nil && s.Answer != nil {
		s.Answer = r.c.Keep(s.Answer)
	}
	return s
}

func (r *round) admit() (func(error), error) {
	if r.c.Admit == nil {
		return func(error) {}, nil
	}
	return r.c.Admit()
}

// verdictOnGateway is what an attempt says of the gateway's health.
func verdictOnGateway(s Sent, gate *Refusal) error {
	switch {
	case gate != nil || s.Local:
		return ErrNotCounted
	case s.Answer == nil || s.Answer.Status >= 500:
		return fmt.Errorf("attempt ended with %s", s.Cause)
	}
	return nil
}

// work marks a claim as this process's, being worked on; nil: not any more.
func (f *Fence) work(id ClaimID, fl *flight) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if fl != nil {
		f.working[id] = fl
	} else {
		delete(f.working, id)
	}
}

// errAgain says that the claim was lost to another write: decide again.
var errAgain = errors.New("decide again")

// claim writes the claim and returns the record with the guard's remaining time.
func (r *round) claim(ctx context.Context, d Decision) (Record, *Held, error) {
	w := Write{Version: r.view.Record.Version, Next: d.Next, Claim: true, Timeout: r.c.Policy.AttemptTimeout}
	writes := r.writes(d, w)
	asked := r.f.Clock()
	if r.unwritten == 0 {
		r.began = asked
	}
	sw, err := r.f.swap(ctx, d.Condition, writes...)
	if err != nil && !Refused(err) {
		asked = r.f.Clock()
		sw, err = r.f.confirm(ctx, d)
	}
	if err != nil {
		return Record{}, nil, err
	}
	left := sw.Guard.Remaining
	if sw.Guard.Finisher { // the last token of its scope: nobody can take it over
		left = ExternalTrust
	}
	return sw.Records[0], newHeld(r.f.Leases, r.f.Clock, r.f.Times, d.Condition.Guard, asked, left), nil
}

// confirm finds out about a claim whose write ended in an error. The row is ours only by its claim id, and is sent on only
// after one further acknowledged write of it, in which the leases are checked again. All of it takes one StoreTimeout at most.
func (f *Fence) confirm(ctx context.Context, d Decision) (Swapped, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), f.StoreTimeout)
	defer cancel()
	for pause := 50 * time.Millisecond; pause < time.Second; pause *= 2 {
		v, err := f.get(ctx, d.Next.Key, d.Condition.Guard)
		if err == nil {
			if !v.Record.Mine(d.Next.Revision, d.Next.Attempt, d.Next.Claim) || v.Record.State != StatePending {
				f.abandon(d, f.StoreTimeout) // it may land yet
				return Swapped{}, errAgain
			}
			sw, err := f.Store.Swap(ctx, Condition{Guard: d.Condition.Guard, Finisher: d.Condition.Finisher, Sender: d.Condition.Sender},
				Write{Version: v.Record.Version, Next: v.Record})
			if err == nil {
				return sw, nil
			}
			if Refused(err) && !errors.Is(err, ErrLost) {
				f.abandon(d, 0)
				return Swapped{}, err
			}
		}
		if !sleep(ctx, pause) {
			break
		}
	}
	f.abandon(d, 0)
	return Swapped{}, errors.New("the claim could not be confirmed: nothing was sent")
}

// abandon records, after a while and as soon as the store lets it, that a claim which perhaps was written sent nothing.
func (f *Fence) abandon(d Decision, after time.Duration) {
	f.wg.Go(func() {
		if after > 0 && !sleep(f.sending, after) {
			return // the process ends: the claim stays pending until its deadline
		}
		rec, err := f.reread(d.Next.Key)
		if err != nil || !rec.Mine(d.Next.Revision, d.Next.Attempt, d.Next.Claim) {
			return
		}
		if _, err := f.settle(rec, Condition{Guard: d.Condition.Guard, Finisher: d.Condition.Finisher}, Sent{Unsent: true, Cause: "unconfirmed"}, new(string)); err != nil {
			f.Log.Warn("an unsent claim stays pending until its deadline", "call", rec.Key.Call)
		}
	})
}

// reread reads a record until the store answers or the process ends.
func (f *Fence) reread(k Key) (Record, error) {
	for pause := 20 * time.Millisecond; ; pause = min(2*pause, 5*time.Second) {
		v, err := f.get(f.life, k, Guard{})
		if err == nil {
			return v.Record, nil
		}
		if !sleep(f.life, pause) {
			return Record{}, err
		}
	}
}

// notClaimed turns a failed claim into a result or another round.
func (r *round) notClaimed(err error) (Result, bool) {
	fenced, ok := errors.AsType[*FencedError](err)
	switch {
	case errors.Is(err, errAgain):
		return r.again(err)
	case errors.Is(err, ErrLost), errors.Is(err, ErrSenderLives):
		return Result{}, false
	case ok && fenced.Sender:
		return refused(leaseLost()), true
	case ok:
		d, _ := checkGuard(GuardView{Status: fenced.Status}, fenced.Guard)
		return refused(d.Refusal), true
	}
	return refused(storeRefusal(err)), true
}

// again decides anew after a claim that left no trace, unless the store has had its time: one that reads and does not write
// is not waited for round by round.
func (r *round) again(err error) (Result, bool) {
	r.unwritten++
	if r.unwritten > 2 || r.f.Clock().Sub(r.began) >= r.f.StoreTimeout {
		return refused(storeRefusal(err)), true
	}
	return Result{}, false
}

// send makes the one attempt that was claimed. The gate is checked immediately before the first byte: the attempt's own
// time, the guard's lease and the process's own must all still be trusted. Both are renewed while the send is under way.
//
// Once a byte has left, the attempt's own time alone ends it: others wait for the store's deadline, which is later, so that
// cutting a send whose lease ran out would only lose its answer.
func (r *round) send(rec Record, guard *Held, anchor Reading) (s Sent, gate *Refusal) {
	mine := Trust{From: anchor, For: r.c.Policy.AttemptTimeout}
	ctx, cancel := context.WithTimeout(r.f.sending, mine.Left(r.f.Clock()))
	defer cancel()
	if !guard.Guard().Instance() {
		r.f.wg.Go(func() { guard.keep(ctx) })
	}
	check := func() error {
		if gate = r.check(rec, mine, guard); gate != nil {
			return gate
		}
		return nil
	}
	defer func() {
		if p := recover(); p != nil {
			r.f.Log.Error("the sender panicked: the attempt is in doubt", "call", r.c.Key.Call)
			s = Sent{Cause: "panic"}
		}
	}()
	s = r.c.Send(ctx, Pass{Facts: rec.Facts, Revision: rec.Revision, Attempt: rec.Attempt, Claim: rec.Claim}, check)
	return s, gate
}

func (r *round) check(rec Record, mine Trust, guard *Held) *Refusal {
	switch {
	case outlived(rec, r.c):
		return &Refusal{Reason: NotSent, Detail: "so long passed between the decision and the claim that the gateway may forget its key"}
	case mine.Left(r.f.Clock()) <= 0:
		return &Refusal{Reason: NotSent, Detail: "the attempt's time ended before its first byte"}
	case r.f.Instance.Left() <= 0:
		return leaseLost()
	case rec.Sender != r.f.Instance.Guard():
		return leaseLost() // taken again meanwhile: the claim was made under the old token
	case !guard.Guard().Instance() && guard.Left() <= 0:
		return &Refusal{Reason: Fenced, Detail: "the lease could not be trusted any more just before the first byte; nothing was sent"}
	}
	return nil
}

// outlived reports whether the key's time would be over by the end of an attempt, by the store's time of its claim: the decision
// looked at an earlier one, and whoever made it may have stood still since.
func outlived(rec Record, c Call) bool {
	n := len(rec.Attempts) - 1
	if n < 1 || !slices.ContainsFunc(rec.Attempts[:n], Attempt.Counts) {
		return false
	}
	keep := rec.Facts.Strict(c.Facts).Retention
	return keep > 0 && rec.Attempts[n].Started.Age(rec.FirstStarted)+c.Policy.AttemptTimeout+c.Policy.margin(keep) >= keep
}

// attempted turns a settled attempt into a result, or into another round where the call is still in doubt.
func attempted(rec Record, id ClaimID, s Sent, gate *Refusal) (Result, bool) {
	o := s.outcome()
	told := o == Succeeded && rec.State == StateSucceeded ||
		o == Declined && rec.State == StateDeclined ||
		o == NotExecuted && rec.State == StateOpen && rec.Claim == id
	switch {
	case !told, s.Answer == nil && o != NotExecuted:
		return Result{}, false
	case s.Answer != nil:
		return Result{Answer: s.Answer, Outcome: rec.Outcome(), Source: SourceSent}, true
	case gate != nil:
		gate.Outcome = rec.Outcome()
		return refused(gate), true
	}
	why := "the gateway could not be reached (" + s.Cause + ")"
	if s.Detail != "" {
		why = "the request could not be made: " + s.Detail
	}
	return refused(&Refusal{Reason: NotSent, Detail: why + "; nothing was sent", RetryAfter: time.Second, Outcome: rec.Outcome()}), true
}

// settle stores the sender's word, however long the store takes: under the caller's condition where the record still names
// the claim, else as evidence, which needs none. lease becomes "lost" where the guard was refused. A record that the store has
// lost is put back by its sender. It fails only when the process ends first.
func (f *Fence) settle(rec Record, under Condition, s Sent, lease *string) (Record, error) {
	mine, rev, att, id, perhaps := rec, rec.Revision, rec.Attempt, rec.Claim, false
	for pause := 20 * time.Millisecond; ; pause = min(2*pause, 5*time.Second) {
		was, write, cond := rec, Write{Version: rec.Version}, under
		var ok bool
		if !rec.Exists() {
			rec, cond = mine, Condition{}
			was = mine
		}
		write.Next, ok = Settle(rec, rev, att, id, s)
		if write.Version != 0 && (!ok || *lease == "lost") {
			cond = Condition{}
			write.Next, ok = f.late(rec, mine, s)
		}
		var sw Swapped
		var err error
		switch {
		case ok:
			write.Event = EventOf(was, write.Next)
			sw, err = f.swap(f.life, cond, write)
		case perhaps: // told already, by a write of ours that nobody acknowledged: look again once all is
			err = f.confirmed()
		default:
			return rec, nil
		}
		fenced := isFenced(err)
		switch {
		case err == nil && ok:
			return sw.Records[0], nil
		case err == nil:
			perhaps = false
			if rec, err = f.reread(mine.Key); err != nil {
				return rec, err
			}
			continue
		case errors.Is(err, ErrLost):
			rec = sw.Records[0]
			continue
		case fenced && *lease == "": // what is there now decides: the record may be gone with the lease
			*lease = "lost"
			if rec, err = f.reread(mine.Key); err != nil {
				return rec, err
			}
			continue
		}
		f.Log.Warn("settle not acknowledged; reading again", "call", rec.Key.Call, "error", err)
		perhaps = perhaps || !Refused(err)
		if !sleep(f.life, pause) {
			return rec, err
		}
		if rec, err = f.reread(mine.Key); err != nil {
			return rec, err
		}
	}
}

// isFenced reports whether the caller's lease does not hold, or cannot be known to hold.
func isFenced(err error) bool {
	_, fenced := errors.AsType[*FencedError](err)
	_, quarantined := errors.AsType[*QuarantineError](err)
	return fenced || quarantined
}

func (f *Fence) confirmed() error {
	ctx, cancel := context.WithTimeout(f.life, f.StoreTimeout)
	defer cancel()
	return f.Store.Confirm(ctx)
}

// late is the word of the sender of mine's attempt as evidence; ok is false where it says nothing or is told already.
func (f *Fence) late(rec, mine Record, s Sent) (Record, bool) {
	revision, attempt, id := mine.Revision, mine.Attempt, mine.Claim
	rec, admitted := rec.admit(mine, s)
	if !s.outcome().Definite() {
		if admitted {
			rec.note(id, s)
		}
		if s.Object != "" && rec.Revision == revision && rec.Object == "" { // a refusal that points at the first object
			rec.names(s.Object)
			admitted = admitted || rec.Object != ""
		}
		return rec, admitted
	}
	next, changed := Late(rec, Evidence{
		Revision: revision, Attempt: attempt, Claim: id, Outcome: s.outcome(), Source: s.proof(),
		Answer: s.Answer, Payment: s.Payment, Stored: s.Stored,
	})
	if changed {
		if next.Revision == revision {
			next.note(id, s)
			next.names(s.Object)
		}
		f.Log.Warn("the record has moved on: the answer is kept as evidence", "call", rec.Key.Call, "outcome", s.outcome().String())
	}
	return next, changed
}
