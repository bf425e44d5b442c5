package claims_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fence-sidecar/fence-sidecar/claims"
	"github.com/fence-sidecar/fence-sidecar/claims/memory"
)

// swapFault decides what becomes of one swap: whether it is applied, and whether its answer is lost.
type swapFault struct{ apply, lost bool }

func (f swapFault) String() string {
	switch {
	case f.apply && f.lost:
		return "applied, answer lost"
	case f.lost:
		return "not applied, error"
	}
	return "fine"
}

var bothFaults = []swapFault{{true, true}, {false, true}}

// faults answers the swaps that match with the faults, one after the other.
func (w *world) faults(match func(claims.Write) bool, fs ...swapFault) {
	w.tap.set(func(tp *tap) {
		tp.onSwap = func(_ int, wr claims.Write, do func() (claims.Swapped, error)) (claims.Swapped, error) {
			w.tap.mu.Lock()
			hit := match(wr) && len(fs) > 0
			var f swapFault
			if hit {
				f, fs = fs[0], fs[1:]
			}
			w.tap.mu.Unlock()
			if !hit || !f.lost {
				return do()
			}
			if f.apply {
				if _, err := do(); err != nil {
					return claims.Swapped{}, err
				}
			}
			return claims.Swapped{}, errNet
		}
	})
}

func isClaim(w claims.Write) bool { return w.Claim }

// isConfirm is the second, acknowledged write of a doubtful claim.
func isConfirm(w claims.Write) bool { return !w.Claim && w.Next.State == claims.StatePending }

func isSettle(w claims.Write) bool { return w.Next.State != claims.StatePending }

func TestClaimPerhapsApplied(t *testing.T) {
	for _, f := range bothFaults {
		t.Run(f.String(), func(t *testing.T) {
			bubble(t, func(w *world) {
				w.faults(isClaim, f)
				wantAnswer(t, w.do(w.call("a")), claims.SourceSent, claims.Succeeded, "paid gk:a")
				w.sends(1)
				w.executed("a", 1)
				wantAnswer(t, w.do(w.call("a")), claims.SourceReplayed, claims.Succeeded, "paid gk:a")
			})
		})
		for _, g := range bothFaults {
			t.Run(fmt.Sprintf("%s, then the confirmation %s", f, g), func(t *testing.T) {
				bubble(t, func(w *world) {
					w.faults(func(wr claims.Write) bool { return isClaim(wr) || isConfirm(wr) }, f, g)
					wantAnswer(t, w.do(w.call("a")), claims.SourceSent, claims.Succeeded, "paid gk:a")
					w.sends(1)
				})
			})
		}
	}
}

// TestStoreThatOnlyReads: the app is told soon, not after its whole patience.
func TestStoreThatOnlyReads(t *testing.T) {
	bubble(t, func(w *world) {
		claimed := 0
		w.tap.set(func(tp *tap) {
			tp.onSwap = func(_ int, wr claims.Write, do func() (claims.Swapped, error)) (claims.Swapped, error) {
				claimed++
				time.Sleep(5 * time.Second)
				return claims.Swapped{}, errNet
			}
		})
		began := time.Now()
		wantRefusal(t, w.do(w.call("a")), claims.StoreUnavailable, claims.Unknown)
		if claimed > 3 || time.Since(began) > 6*time.Second {
			t.Errorf("%d claims in %s", claimed, time.Since(began))
		}
		w.sends(0)
	})
}

