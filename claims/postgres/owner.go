package postgres

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// OwnerError says that Migrate's role may not make or change the schema.
type OwnerError struct {
	Role, Schema, Database string
	Owner                  string // of the schema or of its tables; "": the schema is not there
	Err                    error  // the server's
}

func (e *OwnerError) Error() string {
	role, schema := pgx.Identifier{e.Role}.Sanitize(), pgx.Identifier{e.Schema}.Sanitize()
	switch e.Owner {
	case "":
		return fmt.Sprintf("role %s may not make the schema: GRANT CREATE ON DATABASE %s TO %s, or CREATE SCHEMA %s "+
			"AUTHORIZATION %s (%v)", role, pgx.Identifier{e.Database}.Sanitize(), role, schema, role, e.Err)
	case e.Role:
		return fmt.Sprintf("role %s owns schema %s, but lacks a right that it needs (%v)", role, schema, e.Err)
	}
	return fmt.Sprintf("schema %s belongs to role %s, and role %s may not change it: connect as the owner (store.migrateURL) (%v)",
		schema, pgx.Identifier{e.Owner}.Sanitize(), role, e.Err)
}

// Unwrap gives the server's error.
func (e *OwnerError) Unwrap() error { return e.Err }

// explain says who may do what the server refused this role. The transaction is over.
func (m migrator) explain(ctx context.Context, err error) error {
	if e, ok := errors.AsType[*GrantError](err); ok { // whose advice is for sidecars
		err = fmt.Errorf("no %s on %s", e.Privilege, e.Object)
	} else if e, ok := errors.AsType[*pgconn.PgError](err); !ok || e.Code != "42501" { // insufficient_privilege
		return err
	}
	e := &OwnerError{Schema: m.schema.name, Err: err}
	asked := m.conn.QueryRow(ctx, `SELECT current_user::text, current_database()::text, coalesce(
		(SELECT pg_get_userbyid(r.relowner)::text FROM pg_class r JOIN pg_namespace n ON n.oid = r.relnamespace
			WHERE n.nspname = $1 AND r.relname = 'schema_version'),
		(SELECT pg_get_userbyid(nspowner)::text FROM pg_namespace WHERE nspname = $1), '')`, m.schema.name).
		Scan(&e.Role, &e.Database, &e.Owner)
	if asked != nil {
		return err
	}
	return e
}
