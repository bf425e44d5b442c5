package claims_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fence-sidecar/fence-sidecar/claims"
	"github.com/fence-sidecar/fence-sidecar/claims/memory"
)

func TestFreshCallIsSentOnceAndReplayed(t *testing.T) {
	bubble(t, func(w *world) {
		r := w.do(w.call("a"))
		wantAnswer(t, r, claims.SourceSent, claims.Succeeded, "paid gk:a")
		if r.Attempt != 1 || r.Sends != 1 || r.Lease != "instance" || r.State != claims.StateSucceeded {
			t.Errorf("result %s", show(r))
		}
		wantAnswer(t, w.do(w.call("a")), claims.SourceReplayed, claims.Succeeded, "paid gk:a")
		w.sends(1)
		w.executed("a", 1)
	})
}

func TestConflictStoresAndSendsNothing(t *testing.T) {
	bubble(t, func(w *world) {
		w.do(w.call("a"))
		was := w.record("a")
		c := w.call("a")
		c.Canonical = []byte("amount=900")
		wantRefusal(t, w.do(c), claims.KeyConflict, claims.Succeeded)
		if now := w.record("a"); now.Version != was.Version {
			t.Errorf("version moved from %d to %d", was.Version, now.Version)
		}
		w.sends(1)
	})
}

func TestTwentyAtOnceSendOnce(t *testing.T) {
	bubble(t, func(w *world) {
		release := make(chan struct{})
		w.gw.script = func(_ context.Context, _ int, p claims.Pass) claims.Sent {
			<-release
			return w.gw.charge(p)
		}
		results := make([]claims.Result, 20)
		var wg sync.WaitGroup
		for i := range results {
			wg.Go(func() { results[i] = w.do(w.call("a")) })
		}
		synctest.Wait()
		close(release)
		wg.Wait()
		sent, inflight := 0, 0
		for _, r := range results {
			switch {
			case r.Source == claims.SourceSent:
				sent++
				wantAnswer(t, r, claims.SourceSent, claims.Succeeded, "paid gk:a")
			default:
				inflight++
				wantRefusal(t, r, claims.InFlight, claims.Unknown)
				if r.Refusal.RetryAfter <= 0 {
					t.Error("in-flight without Retry-After")
				}
			}
		}
		if sent != 1 || inflight != 19 {
			t.Errorf("%d sent, %d in flight", sent, inflight)
		}
		for range 20 {
			wantAnswer(t, w.do(w.call("a")), claims.SourceReplayed, claims.Succeeded, "paid gk:a")
		}
		w.sends(1)
		w.executed("a", 1)
	})
}

// TestTwentyAtOnceBites: with a store that claims without comparing versions, the gateway gets more than one request.
func TestTwentyAtOnceBites(t *testing.T) {
	bubble(t, func(w *world) {
		var mu sync.Mutex
		w.tap.set(func(tp *tap) {
			tp.onSwap = func(_ int, wr claims.Write, do func() (claims.Swapped, error)) (claims.Swapped, error) {
				mu.Lock()
				defer mu.Unlock()
				if !wr.Claim {
					return do()
				}
				v, _ := w.mem.Get(context.Background(), wr.Next.Key, claims.Guard{})
				wr.Version = v.Record.Version // the broken rule
				return w.mem.Swap(context.Background(), claims.Condition{Guard: wr.Next.Sender, Sender: wr.Next.Sender}, wr)
			}
		})
		gate := make(chan struct{})
		c := w.call("a")
		c.Admit = func() (func(error), error) { // all have decided before the first one claims
			<-gate
			return func(error) {}, nil
		}
		var wg sync.WaitGroup
		for range 3 {
			wg.Go(func() { w.do(c) })
		}
		synctest.Wait()
		close(gate)
		wg.Wait()
		if w.gw.sends() < 2 {
			t.Error("a claim that does not compare went unnoticed")
		}
	})
}

