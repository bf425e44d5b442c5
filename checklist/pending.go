package checklist

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/fence-sidecar/fence-sidecar/claims"
)

func has(header []claims.Field, name string) bool {
	return slices.ContainsFunc(header, func(f claims.Field) bool { return strings.EqualFold(f.Name, name) })
}

// settled reports whether a payment state is an outcome.
func settled(payment string) bool {
	return payment == claims.PaymentDone || payment == claims.PaymentFailed || payment == claims.PaymentReversed
}

// pending makes a payment whose outcome comes later, and waits for it: by looking it up and, with a listener, for a notice. Where the
// sandbox has no such payment, a listener still waits for the notice of an ordinary one.
func pending(ctx context.Context, r *run, s *Step) error {
	s.Listened = r.hook != nil
	sl, err := r.begin(ctx, s, r.g.Checks.Pending)
	if err != nil || sl == nil {
		return err
	}
	x := sl.first
	if x.Outcome != claims.Succeeded.String() && x.Payment != claims.PaymentPending {
		s.Why = "the payment was answered " + answered(x)
		return nil
	}
	s.Late = r.g.Checks.Pending != nil && !settled(x.Payment)
	if !s.Late && r.hook == nil {
		s.Why = "the payment that should be pending was settled at once"
		return nil
	}
	if s.Late {
		if err := r.advance(ctx, s, sl); err != nil || s.Why != "" {
			return err
		}
	}
	r.say(s.Name, "waiting up to %s for the outcome", r.cfg.OutcomeWait)
	r.awaitOutcome(ctx, s, sl)
	return nil
}

// advance reads the payment, and has a simulator move it on where there is one.
func (r *run) advance(ctx context.Context, s *Step, sl *sale) error {
	r.look(ctx, s, sl)
	a := r.g.Checks.Advance
	if a == nil {
		return nil
	}
	q, err := r.compose(order{sample: a, values: sl.names, call: r.series(s) + "/advance"})
	if err != nil {
		return err
	}
	x, answer := r.exchange(ctx, s, RoleAdvance, q)
	if answer == nil || answer.Status/100 != 2 {
		s.Why = "the sandbox's simulator answered " + answered(x)
	}
	return nil
}

// look reads a payment by the gateway's id where it is known.
func (r *run) look(ctx context.Context, s *Step, sl *sale) Sight {
	object := ""
	if sl.hasLookup() && sl.match.Route.Lookup.Object != "" {
		object = sl.first.Object
	}
	return r.sight(ctx, s, sl, SightAgain, object)
}

func (r *run) awaitOutcome(ctx context.Context, s *Step, sl *sale) {
	pause, seen := r.cfg.Poll, !s.Late || !sl.hasLookup()
	for began := time.Now(); ; pause = min(2*pause, maxPoll) {
		told := r.notices(s, sl)
		if !seen {
			seen = settled(r.look(ctx, s, sl).Payment)
		}
		if seen && (told || r.hook == nil || s.woke() != nil) {
			return
		}
		if time.Since(began)+pause > r.cfg.OutcomeWait || !r.nap(ctx, pause) {
			r.notices(s, sl)
			return
		}
	}
}

// nap pauses, or until a notice comes.
func (r *run) nap(ctx context.Context, d time.Duration) bool {
	if r.hook == nil {
		return wait(ctx, d)
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-r.hook.came:
	case <-ctx.Done():
		return false
	}
	return true
}

// notices takes what the webhook was told so far; true: the payment's outcome is among it.
func (r *run) notices(s *Step, sl *sale) (told bool) {
	if r.hook == nil {
		return false
	}
	for _, n := range r.hook.take() {
		x := Notice{
			After: max(n.at.Sub(sl.answer).Seconds(), 0), Verified: n.verified, Accepted: n.accepted, Problem: r.secrets.clean(n.problem),
			Outcome: n.outcome, Payment: n.payment, Object: r.secrets.hide(n.object),
			ByRef: sl.facts.Reference != "" && slices.Contains(n.references, sl.facts.Reference),
		}
		x.Ours = x.ByRef || n.object != "" && n.object == sl.first.Object
		s.Notices = append(s.Notices, x)
	}
	for _, n := range s.Notices {
		told = told || n.tells()
	}
	return told
}

// tells reports whether a notice is the verified outcome of the payment.
func (n Notice) tells() bool {
	return n.Verified && n.Ours && (settled(n.Payment) || n.Payment == "" && n.Outcome != "" && n.Outcome != claims.Unknown.String())
}

// woke is a notice that tells no outcome that counts, but came when there was one to be read: it has the gateway asked. A notice that
// came while the payment still read as pending is about something earlier.
func (s *Step) woke() *Notice {
	before, after := 0.0, false
	for _, x := range s.Sights {
		if settled(x.Payment) {
			after = true
			break
		}
		before = x.After
	}
	i := slices.IndexFunc(s.Notices, func(n Notice) bool {
		return n.Accepted && n.Ours && (word(n) == "" || !n.Verified) && n.After >= before
	})
	if !after || i < 0 {
		return nil
	}
	return &s.Notices[i]
}
