package claims

import (
	"context"
	"errors"
	"time"
)

// ShadowPrefix begins the tenants that shadow records are kept under: "shadow:" and the tenant. No real call has one.
const ShadowPrefix = "shadow:"

// What enforcing would have done with a request.
const (
	WouldSend      = "send"
	WouldReplay    = "replay"    // a stored answer
	WouldReconcile = "reconcile" // an earlier attempt got no answer: it would be looked up first
	WouldRefuse    = "refused"
	WouldPass      = "pass"      // it is none of the fence's business
	WouldNotTell   = "undecided" // the store did not say in time
)

// Would is what enforcing would have done with a request that only its shadow was judged.
type Would struct {
	What   string
	Reason Reason // of WouldRefuse
}

func (w Would) String() string {
	if w.What == WouldRefuse {
		return w.What + ":" + string(w.Reason)
	}
	return w.What
}

// Refused reports whether enforcing would have refused the request.
func (w Would) Refused() bool { return w.What == WouldRefuse }

// ShadowTime bounds a shadow's decision.
const ShadowTime = time.Second

// Shadow decides about a request as Do would, in records of its own, while the request passes whatever is decided. It protects
// nothing. The channel yields one Would; whoever waits for it gives up after ShadowTime. sent takes what came of the request and
// must get it, also where nobody waited.
//
// No record of it is ever pending, unknown or in review, so that nobody looks after one: what is in flight, or got no answer, is
// kept as an open record with a doubtful attempt, and only the next shadow of the same call sees the doubt.
func (f *Fence) Shadow(c Call, sent <-chan Sent) <-chan Would {
	told := make(chan Would, 1)
	if !f.enter() {
		told <- Would{WouldRefuse, Draining}
		return told
	}
	go func() {
		defer f.wg.Done()
		defer f.inflight.Add(-1)
		s := &shadow{f: f, c: c}
		s.c.Key.Tenant = ShadowPrefix + c.Key.Tenant
		ctx, cancel := context.WithTimeout(f.life, ShadowTime)
		told <- s.decide(ctx)
		cancel()
		s.settle(<-sent)
	}()
	return told
}

// shadow is one request's.
type shadow struct {
	f        *Fence
	c        Call
	claimed  *Record // as written
	admitted func(error)
}

// decide runs the decision of an enforcing fence and claims where that would have claimed.
func (s *shadow) decide(ctx context.Context) Would {
	for range 5 {
		w, err := s.step(ctx)
		if err == nil {
			return w
		}
		s.told(ErrNotCounted)
		_, fenced := errors.AsType[*FencedError](err)
		switch {
		case errors.Is(err, ErrLost): // a twin was faster
		case fenced && s.c.Guard.IsZero():
			return Would{WouldRefuse, LeaseLost}
		case fenced:
			return Would{WouldRefuse, Fenced}
		case Refused(err):
			return Would{WouldRefuse, storeRefusal(err).Reason}
		default:
			return Would{What: WouldNotTell}
		}
	}
	return Would{What: WouldNotTell}
}

func (s *shadow) step(ctx context.Context) (Would, error) {
	r := &round{f: s.f, c: s.c}
	g := r.guard()
	if g.IsZero() {
		return Would{WouldRefuse, LeaseLost}, nil
	}
	if err := r.read(ctx, g); err != nil {
		return Would{}, err
	}
	r.view = shadowed(r.view, g)
	if r.target != nil {
		t := shadowed(*r.target, g)
		r.target = &t
	}
	for range 8 {
		d := Decide(r.view, r.request(g), s.f.Keys)
		switch d.Action {
		case Claim:
			return s.claim(ctx, r, d)
		case Replay:
			return Would{What: WouldReplay}, nil
		case Reconcile:
			return Would{What: WouldReconcile}, nil
		case Amend: // as if it were written
			if r.target != nil && d.Next.Key == r.target.Record.Key {
				r.target.Record = d.Next
			} else {
				r.view.Record = d.Next
				if d.Next.Era == r.view.Era {
					r.view.Loss = nil
				}
			}
			continue
		}
		return Would{WouldRefuse, d.Refusal.Reason}, nil
	}
	return Would{What: WouldNotTell}, nil
}

// shadowed shows a snapshot as an enforcing fence would have it: an open record with a doubtful attempt is pending, then unknown.
// A token that an application counts itself is believed: its mark is not raised for a shadow.
func shadowed(v View, g Guard) View {
	r := &v.Record
	if r.State == StateOpen && len(r.Attempts) > 0 && r.Attempts[len(r.Attempts)-1].Doubtful() {
		r.State = StateUnknown
		if a := r.Attempts[len(r.Attempts)-1]; a.Cause == "" && v.Now.Store.Before(r.Deadline) {
			r.State = StatePending
		}
	}
	if g.External() && v.Guard.Status == LeaseAbsent {
		v.Guard.Status = LeaseLive
	}
	return v
}

// claim asks the breaker and writes the claim.
func (s *shadow) claim(ctx context.Context, r *round, d Decision) (Would, error) {
	admitted, err := r.admit()
	if err != nil {
		return Would{WouldRefuse, BreakerOpen}, nil
	}
	s.admitted = admitted
	own := Write{Version: r.view.Record.Version, Next: d.Next, Claim: true, Timeout: s.c.Policy.AttemptTimeout}
	own.Next.State = StateOpen
	ws := []Write{own}
	if d.Target != nil {
		ws = append(ws, Write{Version: r.target.Record.Version, Next: *d.Target})
	}
	sw, err := s.f.Store.Swap(ctx, d.Condition, ws...)
	if err != nil {
		return Would{}, err
	}
	s.claimed = &sw.Records[0]
	return Would{What: WouldSend}, nil
}

// settle closes the record with what came of the request. Of an answer only its status is kept.
func (s *shadow) settle(sent Sent) {
	s.told(verdictOnGateway(sent, nil))
	if s.claimed == nil {
		return
	}
	if sent.Answer != nil {
		sent.Answer = &Answer{Status: sent.Answer.Status, Body: []byte{}}
	}
	if sent.Payment = ""; sent.Cause == "" {
		sent.Cause = "answered"
	}
	rec := *s.claimed
	rec.State = StatePending
	next, ok := Settle(rec, rec.Revision, rec.Attempt, rec.Claim, sent)
	if !ok {
		return
	}
	if next.State == StateUnknown {
		next.State = StateOpen
	}
	if _, err := s.f.swap(s.f.life, Condition{}, Write{Version: rec.Version, Next: next}); err != nil && !errors.Is(err, ErrLost) {
		s.f.Log.Debug("a shadow was not closed", "call", rec.Key.Call, "error", err)
	}
}

// told gives the breaker its word, once.
func (s *shadow) told(err error) {
	if s.admitted != nil {
		s.admitted(err)
		s.admitted = nil
	}
}