func TestStaleTokenComesBeforeTheRecord(t *testing.T) {
	bubble(t, func(w *world) {
		w.keep(w.p)
		c := w.call("a")
		c.Guard = w.lease("shop:run", 20*time.Second)
		wantAnswer(t, w.do(c), claims.SourceSent, claims.Succeeded, "paid gk:a")
		time.Sleep(time.Minute) // expired
		stale := func(what string, why claims.Reason, change func(*claims.Call)) {
			t.Helper()
			z := c
			change(&z)
			r := w.do(z)
			wantRefusal(t, r, why, claims.Unknown)
			if r.Answer != nil || r.Lease != "lost" && why == claims.Fenced {
				t.Errorf("%s: %s", what, show(r))
			}
		}
		for _, status := range []string{"expired", "superseded"} {
			stale(status+": a stored answer", claims.Fenced, func(*claims.Call) {})
			stale(status+": another request", claims.Fenced, func(z *claims.Call) { z.Canonical = []byte("x") })
			stale(status+": another revision", claims.Fenced, func(z *claims.Call) { z.Revision = 2 })
			stale(status+": a new call", claims.Fenced, func(z *claims.Call) { z.Key.Call = "b" })
			if status == "expired" {
				w.lease("shop:run", 20*time.Second)
			}
		}
		g := c.Guard
		g.Token++
		if err := w.mem.Finish(context.Background(), g); err != nil {
			t.Fatal(err)
		}
		c.Guard = g
		stale("finished", claims.ScopeFinished, func(*claims.Call) {})
		w.sends(1)
	})
}

func TestForeignAndMissingScopeAreFenced(t *testing.T) {
	bubble(t, func(w *world) {
		c := w.call("a")
		c.Guard = w.lease("shop:run", time.Hour)
		w.do(c)
		for name, g := range map[string]claims.Guard{"foreign": w.lease("shop:other", time.Hour), "none": {}} {
			c.Guard = g
			r := w.do(c)
			wantRefusal(t, r, claims.Fenced, claims.Unknown)
			if r.Answer != nil {
				t.Errorf("%s: the answer was told", name)
			}
		}
		w.sends(1)
	})
}

func TestRecordWithoutScopeAcceptsAnyLiveToken(t *testing.T) {
	bubble(t, func(w *world) {
		w.do(w.call("a"))
		c := w.call("a")
		c.Guard = w.lease("shop:run", time.Hour)
		wantAnswer(t, w.do(c), claims.SourceReplayed, claims.Succeeded, "paid gk:a")
		if s := w.record("a").Scope; s != "" {
			t.Errorf("scope rewritten to %q", s)
		}
	})
}

func TestAttemptOutlivesTheApp(t *testing.T) {
	bubble(t, func(w *world) {
		arrived, release := make(chan struct{}), make(chan struct{})
		w.gw.script = func(ctx context.Context, _ int, p claims.Pass) claims.Sent {
			close(arrived)
			<-release
			if ctx.Err() != nil {
				t.Error("the attempt was cut when the app hung up")
			}
			return w.gw.charge(p)
		}
		ctx, hangUp := context.WithCancel(context.Background())
		go func() { <-arrived; hangUp() }()
		wantRefusal(t, w.p.fence.Do(ctx, w.call("a")), claims.InDoubt, claims.Unknown)
		wantState(t, w.record("a"), claims.StatePending)
		close(release)
		synctest.Wait()
		wantAnswer(t, w.do(w.call("a")), claims.SourceReplayed, claims.Succeeded, "paid gk:a")
		w.executed("a", 1)
		w.sends(1)
	})
}

func TestNothingIsClaimedForAnAppThatHungUp(t *testing.T) {
	bubble(t, func(w *world) {
		ctx, hangUp := context.WithCancel(context.Background())
		w.tap.set(func(tp *tap) { tp.onGot = hangUp }) // the decision was made to send
		w.p.fence.Do(ctx, w.call("a"))
		synctest.Wait()
		if r := w.record("a"); r.Exists() {
			t.Errorf("claimed: %+v", r)
		}
		w.sends(0)
	})
}

// TestHangUpWhileClaiming: a write that left is waited for, and what was claimed is sent.
func TestHangUpWhileClaiming(t *testing.T) {
	bubble(t, func(w *world) {
		ctx, hangUp := context.WithCancel(context.Background())
		w.tap.set(func(tp *tap) {
			tp.onSwap = func(_ int, _ claims.Write, do func() (claims.Swapped, error)) (claims.Swapped, error) {
				hangUp()
				return do()
			}
		})
		w.p.fence.Do(ctx, w.call("a"))
		synctest.Wait()
		wantState(t, w.record("a"), claims.StateSucceeded)
		w.sends(1)
	})
}

