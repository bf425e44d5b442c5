package sqlite

import (
	"path/filepath"
	"testing"

	"github.com/fence-sidecar/fence-sidecar/claims"
	"github.com/fence-sidecar/fence-sidecar/claims/claimstest"
)

// migrated is the path of a fresh store.
func migrated(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "store.db")
	if _, err := Migrate(t.Context(), path); err != nil {
		t.Fatal(err)
	}
	return path
}

// machine is a test's machine: its clocks, and the boot that they belong to.
type machine struct {
	*claimstest.Clock
	boot string
}

func newMachine() *machine { return &machine{claimstest.NewClock(), "boot-1"} }

func (m *machine) clock() Clock {
	return Clock{Boot: m.Boot, Wall: m.Wall, Identity: func() (string, error) { return m.boot, nil }}
}

func open(t *testing.T, cfg Config) *Store {
	t.Helper()
	s, err := Open(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return s
}

func openAt(t *testing.T, path string, m *machine) *Store {
	t.Helper()
	return open(t, Config{Path: path, Clock: m.clock()})
}

// spoil writes behind the store's back.
func spoil(t *testing.T, s *Store, query string, args ...any) {
	t.Helper()
	err := s.writer.do(t.Context(), false, func(t *tx) error { return t.change(query, args...) })
	if err != nil {
		t.Fatal(err)
	}
}

func key(name string) claims.Key { return claims.Key{Tenant: "shop", Call: name} }

func record(name string) claims.Record {
	return claims.Record{Key: key(name), State: claims.StateOpen, Revision: 1, Claim: claims.NewClaimID()}
}

func TestRules(t *testing.T) {
	claimstest.Run(t, func(t *testing.T) claimstest.Harness {
		m := newMachine()
		s := openAt(t, migrated(t), m)
		return claimstest.Harness{
			Backend: s, Advance: m.Advance, StepWall: m.StepWall,
			Except: claimstest.CannotLose("one file on one disk: no standby is promoted, and an older copy put back cannot be told from the file"),
			Fill: func(tenant string, n int) {
				spoil(t, s, `INSERT INTO notices (tenant, gateway, id, body, at_store, at_wall)
					WITH RECURSIVE i (n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM i WHERE n < ?2)
					SELECT ?1, CAST('filled' AS BLOB), CAST(CAST(n AS TEXT) AS BLOB), x'', 0, 0 FROM i`, []byte(tenant), n)
			},
			Spoil: func(k claims.Key) {
				spoil(t, s, `UPDATE calls SET state = 'martian' WHERE tenant = ? AND call_key = ?`, []byte(k.Tenant), []byte(k.Call))
			},
		}
	})
}