// TestClaimThatLandsLate: a claim that was given up is written after all. It does not stay in flight until its deadline.
func TestClaimThatLandsLate(t *testing.T) {
	bubble(t, func(w *world) {
		first := true
		w.tap.set(func(tp *tap) {
			tp.onSwap = func(_ int, wr claims.Write, do func() (claims.Swapped, error)) (claims.Swapped, error) {
				if !first {
					return do()
				}
				first = false
				go func() {
					time.Sleep(time.Millisecond)
					if _, err := w.mem.Swap(context.Background(), claims.Condition{}, wr); err != nil {
						t.Error(err)
					}
				}()
				return claims.Swapped{}, errNet
			}
			tp.onGot = func() { time.Sleep(2 * time.Millisecond) } // it lands between the look and the next claim
		})
		wantRefusal(t, w.do(w.call("a")), claims.InFlight, claims.Unknown)
		w.tap.set(func(tp *tap) { tp.onGot = nil })
		time.Sleep(6 * time.Second) // less than an attempt's ten
		wantState(t, w.record("a"), claims.StateOpen)
		wantAnswer(t, w.do(w.call("a")), claims.SourceSent, claims.Succeeded, "paid gk:a")
		w.sends(1)
	})
}

// TestAbandonedWhileDraining: a claim that could not be confirmed is recorded as unsent also where the process has begun to cut its
// sends; the next one need not wait for its deadline.
func TestAbandonedWhileDraining(t *testing.T) {
	bubble(t, func(w *world) {
		healed := time.Now().Add(2 * time.Second)
		w.tap.set(func(tp *tap) {
			tp.onSwap = func(_ int, wr claims.Write, do func() (claims.Swapped, error)) (claims.Swapped, error) {
				if time.Now().After(healed) {
					return do()
				}
				if wr.Claim {
					if _, err := do(); err != nil {
						t.Error(err)
					}
				}
				return claims.Swapped{}, errNet
			}
		})
		go w.do(w.call("a"))
		time.Sleep(time.Second)
		ctx, cut := context.WithCancel(context.Background())
		cut()
		if err := w.p.fence.Drain(ctx); err != nil {
			t.Error(err)
		}
		wantState(t, w.record("a"), claims.StateOpen)
		w.sends(0)
	})
}

// TestNothingIsClaimedWithoutTrust: a claim that could not be sent is not made.
func TestNothingIsClaimedWithoutTrust(t *testing.T) {
	bubble(t, func(w *world) {
		w.p.clock.bend(time.Hour, 0, 0)
		wantRefusal(t, w.do(w.call("a")), claims.LeaseLost, claims.Unknown)
		if r := w.record("a"); r.Exists() {
			t.Error("a claim was written")
		}
	})
}

// TestClaimIsNotSentOnWithoutAnAcknowledgedWrite: reading one's own claim back is not enough, as the lease may have gone.
func TestClaimIsNotSentOnWithoutAnAcknowledgedWrite(t *testing.T) {
	bubble(t, func(w *world) {
		c := w.call("a")
		c.Guard = w.lease("shop:run", 20*time.Second)
		w.tap.set(func(tp *tap) {
			tp.onSwap = func(_ int, wr claims.Write, do func() (claims.Swapped, error)) (claims.Swapped, error) {
				if wr.Claim {
					if _, err := do(); err != nil {
						t.Error(err)
					}
					w.takeAway(c.Guard)
					return claims.Swapped{}, errNet
				}
				return do()
			}
		})
		wantRefusal(t, w.do(c), claims.Fenced, claims.Unknown)
		w.sends(0)
		synctest.Wait()
		wantState(t, w.record("a"), claims.StateOpen) // abandoned: nothing was sent
	})
}

// TestInstanceLeaseLostInADoubtfulClaim: the process itself still trusts its lease; only the acknowledged write tells.
func TestInstanceLeaseLostInADoubtfulClaim(t *testing.T) {
	bubble(t, func(w *world) {
		w.tap.set(func(tp *tap) {
			tp.onSwap = func(_ int, wr claims.Write, do func() (claims.Swapped, error)) (claims.Swapped, error) {
				if wr.Claim {
					if _, err := do(); err != nil {
						t.Error(err)
					}
					w.takeAway(w.p.inst.Guard())
					return claims.Swapped{}, errNet
				}
				return do()
			}
		})
		wantRefusal(t, w.do(w.call("a")), claims.LeaseLost, claims.Unknown)
		w.sends(0)
	})
}