func TestSenderPanicIsDoubt(t *testing.T) {
	bubble(t, func(w *world) {
		c := w.call("a")
		c.Policy.Probe = false
		w.gw.script = func(context.Context, int, claims.Pass) claims.Sent { panic("in the middle of a write") }
		wantRefusal(t, w.do(c), claims.InDoubt, claims.Unknown)
		wantState(t, w.record("a"), claims.StateUnknown)
		if a := w.record("a").Attempts[0]; !a.Wrote || !a.Doubtful() || w.p.fence.Working(a.Claim) {
			t.Errorf("attempt %+v", a)
		}
	})
}

func TestZeroBytesOpensAndIsSentAgain(t *testing.T) {
	bubble(t, func(w *world) {
		c := w.call("a")
		c.Send = func(context.Context, claims.Pass, func() error) claims.Sent {
			return claims.Sent{Unsent: true, Cause: "dial"}
		}
		wantRefusal(t, w.do(c), claims.NotSent, claims.NotExecuted)
		wantState(t, w.record("a"), claims.StateOpen)
		wantAnswer(t, w.do(w.call("a")), claims.SourceSent, claims.Succeeded, "paid gk:a")
		if n := w.record("a").Attempt; n != 2 {
			t.Errorf("attempt %d, want 2", n)
		}
		w.sends(1)
	})
}

func TestProbeOnlyOnceAndOnlyWhenUnanswered(t *testing.T) {
	lost := claims.Sent{Cause: "cut"}
	five := claims.Sent{Cause: "unlisted", Answer: answer(500, "boom"), Error: true}
	shapeless := claims.Sent{Cause: "unlisted", Answer: answer(503, "upstream connect error")}
	page := claims.Sent{Cause: "unlisted", Answer: answer(502, "<html>")}
	inUse := claims.Sent{Cause: "in-use", InUse: true, Answer: answer(409, "in use")}
	odd := claims.Sent{Cause: "unlisted", Answer: answer(418, "teapot")}
	for _, tc := range []struct {
		name    string
		first   claims.Sent
		probe   bool
		sends   int
		refusal claims.Reason // "": the 500 is passed on
	}{
		{"no answer", lost, true, 2, claims.InDoubt},
		{"no answer, no probe", lost, false, 1, claims.InDoubt},
		{"key in use", inUse, true, 2, claims.InDoubt},
		{"a 500 would be replayed", five, true, 1, ""},
		{"an SDK could take a 503 without the gateway's shape for a success; a probe asks on", shapeless, true, 2, claims.InDoubt},
		{"a 502 in another shape is not passed on", page, true, 2, claims.InDoubt},
		{"another unlisted answer is no 5xx", odd, true, 2, claims.InDoubt},
	} {
		t.Run(tc.name, func(t *testing.T) {
			bubble(t, func(w *world) {
				c := w.call("a")
				c.Policy.Probe = tc.probe
				w.gw.script = func(context.Context, int, claims.Pass) claims.Sent { return tc.first }
				r := w.do(c)
				if tc.refusal != "" {
					wantRefusal(t, r, tc.refusal, claims.Unknown)
				} else {
					wantAnswer(t, r, claims.SourceSent, claims.Unknown, "boom")
				}
				if r.Sends != tc.sends {
					t.Errorf("%d sends, want %d", r.Sends, tc.sends)
				}
				wantState(t, w.record("a"), claims.StateUnknown)
				w.sends(tc.sends)
			})
		})
	}
}

func TestProbeBringsTheStoredAnswer(t *testing.T) {
	bubble(t, func(w *world) {
		w.gw.script = func(_ context.Context, n int, p claims.Pass) claims.Sent {
			s := w.gw.charge(p)
			if n == 1 {
				return claims.Sent{Cause: "cut"} // charged, answer lost
			}
			return s
		}
		r := w.do(w.call("a"))
		wantAnswer(t, r, claims.SourceSent, claims.Succeeded, "paid gk:a")
		for _, a := range w.record("a").Attempts {
			if a.Outcome != claims.Succeeded {
				t.Errorf("attempt %+v: the stored first answer speaks of every attempt", a)
			}
		}
		w.executed("a", 1)
	})
}

func TestDoubtIsLookedInto(t *testing.T) {
	bubble(t, func(w *world) {
		w.keep(w.p)
		c := w.call("a")
		c.Policy.Probe, c.Wait = false, 20*time.Second
		w.gw.script = func(_ context.Context, _ int, p claims.Pass) claims.Sent {
			w.gw.charge(p)
			time.AfterFunc(3*time.Second, func() { w.gw.mu.Lock(); w.gw.blind = false; w.gw.mu.Unlock() })
			return claims.Sent{Cause: "cut"}
		}
		start := time.Now()
		wantAnswer(t, w.do(c), claims.SourceReconciled, claims.Succeeded, "found gk:a")
		if d := time.Since(start); d < 3*time.Second || d > 10*time.Second {
			t.Errorf("found out after %s", d)
		}
		w.sends(1)
	})
}

