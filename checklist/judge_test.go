package checklist_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fence-sidecar/fence-sidecar/checklist"
	"github.com/fence-sidecar/fence-sidecar/gateways"
)

// Parts of made-up evidence.
func done(object string) checklist.Exchange {
	return checklist.Exchange{Status: 200, Outcome: "succeeded", Object: object, Meaning: "says " + object, Amount: "50"}
}

func anew(object string) checklist.Exchange { // the object, in another answer
	x := done(object)
	x.Meaning += " now"
	return x
}

func answer(status int) checklist.Exchange {
	return checklist.Exchange{Status: status, Outcome: "unknown", Meaning: fmt.Sprint("says ", status), Amount: "50"}
}

func points(object string) checklist.Exchange {
	return checklist.Exchange{Status: 409, Outcome: "unknown", Object: object, Points: true, Meaning: "points"}
}

func inUse() checklist.Exchange {
	return checklist.Exchange{Status: 409, Outcome: "unknown", InUse: true, Meaning: "in use"}
}

func silent() checklist.Exchange { return checklist.Exchange{Outcome: "unknown", Failure: "reset"} }

func aged(x checklist.Exchange, d time.Duration) checklist.Exchange {
	x.Role, x.After = checklist.RoleRepeat, d.Seconds()
	return x
}

func as(role string, x checklist.Exchange) checklist.Exchange {
	x.Role = role
	return x
}

func sight(kind string, after float64) checklist.Sight {
	return checklist.Sight{Role: checklist.SightReference, Kind: kind, After: after, Status: 200}
}

// world of evidence: a sound gateway of family a, which each case changes.
func sound2() (checklist.Declared, map[string]*checklist.Step) {
	d := checklist.Declared{
		Gateway: "g", Keyed: true, Route: "r", Lookup: gateways.KindList, Names: true, Retention: 24 * time.Hour, Levels: map[string]gateways.Guarantee{
			"G3": {Level: gateways.Supported}, "G4": {Level: gateways.Supported},
		},
	}
	burst := &checklist.Step{Name: checklist.StepBurst, Done: true}
	for range 20 {
		burst.Exchanges = append(burst.Exchanges, as(checklist.RoleFirst, done("b")))
	}
	other := answer(400)
	other.Amount = "51"
	pending := as(checklist.RoleFirst, done("p"))
	pending.Payment = "pending"
	return d, map[string]*checklist.Step{
		checklist.StepSuccess: {Name: checklist.StepSuccess, Done: true, Sights: []checklist.Sight{sight("found-done", 0)},
			Exchanges: []checklist.Exchange{as(checklist.RoleFirst, done("a")), as(checklist.RoleRepeat, done("a"))}},
		checklist.StepAmount: {Name: checklist.StepAmount, Done: true,
			Exchanges: []checklist.Exchange{as(checklist.RoleOther, other), as(checklist.RoleControl, done("c"))}},
		checklist.StepBurst: burst,
		checklist.StepFailed: {Name: checklist.StepFailed, Done: true,
			Exchanges: []checklist.Exchange{as(checklist.RoleFirst, answer(500)), as(checklist.RoleRepeat, answer(500))}},
		checklist.StepPending: {Name: checklist.StepPending, Done: true, Late: true, Listened: true, Exchanges: []checklist.Exchange{pending},
			Sights:  []checklist.Sight{{Role: checklist.SightAgain, Kind: "found-done", Payment: "pending", After: 1}, {Role: checklist.SightAgain, Kind: "found-done", Payment: "done", After: 2}},
			Notices: []checklist.Notice{{Verified: true, Accepted: true, Ours: true, Payment: "done", After: 1.5}}},
		checklist.StepRetention: {Name: checklist.StepRetention, Exchanges: []checklist.Exchange{aged(done("a"), 23*time.Hour)}},
	}
}

type steps map[string]*checklist.Step

