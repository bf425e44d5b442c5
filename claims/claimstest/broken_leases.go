package claimstest

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/fence-sidecar/fence-sidecar/claims"
	"github.com/fence-sidecar/fence-sidecar/claims/memory"
)

var brokenLeases = []Broken{
	{"a takeover keeps the token", "lease/tokens-count-takes", func(d *double) {
		d.acquire = func(ctx context.Context, scope, holder string, ttl time.Duration) (claims.Lease, error) {
			l, err := d.Store.Acquire(ctx, scope, holder, ttl)
			if l.Token > 1 {
				l.Token--
				d.edit(scope, func(l *memory.Lease, _ claims.Now) { l.Token-- })
			}
			return l, err
		}
	}},
	{"a release forgets the token", "lease/tokens-count-across-release", func(d *double) {
		d.release = func(ctx context.Context, g claims.Guard) error {
			err := d.Store.Release(ctx, g)
			if err == nil {
				d.Edit(func(data *memory.Data, _ claims.Now) { delete(data.Leases, g.Scope) })
			}
			return err
		}
	}},
	{"a held scope is granted", "lease/held-is-not-granted", func(d *double) { d.grantDespite(claims.ErrHeld) }},
	{"an expired scope stays held", "lease/free-after-expiry", func(d *double) {
		d.acquire = func(ctx context.Context, scope, holder string, ttl time.Duration) (claims.Lease, error) {
			if l, err := d.Store.State(ctx, scope); err == nil && l.Status == claims.LeaseExpired {
				return l, claims.ErrHeld
			}
			return d.Store.Acquire(ctx, scope, holder, ttl)
		}
	}},
	{"live at its expiry", "lease/expired-at-expiry", func(d *double) {
		d.acquire = func(ctx context.Context, scope, holder string, ttl time.Duration) (claims.Lease, error) {
			return d.Store.Acquire(ctx, scope, holder, ttl+1)
		}
	}},
	{"expiry is ignored", "lease/expired-at-expiry", func(d *double) {
		d.acquire = func(ctx context.Context, scope, holder string, _ time.Duration) (claims.Lease, error) {
			return d.Store.Acquire(ctx, scope, holder, 1000*time.Hour)
		}
	}},
	{"leases by wall clock", "lease/wall-clock-decides-nothing", func(d *double) {
		d.now = func() claims.Now { n := d.clock.Now(); return claims.Now{Store: n.Wall, Wall: n.Wall} }
	}},
	{"a renewal does nothing", "lease/renewal-extends", func(d *double) {
		d.renew = func(ctx context.Context, g claims.Guard, _ time.Duration) (claims.Lease, error) {
			return d.Store.Renew(ctx, g, 0)
		}
	}},
	{"a renewal can shorten", "lease/renewal-never-shortens", func(d *double) {
		d.renew = func(ctx context.Context, g claims.Guard, ttl time.Duration) (claims.Lease, error) {
			if _, err := d.Store.Renew(ctx, g, ttl); err != nil {
				return claims.Lease{}, err
			}
			d.edit(g.Scope, func(l *memory.Lease, now claims.Now) { l.Expiry = now.Store.Add(ttl) })
			return d.Store.State(ctx, g.Scope)
		}
	}},
	{"an expired lease is renewed", "lease/expired-is-not-renewed", func(d *double) {
		d.renew = func(ctx context.Context, g claims.Guard, ttl time.Duration) (claims.Lease, error) {
			d.edit(g.Scope, func(l *memory.Lease, now claims.Now) {
				if l.Token == g.Token {
					l.Expiry = now.Store.Add(ttl)
				}
			})
			return d.Store.Renew(ctx, g, ttl)
		}
	}},
	{"every refused renewal is called expired", "lease/renewal-refused-by-status", func(d *double) {
		d.renew = func(ctx context.Context, g claims.Guard, ttl time.Duration) (claims.Lease, error) {
			l, err := d.Store.Renew(ctx, g, ttl)
			if claims.Refused(err) {
				err = &claims.FencedError{Guard: g, Status: claims.LeaseExpired}
			}
			return l, err
		}
	}},
	{"scopes without case", "lease/scopes-are-bytes", func(d *double) {
		d.acquire = func(ctx context.Context, scope, holder string, ttl time.Duration) (claims.Lease, error) {
			if strings.Contains(scope, "%") {
				return d.Store.Acquire(ctx, scope, holder, ttl)
			}
			return d.Store.Acquire(ctx, strings.ToLower(scope), holder, ttl)
		}
	}},
	{"any text is a scope", "lease/bad-scope", func(d *double) {
		d.acquire = func(ctx context.Context, scope, holder string, ttl time.Duration) (claims.Lease, error) {
			l, err := d.Store.Acquire(ctx, scope, holder, ttl)
			if errors.Is(err, claims.ErrBadScope) {
				return d.Store.Acquire(ctx, claims.ScopeKey("any", "x"+scope), holder, ttl)
			}
			return l, err
		}
	}},
	{"the state of a scope forgets its end", "lease/state", func(d *double) {
		d.state = func(ctx context.Context, scope string) (claims.Lease, error) {
			l, err := d.Store.State(ctx, scope)
			if l.Status == claims.LeaseReleased {
				l.Status = claims.LeaseExpired
			}
			return l, err
		}
	}},
}

