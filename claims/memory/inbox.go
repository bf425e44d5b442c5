package memory

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/fence-sidecar/fence-sidecar/claims"
	"github.com/fence-sidecar/fence-sidecar/claims/codec"
)

func (n *Notice) named(tenant, gateway, id string) bool {
	return n.Tenant == tenant && n.Gateway == gateway && n.ID == id
}

// Keep implements claims.Inbox.
func (s *Store) Keep(ctx context.Context, e claims.Early) error {
	if err := codec.CheckEarly(e); err != nil {
		return fmt.Errorf("memory store: %w", err)
	}
	now, err := s.enter(ctx)
	if err != nil {
		return err
	}
	defer s.mu.Unlock()
	kept := 0
	for _, n := range s.data.Notices {
		if n.named(e.Tenant, e.Gateway, e.ID) {
			return nil
		}
		if n.Tenant == e.Tenant {
			kept++
		}
	}
	if kept >= claims.MaxEarly {
		return fmt.Errorf("%w: %d of tenant %s", claims.ErrInboxFull, kept, e.Tenant)
	}
	e.Body, e.At = slices.Clone(e.Body), now
	s.data.Notices = append(s.data.Notices, &Notice{Early: e})
	return nil
}

// Kept implements claims.Inbox.
func (s *Store) Kept(ctx context.Context, tenants []string, limit int) ([]claims.Early, error) {
	if _, err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	all := slices.Clone(s.data.Notices)
	slices.SortStableFunc(all, func(a, b *Notice) int { return cmp.Compare(a.Given, b.Given) })
	s.data.Given++
	var out []claims.Early
	for _, n := range all {
		if len(out) >= limit || len(tenants) > 0 && !slices.Contains(tenants, n.Tenant) {
			continue
		}
		n.Given = s.data.Given
		e := n.Early
		e.Body = slices.Clone(e.Body)
		out = append(out, e)
	}
	return out, nil
}

// Drop implements claims.Inbox.
func (s *Store) Drop(ctx context.Context, tenant, gateway, id string) error {
	if _, err := s.enter(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	s.data.Notices = slices.DeleteFunc(s.data.Notices, func(n *Notice) bool { return n.named(tenant, gateway, id) })
	return nil
}
