package claimstest

import (
	"context"
	"time"

	"github.com/fence-sidecar/fence-sidecar/claims"
	"github.com/fence-sidecar/fence-sidecar/claims/memory"
)

// without forgets the quarantine while f runs.
func (d *double) without(f func()) {
	var until time.Time
	d.Edit(func(data *memory.Data, _ claims.Now) { until, data.Quarantine = data.Quarantine, time.Time{} })
	f()
	d.Edit(func(data *memory.Data, _ claims.Now) { data.Quarantine = until })
}

// evenEras takes the jump back out of a scope's row.
func (d *double) evenEras(scope string) {
	d.Edit(func(data *memory.Data, _ claims.Now) {
		if l, ok := data.Leases[scope]; ok {
			l.Era = uint64(len(data.Losses))
		}
	})
}

var brokenLosses = []Broken{
	{"a quarantine grants", "loss/quarantine", func(d *double) {
		d.acquire = func(ctx context.Context, scope, holder string, ttl time.Duration) (l claims.Lease, err error) {
			d.without(func() { l, err = d.Store.Acquire(ctx, scope, holder, ttl) })
			return l, err
		}
	}},
	{"a quarantine renews", "loss/quarantine", func(d *double) {
		d.renew = func(ctx context.Context, g claims.Guard, ttl time.Duration) (l claims.Lease, err error) {
			d.without(func() { l, err = d.Store.Renew(ctx, g, ttl) })
			return l, err
		}
	}},
	{"a quarantine lets claims pass", "loss/quarantine", func(d *double) {
		d.swap = func(ctx context.Context, c claims.Condition, w []claims.Write) (s claims.Swapped, err error) {
			d.without(func() { s, err = d.Store.Swap(ctx, c, w...) })
			return s, err
		}
	}},
	{"a quarantine is not told", "loss/quarantine", func(d *double) { d.onView(func(v *claims.View) { v.Quarantine = 0 }) }},
	{"a quarantine refuses evidence", "loss/quarantine-lets-evidence-pass", func(d *double) {
		d.swap = func(ctx context.Context, c claims.Condition, w []claims.Write) (claims.Swapped, error) {
			var left time.Duration
			d.Edit(func(data *memory.Data, now claims.Now) { left = data.Quarantine.Sub(now.Store) })
			if left > 0 {
				return claims.Swapped{}, &claims.QuarantineError{Left: left}
			}
			return d.Store.Swap(ctx, c, w...)
		}
	}},
	{"a lease outlives a loss", "loss/leases-end", func(d *double) {
		d.get = func(ctx context.Context, key claims.Key, g claims.Guard) (claims.View, error) {
			d.evenEras(g.Scope)
			return d.Store.Get(ctx, key, g)
		}
	}},
	{"tokens do not jump", "loss/tokens-jump", func(d *double) {
		d.acquire = func(ctx context.Context, scope, holder string, ttl time.Duration) (claims.Lease, error) {
			d.evenEras(scope)
			return d.Store.Acquire(ctx, scope, holder, ttl)
		}
	}},
	{"an unseen scope starts at one", "loss/tokens-jump", func(d *double) {
		d.acquire = func(ctx context.Context, scope, holder string, ttl time.Duration) (claims.Lease, error) {
			d.Edit(func(data *memory.Data, _ claims.Now) {
				if data.Leases[scope] == nil {
					data.Leases[scope] = &memory.Lease{Era: uint64(len(data.Losses))}
				}
			})
			return d.Store.Acquire(ctx, scope, holder, ttl)
		}
	}},
	{"a loss is not told", "loss/get-tells", func(d *double) { d.onView(func(v *claims.View) { v.Loss = nil }) }},
	{"a loss is told for ever", "loss/get-tells", func(d *double) {
		d.onView(func(v *claims.View) {
			if v.Loss == nil && v.Era > 0 && !v.Record.Exists() {
				v.Loss = &claims.Loss{From: claims.Now{Store: start, Wall: start}, At: v.Now}
			}
		})
	}},
	{"a loss is told of new records", "loss/get-tells", func(d *double) {
		d.onView(func(v *claims.View) {
			if v.Era > 0 && v.Record.Exists() && v.Loss == nil {
				v.Loss = &claims.Loss{From: claims.Now{Store: start, Wall: start}, At: v.Now}
			}
		})
	}},
	{"a claim decided before a loss", "loss/claim-of-an-earlier-era", func(d *double) {
		d.onWrites(func(_ *claims.Condition, w *claims.Write) {
			if w.Claim {
				w.Next.Era = 1
			}
		})
	}},
}
