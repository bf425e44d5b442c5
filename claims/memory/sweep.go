package memory

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"github.com/fence-sidecar/fence-sidecar/claims"
)

// Unsettled implements claims.Store: the longest due first, ties in key order.
func (s *Store) Unsettled(ctx context.Context, sweep claims.Sweep) ([]claims.Key, error) {
	now, err := s.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	var due []*Call
	for _, c := range s.data.Calls {
		r := &c.Record
		if len(sweep.Tenants) > 0 && !slices.Contains(sweep.Tenants, r.Key.Tenant) {
			continue
		}
		if r.State.Readable() && (r.Unread() || r.Poll || r.Reconcilable(now)) && !r.NextCheck.After(now.Store) {
			due = append(due, c)
		}
	}
	slices.SortFunc(due, func(a, b *Call) int {
		return cmp.Or(a.Record.NextCheck.Compare(b.Record.NextCheck), compareKeys(a.Record.Key, b.Record.Key))
	})
	var keys []claims.Key
	for _, c := range due[:min(len(due), max(sweep.Limit, 0))] {
		c.Record.NextCheck = now.Store.Add(sweep.Backoff(c.Checks))
		c.Checks++
		keys = append(keys, c.Record.Key)
	}
	return keys, nil
}

func compareKeys(a, b claims.Key) int {
	return cmp.Or(cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.Call, b.Call))
}

// Prune implements claims.Store: the longest unwritten first. Evidence that was read loses its answers too.
func (s *Store) Prune(ctx context.Context, before time.Time, limit int) (int, error) {
	if _, err := s.enter(ctx); err != nil {
		return 0, err
	}
	defer s.mu.Unlock()
	var old []*Call
	for _, c := range s.data.Calls {
		r := &c.Record
		if r.State.Readable() && !r.State.Unsettled() && !r.Unread() && r.Updated.Store.Before(before) && holdsAnswer(r) {
			old = append(old, c)
		}
	}
	slices.SortFunc(old, func(a, b *Call) int {
		return cmp.Or(a.Record.Updated.Store.Compare(b.Record.Updated.Store), compareKeys(a.Record.Key, b.Record.Key))
	})
	old = old[:min(len(old), max(limit, 0))]
	for _, c := range old {
		c.Record.Answer = nil
		for i := range c.Record.Evidence {
			c.Record.Evidence[i].Answer = nil
		}
	}
	return len(old) + s.data.forget(before, limit), nil
}

func holdsAnswer(r *claims.Record) bool {
	return r.Answer != nil || slices.ContainsFunc(r.Evidence, func(e claims.Evidence) bool { return e.Answer != nil })
}

// List implements claims.Lister: newest by creation, ties in key order. Records that cannot be read are named by an
// error beside the others, so that one of them does not hide all.
func (s *Store) List(ctx context.Context, tenant string, states []claims.State, limit int) ([]claims.Record, error) {
	if _, err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	var out []claims.Record
	var unreadable []error
	for key, c := range s.data.Calls {
		if tenant != "" && key.Tenant != tenant {
			continue
		}
		r, err := s.data.read(key)
		switch {
		case err != nil:
			unreadable = append(unreadable, err)
		case len(states) == 0 || slices.Contains(states, c.Record.State):
			out = append(out, r)
		}
	}
	slices.SortFunc(out, func(a, b claims.Record) int {
		return cmp.Or(b.Created.Store.Compare(a.Created.Store), compareKeys(a.Key, b.Key))
	})
	return out[:min(len(out), max(limit, 0))], errors.Join(unreadable...)
}
