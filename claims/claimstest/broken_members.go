package claimstest

import (
	"context"
	"errors"
	"slices"

	"github.com/fence-sidecar/fence-sidecar/claims"
	"github.com/fence-sidecar/fence-sidecar/claims/memory"
)

var brokenMembers = []Broken{
	{"a member's schema is forgotten", "member/what-it-says", func(d *double) {
		d.onAnnounce(func(m *claims.Member) { m.Schema = 0 })
	}},
	{"a member speaks once", "member/what-it-says", func(d *double) {
		said := map[claims.Guard]claims.Member{}
		d.onAnnounce(func(m *claims.Member) {
			if first, ok := said[m.Guard]; ok {
				*m = first
			}
			said[m.Guard] = *m
		})
	}},
	{"a member's keys add up", "member/what-it-says", func(d *double) {
		var keys []string
		d.onAnnounce(func(m *claims.Member) {
			keys = append(keys, m.Keys...)
			m.Keys = slices.Clone(keys)
		})
	}},
	{"members are handed out as they are kept", "member/what-it-says", func(d *double) {
		d.onMembers(func(data *memory.Data, list []claims.Member) []claims.Member {
			for i, m := range list {
				list[i].Keys = data.Members[m.Guard.Scope].Keys
			}
			return list
		})
	}},
	{"who is silent is not there", "member/said-nothing", func(d *double) {
		d.onMembers(func(_ *memory.Data, list []claims.Member) []claims.Member {
			return slices.DeleteFunc(list, func(m claims.Member) bool { return m.Version == "" })
		})
	}},
	{"a member stays when its lease ends", "member/only-live-processes", func(d *double) {
		d.onMembers(func(data *memory.Data, list []claims.Member) []claims.Member {
			for _, m := range data.Members {
				there := slices.ContainsFunc(list, func(l claims.Member) bool { return l.Guard == m.Guard })
				if !there && data.Leases[m.Guard.Scope].End == claims.LeaseAbsent {
					list = append(list, m)
				}
			}
			return list
		})
	}},
	{"a member that finished stays", "member/only-live-processes", func(d *double) {
		d.onMembers(func(data *memory.Data, list []claims.Member) []claims.Member {
			for _, m := range data.Members {
				if data.Leases[m.Guard.Scope].End == claims.LeaseFinished {
					list = append(list, m)
				}
			}
			return list
		})
	}},
	{"who holds an application's scope is a member", "member/only-live-processes", func(d *double) {
		d.onMembers(func(data *memory.Data, list []claims.Member) []claims.Member {
			for scope, l := range data.Leases {
				if g := (claims.Guard{Scope: scope, Token: l.Token}); !g.Instance() {
					list = append(list, claims.Member{Guard: g})
				}
			}
			return list
		})
	}},
	{"what the last holder said counts", "member/words-of-an-earlier-token", func(d *double) {
		d.onMembers(func(data *memory.Data, list []claims.Member) []claims.Member {
			for i, m := range list {
				list[i] = data.Members[m.Guard.Scope]
				list[i].Guard = m.Guard
			}
			return list
		})
	}},
	{"an earlier holder replaces what was said", "member/words-of-an-earlier-token", func(d *double) {
		d.announce = func(ctx context.Context, m claims.Member) error {
			err := d.Store.Announce(ctx, m)
			if err != nil {
				d.Edit(func(data *memory.Data, _ claims.Now) { data.Members[m.Guard.Scope] = m })
			}
			return err
		}
	}},
	{"anybody announces", "member/announce-needs-its-lease", func(d *double) {
		d.announce = func(ctx context.Context, m claims.Member) error {
			err := d.Store.Announce(ctx, m)
			if claims.Refused(err) {
				err = nil
			}
			return err
		}
	}},
	{"a refused member is told as a guard", "member/announce-needs-its-lease", func(d *double) {
		d.announce = func(ctx context.Context, m claims.Member) error {
			err := d.Store.Announce(ctx, m)
			if e, ok := errors.AsType[*claims.FencedError](err); ok {
				e.Sender = false
			}
			return err
		}
	}},
	{"a member outlives a loss", "loss/leases-end", func(d *double) {
		d.members = func(ctx context.Context) ([]claims.Member, error) {
			d.evenEras(instance)
			return d.Store.Members(ctx)
		}
	}},
}

func (d *double) onAnnounce(f func(m *claims.Member)) {
	d.announce = func(ctx context.Context, m claims.Member) error {
		f(&m)
		return d.Store.Announce(ctx, m)
	}
}

// onMembers changes what Members returns; whatever f hands out of data is shared with the store.
func (d *double) onMembers(f func(data *memory.Data, list []claims.Member) []claims.Member) {
	d.members = func(ctx context.Context) ([]claims.Member, error) {
		list, err := d.Store.Members(ctx)
		d.Edit(func(data *memory.Data, _ claims.Now) { list = f(data, list) })
		return list, err
	}
}
