package claimstest

import (
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/fence-sidecar/fence-sidecar/claims"
	"github.com/fence-sidecar/fence-sidecar/claims/memory"
)

var brokenFinds = []Broken{
	{"references are not looked at", "find/by-reference", func(d *double) {
		d.onFind(func(q *finding) { q.Reference = "" })
	}},
	{"no reference is one", "find/by-reference", func(d *double) {
		d.matches(func(r claims.Record, q finding) bool { return false }, func(r claims.Record, q finding) bool {
			return r.Facts.Gateway == q.gateway && r.Facts.Reference == q.Reference
		})
	}},
	{"only what is in doubt is found", "find/by-reference", func(d *double) {
		d.matches(func(r claims.Record, _ finding) bool { return r.State == claims.StateDeclined }, nil)
	}},
	{"an object is a reference too", "find/by-reference", func(d *double) {
		d.matches(nil, func(r claims.Record, q finding) bool { return q.Object != "" && r.Facts.Reference == q.Object })
	}},
	{"earlier revisions are forgotten", "find/by-earlier-reference", func(d *double) {
		d.matches(func(r claims.Record, q finding) bool { return len(r.Past) > 0 && r.Facts.Reference != q.Reference }, nil)
	}},
	{"an earlier revision is taken for one at the present gateway", "find/by-earlier-reference", func(d *double) {
		d.matches(nil, func(r claims.Record, q finding) bool {
			return r.Facts.Gateway == q.gateway && slices.ContainsFunc(r.Past, func(p claims.Past) bool {
				return q.Reference != "" && p.Facts.Reference == q.Reference
			})
		})
	}},
	{"a first write's earlier revisions are forgotten", "find/by-earlier-reference", func(d *double) {
		d.matches(func(r claims.Record, q finding) bool {
			return r.Version == 1 && len(r.Past) > 0 && r.Facts.Reference != q.Reference
		}, nil)
	}},
	{"only the last revision counts", "find/by-earlier-reference", func(d *double) {
		d.matches(func(r claims.Record, q finding) bool {
			n := len(r.Past)
			return n > 1 && r.Facts.Reference != q.Reference && r.Past[n-1].Facts.Reference != q.Reference
		}, nil)
	}},
	{"objects are not looked at", "find/by-object", func(d *double) { d.onFind(func(q *finding) { q.Object = "" }) }},
	{"an object that was is found", "find/by-object", func(d *double) {
		was := map[string]claims.Key{}
		d.onWrites(func(_ *claims.Condition, w *claims.Write) { was[w.Next.Object] = w.Next.Key })
		d.matches(nil, func(r claims.Record, q finding) bool { return q.Object != "" && was[q.Object] == r.Key })
	}},
	{"a reference is an object too", "find/by-object", func(d *double) {
		d.matches(nil, func(r claims.Record, q finding) bool { return q.Reference != "" && r.Object == q.Reference })
	}},
	{"both must be right", "find/by-either", func(d *double) {
		d.matches(func(r claims.Record, q finding) bool {
			return q.Object != "" && q.Reference != "" && (r.Object != q.Object || r.Facts.Reference != q.Reference)
		}, nil)
	}},
	{"what both find comes twice", "find/by-either", func(d *double) {
		d.find = func(ctx context.Context, tenant, gateway string, h claims.Handles, limit int) ([]claims.Key, error) {
			a, _ := d.Store.Find(ctx, tenant, gateway, reference(h.Reference), limit)
			b, err := d.Store.Find(ctx, tenant, gateway, object(h.Object), limit)
			return append(a, b...), err
		}
	}},
	{"everybody's calls are found", "find/only-asked-tenant", func(d *double) {
		d.find = func(ctx context.Context, tenant, gateway string, h claims.Handles, limit int) ([]claims.Key, error) {
			var all []claims.Key
			for _, t := range []string{"shop", "Shop", "other"} {
				keys, err := d.Store.Find(ctx, t, gateway, h, limit)
				if err != nil {
					return nil, err
				}
				all = append(all, keys...)
			}
			return all, nil
		}
	}},
	{"every gateway's calls are found", "find/only-asked-gateway", func(d *double) {
		d.matches(nil, func(r claims.Record, q finding) bool {
			return q.Reference != "" && r.Facts.Reference == q.Reference || q.Object != "" && r.Object == q.Object
		})
	}},
	{"handles without case", "find/compares-bytes", func(d *double) { d.folds(strings.ToLower) }},
	{"handles without trailing space", "find/compares-bytes", func(d *double) {
		d.folds(func(s string) string { return strings.TrimRight(s, " ") })
	}},
	{"handles without accents", "find/compares-bytes", func(d *double) {
		d.folds(func(s string) string { return strings.ReplaceAll(s, "e\u0301", "\u00e9") })
	}},
	{"numbers for texts", "find/compares-bytes", func(d *double) {
		d.folds(func(s string) string { return strings.TrimSuffix(s, ".0") })
	}},
	{"the last is found first", "find/limit-and-order", func(d *double) {
		d.onFound(func(keys []claims.Key, _ int) []claims.Key { slices.Reverse(keys); return keys })
	}},
	{"in the order of an alphabet", "find/limit-and-order", func(d *double) {
		d.onFound(func(keys []claims.Key, _ int) []claims.Key {
			slices.SortFunc(keys, func(a, b claims.Key) int { return strings.Compare(strings.ToLower(a.Call), strings.ToLower(b.Call)) })
			return keys
		})
	}},
	{"no limit", "find/limit-and-order", func(d *double) {
		d.find = func(ctx context.Context, tenant, gateway string, h claims.Handles, _ int) ([]claims.Key, error) {
			return d.Store.Find(ctx, tenant, gateway, h, 1000)
		}
	}},
	{"what cannot be read is not found", "find/unreadable", func(d *double) {
		d.matches(func(r claims.Record, _ finding) bool { return !r.State.Readable() }, nil)
	}},
	{"a lost swap leaves its references", "find/lost-swap-leaves-nothing", func(d *double) { d.leaves(claims.ErrLost, 1) }},
	{"a swap of two leaves its references when lost", "find/of-two-records", func(d *double) { d.leaves(claims.ErrLost, 2) }},
	{"the second record's references are forgotten", "find/of-two-records", func(d *double) {
		second := map[claims.Key]bool{}
		d.swap = func(ctx context.Context, c claims.Condition, w []claims.Write) (claims.Swapped, error) {
			if len(w) > 1 {
				second[w[1].Next.Key] = true
			}
			return d.Store.Swap(ctx, c, w...)
		}
		d.matches(func(r claims.Record, q finding) bool { return second[r.Key] && r.Facts.Reference != q.Reference }, nil)
	}},
}

