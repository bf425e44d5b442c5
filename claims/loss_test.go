package claims_test

import (
	"context"
	"testing"
	"time"

	"github.com/fence-sidecar/fence-sidecar/claims"
	"github.com/fence-sidecar/fence-sidecar/claims/memory"
)

const quarantine = 31 * time.Second

// lose lets the store lose what it got after now when f is done: a standby that was behind is promoted.
func (w *world) lose(f func()) {
	w.t.Helper()
	var from claims.Now
	calls, leases := map[claims.Key]memory.Call{}, map[string]memory.Lease{}
	w.mem.Edit(func(d *memory.Data, now claims.Now) {
		from = now
		for k, c := range d.Calls {
			calls[k] = memory.Call{Record: c.Record.Clone(), Checks: c.Checks}
		}
		for k, l := range d.Leases {
			leases[k] = *l
		}
	})
	f()
	w.mem.Edit(func(d *memory.Data, _ claims.Now) {
		d.Calls, d.Leases = map[claims.Key]*memory.Call{}, map[string]*memory.Lease{}
		for k, c := range calls {
			d.Calls[k] = &c
		}
		for k, l := range leases {
			d.Leases[k] = &l
		}
	})
	w.mem.Lose(from, quarantine)
}

// TestLostChargeIsFound: the claim, the answer and the lease of a charge are lost with the primary. Nothing is sent in the
// quarantine, and after it the gateway is asked first.
func TestLostChargeIsFound(t *testing.T) {
	bubble(t, func(w *world) {
		w.keep(w.p)
		w.gw.blind = false
		var old claims.Guard
		w.lose(func() {
			old = w.lease("shop:run", time.Minute)
			c := w.call("a")
			c.Guard = old
			wantAnswer(t, w.do(c), claims.SourceSent, claims.Succeeded, "paid gk:a")
		})
		r := w.do(w.call("a"))
		wantRefusal(t, r, claims.Quarantine, claims.Unknown)
		if r.Refusal.RetryAfter <= 0 || r.Refusal.RetryAfter > quarantine {
			t.Errorf("retry after %s", r.Refusal.RetryAfter)
		}
		if _, err := w.mem.Acquire(context.Background(), "shop:run", "another", time.Minute); !claims.Refused(err) {
			t.Errorf("a lease was granted in the quarantine: %v", err)
		}
		time.Sleep(quarantine + 5*time.Second)
		c := w.call("a")
		c.Guard = old // its grant was lost: the store never heard of it
		wantRefusal(t, w.do(c), claims.Fenced, claims.Unknown)
		next := w.lease("shop:run", time.Minute)
		if next.Token <= old.Token {
			t.Errorf("token %d was granted after %d", next.Token, old.Token)
		}
		c.Guard = next
		wantAnswer(t, w.do(c), claims.SourceReconciled, claims.Succeeded, "found gk:a")
		w.sends(1)
		w.executed("a", 1)
	})
}

// TestFreshCallAfterALoss: a call that the store does not know is asked for once, and then sent as a question with its own key
// or, where a repeat is no question, once the gateway has settled.
func TestFreshCallAfterALoss(t *testing.T) {
	for name, probe := range map[string]bool{"probe": true, "no probe": false} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(w *world) {
				w.keep(w.p)
				w.gw.blind = false
				w.gw.rules.Misses = 2
				w.lose(func() {})
				time.Sleep(quarantine + 5*time.Second)
				c := w.call("a")
				c.Policy.Probe = probe
				if !probe {
					wantRefusal(t, w.do(c), claims.InDoubt, claims.Unknown)
					w.sends(0)
					time.Sleep(c.Facts.SettleAfter + c.Policy.AttemptTimeout)
				}
				wantAnswer(t, w.do(c), claims.SourceSent, claims.Succeeded, "paid gk:a")
				if r := w.record("a"); r.Attempt != 2 || !r.Attempts[0].Presumed {
					t.Errorf("attempts %+v", r.Attempts)
				}
				w.executed("a", 1)
				time.Sleep(claims.LossWatch)
				wantAnswer(t, w.do(w.call("b")), claims.SourceSent, claims.Succeeded, "paid gk:b")
				if r := w.record("b"); r.Attempt != 1 {
					t.Errorf("a week later a fresh call has %d attempts", r.Attempt)
				}
			})
		})
	}
}