func TestJudge(t *testing.T) {
	success, amount, burst, failed := checklist.StepSuccess, checklist.StepAmount, checklist.StepBurst, checklist.StepFailed
	pending, retention := checklist.StepPending, checklist.StepRetention
	repeat := func(x checklist.Exchange) func(*checklist.Declared, steps) {
		return func(_ *checklist.Declared, s steps) { s[success].Exchanges[1] = as(checklist.RoleRepeat, x) }
	}
	lookups := func(ss ...checklist.Sight) func(*checklist.Declared, steps) {
		return func(_ *checklist.Declared, s steps) { s[success].Sights = ss }
	}
	other := func(x checklist.Exchange) func(*checklist.Declared, steps) {
		return func(_ *checklist.Declared, s steps) { s[amount].Exchanges[0] = as(checklist.RoleOther, x) }
	}
	ages := func(xs ...checklist.Exchange) func(*checklist.Declared, steps) {
		return func(_ *checklist.Declared, s steps) { s[retention].Exchanges = xs }
	}
	for _, c := range []struct {
		name   string
		set    func(d *checklist.Declared, s steps)
		want   map[string]string // rows that differ from PASS
		reason string            // of the first of them
	}{
		{"sound", func(*checklist.Declared, steps) {}, nil, ""},
		{"nothing was tried", func(_ *checklist.Declared, s steps) { clear(s) }, all(checklist.NotChecked), ""},
		{"no key", func(d *checklist.Declared, _ steps) { d.Keyed = false }, rows("G1 FAIL", "G3 NOT CHECKED", "G4 NOT CHECKED", "G5 NOT CHECKED"), "no place"},

		{"two objects at once", func(_ *checklist.Declared, s steps) { s[burst].Exchanges[7] = as(checklist.RoleFirst, done("b2")) },
			rows("G1 FAIL", "G3 NOT CHECKED", "G4 NOT CHECKED", "G5 NOT CHECKED"), "made 2 objects"},
		{"two objects, told by the lookup only", func(_ *checklist.Declared, s steps) {
			s[burst].Sights = []checklist.Sight{{Kind: "contradiction", Twice: true}}
		},
			rows("G1 FAIL", "G3 NOT CHECKED", "G4 NOT CHECKED", "G5 NOT CHECKED"), "more than one"},
		{"one done, the others in use", func(_ *checklist.Declared, s steps) { fill(s[burst], inUse()) }, nil, ""},
		{"one done, the others silent", func(_ *checklist.Declared, s steps) { fill(s[burst], silent()) }, nil, ""},
		{"one done, the others silent, and a fresh repeat", func(d *checklist.Declared, s steps) { fill(s[burst], silent()); repeat(done("x"))(d, s) },
			rows("G1 FAIL", "G3 NOT CHECKED", "G4 NOT CHECKED", "G5 NOT CHECKED"), "another object"},
		{"none done", func(_ *checklist.Declared, s steps) {
			fill(s[burst], answer(429))
			s[burst].Exchanges[0] = as(checklist.RoleFirst, answer(429))
		},
			rows("G1 NOT CHECKED"), "none of the 20"},

		{"found late", lookups(sight("missed", 0), sight("found-done", 3)), rows("G2 PARTIAL"), "after 3s"},
		{"never found", lookups(sight("missed", 0), sight("missed", 60)), rows("G2 FAIL"), "not found within 1m0s"},
		{"found with another amount", lookups(sight("contradiction", 0)), rows("G2 FAIL"), "contradicts"},
		{"the lookup is refused", lookups(checklist.Sight{Role: checklist.SightReference, Kind: "could-not-tell", Status: 403}), rows("G2 NOT CHECKED"), "not served"},
		{"the lookup never tells", lookups(checklist.Sight{Role: checklist.SightReference, Kind: "could-not-tell", Status: 200}), rows("G2 FAIL"), "could not tell"},
		{"a list of everything", func(d *checklist.Declared, _ steps) { d.Names = false }, rows("G2 PARTIAL"), "everything since"},
		{"by the own id", func(d *checklist.Declared, s steps) { d.Names = false; s[success].Sights[0].Role = checklist.SightOwn }, rows("G2 PARTIAL"), "own id"},
		{"no read, named by a repeat", func(d *checklist.Declared, s steps) { d.Lookup = ""; s[success].Sights = nil }, rows("G2 PARTIAL"), "a repeat"},

		{"forgotten at once", repeat(done("x")), rows("G3 FAIL", "G4 NOT CHECKED", "G5 NOT CHECKED"), "forgotten within"},
		{"forgotten later", ages(aged(done("a"), 2*time.Hour), aged(done("x"), 3*time.Hour)), rows("G3 FAIL"), "after 3h"},
		{"forgotten when it may be", ages(aged(done("a"), 2*time.Hour), aged(done("x"), 25*time.Hour)), nil, ""},
		{"not old enough", ages(aged(done("a"), time.Minute)), rows("G3 NOT CHECKED"), "only time"},
		{"survives, promised by nobody", func(d *checklist.Declared, _ steps) {
			d.Levels["G3"] = gateways.Guarantee{Level: gateways.Undocumented}
		}, rows("G3 PARTIAL"), "nobody promises"},
		{"no answer later", ages(aged(silent(), 23*time.Hour)), rows("G3 NOT CHECKED"), "no answer"},

		{"current state", repeat(anew("a")), rows("G4 PARTIAL"), "current state"},
		{"points", repeat(points("a")), rows("G4 PARTIAL"), "pointed"},
		{"points elsewhere", repeat(points("z")), rows("G4 FAIL"), "neither"},
		{"refused", repeat(answer(422)), rows("G4 FAIL"), "neither"},
		{"in use after its answer", repeat(inUse()), rows("G4 FAIL"), "in use"},
		{"no answer to the repeat", repeat(silent()), rows("G4 NOT CHECKED", "G5 NOT CHECKED"), "no answer"},
		{"run again after a 5xx", func(_ *checklist.Declared, s steps) { s[failed].Exchanges[1] = as(checklist.RoleRepeat, done("f")) }, rows("G4 PARTIAL"), "perhaps again"},
		{"run twice after a 5xx", func(_ *checklist.Declared, s steps) { s[failed].Sights = []checklist.Sight{{Twice: true}} }, rows("G4 PARTIAL"), "second time"},
		{"no 5xx, less is documented", func(d *checklist.Declared, s steps) {
			delete(s, failed)
			d.Levels["G4"] = gateways.Guarantee{Level: gateways.Partial}
		}, rows("G4 PARTIAL"), "less is documented"},
		{"no 5xx, all is documented", func(_ *checklist.Declared, s steps) { delete(s, failed) }, nil, ""},

		{"the first answer to another amount", other(done("a")), rows("G5 FAIL"), "not compared"},
		{"the state to another amount", other(anew("a")), rows("G5 FAIL"), "not compared"},
		{"a second object for another amount", other(done("x")), rows("G5 FAIL"), "second object"},
		{"another amount, 5xx", other(answer(503)), rows("G5 NOT CHECKED"), "answered 503"},
		{"refused as any repeat", func(d *checklist.Declared, s steps) { repeat(answer(400))(d, s) }, rows("G4 FAIL", "G5 PARTIAL"), ""},
		{"refused under any key", func(_ *checklist.Declared, s steps) { s[amount].Exchanges[1] = as(checklist.RoleControl, answer(400)) }, rows("G5 NOT CHECKED"), "under a key of its own"},
		{"no control", func(_ *checklist.Declared, s steps) { s[amount].Exchanges = s[amount].Exchanges[:1] }, rows("G5 NOT CHECKED"), "not tried"},
		{"another endpoint is carried out", side(checklist.StepEndpoint, done("e")), rows("G5 PARTIAL"), "per endpoint"},
		{"another endpoint gets the first answer", side(checklist.StepEndpoint, done("a")), rows("G5 FAIL"), "another endpoint"},
		{"another account is carried out", side(checklist.StepAccount, done("e")), nil, ""},
		{"another account gets the first answer", side(checklist.StepAccount, done("a")), rows("G5 FAIL"), "another account"},

		{"read, not told", func(_ *checklist.Declared, s steps) { s[pending].Notices = nil }, rows("G6 PARTIAL"), "no verified notice"},
		{"told with a wrong signature", func(_ *checklist.Declared, s steps) { s[pending].Notices = []checklist.Notice{{Problem: "forged"}} }, rows("G6 PARTIAL"), "no verified notice told it (forged)"},
		{"told of something else", func(_ *checklist.Declared, s steps) { s[pending].Notices[0].Ours = false }, rows("G6 PARTIAL"), ""},
		{"woken, and read", func(_ *checklist.Declared, s steps) { s[pending].Notices[0].Payment = "" }, nil, ""},
		{"told by one that is not signed, and read", func(_ *checklist.Declared, s steps) { s[pending].Notices[0].Verified = false }, nil, ""},
		{"told by one that is not signed, not read", func(_ *checklist.Declared, s steps) {
			s[pending].Notices[0].Verified, s[pending].Sights[1].Payment = false, "pending"
		}, rows("G6 FAIL"), ""},
		{"woken, not accepted", func(_ *checklist.Declared, s steps) { n := &s[pending].Notices[0]; n.Payment, n.Accepted = "", false }, rows("G6 PARTIAL"), ""},
		{"woken too early", func(_ *checklist.Declared, s steps) { n := &s[pending].Notices[0]; n.Payment, n.After = "", 0.5 }, rows("G6 PARTIAL"), ""},
		{"never", func(_ *checklist.Declared, s steps) {
			s[pending].Notices, s[pending].Sights[1].Payment = nil, "pending"
		}, rows("G6 FAIL"), "still reads as pending"},
		{"read, nobody listened", func(_ *checklist.Declared, s steps) { s[pending].Notices, s[pending].Listened = nil, false }, nil, ""},
		{"blind, nobody listened", func(_ *checklist.Declared, s steps) {
			s[pending].Notices, s[pending].Listened, s[pending].Sights = nil, false, []checklist.Sight{sight("missed", 1)}
		}, rows("G6 NOT CHECKED"), "could not be read"},
		{"only told pending", func(_ *checklist.Declared, s steps) {
			s[pending].Notices[0].Payment, s[pending].Notices[0].Outcome, s[pending].Sights[1].Payment = "pending", "succeeded", "pending"
		}, rows("G6 FAIL"), ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			d, s := sound2()
			c.set(&d, s)
			var e checklist.Evidence
			for _, name := range []string{success, amount, checklist.StepEndpoint, checklist.StepAccount, burst, failed, pending, retention} {
				if s[name] != nil {
					e.Steps = append(e.Steps, s[name])
				}
			}
			for i, r := range checklist.Judge(d, e) {
				want := checklist.Pass
				if w := c.want[r.Name]; w != "" {
					want = w
				}
				if r.Verdict != want {
					t.Errorf("%s is %s, want %s: %s", r.Name, r.Verdict, want, r.Reason)
				}
				if r.Reason == "" || r.Consequence == "" || i > 5 {
					t.Errorf("%s has no reason or no consequence", r.Name)
				}
				if len(c.want) > 0 && r.Name == first(c.want) && !strings.Contains(r.Reason, c.reason) {
					t.Errorf("%s: reason %q, want %q in it", r.Name, r.Reason, c.reason)
				}
			}
		})
	}
}

