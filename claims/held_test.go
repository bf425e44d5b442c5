package claims_test

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fence-sidecar/fence-sidecar/claims"
	"github.com/fence-sidecar/fence-sidecar/claims/memory"
)

func TestInstanceTakesItsOwnScope(t *testing.T) {
	bubble(t, func(w *world) {
		g := w.p.inst.Guard()
		if !g.Instance() || g.Token != 1 || w.p.inst.Left() != 29*time.Second || w.p.inst.AssertHeld() != nil {
			t.Errorf("%s, trusted for %s", g, w.p.inst.Left())
		}
		if o := w.process("p2").inst.Guard(); o.Scope == g.Scope {
			t.Error("two processes share a scope")
		}
		l, err := w.mem.State(context.Background(), g.Scope)
		if err != nil || !strings.HasPrefix(l.Holder, "p1 ") {
			t.Errorf("holder %q, %v", l.Holder, err)
		}
	})
}

func TestRenewalEveryThird(t *testing.T) {
	bubble(t, func(w *world) {
		start := time.Now()
		var renewed []time.Duration
		w.tap.set(func(tp *tap) {
			tp.onRenew = func(_ claims.Guard, do func() (claims.Lease, error)) (claims.Lease, error) {
				renewed = append(renewed, time.Since(start))
				return do()
			}
		})
		w.keep(w.p)
		time.Sleep(65 * time.Second)
		synctest.Wait()
		if len(renewed) != 6 {
			t.Fatalf("renewed at %v", renewed)
		}
		for i, d := range renewed {
			if d != time.Duration(i+1)*10*time.Second {
				t.Errorf("renewal %d after %s", i+1, d)
			}
		}
		if g := w.p.inst.Guard(); g.Token != 1 || w.p.inst.Left() != 24*time.Second {
			t.Errorf("%s, trusted for %s", g, w.p.inst.Left())
		}
	})
}

// TestTrustIsAnchoredBeforeTheRequest: a slow answer shortens what is trusted, by whichever clock counted most.
func TestTrustIsAnchoredBeforeTheRequest(t *testing.T) {
	const slow = 7 * time.Second
	for name, b := range map[string][3]time.Duration{
		"monotonic": {slow, 0, 0}, "boot": {0, slow, 0}, "wall": {0, 0, slow},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(w *world) {
				time.Sleep(10 * time.Second)
				w.tap.set(func(tp *tap) {
					tp.onRenew = func(_ claims.Guard, do func() (claims.Lease, error)) (claims.Lease, error) {
						l, err := do()
						w.p.clock.bend(b[0], b[1], b[2])
						return l, err
					}
					tp.onTake = func(do func() (claims.Lease, error)) (claims.Lease, error) {
						l, err := do()
						w.p.clock.bend(b[0], b[1], b[2])
						return l, err
					}
				})
				if err := w.p.inst.ConfirmNow(context.Background()); err != nil {
					t.Fatal(err)
				}
				if left := w.p.inst.Left(); left != 29*time.Second-slow {
					t.Errorf("trusted for %s after a renewal", left)
				}
				w.mem.Edit(func(d *memory.Data, now claims.Now) { d.Leases[w.p.inst.Guard().Scope].Expiry = now.Store })
				if err := w.p.inst.Take(context.Background()); err != nil {
					t.Fatal(err)
				}
				if left := w.p.inst.Left(); left != 29*time.Second-slow || w.p.inst.Guard().Token != 2 {
					t.Errorf("trusted for %s after a take", left)
				}
			})
		})
	}
}

func TestTrustEndsByTheFirstClock(t *testing.T) {
	for name, b := range map[string][3]time.Duration{
		"monotonic": {29 * time.Second, -time.Hour, -time.Hour},
		"boot":      {-time.Hour, 29 * time.Second, 0},
		"wall":      {0, -time.Hour, 29 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(w *world) {
				w.p.clock.bend(b[0]-b[0]/29, b[1]-b[1]/29, b[2]-b[2]/29)
				if w.p.inst.AssertHeld() != nil {
					t.Error("trust ended early")
				}
				w.p.clock.bend(b[0]/29, b[1]/29, b[2]/29)
				err := w.p.inst.AssertHeld()
				if f, ok := errors.AsType[*claims.FencedError](err); !ok || !f.Sender {
					t.Errorf("trusted past its end: %v", err)
				}
			})
		})
	}
}

func TestRenewalIsRetried(t *testing.T) {
	bubble(t, func(w *world) {
		var n atomic.Int64
		w.tap.set(func(tp *tap) {
			tp.onRenew = func(_ claims.Guard, do func() (claims.Lease, error)) (claims.Lease, error) {
				if n.Add(1)%3 != 0 { // two of three fail
					return claims.Lease{}, errNet
				}
				return do()
			}
		})
		w.keep(w.p)
		for range 300 {
			time.Sleep(time.Second)
			if w.p.inst.Left() <= 0 {
				t.Fatal("the lease was not kept")
			}
		}
		if w.p.inst.Guard().Token != 1 || n.Load() < 10 {
			t.Errorf("%s after %d renewals", w.p.inst.Guard(), n.Load())
		}
	})
}