// TestFreshCallDaysAfterALoss: the key that a lost attempt may have used is too old to be used again; once a lookup shows that
// there was none, the call is a new one.
func TestFreshCallDaysAfterALoss(t *testing.T) {
	bubble(t, func(w *world) {
		w.keep(w.p)
		w.lose(func() {})
		time.Sleep(48 * time.Hour)
		wantRefusal(t, w.do(w.call("a")), claims.InDoubt, claims.Unknown) // nobody can tell
		w.gw.blind = false
		wantAnswer(t, w.do(w.call("b")), claims.SourceSent, claims.Succeeded, "paid gk:b")
		w.sends(1)
	})
}

// TestLostResend: the store kept that a call was never executed, and lost the attempt that came after.
func TestLostResend(t *testing.T) {
	bubble(t, func(w *world) {
		w.keep(w.p)
		w.gw.script = func(context.Context, int, claims.Pass) claims.Sent { return claims.Sent{Unsent: true, Cause: "dial"} }
		wantRefusal(t, w.do(w.call("a")), claims.NotSent, claims.NotExecuted)
		w.gw.script, w.gw.blind = nil, false
		w.lose(func() { wantAnswer(t, w.do(w.call("a")), claims.SourceSent, claims.Succeeded, "paid gk:a") })
		wantState(t, w.record("a"), claims.StateOpen)
		time.Sleep(quarantine + 5*time.Second)
		wantAnswer(t, w.do(w.call("a")), claims.SourceReconciled, claims.Succeeded, "found gk:a")
		w.executed("a", 1)
		w.sends(2)
	})
}

// forgetful is a store that does not say what it lost.
type forgetful struct{ *tap }

func (f forgetful) Get(ctx context.Context, k claims.Key, g claims.Guard) (claims.View, error) {
	v, err := f.tap.Get(ctx, k, g)
	v.Loss, v.Quarantine = nil, 0
	return v, err
}

// TestLossBites: where the store tells of no loss, the lost call is sent once more; only the gateway's key stands between that
// and a second charge.
func TestLossBites(t *testing.T) {
	bubble(t, func(w *world) {
		w.keep(w.p)
		w.gw.blind = false
		w.p.fence.Store = forgetful{w.tap}
		w.lose(func() { w.do(w.call("a")) })
		time.Sleep(quarantine + 5*time.Second)
		w.do(w.call("a"))
		w.sends(2)
	})
}

// TestSettleInAQuarantine: the answer of a send that was under way when the store lost its claim is kept, and the record with
// it.
func TestSettleInAQuarantine(t *testing.T) {
	bubble(t, func(w *world) {
		w.gw.script = func(_ context.Context, _ int, p claims.Pass) claims.Sent {
			w.mem.Edit(func(d *memory.Data, _ claims.Now) { delete(d.Calls, claims.Key{Tenant: "shop", Call: "a"}) })
			w.mem.Lose(claims.Now{}, quarantine)
			return w.gw.charge(p)
		}
		w.do(w.call("a"))
		wantState(t, w.record("a"), claims.StateSucceeded)
		w.sends(1)
	})
}

// TestToldOnlyOnceStored: an outcome that is seen in the store after its write was perhaps applied is told only when a write was
// acknowledged: it could be gone after a failover.
func TestToldOnlyOnceStored(t *testing.T) {
	bubble(t, func(w *world) {
		w.faults(isSettle, swapFault{apply: true, lost: true})
		asked := 0
		w.tap.set(func(tp *tap) {
			tp.onConfirm = func() error {
				if asked++; asked < 3 {
					return errNet
				}
				return nil
			}
		})
		wantAnswer(t, w.do(w.call("a")), claims.SourceSent, claims.Succeeded, "paid gk:a")
		if asked != 3 {
			t.Errorf("the store was asked %d times to confirm", asked)
		}
		w.sends(1)
	})
}

