package claims

import (
	"context"
	"errors"
	"time"
)

// round is one request's progress through run.
type round struct {
	f      *Fence
	c      Call
	asked  bool
	probed bool
	joined bool    // waited for another request's attempt: this one sends nothing
	last   *Sent   // the last attempt of this request, or the one that it joined
	view   View    // as last read
	target *View   // of the call that is undone
	lease  string  // once lost, it stays so
	since  Reading // when the waiting began: when the request came, or when its own attempt was over
	pause  time.Duration
	poll   time.Duration // of another process's attempt
	// confirmed: what is read now is as lasting as an acknowledged write.
	confirmed bool
	spins     int // steps since the last pause
	sends     int
	sent      ClaimID // of the last attempt that this request sent
	// unwritten counts claims whose write failed and left no trace, since began.
	unwritten int
	began     Reading
	foreign   bool // refused for its scope, not for its lease
}

func (r *round) guard() Guard {
	if r.c.Guard.IsZero() {
		return r.f.Instance.Guard()
	}
	return r.c.Guard
}

func (r *round) request(g Guard) Request {
	c := &r.c
	return Request{
		Key: c.Key, Revision: c.Revision, Guard: g, Instance: r.f.Instance.Guard(),
		Canonical: c.Canonical, CanonicalVersion: c.CanonicalVersion, Also: c.Also, Facts: c.Facts, Policy: c.Policy,
		Claim: NewClaimID(), Working: r.f.Working(r.view.Record.Claim), Asked: r.asked, Probed: r.probed,
		Undoes: c.Undoes, Part: c.Part, Target: r.target,
	}
}

// read takes the snapshots that the decision is about. The target comes first: what is written of the undo's own record is then
// compared with a version that was read later, and both versions are compared when they are written.
func (r *round) read(ctx context.Context, g Guard) error {
	r.target = nil
	if r.c.Undoes != "" {
		t, err := r.f.get(ctx, Key{r.c.Key.Tenant, r.c.Undoes}, g)
		if err != nil {
			return err
		}
		r.target = &t
	}
	view, err := r.f.get(ctx, r.c.Key, g)
	if err != nil {
		return err
	}
	r.view = view
	return nil
}

// leastLook is how long a lookup may take for an app that does not want to wait.
const leastLook = 2 * time.Second

// step reads, decides and acts once.
func (r *round) step(ctx context.Context) (Result, bool) {
	g := r.guard()
	if g.IsZero() {
		return refused(leaseLost()), true
	}
	if err := r.read(ctx, g); err != nil {
		return refused(storeRefusal(err)), true
	}
	view := &r.view
	if g.External() && view.Quarantine <= 0 && view.Guard.Status == LeaseAbsent { // a token that the store has not seen yet
		if ref := r.f.present(ctx, g); ref != nil {
			return refused(ref), true
		}
		return Result{}, false
	}
	d := Decide(*view, r.request(g), r.f.Keys)
	switch d.Action {
	case Claim:
		return r.mayClaim(ctx, d)
	case Amend:
		return r.amend(ctx, d)
	case Reconcile:
		r.asked = true
		if r.f.Reconcile != nil {
			ctx, cancel := context.WithTimeout(ctx, max(r.left(), leastLook))
			defer cancel()
			look, done := r.f.patience(ctx)
			if err := r.f.Reconcile(look, d.Look); err != nil && look.Err() == nil {
				r.f.Log.Warn("reconcile", "call", d.Look.Call, "error", err)
			}
			done()
		}
		return Result{}, false
	case Replay:
		return r.replay(), true
	}
	if d.Refusal.Reason == CallCancelled || d.Refusal.Reason == NothingToUndo {
		if !r.confirmed { // perhaps another request wrote it and was never told so: a failover could still take it away
			if err := r.f.confirmed(); err != nil {
				return refused(storeRefusal(err)), true
			}
			r.confirmed = true
			return Result{}, false
		}
	}
	r.foreign = d.Refusal.Reason == Fenced && view.Guard.Live()
	switch d.Refusal.Reason {
	case InDoubt:
		return r.doubt(ctx, d.Refusal)
	case InFlight:
		return r.join(ctx, d.Refusal)
	}
	return refused(d.Refusal), true
}

