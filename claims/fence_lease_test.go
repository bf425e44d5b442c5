package claims_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fence-sidecar/fence-sidecar/claims"
	"github.com/fence-sidecar/fence-sidecar/claims/memory"
)

// takeAway ends a lease in the store and grants the scope to somebody else.
func (w *world) takeAway(g claims.Guard) {
	w.mem.Edit(func(d *memory.Data, now claims.Now) {
		l := d.Leases[g.Scope]
		l.Token, l.Holder, l.Expiry = l.Token+1, "another", now.Store.Add(time.Hour)
	})
}

// noRenewals lets no renewal through: a lease that lives in the store could be renewed, and trusted again, before the gate.
func (w *world) noRenewals() {
	w.tap.set(func(tp *tap) {
		tp.onRenew = func(claims.Guard, func() (claims.Lease, error)) (claims.Lease, error) {
			return claims.Lease{}, errors.New("no answer")
		}
	})
}

func TestLeaseLostBeforeTheFirstByte(t *testing.T) {
	bends := map[string][3]time.Duration{
		"monotonic": {29 * time.Second, 0, 0},
		"boot":      {0, 29 * time.Second, 0},
		"wall":      {0, 0, 29 * time.Second},
	}
	for name, b := range bends {
		t.Run("instance by "+name, func(t *testing.T) {
			bubble(t, func(w *world) {
				c := w.call("a")
				c.Policy.AttemptTimeout = time.Minute // so that the lease ends first
				w.gw.before = func(claims.Pass) { w.p.clock.bend(b[0], b[1], b[2]) }
				wantRefusal(t, w.do(c), claims.LeaseLost, claims.NotExecuted)
				wantState(t, w.record("a"), claims.StateOpen)
				w.sends(0)
			})
		})
		t.Run("app by "+name, func(t *testing.T) {
			bubble(t, func(w *world) {
				c := w.call("a")
				c.Policy.AttemptTimeout = time.Minute
				c.Guard = w.lease("shop:run", 12*time.Second)
				w.noRenewals()
				w.gw.before = func(claims.Pass) { w.p.clock.bend(b[0]/2, b[1]/2, b[2]/2) }
				r := w.do(c)
				wantRefusal(t, r, claims.Fenced, claims.NotExecuted)
				if r.Lease != "lost" {
					t.Errorf("lease %s", r.Lease)
				}
				wantState(t, w.record("a"), claims.StateOpen)
				w.sends(0)
			})
		})
		t.Run("app, renewed before the gate, by "+name, func(t *testing.T) {
			bubble(t, func(w *world) {
				c := w.call("a")
				c.Policy.AttemptTimeout = time.Minute
				c.Guard = w.lease("shop:run", 12*time.Second)
				w.gw.before = func(claims.Pass) {
					w.p.clock.bend(b[0]/2, b[1]/2, b[2]/2)
					time.Sleep(10 * time.Second) // the renewal is due
				}
				wantAnswer(t, w.do(c), claims.SourceSent, claims.Succeeded, "paid gk:a")
				w.sends(1)
			})
		})
		t.Run("attempt's own time by "+name, func(t *testing.T) {
			bubble(t, func(w *world) {
				w.gw.before = func(claims.Pass) { w.p.clock.bend(b[0]/2, b[1]/2, b[2]/2) }
				wantRefusal(t, w.do(w.call("a")), claims.NotSent, claims.NotExecuted)
				wantState(t, w.record("a"), claims.StateOpen)
				w.sends(0)
			})
		})
	}
}

// TestGateBites: a sender that does not ask its gate sends under a lost lease.
func TestGateBites(t *testing.T) {
	bubble(t, func(w *world) {
		c := w.call("a")
		c.Send = func(ctx context.Context, p claims.Pass, _ func() error) claims.Sent {
			w.p.clock.bend(0, 0, time.Hour)
			return w.gw.send(ctx, p, func() error { return nil })
		}
		w.do(c)
		w.sends(1)
	})
}

