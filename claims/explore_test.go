package claims

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

// explore walks breadth first, so that a violation comes with a schedule of the fewest steps. It returns what it saw.
func (w xrules) explore(limit int) (found *xstate, states int, events map[string]int, depth int) {
	events = map[string]int{}
	seen := map[string]bool{}
	queue := []*xstate{{}}
	for len(queue) > 0 && states < limit {
		x := queue[0]
		queue = queue[1:]
		states++
		depth = len(x.path)
		if states%11 == 0 {
			if s := w.rest(x); s != "" {
				x.viol = s
				return x, states, events, depth
			}
		}
		w.next(x, func(event string, n *xstate) {
			events[strings.TrimLeft(event, "AB' ")]++
			if found == nil && n.viol != "" {
				found = n
			}
			if k := n.key(); !seen[k] {
				seen[k] = true
				queue = append(queue, n)
			}
		})
		if found != nil {
			return found, states, events, depth
		}
	}
	return nil, states, events, depth
}

// walk takes random steps, deeper than the search by breadth reaches.
func (w xrules) walk(walks, steps int) (found *xstate, longest int) {
	for seed := range walks {
		r := rand.New(rand.NewPCG(uint64(seed), 7))
		x := &xstate{}
		for range steps {
			var all []*xstate
			w.next(x, func(_ string, n *xstate) { all = append(all, n) })
			if len(all) == 0 {
				break
			}
			x = all[r.IntN(len(all))]
			if x.viol != "" {
				return x, longest
			}
		}
		longest = max(longest, len(x.path))
		if x.viol = w.rest(x); x.viol != "" {
			return x, longest
		}
	}
	return nil, longest
}

// rest runs the world on without further faults: every record must come to rest.
func (w xrules) rest(x *xstate) string {
	if !x.rec.Exists() {
		return ""
	}
	n := x.clone()
	n.v = nil
	for i := range n.s {
		n.s[i].net = false
		n.s[i].dec = nil
		if !n.s[i].dead && n.s[i].pc != idle {
			if n.s[i].pc != got {
				n.s[i].word = Sent{Cause: "cut"}
			}
			w.settle(n, i)
		}
	}
	for range 2 * keepTicks {
		if s := n.rec.State; s != StatePending && s != StateUnknown {
			return n.viol
		}
		n.now++
		n.v = &xverdict{n.rec.Version, n.now, w.findings(n)[0]}
		w.apply(n)
	}
	return fmt.Sprintf("still %s after %d ticks of lookups", n.rec.State, 2*keepTicks)
}

// worlds in which nothing is broken.
var worlds = map[string]xrules{
	"probe, failures stored":       {Probe: true, StoresFailures: true},
	"probe, failures not stored":   {Probe: true},
	"lookup only":                  {StoresFailures: true},
	"one process, probe":           {Probe: true, OneProcess: true},
	"no lookup, probe":             {Probe: true, NoLookup: true, StoresFailures: true},
	"lookups that contradict":      {Probe: true, Contradicts: true},
	"no lookup, no probe":          {NoLookup: true},
	"without keys: never sent on ": {NoKeys: true},
}

func TestExplore(t *testing.T) {
	const limit, walks = 10_000, 200
	for name, w := range worlds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			x, states, events, depth := w.explore(limit)
			var longest int
			if x == nil {
				x, longest = w.walk(walks, 80)
			}
			if x != nil {
				t.Fatalf("%s\n  %s\n%+v", x.viol, strings.Join(x.path, "\n  "), x.rec.Attempts)
			}
			t.Logf("%d states, cut at depth %d; %d walks of up to %d steps; %d kinds of events", states, depth, walks, longest, len(events))
			for _, e := range []string{"tick", "decides to claim", "swaps", "passes its gate", "gives up", "settles", "is killed", "s request is EXECUTED, answer lost"} {
				if events[e] == 0 {
					t.Errorf("%q never happened: the search says nothing; it saw %v", e, events)
				}
			}
		})
	}
}

// TestExploreBites breaks one rule at a time; the search must find what that rule is for.
func TestExploreBites(t *testing.T) {
	probe := xrules{Probe: true}
	break1 := func(w xrules, f func(*xrules)) xrules { f(&w); return w }
	for name, tc := range map[string]struct {
		w    xrules
		want string
	}{
		"a verdict judged by the time of its answer":   {break1(probe, func(w *xrules) { w.JudgeLate = true }), "said to be not-executed"},
		"a verdict applied to another version":         {break1(probe, func(w *xrules) { w.IgnoreVersion = true }), ""},
		"a sender overtaken while it lives":            {break1(probe, func(w *xrules) { w.IgnoreDead = true }), "overtaken"},
		"a swap that does not compare":                 {break1(probe, func(w *xrules) { w.IgnoreCompare = true }), ""},
		"a process that forgets what it works on":      {xrules{Probe: true, OneProcess: true, IgnoreWorking: true}, "overtaken"},
		"a sender that ignores its time":               {break1(probe, func(w *xrules) { w.IgnoreGate = true }), ""},
		"a settle of another's claim":                  {xrules{Calm: true, OtherClaim: true}, ""},
		"a late answer dropped":                        {xrules{Contradicts: true, DropLate: true}, "lost"},
		"any answer taken for the stored first one":    {xrules{Probe: true, NoLookup: true, Calm: true, WrongStored: true}, "said to be declined"},
		"a time-out taken for zero bytes":              {break1(probe, func(w *xrules) { w.WrongUnsent = true }), "said to be not-executed"},
		"absence that counts before the settling time": {break1(probe, func(w *xrules) { w.ProvesTooEarly = true }), "said to be not-executed"},
		"no settling time declared":                    {break1(probe, func(w *xrules) { w.NoSettleTime = true }), "said to be not-executed"},
		"an index that lags more than declared":        {break1(probe, func(w *xrules) { w.SlowIndex = true }), "said to be not-executed"},
		"a key's age counted from the last attempt":    {xrules{Probe: true, NoLookup: true, AgeFromLast: true}, ""},
		"an operator's no before it settled":           {xrules{Contradicts: true, HastyOperator: true}, "said to be not-executed"},
		"a probe at a gateway without keys":            {xrules{Probe: true, NoKeys: true}, "executed twice"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			breadth := 12_000
			if tc.w.AgeFromLast || tc.w.OtherClaim {
				breadth = 0 // the shortest schedule is over twenty steps long
			}
			x, states, _, depth := tc.w.explore(breadth)
			if x == nil {
				x, _ = tc.w.walk(20_000, 80)
			}
			if x == nil {
				t.Fatalf("not found in %d states to depth %d, nor by walks", states, depth)
			}
			if !strings.Contains(x.viol, tc.want) {
				t.Errorf("found %q, want %q", x.viol, tc.want)
			}
			t.Logf("%s after %d states and %d steps:\n  %s", x.viol, states, len(x.path), strings.Join(x.path, "\n  "))
		})
	}
}