// mayClaim claims and sends, unless this request must not: its app is gone, it has sent what the store has lost, or it has only
// waited for another's attempt.
func (r *round) mayClaim(ctx context.Context, d Decision) (Result, bool) {
	rec := &r.view.Record
	switch {
	case r.joined:
		return r.joinedUnsent(ctx)
	case ctx.Err() != nil: // nothing is started for an app that is gone
		return refused(&Refusal{Reason: NotSent, Detail: "the app hung up", Outcome: rec.Outcome()}), true
	case r.sends > 0 && !rec.knows(r.sent): // a restored file: what this request sent is still out there
		return refused(&Refusal{Reason: InDoubt, Detail: "the call was sent, and the store has lost its record", RetryAfter: time.Minute}), true
	case r.f.sending.Err() != nil:
		return refused(&Refusal{Reason: Draining, Detail: "the sidecar is shutting down", RetryAfter: time.Second, Outcome: rec.Outcome()}), true
	case r.f.Instance.Left() <= 0: // nothing could be sent under it
		return refused(leaseLost()), true
	}
	return r.attempt(ctx, d)
}

// amend writes what the decision made of a record, and lets it be made again.
func (r *round) amend(ctx context.Context, d Decision) (Result, bool) {
	was := r.view.Record
	if r.target != nil && d.Next.Key == (Key{r.c.Key.Tenant, r.c.Undoes}) {
		was = r.target.Record
	}
	_, err := r.f.swap(ctx, d.Condition, r.writes(d, change(was, d.Next))...)
	if err != nil && !errors.Is(err, ErrLost) {
		return r.notClaimed(err)
	}
	return Result{}, false
}

// writes are a decision's: its own record's, then that of the call that is undone.
func (r *round) writes(d Decision, own Write) []Write {
	if d.Target == nil {
		return []Write{own}
	}
	return []Write{own, change(r.target.Record, *d.Target)}
}

// change is the write of what became of a record.
func change(was, next Record) Write {
	return Write{Version: was.Version, Next: next, Event: EventOf(was, next)}
}

func (r *round) replay() Result {
	rec := &r.view.Record
	res := Result{Answer: rec.Answer, Outcome: rec.Outcome(), Source: SourceReplayed}
	switch {
	case r.joined:
		res.Source = SourceJoined
	case rec.Reconciled: // made from a lookup: not the bytes that the gateway once sent
		res.Source = SourceReconciled
	}
	return res
}

// doubt asks again while the app is willing to wait. A server error in the gateway's own shape is passed on: every SDK takes
// it for one. Any other unlisted answer could be taken for a definite one, so the app is told that the call is in doubt.
func (r *round) doubt(ctx context.Context, ref *Refusal) (Result, bool) {
	if r.left() > r.pause && r.f.Reconcile != nil && r.f.wait(ctx, r.pause) {
		r.pause = min(2*r.pause, 5*time.Second)
		r.asked, r.spins = false, 0
		return Result{}, false
	}
	if r.last != nil && r.last.Answer != nil && r.last.Answer.Status >= 500 && r.last.Error {
		res := Result{Answer: r.last.Answer, Outcome: Unknown, Source: SourceSent}
		if r.sends == 0 {
			res.Source = SourceJoined
		}
		return res, true
	}
	return refused(ref), true
}

// left is how much longer this request may wait for others.
func (r *round) left() time.Duration { return r.c.Wait - r.f.Clock().Sub(r.since) }

// finish adds what is the same for every result. A refusal made without the record tells nothing of it; if this request had
// sent before, its call is in doubt, whatever came in the way.
func (r *round) finish(res Result) Result {
	unread := false
	if ref := res.Refusal; ref != nil {
		fenced := ref.Reason == Fenced || ref.Reason == ScopeFinished
		if fenced && !r.foreign { // the caller must learn that it was superseded, also when it had sent
			r.lease = "lost"
		}
		unread = fenced || ref.Reason == StoreUnavailable || ref.Reason == Quarantine || ref.Reason == LeaseLost
		if r.sends > 0 && saysUnsent(ref.Reason) {
			res = refused(&Refusal{Reason: InDoubt, Detail: "the call was sent and its outcome is not known yet: " + ref.Detail, RetryAfter: time.Second})
		}
	}
	if !unread {
		res.Attempt, res.State = r.view.Record.Attempt, r.view.Record.State
	}
	res.Sends = r.sends
	if r.last != nil {
		res.Cause = r.last.Cause
	}
	res.Lease = r.lease
	switch {
	case r.lease != "":
	case r.c.Guard.IsZero():
		res.Lease = "instance"
	case r.c.Guard.External():
		res.Lease = "external"
	default:
		res.Lease = "live"
	}
	return res
}
