package checklist

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/fence-sidecar/fence-sidecar/gateways"
)

// Cost is what a step may leave behind at the sandbox.
type Cost struct {
	Requests int // that ask for a change
	Likely   int // objects that are made if the gateway keeps what it promises
	Most     int // and if it keeps nothing
}

func (c Cost) plus(d Cost) Cost {
	return Cost{c.Requests + d.Requests, c.Likely + d.Likely, c.Most + d.Most}
}

// Planned is one step of a plan.
type Planned struct {
	Step string `json:"step"`
	Does string `json:"does"`
	Why  string `json:"why_not,omitempty"` // it is left out
	Cost Cost   `json:"cost"`
}

const noListener = "no listener was given"

// plans are the steps in order. The first charge comes first, because its key is repeated last; the burst comes after the sequential
// repeats, so that a gateway which ignores keys has shown it before it is hit many times.
func plans() []plan {
	setup := func(r *run) Cost {
		n := len(r.g.Checks.Setup)
		return Cost{Requests: n, Likely: n, Most: n}
	}
	with := func(c Cost) func(*run) Cost { return func(r *run) Cost { return setup(r).plus(c) } }
	flat := func(c Cost) func(*run) Cost { return func(*run) Cost { return c } }
	return []plan{
		{StepSuccess, never, success, with(Cost{2, 1, 2})},
		{StepAmount, held(func(r *run) bool { return r.g.Checks.Other != "" }, "the gateway's checks name no other amount"),
			amount, with(Cost{2, 1, 2})},
		{StepEndpoint, held(func(r *run) bool { return r.g.Checks.Endpoint != nil }, "the gateway's checks name no other endpoint"),
			endpoint, flat(Cost{1, 0, 1})},
		{StepAccount, held((*run).hasOther, "no second account was given"), account, flat(Cost{1, 1, 1})},
		{StepBurst, never, burst, func(r *run) Cost { return setup(r).plus(Cost{r.cfg.Burst, 1, r.cfg.Burst}) }},
		{StepDeclined, varied(func(c *gateways.Checks) *gateways.Variation { return c.Declined }, "a decline"),
			twice(func(c *gateways.Checks) *gateways.Variation { return c.Declined }), with(Cost{2, 1, 2})},
		{StepFailed, varied(func(c *gateways.Checks) *gateways.Variation { return c.Failed }, "a 5xx"),
			twice(func(c *gateways.Checks) *gateways.Variation { return c.Failed }), with(Cost{2, 1, 2})},
		{StepEmpty, needs(func(r *run) bool { return r.g.Checks.Empty != nil }, "the gateway's checks name no operation with an empty body"),
			empty, with(Cost{3, 2, 3})},
		{StepPending, needs(func(r *run) bool { return r.g.Checks.Pending != nil || r.cfg.Hook != nil },
			"the sandbox has no way to provoke a pending payment"), pending, with(Cost{2, 1, 1})},
		{StepRetention, never, retention, flat(Cost{1, 0, 1})},
		{StepEgress, needs(func(r *run) bool { return r.cfg.Egress != nil }, noListener), egress, flat(Cost{})},
	}
}

func never(*run) string { return "" }

func needs(ok func(*run) bool, why string) func(*run) string {
	return func(r *run) string {
		if ok(r) {
			return ""
		}
		return why
	}
}

// held is needs for a request under the first charge's key, which must be one that the gateway holds.
func held(ok func(*run) bool, why string) func(*run) string {
	return func(r *run) string {
		s := r.state.Evidence.step(StepSuccess)
		switch first := s.role(RoleFirst); {
		case !ok(r):
			return why
		case first == nil:
			return "" // a plan: nothing was tried yet
		case first.Key == "":
			return "the charge has no key"
		case relation(first, s.role(RoleRepeat)) == relFresh:
			return "a repeat of the charge made another object, so that its key stands for nothing"
		}
		return ""
	}
}

func varied(v func(*gateways.Checks) *gateways.Variation, what string) func(*run) string {
	return needs(func(r *run) bool { return v(r.g.Checks) != nil }, "the sandbox has no way to provoke "+what)
}

func (r *run) hasOther() bool { return r.cfg.OtherCredential != nil || r.cfg.OtherAccount != "" }

var does = map[string]string{
	StepSuccess: "charge, look it up at once and until it appears, repeat it", StepAmount: "another amount under the charge's key",
	StepEndpoint: "another endpoint under the charge's key", StepAccount: "the charge under its key from another account",
	StepBurst: "one charge %d times at once under one key", StepDeclined: "a charge that is declined, then repeated",
	StepFailed: "a charge that is answered with a 5xx, then repeated", StepEmpty: "an operation with an empty body, then repeated",
	StepPending: "a payment whose outcome comes later, waited for", StepRetention: "the first charge again",
	StepEgress: "the way out, to a listener of our own",
}

// Plan says what Run would do, in order, and what it may leave behind at most, without sending anything.
func Plan(cfg Config) ([]Planned, Cost, error) {
	state := cfg.State
	cfg.State = "" // a plan writes no file
	r, err := newRun(cfg)
	if err != nil {
		return nil, Cost{}, err
	}
	if state != "" {
		if s, err := readState(state, r.g.Name, r.base.Host); err != nil {
			return nil, Cost{}, err
		} else if s != nil {
			r.state = s
		}
	}
	var all Cost
	var out []Planned
	for _, p := range plans() {
		one := Planned{Step: p.name, Does: strings.Replace(does[p.name], "%d", strconv.Itoa(r.cfg.Burst), 1), Why: p.why(r)}
		if one.Why == "" && r.state.Evidence.done(p.name) {
			one.Why = "done in an earlier run"
		}
		if one.Why == "" {
			one.Cost = p.costs(r)
			all = all.plus(one.Cost)
		}
		out = append(out, one)
	}
	return out, all, nil
}

// String says a cost in words.
func (c Cost) String() string {
	return fmt.Sprintf("%d requests; likely %d objects, at most %d", c.Requests, c.Likely, c.Most)
}
