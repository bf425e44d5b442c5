package checklist

import (
	"fmt"
	"slices"
	"strings"

	"github.com/fence-sidecar/fence-sidecar/claims"
	"github.com/fence-sidecar/fence-sidecar/gateways"
)

// found reports whether a sight shows the call.
func (x Sight) found() bool {
	return x.Kind == claims.FoundDone.String() || x.Kind == claims.FoundFailed.String()
}

// g2: a call can be found by its key or our reference, without the gateway's own id.
func (j judge) g2() finding {
	s := j.e.step(StepSuccess)
	if s.role(RoleFirst) == nil {
		return open("not tried%s", because(s))
	}
	if j.Lookup == "" {
		return j.withoutRead()
	}
	byRef := slices.DeleteFunc(slices.Clone(s.Sights), func(x Sight) bool { return x.Role != SightReference && x.Role != SightOwn })
	if len(byRef) == 0 {
		return open("not looked up%s", because(s))
	}
	i := slices.IndexFunc(byRef, Sight.found)
	if i < 0 {
		return notFound(byRef[len(byRef)-1])
	}
	lag, pointed := byRef[i].After, s.pointed()
	switch {
	case i > 0:
		return partial("the lookup (%s) did not show it at once, but after %s", j.Lookup, seconds(lag))
	case pointed:
		return pass("a repeat names the object, and it can be read")
	case byRef[i].Role == SightOwn:
		return partial("found at once, but only by the gateway's own id, which a lost answer does not tell")
	case !j.Names && j.Lookup == gateways.KindList:
		return partial("found at once, but only by reading a list of everything since, and comparing our reference")
	case !j.Names && j.Lookup == gateways.KindSearch:
		return partial("found at once, by a search that does not name the call: it may lag another time")
	case j.Lookup == gateways.KindSearch:
		return pass("found at once by our reference, in an index that may lag another time")
	case !j.Names:
		return partial("found at once, by reading what the request names: the object shows what became of it, not which call did it")
	}
	return pass("found at once by our reference")
}

// pointed reports whether the repeat's refusal pointed at the object, and that could be read.
func (s *Step) pointed() bool {
	return relation(s.role(RoleFirst), s.role(RoleRepeat)) == relPoints &&
		seen(s, func(x Sight) bool { return x.Role == SightObject && x.found() }) != nil
}

func notFound(last Sight) finding {
	switch {
	case last.Kind == claims.Missed.String():
		return fail("not found within %s", seconds(last.After))
	case last.Kind == claims.Contradiction.String():
		return fail("the lookup contradicts the call: %s", last.Reason)
	case last.Status == 0 || last.Status == 401 || last.Status == 403 || last.Status == 429:
		return open("the lookup was not served: %s", last.Reason)
	}
	return fail("the lookup could not tell within %s: %s", seconds(last.After), last.Reason)
}

// withoutRead: no read is declared, so that a repeat or a notice must name the call.
func (j judge) withoutRead() finding {
	p := j.e.step(StepPending)
	noticed := p != nil && slices.ContainsFunc(p.Notices, func(n Notice) bool { return n.Verified && n.ByRef })
	switch rel := j.repeated(); {
	case rel == relSame, rel == relState, rel == relPoints:
		return partial("no read finds it; a repeat under its key names it")
	case noticed:
		return partial("no read finds it; a notice named it by our reference")
	case p != nil && p.Done && p.Listened:
		return fail("no read finds it, no repeat named it, and no notice did")
	}
	return open("no read is declared, and no notice was listened for")
}

// g6: an outcome that comes later is told.
func (j judge) g6() finding {
	s := j.e.step(StepPending)
	if s == nil || s.role(RoleFirst) == nil || s.Why != "" {
		return open("not tried%s", because(s))
	}
	told := slices.IndexFunc(s.Notices, Notice.tells)
	polled := seen(s, func(x Sight) bool { return settled(x.Payment) })
	last := s.lastSight()
	canPoll := last != nil && last.Kind != claims.Missed.String() && last.Kind != claims.CouldNotTell.String()
	switch {
	case told >= 0:
		f := pass("a verified notice told the outcome (%s) after %s", word(s.Notices[told]), seconds(s.Notices[told].After))
		if !s.Late {
			f = f.note("of an ordinary payment: none that is pending could be made")
		}
		if polled != nil {
			f = f.note("a read showed it as well (%s)", polled.Payment)
		}
		return f
	case polled != nil && s.woke() != nil:
		return pass("a notice came after %s, and a read showed the outcome (%s)", seconds(s.woke().After), polled.Payment)
	case polled != nil && s.Listened:
		return partial("a read showed the outcome (%s) after %s, but no verified notice told it%s", polled.Payment, seconds(polled.After), problems(s.Notices))
	case polled != nil:
		return pass("a read showed the outcome (%s) after %s; no notice was listened for", polled.Payment, seconds(polled.After))
	case s.Listened && canPoll:
		return fail("no outcome within %s: no verified notice told it%s, and the payment still reads as pending", seconds(last.After), problems(s.Notices))
	case s.Listened && slices.ContainsFunc(s.Notices, func(n Notice) bool { return n.Accepted && n.Ours }):
		return open("notices came, but the payment could not be read (see G2)")
	case s.Listened:
		return fail("no outcome: no verified notice told it%s, and no read tells it", problems(s.Notices))
	case canPoll:
		return fail("no outcome within %s: the payment still reads as pending", seconds(last.After))
	case last != nil:
		return open("the payment could not be read (see G2), and no notice was listened for")
	}
	return open("no read is declared, and no notice was listened for")
}

