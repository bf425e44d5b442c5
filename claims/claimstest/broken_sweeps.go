package claimstest

import (
	"context"
	"slices"
	"time"

	"github.com/fence-sidecar/fence-sidecar/claims"
	"github.com/fence-sidecar/fence-sidecar/claims/memory"
)

var brokenSweeps = []Broken{
	{"nobody looks after the unknown", "unsettled/unknown", func(d *double) {
		d.withoutKeys(func(r claims.Record) bool { return r.State == claims.StateUnknown })
	}},
	{"a pending call is looked at in flight", "unsettled/pending-past-deadline", func(d *double) {
		d.withKeys(func(r claims.Record) bool { return r.State == claims.StatePending })
	}},
	{"a pending call is never looked at", "unsettled/pending-past-deadline", func(d *double) {
		d.withoutKeys(func(r claims.Record) bool { return r.State == claims.StatePending })
	}},
	{"late success is not looked at", "unsettled/unread-success-evidence", func(d *double) {
		d.withoutKeys(func(r claims.Record) bool { return r.Unread() && r.State != claims.StateUnknown })
	}},
	{"what was read is looked at again", "unsettled/unread-success-evidence", func(d *double) {
		d.withKeys(func(r claims.Record) bool { return len(r.Evidence) > 0 && !r.Unread() })
	}},
	{"nobody asks where the money is", "unsettled/polled", func(d *double) {
		d.withoutKeys(func(r claims.Record) bool { return r.Poll })
	}},
	{"where the money is is asked for ever", "unsettled/polled", func(d *double) {
		polled := map[claims.Key]bool{}
		d.onWrites(func(_ *claims.Condition, w *claims.Write) {
			w.Next.Poll = w.Next.Poll || polled[w.Next.Key]
			polled[w.Next.Key] = w.Next.Poll
		})
	}},
	{"a person's matter is swept", "unsettled/nothing-settled", func(d *double) {
		d.withKeys(func(r claims.Record) bool { return r.State == claims.StateReview })
	}},
	{"everybody's calls are swept", "unsettled/only-asked-tenants", func(d *double) {
		d.unsettled = func(ctx context.Context, s claims.Sweep) ([]claims.Key, error) {
			s.Tenants = nil
			return d.Store.Unsettled(ctx, s)
		}
	}},
	{"the next check stays", "unsettled/only-when-due", func(d *double) {
		d.afterSweep(func(c *memory.Call, _ claims.Now) { c.Record.NextCheck = time.Time{} })
	}},
	{"the last due is first", "unsettled/longest-due-first", func(d *double) {
		d.unsettled = func(ctx context.Context, s claims.Sweep) ([]claims.Key, error) {
			keys, err := d.Store.Unsettled(ctx, s)
			slices.Reverse(keys)
			return keys, err
		}
	}},
	{"no limit", "unsettled/longest-due-first", func(d *double) {
		d.unsettled = func(ctx context.Context, s claims.Sweep) ([]claims.Key, error) {
			s.Limit = 1000
			return d.Store.Unsettled(ctx, s)
		}
	}},
	{"checks do not back off", "unsettled/backs-off", func(d *double) {
		d.afterSweep(func(c *memory.Call, _ claims.Now) { c.Checks = 0 })
	}},
	{"checks back off without end", "unsettled/backs-off", func(d *double) {
		d.unsettled = func(ctx context.Context, s claims.Sweep) ([]claims.Key, error) {
			s.Max = 1 << 62
			return d.Store.Unsettled(ctx, s)
		}
	}},
	{"a write keeps the checks", "unsettled/a-write-starts-anew", func(d *double) {
		d.swap = func(ctx context.Context, c claims.Condition, w []claims.Write) (claims.Swapped, error) {
			checks := map[claims.Key]int{}
			d.calls(func(c *memory.Call, _ claims.Now) { checks[c.Record.Key] = c.Checks })
			s, err := d.Store.Swap(ctx, c, w...)
			d.calls(func(c *memory.Call, _ claims.Now) { c.Checks = checks[c.Record.Key] })
			return s, err
		}
	}},
	{"a sweep moves the version", "unsettled/keeps-version", func(d *double) {
		d.afterSweep(func(c *memory.Call, _ claims.Now) { c.Record.Version++ })
	}},
	{"pruning removes the call", "prune/drops-answers-not-outcomes", func(d *double) {
		d.prune = func(ctx context.Context, before time.Time, limit int) (n int, err error) {
			d.Edit(func(data *memory.Data, _ claims.Now) {
				for key, c := range data.Calls {
					if r := c.Record; !r.State.Unsettled() && r.Updated.Store.Before(before) && n < limit {
						delete(data.Calls, key)
						n++
					}
				}
			})
			return n, nil
		}
	}},
	{"pruning moves the version", "prune/drops-answers-not-outcomes", func(d *double) {
		d.prune = func(ctx context.Context, before time.Time, limit int) (int, error) {
			d.calls(func(c *memory.Call, _ claims.Now) { c.Record.Version++ })
			return d.Store.Prune(ctx, before, limit)
		}
	}},
	{"pruning eats what is pending", "prune/never-what-is-unsettled", func(d *double) {
		d.afterPrune(func(c *memory.Call) {
			if c.Record.State == claims.StatePending {
				c.Record.Answer = nil
			}
		})
	}},
	{"pruning eats late success", "prune/never-what-is-unsettled", func(d *double) {
		d.afterPrune(func(c *memory.Call) {
			for i := range c.Record.Evidence {
				c.Record.Evidence[i].Answer = nil
			}
		})
	}},
	{"pruning does not look at the time", "prune/only-before", func(d *double) {
		d.prune = func(ctx context.Context, before time.Time, limit int) (int, error) {
			return d.Store.Prune(ctx, before.Add(time.Hour), limit)
		}
	}},
	{"pruning knows no limit", "prune/limit", func(d *double) {
		d.prune = func(ctx context.Context, before time.Time, limit int) (int, error) {
			return d.Store.Prune(ctx, before, 1000)
		}
	}},
}

