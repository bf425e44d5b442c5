package sqlite

import (
	"database/sql"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fence-sidecar/fence-sidecar/claims"
)

// handled is a call of two revisions at two gateways.
func handled(name string) claims.Record {
	r := record(name)
	r.Facts.Gateway, r.Facts.Reference, r.Object = "stripe", "ref-2 of "+name, "ch of "+name
	facts := claims.Facts{Gateway: "adyen", Reference: "ref-1 of " + name}
	r.Past = []claims.Past{{Revision: 1, State: claims.StateDeclined, Facts: facts}}
	r.Revision = 2
	return r
}

func wantFound(t *testing.T, s *Store, gateway string, h claims.Handles, want ...claims.Key) {
	t.Helper()
	keys, err := s.Find(t.Context(), "shop", gateway, h, 10)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(want, keys); d != "" {
		t.Errorf("%+v at %s (-want +got):\n%s", h, gateway, d)
	}
}

// asOf makes a store of an earlier schema.
func asOf(t *testing.T, schema int) (path string, db *sql.DB) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "store.db")
	if err := create(path); err != nil {
		t.Fatal(err)
	}
	db, err := pool(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	c, err := bare(db)
	if err != nil {
		t.Fatal(err)
	}
	defer c.drop()
	all, err := migrations()
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range all[:schema] {
		if _, err := c.apply(m, path, all); err != nil {
			t.Fatal(err)
		}
	}
	return path, db
}

// TestMigrationFindsEarlierRevisions: a store that has revised calls already knows them by all their references.
func TestMigrationFindsEarlierRevisions(t *testing.T) {
	path, db := asOf(t, 2)
	odd := handled("odd")
	odd.Past = append(odd.Past,
		claims.Past{State: claims.StateOpen, Facts: claims.Facts{Gateway: "adyen", Reference: "\xff"}}, // no text: left out
		claims.Past{State: claims.StateOpen, Facts: claims.Facts{Gateway: "adyen"}},
		claims.Past{State: claims.StateOpen, Facts: claims.Facts{Gateway: "adyen", Reference: "é \"<&>\" \\u0000 '"}},
		claims.Past{State: claims.StateOpen, Facts: claims.Facts{Gateway: "adyen", Reference: "ref-1 of odd"}})
	plain := record("plain")
	for _, r := range []claims.Record{handled("c"), odd, plain} {
		r.Version = 1
		v, err := values(&r)
		if err != nil {
			t.Fatal(err)
		}
		n := len(columns) - 1
		if columns[n] != "object" {
			t.Fatalf("the last column is %s", columns[n])
		}
		places := strings.TrimSuffix(strings.Repeat("?, ", n), ", ")
		if _, err := db.Exec("INSERT INTO calls ("+strings.Join(columns[:n], ", ")+") VALUES ("+places+")", v[:n]...); err != nil {
			t.Fatal(err)
		}
	}
	report, err := Migrate(t.Context(), path)
	if err != nil || report.From != 2 {
		t.Fatalf("%+v, %v", report, err)
	}
	s := openAt(t, path, newMachine())
	for _, name := range []string{"c", "odd"} {
		wantFound(t, s, "stripe", claims.Handles{Reference: "ref-2 of " + name}, key(name))
		wantFound(t, s, "adyen", claims.Handles{Reference: "ref-1 of " + name}, key(name))
		wantFound(t, s, "stripe", claims.Handles{Reference: "ref-1 of " + name})
	}
	wantFound(t, s, "adyen", claims.Handles{Reference: "é \"<&>\" \\u0000 '"}, key("odd"))
	if r := get(t, s, key("c")); r.Object != "" || len(r.Past) != 1 {
		t.Errorf("%+v", r)
	}
	r := put(t, s, get(t, s, key("c"))) // what the migration wrote is met again
	wantFound(t, s, "adyen", claims.Handles{Reference: "ref-1 of c"}, r.Key)
}

// TestFindUsesItsIndexes: every part, in the order of keys, so that a reference of many calls costs no more than the limit.
func TestFindUsesItsIndexes(t *testing.T) {
	s := openAt(t, migrated(t), newMachine())
	lines := plan(t, s, findCalls, []byte("shop"), "stripe", "ref", "ch", 10)
	for _, want := range []string{
		"SEARCH calls USING INDEX calls_reference (tenant=? AND gateway=? AND reference=?)",
		"SEARCH earlier USING PRIMARY KEY (tenant=? AND gateway=? AND reference=?)",
		"SEARCH calls USING INDEX calls_object (tenant=? AND gateway=? AND object=?)",
	} {
		if strings.Count(strings.ReplaceAll(lines, "COVERING ", ""), want) != 1 {
			t.Errorf("not %q in\n%s", want, lines)
		}
	}
	for line := range strings.Lines(lines) {
		if strings.Contains(line, "SCAN calls") || strings.Contains(line, "SCAN earlier") {
			t.Errorf("a scan:\n%s", lines)
		}
	}
	if lines := plan(t, s, selectKept+"true"+keptOrder, 10); !strings.Contains(lines, "notices_given") {
		t.Errorf("notices:\n%s", lines)
	}
}

func plan(t *testing.T, s *Store, query string, args ...any) string {
	t.Helper()
	var b strings.Builder
	err := s.read(t.Context(), func(t *tx) error {
		rows, err := t.query("EXPLAIN QUERY PLAN "+query, args...)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var a, b1, c int
			var line string
			if err := rows.Scan(&a, &b1, &c, &line); err != nil {
				return err
			}
			b.WriteString(line + "\n")
		}
		return rows.Err()
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestEarlierIsWrittenForRevisedCallsOnly: a call of one revision has no statement more than before.
func TestEarlierIsWrittenForRevisedCallsOnly(t *testing.T) {
	s := openAt(t, migrated(t), newMachine())
	asked := func() (n int) {
		err := s.writer.do(t.Context(), false, func(t *tx) error {
			for text := range t.stmts {
				if strings.Contains(text, "earlier") {
					n++
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	r := record("c")
	r.State, r.Facts.Reference = claims.StatePending, "ref"
	r = put(t, s, r)
	r.State, r.Object, r.Answer = claims.StateSucceeded, "ch", &claims.Answer{Status: 200}
	put(t, s, r)
	if n := asked(); n != 0 {
		t.Errorf("%d statements", n)
	}
	put(t, s, handled("revised"))
	if n := asked(); n != 1 {
		t.Errorf("%d statements for a revised call", n)
	}
}
