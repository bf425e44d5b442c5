package sqlite

import (
	"context"
	"fmt"

	"github.com/fence-sidecar/fence-sidecar/claims"
	"github.com/fence-sidecar/fence-sidecar/claims/codec"
)

const (
	selectKept = `SELECT tenant, gateway, id, body, at_store, at_wall FROM notices WHERE `
	keptOrder  = ` ORDER BY given, at_store, tenant, gateway, id LIMIT ?1`
)

// Keep implements claims.Inbox.
func (s *Store) Keep(ctx context.Context, e claims.Early) error {
	if err := codec.CheckEarly(e); err != nil {
		return fmt.Errorf("sqlite store: %w", err)
	}
	return s.writer.do(ctx, false, func(t *tx) error {
		if err := t.keep(e); err != nil {
			return fmt.Errorf("sqlite store: notice %q: %w", e.ID, err)
		}
		return nil
	})
}

func (t *tx) keep(e claims.Early) error {
	name := []any{[]byte(e.Tenant), []byte(e.Gateway), []byte(e.ID)}
	var there, full bool
	err := t.row(`SELECT EXISTS (SELECT 1 FROM notices WHERE tenant = ?1 AND gateway = ?2 AND id = ?3),
		EXISTS (SELECT 1 FROM notices WHERE tenant = ?1 LIMIT 1 OFFSET ?4)`, append(name, claims.MaxEarly-1)...).Scan(&there, &full)
	switch {
	case err != nil || there:
		return err
	case full:
		return claims.ErrInboxFull
	}
	return t.change(`INSERT INTO notices (tenant, gateway, id, body, at_store, at_wall) VALUES (?, ?, ?, coalesce(?, x''), ?, ?)`,
		append(name, e.Body, t.now.Store.UnixNano(), t.now.Wall.UnixNano())...)
}

// Kept implements claims.Inbox. Of those that were given equally long ago, or never, the oldest come first.
func (s *Store) Kept(ctx context.Context, tenants []string, limit int) ([]claims.Early, error) {
	var out []claims.Early
	err := s.writer.do(ctx, false, func(t *tx) (err error) {
		out, err = t.kept(tenants, max(limit, 0))
		return err
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

func (t *tx) kept(tenants []string, limit int) ([]claims.Early, error) {
	args := []any{limit}
	in := tenantsIn(tenants, &args)
	rows, err := t.query(selectKept+in+keptOrder, args...)
	if err != nil {
		return nil, fmt.Errorf("sqlite store: notices: %w", err)
	}
	defer rows.Close()
	var out []claims.Early
	for rows.Next() {
		var tenant, gateway, id, body []byte
		var store, wall int64
		if err := rows.Scan(&tenant, &gateway, &id, &body, &store, &wall); err != nil {
			return nil, fmt.Errorf("sqlite store: notices: %w", err)
		}
		out = append(out, claims.Early{
			Tenant: string(tenant), Gateway: string(gateway), ID: string(id), Body: body,
			At: claims.Now{Store: moment(store), Wall: moment(wall)},
		})
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("sqlite store: notices: %w", err)
	}
	return out, t.gave(out)
}

// gave remembers that notices were given: after all that were before.
func (t *tx) gave(list []claims.Early) error {
	if len(list) == 0 {
		return nil
	}
	var turn int64
	if err := t.row(`SELECT max(given) + 1 FROM notices`).Scan(&turn); err != nil {
		return fmt.Errorf("sqlite store: notices: %w", err)
	}
	for _, e := range list {
		err := t.change(`UPDATE notices SET given = ? WHERE tenant = ? AND gateway = ? AND id = ?`,
			turn, []byte(e.Tenant), []byte(e.Gateway), []byte(e.ID))
		if err != nil {
			return fmt.Errorf("sqlite store: notice %q: %w", e.ID, err)
		}
	}
	return nil
}

// Drop implements claims.Inbox.
func (s *Store) Drop(ctx context.Context, tenant, gateway, id string) error {
	return s.writer.do(ctx, false, func(t *tx) error {
		err := t.change(`DELETE FROM notices WHERE tenant = ? AND gateway = ? AND id = ?`, []byte(tenant), []byte(gateway), []byte(id))
		if err != nil {
			return fmt.Errorf("sqlite store: notice %q: %w", id, err)
		}
		return nil
	})
}