// TestDoubtfulClaimThatAnotherWon: the row is pending, but not by this claim.
func TestDoubtfulClaimThatAnotherWon(t *testing.T) {
	bubble(t, func(w *world) {
		other := w.process("p2")
		release := make(chan struct{})
		w.gw.script = func(_ context.Context, _ int, p claims.Pass) claims.Sent {
			<-release
			return w.gw.charge(p)
		}
		first := true
		w.tap.set(func(tp *tap) {
			tp.onSwap = func(_ int, wr claims.Write, do func() (claims.Swapped, error)) (claims.Swapped, error) {
				w.tap.mu.Lock()
				mine := first
				first = false
				w.tap.mu.Unlock()
				if !mine {
					return do()
				}
				go other.fence.Do(context.Background(), w.call("a"))
				time.Sleep(time.Millisecond)
				return claims.Swapped{}, errNet
			}
		})
		wantRefusal(t, w.do(w.call("a")), claims.InFlight, claims.Unknown)
		close(release)
		w.drain(other)
		w.sends(1)
		wantAnswer(t, w.do(w.call("a")), claims.SourceReplayed, claims.Succeeded, "paid gk:a")
	})
}

func TestClaimThatCannotBeConfirmed(t *testing.T) {
	bubble(t, func(w *world) {
		w.keep(w.p)
		down := false
		w.tap.set(func(tp *tap) {
			tp.onGet = func(context.Context) error {
				w.tap.mu.Lock()
				defer w.tap.mu.Unlock()
				if down {
					return errNet
				}
				return nil
			}
			tp.onSwap = func(_ int, wr claims.Write, do func() (claims.Swapped, error)) (claims.Swapped, error) {
				w.tap.mu.Lock()
				was := down
				down = down || wr.Claim
				w.tap.mu.Unlock()
				if was {
					return claims.Swapped{}, errNet
				}
				sw, err := do()
				if wr.Claim {
					return claims.Swapped{}, errNet
				}
				return sw, err
			}
		})
		wantRefusal(t, w.do(w.call("a")), claims.StoreUnavailable, claims.Unknown)
		w.sends(0)
		wantState(t, w.record("a"), claims.StatePending)
		time.Sleep(time.Minute)
		w.tap.set(func(tp *tap) { tp.onSwap, tp.onGet = nil, nil })
		time.Sleep(10 * time.Second) // the abandoned claim is told as soon as the store is back
		wantState(t, w.record("a"), claims.StateOpen)
		wantAnswer(t, w.do(w.call("a")), claims.SourceSent, claims.Succeeded, "paid gk:a")
		w.executed("a", 1)
	})
}

func TestSettlePerhapsApplied(t *testing.T) {
	outcomes := map[string]claims.Sent{
		"declined":     {Outcome: claims.Declined, Answer: answer(402, "no")},
		"not executed": {Outcome: claims.NotExecuted, Refused: true, Answer: answer(429, "slow down")},
	}
	for _, f := range bothFaults {
		t.Run("succeeded "+f.String(), func(t *testing.T) {
			bubble(t, func(w *world) {
				w.faults(isSettle, f, f)
				wantAnswer(t, w.do(w.call("a")), claims.SourceSent, claims.Succeeded, "paid gk:a")
				wantState(t, w.record("a"), claims.StateSucceeded)
				if n := len(w.record("a").Evidence); n != 0 {
					t.Errorf("%d pieces of evidence for what the record tells", n)
				}
				w.sends(1)
			})
		})
		for name, s := range outcomes {
			t.Run(name+" "+f.String(), func(t *testing.T) {
				bubble(t, func(w *world) {
					w.faults(isSettle, f)
					w.gw.script = func(context.Context, int, claims.Pass) claims.Sent { return s }
					wantAnswer(t, w.do(w.call("a")), claims.SourceSent, s.Outcome, string(s.Answer.Body))
					w.sends(1)
				})
			})
		}
	}
}

