package checklist

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fence-sidecar/fence-sidecar/claims"
	"github.com/fence-sidecar/fence-sidecar/gateways"
)

// Verdicts of a row.
const (
	Pass       = "PASS"
	Partial    = "PARTIAL"
	Fail       = "FAIL"
	NotChecked = "NOT CHECKED"
)

// Declared is what the judgement needs of a gateway's declaration.
type Declared struct {
	Gateway string `json:"gateway"`
	Title   string `json:"title"`
	// Keyed: the charge has a key; Lookup is the kind of its lookup ("": none), Names: the lookup asks for our reference.
	Keyed   bool   `json:"keyed"`
	Route   string `json:"route"`
	Lookup  string `json:"lookup,omitempty"`
	Names   bool   `json:"lookup_names_call,omitempty"`
	Proves  bool   `json:"lookup_proves_absence,omitempty"`
	Builtin bool   `json:"-"`
	// Retention and SettleAfter are in force for the charge's route.
	Retention   time.Duration `json:"-"`
	SettleAfter time.Duration `json:"-"`
	Replayed    *Line         `json:"-"`
	Family      string        `json:"family,omitempty"`
	// Levels are what the gateway documents, by G1 to G6.
	Levels map[string]gateways.Guarantee `json:"-"`
}

// Row is one line of the report.
type Row struct {
	Name string `json:"name"` // G1 to G6, egress
	Asks string `json:"asks"`
	// Verdict is PASS, FAIL, PARTIAL or NOT CHECKED.
	Verdict     string  `json:"verdict"`
	Reason      string  `json:"reason"`
	Consequence string  `json:"consequence"`
	Tried       []Tried `json:"tried"`
	// Documented is what the gateway documents of it, Level "" where that does not apply; Agrees says how the verdict stands to it.
	Documented Documented `json:"documented"`
	Agrees     string     `json:"agrees"`
}

// Tried is what was sent for a row, and what came back.
type Tried struct {
	Sent string `json:"sent"`
	Got  string `json:"got"`
}

// Documented is a gateways.Guarantee.
type Documented struct {
	Level  string   `json:"level"`
	Says   string   `json:"says,omitempty"`
	Mark   string   `json:"mark,omitempty"`
	Source []string `json:"source,omitempty"`
}

// Expected is the verdict that a documented level stands for; "": any, the level promises nothing.
func Expected(level string) string {
	return map[string]string{gateways.Supported: Pass, gateways.Partial: Partial, gateways.Lacking: Fail}[level]
}

// finding is a verdict with its reason.
type finding struct{ verdict, reason string }

func pass(format string, args ...any) finding { return finding{Pass, fmt.Sprintf(format, args...)} }
func partial(format string, args ...any) finding {
	return finding{Partial, fmt.Sprintf(format, args...)}
}
func fail(format string, args ...any) finding { return finding{Fail, fmt.Sprintf(format, args...)} }
func open(format string, args ...any) finding {
	return finding{NotChecked, fmt.Sprintf(format, args...)}
}

// lower makes a PASS a PARTIAL; any other verdict keeps its own reason first.
func (f finding) lower(format string, args ...any) finding {
	why := fmt.Sprintf(format, args...)
	if f.verdict == Pass {
		return finding{Partial, f.reason + "; but " + why}
	}
	if f.verdict == Partial {
		f.reason += "; " + why
	}
	return f
}

func (f finding) note(format string, args ...any) finding {
	f.reason += "; " + fmt.Sprintf(format, args...)
	return f
}

// Judge reads the evidence. It is a pure function.
func Judge(d Declared, e Evidence) []Row {
	j := judge{Declared: d, e: e}
	j.keyHolds = j.g1()
	rows := []Row{
		j.row("G1", j.keyHolds, StepBurst), j.row("G2", j.g2(), ""), j.row("G3", j.g3(), StepRetention),
		j.row("G4", j.g4(), StepSuccess, StepDeclined, StepFailed, StepEmpty), j.row("G5", j.g5(), StepAmount, StepEndpoint, StepAccount),
		j.row("G6", j.g6(), StepPending),
	}
	if s := e.step(StepEgress); s != nil && (s.Done || len(s.Arrivals) > 0 || s.Why != "" && s.Why != noListener) {
		rows = append(rows, j.row("egress", j.egress(s), StepEgress))
	}
	return rows
}

type judge struct {
	Declared
	e        Evidence
	keyHolds finding
}