// finding is what a Find is asked for.
type finding struct {
	claims.Handles
	tenant, gateway string
}

// onFind changes what a Find is asked for.
func (d *double) onFind(f func(*finding)) {
	d.find = func(ctx context.Context, tenant, gateway string, h claims.Handles, limit int) ([]claims.Key, error) {
		q := finding{h, tenant, gateway}
		f(&q)
		return d.Store.Find(ctx, q.tenant, q.gateway, q.Handles, limit)
	}
}

// onFound changes what a Find of all would return.
func (d *double) onFound(f func(keys []claims.Key, limit int) []claims.Key) {
	d.find = func(ctx context.Context, tenant, gateway string, h claims.Handles, limit int) ([]claims.Key, error) {
		keys, err := d.Store.Find(ctx, tenant, gateway, h, 1000)
		keys = f(keys, limit)
		return keys[:min(len(keys), max(limit, 0))], err
	}
}

// matches leaves calls of the tenant out of what is found, or takes others in; nil: none.
func (d *double) matches(not, also func(r claims.Record, q finding) bool) {
	d.find = func(ctx context.Context, tenant, gateway string, h claims.Handles, limit int) ([]claims.Key, error) {
		keys, err := d.Store.Find(ctx, tenant, gateway, h, 1000)
		q := finding{h, tenant, gateway}
		d.calls(func(c *memory.Call, _ claims.Now) {
			r := c.Record
			switch in := slices.Contains(keys, r.Key); {
			case in && not != nil && not(r, q):
				keys = slices.DeleteFunc(keys, func(k claims.Key) bool { return k == r.Key })
			case !in && also != nil && r.Key.Tenant == tenant && also(r, q):
				keys = append(keys, r.Key)
			}
		})
		slices.SortFunc(keys, func(a, b claims.Key) int { return strings.Compare(a.Call, b.Call) })
		if len(keys) == 0 {
			return nil, err
		}
		return keys[:min(len(keys), max(limit, 0))], err
	}
}

// folds compares handles by what f makes of them.
func (d *double) folds(f func(string) string) {
	d.matches(nil, func(r claims.Record, q finding) bool {
		same := func(a, b string) bool { return b != "" && f(a) == f(b) }
		return r.Facts.Gateway == q.gateway && (same(r.Facts.Reference, q.Reference) || same(r.Object, q.Object))
	})
}

// leaves writes the earlier references of a Swap of n records that was refused.
func (d *double) leaves(refusal error, n int) {
	left := map[string]claims.Key{}
	d.swap = func(ctx context.Context, c claims.Condition, writes []claims.Write) (claims.Swapped, error) {
		s, err := d.Store.Swap(ctx, c, writes...)
		for _, w := range writes {
			for _, p := range w.Next.Past {
				if errors.Is(err, refusal) && len(writes) == n {
					left[p.Facts.Reference] = w.Next.Key
				}
			}
		}
		return s, err
	}
	d.matches(nil, func(r claims.Record, q finding) bool { return left[q.Reference] == r.Key })
}
