package sqlite

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// alter runs SQL on a file that no store has open.
func alter(t *testing.T, path, text string) {
	t.Helper()
	if err := create(path); err != nil {
		t.Fatal(err)
	}
	db, err := pool(path)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	if _, err := db.Exec(text); err != nil {
		t.Fatal(err)
	}
}

func TestOpenRefusesOtherSchemas(t *testing.T) {
	for name, change := range map[string]string{
		"older":           `DELETE FROM schema_version`,
		"newer":           `INSERT INTO schema_version VALUES (4, '0004_more.sql', 'x', 0)`,
		"changed":         `UPDATE schema_version SET sum = 'x'`,
		"renamed":         `UPDATE schema_version SET name = 'x'`,
		"with a gap":      `UPDATE schema_version SET version = 5 WHERE version = 2`,
		"without a realm": `DELETE FROM store`,
		"without a key":   `DELETE FROM keys`,
		"another's":       `DROP TABLE schema_version`,
		"another's, small": `DROP TABLE schema_version; DROP TABLE calls; DROP TABLE answers; DROP TABLE leases; DROP TABLE lease_log;
			DROP TABLE events; DROP TABLE members; DROP TABLE earlier; DROP TABLE notices`,
	} {
		t.Run(name, func(t *testing.T) {
			path := migrated(t)
			alter(t, path, change)
			wantSchemaError(t, path)
		})
	}
	t.Run("no file", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "none.db")
		wantSchemaError(t, path)
		if _, err := os.Stat(path); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("opening made a file: %v", err)
		}
	})
	t.Run("empty file", func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "empty.db")
		if err := create(path); err != nil {
			t.Fatal(err)
		}
		wantSchemaError(t, path)
	})
}

func wantSchemaError(t *testing.T, path string) {
	t.Helper()
	s, err := Open(t.Context(), Config{Path: path})
	if err == nil {
		s.Close()
	}
	if !errors.Is(err, ErrSchema) || !strings.Contains(err.Error(), "fence-sidecar store migrate") {
		t.Errorf("open: %v, want a schema error that names the command", err)
	}
}

func TestMigrateRefusesWhatIsNotItsOwn(t *testing.T) {
	path := filepath.Join(t.TempDir(), "other.db")
	alter(t, path, `CREATE TABLE orders (id INTEGER)`)
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Migrate(t.Context(), path); !errors.Is(err, ErrSchema) {
		t.Errorf("another application's file: %v", err)
	}
	if after, err := os.ReadFile(path); err != nil || string(before) != string(after) {
		t.Errorf("the file was changed (%v)", err)
	}
	path = migrated(t)
	alter(t, path, `INSERT INTO schema_version VALUES (4, '0004_more.sql', 'x', 0)`)
	if _, err := Migrate(t.Context(), path); !errors.Is(err, ErrSchema) {
		t.Errorf("a newer file: %v", err)
	}
}

func TestMigrateAgainChangesNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "store.db")
	first, err := Migrate(t.Context(), path)
	if err != nil {
		t.Fatal(err)
	}
	if !first.KeyMade || len(first.Realm) != 32 || first.From != 0 || first.To != len(first.Applied) {
		t.Errorf("first: %+v", first)
	}
	kept := func() string {
		s := open(t, Config{Path: path})
		defer s.Close()
		return s.Realm() + string(s.Keyset())
	}
	before := kept()
	again, err := Migrate(t.Context(), path)
	if err != nil || again.KeyMade || again.Realm != first.Realm || len(again.Applied) != 0 || again.From != first.To {
		t.Errorf("again: %+v, %v", again, err)
	}
	if before != kept() {
		t.Error("the realm or the keys changed")
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode of the file that holds the keys: %v, %v", info.Mode(), err)
	}
	other, err := Migrate(t.Context(), filepath.Join(t.TempDir(), "other.db"))
	if err != nil || other.Realm == first.Realm {
		t.Errorf("two deployments share a realm: %+v, %v", other, err)
	}
}

func TestMigrateAtOnce(t *testing.T) {
	for range 5 {
		path := filepath.Join(t.TempDir(), "store.db")
		var wg sync.WaitGroup
		reports := make([]Report, 8)
		for i := range reports {
			wg.Go(func() {
				var err error
				if reports[i], err = Migrate(t.Context(), path); err != nil {
					t.Errorf("migrate: %v", err)
				}
			})
		}
		wg.Wait()
		keys, applied := 0, 0
		for _, r := range reports {
			applied += len(r.Applied)
			if r.KeyMade {
				keys++
			}
			if r.Realm != reports[0].Realm {
				t.Errorf("realms %s and %s", r.Realm, reports[0].Realm)
			}
		}
		if all, _ := migrations(); keys != 1 || applied != len(all) {
			t.Errorf("%d keys made, %d migrations applied, want 1 and %d", keys, applied, len(all))
		}
		open(t, Config{Path: path}).Close()
	}
}
