package postgres

import (
	"context"
	"database/sql"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fence-sidecar/fence-sidecar/claims"
	"github.com/fence-sidecar/fence-sidecar/claims/codec"
)

// Announce implements claims.Members.
func (s *Store) Announce(ctx context.Context, m claims.Member) error {
	keys, err := codec.Texts(m.Keys)
	if err != nil {
		return fmt.Errorf("postgres store: keys of %s: %w", m.Guard, err)
	}
	_, err = s.onLease(ctx, m.Guard.Scope, forKeyShare, func(t *tx, l lease) (claims.Lease, error) {
		if err := t.mine(m.Guard, l); err != nil {
			if e, ok := errors.AsType[*claims.FencedError](err); ok {
				e.Sender = true
			}
			return claims.Lease{}, err
		}
		t.change(`INSERT INTO {schema}.members (scope, token, version, schema, keys) VALUES ($1, $2, $3, $4, $5)
			ON CONFLICT (scope) DO UPDATE SET token = excluded.token, version = excluded.version, schema = excluded.schema,
			keys = excluded.keys`, []byte(m.Guard.Scope), int64(m.Guard.Token), plain(m.Version), m.Schema, keys)
		return claims.Lease{}, nil
	})
	return err
}

// membersFrom are the sidecars' own leases that did not end by themselves, with what was said under each, in one column.
const membersFrom = `(SELECT coalesce(json_agg(json_build_array(encode(l.scope, 'hex'), l.token, l.era, l.expiry, m.version, m.schema, m.keys)
	ORDER BY l.scope)::text, '[]') FROM {schema}.leases l LEFT JOIN {schema}.members m ON m.scope = l.scope AND m.token = l.token
	WHERE l.scope >= '@instance:'::bytea AND l.scope < '@instance;'::bytea AND l.standing = 'held')`

// Members implements claims.Members.
func (s *Store) Members(ctx context.Context) (out []claims.Member, err error) {
	err = s.look(ctx, s.calls, func(ctx context.Context, c *pgxpool.Conn, h *header, columns string) error {
		var text string
		err := c.QueryRow(ctx, s.schema.sql("SELECT "+columns+", "+membersFrom+headerFrom)).Scan(append(h.targets(), &text)...)
		if err != nil {
			return err
		}
		if err := h.complete(s.cfg.Clock); err != nil {
			return err
		}
		out, err = members(text, h)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("members: %w", err)
	}
	return out, nil
}

// members understands the column of membersFrom.
func members(text string, h *header) ([]claims.Member, error) {
	var lines [][]json.RawMessage
	if err := json.Unmarshal([]byte(text), &lines); err != nil {
		return nil, err
	}
	var out []claims.Member
	for _, line := range lines {
		var scope string
		var token uint64
		var expiry int64
		var version, keys *string
		var schema *int
		l := lease{found: true, standing: held}
		for i, to := range []any{&scope, &token, &l.era, &expiry, &version, &schema, &keys} {
			if err := json.Unmarshal(line[i], to); err != nil {
				return nil, err
			}
		}
		l.token, l.expiry = token, codec.Moment(expiry)
		if !l.view(token, h).Live() {
			continue
		}
		name, err := hex.DecodeString(scope)
		if err != nil {
			return nil, err
		}
		m := claims.Member{Guard: claims.Guard{Scope: string(name), Token: token}}
		if version != nil {
			if m, err = said(m, *version, *schema, keys); err != nil {
				return nil, err
			}
		}
		out = append(out, m)
	}
	return out, nil
}

func said(m claims.Member, version string, schema int, keys *string) (claims.Member, error) {
	var err error
	if m.Version, err = unplain(version); err != nil {
		return m, err
	}
	m.Schema = schema
	var col sql.Null[string]
	if keys != nil {
		col = sql.Null[string]{V: *keys, Valid: true}
	}
	m.Keys, err = codec.ParseTexts(col)
	return m, err
}
