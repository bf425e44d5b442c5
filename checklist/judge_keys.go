package checklist

import (
	"time"

	"github.com/fence-sidecar/fence-sidecar/gateways"
)

// g1: one object for one key, however many requests come at once.
func (j judge) g1() finding {
	if !j.Keyed {
		return fail("no place for a key is declared for this request")
	}
	s := j.e.step(StepBurst)
	if s == nil || len(s.Exchanges) == 0 {
		return open("not tried%s", because(s))
	}
	xs := only(s.Exchanges, RoleFirst)
	made, done := objects(xs), count(xs, succeeded)
	twice := seen(s, func(x Sight) bool { return x.Twice })
	known := count(xs, func(x Exchange) bool { return x.InUse || x.Points }) > 0 || done > len(made)
	switch {
	case len(made) > 1:
		return fail("%d requests at once under one key made %d objects", len(xs), len(made))
	case twice != nil:
		return fail("%d requests at once under one key, and the lookup finds more than one object", len(xs))
	case done == 0 && len(made) == 0:
		return open("none of the %d requests was carried out: %s", len(xs), grouped(xs))
	case len(made) == 0 && !alike(xs):
		return open("the answers name no object, so that they cannot be counted")
	case j.repeated() == relFresh && !known:
		return fail("a repeat of a charge under its key made another object")
	}
	f := pass("%d requests at once under one key made one object", len(xs))
	if n := count(xs, func(x Exchange) bool { return x.Status == 0 }); n > 0 {
		f = f.note("%d of them got no answer", n)
	}
	return f
}

// alike reports whether all successes say the same.
func alike(xs []Exchange) bool {
	meaning := ""
	for _, x := range xs {
		if succeeded(x) {
			if meaning != "" && meaning != x.Meaning {
				return false
			}
			meaning = x.Meaning
		}
	}
	return true
}

func only(xs []Exchange, role string) (out []Exchange) {
	for _, x := range xs {
		if x.Role == role {
			out = append(out, x)
		}
	}
	return out
}

func seen(s *Step, is func(Sight) bool) *Sight {
	if s == nil {
		return nil
	}
	for i := range s.Sights {
		if is(s.Sights[i]) {
			return &s.Sights[i]
		}
	}
	return nil
}

// because says what a step was left for.
func because(s *Step) string {
	if s == nil || s.Why == "" {
		return ""
	}
	return ": " + s.Why
}

// seenLong is how old a key must be for its survival to say something.
const seenLong = time.Hour

// g3: the key still stands for the first answer hours later.
func (j judge) g3() finding {
	if !j.Keyed {
		return open("the charge has no key: see G1")
	}
	if j.keyHolds.verdict == Fail {
		return open("the key is not kept: see G1")
	}
	documented := j.documentedRetention()
	success := j.e.step(StepSuccess)
	if j.repeated() == relFresh {
		return fail("the key was forgotten within %s: a repeat made another object; %s", seconds(success.role(RoleRepeat).After), documented)
	}
	var oldest, forgotten time.Duration
	odd := ""
	for _, x := range j.kept() {
		age := time.Duration(x.After * float64(time.Second))
		switch rel := relation(success.role(RoleFirst), &x); {
		case rel == relFresh && forgotten == 0:
			forgotten = age
		case rel == relSame, rel == relState, rel == relPoints, rel == j.repeated() && rel != relNone:
			oldest = max(oldest, age)
		default:
			odd = answered(x)
		}
	}
	survived := "not seen to survive an hour"
	switch {
	case oldest >= seenLong && oldest < j.Retention*9/10:
		survived = "seen to survive " + round(oldest) + ", and shown for no longer"
	case oldest >= seenLong:
		survived = "seen to survive " + round(oldest)
	}
	switch promised := j.Retention; {
	case forgotten > 0 && (promised == 0 || forgotten < promised):
		return fail("after %s the repeat made another object, so that the key was forgotten; %s", round(forgotten), documented)
	case forgotten > 0 && oldest < seenLong:
		return open("after %s the key was forgotten, which is past what is documented; %s; %s", round(forgotten), documented, survived)
	case oldest < seenLong && odd != "":
		return open("only time shows it; the last repeat was answered %s; %s", odd, documented)
	case oldest < seenLong:
		return open("only time shows it: the first answer still came after %s; run again with --resume in a later hour; %s", round(oldest), documented)
	case promised == 0 || j.Levels["G3"].Level != gateways.Supported:
		return partial("%s, but nobody promises that; %s", survived, documented)
	}
	return pass("%s; %s", survived, documented)
}

// kept are the repeats of the first charge, the oldest key last.
func (j judge) kept() []Exchange {
	s := j.e.step(StepRetention)
	if s == nil {
		return nil
	}
	return s.Exchanges
}

func (j judge) documentedRetention() string {
	if j.Retention == 0 {
		return "no retention is declared"
	}
	return "declared " + round(j.Retention)
}

func seconds(s float64) string { return round(time.Duration(s * float64(time.Second))) }

