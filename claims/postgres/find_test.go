package postgres

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/fence-sidecar/fence-sidecar/claims"
	"github.com/fence-sidecar/fence-sidecar/claims/postgres/pgtest"
)

// handled is a call of two revisions at two gateways.
func handled(name string) claims.Record {
	r := record(name)
	r.Facts.Gateway, r.Facts.Reference, r.Object = "stripe", "ref-2 of "+name, "ch of "+name
	r.Past = []claims.Past{earlierAt("adyen", "ref-1 of "+name)}
	r.Revision = 2
	return r
}

func earlierAt(gateway, reference string) claims.Past {
	return claims.Past{Revision: 1, State: claims.StateDeclined, Facts: claims.Facts{Gateway: gateway, Reference: reference}}
}

func wantFound(t *testing.T, s *Store, gateway string, h claims.Handles, want ...claims.Key) {
	t.Helper()
	keys, err := s.Find(t.Context(), "shop", gateway, h, 10)
	ok(t, err)
	if d := cmp.Diff(want, keys); d != "" {
		t.Errorf("%+q at %q (-want +got):\n%s", h, gateway, d)
	}
}

// asOf makes a schema of an earlier version.
func asOf(t *testing.T, version int) Config {
	t.Helper()
	url, schema := pgtest.Shared(t).Schema(t)
	c, err := pgx.Connect(t.Context(), url)
	ok(t, err)
	defer c.Close(t.Context())
	all, err := migrations()
	ok(t, err)
	m := migrator{c, schemaOf(schema), all}
	for i := range version {
		ok(t, m.locked(t.Context(), func(tx pgx.Tx) error { return m.apply(t.Context(), tx, &Report{}, i) }))
	}
	return Config{URL: url, Schema: schema, MayLose: true}
}

// insertAsOf writes a record as a version did that knew no object.
func insertAsOf(t *testing.T, cfg Config, r claims.Record) {
	t.Helper()
	r.Version = 1
	v, err := values(&r)
	ok(t, err)
	n := len(columns) - 1
	if columns[n] != "object" {
		t.Fatalf("the last column is %s", columns[n])
	}
	text := strings.Replace(strings.Replace(insertCall, ", object)", ")", 1), fmt.Sprintf(", $%d)", n+1), ")", 1)
	alter(t, cfg, text, append([]any{pgx.QueryExecModeExec}, v[:n]...)...)
}

// TestMigrationFindsEarlierRevisions: a store that has revised calls already knows them by all their references, whatever these and
// the gateway's name are made of.
func TestMigrationFindsEarlierRevisions(t *testing.T) {
	cfg := asOf(t, 2)
	odd := handled("odd")
	strange := []claims.Past{
		earlierAt("adyen", "é \"<&>\" \\u0000 ' \u2028"), earlierAt("adyen", "\xff\xfe"), earlierAt("\xff"+coded, coded+"YQ=="),
		earlierAt("adyen", coded+strings.Repeat("long", 50)), earlierAt(coded, "ref"),
	}
	nul := []claims.Past{earlierAt("adyen", "nul\x00"), earlierAt("adyen", "beside one")}
	odd.Past = append(append(odd.Past, earlierAt("adyen", ""), earlierAt("adyen", "ref-1 of odd")), append(strange, nul...)...)
	for _, r := range []claims.Record{handled("c"), odd, record("plain")} {
		insertAsOf(t, cfg, r)
	}
	report, err := Migrate(t.Context(), MigrateConfig{URL: cfg.URL, Schema: cfg.Schema})
	if err != nil || report.From != 2 {
		t.Fatalf("%+v, %v", report, err)
	}
	s := open(t, cfg)
	for _, name := range []string{"c", "odd"} {
		wantFound(t, s, "stripe", claims.Handles{Reference: "ref-2 of " + name}, key(name))
		wantFound(t, s, "adyen", claims.Handles{Reference: "ref-1 of " + name}, key(name))
		wantFound(t, s, "stripe", claims.Handles{Reference: "ref-1 of " + name})
	}
	for _, p := range append(strange, nul[1]) {
		wantFound(t, s, p.Facts.Gateway, claims.Handles{Reference: p.Facts.Reference}, key("odd"))
	}
	wantFound(t, s, "adyen", claims.Handles{Reference: "nul\x01"})
	wantFound(t, s, "adyen", claims.Handles{Reference: "nul\x00"}) // left out
	put(t, s, get(t, s, key("odd")).Record)                        // until it is written again
	wantFound(t, s, "adyen", claims.Handles{Reference: "nul\x00"}, key("odd"))
	for _, p := range strange {
		wantFound(t, s, p.Facts.Gateway, claims.Handles{Reference: p.Facts.Reference}, key("odd"))
	}
}

