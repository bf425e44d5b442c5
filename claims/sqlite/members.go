package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/fence-sidecar/fence-sidecar/claims"
	"github.com/fence-sidecar/fence-sidecar/claims/codec"
)

// Announce implements claims.Members.
func (s *Store) Announce(ctx context.Context, m claims.Member) error {
	keys, err := codec.Texts(m.Keys)
	if err != nil {
		return fmt.Errorf("sqlite store: member %s: %w", m.Guard, err)
	}
	return s.writer.do(ctx, true, func(t *tx) error {
		_, err := t.mine(m.Guard)
		if fenced, ok := errors.AsType[*claims.FencedError](err); ok {
			fenced.Sender = true
		}
		if err != nil {
			return err
		}
		// A lease that has ended does not live again: what was said under it is dropped.
		err = errors.Join(
			t.change(`DELETE FROM members WHERE scope NOT IN (SELECT scope FROM leases WHERE standing = 'held' AND expiry > ?)`,
				t.now.Store.UnixNano()),
			t.change(`INSERT INTO members (scope, token, version, schema, keys) VALUES (?, ?, ?, ?, ?) ON CONFLICT (scope)
				DO UPDATE SET token = excluded.token, version = excluded.version, schema = excluded.schema, keys = excluded.keys`,
				m.Guard.Scope, int64(m.Guard.Token), m.Version, m.Schema, keys))
		if err != nil {
			return fmt.Errorf("sqlite store: member %s: %w", m.Guard, err)
		}
		return nil
	})
}

// Members implements claims.Members.
func (s *Store) Members(ctx context.Context) (out []claims.Member, err error) {
	err = s.read(ctx, func(t *tx) error {
		out, err = t.members()
		return err
	})
	if err != nil {
		return nil, err
	}
	return out, nil
}

// members joins by the token: what was said under an earlier one does not count. ';' follows ':'.
func (t *tx) members() ([]claims.Member, error) {
	rows, err := t.query(`SELECT l.scope, l.token, coalesce(m.version, ''), coalesce(m.schema, 0), m.keys
		FROM leases l LEFT JOIN members m ON m.scope = l.scope AND m.token = l.token
		WHERE l.scope > '@instance:' AND l.scope < '@instance;' AND l.standing = 'held' AND l.expiry > ? ORDER BY l.scope`,
		t.now.Store.UnixNano())
	if err != nil {
		return nil, fmt.Errorf("sqlite store: members: %w", err)
	}
	defer rows.Close()
	var all []claims.Member
	for rows.Next() {
		var m claims.Member
		var token int64
		var keys sql.Null[string]
		if err := rows.Scan(&m.Guard.Scope, &token, &m.Version, &m.Schema, &keys); err != nil {
			return nil, fmt.Errorf("sqlite store: members: %w", err)
		}
		m.Guard.Token = uint64(token)
		if m.Keys, err = codec.ParseTexts(keys); err != nil {
			return nil, fmt.Errorf("sqlite store: member %s: %w", m.Guard, err)
		}
		all = append(all, m)
	}
	return all, rows.Err()
}