func TestTrustCountsFromBeforeTheClaim(t *testing.T) {
	slow := func(w *world, d time.Duration) {
		w.tap.set(func(tp *tap) {
			tp.onSwap = func(n int, wr claims.Write, do func() (claims.Swapped, error)) (claims.Swapped, error) {
				sw, err := do()
				if wr.Claim {
					w.p.clock.bend(d, d, d) // the answer took this long
				}
				return sw, err
			}
		})
	}
	t.Run("app lease", func(t *testing.T) {
		bubble(t, func(w *world) {
			slow(w, 10*time.Second)
			w.noRenewals()
			c := w.call("a")
			c.Policy.AttemptTimeout = time.Minute
			c.Guard = w.lease("shop:run", 10*time.Second)
			wantRefusal(t, w.do(c), claims.Fenced, claims.NotExecuted)
			w.sends(0)
		})
	})
	t.Run("attempt", func(t *testing.T) {
		bubble(t, func(w *world) {
			slow(w, 10*time.Second)
			wantRefusal(t, w.do(w.call("a")), claims.NotSent, claims.NotExecuted)
			w.sends(0)
		})
	})
	t.Run("the attempt's context ends before the deadline", func(t *testing.T) {
		bubble(t, func(w *world) {
			slow(w, 4*time.Second)
			c := w.call("a")
			c.Policy.Probe = false
			w.gw.script = func(ctx context.Context, _ int, _ claims.Pass) claims.Sent {
				end, ok := ctx.Deadline()
				if left := time.Until(end); !ok || left > 6*time.Second {
					t.Errorf("the sender has %s", left)
				}
				return claims.Sent{Cause: "timeout"}
			}
			w.do(c)
			w.sends(1)
		})
	})
}

func TestInstanceLeaseTakenAgainBetweenClaimAndGate(t *testing.T) {
	bubble(t, func(w *world) {
		w.gw.before = func(claims.Pass) {
			w.mem.Edit(func(d *memory.Data, now claims.Now) { d.Leases[w.p.inst.Guard().Scope].Expiry = now.Store })
			if err := w.p.inst.Take(context.Background()); err != nil {
				t.Fatal(err)
			}
		}
		r := w.do(w.call("a"))
		wantRefusal(t, r, claims.LeaseLost, claims.Unknown) // the fence under which the record was read is gone
		w.sends(0)
		wantState(t, w.record("a"), claims.StateOpen)
		if a := w.record("a").Attempts[0]; a.Counts() || a.Proof != "zero-bytes" {
			t.Errorf("an attempt that passed no byte counts: %+v", a)
		}
		w.gw.before = nil
		wantAnswer(t, w.do(w.call("a")), claims.SourceSent, claims.Succeeded, "paid gk:a")
	})
}

func TestLeaseLostAfterTheFirstByte(t *testing.T) {
	run := func(t *testing.T, s func(w *world, p claims.Pass) claims.Sent, check func(w *world, r claims.Result)) {
		bubble(t, func(w *world) {
			w.keep(w.p)
			c := w.call("a")
			c.Guard = w.lease("shop:run", 20*time.Second)
			c.Policy.Probe = false
			w.gw.script = func(ctx context.Context, _ int, p claims.Pass) claims.Sent {
				w.takeAway(c.Guard)
				return s(w, p)
			}
			r := w.do(c)
			if r.Lease != "lost" {
				t.Errorf("lease %q", r.Lease)
			}
			check(w, r)
		})
	}
	t.Run("succeeded", func(t *testing.T) {
		run(t, func(w *world, p claims.Pass) claims.Sent { return w.gw.charge(p) }, func(w *world, r claims.Result) {
			wantAnswer(t, r, claims.SourceSent, claims.Succeeded, "paid gk:a")
			rec := w.record("a")
			wantState(t, rec, claims.StateSucceeded)
			if len(rec.Evidence) != 1 || !rec.Evidence[0].Read || string(rec.Answer.Body) != "paid gk:a" {
				t.Errorf("record %+v", rec)
			}
		})
	})
	t.Run("declined", func(t *testing.T) {
		run(t, func(*world, claims.Pass) claims.Sent {
			return claims.Sent{Outcome: claims.Declined, Stored: true, Answer: answer(402, "no")}
		}, func(w *world, r claims.Result) {
			wantAnswer(t, r, claims.SourceSent, claims.Declined, "no")
			wantState(t, w.record("a"), claims.StateDeclined)
		})
	})
	t.Run("a refusal is passed on, but nothing is said of the call", func(t *testing.T) {
		run(t, func(*world, claims.Pass) claims.Sent {
			return claims.Sent{Outcome: claims.NotExecuted, Refused: true, Answer: answer(429, "slow down")}
		}, func(w *world, r claims.Result) {
			wantAnswer(t, r, claims.SourceSent, claims.Unknown, "slow down")
			wantState(t, w.record("a"), claims.StateOpen)
			if a := w.record("a").Attempts[0]; a.Counts() {
				t.Errorf("a listed refusal counts: %+v", a)
			}
		})
	})
	t.Run("unknown", func(t *testing.T) {
		run(t, func(*world, claims.Pass) claims.Sent { return claims.Sent{Cause: "cut"} }, func(w *world, r claims.Result) {
			wantRefusal(t, r, claims.Fenced, claims.Unknown) // a hand-over is told apart from a failure
			wantState(t, w.record("a"), claims.StatePending)
		})
	})
}

