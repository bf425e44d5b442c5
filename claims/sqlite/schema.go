package sqlite

import (
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"
)

const foreign = "the file is another application's database"

// empty reports whether Migrate may fill the file.
func (e *SchemaError) empty() bool { return e.Found == 0 && e.Reason != foreign }

// checkSchema refuses every file but one that holds exactly this version's migrations and what Migrate puts in.
func checkSchema(db *sql.DB, path string) error {
	all, err := migrations()
	if err != nil {
		return err
	}
	c, err := bare(db)
	if err != nil {
		return fmt.Errorf("sqlite store %s: %w", path, err)
	}
	defer c.drop()
	have, err := applied(c, path, all)
	if err != nil {
		return err
	}
	if have < len(all) {
		return &SchemaError{path, fmt.Sprintf("its schema is of version %d, older than %d", have, len(all)), have, len(all)}
	}
	var seeded bool
	if err := c.row(`SELECT EXISTS (SELECT 1 FROM store) AND EXISTS (SELECT 1 FROM keys)`).Scan(&seeded); err != nil {
		return fmt.Errorf("sqlite store %s: %w", path, err)
	}
	if !seeded {
		return &SchemaError{path, "it has no realm or no keys", have, len(all)}
	}
	return nil
}

// applied is the newest migration in the file. It refuses files without any, and those with others than this version's.
func applied(c *conn, path string, all []migration) (int, error) {
	refuse := func(found int, format string, args ...any) (int, error) {
		return found, &SchemaError{path, fmt.Sprintf(format, args...), found, len(all)}
	}
	var tables, ours int
	err := c.row(`SELECT count(*), coalesce(sum(name = 'schema_version'), 0) FROM sqlite_schema WHERE type = 'table'
		AND name NOT LIKE 'sqlite\_%' ESCAPE '\'`).Scan(&tables, &ours)
	switch {
	case err != nil:
		return 0, fmt.Errorf("sqlite store %s: %w", path, err)
	case tables == 0:
		return refuse(0, "the file is empty")
	case ours == 0:
		return refuse(0, foreign)
	}
	rows, err := c.query(`SELECT version, name, sum FROM schema_version ORDER BY version`)
	if err != nil {
		return 0, fmt.Errorf("sqlite store %s: %w", path, err)
	}
	defer rows.Close()
	have := 0
	for rows.Next() {
		var m migration
		var sum string
		if err := rows.Scan(&m.number, &m.name, &sum); err != nil {
			return 0, fmt.Errorf("sqlite store %s: %w", path, err)
		}
		switch {
		case m.number != have+1:
			return refuse(max(have, 1), "its schema has migration %d after %d", m.number, have)
		case m.number > len(all):
			return refuse(m.number, "its schema was made by a newer version (migration %s): use that version, which can", m.name)
		case m.name != all[have].name || sum != all[have].sum():
			return refuse(m.number, "its schema has an unknown migration %s", m.name)
		}
		have = m.number
	}
	return have, rows.Err()
}

// retry repeats what is refused only because another process holds a lock.
func retry(patience time.Duration, f func() error) error {
	for start := time.Now(); ; {
		err := f()
		if err == nil || !busy(err) {
			return err
		}
		if time.Since(start) > patience {
			return errors.Join(ErrBusy, err)
		}
		time.Sleep(time.Millisecond + rand.N(time.Millisecond))
	}
}

// locked runs f in a write transaction of its own.
func locked(c *conn, patience time.Duration, f func() error) error {
	err := retry(patience, func() error { return c.script("BEGIN IMMEDIATE") })
	if err != nil {
		return fmt.Errorf("sqlite store: %w", err)
	}
	if err := f(); err != nil {
		c.script("ROLLBACK")
		return err
	}
	return c.script("COMMIT")
}
