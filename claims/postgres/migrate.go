package postgres

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fence-sidecar/fence-sidecar/claims/keys"
)

//go:embed migrations/*.sql
var files embed.FS

// migration is one numbered file.
type migration struct {
	number int
	name   string
	sql    string
}

func (m migration) sum() string {
	h := sha256.Sum256([]byte(m.sql))
	return hex.EncodeToString(h[:])
}

// needs is the oldest version (number of migrations) that can go on with a schema after each migration. A migration that
// only adds needs no more than the one before; what contracts a schema needs the version that no longer uses what goes.
var needs = map[int]int{1: 1, 2: 1, 3: 1}

// migrations are the embedded files in order; they are numbered from 1 without a gap (a test).
func migrations() ([]migration, error) {
	names, err := fs.Glob(files, "migrations/*.sql")
	if err != nil {
		return nil, err
	}
	var all []migration
	for _, name := range names { // sorted
		text, err := files.ReadFile(name)
		if err != nil {
			return nil, err
		}
		base := path.Base(name)
		digits, _, _ := strings.Cut(base, "_")
		n, err := strconv.Atoi(digits)
		if err != nil || n != len(all)+1 {
			return nil, fmt.Errorf("migration %s is not number %d", base, len(all)+1)
		}
		if needs[n] == 0 {
			return nil, fmt.Errorf("migration %s does not say which version can go on with it", base)
		}
		all = append(all, migration{n, base, string(text)})
	}
	return all, nil
}

// Schema is the number of the newest migration that this version knows.
func Schema() int {
	all, _ := migrations() // embedded: Migrate and Open tell an error of them
	return len(all)
}

// MigrateConfig says where Migrate makes or changes a schema, and who may use it.
type MigrateConfig struct {
	// URL of the database, with a role that may make the schema, or owns it.
	URL string
	// Schema to make; "": fence.
	Schema string
	// SidecarRole gets what sidecars need and no more; "": nobody, sidecars connect as the owner.
	SidecarRole string
	// AppRole is the application's, for the functions of the schema: it gets no table. "": nobody.
	AppRole string
}

// Report says what Migrate did.
type Report struct {
	Schema  string
	From    int      // newest migration before, 0: none
	To      int      // newest migration now
	Applied []string // names of the migrations that this call applied
	Realm   string   // new or old
	KeyMade bool     // this call made the key set
}

// Migrate makes the schema or brings it up to date, with its realm, key set and grants. It may be repeated,
// run several times at once and beside sidecars that serve. Errors: *SchemaError for a schema that is another
// application's or changed, *OwnerError for a role that may not, else those of the server.
func Migrate(ctx context.Context, cfg MigrateConfig) (Report, error) {
	if cfg.Schema == "" {
		cfg.Schema = "fence"
	}
	report := Report{Schema: cfg.Schema}
	all, err := migrations()
	if err != nil {
		return report, err
	}
	pc, err := connConfig(cfg.URL)
	if err != nil {
		return report, err
	}
	c, err := pgx.ConnectConfig(ctx, pc.ConnConfig)
	if err != nil {
		return report, fmt.Errorf("postgres store: %w", err)
	}
	defer c.Close(context.WithoutCancel(ctx)) //nolint:errcheck // nothing is open
	m := migrator{c, schemaOf(cfg.Schema), all}
	for i := range all {
		if err := m.locked(ctx, func(tx pgx.Tx) error { return m.apply(ctx, tx, &report, i) }); err != nil {
			return report, fmt.Errorf("postgres store: migration %s: %w", all[i].name, m.explain(ctx, err))
		}
	}
	report.To = max(report.From, len(all))
	err = m.locked(ctx, func(tx pgx.Tx) error {
		if err := m.seed(ctx, tx, &report); err != nil {
			return err
		}
		return m.grant(ctx, tx, cfg)
	})
	if err != nil {
		return report, fmt.Errorf("postgres store: schema %s: %w", cfg.Schema, m.explain(ctx, err))
	}
	return report, nil
}

type migrator struct {
	conn   *pgx.Conn
	schema schema
	all    []migration
}

// locked runs f in a transaction of which there is one at a time per schema.
func (m migrator) locked(ctx context.Context, f func(pgx.Tx) error) error {
	return pgx.BeginTxFunc(ctx, m.conn, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `SELECT pg_advisory_xact_lock(hashtextextended('fence-sidecar migrate ' || $1::text, 0))`, m.schema.name)
		if err == nil {
			// whoever waits behind a lock that we wait for must not wait long: sidecars serve meanwhile
			_, err = tx.Exec(ctx, `SELECT set_config('lock_timeout', '2s', true)`)
		}
		if err != nil {
			return err
		}
		return f(tx)
	})
}

// apply runs one migration, unless another process did meanwhile.
func (m migrator) apply(ctx context.Context, tx pgx.Tx, report *Report, i int) error {
	have, err := applied(ctx, tx, m.schema, m.all)
	if e, ok := errors.AsType[*SchemaError](err); err != nil && !(ok && e.Found == 0 && e.Reason != foreign) {
		return err
	}
	if i == 0 {
		report.From = have
	}
	if have > i {
		return nil
	}
	next := m.all[i]
	text := next.sql
	if i == 0 {
		text = `CREATE TABLE {schema}.schema_version (version bigint PRIMARY KEY, name text COLLATE "C" NOT NULL,
			sum text COLLATE "C" NOT NULL, needs bigint NOT NULL, applied timestamptz NOT NULL DEFAULT clock_timestamp());` + text
		var there bool
		if err := tx.QueryRow(ctx, `SELECT EXISTS (SELECT 1 FROM pg_namespace WHERE nspname = $1)`, m.schema.name).Scan(&there); err != nil {
			return err
		}
		if !there { // a role that owns the schema need not be one that may make schemas
			text = `CREATE SCHEMA {schema};` + text
		}
	}
	// the simple protocol takes several statements
	if _, err := tx.Conn().PgConn().Exec(ctx, m.schema.sql(text)).ReadAll(); err != nil {
		return err
	}
	_, err = tx.Exec(ctx, m.schema.sql(`INSERT INTO {schema}.schema_version (version, name, sum, needs) VALUES ($1, $2, $3, $4)`),
		next.number, next.name, next.sum(), needs[next.number])
	report.Applied = append(report.Applied, next.name)
	return err
}

