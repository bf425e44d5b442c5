package postgres

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/fence-sidecar/fence-sidecar/claims"
	"github.com/fence-sidecar/fence-sidecar/claims/postgres/pgtest"
)

func early(id string) claims.Early {
	return claims.Early{Tenant: "shop", Gateway: "stripe", ID: id, Body: []byte(id)}
}

func given(t *testing.T, s *Store, limit int, want ...string) {
	t.Helper()
	list, err := s.Kept(t.Context(), nil, limit)
	ok(t, err)
	var got []string
	for _, e := range list {
		got = append(got, e.ID)
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("given: %v, want %v", got, want)
	}
}

// TestKeptSkipsWhatOthersGive: a row that another sidecar has locked is left to it, and comes in its turn if that one gives up.
func TestKeptSkipsWhatOthersGive(t *testing.T) {
	cfg := migrated(t)
	s := open(t, cfg)
	for _, id := range []string{"a", "b", "c"} {
		ok(t, s.Keep(t.Context(), early(id)))
	}
	b := block(t, cfg, `SELECT 1 FROM {schema}.notices WHERE id = 'a' FOR UPDATE`)
	given(t, s, 1, "b")
	given(t, s, 2, "c", "b")
	ok(t, b.tx.Rollback(t.Context()))
	given(t, s, 3, "a", "b", "c") // b and c were given together
}

// TestInboxOfSeveralSidecars: what two keep at the same time is counted by both.
func TestInboxOfSeveralSidecars(t *testing.T) {
	cfg := migrated(t)
	a, b := open(t, cfg), open(t, cfg)
	alter(t, cfg, `INSERT INTO {schema}.notices (tenant, gateway, id, body, at_store, at_wall)
		SELECT 'shop', 'filled', convert_to(n::text, 'UTF8'), '', 0, 0 FROM generate_series(1, $1) n`, claims.MaxEarly-3)
	var kept, refused atomic.Int64
	var wg sync.WaitGroup
	for i := range 10 {
		for _, s := range []*Store{a, b} {
			wg.Go(func() {
				switch err := s.Keep(t.Context(), early(fmt.Sprintf("%d of %p", i, s))); {
				case err == nil:
					kept.Add(1)
				case claims.Refused(err):
					refused.Add(1)
				default:
					t.Error(err)
				}
			})
		}
	}
	wg.Wait()
	n, err := pgtest.Value[int](t.Context(), pgtest.Shared(t), a.schema.sql(`SELECT count(*) FROM {schema}.notices`))
	if err != nil || n != claims.MaxEarly || kept.Load() != 3 || refused.Load() != 17 {
		t.Errorf("%d notices, %d kept, %d refused, %v", n, kept.Load(), refused.Load(), err)
	}
}

// TestInboxOfOneTenantHoldsNobodyElseUp: nor any other write.
func TestInboxOfOneTenantHoldsNobodyElseUp(t *testing.T) {
	cfg := migrated(t)
	s := open(t, cfg)
	held := make(chan struct{})
	ended := make(chan error, 1)
	free := make(chan struct{})
	go func() {
		ended <- s.write(t.Context(), s.calls, []statement{s.lockInbox("shop")}, func(*tx) error {
			close(held)
			<-free
			return nil
		})
	}()
	<-held
	other := early("a")
	other.Tenant = "other"
	ok(t, s.Keep(t.Context(), other))
	put(t, s, record("c"))
	given(t, s, 1, "a")
	ok(t, s.Drop(t.Context(), "shop", "stripe", "none"))
	waits := make(chan error, 1)
	go func() { waits <- s.Keep(t.Context(), early("a")) }()
	ok(t, pgtest.Shared(t).Wait(t.Context(), `select count(*) = 1 from pg_locks where locktype = 'advisory' and not granted`))
	close(free)
	ok(t, <-ended)
	ok(t, <-waits)
}

// TestPlansOfTheInbox: what is next is found by its index, a tenant's count by the names.
func TestPlansOfTheInbox(t *testing.T) {
	cfg := migrated(t)
	s := open(t, cfg)
	alter(t, cfg, `INSERT INTO {schema}.notices (tenant, gateway, id, body, at_store, at_wall, given)
		SELECT convert_to('shop ' || n % 5, 'UTF8'), 'g', convert_to(n::text, 'UTF8'), 'body', n, n, n FROM generate_series(1, 50000) n`)
	alter(t, cfg, `ANALYZE {schema}.notices`)
	for _, c := range [][2]string{
		{"notices_given", `SELECT id FROM {schema}.notices
			ORDER BY given, at_store, tenant, gateway, id LIMIT 10 FOR NO KEY UPDATE SKIP LOCKED`},
		{"notices_pkey", `SELECT EXISTS (SELECT 1 FROM {schema}.notices WHERE tenant = 'shop 1' LIMIT 1 OFFSET 9999)`},
		{"notices_given", `SELECT max(given) + 1 FROM {schema}.notices`},
	} {
		if plan := explain(t, s.calls, s.schema.sql(c[1])); !strings.Contains(plan, c[0]) || strings.Contains(plan, "Seq Scan") {
			t.Errorf("%s:\n%s", c[1], plan)
		}
	}
}