func TestLostInstanceLeaseStillGivesTheAnswer(t *testing.T) {
	bubble(t, func(w *world) {
		w.gw.script = func(_ context.Context, _ int, p claims.Pass) claims.Sent {
			w.takeAway(w.p.inst.Guard())
			return w.gw.charge(p)
		}
		r := w.do(w.call("a"))
		wantAnswer(t, r, claims.SourceSent, claims.Succeeded, "paid gk:a")
		if r.Lease != "lost" {
			t.Errorf("lease %s", r.Lease)
		}
		wantState(t, w.record("a"), claims.StateSucceeded)
	})
}

func TestBothLeasesAreRenewedWhileSending(t *testing.T) {
	for name, left := range map[string]time.Duration{"fresh": 30 * time.Second, "nearly over": 4 * time.Second} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(w *world) {
				w.keep(w.p)
				c := w.call("a")
				c.Policy.AttemptTimeout = 3 * time.Minute
				c.Guard = w.lease("shop:run", left)
				w.gw.script = func(_ context.Context, _ int, p claims.Pass) claims.Sent {
					time.Sleep(2 * time.Minute)
					return w.gw.charge(p)
				}
				r := w.do(c)
				wantAnswer(t, r, claims.SourceSent, claims.Succeeded, "paid gk:a")
				if r.Lease != "live" {
					t.Errorf("lease %s", r.Lease)
				}
				renewed, _ := w.mem.State(context.Background(), "shop:run")
				time.Sleep(time.Minute)
				synctest.Wait()
				if l, _ := w.mem.State(context.Background(), "shop:run"); renewed.Status != claims.LeaseLive || l.Status != claims.LeaseExpired {
					t.Errorf("lease %s after the send, %s a minute later", renewed.Status, l.Status)
				}
			})
		})
	}
}

func TestRenewalWhileSendingSurvivesErrors(t *testing.T) {
	bubble(t, func(w *world) {
		w.keep(w.p)
		c := w.call("a")
		c.Policy.AttemptTimeout = 3 * time.Minute
		c.Guard = w.lease("shop:run", 30*time.Second)
		var n atomic.Int64
		w.tap.set(func(tp *tap) {
			tp.onRenew = func(g claims.Guard, do func() (claims.Lease, error)) (claims.Lease, error) {
				if g == c.Guard {
					if n.Add(1)%2 == 1 { // every other renewal hangs until its time is over
						time.Sleep(10 * time.Second)
						return claims.Lease{}, errNet
					}
				}
				return do()
			}
		})
		w.gw.script = func(_ context.Context, _ int, p claims.Pass) claims.Sent {
			time.Sleep(2 * time.Minute)
			return w.gw.charge(p)
		}
		if r := w.do(c); r.Lease != "live" || n.Load() < 4 {
			t.Errorf("%s after %d renewals", show(r), n.Load())
		}
	})
}