// seed makes the realm and the key set where there are none.
func (m migrator) seed(ctx context.Context, tx pgx.Tx, report *Report) error {
	_, err := tx.Exec(ctx, m.schema.sql(`INSERT INTO {schema}.store (one, realm, system_id, timeline, created)
		SELECT 1, $1, system_identifier::text, ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::bigint,
		(extract(epoch FROM clock_timestamp()) * 1000000)::bigint * 1000 FROM pg_control_system() ON CONFLICT DO NOTHING`), randomHex(16))
	if err != nil {
		return err
	}
	if err := tx.QueryRow(ctx, m.schema.sql(`SELECT realm FROM {schema}.store`)).Scan(&report.Realm); err != nil {
		return err
	}
	set, err := keys.New()
	if err != nil {
		return fmt.Errorf("keys: %w", err)
	}
	secret, err := set.JSON()
	if err != nil {
		return fmt.Errorf("keys: %w", err)
	}
	tag, err := tx.Exec(ctx, m.schema.sql(`INSERT INTO {schema}.keys (one, secret, created)
		SELECT 1, $1, (extract(epoch FROM clock_timestamp()) * 1000000)::bigint * 1000
		WHERE NOT EXISTS (SELECT 1 FROM {schema}.keys)`), secret)
	report.KeyMade = err == nil && tag.RowsAffected() == 1
	return err
}

// grant gives the roles what they need. It takes nothing away that others gave.
func (m migrator) grant(ctx context.Context, tx pgx.Tx, cfg MigrateConfig) error {
	var all []string
	if cfg.SidecarRole != "" {
		role := pgx.Identifier{cfg.SidecarRole}.Sanitize()
		for _, g := range grants {
			p := g.privileges
			if g.table == "store" {
				p = "SELECT, UPDATE (" + storeColumns + ")"
			}
			all = append(all, "GRANT "+p+" ON {schema}."+g.table+" TO "+role)
		}
		all = append(all, "GRANT USAGE ON SCHEMA {schema} TO "+role, "GRANT EXECUTE ON FUNCTION {schema}.in_time(bigint) TO "+role)
	}
	if cfg.AppRole != "" {
		role := pgx.Identifier{cfg.AppRole}.Sanitize()
		all = append(all, "GRANT USAGE ON SCHEMA {schema} TO "+role)
		for _, f := range appFunctions {
			all = append(all, "GRANT EXECUTE ON FUNCTION {schema}."+f+" TO "+role)
		}
	}
	for _, sql := range all {
		if _, err := tx.Exec(ctx, m.schema.sql(sql)); err != nil {
			return err
		}
	}
	return nil
}

func randomHex(bytes int) string {
	b := make([]byte, bytes)
	rand.Read(b) // never fails (crypto/rand, Go 1.24)
	return hex.EncodeToString(b)
}

const foreign = "the schema holds another application's tables"

// applied is the newest migration in the schema. It refuses schemas without any, and those with others than this version's,
// but for newer ones that say that this version can go on.
func applied(ctx context.Context, q interface {
	Query(context.Context, string, ...any) (pgx.Rows, error)
	QueryRow(context.Context, string, ...any) pgx.Row
}, s schema, all []migration) (int, error) {
	refuse := func(found int, format string, args ...any) (int, error) {
		return found, &SchemaError{s.name, fmt.Sprintf(format, args...), found, len(all)}
	}
	var role string
	var tables, ours int
	err := q.QueryRow(ctx, `SELECT current_user::text, count(*), count(*) FILTER (WHERE r.relname = 'schema_version') FROM pg_class r
		JOIN pg_namespace n ON n.oid = r.relnamespace WHERE n.nspname = $1 AND r.relkind IN ('r', 'p', 'v', 'm', 'f')`, s.name).Scan(&role, &tables, &ours)
	switch {
	case err != nil:
		return 0, err
	case tables == 0:
		return refuse(0, "it is not there or empty")
	case ours == 0:
		return refuse(0, foreign)
	}
	rows, err := q.Query(ctx, s.sql(`SELECT version, name, sum, needs FROM {schema}.schema_version ORDER BY version`))
	if err != nil {
		return 0, err
	}
	defer rows.Close()
	have := 0
	for rows.Next() {
		var m migration
		var sum string
		var needs int
		if err := rows.Scan(&m.number, &m.name, &sum, &needs); err != nil {
			return 0, err
		}
		switch {
		case m.number != have+1:
			return refuse(max(have, 1), "it has migration %d after %d", m.number, have)
		case m.number > len(all) && needs > len(all):
			return refuse(m.number, "it was made by a newer version (migration %s), which this one cannot use: use that version, which can", m.name)
		case m.number <= len(all) && (m.name != all[have].name || sum != all[have].sum()):
			return refuse(m.number, "it has an unknown migration %s", m.name)
		}
		have = m.number
	}
	if e, ok := errors.AsType[*pgconn.PgError](rows.Err()); ok && e.Code == "42501" { // insufficient_privilege
		return 0, &GrantError{role, "SELECT", s.quoted + ".schema_version"}
	}
	return have, rows.Err()
}
