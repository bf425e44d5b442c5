package checklist_test

import (
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fence-sidecar/fence-sidecar/checklist"
	"github.com/fence-sidecar/fence-sidecar/gateways/sandbox"
)

// clock is a clock that a test moves on.
type clock struct{ ahead atomic.Int64 }

func (c *clock) now() time.Time { return time.Now().Add(time.Duration(c.ahead.Load())) }

func (c *clock) pass(d time.Duration) { c.ahead.Add(int64(d)) }

// defect is something planted, and the row that it must make FAIL.
type defect struct {
	fault sandbox.Fault
	row   string
	// not are gateways that it does not show at, with why.
	not map[string]string
}

var defects = []defect{
	{sandbox.Fault{Name: "ignore-key"}, "G1", nil},
	{sandbox.Fault{Name: "lookup-blind"}, "G2", map[string]string{"adyen": "no read finds a payment anyway"}},
	{sandbox.Fault{Name: "not-repeated"}, "G4", nil},
	{sandbox.Fault{Name: "accept-other-body"}, "G5", map[string]string{
		"adyen": "bodies are not compared anyway", "paypal": "bodies are not compared anyway", "checkout": "bodies are not compared anyway",
		"gocardless": "any repeat is refused, whatever its body",
	}},
	{sandbox.Fault{Name: "no-outcome"}, "G6", nil},
}

// Each planted defect is FAIL in its own row, and in no other that was not FAIL before.
func TestDefects(t *testing.T) {
	for _, name := range profiles {
		before := fails(sound(t, name))
		for _, d := range defects {
			t.Run(name+"/"+d.fault.Name, func(t *testing.T) {
				w := start(t, name, sandbox.Config{}, nil)
				w.listen()
				w.inject(d.fault)
				got := slices.DeleteFunc(fails(w.run()), func(row string) bool { return slices.Contains(before, row) })
				want := []string{d.row}
				if d.not[name] != "" {
					want = nil
				}
				if !slices.Equal(got, want) {
					t.Errorf("newly FAIL: %v, want %v", got, want)
				}
			})
		}
	}
}

func sound(t *testing.T, name string) *checklist.Report {
	t.Helper()
	w := start(t, name, sandbox.Config{}, nil)
	w.listen()
	w.cfg.Progress = nil
	return w.run()
}

// A key that is forgotten shows when its first charge is repeated hours later: a new object is FAIL in G3, and there alone.
func TestRetention(t *testing.T) {
	for _, c := range []struct {
		name   string
		forget string
		pause  []time.Duration
		want   string
	}{
		{"kept", "", []time.Duration{23 * time.Hour}, checklist.Pass},
		{"kept, asked several times", "", []time.Duration{2 * time.Hour, 3 * time.Hour}, checklist.Pass},
		{"asked too early", "", []time.Duration{10 * time.Minute}, checklist.NotChecked},
		{"forgotten early", "2h", []time.Duration{time.Hour, 2 * time.Hour}, checklist.Fail},
		{"forgotten when it may be", "", []time.Duration{23 * time.Hour, 2 * time.Hour}, checklist.Pass},
		{"forgotten when it may be, not seen before", "", []time.Duration{25 * time.Hour}, checklist.NotChecked},
	} {
		t.Run(c.name, func(t *testing.T) {
			clock := &clock{}
			w := start(t, "stripe", sandbox.Config{Clock: clock.now}, nil)
			if c.forget != "" {
				w.inject(sandbox.Fault{Name: "forget", Arg: c.forget})
			}
			w.cfg.State = filepath.Join(t.TempDir(), "state.json")
			if v := verdicts(w.run())["G3"]; v != checklist.NotChecked {
				t.Errorf("at first G3 is %s", v)
			}
			moved := w.s.Moved()
			var rep *checklist.Report
			for _, d := range c.pause {
				clock.pass(d)
				rep = w.run()
			}
			if v := verdicts(rep); v["G3"] != c.want || v["G1"] != checklist.Pass || v["G6"] != checklist.Pass {
				t.Errorf("verdicts %v, want G3 %s and the others as before", v, c.want)
			}
			if extra := w.s.Moved() - moved; strings.HasPrefix(c.name, "forgotten") != (extra > 0) {
				t.Errorf("the later runs moved money %d times", extra)
			}
		})
	}
}

// A key that is forgotten while its charge is answered is seen within one run: it is known while in use, so that G1 holds.
func TestForgottenAtOnce(t *testing.T) {
	w := start(t, "stripe", sandbox.Config{}, nil)
	w.inject(sandbox.Fault{Name: "delay", Arg: "150ms", Route: "POST /v1/payment_intents", Times: -1})
	w.inject(sandbox.Fault{Name: "forget"})
	if got := fails(w.run()); !slices.Equal(got, []string{"G3"}) {
		t.Errorf("FAIL: %v, want G3", got)
	}
}

// A lookup that lags is PARTIAL, and its lag is measured.
func TestLag(t *testing.T) {
	w := start(t, "checkout", sandbox.Config{}, nil)
	w.inject(sandbox.Fault{Name: "list-lag", Arg: "100ms"})
	w.inject(sandbox.Fault{Name: "search-lag", Arg: "100ms"})
	rep := w.run()
	if v := verdicts(rep)["G2"]; v != checklist.Partial {
		t.Errorf("G2 is %s, want PARTIAL", v)
	}
	w = start(t, "checkout", sandbox.Config{}, nil)
	w.inject(sandbox.Fault{Name: "list-lag", Arg: "1h"})
	w.inject(sandbox.Fault{Name: "search-lag", Arg: "1h"})
	if got := fails(w.run()); !slices.Contains(got, "G2") {
		t.Errorf("FAIL: %v, want G2 among them", got)
	}
}
