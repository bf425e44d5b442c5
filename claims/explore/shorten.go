package explore

import (
	"context"
	"fmt"
	"slices"
)

// shorten finds a schedule that breaks the same rule with fewer steps, or as many and fewer switches, until no single step can be
// left out and no two neighbours exchanged. Out of time, the schedule is reported as far as it is.
func (r *Report) shorten(ctx context.Context, open func() World, worst *run) error {
	f := &Found{}
	r.Found = f
	f.take(worst)
	for better := true; better; {
		better = false
		for _, list := range variants(f.Schedule) {
			if ctx.Err() != nil {
				return fmt.Errorf("%w while it shortened a schedule, after %s", ErrOutOfTime, r)
			}
			f.Tries++
			run, err := play(open(), script(list))
			if err != nil {
				return fmt.Errorf("while it shortened a schedule, after %s: %w", r, err)
			}
			if run.broken != nil && run.broken.Rule == f.Violation.Rule && shorter(run, worst) {
				worst, better = run, true
				f.take(run)
				break
			}
		}
	}
	f.Shortened = true
	return nil
}

func (f *Found) take(r *run) {
	f.Violation, f.Schedule, f.Story = r.broken, slices.Clone(r.chosen), slices.Clone(r.story)
}

// shorter compares by steps, then by switches, so that shortening ends.
func shorter(a, b *run) bool {
	if len(a.chosen) != len(b.chosen) {
		return len(a.chosen) < len(b.chosen)
	}
	return a.switches < b.switches
}

// variants are the schedules next to one, those first that leave out most: halves, quarters … single steps, then exchanges of
// neighbours.
func variants(list []int) (all [][]int) {
	for n := max(len(list)/2, 1); n > 0; n /= 2 {
		for i := 0; i < len(list); i += n {
			all = append(all, slices.Concat(list[:i], list[min(i+n, len(list)):]))
		}
	}
	for i := 1; i < len(list); i++ {
		if list[i] != list[i-1] {
			l := slices.Clone(list)
			l[i], l[i-1] = l[i-1], l[i]
			all = append(all, l)
		}
	}
	return all
}