// TestOlderSidecarsGoOn: one that does not know the object writes beside this version.
func TestOlderSidecarsGoOn(t *testing.T) {
	cfg := migrated(t)
	s := open(t, cfg)
	insertAsOf(t, cfg, handled("c"))
	wantFound(t, s, "stripe", claims.Handles{Reference: "ref-2 of c"}, key("c"))
	wantFound(t, s, "adyen", claims.Handles{Reference: "ref-1 of c"})
	r := get(t, s, key("c")).Record
	if r.Object != "" {
		t.Errorf("object %q", r.Object)
	}
	put(t, s, r) // what the older one left out is written with the next write
	wantFound(t, s, "adyen", claims.Handles{Reference: "ref-1 of c"}, key("c"))
}

// read finds how many rows a step of a plan really gave.
var read = regexp.MustCompile(`actual rows=(\d+)`)

// TestFindUsesItsIndexes: every part, in the order of keys, so that a reference of many calls costs no more than the limit.
func TestFindUsesItsIndexes(t *testing.T) {
	cfg := migrated(t)
	s := open(t, cfg)
	put(t, s, handled("c"))
	const calls = 30000
	alter(t, cfg, `INSERT INTO {schema}.calls SELECT (jsonb_populate_record(c, jsonb_build_object(
		'call_key', '\\x' || lpad(to_hex(n), 8, '0'),
		'reference', CASE WHEN n % 2 = 0 THEN 'shared' ELSE 'ref ' || n END,
		'object', CASE WHEN n % 3 = 0 THEN 'shared' ELSE 'ch ' || n END))).*
		FROM {schema}.calls c, generate_series(1, $1) n`, calls)
	alter(t, cfg, `INSERT INTO {schema}.earlier SELECT tenant, gateway, reference, call_key FROM {schema}.calls
		ON CONFLICT DO NOTHING`)
	alter(t, cfg, `ANALYZE {schema}.calls`)
	alter(t, cfg, `ANALYZE {schema}.earlier`)
	both := claims.Handles{Reference: "shared", Object: "shared"}
	for _, h := range []claims.Handles{both, {Reference: "ref 7", Object: "ch 7"}, {Object: "shared"}} {
		text := "SELECT " + found
		for i, v := range []string{"'shop'", "'stripe'", "'" + h.Reference + "'", "'" + h.Object + "'", "10"} {
			text = strings.ReplaceAll(text, fmt.Sprintf("$%d", i+1), v)
		}
		plan := explain(t, s.calls, s.schema.sql(text))
		for _, want := range []string{"using calls_reference on calls", "using earlier_pkey on earlier", "using calls_object on calls"} {
			if !strings.Contains(plan, want) && !(h.Reference == "" && strings.Contains(want, "calls_reference")) {
				t.Errorf("%+v: not %q in\n%s", h, want, plan)
			}
		}
		if strings.Contains(plan, "Seq Scan") {
			t.Errorf("%+v: a scan:\n%s", h, plan)
		}
		for _, n := range read.FindAllStringSubmatch(plan, -1) {
			if rows, err := strconv.Atoi(n[1]); err != nil || rows > 30 {
				t.Errorf("%+v: %d rows read for 10: %v\n%s", h, rows, err, plan)
			}
		}
	}
	keys, err := s.Find(t.Context(), "shop", "stripe", both, 10)
	if err != nil || len(keys) != 10 || keys[0].Call != `\x00000002` || keys[1].Call != `\x00000003` {
		t.Errorf("%q, %v", keys, err)
	}
}

// TestHandlesKeepUpdatesHot: an update of what is in no index stays heap-only for a call with a reference and an object.
func TestHandlesKeepUpdatesHot(t *testing.T) {
	cfg := migrated(t)
	s := open(t, cfg)
	put(t, s, handled("c"))
	const updates = 20
	for range updates {
		ok(t, s.write(t.Context(), s.calls, nil, func(t *tx) error {
			t.change(`UPDATE {schema}.calls SET misses = misses + 1, object = object, reference = reference WHERE call_key = 'c'`)
			return nil
		}))
	}
	var all, hot int
	eventually(t, func() bool { // sessions tell once they are idle
		ok(t, s.calls.QueryRow(t.Context(), `SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables
			WHERE schemaname = $1 AND relname = 'calls'`, cfg.Schema).Scan(&all, &hot))
		return all == updates
	})
	if hot < updates-1 {
		t.Errorf("of %d updates %d were HOT", all, hot)
	}
}

// TestEarlierIsWrittenForRevisedCallsOnly: a call of one revision has no statement more than before.
func TestEarlierIsWrittenForRevisedCallsOnly(t *testing.T) {
	s := open(t, migrated(t))
	statements := func(r claims.Record, fresh bool) (earlier, all int) {
		q := &tx{s: s}
		ok(t, q.put(&r, fresh, false))
		for _, w := range q.writes {
			if strings.Contains(w.sql, "earlier") {
				earlier++
			}
		}
		return earlier, len(q.writes)
	}
	plain := handled("c")
	plain.Past = nil
	for _, fresh := range []bool{true, false} {
		if n, all := statements(plain, fresh); n != 0 || all != 1 {
			t.Errorf("%d of %d statements", n, all)
		}
		if n, all := statements(handled("c"), fresh); n != 1 || all != 2 {
			t.Errorf("%d of %d statements for a revised call", n, all)
		}
	}
}
