package explore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

// counter is a number that actors read and then write: the classic lost update.
type counter struct {
	value   int
	compare bool // write only over what was read
	open    int  // actors that have not been unwound
	prelude int  // actors that began
}

func (c *counter) add(name string) Actor {
	return Actor{name, func(yield func(string) bool) {
		c.open++
		c.prelude++
		defer func() { c.open-- }()
		for {
			if !yield("reads") {
				return
			}
			read := c.value
			if !yield("writes") {
				return
			}
			if !c.compare || c.value == read {
				c.value = read + 1
				return
			}
		}
	}}
}

// world is n actors that each add one.
func world(n int, compare bool) func() World {
	return func() World {
		c := &counter{compare: compare}
		w := World{End: func() error {
			if c.value != n {
				return &Violation{"an update is lost", fmt.Sprintf("%d of %d", c.value, n)}
			}
			return nil
		}}
		for i := range n {
			w.Actors = append(w.Actors, c.add(string(rune('A'+i))))
		}
		return w
	}
}

// idle is actors that only count, each with a number of steps.
func idle(trail *[]string, steps ...int) func() World {
	return func() World {
		line := ""
		w := World{End: func() error { *trail = append(*trail, line); return nil }}
		for a, n := range steps {
			w.Actors = append(w.Actors, Actor{fmt.Sprint(a), func(yield func(string) bool) {
				for i := range n {
					if !yield(fmt.Sprint("step ", i)) {
						return
					}
					line += fmt.Sprint(a)
				}
			}})
		}
		return w
	}
}

// TestEvery: each interleaving is run, and none twice.
func TestEvery(t *testing.T) {
	for _, tc := range []struct {
		steps []int
		depth int
		want  int // multinomial of the steps, where the depth reaches
	}{
		{[]int{1, 1}, 8, 2},
		{[]int{3, 3}, 6, 20},
		{[]int{4, 4}, 8, 70},
		{[]int{2, 2, 2}, 6, 90},
		{[]int{3, 3}, 0, 1},
		{[]int{3, 3}, 1, 2},
		{[]int{3, 3}, 2, 4},
		{[]int{1, 5}, 6, 6},
		{[]int{0, 2}, 6, 1},
		{nil, 6, 1},
	} {
		var trail []string
		r, err := Every(t.Context(), idle(&trail, tc.steps...), tc.depth)
		if err != nil || r.Found != nil {
			t.Fatalf("%v: %s, %v", tc, r, err)
		}
		distinct := slices.Compact(slices.Sorted(slices.Values(trail)))
		if r.Schedules != tc.want || len(distinct) != tc.want || len(trail) != tc.want {
			t.Errorf("%v: %d schedules, %d of them different, want %d", tc, r.Schedules, len(distinct), tc.want)
		}
		total := 0
		for _, n := range tc.steps {
			total += n
		}
		if r.Longest != total || r.Steps != total*tc.want {
			t.Errorf("%v: %s", tc, r)
		}
	}
}

// TestSwitched counts the schedules in which one actor was left in the middle: all but the two that run one after the other.
func TestSwitched(t *testing.T) {
	var trail []string
	if r, err := Every(t.Context(), idle(&trail, 3, 3), 6); err != nil || r.Switched != 18 {
		t.Errorf("%s, %v; want 18 of 20", r, err)
	}
	if r, err := Every(t.Context(), idle(&trail, 3, 3), 0); err != nil || r.Switched != 0 {
		t.Errorf("%s, %v; want none", r, err)
	}
}

// TestFinds the lost update, with a schedule from which nothing can be left out; and finds nothing where there is nothing.
func TestFinds(t *testing.T) {
	searches := map[string]func(open func() World) (Report, error){
		"every": func(open func() World) (Report, error) { return Every(t.Context(), open, 8) },
		"walks": func(open func() World) (Report, error) { return Walks(t.Context(), open, 200, 1) },
	}
	for name, search := range searches {
		t.Run(name, func(t *testing.T) {
			r, err := search(world(3, false))
			if err != nil || r.Found == nil || !r.Found.Shortened {
				t.Fatalf("%s, %v", r, err)
			}
			f := r.Found
			if f.Violation.Rule != "an update is lost" || len(f.Story) != 6 {
				t.Errorf("found %s", f)
			}
			run, err := play(world(3, false)(), script(f.Schedule))
			if err != nil || run.broken == nil || !slices.Equal(run.story, f.Story) {
				t.Errorf("played again: %+v, %v; found %s", run, err, f)
			}
			if run.switches != 1 {
				t.Errorf("%d switches, one is enough:\n%s", run.switches, f)
			}
			if r, err = search(world(2, true)); err != nil || r.Found != nil {
				t.Errorf("with compare-and-set: %s, %v", r, err)
			}
		})
	}
}

