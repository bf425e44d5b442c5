package claimstest

import (
	"context"
	"flag"
	"fmt"
	"strconv"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// Machine plays drawn sequences of steps against a store and against a sequential model of the documentation, and compares
// after every step: Leases with leases alone, Calls with calls of several processes and a gateway that counts what it
// executed. A failure is shrunk and told with one line for each step.
//
// rapid's own flags count: -rapid.checks (default 100) of which percent are played, -rapid.steps (here 40 by default) for
// the mean number of steps, -rapid.seed. A case that failed is kept in testdata/rapid and played first until it passes.
//
//	go test ./claims/sqlite -run TestMachine -rapid.checks=10000
func Machine(t *testing.T, cfg MachineConfig, open func(t *testing.T) Harness) {
	t.Run("Leases", func(t *testing.T) { cfg.check(t, open, playLeases) })
	t.Run("Calls", func(t *testing.T) {
		cfg.check(t, open, func(ctx context.Context, h Harness, s script) ([]string, *violation) {
			return playCalls(ctx, h, s, sound)
		})
	})
}

// MachineConfig is what a store asks of Machine.
type MachineConfig struct {
	Percent int // of rapid's number of cases
	// Least is how much of a lease must be left for a write under it to be tried: a store that looks once more at its commit,
	// by the time that really passed, refuses what the standing clock of the test still lets pass.
	Least time.Duration
}

func (cfg MachineConfig) check(t *testing.T, open func(t *testing.T) Harness, play player) {
	checks, _ := strconv.Atoi(flag.Lookup("rapid.checks").Value.String())
	setFlag(t, "rapid.checks", max(1, checks*cfg.Percent/100))
	rapid.Check(t, func(rt *rapid.T) {
		s := scripts.Draw(rt, "script")
		s.least = cfg.Least
		h := open(t)
		trace, v := play(t.Context(), h, s)
		if err := h.Backend.Close(); err != nil {
			rt.Fatalf("close: %v", err)
		}
		if v == nil {
			return
		}
		for _, line := range trace {
			rt.Log(line)
		}
		rt.Log("wrong: " + v.detail)
		rt.Fatal(v.rule) // the same text for all of its kind: rapid shrinks towards the same failure
	})
}

// setFlag sets one of rapid's flags for a test.
func setFlag(t *testing.T, name string, value any) {
	t.Helper()
	f := flag.Lookup(name)
	was := f.Value.String()
	if err := f.Value.Set(fmt.Sprint(value)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Value.Set(was) }) //nolint:errcheck // it was the value before
}

// meanSteps is how many steps a case has on average, unless the command line says so.
const meanSteps = "40"

func init() {
	f := flag.Lookup("rapid.steps") // rapid's own init comes first; the command line comes later
	f.DefValue = meanSteps
	if err := f.Value.Set(meanSteps); err != nil {
		panic(err)
	}
}

// player plays a script against a fresh store and returns one line for each step, and what went wrong.
type player func(ctx context.Context, h Harness, s script) (trace []string, v *violation)

// script is a drawn case. Its numbers mean nothing by themselves: a machine takes them for choices among what is possible
// when the step comes, so that a script stays playable while it is shrunk.
type script struct {
	world int // which kind of gateway
	steps []step
	least time.Duration // see MachineConfig
}

type step struct{ kind, a, b, c int }

// GoString keeps the numbers out of a failure's text: the trace tells what they meant.
func (s script) GoString() string { return fmt.Sprintf("%d steps", len(s.steps)) }

const choices = 1 << 7

// anyChoice draws every number as often as any other; rapid's own ranges prefer small ones, and so few kinds of steps.
var anyChoice = rapid.Custom(func(t *rapid.T) (n int) {
	for range 7 {
		n <<= 1
		if rapid.Bool().Draw(t, "bit") {
			n++
		}
	}
	return n
})

var scripts = rapid.Custom(func(t *rapid.T) script {
	n := anyChoice
	s := script{world: n.Draw(t, "world")}
	t.Repeat(map[string]func(*rapid.T){"step": func(t *rapid.T) {
		s.steps = append(s.steps, step{n.Draw(t, "kind"), n.Draw(t, "a"), n.Draw(t, "b"), n.Draw(t, "c")})
	}})
	return s
})

// pick takes one of a list.
func pick[E any](n int, of ...E) E { return of[n%len(of)] }

// violation is a broken promise; a machine panics with it.
type violation struct{ rule, detail string }

// trace is what happened in one case.
type trace struct{ lines []string }

func (l *trace) say(format string, args ...any) {
	l.lines = append(l.lines, fmt.Sprintf(format, args...))
}

// add writes to the end of the last line.
func (l *trace) add(format string, args ...any) {
	if n := len(l.lines) - 1; n >= 0 {
		l.lines[n] += fmt.Sprintf(format, args...)
	}
}

func wrong(rule, format string, args ...any) { panic(violation{rule, fmt.Sprintf(format, args...)}) }

// caught turns a machine's panic into the violation that it is.
func caught(v **violation) {
	switch p := recover().(type) {
	case nil:
	case violation:
		*v = &p
	default:
		panic(p)
	}
}

// weighted is one kind of step and how often it comes.
type weighted[M any] struct {
	weight int
	do     func(m M, s step)
}

// deal finds a step's kind among weighted ones.
func deal[M any](of []weighted[M], kind int) func(M, step) {
	total := 0
	for _, w := range of {
		total += w.weight
	}
	n := kind * total / choices
	for _, w := range of {
		if n -= w.weight; n < 0 {
			return w.do
		}
	}
	return of[len(of)-1].do
}