// fill replaces all but the first of the burst.
func fill(s *checklist.Step, x checklist.Exchange) {
	for i := range s.Exchanges[1:] {
		s.Exchanges[i+1] = as(checklist.RoleFirst, x)
	}
}

func side(step string, x checklist.Exchange) func(*checklist.Declared, steps) {
	return func(_ *checklist.Declared, s steps) {
		s[step] = &checklist.Step{Name: step, Done: true, Exchanges: []checklist.Exchange{as(checklist.RoleOther, x)}}
	}
}

func rows(rs ...string) map[string]string {
	out := map[string]string{}
	for _, r := range rs {
		name, verdict, _ := strings.Cut(r, " ")
		out[name] = verdict
	}
	return out
}

func all(verdict string) map[string]string {
	out := map[string]string{}
	for _, n := range gateways.GuaranteeNames {
		out[n.Name] = verdict
	}
	return out
}

func first(m map[string]string) string {
	names := []string{}
	for name := range m {
		names = append(names, name)
	}
	return slices.Min(names)
}

func TestJudgeEgress(t *testing.T) {
	for _, c := range []struct {
		name     string
		arrivals []checklist.Arrival
		why      string
		want     string
	}{
		{"once", []checklist.Arrival{{Behaviour: "close", Sent: 1, Arrived: 1}}, "", checklist.Pass},
		{"repeated", []checklist.Arrival{{Behaviour: "close", Sent: 1, Arrived: 1}, {Behaviour: "status-503", Sent: 1, Arrived: 3}}, "", checklist.Fail},
		{"lost", []checklist.Arrival{{Behaviour: "close", Sent: 1}}, "", checklist.NotChecked},
		{"not reached", nil, "the listener was not reached", checklist.NotChecked},
	} {
		rs := checklist.Judge(checklist.Declared{}, checklist.Evidence{Steps: []*checklist.Step{{Name: checklist.StepEgress, Arrivals: c.arrivals, Why: c.why}}})
		if r := rs[len(rs)-1]; r.Name != "egress" || r.Verdict != c.want {
			t.Errorf("%s: %s %s, want egress %s", c.name, r.Name, r.Verdict, c.want)
		}
	}
}

// Every level has its verdict, and every verdict its word beside it.
func TestLevels(t *testing.T) {
	for level, want := range map[string]string{
		gateways.Supported: checklist.Pass, gateways.Partial: checklist.Partial, gateways.Lacking: checklist.Fail, gateways.Undocumented: "",
	} {
		if got := checklist.Expected(level); got != want {
			t.Errorf("Expected(%s) = %q, want %q", level, got, want)
		}
	}
}

// A replay family is suggested only where keys were seen to hold.
func TestSuggestNeedsKeys(t *testing.T) {
	d, s := sound2()
	e := checklist.Evidence{Steps: []*checklist.Step{s[checklist.StepSuccess], s[checklist.StepBurst]}}
	for verdict, want := range map[string]bool{checklist.Pass: true, checklist.Fail: false} {
		text := checklist.Suggest(d, e, []checklist.Row{{Name: "G1", Verdict: verdict}, {Name: "G4", Verdict: checklist.Pass}})
		if got := strings.Contains(text, "\nfamily: a\n"); got != want {
			t.Errorf("G1 %s: family suggested: %v", verdict, got)
		}
	}
}
