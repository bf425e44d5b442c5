package memory

import (
	"context"
	"slices"

	"github.com/fence-sidecar/fence-sidecar/claims"
)

// Find implements claims.Finder.
func (s *Store) Find(ctx context.Context, tenant, gateway string, h claims.Handles, limit int) ([]claims.Key, error) {
	if _, err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	var keys []claims.Key
	for key, c := range s.data.Calls {
		if key.Tenant == tenant && has(&c.Record, gateway, h) {
			keys = append(keys, key)
		}
	}
	slices.SortFunc(keys, compareKeys)
	return keys[:min(len(keys), max(limit, 0))], nil
}

// has reports whether a gateway knows the call by one of the handles.
func has(r *claims.Record, gateway string, h claims.Handles) bool {
	known := func(f claims.Facts) bool {
		return f.Gateway == gateway && h.Reference != "" && f.Reference == h.Reference
	}
	return known(r.Facts) || h.Object != "" && r.Facts.Gateway == gateway && r.Object == h.Object ||
		slices.ContainsFunc(r.Past, func(p claims.Past) bool { return known(p.Facts) })
}
