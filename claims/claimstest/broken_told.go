package claimstest

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/fence-sidecar/fence-sidecar/claims"
	"github.com/fence-sidecar/fence-sidecar/claims/memory"
)

var brokenTold = []Broken{
	{"told is forgotten", "told/ends-it", func(d *double) { d.told = func(context.Context, string) error { return nil } }},
	{"told drops the event", "told/ends-it", func(d *double) {
		d.told = func(_ context.Context, id string) error {
			d.Edit(func(data *memory.Data, _ claims.Now) {
				data.Events = slices.DeleteFunc(data.Events, func(e *memory.Event) bool { return e.ID == id })
			})
			return nil
		}
	}},
	{"told tells all of before", "told/ends-it", func(d *double) {
		d.told = func(ctx context.Context, id string) error {
			d.Edit(func(data *memory.Data, _ claims.Now) {
				for _, e := range data.Events {
					e.Told = true
				}
			})
			return nil
		}
	}},
	{"told twice is an error", "told/ends-it", func(d *double) {
		once := map[string]bool{}
		d.told = func(ctx context.Context, id string) error {
			if once[id] {
				return errors.New("told already")
			}
			once[id] = true
			return d.Store.Told(ctx, id)
		}
	}},
	{"told of a dropped event is an error", "told/of-what-is-gone", func(d *double) {
		d.told = func(ctx context.Context, id string) error {
			found := false
			d.Edit(func(data *memory.Data, _ claims.Now) {
				found = slices.ContainsFunc(data.Events, func(e *memory.Event) bool { return e.ID == id })
			})
			if !found {
				return claims.ErrBadEvent
			}
			return d.Store.Told(ctx, id)
		}
	}},
	{"an event is told at once again", "untold/backs-off", func(d *double) {
		d.afterUntold(func(e *memory.Event) { e.NextTry = time.Time{} })
	}},
	{"tries do not back off", "untold/backs-off", func(d *double) { d.afterUntold(func(e *memory.Event) { e.Tries = 0 }) }},
	{"an event is tried once", "untold/backs-off", func(d *double) { d.afterUntold(func(e *memory.Event) { e.Told = true }) }},
	{"a call's events share their tries", "untold/backs-off", func(d *double) {
		d.afterUntold(func(e *memory.Event) { e.NextTry = e.NextTry.Add(sweep.Max / 1000 * time.Duration(number(e)-1)) })
	}},
	{"everybody's events are told", "untold/only-asked-tenants", func(d *double) {
		d.untold = func(ctx context.Context, s claims.Sweep) ([]claims.Event, error) {
			s.Tenants = nil
			return d.Store.Untold(ctx, s)
		}
	}},
	{"who was not asked for waits too", "untold/only-asked-tenants", func(d *double) {
		d.untold = func(ctx context.Context, s claims.Sweep) ([]claims.Event, error) {
			all := s
			all.Tenants, all.Base, all.Max = nil, time.Hour, time.Hour
			list, err := d.Store.Untold(ctx, s)
			if err == nil && len(s.Tenants) > 0 {
				_, err = d.Store.Untold(ctx, all)
			}
			return list, err
		}
	}},
	{"no limit", "untold/limit", func(d *double) {
		d.untold = func(ctx context.Context, s claims.Sweep) ([]claims.Event, error) {
			s.Limit = 1000
			return d.Store.Untold(ctx, s)
		}
	}},
	{"what is over the limit waits too", "untold/limit", func(d *double) {
		d.untold = func(ctx context.Context, s claims.Sweep) ([]claims.Event, error) {
			limit := s.Limit
			s.Limit = 1000
			list, err := d.Store.Untold(ctx, s)
			return list[:min(limit, len(list))], err
		}
	}},
	{"look, then move on", "untold/one-teller-gets-an-event", func(d *double) {
		d.untold = func(ctx context.Context, s claims.Sweep) (list []claims.Event, err error) {
			d.Edit(func(data *memory.Data, now claims.Now) {
				for _, e := range data.Events {
					if !e.NextTry.After(now.Store) {
						list = append(list, e.Event)
					}
				}
			})
			gap()
			_, err = d.Store.Untold(ctx, s)
			return list, err
		}
	}},
}

func (d *double) afterUntold(f func(*memory.Event)) {
	d.untold = func(ctx context.Context, s claims.Sweep) ([]claims.Event, error) {
		list, err := d.Store.Untold(ctx, s)
		d.Edit(func(data *memory.Data, _ claims.Now) {
			for _, e := range data.Events {
				f(e)
			}
		})
		return list, err
	}
}