func TestSettleWaitsForTheStore(t *testing.T) {
	bubble(t, func(w *world) {
		w.keep(w.p)
		w.gw.script = func(_ context.Context, _ int, p claims.Pass) claims.Sent {
			fail := func() bool { return true }
			w.tap.set(func(tp *tap) {
				tp.onGet = func(context.Context) error { return errNet }
				tp.onSwap = func(_ int, _ claims.Write, do func() (claims.Swapped, error)) (claims.Swapped, error) {
					if fail() {
						return claims.Swapped{}, errNet
					}
					return do()
				}
			})
			time.AfterFunc(20*time.Second, func() { w.tap.set(func(tp *tap) { tp.onSwap, tp.onGet = nil, nil }) })
			return w.gw.charge(p)
		}
		r := w.do(w.call("a"))
		wantAnswer(t, r, claims.SourceSent, claims.Succeeded, "paid gk:a")
		wantState(t, w.record("a"), claims.StateSucceeded)
	})
}

// TestSettleAfterOthersFoundOut: while the store was away the deadline passed and somebody looked the call up.
func TestSettleAfterOthersFoundOut(t *testing.T) {
	for name, found := range map[string]*claims.Answer{"with an answer": answer(200, "found"), "without": nil} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(w *world) {
				w.keep(w.p)
				w.faults(isSettle, swapFault{false, true})
				w.gw.script = func(_ context.Context, _ int, p claims.Pass) claims.Sent {
					s := w.gw.charge(p)
					time.Sleep(11 * time.Second) // a sender that ignores its time
					w.tap.set(func(tp *tap) { tp.onSwap = nil })
					v, _ := w.mem.Get(context.Background(), claims.Key{Tenant: "shop", Call: "a"}, claims.Guard{})
					next, moved := claims.Apply(v.Record, claims.Verdict{
						Looked: true, Finding: claims.Finding{Kind: claims.FoundDone, Answer: found}, Version: v.Record.Version, Asked: v.Now,
					})
					if !moved {
						t.Error("the verdict was not applied")
					}
					if _, err := w.mem.Swap(context.Background(), claims.Condition{}, claims.Write{Version: v.Record.Version, Next: next}); err != nil {
						t.Error(err)
					}
					return s
				}
				wantAnswer(t, w.do(w.call("a")), claims.SourceSent, claims.Succeeded, "paid gk:a")
				again := w.do(w.call("a"))
				if found != nil { // one that was perhaps replayed already stays
					wantAnswer(t, again, claims.SourceReconciled, claims.Succeeded, "found")
				} else { // an answer that is there is never lost
					wantAnswer(t, again, claims.SourceReplayed, claims.Succeeded, "paid gk:a")
				}
				w.sends(1)
			})
		})
	}
}

func TestStoreDownBeforeAnything(t *testing.T) {
	bubble(t, func(w *world) {
		w.tap.set(func(tp *tap) { tp.onGet = func(context.Context) error { return errNet } })
		r := w.do(w.call("a"))
		wantRefusal(t, r, claims.StoreUnavailable, claims.Unknown)
		w.sends(0)
	})
}

func TestUnreadableRecord(t *testing.T) {
	bubble(t, func(w *world) {
		w.do(w.call("a"))
		w.mem.Spoil(claims.Key{Tenant: "shop", Call: "a"})
		wantRefusal(t, w.do(w.call("a")), claims.Unreadable, claims.Unknown)
		w.sends(1)
	})
}

func TestRetryAfterDoubtIsNotSentWhileTheSenderLives(t *testing.T) {
	bubble(t, func(w *world) {
		w.keep(w.p)
		other := w.process("p2")
		w.keep(other)
		stuck := make(chan struct{})
		w.gw.script = func(ctx context.Context, n int, p claims.Pass) claims.Sent {
			if n == 1 {
				<-stuck // ignores its context: frozen in a write
				return claims.Sent{Cause: "cut"}
			}
			return w.gw.charge(p)
		}
		go w.do(w.call("a"))
		synctest.Wait()
		time.Sleep(30 * time.Second) // well past the deadline; the sender's process lives and works on it
		r := other.fence.Do(context.Background(), w.call("a"))
		wantRefusal(t, r, claims.InDoubt, claims.Unknown)
		wantRefusal(t, w.do(w.call("a")), claims.InFlight, claims.Unknown) // its own process knows better
		w.sends(1)
		w.takeAway(w.p.inst.Guard()) // now it is dead
		wantAnswer(t, other.fence.Do(context.Background(), w.call("a")), claims.SourceSent, claims.Succeeded, "paid gk:a")
		w.sends(2)
		close(stuck)
		synctest.Wait()
		wantState(t, w.record("a"), claims.StateSucceeded)
		w.executed("a", 1)
	})
}