var brokenRaces = []Broken{
	{"check, then write", "race/one-swap-wins", func(d *double) {
		d.swap = func(ctx context.Context, c claims.Condition, w []claims.Write) (claims.Swapped, error) {
			if w[0].Version != d.version(w[0].Next.Key) {
				return claims.Swapped{}, claims.ErrLost
			}
			gap()
			d.Edit(func(data *memory.Data, now claims.Now) {
				data.Calls[w[0].Next.Key] = &memory.Call{Record: w[0].Stamp(now)}
			})
			return claims.Swapped{}, nil
		}
	}},
	{"check, then take", "race/one-acquire-wins", func(d *double) {
		d.acquire = func(ctx context.Context, scope, holder string, ttl time.Duration) (claims.Lease, error) {
			l, err := d.Store.State(ctx, scope)
			if err != nil || l.Status == claims.LeaseLive {
				return l, claims.ErrHeld
			}
			gap()
			d.edit(scope, func(l *memory.Lease, now claims.Now) { l.Expiry = now.Store })
			return d.Store.Acquire(ctx, scope, holder, ttl)
		}
	}},
	{"check, then renew", "race/renewal-or-takeover", func(d *double) {
		d.renew = func(ctx context.Context, g claims.Guard, ttl time.Duration) (claims.Lease, error) {
			l, err := d.Store.State(ctx, g.Scope)
			if err != nil || l.Guard != g || l.Status != claims.LeaseLive {
				return l, &claims.FencedError{Guard: g, Status: claims.LeaseExpired}
			}
			gap()
			d.edit(g.Scope, func(l *memory.Lease, now claims.Now) { l.Expiry = now.Store.Add(ttl) })
			return l, nil
		}
	}},
	{"the guard is checked before the transaction", "race/claim-or-release", guardCheckedBefore},
	{"the guard is checked before the transaction", "race/claim-or-finish", guardCheckedBefore},
	{"look, then move on", "race/one-sweeper-gets-a-call", func(d *double) {
		d.unsettled = func(ctx context.Context, s claims.Sweep) (keys []claims.Key, err error) {
			d.calls(func(c *memory.Call, now claims.Now) {
				if c.Record.State == claims.StateUnknown && !c.Record.NextCheck.After(now.Store) {
					keys = append(keys, c.Record.Key)
				}
			})
			gap()
			_, err = d.Store.Unsettled(ctx, s)
			return keys, err
		}
	}},
	{"two records are written one by one", "race/two-records-at-once", swapOneByOne},
}

func guardCheckedBefore(d *double) {
	d.swap = func(ctx context.Context, c claims.Condition, w []claims.Write) (claims.Swapped, error) {
		v, err := d.Store.Get(ctx, w[0].Next.Key, c.Guard)
		if err != nil || !c.Guard.IsZero() && !v.Guard.Live() {
			return claims.Swapped{}, &claims.FencedError{Guard: c.Guard, Status: v.Guard.Status}
		}
		gap()
		c.Guard = claims.Guard{}
		return d.Store.Swap(ctx, c, w...)
	}
}

// keys of stored records that f picks, due or not.
func (d *double) keys(f func(claims.Record) bool) (keys []claims.Key) {
	d.calls(func(c *memory.Call, _ claims.Now) {
		if f(c.Record) {
			keys = append(keys, c.Record.Key)
		}
	})
	return keys
}

func (d *double) withKeys(f func(claims.Record) bool) {
	d.unsettled = func(ctx context.Context, s claims.Sweep) ([]claims.Key, error) {
		keys, err := d.Store.Unsettled(ctx, s)
		return append(keys, d.keys(f)...), err
	}
}

func (d *double) withoutKeys(f func(claims.Record) bool) {
	d.unsettled = func(ctx context.Context, s claims.Sweep) ([]claims.Key, error) {
		hidden := d.keys(f)
		keys, err := d.Store.Unsettled(ctx, s)
		return slices.DeleteFunc(keys, func(k claims.Key) bool { return slices.Contains(hidden, k) }), err
	}
}

func (d *double) afterSweep(f func(*memory.Call, claims.Now)) {
	d.unsettled = func(ctx context.Context, s claims.Sweep) ([]claims.Key, error) {
		keys, err := d.Store.Unsettled(ctx, s)
		d.calls(f)
		return keys, err
	}
}

func (d *double) afterPrune(f func(*memory.Call)) {
	d.prune = func(ctx context.Context, before time.Time, limit int) (int, error) {
		n, err := d.Store.Prune(ctx, before, limit)
		d.calls(func(c *memory.Call, _ claims.Now) { f(c) })
		return n, err
	}
}
