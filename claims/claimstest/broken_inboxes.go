package claimstest

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/fence-sidecar/fence-sidecar/claims"
	"github.com/fence-sidecar/fence-sidecar/claims/memory"
)

var brokenInboxes = []Broken{
	{"the last body wins", "inbox/kept-once", func(d *double) {
		d.keep = func(ctx context.Context, e claims.Early) error {
			d.notices(func(n *memory.Notice) {
				if n.ID == e.ID {
					n.Body = e.Body
				}
			})
			return d.Store.Keep(ctx, e)
		}
	}},
	{"kept as often as it comes", "inbox/kept-once", func(d *double) {
		d.keep = func(_ context.Context, e claims.Early) error {
			d.Edit(func(data *memory.Data, now claims.Now) {
				e.At = now
				data.Notices = append(data.Notices, &memory.Notice{Early: e})
			})
			return nil
		}
	}},
	{"given once", "inbox/kept-once", func(d *double) {
		d.kept = func(ctx context.Context, tenants []string, limit int) ([]claims.Early, error) {
			list, err := d.Store.Kept(ctx, tenants, limit)
			for _, e := range list {
				d.Store.Drop(ctx, e.Tenant, e.Gateway, e.ID)
			}
			return list, err
		}
	}},
	{"names without case", "inbox/names-are-bytes", func(d *double) {
		d.onKeep(func(e *claims.Early) { e.ID = strings.ToLower(e.ID) })
	}},
	{"names without trailing space", "inbox/names-are-bytes", func(d *double) {
		d.onKeep(func(e *claims.Early) { e.Gateway = strings.TrimRight(e.Gateway, " ") })
	}},
	{"names without accents", "inbox/names-are-bytes", func(d *double) {
		d.onKeep(func(e *claims.Early) { e.Tenant = strings.ReplaceAll(e.Tenant, "e\u0301", "\u00e9") })
	}},
	{"names end at a NUL", "inbox/names-are-bytes", func(d *double) {
		d.onKeep(func(e *claims.Early) { e.ID, _, _ = strings.Cut(e.ID, "\x00") })
	}},
	{"a name has two parts", "inbox/names-are-bytes", func(d *double) {
		d.onKeep(func(e *claims.Early) { e.Tenant, e.Gateway = e.Tenant+e.Gateway, "g" })
	}},
	{"the caller's time counts", "inbox/stamped", func(d *double) {
		d.keep = func(ctx context.Context, e claims.Early) error {
			err := d.Store.Keep(ctx, e)
			d.notices(func(n *memory.Notice) { n.At = e.At })
			return err
		}
	}},
	{"kept again is kept anew", "inbox/stamped", func(d *double) {
		d.keep = func(ctx context.Context, e claims.Early) error {
			return errors.Join(d.Store.Drop(ctx, e.Tenant, e.Gateway, e.ID), d.Store.Keep(ctx, e))
		}
	}},
	{"keeps the body that it was given", "inbox/copies", func(d *double) {
		d.keep = func(ctx context.Context, e claims.Early) error {
			err := d.Store.Keep(ctx, e)
			d.notices(func(n *memory.Notice) { n.Body = e.Body })
			return err
		}
	}},
	{"hands out the body that it keeps", "inbox/copies", func(d *double) {
		d.kept = func(ctx context.Context, tenants []string, limit int) ([]claims.Early, error) {
			list, err := d.Store.Kept(ctx, tenants, limit)
			d.notices(func(n *memory.Notice) { list[0].Body = n.Body })
			return list, err
		}
	}},
	{"always the oldest", "inbox/in-turn", oldestFirst},
	{"new ones come last", "inbox/in-turn", func(d *double) {
		d.keep = func(ctx context.Context, e claims.Early) error {
			err := d.Store.Keep(ctx, e)
			d.Edit(func(data *memory.Data, _ claims.Now) { data.Notices[len(data.Notices)-1].Given = data.Given })
			return err
		}
	}},
	{"in the order of their names", "inbox/in-turn", func(d *double) {
		d.kept = func(ctx context.Context, tenants []string, limit int) ([]claims.Early, error) {
			d.Edit(func(data *memory.Data, _ claims.Now) {
				slices.SortFunc(data.Notices, func(a, b *memory.Notice) int { return cmp.Compare(a.ID, b.ID) })
			})
			return d.Store.Kept(ctx, tenants, limit)
		}
	}},
	{"the time of giving tells the turn", "inbox/in-turn", func(d *double) {
		d.kept = func(ctx context.Context, tenants []string, limit int) ([]claims.Early, error) {
			list, err := d.Store.Kept(ctx, tenants, limit)
			now := int(d.now().Wall.Unix())
			d.notices(func(n *memory.Notice) {
				if slices.ContainsFunc(list, func(e claims.Early) bool { return e.ID == n.ID }) {
					n.Given = now
				}
			})
			return list, err
		}
	}},
	{"everybody's notices are given", "inbox/only-asked-tenants", func(d *double) {
		d.kept = func(ctx context.Context, _ []string, limit int) ([]claims.Early, error) {
			return d.Store.Kept(ctx, nil, limit)
		}
	}},
	{"who was not asked for loses the turn", "inbox/only-asked-tenants", func(d *double) {
		d.kept = func(ctx context.Context, tenants []string, limit int) ([]claims.Early, error) {
			list, err := d.Store.Kept(ctx, tenants, limit)
			d.Edit(func(data *memory.Data, _ claims.Now) {
				for _, n := range data.Notices {
					n.Given = data.Given
				}
			})
			return list, err
		}
	}},
	{"no limit", "inbox/limit", func(d *double) {
		d.kept = func(ctx context.Context, tenants []string, _ int) ([]claims.Early, error) {
			return d.Store.Kept(ctx, tenants, 1000)
		}
	}},
	{"what is over the limit loses its turn", "inbox/limit", func(d *double) {
		d.kept = func(ctx context.Context, tenants []string, limit int) ([]claims.Early, error) {
			list, err := d.Store.Kept(ctx, tenants, 1000)
			return list[:min(len(list), max(limit, 0))], err
		}
	}},
	{"those who ask at once get the same", "inbox/nobody-waits-for-ever", oldestFirst},
	{"dropping does nothing", "inbox/drop", func(d *double) {
		d.drop = func(context.Context, string, string, string) error { return nil }
	}},
	{"dropping drops the id at every gateway", "inbox/drop", func(d *double) {
		d.drop = func(ctx context.Context, tenant, gateway, id string) error {
			return errors.Join(d.Store.Drop(ctx, tenant, gateway, id), d.Store.Drop(ctx, tenant, "adyen", id))
		}
	}},
	{"dropping drops everybody's", "inbox/drop", func(d *double) {
		d.drop = func(ctx context.Context, tenant, gateway, id string) error {
			return errors.Join(d.Store.Drop(ctx, tenant, gateway, id), d.Store.Drop(ctx, "other", gateway, id))
		}
	}},
	{"dropping what is gone is an error", "inbox/drop", func(d *double) {
		d.drop = func(ctx context.Context, tenant, gateway, id string) error {
			found := false
			d.notices(func(n *memory.Notice) { found = found || n.Tenant == tenant && n.Gateway == gateway && n.ID == id })
			if !found {
				return errors.New("no such notice")
			}
			return d.Store.Drop(ctx, tenant, gateway, id)
		}
	}},
	{"what was dropped is never kept again", "inbox/drop", func(d *double) {
		gone := map[string]bool{}
		d.drop = func(ctx context.Context, tenant, gateway, id string) error {
			gone[id] = true
			return d.Store.Drop(ctx, tenant, gateway, id)
		}
		d.keep = func(ctx context.Context, e claims.Early) error {
			if gone[e.ID] {
				return nil
			}
			return d.Store.Keep(ctx, e)
		}
	}},
	{"every size is kept", "inbox/sizes", func(d *double) {
		d.keep = func(_ context.Context, e claims.Early) error {
			d.Edit(func(data *memory.Data, now claims.Now) {
				e.At = now
				data.Notices = append(data.Notices, &memory.Notice{Early: e})
			})
			return nil
		}
	}},
	{"what is too long is cut off", "inbox/sizes", func(d *double) {
		d.onKeep(func(e *claims.Early) {
			e.ID, e.Body = e.ID[:min(len(e.ID), claims.MaxKey)], e.Body[:min(len(e.Body), claims.MaxEarlyBody)]
		})
	}},
	{"bodies are texts", "inbox/sizes", func(d *double) {
		d.onKeep(func(e *claims.Early) { e.Body = []byte(strings.ToValidUTF8(string(e.Body), "")) })
	}},
	{"as many as come", "inbox/full", func(d *double) { d.room(func(claims.Early, int) bool { return true }) }},
	{"one too few", "inbox/full", func(d *double) { d.room(func(_ claims.Early, of int) bool { return of < claims.MaxEarly-1 }) }},
	{"all tenants share one inbox", "inbox/full", func(d *double) {
		d.keep = func(ctx context.Context, e claims.Early) error {
			n := 0
			d.notices(func(*memory.Notice) { n++ })
			if n >= claims.MaxEarly {
				return claims.ErrInboxFull
			}
			return d.Store.Keep(ctx, e)
		}
	}},
	{"the oldest makes room", "inbox/full", func(d *double) {
		d.keep = func(ctx context.Context, e claims.Early) error {
			err := d.Store.Keep(ctx, e)
			if errors.Is(err, claims.ErrInboxFull) {
				d.Edit(func(data *memory.Data, _ claims.Now) { data.Notices = data.Notices[1:] })
				err = d.Store.Keep(ctx, e)
			}
			return err
		}
	}},
	{"full also for what is kept", "inbox/full", func(d *double) {
		d.keep = func(ctx context.Context, e claims.Early) error {
			if d.of(e.Tenant) >= claims.MaxEarly {
				return claims.ErrInboxFull
			}
			return d.Store.Keep(ctx, e)
		}
	}},
	{"count, then keep", "inbox/full-at-once", func(d *double) {
		d.room(func(_ claims.Early, of int) bool { gap(); return of < claims.MaxEarly })
	}},
}

