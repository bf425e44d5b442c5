package checklist

import (
	"context"
	"time"

	"github.com/fence-sidecar/fence-sidecar/claims"
	"github.com/fence-sidecar/fence-sidecar/gateways"
)

// hasLookup reports whether the charge's route declares a read.
func (q *request) hasLookup() bool { return q.match.Route != nil && q.match.Route.Lookup != nil }

// lookUntilFound looks a charge up by our reference, at once and until it appears or LookupWait is over.
func (r *run) lookUntilFound(ctx context.Context, s *Step, sl *sale) {
	if !sl.hasLookup() {
		return
	}
	pause, role, object := r.cfg.Poll, SightReference, ""
	if _, why := r.g.RulesOf(sl.facts); why != "" && sl.match.Route.Lookup.Object != "" {
		role, object = SightOwn, sl.first.Object // nothing of the call finds it but what the gateway calls it
	}
	for began := time.Now(); ; pause = min(2*pause, maxPoll) {
		x := r.sight(ctx, s, sl, role, object)
		if x.Kind != claims.Missed.String() && x.Kind != claims.CouldNotTell.String() || time.Since(began)+pause > r.cfg.LookupWait || !wait(ctx, pause) {
			return
		}
	}
}

// wait pauses; false: ctx ended.
func wait(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// sight looks a call up once.
func (r *run) sight(ctx context.Context, s *Step, sl *sale, role, object string) Sight {
	if !sl.hasLookup() {
		return Sight{}
	}
	ctx, cancel := context.WithTimeout(ctx, r.cfg.AttemptTimeout)
	defer cancel()
	status := 0
	ask := func(ctx context.Context, target string) (*claims.Answer, error) {
		header, err := r.lookupHeader()
		if err != nil {
			return nil, err
		}
		a, err := r.wire.send(ctx, message{method: "GET", target: target, header: header})
		if a != nil {
			status = a.Status
		}
		return a, err
	}
	look := r.g.AskAt
	if role == SightAgain {
		look = r.g.AskAgain
	}
	now := r.now()
	facts := gateways.WithObject(sl.facts, object)
	f, err := look(ctx, facts, sl.start, claims.Now{Store: now, Wall: now}, ask)
	if role == SightAgain && object != "" && f.Kind == claims.CouldNotTell {
		f, err = r.g.AskAt(ctx, facts, sl.start, claims.Now{Store: now, Wall: now}, ask)
	}
	x := Sight{
		Role: role, After: max(now.Sub(sl.answer).Seconds(), 0), Status: status, Kind: f.Kind.String(), Reason: r.secrets.clean(f.Reason),
		Object: r.secrets.hide(f.Object), Payment: f.Payment, Twice: f.Kind == claims.Contradiction && f.Alarm,
	}
	if err != nil {
		x.Reason += ": " + r.secrets.clean(err.Error())
	}
	s.Sights = append(s.Sights, x)
	r.say(s.Name, "looked up after %s: %s (%s)", round(time.Duration(x.After*float64(time.Second))), x.Kind, x.Reason)
	return x
}

// lookupHeader are the lines of a read: those of every request, the lookups' own, and the credential.
func (r *run) lookupHeader() ([]claims.Field, error) {
	in, err := inbound(&gateways.Sample{Method: "GET", Target: "/"}, r.g.Checks.Header, r.values(""))
	if err != nil {
		return nil, err
	}
	header := in.Header
	for _, h := range r.g.LookupHeaders {
		if !has(header, h.Name) {
			header = append(header, claims.Field(h))
		}
	}
	return r.credential(header, false)
}