// TestTakenOnlyOnceAcknowledged: an instance lease that is seen after its answer was lost is held only when it could be renewed.
func TestTakenOnlyOnceAcknowledged(t *testing.T) {
	bubble(t, func(w *world) {
		i := claims.NewInstance(w.tap, w.p.clock.read, w.times, "other", w.p.fence.Log)
		w.tap.set(func(tp *tap) {
			tp.onTake = func(do func() (claims.Lease, error)) (claims.Lease, error) {
				if _, err := do(); err != nil && !claims.Refused(err) {
					t.Error(err)
				}
				return claims.Lease{}, errNet
			}
			tp.onRenew = func(claims.Guard, func() (claims.Lease, error)) (claims.Lease, error) { return claims.Lease{}, errNet }
		})
		if err := i.Take(w.run); err == nil || i.Left() > 0 {
			t.Errorf("taken (%v), trusted for %s", err, i.Left())
		}
		w.tap.set(func(tp *tap) { tp.onRenew = nil })
		if err := i.Take(w.run); err != nil || i.Left() <= 0 {
			t.Errorf("not taken: %v", err)
		}
	})
}

// TestNoProbeBesideALostSender: the sender whose claim was lost may still be at work, until its attempt's time is over.
func TestNoProbeBesideALostSender(t *testing.T) {
	bubble(t, func(w *world) {
		w.keep(w.p)
		c := w.call("a")
		c.Policy.AttemptTimeout = 2 * time.Minute
		w.lose(func() {})
		time.Sleep(quarantine + 5*time.Second)
		r := w.do(c)
		wantRefusal(t, r, claims.InDoubt, claims.Unknown)
		if left := c.Policy.AttemptTimeout - quarantine - 5*time.Second; r.Refusal.RetryAfter < left-time.Second {
			t.Errorf("retry after %s, want about %s", r.Refusal.RetryAfter, left)
		}
		w.sends(0)
		time.Sleep(c.Policy.AttemptTimeout)
		wantAnswer(t, w.do(c), claims.SourceSent, claims.Succeeded, "paid gk:a")
	})
}

// TestLostSenderSpeaks: an attempt whose claim was lost, and presumed by another, is in doubt by its own right: one lookup that
// finds nothing does not end it.
func TestLostSenderSpeaks(t *testing.T) {
	bubble(t, func(w *world) {
		key := claims.Key{Tenant: "shop", Call: "a"}
		w.gw.script = func(_ context.Context, _ int, p claims.Pass) claims.Sent {
			w.mem.Edit(func(d *memory.Data, now claims.Now) {
				was := d.Calls[key].Record // of which another process knows nothing
				v := claims.View{Record: claims.Record{Key: key, Revision: 1, Facts: was.Facts, Fingerprint: was.Fingerprint}, Era: 1, Loss: &claims.Loss{From: now, At: now}, Now: now}
				presumed := claims.Presume(v, time.Minute, claims.NewClaimID())
				d.Calls[key].Record = claims.Write{Version: v.Record.Version, Next: presumed}.Stamp(now)
			})
			w.mem.Lose(claims.Now{}, quarantine)
			return claims.Sent{Cause: "cut"}
		}
		c := w.call("a")
		c.Policy.Probe = false
		wantRefusal(t, w.do(c), claims.InDoubt, claims.Unknown)
		r := w.record("a")
		if len(r.Attempts) != 2 || !r.Attempts[0].Presumed || r.Attempts[1].Presumed || !r.Attempts[1].Doubtful() || r.Attempts[1].Cause != "cut" {
			t.Errorf("attempts %+v", r.Attempts)
		}
	})
}

