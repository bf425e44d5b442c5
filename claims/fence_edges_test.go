package claims_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fence-sidecar/fence-sidecar/claims"
	"github.com/fence-sidecar/fence-sidecar/claims/memory"
)

// recheck looks a succeeded call up, as the reconcile room does after a loss.
func (w *world) recheck(key string) {
	w.t.Helper()
	v, err := w.mem.Get(context.Background(), claims.Key{Tenant: "shop", Call: key}, claims.Guard{})
	if err != nil {
		w.t.Fatal(err)
	}
	next, moved := claims.Recheck(v, claims.Verdict{
		Looked: true, Finding: w.gw.find(v.Record.Facts), Rules: w.gw.rules, Version: v.Record.Version, Asked: v.Now,
	})
	if moved {
		if _, err := w.mem.Swap(context.Background(), claims.Condition{}, claims.Write{Version: v.Record.Version, Next: next}); err != nil {
			w.t.Fatal(err)
		}
	}
}

// TestLostUndoIsPutBackWithItsTarget: the write of both records is lost with the primary. The undo's sender puts its own record
// back, and its key on the call that it undoes: another key does not undo the same part once more.
func TestLostUndoIsPutBackWithItsTarget(t *testing.T) {
	bubble(t, func(w *world) {
		w.keep(w.p)
		w.gw.blind = false
		wantAnswer(t, w.do(w.call("a")), claims.SourceSent, claims.Succeeded, "paid gk:a")
		in, out := make(chan struct{}), make(chan struct{})
		w.gw.script = func(_ context.Context, _ int, p claims.Pass) claims.Sent {
			if p.Facts.GatewayKey == "gk:r1" {
				close(in)
				<-out
			}
			return w.gw.charge(p)
		}
		r1, r2 := w.refund("r1"), w.refund("r2")
		r1.Part, r2.Part = "1", "1"
		res := make(chan claims.Result, 1)
		w.lose(func() {
			go func() { res <- w.do(r1) }()
			<-in
			synctest.Wait()
		})
		close(out)
		wantAnswer(t, <-res, claims.SourceSent, claims.Succeeded, "paid gk:r1")
		time.Sleep(quarantine + 5*time.Second)
		w.recheck("a")
		wantRefusal(t, w.do(r2), claims.AlreadyUndone, claims.Unknown)
		w.executed("r1", 1)
		w.executed("r2", 0)
		// A target that lacks the key all the same gets it from the next repeat.
		w.mem.Edit(func(d *memory.Data, _ claims.Now) { d.Calls[claims.Key{Tenant: "shop", Call: "a"}].Record.Undos = nil })
		wantAnswer(t, w.do(r1), claims.SourceReplayed, claims.Succeeded, "paid gk:r1")
		if us := w.record("a").Undos; len(us) != 1 || us[0] != (claims.Undo{Key: "r1", Part: "1"}) {
			t.Errorf("undone by %v", us)
		}
	})
}

// TestWaitBoundsLookups: a lookup that hangs takes no longer than the app is willing to wait, or a moment where it is not.
func TestWaitBoundsLookups(t *testing.T) {
	for _, wait := range []time.Duration{0, 3 * time.Second, 10 * time.Second} {
		for _, where := range []string{"own", "joined", "undo"} {
			t.Run(where+" "+wait.String(), func(t *testing.T) {
				bubble(t, func(w *world) {
					w.keep(w.p)
					p2 := w.process("p2")
					w.keep(p2)
					defer w.drain(p2)
					w.gw.script = func(context.Context, int, claims.Pass) claims.Sent {
						time.Sleep(time.Second)
						return claims.Sent{Cause: "cut"}
					}
					p2.fence.Reconcile = func(ctx context.Context, _ claims.Key) error {
						select {
						case <-time.After(time.Hour):
						case <-ctx.Done():
						}
						return nil
					}
					c := w.call("a")
					c.Policy.Probe = false
					done := make(chan struct{})
					go func() { w.do(c); close(done) }()
					if synctest.Wait(); where != "joined" {
						<-done
					}
					c.Wait = wait
					if where == "undo" {
						c = w.refund("r1")
						c.Wait = wait
					}
					began := time.Now()
					p2.fence.Do(context.Background(), c)
					if d := time.Since(began); d > wait+3*time.Second {
						t.Errorf("took %s", d)
					}
				})
			})
		}
	}
}

// TestCancelIsToldOnceItLasts: a cancellation that was perhaps applied is told by the next request only after an acknowledged
// write: a failover could take it away, and the late charge would be made.
func TestCancelIsToldOnceItLasts(t *testing.T) {
	bubble(t, func(w *world) {
		w.keep(w.p)
		u, late := w.refund("r1"), w.call("a")
		u.Guard = w.lease("shop:run", time.Hour)
		late.Guard = u.Guard
		confirms, away := 0, false
		w.tap.set(func(tp *tap) {
			once := false
			tp.onConfirm = func() error {
				if away {
					return context.DeadlineExceeded
				}
				confirms++
				return nil
			}
			tp.onSwap = func(_ int, _ claims.Write, do func() (claims.Swapped, error)) (claims.Swapped, error) {
				if once {
					return do()
				}
				once = true
				do() // committed locally; the standby never confirmed it
				return claims.Swapped{}, context.DeadlineExceeded
			}
		})
		wantRefusal(t, w.do(u), claims.StoreUnavailable, claims.Unknown)
		away = true
		wantRefusal(t, w.do(u), claims.StoreUnavailable, claims.Unknown)
		wantRefusal(t, w.do(late), claims.StoreUnavailable, claims.Unknown)
		away = false
		wantRefusal(t, w.do(u), claims.NothingToUndo, claims.NotExecuted)
		wantRefusal(t, w.do(late), claims.CallCancelled, claims.NotExecuted)
		if confirms != 2 {
			t.Errorf("%d confirmations for two answers", confirms)
		}
		w.sends(0)
	})
}

// TestNextRevisionAfterALoss: revision 2 was paid before the loss, longer ago than the gateway keeps keys. However often revision 1
// is repeated in vain meanwhile, revision 2 is looked for before it is sent.
func TestNextRevisionAfterALoss(t *testing.T) {
	for _, repeats := range []int{0, 3, 6} {
		bubble(t, func(w *world) {
			w.keep(w.p)
			w.gw.blind = false
			unsent, charges := true, 0
			w.gw.script = func(_ context.Context, _ int, p claims.Pass) claims.Sent {
				if unsent {
					return claims.Sent{Unsent: true, Cause: "dial"}
				}
				charges++
				return w.gw.charge(p)
			}
			wantRefusal(t, w.do(w.call("a")), claims.NotSent, claims.NotExecuted)
			unsent = false
			second := w.call("a")
			second.Revision, second.Canonical, second.Facts.GatewayKey = 2, []byte("amount=90"), "gk:a#2"
			w.lose(func() {
				wantAnswer(t, w.do(second), claims.SourceSent, claims.Succeeded, "paid gk:a#2")
				time.Sleep(48 * time.Hour)
			})
			time.Sleep(time.Hour)
			unsent = true
			for range repeats {
				w.do(w.call("a"))
				time.Sleep(time.Minute)
			}
			unsent = false
			time.Sleep(48 * time.Hour)
			for range 3 {
				w.do(second)
				time.Sleep(time.Hour)
			}
			if charges != 1 {
				t.Errorf("after %d repeats revision 2 was charged %d times", repeats, charges)
			}
		})
	}
}