// TestFindsEarly: a check after a step ends the schedule there, and steps that do not matter are left out.
func TestFindsEarly(t *testing.T) {
	open := func() World {
		c := &counter{}
		w := world(3, false)()
		w.Actors = append([]Actor{c.add("X"), c.add("Y")}, w.Actors...)
		w.Check = func() error {
			if c.value == 1 {
				return &Violation{"X or Y wrote", ""}
			}
			return nil
		}
		return w
	}
	r, err := Walks(t.Context(), open, 20, 7)
	if err != nil || r.Found == nil {
		t.Fatalf("%s, %v", r, err)
	}
	if got := strings.Join(r.Found.Story, ", "); got != "X: reads, X: writes" && got != "Y: reads, Y: writes" {
		t.Errorf("shortened to %s", got)
	}
}

func TestWalksRepeat(t *testing.T) {
	var one, two, other []string
	for trail, seed := range map[*[]string]uint64{&one: 5, &two: 5, &other: 6} {
		if r, err := Walks(t.Context(), idle(trail, 4, 4, 4), 30, seed); err != nil || r.Schedules != 30 {
			t.Fatalf("%s, %v", r, err)
		}
	}
	if !slices.Equal(one, two) || slices.Equal(one, other) {
		t.Errorf("seed 5: %v and %v; seed 6: %v", one, two, other)
	}
}

// TestOutOfTime is a failure with the counts, also while a schedule is shortened.
func TestOutOfTime(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	left := 5
	open := func(w func() World) func() World {
		return func() World {
			if left--; left == 0 {
				cancel()
			}
			return w()
		}
	}
	var trail []string
	r, err := Every(ctx, open(idle(&trail, 4, 4)), 8)
	if !errors.Is(err, ErrOutOfTime) || r.Schedules != 5 || !strings.Contains(err.Error(), "5 schedules") {
		t.Errorf("%s, %v", r, err)
	}
	if r, err := Walks(ctx, idle(&trail, 4, 4), 10, 1); !errors.Is(err, ErrOutOfTime) || r.Schedules != 0 {
		t.Errorf("%s, %v", r, err)
	}
	ctx, cancel = context.WithCancel(t.Context())
	defer cancel()
	left = 1 << 30
	failing := func() World {
		w := world(2, false)()
		end := w.End
		w.End = func() error {
			err := end()
			if err != nil {
				cancel()
			}
			return err
		}
		return w
	}
	r, err = Every(ctx, failing, 8)
	if !errors.Is(err, ErrOutOfTime) || r.Found == nil || r.Found.Shortened || !strings.Contains(err.Error(), "an update is lost") {
		t.Errorf("%s, %v", r, err)
	}
}

// TestOtherErrors of a world end the search; they are no broken promise.
func TestOtherErrors(t *testing.T) {
	down := errors.New("the database is down")
	open := func() World {
		w := world(2, false)()
		w.Check = func() error { return fmt.Errorf("read: %w", down) }
		return w
	}
	if r, err := Every(t.Context(), open, 8); !errors.Is(err, down) || r.Found != nil {
		t.Errorf("%s, %v", r, err)
	}
	if r, err := Walks(t.Context(), open, 5, 1); !errors.Is(err, down) || r.Found != nil {
		t.Errorf("%s, %v", r, err)
	}
}

// TestUnwinds: whatever ends a schedule, its actors have returned and its world is closed.
func TestUnwinds(t *testing.T) {
	var all []*counter
	closed := 0
	open := func() World {
		c := &counter{}
		all = append(all, c)
		return World{
			Actors: []Actor{c.add("A"), c.add("B")},
			Check: func() error {
				if len(all) == 3 {
					return &Violation{"the third", ""}
				}
				return nil
			},
			Close: func() { closed++ },
		}
	}
	if _, err := Every(t.Context(), open, 8); err != nil {
		t.Fatal(err)
	}
	for i, c := range all {
		if c.open != 0 || c.prelude != 2 {
			t.Errorf("world %d: %d actors began, %d are left", i, c.prelude, c.open)
		}
	}
	if closed != len(all) {
		t.Errorf("%d of %d worlds were closed", closed, len(all))
	}
}

// TestLongSearchEnds: a depth far beyond the steps costs nothing.
func TestLongSearchEnds(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var trail []string
	if r, err := Every(ctx, idle(&trail, 5, 5), 1000); err != nil || r.Schedules != 252 {
		t.Errorf("%s, %v", r, err)
	}
}
