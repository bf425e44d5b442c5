package checklist

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/fence-sidecar/fence-sidecar/claims"
	"github.com/fence-sidecar/fence-sidecar/gateways"
)

// sale is a charge that a step made, and what later requests of the step use.
type sale struct {
	request
	call   string // whose key it has
	first  Exchange
	names  map[string]string // with what Setup and Charge saved
	saved  map[string]string // what Setup and Charge saved
	answer time.Time         // when its answer was there
	start  claims.Now
}

// plan is a step: its name, what is needed for it, and how it is gone through.
type plan struct {
	name  string
	why   func(r *run) string // why it is left out; "": it is not
	try   func(ctx context.Context, r *run, s *Step) error
	costs func(r *run) Cost
}

// steps goes through what is not done yet. Evidence is kept after each step.
func (r *run) steps(ctx context.Context) error {
	for _, p := range plans() {
		if r.state.Evidence.done(p.name) {
			continue
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		s := &Step{Name: p.name}
		if why := p.why(r); why != "" {
			s.Why = why
			r.say(p.name, "not tried: %s", why)
			r.state.put(s)
			continue
		}
		r.state.Series++
		if err := r.state.write(); err != nil { // a process that is killed in the step leaves its keys used
			return err
		}
		err := p.try(ctx, r, s)
		if no, ok := errors.AsType[*unsendable](err); ok && p.name != StepSuccess {
			s.Why, err = r.secrets.clean(no.Error()), nil
		}
		s.Done = err == nil && s.Why == "" && ctx.Err() == nil
		r.state.put(s)
		if kept := r.state.write(); err == nil {
			err = kept
		}
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// series names the calls of a step, anew each time that it is begun: what an interrupted one left under its key does not count.
func (r *run) series(s *Step) string { return fmt.Sprintf("%s#%d", s.Name, r.state.Series) }

// begin makes what a charge needs, then the charge.
func (r *run) begin(ctx context.Context, s *Step, v *gateways.Variation) (*sale, error) {
	sl, err := r.prepare(ctx, s, v)
	if err != nil || s.Why != "" {
		return nil, err
	}
	r.charge(ctx, s, sl)
	return sl, nil
}

// prepare runs Setup and composes the charge.
func (r *run) prepare(ctx context.Context, s *Step, v *gateways.Variation) (*sale, error) {
	sl := &sale{call: r.series(s), names: r.values(r.series(s)), saved: map[string]string{}}
	if v != nil {
		maps.Copy(sl.names, v.Vars)
	}
	for i, one := range r.g.Checks.Setup {
		q, err := r.compose(order{sample: one, values: sl.names, call: fmt.Sprintf("%s/setup%d", r.series(s), i)})
		if err != nil {
			return nil, err
		}
		x, a := r.exchange(ctx, s, RoleSetup, q)
		if a == nil || a.Status/100 != 2 {
			s.Why = fmt.Sprintf("setup %s %s was answered %s", x.Method, x.Target, answered(x))
			return nil, nil
		}
		save(sl.names, one, a)
		save(sl.saved, one, a)
		s.made(one, a, r.secrets.hide)
	}
	q, err := r.compose(order{sample: r.g.Checks.Charge, vary: v, values: sl.names, call: r.series(s)})
	sl.request = q
	return sl, err
}

func (r *run) charge(ctx context.Context, s *Step, sl *sale) {
	if r.hook != nil {
		r.hook.of(sl.facts.Route) // before it is sent: a notice can come before the answer
	}
	sl.start = claims.Now{Store: r.now(), Wall: r.now()}
	x, a := r.exchange(ctx, s, RoleFirst, sl.request)
	sl.first, sl.answer = x, r.now()
	if a != nil {
		save(sl.names, r.g.Checks.Charge, a)
		save(sl.saved, r.g.Checks.Charge, a)
	}
	if x.Object != "" {
		sl.names["object"] = x.Object
	}
	r.say(s.Name, "%s %s: %s", x.Method, x.Target, answered(x))
}

// save keeps what later samples name.
func save(names map[string]string, s *gateways.Sample, a *claims.Answer) {
	for name, pointer := range s.Save {
		if v := gateways.TextAt(a.Body, pointer); v != "" {
			names[name] = v
		}
	}
}

// made notes what a request of Setup made, for the list of what was created.
func (s *Step) made(one *gateways.Sample, a *claims.Answer, hide func(string) string) {
	x := &s.Exchanges[len(s.Exchanges)-1]
	for _, name := range slices.Sorted(maps.Keys(one.Save)) {
		if x.Object == "" {
			x.Object = hide(gateways.TextAt(a.Body, one.Save[name]))
		}
	}
}

func (r *run) repeat(ctx context.Context, s *Step, sl *sale) {
	x, _ := r.exchange(ctx, s, RoleRepeat, sl.request)
	r.say(s.Name, "repeated under the same key: %s", answered(x))
}

// answered says in a few words what came.
func answered(x Exchange) string {
	switch {
	case x.Status == 0:
		return "no answer (" + x.Failure + ")"
	case x.InUse:
		return fmt.Sprintf("%d, key in use", x.Status)
	case x.Points:
		return fmt.Sprintf("%d, points at %s", x.Status, x.Object)
	case x.Object != "":
		return fmt.Sprintf("%d %s, %s", x.Status, x.Outcome, x.Object)
	}
	return strings.TrimSpace(fmt.Sprintf("%d %s", x.Status, x.Outcome))
}

// success charges, looks the charge up until it appears, and repeats it.
func success(ctx context.Context, r *run, s *Step) error {
	sl, err := r.begin(ctx, s, nil)
	if err != nil {
		return err
	}
	if sl == nil || sl.first.Outcome != claims.Succeeded.String() {
		why := s.Why
		if sl != nil {
			why = "it was answered " + answered(sl.first) + " " + sl.first.Excerpt
		}
		s.Why = why
		return fmt.Errorf("%w: %s", ErrNoCharge, r.secrets.clean(why))
	}
	r.state.remember(sl)
	r.lookUntilFound(ctx, s, sl)
	r.repeat(ctx, s, sl)
	if rep := s.role(RoleRepeat); rep.Points {
		r.sight(ctx, s, sl, SightObject, rep.Object)
	}
	return nil
}

// another sends a different request under the first charge's key.
func another(ctx context.Context, r *run, s *Step, o order) (Exchange, error) {
	first := r.state.Evidence.step(StepSuccess).role(RoleFirst)
	o.values, o.call, o.key = r.remembered(), r.state.Call, first.Key
	q, err := r.compose(o)
	if err != nil {
		return Exchange{}, err
	}
	x, _ := r.exchange(ctx, s, RoleOther, q)
	r.say(s.Name, "%s %s under the charge's key: %s", x.Method, x.Target, answered(x))
	return x, nil
}

// amount changes the amount. A refusal counts only if the amount itself is taken: it is sent under a key of its own then.
func amount(ctx context.Context, r *run, s *Step) error {
	v := &gateways.Variation{Vars: map[string]string{"amount": r.g.Checks.Other}}
	x, err := another(ctx, r, s, order{sample: r.g.Checks.Charge, vary: v})
	if err != nil || x.Outcome == claims.Succeeded.String() || x.Status == 0 {
		return err
	}
	sl, err := r.prepare(ctx, s, v)
	if err != nil || sl == nil {
		return err
	}
	c, _ := r.exchange(ctx, s, RoleControl, sl.request)
	r.say(s.Name, "the same under a key of its own: %s", answered(c))
	return nil
}

func endpoint(ctx context.Context, r *run, s *Step) error {
	_, err := another(ctx, r, s, order{sample: r.g.Checks.Endpoint})
	return err
}

func account(ctx context.Context, r *run, s *Step) error {
	_, err := another(ctx, r, s, order{sample: r.g.Checks.Charge, other: true})
	return err
}

// burst sends one request many times at once.
func burst(ctx context.Context, r *run, s *Step) error {
	sl, err := r.prepare(ctx, s, nil)
	if err != nil || sl == nil {
		return err
	}
	r.say(s.Name, "%d × %s %s at once, under one key", r.cfg.Burst, sl.method, sl.target)
	sl.start = claims.Now{Store: r.now(), Wall: r.now()}
	bounded, cancel := context.WithTimeout(ctx, r.cfg.AttemptTimeout)
	defer cancel()
	at, began := r.now(), time.Now()
	as, errs := r.wire.volley(bounded, sl.message, r.cfg.Burst)
	for i := range as {
		x := r.keep(s, RoleFirst, sl.request, at, time.Since(began), as[i], errs[i])
		if x.Object != "" {
			sl.first = x
		}
	}
	sl.answer = r.now()
	r.say(s.Name, "%s", grouped(s.Exchanges))
	r.lookUntilFound(ctx, s, sl)
	return nil
}

// twice charges with a variation and repeats it.
func twice(v func(*gateways.Checks) *gateways.Variation) func(context.Context, *run, *Step) error {
	return func(ctx context.Context, r *run, s *Step) error {
		sl, err := r.begin(ctx, s, v(r.g.Checks))
		if err != nil || sl == nil {
			return err
		}
		r.repeat(ctx, s, sl)
		if s.Name == StepFailed {
			r.sight(ctx, s, sl, SightReference, "")
		}
		return nil
	}
}

// empty repeats an operation that has an empty body.
func empty(ctx context.Context, r *run, s *Step) error {
	held, err := r.prepare(ctx, s, r.g.Checks.Held)
	if err != nil || held == nil {
		return err
	}
	x, a := r.exchange(ctx, s, RoleSetup, held.request)
	if a == nil || x.Outcome != claims.Succeeded.String() {
		s.Why = "the charge to work on was answered " + answered(x)
		return nil
	}
	save(held.names, r.g.Checks.Charge, a)
	if x.Object != "" {
		held.names["object"] = x.Object
	}
	q, err := r.compose(order{sample: r.g.Checks.Empty, values: held.names, call: r.series(s) + "/empty"})
	if err != nil {
		return err
	}
	sl := &sale{request: q, names: held.names, saved: map[string]string{}}
	r.charge(ctx, s, sl)
	r.repeat(ctx, s, sl)
	return nil
}

// retention repeats the very first charge: at the end of the first run, and in every later one.
func retention(ctx context.Context, r *run, s *Step) error {
	if old := r.state.Evidence.step(StepRetention); old != nil {
		s.Exchanges = old.Exchanges
	}
	first := r.state.Evidence.step(StepSuccess).role(RoleFirst)
	q, err := r.compose(order{sample: r.g.Checks.Charge, values: r.remembered(), call: r.state.Call})
	if err != nil {
		return err
	}
	if got := digest(q.body); got != r.state.Body {
		return fmt.Errorf("the first charge cannot be repeated: it would not be the same bytes; use the same gateway file and --var as then")
	}
	x, _ := r.exchange(ctx, s, RoleRepeat, q)
	age := x.At.Sub(first.At)
	s.Exchanges[len(s.Exchanges)-1].After = age.Seconds()
	r.say(s.Name, "the first charge again, %s later: %s", round(age), answered(x))
	s.Why = "goes on with every later run"
	if r.cfg.State == "" {
		s.Why = ""
	}
	return nil
}

func round(d time.Duration) string {
	switch {
	case d < 10*time.Second:
		return d.Round(100 * time.Millisecond).String()
	case d < time.Hour:
		return d.Round(time.Second).String()
	}
	return strings.TrimSuffix(fmt.Sprintf("%.1f", d.Hours()), ".0") + "h"
}
