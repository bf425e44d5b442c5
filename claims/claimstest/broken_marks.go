package claimstest

import (
	"context"
	"errors"
	"time"

	"github.com/fence-sidecar/fence-sidecar/claims"
	"github.com/fence-sidecar/fence-sidecar/claims/memory"
)

var brokenMarks = []Broken{
	{"a take forgets the mark", "lease/cancel-is-told", func(d *double) {
		d.acquire = func(ctx context.Context, scope, holder string, ttl time.Duration) (claims.Lease, error) {
			d.edit(scope, func(l *memory.Lease, _ claims.Now) { l.Cancelled = false })
			return d.Store.Acquire(ctx, scope, holder, ttl)
		}
	}},
	{"a renewal does not tell of the mark", "lease/cancel-is-told", func(d *double) {
		d.renew = func(ctx context.Context, g claims.Guard, ttl time.Duration) (claims.Lease, error) {
			l, err := d.Store.Renew(ctx, g, ttl)
			l.Cancelled = false
			return l, err
		}
	}},
	{"the mark ends the lease", "lease/cancel-takes-from-nobody", func(d *double) {
		d.cancel = func(ctx context.Context, scope string) (claims.Lease, error) {
			d.edit(scope, func(l *memory.Lease, now claims.Now) { l.Expiry = now.Store })
			return d.Store.Cancel(ctx, scope)
		}
	}},
	{"the mark is a take", "lease/cancel-before-the-first-take", func(d *double) {
		d.cancel = func(ctx context.Context, scope string) (claims.Lease, error) {
			if l, err := d.Store.State(ctx, scope); err == nil && l.Token == 0 {
				if _, err := d.Store.Acquire(ctx, scope, "", time.Microsecond); err != nil {
					return l, err
				}
			}
			return d.Store.Cancel(ctx, scope)
		}
	}},
	{"a finished scope is marked", "lease/cancel-of-finished", func(d *double) {
		d.cancel = func(ctx context.Context, scope string) (claims.Lease, error) {
			l, err := d.Store.Cancel(ctx, scope)
			if errors.Is(err, claims.ErrFinished) {
				err = nil
			}
			return l, err
		}
	}},
	{"an instance's scope is marked", "lease/cancel-bad-scope", func(d *double) {
		d.cancel = func(ctx context.Context, scope string) (claims.Lease, error) {
			l, err := d.Store.Cancel(ctx, scope)
			if errors.Is(err, claims.ErrBadScope) {
				return d.Store.State(ctx, scope)
			}
			return l, err
		}
	}},
	{"a lower external token lowers the mark", "external/mark-only-grows", func(d *double) {
		d.renew = func(ctx context.Context, g claims.Guard, ttl time.Duration) (claims.Lease, error) {
			if g.External() {
				d.edit(g.Scope, func(l *memory.Lease, _ claims.Now) { l.Token = min(l.Token, g.Token) })
			}
			return d.Store.Renew(ctx, g, ttl)
		}
	}},
	{"an external token expires", "external/no-expiry", func(d *double) {
		d.onView(func(v *claims.View) {
			if v.Guard.Remaining == claims.ExternalTrust && v.Now.Store.Sub(start) > 4000*time.Hour {
				v.Guard = claims.GuardView{Status: claims.LeaseExpired}
			}
		})
	}},
	{"a lower external token claims", "external/guards-a-swap", func(d *double) {
		d.onWrites(func(c *claims.Condition, _ *claims.Write) {
			if c.Guard.External() {
				c.Guard = claims.Guard{}
			}
		})
	}},
	{"an external scope is leased", "external/is-no-lease", func(d *double) {
		d.acquire = func(ctx context.Context, scope, holder string, ttl time.Duration) (claims.Lease, error) {
			l, err := d.Store.Acquire(ctx, scope, holder, ttl)
			if errors.Is(err, claims.ErrBadScope) {
				err = nil
			}
			return l, err
		}
	}},
}
