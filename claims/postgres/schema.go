package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

// schema names the tables: every statement says {schema}.table.
type schema struct{ name, quoted string }

func schemaOf(name string) schema { return schema{name, pgx.Identifier{name}.Sanitize()} }

func (s schema) sql(text string) string { return strings.ReplaceAll(text, "{schema}", s.quoted) }

// ErrSchema is what every *SchemaError is.
var ErrSchema = errors.New("the store's schema is not this version's")

// SchemaError says that a schema is not what this version's Migrate makes, or may not be used by it.
type SchemaError struct {
	Schema string
	Reason string
	Found  int // newest migration in the database, 0: none
	Want   int // newest migration of this version
}

func (e *SchemaError) Error() string {
	return fmt.Sprintf("schema %s: %s: run `fence-sidecar store migrate`", e.Schema, e.Reason)
}

// Is makes errors.Is(err, ErrSchema) true.
func (e *SchemaError) Is(target error) bool { return target == ErrSchema }

// GrantError says what the role lacks.
type GrantError struct {
	Role, Privilege, Object string
}

func (e *GrantError) Error() string {
	return fmt.Sprintf("role %s lacks %s on %s: connect as the sidecars' role (store.url), or grant it what it needs with "+
		"`fence-sidecar store migrate` and store.role", e.Role, e.Privilege, e.Object)
}

// checkSchema refuses a schema that is older than this version, and a newer one that this version cannot use.
func (s *Store) checkSchema(ctx context.Context, c *pgx.Conn) error {
	all, err := migrations()
	if err != nil {
		return err
	}
	have, err := applied(ctx, c, s.schema, all)
	if err != nil {
		return err
	}
	if have < len(all) {
		return &SchemaError{s.cfg.Schema, fmt.Sprintf("it is of version %d, older than %d", have, len(all)), have, len(all)}
	}
	return nil
}

// checkSeeded refuses a schema that a migration left half made.
func (s *Store) checkSeeded(ctx context.Context, c *pgx.Conn) error {
	var seeded bool
	err := c.QueryRow(ctx, s.schema.sql(`SELECT EXISTS (SELECT 1 FROM {schema}.store) AND EXISTS (SELECT 1 FROM {schema}.keys)`)).Scan(&seeded)
	if err != nil {
		return fmt.Errorf("postgres store: schema %s: %w", s.cfg.Schema, err)
	}
	if !seeded {
		return &SchemaError{Schema: s.cfg.Schema, Reason: "it has no realm or no keys"}
	}
	return nil
}

// types are the columns that other parts of the system rely on to be compared bytewise, or as numbers.
var types = map[string]string{
	"store.era": "bigint", "keys.secret": "bytea", "leases.scope": "bytea", "leases.token": "bigint", "leases.expiry": "bigint",
	"calls.tenant": "bytea", "calls.call_key": "bytea", "calls.version": "bigint", "calls.scope": "bytea", "calls.sender_scope": "bytea",
	"calls.sender_token": "bigint", "calls.claim_id": "bytea", "calls.deadline": "bigint", "answers.tenant": "bytea",
	"answers.call_key": "bytea", "answers.body": "bytea", "lease_log.scope": "bytea", "lease_log.token": "bigint",
	"events.era": "bigint", "events.xid": "bigint", "events.seq": "bigint", "events.tenant": "bytea", "events.call_key": "bytea",
	"members.scope": "bytea", "members.token": "bigint",
	"effects.tenant": "bytea", "effects.name": "bytea", "effects.effect_key": "bytea", "effects.fingerprint": "bytea",
	"effects.scope": "bytea", "effects.token": "bigint", "effect_marks.scope": "bytea", "effect_marks.token": "bigint",
	"calls.gateway": "text", "calls.reference": "text", "calls.object": "text",
	"earlier.tenant": "bytea", "earlier.gateway": "text", "earlier.reference": "text", "earlier.call_key": "bytea",
	"notices.tenant": "bytea", "notices.gateway": "bytea", "notices.id": "bytea", "notices.given": "bigint",
}

