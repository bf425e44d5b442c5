package sqlite

import (
	"context"
	"fmt"

	"github.com/fence-sidecar/fence-sidecar/claims"
)

// findCalls takes tenant, gateway, reference, object and a limit. Each part reads no more of its index than the limit; the second
// condition on the handle is the index's.
const findCalls = `SELECT call_key FROM (SELECT call_key FROM calls
		WHERE tenant = ?1 AND gateway = ?2 AND reference = ?3 AND reference <> '' ORDER BY call_key LIMIT ?5)
	UNION SELECT call_key FROM (SELECT call_key FROM earlier
		WHERE tenant = ?1 AND gateway = ?2 AND reference = ?3 ORDER BY call_key LIMIT ?5)
	UNION SELECT call_key FROM (SELECT call_key FROM calls
		WHERE tenant = ?1 AND gateway = ?2 AND object = ?4 AND object <> '' ORDER BY call_key LIMIT ?5)
	ORDER BY call_key LIMIT ?5`

// Find implements claims.Finder.
func (s *Store) Find(ctx context.Context, tenant, gateway string, h claims.Handles, limit int) (keys []claims.Key, err error) {
	err = s.read(ctx, func(t *tx) error {
		keys, err = t.known(tenant, gateway, h, max(limit, 0))
		return err
	})
	if err != nil {
		return nil, err
	}
	return keys, nil
}

func (t *tx) known(tenant, gateway string, h claims.Handles, limit int) ([]claims.Key, error) {
	rows, err := t.query(findCalls, []byte(tenant), gateway, h.Reference, h.Object, limit)
	if err != nil {
		return nil, fmt.Errorf("sqlite store: find: %w", err)
	}
	defer rows.Close()
	var keys []claims.Key
	for rows.Next() {
		var call []byte
		if err := rows.Scan(&call); err != nil {
			return nil, fmt.Errorf("sqlite store: find: %w", err)
		}
		keys = append(keys, claims.Key{Tenant: tenant, Call: string(call)})
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("sqlite store: find: %w", err)
	}
	return keys, nil
}

// putEarlier writes the references of earlier revisions, beside the record of a call that has any. Those that are there stay.
func (t *tx) putEarlier(r *claims.Record) error {
	for _, p := range r.Past {
		if p.Facts.Reference == "" {
			continue
		}
		err := t.change(`INSERT INTO earlier (tenant, gateway, reference, call_key) VALUES (?, ?, ?, ?) ON CONFLICT DO NOTHING`,
			[]byte(r.Key.Tenant), p.Facts.Gateway, p.Facts.Reference, []byte(r.Key.Call))
		if err != nil {
			return fmt.Errorf("sqlite store: references of %s: %w", r.Key, err)
		}
	}
	return nil
}
