package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fence-sidecar/fence-sidecar/claims"
)

// found are keys of calls in one column, where $1 is the tenant, $2 the gateway, $3 the reference, $4 the object and $5 the limit.
// Each part reads no more of its index than the limit; the second condition on the handle is the index's.
const found = `ARRAY(SELECT call_key FROM (
	(SELECT call_key FROM {schema}.calls WHERE tenant = $1 AND gateway = $2 AND reference = $3 AND reference <> ''
		ORDER BY call_key LIMIT $5)
	UNION (SELECT call_key FROM {schema}.earlier WHERE tenant = $1 AND gateway = $2 AND reference = $3 ORDER BY call_key LIMIT $5)
	UNION (SELECT call_key FROM {schema}.calls WHERE tenant = $1 AND gateway = $2 AND object = $4 AND object <> ''
		ORDER BY call_key LIMIT $5)) f ORDER BY call_key LIMIT $5)`

// Find implements claims.Finder, in one statement.
func (s *Store) Find(ctx context.Context, tenant, gateway string, h claims.Handles, limit int) ([]claims.Key, error) {
	var calls [][]byte
	err := s.look(ctx, s.calls, func(ctx context.Context, c *pgxpool.Conn, hd *header, columns string) error {
		err := c.QueryRow(ctx, s.schema.sql("SELECT "+columns+", "+found+headerFrom),
			[]byte(tenant), plain(gateway), plain(h.Reference), plain(h.Object), max(limit, 0)).Scan(append(hd.targets(), &calls)...)
		if err != nil {
			return err
		}
		return hd.complete(s.cfg.Clock)
	})
	if err != nil {
		return nil, fmt.Errorf("find: %w", err)
	}
	var keys []claims.Key
	for _, call := range calls {
		keys = append(keys, claims.Key{Tenant: tenant, Call: string(call)})
	}
	return keys, nil
}

// putEarlier queues the references of earlier revisions, beside the record of a call that has any. Those that are there stay.
func (t *tx) putEarlier(r *claims.Record) {
	var gateways, references []string
	for _, p := range r.Past {
		if p.Facts.Reference != "" {
			gateways, references = append(gateways, plain(p.Facts.Gateway)), append(references, plain(p.Facts.Reference))
		}
	}
	if len(gateways) > 0 {
		t.change(`INSERT INTO {schema}.earlier (tenant, gateway, reference, call_key)
			SELECT $1, e.gateway, e.reference, $2 FROM unnest($3::text[], $4::text[]) AS e (gateway, reference) ON CONFLICT DO NOTHING`,
			[]byte(r.Key.Tenant), []byte(r.Key.Call), gateways, references)
	}
}