var brokenEnds = []Broken{
	{"a release waits for the expiry", "lease/released-is-free", func(d *double) {
		d.release = func(ctx context.Context, g claims.Guard) error { return nil }
	}},
	{"a finished scope is taken", "lease/finished-is-final", func(d *double) { d.grantDespite(claims.ErrFinished) }},
	{"a dead lease can be given back", "lease/end-refused-by-status", func(d *double) {
		d.release = func(ctx context.Context, g claims.Guard) error {
			err := d.Store.Release(ctx, g)
			if _, ok := errors.AsType[*claims.FencedError](err); ok {
				return nil
			}
			return err
		}
	}},
	{"released while calls are in flight", "lease/release-waits-for-calls", func(d *double) {
		d.release = d.endDespite(d.Store.Release, func(memory.Call, claims.Guard) bool { return true })
	}},
	{"finished while calls are in flight", "lease/finish-waits-for-calls", func(d *double) {
		d.finish = d.endDespite(d.Store.Finish, func(memory.Call, claims.Guard) bool { return true })
	}},
	{"a call in doubt keeps no lease from being released", "lease/release-waits-for-calls", func(d *double) {
		d.release = d.endDespite(d.Store.Release, func(c memory.Call, _ claims.Guard) bool {
			return c.Record.State == claims.StateUnknown
		})
	}},
	{"released by a sender that sends", "lease/release-waits-for-own-sends", func(d *double) {
		d.release = d.endDespite(d.Store.Release, sentBy)
	}},
	{"finished by a sender that sends", "lease/finish-waits-for-own-sends", func(d *double) {
		d.finish = d.endDespite(d.Store.Finish, sentBy)
	}},
	{"every token of a finished scope finished it", "lease/status-by-token", func(d *double) {
		d.get = func(ctx context.Context, key claims.Key, g claims.Guard) (claims.View, error) {
			v, err := d.Store.Get(ctx, key, g)
			if l, _ := d.Store.State(ctx, g.Scope); l.Status == claims.LeaseFinished {
				v.Guard.Status = claims.LeaseFinished
			}
			return v, err
		}
	}},
	{"a token not granted yet is live", "lease/status-by-token", func(d *double) {
		d.get = func(ctx context.Context, key claims.Key, g claims.Guard) (claims.View, error) {
			v, err := d.Store.Get(ctx, key, g)
			if l, _ := d.Store.State(ctx, g.Scope); l.Status == claims.LeaseLive && g.Token > l.Token {
				v.Guard.Status = claims.LeaseLive
			}
			return v, err
		}
	}},
	{"renewals are logged", "lease/log", func(d *double) {
		d.renew = func(ctx context.Context, g claims.Guard, ttl time.Duration) (claims.Lease, error) {
			l, err := d.Store.Renew(ctx, g, ttl)
			d.logLine(g, "renew")
			return l, err
		}
	}},
	{"a takeover is logged as a take", "lease/log", func(d *double) {
		d.acquire = func(ctx context.Context, scope, holder string, ttl time.Duration) (claims.Lease, error) {
			l, err := d.Store.Acquire(ctx, scope, holder, ttl)
			d.Edit(func(data *memory.Data, _ claims.Now) {
				for i := range data.Log[scope] {
					if e := &data.Log[scope][i]; e.Event == "takeover" {
						e.Event = "take"
					}
				}
			})
			return l, err
		}
	}},
	{"a refused take of a finished scope is logged", "lease/log-without-takeover-of-finished", func(d *double) {
		d.acquire = func(ctx context.Context, scope, holder string, ttl time.Duration) (claims.Lease, error) {
			l, err := d.Store.Acquire(ctx, scope, holder, ttl)
			if errors.Is(err, claims.ErrFinished) {
				d.logLine(l.Guard, "takeover")
			}
			return l, err
		}
	}},
}

// grantDespite takes a scope although the store refused it.
func (d *double) grantDespite(refusal error) {
	d.acquire = func(ctx context.Context, scope, holder string, ttl time.Duration) (claims.Lease, error) {
		l, err := d.Store.Acquire(ctx, scope, holder, ttl)
		if errors.Is(err, refusal) {
			d.edit(scope, func(l *memory.Lease, _ claims.Now) { l.End = claims.LeaseReleased })
			return d.Store.Acquire(ctx, scope, holder, ttl)
		}
		return l, err
	}
}

// endDespite looks away from some calls in flight while a lease ends.
func (d *double) endDespite(end end, ignored func(c memory.Call, g claims.Guard) bool) end {
	return func(ctx context.Context, g claims.Guard) error {
		hidden := map[*memory.Call]claims.State{}
		d.calls(func(c *memory.Call, _ claims.Now) {
			if s := c.Record.State; (s == claims.StatePending || s == claims.StateUnknown) && ignored(*c, g) {
				hidden[c], c.Record.State = s, claims.StateReview
			}
		})
		err := end(ctx, g)
		d.calls(func(c *memory.Call, _ claims.Now) {
			if s, ok := hidden[c]; ok {
				c.Record.State = s
			}
		})
		return err
	}
}

func sentBy(c memory.Call, g claims.Guard) bool { return c.Record.Sender == g }

func (d *double) logLine(g claims.Guard, event string) {
	d.Edit(func(data *memory.Data, now claims.Now) {
		data.Log[g.Scope] = append(data.Log[g.Scope], claims.LeaseEvent{Guard: g, Event: event, At: now})
	})
}