func TestLostInstanceLeaseIsTakenAgain(t *testing.T) {
	bubble(t, func(w *world) {
		w.keep(w.p)
		var back atomic.Bool
		w.tap.set(func(tp *tap) {
			tp.onRenew = func(_ claims.Guard, do func() (claims.Lease, error)) (claims.Lease, error) {
				if !back.Load() {
					return claims.Lease{}, errNet
				}
				return do()
			}
		})
		time.Sleep(time.Minute)
		if w.p.inst.Left() > 0 {
			t.Error("trusted although the store is away")
		}
		wantRefusal(t, w.do(w.call("a")), claims.LeaseLost, claims.Unknown)
		back.Store(true)
		time.Sleep(3 * time.Second)
		if g := w.p.inst.Guard(); g.Token != 2 || w.p.inst.Left() <= 0 {
			t.Errorf("%s, trusted for %s", g, w.p.inst.Left())
		}
		wantAnswer(t, w.do(w.call("a")), claims.SourceSent, claims.Succeeded, "paid gk:a")
	})
}

func TestRunTakesWhatWasNeverTaken(t *testing.T) {
	bubble(t, func(w *world) {
		inst := claims.NewInstance(w.tap, w.p.clock.read, claims.LeaseTimes{}, "p", w.p.fence.Log)
		if inst.Left() > 0 || inst.AssertHeld() == nil || !inst.Guard().IsZero() {
			t.Error("an instance that took nothing holds something")
		}
		go inst.Run(w.run)
		time.Sleep(11 * time.Second)
		if inst.Guard().Token != 1 || inst.Left() <= 0 {
			t.Errorf("%s", inst.Guard())
		}
	})
}

func TestLostAcquireAnswer(t *testing.T) {
	bubble(t, func(w *world) {
		lose := func(do func() (claims.Lease, error)) (claims.Lease, error) {
			if _, err := do(); err != nil {
				return claims.Lease{}, err
			}
			return claims.Lease{}, errNet
		}
		w.tap.set(func(tp *tap) { tp.onTake = lose })
		inst := claims.NewInstance(w.tap, w.p.clock.read, claims.LeaseTimes{}, "p", w.p.fence.Log)
		if err := inst.Take(context.Background()); err != nil {
			t.Fatalf("its own lease was not recognised: %v", err)
		}
		if inst.Guard().Token != 1 || inst.Left() <= 0 {
			t.Errorf("%s, trusted for %s", inst.Guard(), inst.Left())
		}
		// Neither the answer nor the state arrives: the next take finds its own lease in the way.
		store := &blindState{tap: w.tap, blind: true}
		inst = claims.NewInstance(store, w.p.clock.read, claims.LeaseTimes{}, "p", w.p.fence.Log)
		if err := inst.Take(context.Background()); err == nil {
			t.Fatal("taken without any answer")
		}
		store.blind = false
		w.tap.set(func(tp *tap) { tp.onTake = nil })
		if err := inst.Take(context.Background()); err != nil || inst.Guard().Token != 1 {
			t.Errorf("%v, %s", err, inst.Guard())
		}
	})
}

// blindState is a store whose State does not answer.
type blindState struct {
	*tap
	blind bool
}

func (s *blindState) State(ctx context.Context, scope string) (claims.Lease, error) {
	if s.blind {
		return claims.Lease{}, errNet
	}
	return s.tap.State(ctx, scope)
}

func TestAnotherHoldersLeaseIsNotRecognised(t *testing.T) {
	bubble(t, func(w *world) {
		w.tap.set(func(tp *tap) { // the answer is lost, and what holds the scope is somebody else's
			tp.onTake = func(do func() (claims.Lease, error)) (claims.Lease, error) {
				l, err := do()
				if err == nil {
					w.mem.Edit(func(d *memory.Data, _ claims.Now) { d.Leases[l.Scope].Holder = "p else" })
				}
				return claims.Lease{}, errNet
			}
		})
		inst := claims.NewInstance(w.tap, w.p.clock.read, claims.LeaseTimes{}, "p", w.p.fence.Log)
		if err := inst.Take(context.Background()); err == nil || inst.Left() > 0 {
			t.Errorf("took another's lease: %v", err)
		}
	})
}

