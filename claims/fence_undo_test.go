package claims_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fence-sidecar/fence-sidecar/claims"
)

// refund undoes call a under a key of its own.
func (w *world) refund(key string) claims.Call {
	c := w.call(key)
	c.Undoes, c.Canonical = "a", []byte("refund")
	return c
}

func TestUndoRunsOnce(t *testing.T) {
	bubble(t, func(w *world) {
		w.keep(w.p)
		wantAnswer(t, w.do(w.call("a")), claims.SourceSent, claims.Succeeded, "paid gk:a")
		wantAnswer(t, w.do(w.refund("r1")), claims.SourceSent, claims.Succeeded, "paid gk:r1")
		wantAnswer(t, w.do(w.refund("r1")), claims.SourceReplayed, claims.Succeeded, "paid gk:r1")
		wantRefusal(t, w.do(w.refund("r2")), claims.AlreadyUndone, claims.NotExecuted)
		w.executed("r1", 1)
		w.executed("r2", 0)
		w.sends(2)
		if r := w.record("a"); len(r.Undos) != 1 || r.Undos[0].Key != "r1" || r.State != claims.StateSucceeded {
			t.Errorf("the target: %s %v", r.State, r.Undos)
		}
	})
}

// TestTwoUndosAtOnce: of two undo keys for one target that are decided at the same moment, one is claimed.
func TestTwoUndosAtOnce(t *testing.T) {
	bubble(t, func(w *world) {
		wantAnswer(t, w.do(w.call("a")), claims.SourceSent, claims.Succeeded, "paid gk:a")
		gate := make(chan struct{})
		results := make(chan claims.Result, 2)
		for _, key := range []string{"r1", "r2"} {
			c := w.refund(key)
			c.Admit = func() (func(error), error) { // both have decided before one claims
				<-gate
				return func(error) {}, nil
			}
			go func() { results <- w.do(c) }()
		}
		synctest.Wait()
		close(gate)
		won := 0
		for range 2 {
			if r := <-results; r.Source == claims.SourceSent {
				won++
			} else {
				wantRefusal(t, r, claims.AlreadyUndone, claims.NotExecuted)
			}
		}
		if won != 1 {
			t.Errorf("%d undos were sent", won)
		}
		w.sends(2)
	})
}

// TestUndoComesFirst: what was never executed is cancelled, and its late sender is refused.
func TestUndoComesFirst(t *testing.T) {
	bubble(t, func(w *world) {
		w.keep(w.p)
		g := w.lease("shop:run", time.Hour)
		u := w.refund("r1")
		u.Guard = g
		wantRefusal(t, w.do(u), claims.NothingToUndo, claims.NotExecuted)
		late := w.call("a")
		late.Guard = g
		wantRefusal(t, w.do(late), claims.CallCancelled, claims.NotExecuted)
		wantRefusal(t, w.do(u), claims.NothingToUndo, claims.NotExecuted)
		w.sends(0)
		wantState(t, w.record("a"), claims.StateCancelled)
	})
}

// TestUndoOfADoubtLooksItUp: the target's charge was made and its answer lost. The undo first finds that out.
func TestUndoOfADoubtLooksItUp(t *testing.T) {
	for name, executed := range map[string]bool{"executed": true, "not executed": false} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(w *world) {
				w.keep(w.p)
				w.gw.script = func(_ context.Context, _ int, p claims.Pass) claims.Sent {
					if p.Facts.GatewayKey != "gk:a" {
						return w.gw.charge(p)
					}
					if executed {
						w.gw.charge(p)
					}
					return claims.Sent{Cause: "cut"}
				}
				c := w.call("a")
				c.Policy.Probe = false
				wantRefusal(t, w.do(c), claims.InDoubt, claims.Unknown)
				wantRefusal(t, w.do(w.refund("r1")), claims.InFlight, claims.NotExecuted)
				w.gw.blind = false
				if executed {
					wantAnswer(t, w.do(w.refund("r1")), claims.SourceSent, claims.Succeeded, "paid gk:r1")
					w.sends(2)
					return
				}
				wantRefusal(t, w.do(w.refund("r1")), claims.InFlight, claims.NotExecuted)
				time.Sleep(11 * time.Minute) // settled: a miss proves absence
				wantRefusal(t, w.do(w.refund("r1")), claims.NothingToUndo, claims.NotExecuted)
				wantRefusal(t, w.do(c), claims.CallCancelled, claims.NotExecuted)
				w.sends(1)
			})
		})
	}
}