func TestNoClaimWithoutAnInstanceLease(t *testing.T) {
	for name, guard := range map[string]bool{"with a token": true, "without": false} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(w *world) {
				if err := w.p.inst.Close(context.Background()); err != nil {
					t.Fatal(err)
				}
				c := w.call("a")
				if guard {
					c.Guard = w.lease("shop:run", time.Hour)
				}
				wantRefusal(t, w.do(c), claims.LeaseLost, claims.Unknown)
				if r := w.record("a"); r.Exists() {
					t.Errorf("claimed by nobody: %+v", r)
				}
			})
		})
	}
}

// TestInstanceClosedBetweenReadAndClaim: the guard that was read is the one that the claim is written under.
func TestInstanceClosedBetweenReadAndClaim(t *testing.T) {
	bubble(t, func(w *world) {
		w.tap.set(func(tp *tap) {
			tp.onGet = func(context.Context) error {
				w.tap.set(func(tp *tap) { tp.onGet = nil })
				return nil
			}
		})
		c := w.call("a")
		c.Admit = func() (func(error), error) {
			if err := w.p.inst.Close(context.Background()); err != nil {
				t.Fatal(err)
			}
			return func(error) {}, nil
		}
		wantRefusal(t, w.do(c), claims.LeaseLost, claims.Unknown)
		if r := w.record("a"); r.Exists() {
			t.Errorf("claimed under a released lease: %+v", r)
		}
	})
}

// TestField_R51_hostClock: the host's clock is wrong by five minutes, either way, from before the start. Expiry is the
// store's matter and trust counts differences, so nothing changes: a process that stands still over its lease between
// claim and send does not send, and another one charges once.
func TestField_R51_hostClock(t *testing.T) {
	for name, off := range map[string]time.Duration{"fast": 5 * time.Minute, "slow": -5 * time.Minute} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(w *world) {
				a := w.off("a", off)
				w.gw.before = func(claims.Pass) { w.gw.before = nil; time.Sleep(33 * time.Second) } // stands still
				wantRefusal(t, a.fence.Do(context.Background(), w.call("k")), claims.NotSent, claims.Unknown)
				w.sends(0)
				if r := a.fence.Do(context.Background(), w.call("k")); r.Refusal == nil || r.Refusal.Reason != claims.LeaseLost {
					t.Errorf("it goes on without its lease: %+v", r)
				}
				b := w.off("b", -off)
				wantAnswer(t, b.fence.Do(context.Background(), w.call("k")), claims.SourceSent, claims.Succeeded, "paid gk:k")
				w.sends(1)
				w.executed("k", 1)
				w.drain(a)
				w.drain(b)
			})
		})
	}
}

// off is another process, on a host whose wall clock is off.
func (w *world) off(name string, by time.Duration) *process {
	w.t.Helper()
	clock := newBent()
	clock.bend(0, 0, by)
	return w.processOn(name, clock)
}

// TestDecisionThatGotOld: the process stands still between the decision to send again and the claim, until the gateway may forget its
// key. The claim is written; nothing is sent under it.
func TestDecisionThatGotOld(t *testing.T) {
	for name, pause := range map[string]time.Duration{"in time": time.Minute, "too late": time.Hour} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(w *world) {
				w.times = claims.LeaseTimes{TTL: 48 * time.Hour}
				p := w.process("patient")
				defer w.drain(p)
				w.gw.script = func(_ context.Context, n int, pass claims.Pass) claims.Sent {
					if n == 1 {
						return claims.Sent{Cause: "cut"}
					}
					return w.gw.charge(pass)
				}
				c := w.call("a")
				c.Policy.Probe = false
				p.fence.Do(context.Background(), c)
				w.gw.blind = false
				time.Sleep(23 * time.Hour) // 24 h of retention, less 14 min 24 s of margin
				c.Policy.Probe, w.gw.blind = true, true
				c.Admit = func() (func(error), error) { // after the decision, before the claim
					time.Sleep(pause)
					return func(error) {}, nil
				}
				r := p.fence.Do(context.Background(), c)
				if name == "in time" {
					wantAnswer(t, r, claims.SourceSent, claims.Succeeded, "paid gk:a")
					w.sends(2)
					return
				}
				if r.Answer != nil || r.Outcome == claims.NotExecuted {
					t.Errorf("%s", show(r))
				}
				w.sends(1)
			})
		})
	}
}