func TestClose(t *testing.T) {
	bubble(t, func(w *world) {
		ctx := context.Background()
		g := w.p.inst.Guard()
		if err := w.p.inst.Close(ctx); err != nil {
			t.Fatal(err)
		}
		l, _ := w.mem.State(ctx, g.Scope)
		if l.Status != claims.LeaseReleased || w.p.inst.Left() > 0 || w.p.inst.AssertHeld() == nil {
			t.Errorf("after Close: %s, trusted for %s", l.Status, w.p.inst.Left())
		}
		if err := w.p.inst.Close(ctx); err != nil {
			t.Errorf("closing again: %v", err)
		}
		// With a pending attempt the lease is kept, but this process trusts it no more.
		p := w.process("p2")
		w.gw.script = func(context.Context, int, claims.Pass) claims.Sent {
			if err := p.inst.Close(ctx); !errors.Is(err, claims.ErrCallsInFlight) {
				t.Errorf("closed over a pending attempt: %v", err)
			}
			return claims.Sent{Cause: "cut"}
		}
		p.fence.Do(ctx, w.call("a"))
		if p.inst.Left() > 0 {
			t.Error("trusted after Close")
		}
		w.drain(p)
	})
}

// TestOnTake: nothing is done under a lease before the hook has agreed, at the first take and at a later one; the lease that
// was refused is given back all the same.
func TestOnTake(t *testing.T) {
	bubble(t, func(w *world) {
		ctx, no := context.Background(), errors.New("no")
		var asked []claims.Guard
		answer := no
		inst := claims.NewInstance(w.mem, w.p.clock.read, w.times, "p2", slog.New(slog.DiscardHandler))
		inst.OnTake = func(_ context.Context, g claims.Guard) error {
			if inst.Guard() == g {
				t.Errorf("%s is in use before the hook has agreed", g)
			}
			asked = append(asked, g)
			return answer
		}
		if err := inst.Take(ctx); !errors.Is(err, no) || !inst.Guard().IsZero() || inst.AssertHeld() == nil {
			t.Errorf("taken into use in spite of the hook: %v, %s", err, inst.Guard())
		}
		answer = nil
		if err := inst.Take(ctx); err != nil || inst.AssertHeld() != nil || len(asked) != 2 || asked[0] != asked[1] || asked[1].Token != 1 {
			t.Errorf("taken again: %v, asked for %v", err, asked)
		}
		if err := inst.ConfirmNow(ctx); err != nil || len(asked) != 2 {
			t.Errorf("a renewal: %v, asked for %v", err, asked)
		}
		w.mem.Edit(func(d *memory.Data, now claims.Now) { d.Leases[asked[0].Scope].Expiry = now.Store })
		answer = no
		if err := inst.Take(ctx); !errors.Is(err, no) || inst.Guard().Token != 1 || len(asked) != 3 || asked[2].Token != 2 {
			t.Errorf("taken again after a loss: %v, %s, asked for %v", err, inst.Guard(), asked)
		}
		if err := inst.Close(ctx); err != nil {
			t.Errorf("close: %v", err)
		}
		if l, err := w.mem.State(ctx, asked[2].Scope); err != nil || l.Status != claims.LeaseReleased {
			t.Errorf("the refused lease was not given back: %+v, %v", l, err)
		}
	})
}

func TestOvertakenRenewalDoesNotBringTheOldTokenBack(t *testing.T) {
	bubble(t, func(w *world) {
		hold := make(chan struct{})
		w.tap.set(func(tp *tap) {
			tp.onRenew = func(_ claims.Guard, do func() (claims.Lease, error)) (claims.Lease, error) {
				l, err := do()
				<-hold
				return l, err
			}
		})
		done := make(chan error, 1)
		go func() { done <- w.p.inst.ConfirmNow(context.Background()) }()
		synctest.Wait()
		time.Sleep(31 * time.Second)
		if err := w.p.inst.Take(context.Background()); err != nil {
			t.Fatal(err)
		}
		close(hold)
		<-done
		if g := w.p.inst.Guard(); g.Token != 2 || w.p.inst.Left() <= 0 {
			t.Errorf("%s, trusted for %s", g, w.p.inst.Left())
		}
	})
}

func TestOvertakenRenewalDoesNotShortenTrust(t *testing.T) {
	bubble(t, func(w *world) {
		hold := make(chan struct{})
		first := true
		w.tap.set(func(tp *tap) {
			tp.onRenew = func(_ claims.Guard, do func() (claims.Lease, error)) (claims.Lease, error) {
				l, err := do()
				if first {
					first = false
					<-hold
				}
				return l, err
			}
		})
		done := make(chan error, 1)
		go func() { done <- w.p.inst.ConfirmNow(context.Background()) }()
		synctest.Wait()
		time.Sleep(10 * time.Second)
		if err := w.p.inst.ConfirmNow(context.Background()); err != nil {
			t.Fatal(err)
		}
		close(hold)
		if err := <-done; err != nil || w.p.inst.Left() != 29*time.Second {
			t.Errorf("%v, trusted for %s", err, w.p.inst.Left())
		}
	})
}
