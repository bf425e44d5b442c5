package explore

import (
	"errors"
	"iter"
	"slices"
)

// choose picks the actor of step i among those that are ready, which are in order; last is the one that ran before, -1 at the
// beginning.
type choose func(i, last int, ready []int) int

// run is one schedule, played.
type run struct {
	names    []string
	chosen   []int
	could    []uint64 // which actors were ready at each step, one bit each
	onward   []int    // which one runs at each step where nothing is chosen
	story    []string
	switches int // how often an actor was left that was not done
	broken   *Violation
}

// cast is a world's actors, started.
type cast struct {
	next  []func() (string, bool)
	stop  []func()
	ahead []string // the step that each does next
	ready []int    // those that are not done, in order
}

// play runs a world to its end, or to the first broken promise. Its error is a world's that is no *Violation.
func play(w World, pick choose) (*run, error) {
	if w.Close != nil {
		defer w.Close()
	}
	r := &run{}
	c := w.start(r)
	defer c.end()
	for last := -1; len(c.ready) > 0; {
		a := pick(len(r.chosen), last, c.ready)
		r.note(c, a, last)
		last = a
		c.step(a)
		if done, err := r.judge(w.Check); done {
			return r, err
		}
	}
	_, err := r.judge(w.End)
	return r, err
}

// start brings every actor to before its first step.
func (w World) start(r *run) *cast {
	n := len(w.Actors)
	c := &cast{next: make([]func() (string, bool), n), stop: make([]func(), n), ahead: make([]string, n)}
	for a, actor := range w.Actors {
		r.names = append(r.names, actor.Name)
		c.next[a], c.stop[a] = iter.Pull(actor.Run)
		c.ready = append(c.ready, a)
	}
	for a := range w.Actors {
		c.step(a)
	}
	return c
}

// step lets an actor do its next step, up to before the one after it.
func (c *cast) step(a int) {
	name, more := c.next[a]()
	c.ahead[a] = name
	if more {
		return
	}
	left := make([]int, 0, len(c.ready)) // choices may keep the old one
	for _, b := range c.ready {
		if b != a {
			left = append(left, b)
		}
	}
	c.ready = left
}

func (c *cast) end() {
	for _, stop := range c.stop {
		stop()
	}
}

// note writes down that actor a is chosen.
func (r *run) note(c *cast, a, last int) {
	var could uint64
	for _, b := range c.ready {
		could |= 1 << b
	}
	if last >= 0 && a != last && could&(1<<last) != 0 {
		r.switches++
	}
	r.chosen = append(r.chosen, a)
	r.could = append(r.could, could)
	r.onward = append(r.onward, onward(last, c.ready))
	r.story = append(r.story, r.names[a]+": "+c.ahead[a])
}

// judge asks a check. done: the run ends here.
func (r *run) judge(check func() error) (done bool, err error) {
	if check == nil {
		return false, nil
	}
	if err = check(); err == nil {
		return false, nil
	}
	if v, ok := errors.AsType[*Violation](err); ok {
		r.broken = v
		return true, nil
	}
	return true, err
}

// script chooses as a list says, leaving out what cannot be chosen; after its end the actor that ran last goes on to its end,
// then the first that is left.
func script(list []int) choose {
	at := 0
	return func(_ int, last int, ready []int) int {
		for at < len(list) {
			at++
			if slices.Contains(ready, list[at-1]) {
				return list[at-1]
			}
		}
		return onward(last, ready)
	}
}

// onward lets the actor that ran last go on.
func onward(last int, ready []int) int {
	if slices.Contains(ready, last) {
		return last
	}
	return ready[0]
}