// TestLostClaimWithoutAnswer: claim and lease are lost while the send is under way, and the send gets no answer. Its sender knows
// that it was made: it is in doubt, and not merely presumed.
func TestLostClaimWithoutAnswer(t *testing.T) {
	key := claims.Key{Tenant: "shop", Call: "a"}
	for name, left := range map[string]claims.State{"gone": claims.None, "open again": claims.StateOpen} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(w *world) {
				w.keep(w.p)
				if left == claims.StateOpen {
					w.gw.script = func(context.Context, int, claims.Pass) claims.Sent { return claims.Sent{Unsent: true, Cause: "dial"} }
					w.do(w.call("a"))
				}
				before := w.record("a")
				w.gw.script = func(context.Context, int, claims.Pass) claims.Sent {
					w.mem.Edit(func(d *memory.Data, _ claims.Now) {
						if delete(d.Calls, key); before.Exists() {
							d.Calls[key] = &memory.Call{Record: before.Clone()}
						}
					})
					w.mem.Lose(claims.Now{}, quarantine)
					return claims.Sent{Cause: "cut"}
				}
				c := w.call("a")
				c.Policy.Probe = false
				wantRefusal(t, w.do(c), claims.InDoubt, claims.Unknown)
				r := w.record("a")
				if n := len(r.Attempts); r.State != claims.StateUnknown || n == 0 || r.Attempts[n-1].Presumed || r.Attempts[n-1].Cause != "cut" {
					t.Errorf("the record is %s, attempts %+v", r.State, r.Attempts)
				}
				if n := w.gw.sends(); n != len(r.Attempts) {
					t.Errorf("%d sends for %d attempts", n, len(r.Attempts))
				}
			})
		})
	}
}

// TestLostSenderDeclined: a final no to an attempt whose claim was lost decides the call, presumed by another or not.
func TestLostSenderDeclined(t *testing.T) {
	key := claims.Key{Tenant: "shop", Call: "a"}
	bubble(t, func(w *world) {
		w.keep(w.p)
		w.gw.blind = false
		w.gw.script = func(context.Context, int, claims.Pass) claims.Sent {
			w.mem.Edit(func(d *memory.Data, now claims.Now) {
				was := d.Calls[key].Record
				v := claims.View{Record: claims.Record{Key: key, Revision: 1, Facts: was.Facts, Fingerprint: was.Fingerprint}, Era: 1, Loss: &claims.Loss{From: now, At: now}, Now: now}
				d.Calls[key].Record = claims.Write{Next: claims.Presume(v, time.Second, claims.NewClaimID())}.Stamp(now)
			})
			w.mem.Lose(claims.Now{}, quarantine)
			return claims.Sent{Outcome: claims.Declined, Answer: answer(402, "no")}
		}
		c := w.call("a")
		c.Policy.Probe = false
		w.do(c)
		time.Sleep(time.Hour)
		wantAnswer(t, w.do(c), claims.SourceReplayed, claims.Declined, "no")
		w.sends(1)
	})
}

// TestExternalTokens: an application's own tokens only grow; a lower one is refused, also on a replay, and no lease's token
// stands in for one.
func TestExternalTokens(t *testing.T) {
	bubble(t, func(w *world) {
		ext := func(n uint64) claims.Guard { return claims.Guard{Scope: claims.ExternalPrefix + "shop:run", Token: n} }
		c := w.call("a")
		c.Guard = ext(7)
		r := w.do(c)
		wantAnswer(t, r, claims.SourceSent, claims.Succeeded, "paid gk:a")
		if r.Lease != "external" {
			t.Errorf("lease %s", r.Lease)
		}
		c.Guard = ext(9)
		wantAnswer(t, w.do(c), claims.SourceReplayed, claims.Succeeded, "paid gk:a")
		for _, g := range []claims.Guard{ext(7), ext(8), w.lease("shop:run", time.Minute), {}} {
			c.Guard = g
			wantRefusal(t, w.do(c), claims.Fenced, claims.Unknown)
		}
		c = w.call("b")
		c.Guard = ext(8)
		wantRefusal(t, w.do(c), claims.Fenced, claims.Unknown)
		w.sends(1)
	})
}