func TestDoubtWaitsAsLongAsTheAppSays(t *testing.T) {
	bubble(t, func(w *world) {
		w.keep(w.p)
		for _, wait := range []time.Duration{0, 20 * time.Second, 20 * time.Minute} {
			c := w.call("a" + wait.String())
			c.Policy.Probe, c.Wait = false, wait
			w.gw.script = func(context.Context, int, claims.Pass) claims.Sent { return claims.Sent{Cause: "cut"} }
			start := time.Now()
			wantRefusal(t, w.do(c), claims.InDoubt, claims.Unknown)
			if d := time.Since(start); d > wait || d < wait-5*time.Second {
				t.Errorf("waited %s of %s", d, wait)
			}
		}
	})
}

func TestOwnForgottenAttemptIsGivenUp(t *testing.T) {
	bubble(t, func(w *world) {
		w.keep(w.p)
		twin := claims.New(w.p.fence.Config) // the same process's lease; it forgets what it claimed
		stuck := make(chan struct{})
		c := w.call("a")
		c.Send = func(context.Context, claims.Pass, func() error) claims.Sent {
			<-stuck
			return claims.Sent{Unsent: true}
		}
		go twin.Do(context.Background(), c)
		synctest.Wait()
		wantRefusal(t, w.do(w.call("a")), claims.InFlight, claims.Unknown)
		time.Sleep(11 * time.Second)
		wantAnswer(t, w.do(w.call("a")), claims.SourceSent, claims.Succeeded, "paid gk:a")
		w.sends(1)
		close(stuck)
		if err := twin.Drain(context.Background()); err != nil {
			t.Error(err)
		}
		wantState(t, w.record("a"), claims.StateSucceeded)
	})
}

func TestClockBehindTheRecordIsReviewed(t *testing.T) {
	bubble(t, func(w *world) {
		c := w.call("a")
		c.Send = func(context.Context, claims.Pass, func() error) claims.Sent { return claims.Sent{Unsent: true} }
		w.do(c)
		w.mem.Edit(func(d *memory.Data, now claims.Now) {
			r := &d.Calls[c.Key].Record
			r.Updated.Store = now.Store.Add(time.Hour)
		})
		wantRefusal(t, w.do(w.call("a")), claims.NeedsReview, claims.Unknown)
		wantState(t, w.record("a"), claims.StateReview)
		w.sends(0)
	})
}

func TestRecordThatKeepsChanging(t *testing.T) {
	bubble(t, func(w *world) {
		n := 0
		w.tap.set(func(tp *tap) {
			tp.onSwap = func(int, claims.Write, func() (claims.Swapped, error)) (claims.Swapped, error) {
				n++
				return claims.Swapped{Records: []claims.Record{{}}}, claims.ErrLost
			}
		})
		wantRefusal(t, w.do(w.call("a")), claims.StoreUnavailable, claims.Unknown)
		if n != 100 {
			t.Errorf("%d tries", n)
		}
		w.sends(0)
	})
}

func TestStoreFailsToAmend(t *testing.T) {
	bubble(t, func(w *world) {
		w.gw.script = func(context.Context, int, claims.Pass) claims.Sent { return claims.Sent{Cause: "cut"} }
		c := w.call("a")
		c.Policy.Probe = false
		w.do(c)
		w.mem.Edit(func(d *memory.Data, _ claims.Now) {
			r := &d.Calls[c.Key].Record
			r.Evidence = append(r.Evidence, claims.Evidence{Revision: 1, Claim: r.Claim, Outcome: claims.Succeeded, Source: "notice"})
		})
		w.tap.set(func(tp *tap) {
			tp.onSwap = func(int, claims.Write, func() (claims.Swapped, error)) (claims.Swapped, error) {
				return claims.Swapped{}, errNet
			}
		})
		wantRefusal(t, w.do(c), claims.StoreUnavailable, claims.Unknown)
		w.tap.set(func(tp *tap) { tp.onSwap = nil })
		wantRefusal(t, w.do(c), claims.AnswerGone, claims.Succeeded)
		w.sends(1)
	})
}