// checkColumns refuses tables that were made or changed by others than Migrate.
func (s *Store) checkColumns(ctx context.Context, c *pgx.Conn) error {
	rows, err := c.Query(ctx, `SELECT r.relname || '.' || a.attname, format_type(a.atttypid, a.atttypmod),
		coalesce(l.collname, ''), coalesce(l.collisdeterministic, true)
		FROM pg_attribute a JOIN pg_class r ON r.oid = a.attrelid JOIN pg_namespace n ON n.oid = r.relnamespace
		LEFT JOIN pg_collation l ON l.oid = a.attcollation
		WHERE n.nspname = $1 AND r.relkind IN ('r', 'p') AND a.attnum > 0 AND NOT a.attisdropped`, s.cfg.Schema)
	if err != nil {
		return fmt.Errorf("postgres store: schema %s: %w", s.cfg.Schema, err)
	}
	defer rows.Close()
	missing := len(types)
	for rows.Next() {
		var column, is, collation string
		var deterministic bool
		if err := rows.Scan(&column, &is, &collation, &deterministic); err != nil {
			return fmt.Errorf("postgres store: schema %s: %w", s.cfg.Schema, err)
		}
		want, known := types[column]
		switch {
		case known && is != want:
			return &SettingError{"type of " + s.cfg.Schema + "." + column, is, want + " (as `store migrate` makes it)"}
		case !deterministic:
			return &SettingError{"collation of " + s.cfg.Schema + "." + column, collation, "C (this one takes different texts for the same)"}
		case known:
			missing--
		}
	}
	if missing > 0 && rows.Err() == nil {
		return &SchemaError{Schema: s.cfg.Schema, Reason: "columns are missing"}
	}
	return rows.Err()
}

// grants are what a sidecar's role needs, and no more. An UPDATE of the store's row is for the columns that settle writes.
var grants = []struct{ table, privileges string }{
	{"schema_version", "SELECT"},
	{"store", "SELECT, UPDATE"},
	{"keys", "SELECT"},
	{"calls", "SELECT, INSERT, UPDATE"},
	{"answers", "SELECT, INSERT, UPDATE, DELETE"},
	{"leases", "SELECT, INSERT, UPDATE"},
	{"lease_log", "SELECT, INSERT"},
	{"losses", "SELECT, INSERT"},
	{"events", "SELECT, INSERT, UPDATE, DELETE"},
	{"members", "SELECT, INSERT, UPDATE"},
	{"effects", "SELECT, DELETE"},
	{"earlier", "SELECT, INSERT"},
	{"notices", "SELECT, INSERT, UPDATE, DELETE"},
}

// appFunctions are all that an application may do in the schema.
var appFunctions = []string{
	"begin_effect(text, text, text, text, bytea)", "end_effect(text, text, text, bytea)", "check_token(text, text)", "effects_store()",
}

// storeColumns of {schema}.store may be changed by a sidecar; the realm may not.
const storeColumns = "system_id, timeline, era, quarantine_until, max_lease, standbys, unproven"

// checkGrants names the first privilege that the role lacks.
func (s *Store) checkGrants(ctx context.Context, c *pgx.Conn) error {
	has := func(privilege, object, function string, args ...any) error {
		var role string
		var has bool
		if err := c.QueryRow(ctx, "SELECT current_user::text, "+function, args...).Scan(&role, &has); err != nil {
			return fmt.Errorf("postgres store: privileges: %w", err)
		}
		if !has {
			return &GrantError{role, privilege, object}
		}
		return nil
	}
	for _, g := range grants {
		table := s.schema.quoted + "." + g.table
		for p := range strings.SplitSeq(g.privileges, ", ") {
			if g.table == "store" && p == "UPDATE" {
				continue // by column
			}
			if err := has(p, table, "has_table_privilege($1::text, $2::text)", table, p); err != nil {
				return err
			}
		}
	}
	table := s.schema.quoted + ".store"
	for column := range strings.SplitSeq(storeColumns, ", ") {
		err := has("UPDATE ("+column+")", table, "has_column_privilege($1::text, $2::text, 'UPDATE')", table, column)
		if err != nil {
			return err
		}
	}
	function := s.schema.sql(`{schema}.in_time(bigint)`)
	return has("EXECUTE", function, "has_function_privilege($1::text, 'EXECUTE')", function)
}
