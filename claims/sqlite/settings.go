package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"time"

	_ "modernc.org/sqlite" // the driver "sqlite"
)

// ErrSetting is what every *SettingError is.
var ErrSetting = errors.New("the store's settings are not safe")

// SettingError names a setting under which the store's guarantees do not hold.
type SettingError struct {
	Setting string // as SQLite or the Config calls it
	Value   string
	Want    string
}

func (e *SettingError) Error() string {
	return fmt.Sprintf("sqlite store: %s is %q: want %s", e.Setting, e.Value, e.Want)
}

// Is makes errors.Is(err, ErrSetting) true.
func (e *SettingError) Is(target error) bool { return target == ErrSetting }

// tunable PRAGMAs may be set by Config.Pragmas; those of required may too, and are refused by name if unsafe.
var tunable = []string{"cache_size", "cache_spill", "journal_size_limit", "temp_store", "wal_autocheckpoint"}

// required are the effective values without which a commit could be lost or a lock would not hold.
var required = []struct{ pragma, want, why string }{
	{"journal_mode", "wal", "wal (write-ahead log; several processes read while one writes)"},
	{"synchronous", "2", "2 (FULL: every commit is on the disk before it is acknowledged)"},
	{"locking_mode", "normal", "normal (other processes share the file)"},
	{"read_uncommitted", "0", "0 (no read sees what was not committed)"},
	{"ignore_check_constraints", "0", "0 (the schema's checks hold)"},
	{"writable_schema", "0", "0 (nobody edits the schema)"},
}

// resolve checks the path and follows links, as SQLite puts its write-ahead log beside the file itself.
func resolve(path string) (string, error) {
	switch {
	case path == "":
		return "", &SettingError{"path", path, "the path of a file"}
	case strings.Contains(path, ":memory:"), strings.HasPrefix(path, "file:"):
		return "", &SettingError{"path", path, "the path of a file: what is in memory does not survive its process"}
	case strings.ContainsRune(path, 0):
		return "", &SettingError{"path", path, "a path without NUL"}
	}
	abs, err := filepath.Abs(path)
	if err != nil {
		return "", fmt.Errorf("sqlite store: %w", err)
	}
	if real, err := filepath.EvalSymlinks(abs); err == nil {
		return real, nil
	}
	return abs, nil
}

// pool makes a database handle that never creates the file.
func pool(path string) (*sql.DB, error) {
	u := url.URL{Scheme: "file", Path: path, RawQuery: "mode=rw"}
	db, err := sql.Open("sqlite", u.String())
	if err != nil {
		return nil, fmt.Errorf("sqlite store %s: %w", path, err)
	}
	db.SetMaxIdleConns(0) // each connection is pinned by its user; one that is given back was broken
	return db, nil
}

// connect pins a new connection, configures it and checks what is in force.
func connect(db *sql.DB, busy time.Duration, pragmas map[string]string, reader bool) (*conn, error) {
	sc, err := db.Conn(context.Background())
	if err != nil {
		return nil, fmt.Errorf("sqlite store: open: %w", err)
	}
	c := &conn{sql: sc, stmts: map[string]*sql.Stmt{}}
	if err := configure(c, busy, pragmas, reader); err != nil {
		c.drop()
		return nil, err
	}
	return c, nil
}

func configure(c *conn, busy time.Duration, pragmas map[string]string, reader bool) error {
	set := []string{
		"busy_timeout = 5000", // of the first read of the file, which waits for one that opens or closes it last
		"synchronous = FULL",
		"fullfsync = 1", // macOS: fsync alone does not reach the disk
		"checkpoint_fullfsync = 1",
		"trusted_schema = 0",
	}
	for name, value := range pragmas {
		if err := checkPragma(name, value); err != nil {
			return err
		}
		set = append(set, name+" = "+value)
	}
	if reader {
		set = append(set, "query_only = 1")
	}
	for _, p := range set {
		if err := c.script("PRAGMA " + p); err != nil {
			return fmt.Errorf("sqlite store: PRAGMA %s: %w", p, err)
		}
	}
	if err := verify(c); err != nil {
		return err
	}
	return c.script(fmt.Sprintf("PRAGMA busy_timeout = %d", busy.Milliseconds()))
}

// checkPragma lets only known names and plain words through, as the text becomes SQL.
func checkPragma(name, value string) error {
	known := slices.Contains(tunable, name)
	for _, r := range required {
		known = known || r.pragma == name
	}
	if !known {
		return &SettingError{name, value, "no such setting; known are " + strings.Join(tunable, ", ")}
	}
	word := strings.TrimPrefix(value, "-")
	plain := func(r rune) bool {
		return r == '_' || r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z'
	}
	if word == "" || strings.ContainsFunc(word, func(r rune) bool { return !plain(r) }) {
		return &SettingError{name, value, "a number or a word"}
	}
	return nil
}

// verify reads what is really in force: a setting may come from the file, from the Config or from the driver's defaults.
func verify(c *conn) error {
	for _, r := range required {
		var got string
		if err := c.row("PRAGMA " + r.pragma).Scan(&got); err != nil {
			return fmt.Errorf("sqlite store: PRAGMA %s: %w", r.pragma, err)
		}
		if !strings.EqualFold(got, r.want) {
			return &SettingError{r.pragma, got, r.why}
		}
	}
	return nil
}
