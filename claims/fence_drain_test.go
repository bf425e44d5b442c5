package claims_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fence-sidecar/fence-sidecar/claims"
)

func TestDrainWaitsForWhatIsUnderWay(t *testing.T) {
	bubble(t, func(w *world) {
		w.gw.script = func(ctx context.Context, _ int, p claims.Pass) claims.Sent {
			select {
			case <-time.After(8 * time.Second):
				return w.gw.charge(p)
			case <-ctx.Done():
				return claims.Sent{Cause: "cut"}
			}
		}
		got := make(chan claims.Result, 1)
		go func() { got <- w.do(w.call("a")) }()
		synctest.Wait()
		if n := w.p.fence.InFlight(); n != 1 {
			t.Errorf("%d in flight", n)
		}
		drained := make(chan error, 1)
		go func() {
			ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
			defer cancel()
			drained <- w.p.fence.Drain(ctx)
		}()
		synctest.Wait()
		wantRefusal(t, w.do(w.call("b")), claims.Draining, claims.Unknown)
		if err := <-drained; err != nil {
			t.Error(err)
		}
		wantAnswer(t, <-got, claims.SourceSent, claims.Succeeded, "paid gk:a")
		w.sends(1)
	})
}

func TestDrainCutsAndRecordsUnknown(t *testing.T) {
	for name, wait := range map[string]time.Duration{"no patience": 0, "patient app": time.Hour} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(w *world) {
				w.keep(w.p)
				w.gw.script = func(ctx context.Context, _ int, p claims.Pass) claims.Sent {
					<-ctx.Done()
					return claims.Sent{Cause: "cut"}
				}
				c := w.call("a")
				c.Wait, c.Policy.AttemptTimeout = wait, 10*time.Minute
				got := make(chan claims.Result, 1)
				go func() { got <- w.do(c) }()
				synctest.Wait()
				ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
				defer cancel()
				start := time.Now()
				if err := w.p.fence.Drain(ctx); err != nil {
					t.Errorf("drain: %v", err)
				}
				if d := time.Since(start); d > 6*time.Second {
					t.Errorf("drained after %s", d)
				}
				r := <-got
				if r.Refusal == nil || r.Outcome != claims.Unknown {
					t.Errorf("result %s", show(r))
				}
				rec := w.record("a")
				wantState(t, rec, claims.StateUnknown)
				if rec.Attempt != 1 {
					t.Errorf("attempt %d was claimed by a process that ends", rec.Attempt)
				}
				w.sends(1)
			})
		})
	}
}

func TestDrainEndsWhileDoubtIsWaitedOut(t *testing.T) {
	bubble(t, func(w *world) {
		w.keep(w.p)
		w.gw.script = func(context.Context, int, claims.Pass) claims.Sent { return claims.Sent{Cause: "cut"} }
		c := w.call("a")
		c.Wait, c.Policy.Probe = time.Hour, false
		got := make(chan claims.Result, 1)
		go func() { got <- w.do(c) }()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if err := w.p.fence.Drain(ctx); err != nil {
			t.Errorf("drain: %v", err)
		}
		wantRefusal(t, <-got, claims.InDoubt, claims.Unknown)
	})
}

func TestDrainSaysWhatCouldNotBeRecorded(t *testing.T) {
	bubble(t, func(w *world) {
		w.gw.script = func(ctx context.Context, _ int, p claims.Pass) claims.Sent {
			w.tap.set(func(tp *tap) {
				tp.onGet = func(context.Context) error { return errNet }
				tp.onSwap = func(int, claims.Write, func() (claims.Swapped, error)) (claims.Swapped, error) {
					return claims.Swapped{}, errNet
				}
			})
			return w.gw.charge(p)
		}
		got := make(chan claims.Result, 1)
		go func() { got <- w.do(w.call("a")) }()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if err := w.p.fence.Drain(ctx); err == nil {
			t.Error("a call that could not be recorded went unsaid")
		}
		wantRefusal(t, <-got, claims.InDoubt, claims.Unknown)
	})
}

func TestGiveUpOwn(t *testing.T) {
	bubble(t, func(w *world) {
		w.keep(w.p)
		other := w.process("p2")
		w.keep(other)
		stuck := make(chan struct{})
		w.gw.script = func(context.Context, int, claims.Pass) claims.Sent {
			<-stuck
			return claims.Sent{Cause: "cut"}
		}
		giveUp := func(p *process, want claims.State) {
			t.Helper()
			v, err := w.mem.Get(context.Background(), claims.Key{Tenant: "shop", Call: "a"}, claims.Guard{})
			if err != nil {
				t.Fatal(err)
			}
			if err := p.fence.GiveUpOwn(context.Background(), v); err != nil {
				t.Error(err)
			}
			wantState(t, w.record("a"), want)
		}
		done := make(chan claims.Result, 1)
		go func() { done <- w.do(w.call("a")) }()
		synctest.Wait()
		twin := claims.New(w.p.fence.Config) // the same process after its worker was lost
		giveUp(w.p, claims.StatePending)
		giveUp(&process{fence: twin}, claims.StatePending) // before its deadline
		time.Sleep(11 * time.Second)
		giveUp(w.p, claims.StatePending)   // worked on
		giveUp(other, claims.StatePending) // another's
		rec := w.record("a")
		if !w.p.fence.Working(rec.Claim) || other.fence.Working(rec.Claim) {
			t.Error("Working is wrong")
		}
		giveUp(&process{fence: twin}, claims.StateUnknown)
		close(stuck)
		synctest.Wait()
		<-done
		if err := twin.Drain(context.Background()); err != nil {
			t.Error(err)
		}
	})
}

func TestDrainCutsALookup(t *testing.T) {
	bubble(t, func(w *world) {
		w.keep(w.p)
		cfg := w.p.fence.Config
		cfg.Reconcile = func(ctx context.Context, _ claims.Key) error { <-ctx.Done(); return ctx.Err() }
		f := claims.New(cfg)
		w.gw.script = func(context.Context, int, claims.Pass) claims.Sent { return claims.Sent{Cause: "cut"} }
		c := w.call("a")
		c.Policy.Probe = false
		got := make(chan claims.Result, 1)
		go func() { got <- f.Do(context.Background(), c) }()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		if err := f.Drain(ctx); err != nil {
			t.Errorf("drain: %v", err)
		}
		wantRefusal(t, <-got, claims.InDoubt, claims.Unknown)
	})
}
