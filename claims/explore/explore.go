// Package explore runs the interleavings of a few actors, one step at a time, and finds the shortest one in which something
// goes wrong. It knows nothing of what the actors do.
//
// An actor is a coroutine (package iter) that yields before each of its steps; between two yields nothing else runs. So what
// one step does is atomic here, whatever happens inside: races within a step are for other tests.
package explore

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"strings"
)

// Actor is one of those whose steps are interleaved.
type Actor struct {
	Name string
	// Run yields the name of each step right before the step is done. When the sequence is stopped early it must return at once,
	// without a further step.
	Run iter.Seq[string]
}

// World is one fresh state with its actors, 64 at most. The same choices in two fresh worlds must lead to the same steps.
type World struct {
	Actors []Actor
	// Check is asked after every step, End once all actors are done; nil, or an error that says what is wrong: a *Violation, or
	// any other error, which ends the search.
	Check, End func() error
	// Close is called when the world is no longer used. nil: nothing is to be closed.
	Close func()
}

// Violation is a broken promise. Rule is the same for all of its kind; a shorter schedule is one that breaks the same rule.
type Violation struct{ Rule, Detail string }

func (v *Violation) Error() string { return v.Rule + ": " + v.Detail }

// ErrOutOfTime says that the context ended before every schedule was run: the search proves nothing. The report has its counts.
var ErrOutOfTime = errors.New("out of time")

// Report is what a search did.
type Report struct {
	Schedules int // runs of a world to its end
	Switched  int // those in which an actor was left between two of its steps for another
	Steps     int // in all schedules together
	Longest   int // steps of the longest schedule
	// Found is the schedule that breaks a promise, shortened; nil: none does.
	Found *Found
}

// String is a report in one line.
func (r Report) String() string {
	s := fmt.Sprintf("%d schedules, %d of them switched, %d steps, the longest %d", r.Schedules, r.Switched, r.Steps, r.Longest)
	if r.Found != nil {
		s += "; " + r.Found.String()
	}
	return s
}

// Found is a schedule that breaks a promise.
type Found struct {
	Violation *Violation
	Schedule  []int    // the actor that was chosen, for each step
	Story     []string // the steps, each "actor: step"
	Shortened bool     // no step can be left out, and no two exchanged for fewer switches
	Tries     int      // schedules that were run to shorten it
}

func (f *Found) String() string {
	return fmt.Sprintf("%s\n  %s", f.Violation, strings.Join(f.Story, "\n  "))
}

// Every runs every schedule in which the first depth steps are chosen freely; from there on each actor runs to its end, the one
// that ran last first. It stops at the first schedule that breaks a promise and shortens it. Its error is ErrOutOfTime, or one
// of a world.
func Every(ctx context.Context, open func() World, depth int) (r Report, err error) {
	for prefix := []int{}; prefix != nil; {
		if ctx.Err() != nil {
			return r, fmt.Errorf("%w after %s", ErrOutOfTime, r)
		}
		run, err := play(open(), script(prefix))
		if err != nil {
			return r, fmt.Errorf("after %s: %w", r, err)
		}
		r.count(run)
		if run.broken != nil {
			return r, r.shorten(ctx, open, run)
		}
		prefix = next(run, depth)
	}
	return r, nil
}

// next is the first choices of the schedule that follows in order; nil: that was the last. At each step the actor that runs on
// where nothing is chosen comes first, then the others in order.
func next(run *run, depth int) []int {
	for i := min(depth, len(run.chosen)) - 1; i >= 0; i-- {
		from := run.chosen[i] + 1
		if run.chosen[i] == run.onward[i] {
			from = 0
		}
		for a := from; a < len(run.names); a++ {
			if a != run.onward[i] && run.could[i]&(1<<a) != 0 {
				return append(append(make([]int, 0, i+1), run.chosen[:i]...), a)
			}
		}
	}
	return nil
}

// Walks runs n schedules in which every step is drawn. The same seed draws the same ones.
func Walks(ctx context.Context, open func() World, n int, seed uint64) (r Report, err error) {
	for i := range n {
		if ctx.Err() != nil {
			return r, fmt.Errorf("%w after %s", ErrOutOfTime, r)
		}
		dice := rand.New(rand.NewPCG(seed, uint64(i)))
		run, err := play(open(), func(_ int, _ int, ready []int) int { return ready[dice.IntN(len(ready))] })
		if err != nil {
			return r, fmt.Errorf("after %s: %w", r, err)
		}
		r.count(run)
		if run.broken != nil {
			return r, r.shorten(ctx, open, run)
		}
	}
	return r, nil
}

func (r *Report) count(run *run) {
	r.Schedules++
	r.Steps += len(run.chosen)
	r.Longest = max(r.Longest, len(run.chosen))
	if run.switches > 0 {
		r.Switched++
	}
}