// oldestFirst forgets who was given.
func oldestFirst(d *double) {
	d.kept = func(ctx context.Context, tenants []string, limit int) ([]claims.Early, error) {
		list, err := d.Store.Kept(ctx, tenants, limit)
		d.notices(func(n *memory.Notice) { n.Given = 0 })
		return list, err
	}
}

// notices visits all that are kept.
func (d *double) notices(f func(*memory.Notice)) {
	d.Edit(func(data *memory.Data, _ claims.Now) {
		for _, n := range data.Notices {
			f(n)
		}
	})
}

// of counts a tenant's notices.
func (d *double) of(tenant string) (n int) {
	d.notices(func(o *memory.Notice) {
		if o.Tenant == tenant {
			n++
		}
	})
	return n
}

// onKeep changes what is kept.
func (d *double) onKeep(f func(*claims.Early)) {
	d.keep = func(ctx context.Context, e claims.Early) error {
		f(&e)
		return d.Store.Keep(ctx, e)
	}
}

// room keeps what there is room for, counted before.
func (d *double) room(is func(e claims.Early, of int) bool) {
	d.keep = func(_ context.Context, e claims.Early) error {
		there := false
		d.notices(func(n *memory.Notice) {
			there = there || n.Tenant == e.Tenant && n.Gateway == e.Gateway && n.ID == e.ID
		})
		switch of := d.of(e.Tenant); {
		case there:
			return nil
		case !is(e, of):
			return claims.ErrInboxFull
		}
		d.Edit(func(data *memory.Data, now claims.Now) {
			e.At = now
			data.Notices = append(data.Notices, &memory.Notice{Early: e})
		})
		return nil
	}
}