func (s *Step) lastSight() *Sight {
	if len(s.Sights) == 0 {
		return nil
	}
	return &s.Sights[len(s.Sights)-1]
}

func word(n Notice) string {
	if n.Payment != "" {
		return n.Payment
	}
	return n.Outcome
}

// problems says what was wrong with the notices that came.
func problems(ns []Notice) string {
	var out []string
	for _, n := range ns {
		if p := n.Problem; p != "" && !slices.Contains(out, p) {
			out = append(out, p)
		}
	}
	if len(out) == 0 {
		return ""
	}
	return " (" + strings.Join(out, "; ") + ")"
}

// egress: what was sent once arrives once.
func (j judge) egress(s *Step) finding {
	if len(s.Arrivals) == 0 {
		return open("not tried%s", because(s))
	}
	var more, lost []string
	for _, a := range s.Arrivals {
		switch {
		case a.Arrived > a.Sent:
			more = append(more, fmt.Sprintf("%s arrived %s", a.Behaviour, times(a.Arrived)))
		case a.Arrived < a.Sent:
			lost = append(lost, a.Behaviour)
		}
	}
	switch {
	case len(more) > 0:
		return fail("a POST that was sent once was repeated on the way: %s", strings.Join(more, ", "))
	case len(lost) > 0:
		return open("these did not arrive: %s", strings.Join(lost, ", "))
	}
	return pass("each POST that was sent once arrived once, whatever became of its answer (%d ways)", len(s.Arrivals))
}

func times(n int) string {
	switch n {
	case 0:
		return "never"
	case 1:
		return "once"
	}
	return fmt.Sprintf("%d times", n)
}

// tried says for a row what was sent and what came back, step by step.
func (j judge) tried(row string, steps []string) (out []Tried) {
	if row == "G2" {
		return j.lookups()
	}
	for _, name := range steps {
		s := j.e.step(name)
		if s == nil {
			continue
		}
		for _, role := range []string{RoleFirst, RoleRepeat, RoleOther, RoleControl, RoleAdvance} {
			if xs := only(s.Exchanges, role); len(xs) > 0 {
				out = append(out, Tried{sent(name, role, xs), grouped(xs)})
			}
		}
		for _, n := range s.Notices {
			out = append(out, Tried{"(webhook)", n.String()})
		}
		if x := s.lastSight(); x != nil && row == "G6" {
			out = append(out, Tried{fmt.Sprintf("%d lookups", len(s.Sights)), fmt.Sprintf("in the end %s %s (%s)", x.Kind, x.Payment, x.Reason)})
		}
		for _, a := range s.Arrivals {
			out = append(out, Tried{"POST once; the listener: " + a.Behaviour, fmt.Sprintf("arrived %s; the sender saw: %s", times(a.Arrived), a.Failure)})
		}
	}
	return out
}

func (j judge) lookups() (out []Tried) {
	for _, name := range []string{StepSuccess, StepBurst} {
		s := j.e.step(name)
		if s == nil {
			continue
		}
		for _, x := range s.Sights {
			out = append(out, Tried{fmt.Sprintf("%s: lookup by %s after %s", name, x.Role, seconds(x.After)), x.Kind + " " + x.Object + " (" + x.Reason + ")"})
		}
	}
	if len(out) > 8 {
		out = append(out[:3], append([]Tried{{fmt.Sprintf("%d more", len(out)-6), "…"}}, out[len(out)-3:]...)...)
	}
	return out
}

func sent(step, role string, xs []Exchange) string {
	n := ""
	if len(xs) > 1 {
		n = fmt.Sprintf("%d × ", len(xs))
	}
	what := map[string]string{
		RoleFirst: "", RoleRepeat: " again, same key", RoleOther: " under the charge's key", RoleControl: " under a key of its own", RoleAdvance: " (simulator)",
	}[role]
	if len(xs) > 1 && role == RoleFirst {
		what = " at once, one key"
	}
	if xs[0].Amount != "" && step == StepAmount {
		what = ", amount " + xs[0].Amount + what
	}
	return fmt.Sprintf("%s: %s%s %s%s", step, n, xs[0].Method, xs[0].Target, what)
}

// String says in a few words what a notice was.
func (n Notice) String() string {
	switch {
	case n.Problem != "":
		return n.Problem
	case !n.Ours:
		return "a notice of something else"
	case word(n) == "":
		return "a verified notice of " + n.Object + " that tells no outcome"
	}
	return fmt.Sprintf("a verified notice of %s: %s", n.Object, word(n))
}
