package claims

import (
	"context"
	"time"
)

// flight is one attempt of this process while it is under way: requests of the same call wait for it.
type flight struct {
	done chan struct{} // closed once the attempt is settled
	sent Sent          // what the sender saw; after done
}

// Another process's attempt is asked for at these intervals, doubled each time.
const (
	firstPoll = 50 * time.Millisecond
	lastPoll  = time.Second
)

// join waits for an attempt that is in flight, as long as the app is willing to. In this process it is woken by the sender; in
// another it asks the store. It never claims itself; its fence is checked once more by the decision that follows.
func (r *round) join(ctx context.Context, ref *Refusal) (Result, bool) {
	left := r.left()
	if left <= 0 || r.f.sending.Err() != nil {
		return refused(ref), true
	}
	if r.view.Record.State != StatePending { // the call that is to be undone is
		return r.doubt(ctx, ref)
	}
	ctx, done := r.f.patience(ctx)
	defer done()
	if fl := r.f.flight(r.view.Record.Claim); fl != nil {
		ctx, cancel := context.WithTimeout(ctx, left)
		defer cancel()
		select {
		case <-fl.done:
			r.last, r.joined, r.spins = &fl.sent, true, 0
			return Result{}, false
		case <-ctx.Done():
			return refused(ref), true
		}
	}
	if r.poll == 0 {
		r.poll = firstPoll
	}
	if !sleep(ctx, min(r.poll, left)) || r.left() <= 0 {
		return refused(ref), true
	}
	r.poll = min(2*r.poll, lastPoll)
	r.joined, r.asked, r.spins = true, false, 0
	return Result{}, false
}

func (f *Fence) flight(id ClaimID) *flight {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.working[id]
}

// joinedUnsent is the result of a request that joined an attempt which, as it turned out, may be followed by another one: that is
// for the app to ask for.
func (r *round) joinedUnsent(ctx context.Context) (Result, bool) {
	rec := &r.view.Record
	if rec.State != StateOpen {
		return r.doubt(ctx, &Refusal{
			Reason: InDoubt, Detail: "the attempt that this request joined has no known outcome yet; the sidecar keeps asking the gateway",
			RetryAfter: 5 * time.Second,
		})
	}
	if rec.Answer != nil && rec.Answer.Body != nil {
		return r.replay(), true
	}
	return refused(&Refusal{
		Reason: NotSent, Detail: "the attempt that this request joined did not reach the gateway; repeat the call", RetryAfter: time.Second, Outcome: rec.Outcome(),
	}), true
}