// TestUndoUnderAFinishedScope: only the token that finished the scope undoes what was done in it.
func TestUndoUnderAFinishedScope(t *testing.T) {
	bubble(t, func(w *world) {
		w.keep(w.p)
		first := w.lease("shop:run", 10*time.Second)
		c := w.call("a")
		c.Guard = first
		wantAnswer(t, w.do(c), claims.SourceSent, claims.Succeeded, "paid gk:a")
		time.Sleep(time.Minute)
		last := w.lease("shop:run", time.Minute)
		if err := w.mem.Finish(context.Background(), last); err != nil {
			t.Fatal(err)
		}
		u := w.refund("r1")
		for name, g := range map[string]claims.Guard{"superseded": first, "none": {}, "another scope's": w.lease("shop:other", time.Hour)} {
			u.Guard = g
			if r := w.do(u); r.Refusal == nil || r.Refusal.Reason != claims.Fenced {
				t.Errorf("%s: %s", name, show(r))
			}
		}
		w.sends(1)
		c.Guard = last
		wantRefusal(t, w.do(c), claims.ScopeFinished, claims.Unknown)
		u.Guard = last
		wantAnswer(t, w.do(u), claims.SourceSent, claims.Succeeded, "paid gk:r1")
		wantAnswer(t, w.do(u), claims.SourceReplayed, claims.Succeeded, "paid gk:r1")
		w.executed("r1", 1)
	})
}

// TestUndoWhoseClaimIsPerhapsWritten: the answer of the write of both records is lost, written or not. Neither way loses the
// undo, sends it twice or leaves the target without its key.
func TestUndoWhoseClaimIsPerhapsWritten(t *testing.T) {
	for name, applied := range map[string]bool{"written": true, "not written": false} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(w *world) {
				w.keep(w.p)
				wantAnswer(t, w.do(w.call("a")), claims.SourceSent, claims.Succeeded, "paid gk:a")
				once := false
				w.tap.set(func(tp *tap) {
					tp.onSwap = func(_ int, wr claims.Write, do func() (claims.Swapped, error)) (claims.Swapped, error) {
						if !wr.Claim || once {
							return do()
						}
						once = true
						if applied {
							do()
						}
						return claims.Swapped{}, context.DeadlineExceeded
					}
				})
				r := w.do(w.refund("r1"))
				wantAnswer(t, r, claims.SourceSent, claims.Succeeded, "paid gk:r1")
				w.executed("r1", 1)
				w.sends(2)
				wantRefusal(t, w.do(w.refund("r2")), claims.AlreadyUndone, claims.NotExecuted)
			})
		})
	}
}

func TestRevisionsChargeOnce(t *testing.T) {
	bubble(t, func(w *world) {
		w.keep(w.p)
		w.gw.script = func(_ context.Context, _ int, p claims.Pass) claims.Sent {
			if p.Revision == 1 {
				return claims.Sent{Outcome: claims.Declined, Stored: true, Answer: &claims.Answer{Status: 402, Body: []byte("no")}}
			}
			return w.gw.charge(p)
		}
		wantAnswer(t, w.do(w.call("a")), claims.SourceSent, claims.Declined, "no")
		next := w.call("a")
		next.Revision, next.Canonical, next.Facts.GatewayKey = 2, []byte("amount=90"), "gk:a#2"
		wantAnswer(t, w.do(next), claims.SourceSent, claims.Succeeded, "paid gk:a#2")
		wantAnswer(t, w.do(next), claims.SourceReplayed, claims.Succeeded, "paid gk:a#2")
		wantRefusal(t, w.do(w.call("a")), claims.SupersededRev, claims.Succeeded)
		third := next
		third.Revision, third.Facts.GatewayKey = 3, "gk:a#3"
		wantRefusal(t, w.do(third), claims.RevisionBlocked, claims.Succeeded)
		w.sends(2)
	})
}

// TestOnlyWhatMayBeKeptIsStored: the app gets the whole answer, the record what the gateway lists.
func TestOnlyWhatMayBeKeptIsStored(t *testing.T) {
	bubble(t, func(w *world) {
		c := w.call("a")
		c.Keep = func(a *claims.Answer) *claims.Answer {
			k := a.Clone()
			k.Body = []byte("kept")
			return k
		}
		wantAnswer(t, w.do(c), claims.SourceSent, claims.Succeeded, "paid gk:a")
		wantAnswer(t, w.do(c), claims.SourceReplayed, claims.Succeeded, "kept")
		if got := string(w.record("a").Answer.Body); got != "kept" {
			t.Errorf("stored %q", got)
		}
	})
}
