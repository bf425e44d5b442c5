package sqlite

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"database/sql"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/fence-sidecar/fence-sidecar/claims/keys"
)

//go:embed migrations/*.sql
var files embed.FS

// ErrSchema is what every *SchemaError is.
var ErrSchema = errors.New("the store's schema is not this version's")

// SchemaError says that a file is not what this version's Migrate makes.
type SchemaError struct {
	Path   string
	Reason string
	Found  int // newest migration in the file, 0: none
	Want   int // newest migration of this version
}

func (e *SchemaError) Error() string {
	return fmt.Sprintf("sqlite store %s: %s: run `fence-sidecar store migrate`", e.Path, e.Reason)
}

// Is makes errors.Is(err, ErrSchema) true.
func (e *SchemaError) Is(target error) bool { return target == ErrSchema }

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
		base := filepath.Base(name)
		digits, _, _ := strings.Cut(base, "_")
		n, err := strconv.Atoi(digits)
		if err != nil || n != len(all)+1 {
			return nil, fmt.Errorf("migration %s is not number %d", base, len(all)+1)
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

// Report says what Migrate did.
type Report struct {
	Path    string
	From    int      // newest migration before, 0: none
	To      int      // newest migration now
	Applied []string // names of the migrations that this call applied
	Realm   string   // new or old
	KeyMade bool     // this call made the key set
}

// Migrate makes the file or brings it up to date, with its realm and key set. It may be repeated, and
// several processes may do it at once. Errors: *SchemaError for a file that is not a store's or a newer one's,
// *SettingError for a file system that cannot hold it.
func Migrate(ctx context.Context, path string) (Report, error) {
	if err := ctx.Err(); err != nil {
		return Report{}, err
	}
	path, err := resolve(path)
	if err != nil {
		return Report{}, err
	}
	if err := create(path); err != nil {
		return Report{}, fmt.Errorf("sqlite store: %w", err)
	}
	if err := checkFS(path, nil, true); err != nil { // Open has the last word on a tmpfs
		return Report{}, err
	}
	db, err := pool(path)
	if err != nil {
		return Report{}, err
	}
	defer db.Close()
	return migrate(db, path)
}

const patience = 30 * time.Second // for other processes that migrate

func migrate(db *sql.DB, path string) (Report, error) {
	report := Report{Path: path}
	all, err := migrations()
	if err != nil {
		return report, err
	}
	c, err := bare(db)
	if err != nil {
		return report, fmt.Errorf("sqlite store %s: %w", path, err)
	}
	defer c.drop()
	// Judged before the file is touched: another application's database must stay as it is.
	err = retry(patience, func() (err error) { report.From, err = applied(c, path, all); return err })
	if e, ok := errors.AsType[*SchemaError](err); ok && e.Found > 0 || err != nil && !ok {
		return report, err
	} else if ok && !e.empty() {
		return report, err
	}
	if err := c.walMode(); err != nil {
		return report, fmt.Errorf("sqlite store %s: %w", path, err)
	}
	for _, m := range all {
		did, err := c.apply(m, path, all)
		if err != nil {
			return report, err
		}
		if did {
			report.Applied = append(report.Applied, m.name)
		}
	}
	report.To = len(all)
	err = locked(c, patience, func() (err error) { report.Realm, report.KeyMade, err = c.seed(); return err })
	return report, err
}

// create makes an empty file that only its owner can read. It never opens one that is there: closing it would drop the
// locks that this process holds on it through SQLite (fcntl(2)).
func create(path string) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if errors.Is(err, os.ErrExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	defer dir.Close()
	return dir.Sync()
}

// walMode is kept by the file.
func (c *conn) walMode() error {
	for _, p := range []string{"busy_timeout = 100", "synchronous = FULL", "fullfsync = 1"} {
		if err := c.script("PRAGMA " + p); err != nil {
			return err
		}
	}
	return retry(patience, func() error {
		var mode string
		if err := c.row("PRAGMA journal_mode = WAL").Scan(&mode); err != nil {
			return err
		}
		if !strings.EqualFold(mode, "wal") {
			return &SettingError{"journal_mode", mode, "wal: the file system does not support it"}
		}
		return nil
	})
}

// apply runs one migration in its own transaction, unless another process did meanwhile.
func (c *conn) apply(m migration, path string, all []migration) (did bool, err error) {
	err = locked(c, patience, func() error {
		have, err := applied(c, path, all)
		if e, ok := errors.AsType[*SchemaError](err); err != nil && !(ok && e.empty()) {
			return err
		}
		if have >= m.number {
			return nil
		}
		if err := c.script(m.sql); err != nil {
			return fmt.Errorf("sqlite store %s: migration %s: %w", path, m.name, err)
		}
		if m.number == 1 {
			if err := c.script(`CREATE TABLE schema_version (version INTEGER PRIMARY KEY, name TEXT NOT NULL,
				sum TEXT NOT NULL, applied_wall INTEGER NOT NULL) STRICT`); err != nil {
				return err
			}
		}
		did = true
		_, err = c.exec(`INSERT INTO schema_version (version, name, sum, applied_wall) VALUES (?, ?, ?, ?)`,
			m.number, m.name, m.sum(), time.Now().UnixNano())
		return err
	})
	return did && err == nil, err
}

// seed makes the realm and the key set where there are none.
func (c *conn) seed() (realm string, made bool, err error) {
	err = c.row(`SELECT realm FROM store`).Scan(&realm)
	if errors.Is(err, sql.ErrNoRows) {
		realm = randomHex(16)
		_, err = c.exec(`INSERT INTO store (one, realm) VALUES (1, ?)`, realm)
	}
	if err != nil {
		return "", false, fmt.Errorf("sqlite store: realm: %w", err)
	}
	var n int
	if err := c.row(`SELECT count(*) FROM keys`).Scan(&n); err != nil || n > 0 {
		return realm, false, err
	}
	set, err := keys.New()
	if err != nil {
		return "", false, fmt.Errorf("sqlite store: keys: %w", err)
	}
	secret, err := set.JSON()
	if err != nil {
		return "", false, fmt.Errorf("sqlite store: keys: %w", err)
	}
	_, err = c.exec(`INSERT INTO keys (one, secret, created_wall) VALUES (1, ?, ?)`, secret, time.Now().UnixNano())
	return realm, err == nil, err
}

func randomHex(bytes int) string {
	b := make([]byte, bytes)
	rand.Read(b) // never fails (crypto/rand, Go 1.24)
	return hex.EncodeToString(b)
}
