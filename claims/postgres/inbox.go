package postgres

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/fence-sidecar/fence-sidecar/claims"
	"github.com/fence-sidecar/fence-sidecar/claims/codec"
)

// lockInbox lets one transaction at a time count a tenant's notices and add to them. Nothing else waits for it.
func (s *Store) lockInbox(tenant string) statement {
	return statement{
		sql:  `SELECT pg_advisory_xact_lock(hashtextextended('fence-sidecar notices ' || $1::text || encode($2::bytea, 'hex'), 0))`,
		args: []any{s.schema.quoted, []byte(tenant)},
	}
}

// Keep implements claims.Inbox.
func (s *Store) Keep(ctx context.Context, e claims.Early) error {
	if err := codec.CheckEarly(e); err != nil {
		return fmt.Errorf("postgres store: %w", err)
	}
	err := s.write(ctx, s.calls, []statement{s.lockInbox(e.Tenant)}, func(t *tx) error { return t.keep(e) })
	if err != nil {
		return fmt.Errorf("notice %q: %w", e.ID, err)
	}
	return nil
}

func (t *tx) keep(e claims.Early) error {
	name := []any{[]byte(e.Tenant), []byte(e.Gateway), []byte(e.ID)}
	var there, full bool
	err := t.conn.QueryRow(t.ctx, t.s.schema.sql(`SELECT
		EXISTS (SELECT 1 FROM {schema}.notices WHERE tenant = $1 AND gateway = $2 AND id = $3),
		EXISTS (SELECT 1 FROM {schema}.notices WHERE tenant = $1 LIMIT 1 OFFSET $4)`), append(name, claims.MaxEarly-1)...).
		Scan(&there, &full)
	switch {
	case err != nil:
		return fmt.Errorf("postgres store: not applied: %w", err)
	case there:
		t.change(message) // seen is not acknowledged: whoever is told that it is kept does not bring it again
		return nil
	case full:
		return claims.ErrInboxFull
	}
	t.change(`INSERT INTO {schema}.notices (tenant, gateway, id, body, at_store, at_wall) VALUES ($1, $2, $3, $4, $5, $6)`,
		append(name, append([]byte{}, e.Body...), t.now.Store.UnixNano(), t.now.Wall.UnixNano())...)
	return nil
}

// Kept implements claims.Inbox. Of those that were given equally long ago, or never, the oldest come first. Rows that others have
// locked are left out: they are being given, or go.
func (s *Store) Kept(ctx context.Context, tenants []string, limit int) ([]claims.Early, error) {
	limit = min(max(limit, 0), maxSweep)
	if limit == 0 {
		return nil, nil
	}
	var out []claims.Early
	err := s.write(ctx, s.calls, nil, func(t *tx) (err error) {
		out, err = t.kept(tenants, limit)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("notices: %w", err)
	}
	return out, nil
}

func (t *tx) kept(tenants []string, limit int) ([]claims.Early, error) {
	args, in := []any{limit}, "true"
	if len(tenants) > 0 {
		args, in = append(args, bytesOf(tenants)), "tenant = ANY ($2::bytea[])"
	}
	rows, err := t.conn.Query(t.ctx, t.s.schema.sql(`SELECT tenant, gateway, id, body, at_store, at_wall FROM {schema}.notices
		WHERE `+in+` ORDER BY given, at_store, tenant, gateway, id LIMIT $1 FOR NO KEY UPDATE SKIP LOCKED`), args...)
	if err != nil {
		return nil, fmt.Errorf("postgres store: not applied: %w", err)
	}
	var out []claims.Early
	var names [3][][]byte
	var tenant, gateway, id, body []byte
	var store, wall int64
	_, err = pgx.ForEachRow(rows, []any{&tenant, &gateway, &id, &body, &store, &wall}, func() error {
		e := claims.Early{
			Tenant: string(tenant), Gateway: string(gateway), ID: string(id), Body: append([]byte{}, body...),
			At: claims.Now{Store: codec.Moment(store), Wall: codec.Moment(wall)},
		}
		out = append(out, e)
		for i, s := range []string{e.Tenant, e.Gateway, e.ID} {
			names[i] = append(names[i], []byte(s))
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("postgres store: not applied: %w", err)
	}
	if len(out) > 0 {
		// two that do so at once may give one number: each is above all that was there before
		t.change(`UPDATE {schema}.notices n SET given = (SELECT max(given) + 1 FROM {schema}.notices)
			FROM unnest($1::bytea[], $2::bytea[], $3::bytea[]) AS g (tenant, gateway, id)
			WHERE n.tenant = g.tenant AND n.gateway = g.gateway AND n.id = g.id`, names[0], names[1], names[2])
	}
	return out, nil
}

// Drop implements claims.Inbox.
func (s *Store) Drop(ctx context.Context, tenant, gateway, id string) error {
	return s.write(ctx, s.calls, nil, func(t *tx) error {
		t.change(`DELETE FROM {schema}.notices WHERE tenant = $1 AND gateway = $2 AND id = $3`,
			[]byte(tenant), []byte(gateway), []byte(id))
		return nil
	})
}