// g4: a repeat gets the first answer.
func (j judge) g4() finding {
	if why, ok := j.holds(); !ok {
		return open("%s", why)
	}
	s := j.e.step(StepSuccess)
	first, again := s.role(RoleFirst), s.role(RoleRepeat)
	var f finding
	switch j.repeated() {
	case relSame:
		f = pass("a repeat got the first answer: same status, same body")
	case relState:
		f = partial("a repeat got the first object's current state (%d, first %d), not the stored answer", again.Status, first.Status)
	case relPoints:
		f = partial("a repeat was refused with %d and pointed at the first object", again.Status)
	case relInUse:
		return fail("a repeat after the answer was told that the key is in use: %s", answered(*again))
	case relUnclear:
		return open("a repeat got %s, which names no object to compare", answered(*again))
	default:
		return fail("a repeat got neither the first answer nor the object: %s", answered(*again))
	}
	f = j.afterDecline(f)
	f = j.afterFailure(f)
	if s := j.e.step(StepEmpty); s.role(RoleRepeat) != nil && succeeded(*s.role(RoleFirst)) {
		switch relation(s.role(RoleFirst), s.role(RoleRepeat)) {
		case relSame, relState, relPoints:
		default:
			f = f.lower("an operation with an empty body, repeated, got %s", answered(*s.role(RoleRepeat)))
		}
	}
	return f
}

// afterDecline: a decline is an answer, and stands under its key.
func (j judge) afterDecline(f finding) finding {
	s := j.e.step(StepDeclined)
	first, again := s.role(RoleFirst), s.role(RoleRepeat)
	switch relation(first, again) {
	case relNone:
		return j.capped(f, "a decline was not tried%s", because(s))
	case relSame:
		return f.note("a decline is repeated as well")
	case relPoints, relState:
		return f
	}
	if succeeded(*first) {
		return f.note("the charge that should be declined was not")
	}
	return f.lower("after a decline (%d) a repeat got %s: it was run again, or answered anew", first.Status, answered(*again))
}

// afterFailure: a 5xx says nothing, so what a repeat does then is what matters most.
func (j judge) afterFailure(f finding) finding {
	s := j.e.step(StepFailed)
	first, again := s.role(RoleFirst), s.role(RoleRepeat)
	twice := seen(s, func(x Sight) bool { return x.Twice })
	switch rel := relation(first, again); {
	case rel == relNone:
		return j.capped(f, "a 5xx was not tried%s", because(s))
	case first.Status < 500:
		return j.capped(f, "the charge that should be answered with a 5xx was answered %d", first.Status)
	case twice != nil:
		return f.lower("after a %d a repeat was carried out a second time: the lookup finds two", first.Status)
	case rel == relSame:
		return f.note("a %d is repeated as well", first.Status)
	case rel == relPoints:
		return f
	case succeeded(*again):
		return f.lower("after a %d a repeat got %s: it was run, perhaps again", first.Status, answered(*again))
	}
	return f.lower("after a %d a repeat got %s", first.Status, answered(*again))
}

// capped takes the documented level where a part could not be tried: a PASS never stands above it then.
func (j judge) capped(f finding, format string, args ...any) finding {
	if want := Expected(j.Levels["G4"].Level); want == Partial || want == Fail {
		return f.lower(format+", and less is documented", args...)
	}
	return f.note(format, args...)
}

// g5: another request under a used key is refused.
func (j judge) g5() finding {
	if why, ok := j.holds(); !ok {
		return open("%s", why)
	}
	s := j.e.step(StepAmount)
	first := j.e.step(StepSuccess).role(RoleFirst)
	x := s.role(RoleOther)
	if x == nil || x.Status == 0 {
		return open("another amount was not tried%s", because(s))
	}
	f := j.otherAmount(first, x, s.role(RoleControl))
	if f.verdict == Fail || f.verdict == NotChecked {
		return f
	}
	for _, name := range []string{StepEndpoint, StepAccount} {
		what, o := "another "+name, j.e.step(name).role(RoleOther)
		if o == nil || o.Status == 0 {
			continue
		}
		switch rel := relation(first, o); {
		case succeeded(*o) && (rel == relSame || rel == relState):
			return fail("%s under the charge's key got the first answer", what)
		case succeeded(*o) && name == StepEndpoint:
			f = f.lower("another endpoint under the charge's key was carried out: keys count per endpoint")
		case succeeded(*o):
			f = f.note("another account's request was carried out: keys count per account")
		}
	}
	return f
}

func (j judge) otherAmount(first, x, control *Exchange) finding {
	rel := relation(first, x)
	repeat, again := j.e.step(StepSuccess).role(RoleRepeat), j.repeated()
	switch {
	case rel == relSame, rel == relState:
		return fail("another amount (%s for %s) under the key got the first answer: the body is not compared", x.Amount, first.Amount)
	case succeeded(*x):
		return fail("another amount (%s for %s) under the key was carried out as a second object (%s)", x.Amount, first.Amount, answered(*x))
	case x.Status >= 500:
		return open("another amount under the key was answered %d", x.Status)
	case rel == relPoints, again != relSame && again != relState && x.Status == repeat.Status && x.InUse == repeat.InUse:
		return partial("another amount was refused with %d as any repeat of the key is: nothing shows that the body is compared", x.Status)
	case control == nil:
		return open("another amount was refused with %d; whether it would be taken under a key of its own was not tried", x.Status)
	case !succeeded(*control):
		return open("another amount was refused with %d, but it is not taken under a key of its own either: %s", x.Status, answered(*control))
	}
	return pass("another amount under the key was refused with %d, and taken under a key of its own", x.Status)
}