func (j judge) row(name string, f finding, steps ...string) Row {
	row := Row{Name: name, Verdict: f.verdict, Reason: f.reason, Consequence: consequence(name, f.verdict), Tried: j.tried(name, steps)}
	i := slices.IndexFunc(gateways.GuaranteeNames, func(g struct{ Name, Asks string }) bool { return g.Name == name })
	if i < 0 {
		row.Asks = "the way out repeats nothing by itself"
		return row
	}
	row.Asks = gateways.GuaranteeNames[i].Asks
	v, ok := j.Levels[name]
	if !ok {
		v = gateways.Guarantee{Level: gateways.Undocumented}
	}
	row.Documented = Documented{v.Level, v.Says, v.Mark, v.Source}
	row.Agrees = agrees(v.Level, f.verdict)
	return row
}

// agrees says how what was seen stands to what is documented.
func agrees(level, verdict string) string {
	rank := map[string]int{Pass: 3, Partial: 2, Fail: 1}
	want := Expected(level)
	switch {
	case verdict == NotChecked:
		return "not checked"
	case want == "":
		return "nothing is documented"
	case rank[verdict] < rank[want]:
		return "worse than documented"
	case rank[verdict] > rank[want]:
		return "better than documented"
	}
	return "as documented"
}

// Relations of a repeat to the first answer.
const (
	relNone    = "none"    // no repeat, or no answer to it
	relSame    = "same"    // status and what the body says are the first answer's
	relState   = "state"   // the first object, in another answer
	relPoints  = "points"  // a refusal that points at the first object
	relFresh   = "fresh"   // another object
	relInUse   = "in-use"  // the key is in use
	relRefused = "refused" // anything else
	relUnclear = "unclear" // a success that cannot be compared: it names no object
)

// relation compares a repeat with the first answer.
func relation(first, again *Exchange) string {
	switch {
	case first == nil || again == nil || again.Status == 0 || first.Status == 0:
		return relNone
	case again.Status == first.Status && again.Meaning == first.Meaning:
		return relSame
	case again.InUse:
		return relInUse
	case again.Object != "" && first.Object != "" && again.Object == first.Object && again.Points:
		return relPoints
	case again.Object != "" && again.Object == first.Object:
		return relState
	case again.Outcome == claims.Succeeded.String() && again.Object != "":
		return relFresh
	case again.Outcome == claims.Succeeded.String():
		return relUnclear
	}
	return relRefused
}

// repeated is the relation of the first charge's repeat.
func (j judge) repeated() string {
	s := j.e.step(StepSuccess)
	return relation(s.role(RoleFirst), s.role(RoleRepeat))
}

// holds reports whether the gateway holds keys at all, so that a repeat can show something else; else why not.
func (j judge) holds() (why string, ok bool) {
	switch {
	case !j.Keyed:
		return "the charge has no key: see G1", false
	case j.keyHolds.verdict == Fail:
		return "the key is not kept: see G1", false
	case j.repeated() == relFresh:
		return "the key was forgotten at once: see G3", false
	case j.repeated() == relNone:
		return "the charge's repeat got no answer", false
	}
	return "", true
}

// objects are the different ids that successes and refusals named.
func objects(xs []Exchange) (ids []string) {
	for _, x := range xs {
		if x.Object != "" && !slices.Contains(ids, x.Object) {
			ids = append(ids, x.Object)
		}
	}
	return ids
}

func count(xs []Exchange, is func(Exchange) bool) (n int) {
	for _, x := range xs {
		if is(x) {
			n++
		}
	}
	return n
}

func succeeded(x Exchange) bool { return x.Outcome == claims.Succeeded.String() }

// grouped counts answers of one kind.
func grouped(xs []Exchange) string {
	var kinds []string
	n := map[string]int{}
	for _, x := range xs {
		k := answered(x)
		if n[k]++; n[k] == 1 {
			kinds = append(kinds, k)
		}
	}
	slices.SortStableFunc(kinds, func(a, b string) int { return n[b] - n[a] })
	if len(xs) == 1 {
		return kinds[0]
	}
	for i, k := range kinds {
		kinds[i] = fmt.Sprintf("%d × %s", n[k], k)
	}
	if len(kinds) > 4 {
		kinds = append(kinds[:4], fmt.Sprintf("%d other kinds", len(kinds)-4))
	}
	return strings.Join(kinds, ", ")
}
