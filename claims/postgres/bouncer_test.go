//go:build pgbouncer

package postgres

import (
	"net/url"
	"testing"
	"time"

	"github.com/fence-sidecar/fence-sidecar/claims"
	"github.com/fence-sidecar/fence-sidecar/claims/claimstest"
	"github.com/fence-sidecar/fence-sidecar/claims/postgres/pgtest"
)

// TestRulesThroughPgBouncer: the whole suite through a pooler with three server connections.
func TestRulesThroughPgBouncer(t *testing.T) {
	for _, mode := range []string{"transaction", "session"} {
		t.Run(mode, func(t *testing.T) {
			server := pgtest.Shared(t)
			bouncer := pgtest.NewBouncer(t, server.Addr(), pgtest.BouncerOptions{PoolMode: mode})
			claimstest.Run(t, func(t *testing.T) claimstest.Harness {
				_, schema := server.Schema(t)
				cfg := migrate(t, server.URL(), schema)
				cfg.URL = bouncer.URL()
				if mode == "session" {
					cfg.Connections = 3 // each keeps one of the server's
				}
				h := rules(t, cfg)
				direct := Config{URL: server.URL(), Schema: schema}
				h.Spoil = func(k claims.Key) {
					alter(t, direct, `UPDATE {schema}.calls SET state = 'martian' WHERE tenant = $1 AND call_key = $2`, []byte(k.Tenant), []byte(k.Call))
				}
				h.Lose = func() time.Duration {
					alter(t, direct, `UPDATE {schema}.store SET system_id = 'another'`)
					if _, err := h.Backend.State(t.Context(), "shop:any"); err != nil { // notices it
						t.Fatal(err)
					}
					return 24*time.Hour + time.Second
				}
				return h
			})
		})
	}
}

// TestMigrateThroughPgBouncer: and no session setting is asked for that the pooler would refuse.
func TestMigrateThroughPgBouncer(t *testing.T) {
	server := pgtest.Shared(t)
	_, schema := server.Schema(t)
	bouncer := pgtest.NewBouncer(t, server.Addr(), pgtest.BouncerOptions{})
	u, err := url.Parse(bouncer.URL())
	ok(t, err)
	q := u.Query()
	q.Set("application_name", "sidecar")
	u.RawQuery = q.Encode()
	everything(t, open(t, migrate(t, u.String(), schema)))
}