// TestDeadConditionBites: a store that ignores the condition lets a live sender be overtaken.
func TestDeadConditionBites(t *testing.T) {
	bubble(t, func(w *world) {
		sender := w.lease("shop:sender", time.Hour)
		me := w.p.inst.Guard()
		key := claims.Key{Tenant: "shop", Call: "a"}
		first, err := w.mem.Swap(context.Background(), claims.Condition{Guard: sender}, claims.Write{
			Next: claims.Record{Key: key, State: claims.StatePending, Revision: 1, Attempt: 1, Sender: sender}, Claim: true, Timeout: time.Second,
		})
		if err != nil {
			t.Fatal(err)
		}
		again := claims.Write{Version: 1, Next: first.Records[0], Claim: true, Timeout: time.Second}
		cond := claims.Condition{Guard: me, Sender: me, Dead: sender}
		if _, err := w.mem.Swap(context.Background(), cond, again); err != claims.ErrSenderLives {
			t.Errorf("the store let a live sender be overtaken: %v", err)
		}
		cond.Dead = claims.Guard{} // the broken store
		if _, err := w.mem.Swap(context.Background(), cond, again); err != nil {
			t.Errorf("without the condition nothing holds it back, got %v", err)
		}
	})
}

func TestStoreDownAfterADoubt(t *testing.T) {
	bubble(t, func(w *world) {
		w.gw.script = func(context.Context, int, claims.Pass) claims.Sent {
			w.tap.set(func(tp *tap) { tp.onGet = func(context.Context) error { return errNet } })
			return claims.Sent{Cause: "cut"}
		}
		wantRefusal(t, w.do(w.call("a")), claims.InDoubt, claims.Unknown) // never "nothing was sent"
		w.sends(1)
	})
}

// TestLostRecordIsNotSentAgain: between the send and the settle the store goes back to before the claim, as a file restored
// from a backup does. The request that sent does not take its own call for one that was not: it puts a lost record back, and
// what it sends then is the record's second attempt, a probe with the same key.
func TestLostRecordIsNotSentAgain(t *testing.T) {
	key := claims.Key{Tenant: "shop", Call: "a"}
	for name, before := range map[string]bool{"to no record": false, "to an open one": true} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(w *world) {
				var old *memory.Call
				if before {
					w.gw.script = func(context.Context, int, claims.Pass) claims.Sent { return claims.Sent{Unsent: true, Cause: "dial"} }
					w.do(w.call("a"))
					wantState(t, w.record("a"), claims.StateOpen)
					w.mem.Edit(func(d *memory.Data, _ claims.Now) { c := *d.Calls[key]; c.Record = c.Record.Clone(); old = &c })
				}
				var sent []int
				w.gw.script = func(_ context.Context, _ int, p claims.Pass) claims.Sent {
					sent = append(sent, p.Attempt)
					w.mem.Edit(func(d *memory.Data, _ claims.Now) {
						delete(d.Calls, key)
						if before {
							c := *old
							c.Record = old.Record.Clone()
							d.Calls[key] = &c
						}
					})
					return claims.Sent{Cause: "cut"}
				}
				wantRefusal(t, w.do(w.call("a")), claims.InDoubt, claims.Unknown)
				want := []int{1, 2}
				if before {
					want = []int{2, 3}
				}
				if !slices.Equal(sent, want) {
					t.Errorf("sent the attempts %v, want %v", sent, want)
				}
				wantState(t, w.record("a"), claims.StateUnknown)
			})
		})
	}
}
