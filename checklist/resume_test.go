package checklist_test

import (
	"cmp"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/fence-sidecar/fence-sidecar/checklist"
	"github.com/fence-sidecar/fence-sidecar/gateways/sandbox"
)

// listed compares what a report says was made with what the sandbox executed: each object that moved money is listed, by its id or,
// where no answer named it, as perhaps made under its key; and nothing is listed twice. PayPal's answers name the order and not the
// capture in it, which moved the money: there as many orders are listed under a key as captures were executed.
func (w *world) listed(rep *checklist.Report) {
	w.t.Helper()
	objects, under, perhaps := map[string]bool{}, map[string]int{}, map[string]bool{}
	for _, c := range rep.Created {
		one := cmp.Or(c.Object, c.Key+c.Request+c.At.String())
		if objects[one] {
			w.t.Errorf("%s is listed twice", one)
		}
		objects[one] = true
		under[c.Key] += b2i(c.Object != "")
		perhaps[c.Key] = perhaps[c.Key] || c.Perhaps
	}
	made := map[string]int{}
	for _, o := range w.s.Ledger() {
		if !o.Money {
			continue
		}
		made[o.Key]++
		named := objects[o.ID] || w.cfg.Gateway.Name == "paypal" && made[o.Key] <= under[o.Key]
		if !named && !perhaps[o.Key] {
			w.t.Errorf("%s: %s %s under key %s was made, and is not listed", w.cfg.Gateway.Name, o.Kind, o.ID, o.Key)
		}
	}
}

// interrupt runs until a step says something, and returns what had been seen.
func (w *world) interrupt(at string) *checklist.Report {
	w.t.Helper()
	ctx, cancel := context.WithCancel(w.t.Context())
	defer cancel()
	before := w.cfg.Progress
	defer func() { w.cfg.Progress = before }()
	w.cfg.Progress = func(step, _ string) {
		if step == at {
			cancel()
		}
	}
	rep, err := checklist.Run(ctx, w.cfg)
	if !errors.Is(err, context.Canceled) || rep == nil || rep.Complete {
		w.t.Fatalf("error %v, report %v", err, rep)
	}
	return rep
}

func stepOf(rep *checklist.Report, name string) *checklist.Step {
	i := slices.IndexFunc(rep.Evidence.Steps, func(s *checklist.Step) bool { return s.Name == name })
	if i < 0 {
		return &checklist.Step{}
	}
	return rep.Evidence.Steps[i]
}

// calls are the requests of a step that reach the gateway as POSTs.
func calls(s *checklist.Step) (n int) {
	for _, x := range s.Exchanges {
		n += b2i(x.Role != checklist.RoleAdvance)
	}
	return n
}

// A run that is interrupted goes on where it was: finished steps are not tried again, the broken-off one is, under another key, and
// what it had made stays on the list.
func TestInterruptedAndResumed(t *testing.T) {
	whole := start(t, "stripe", sandbox.Config{}, nil)
	whole.run()
	for _, at := range []string{
		checklist.StepSuccess, checklist.StepAmount, checklist.StepBurst, checklist.StepFailed, checklist.StepEmpty,
		checklist.StepPending, checklist.StepRetention,
	} {
		t.Run(at, func(t *testing.T) {
			w := start(t, "stripe", sandbox.Config{}, nil)
			w.cfg.State = filepath.Join(t.TempDir(), "state.json")
			broken := w.interrupt(at)
			w.listed(broken)
			begun, spent := w.s.Sends("POST"), calls(stepOf(broken, at))
			tried := map[string]bool{}
			w.cfg.Progress = func(step, _ string) { tried[step] = true }
			rep := w.run()
			if at != checklist.StepSuccess && tried[checklist.StepSuccess] || !tried[at] || !rep.Complete {
				t.Errorf("tried again: %v, complete: %v", tried, rep.Complete)
			}
			if got := fails(rep); got != nil {
				t.Errorf("FAIL: %v", got)
			}
			for _, x := range stepOf(rep, at).Exchanges {
				used := slices.ContainsFunc(begun, func(s sandbox.Send) bool { return s.Key == x.Key })
				if x.Role == checklist.RoleFirst && used {
					t.Errorf("key %s was used before", x.Key)
				}
			}
			if n, most := len(w.s.Sends("POST")), len(whole.s.Sends("POST"))+spent; len(begun) == 0 || n > most {
				t.Errorf("%d requests, at most %d", n, most)
			}
			w.listed(rep)
			for _, o := range w.s.Ledger() {
				if n := w.s.Executed(o.Key); o.Key != "" && n > 1 && o.Money {
					t.Errorf("%d executions under one key", n)
				}
			}
		})
	}
}

// What a step made stays on the list although a later run leaves the step out, and also in the runs after that.
func TestResumeWithoutTheStep(t *testing.T) {
	w := start(t, "stripe", sandbox.Config{}, nil)
	w.cfg.State = filepath.Join(t.TempDir(), "state.json")
	made := stepOf(w.interrupt(checklist.StepPending), checklist.StepPending).Exchanges[0].Object
	w.cfg.Gateway.Checks.Pending = nil
	for range 3 {
		rep := w.run()
		if s := stepOf(rep, checklist.StepPending); s.Why == "" || len(s.Exchanges) > 0 {
			t.Errorf("the step was tried: %+v", s)
		}
		n := 0
		for _, c := range rep.Created {
			n += b2i(c.Object == made && c.Step == checklist.StepPending)
		}
		if made == "" || n != 1 {
			t.Errorf("%q is listed %d times", made, n)
		}
		w.listed(rep)
	}
}

// A process that is killed leaves the state of before the step. A later run tries the step under other keys: what the killed one
// left under its own is no answer to it.
func TestResumeAfterAKill(t *testing.T) {
	w := start(t, "stripe", sandbox.Config{}, nil)
	w.cfg.State = filepath.Join(t.TempDir(), "state.json")
	var left []byte
	w.cfg.Progress = func(step, _ string) {
		if step == checklist.StepPending && left == nil {
			left, _ = os.ReadFile(w.cfg.State)
		}
	}
	before := stepOf(w.run(), checklist.StepPending).Exchanges[0]
	if err := os.WriteFile(w.cfg.State, left, 0o600); err != nil {
		t.Fatal(err)
	}
	after := stepOf(w.run(), checklist.StepPending).Exchanges[0]
	if before.Key == "" || after.Key == before.Key || after.Object == before.Object {
		t.Errorf("key %s and object %s, before the kill %s and %s", after.Key, after.Object, before.Key, before.Object)
	}
}
