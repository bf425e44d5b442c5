package checklist

import (
	"fmt"
	"strings"
	"time"

	"github.com/fence-sidecar/fence-sidecar/gateways"
)

// Suggest writes what was seen as settings of a gateway file. Nothing is suggested that is bolder than what is declared: a run that
// saw something work is no promise. What is only a remark is a comment.
func Suggest(d Declared, e Evidence, rows []Row) string {
	var b strings.Builder
	say := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	j := judge{Declared: d, e: e}
	say("# What this run saw. Compare it with what the gateway documents before you use it.")
	if d.Builtin {
		say("extends: %s", d.Gateway)
	}
	verdict := map[string]string{}
	for _, r := range rows {
		verdict[r.Name] = r.Verdict
	}
	j.suggestFamily(say, verdict)
	j.suggestTimes(say, verdict)
	j.suggestLookup(say, verdict)
	return b.String()
}

func (j judge) suggestFamily(say func(string, ...any), verdict map[string]string) {
	family := map[string]string{relSame: gateways.FamilyA, relState: gateways.FamilyB, relPoints: gateways.FamilyC}[j.repeated()]
	switch {
	case verdict["G1"] == Fail || verdict["G4"] == Fail:
		say("# family: a repeat does not get the first answer or object; route %s: no probe", j.Route)
		return
	case family == "":
		say("# family: not seen")
		return
	case family == gateways.FamilyA && verdict["G4"] == Partial:
		say("# family: a after a success, but not after every answer: declared %q", j.Family)
	default:
		say("family: %s", family)
	}
	if m := j.marker(); m != nil {
		say("replayed: {name: %q, value: %q}", m.Name, m.Value)
	}
}

// marker is a header line that the repeat has and the first answer has not.
func (j judge) marker() *Line {
	s := j.e.step(StepSuccess)
	first, again := s.role(RoleFirst), s.role(RoleRepeat)
	if first == nil || again == nil {
		return nil
	}
	had := map[Line]bool{}
	for _, l := range first.Header {
		had[l] = true
	}
	for _, l := range again.Header {
		if !had[l] && replayLike.MatchString(l.Name) && l.Value != again.Key {
			return &l
		}
	}
	return nil
}

func (j judge) suggestTimes(say func(string, ...any), verdict map[string]string) {
	lag, ok := j.lag()
	settle := j.SettleAfter
	switch {
	case ok && 2*lag > settle:
		settle = (2*lag + time.Minute - 1).Truncate(time.Minute)
		say("settleAfter: %s # the lookup lagged %s", settle, round(lag))
	case ok:
		say("settleAfter: %s # as declared; the lookup lagged %s here", settle, round(lag))
	default:
		say("# settleAfter: no lag was measured")
	}
	oldest := time.Duration(0)
	for _, x := range j.kept() {
		if rel := relation(j.e.step(StepSuccess).role(RoleFirst), &x); rel == relSame || rel == relState || rel == relPoints {
			oldest = max(oldest, time.Duration(x.After*float64(time.Second)))
		}
	}
	switch {
	case verdict["G3"] == Fail:
		say("# keyRetention: the key was forgotten, last seen after %s: declare less, or nothing", round(oldest))
	case oldest >= seenLong && (j.Retention == 0 || oldest < j.Retention):
		say("# keyRetention: seen to survive %s; declared %s. A longer one was not seen.", round(oldest), round(j.Retention))
	case oldest >= seenLong:
		say("keyRetention: %s # declared, and seen to survive", j.Retention)
	default:
		say("# keyRetention: only time shows it (--resume)")
	}
}

// lag is how long after the answer the lookup first showed a charge; false: it never did.
func (j judge) lag() (time.Duration, bool) {
	var most time.Duration
	ok := false
	for _, name := range []string{StepSuccess, StepBurst} {
		s := j.e.step(name)
		if x := seen(s, func(x Sight) bool { return (x.Role == SightReference || x.Role == SightOwn) && x.found() }); x != nil {
			most, ok = max(most, time.Duration(x.After*float64(time.Second))), true
		}
	}
	return most, ok
}

func (j judge) suggestLookup(say func(string, ...any), verdict map[string]string) {
	switch s := j.e.step(StepSuccess); {
	case j.Lookup == "":
		say("# route %s: no lookup is declared", j.Route)
	case verdict["G2"] == Fail:
		say("# route %s: lookup.proves: false (it did not show what was there)", j.Route)
	case j.Proves && seen(s, func(x Sight) bool { return x.Role == SightReference && !x.found() }) != nil:
		say("# route %s: lookup.proves is true, and yet it missed what was there: false, or a settleAfter that covers the lag", j.Route)
	case j.Proves:
		say("# route %s: lookup.proves: true was not contradicted", j.Route)
	default:
		say("# route %s: lookup.proves: false, as declared; that it showed everything here is no proof", j.Route)
	}
}

// namesCall reports whether a lookup's target asks for our reference.
func namesCall(target string) bool { return strings.Contains(target, "{reference}") }
