//go:build pgbouncer

package e2e

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/fence-sidecar/fence-sidecar/claims"
	"github.com/fence-sidecar/fence-sidecar/claims/postgres/pgtest"
	"github.com/fence-sidecar/fence-sidecar/gateways/sandbox"
)

// TestR48PgBouncer: a pooler between two sidecars and the server, with three connections to it for both of them where it
// pools transactions. Everything works as without, and the server never met a statement of somebody else's session.
func TestR48PgBouncer(t *testing.T) {
	t.Parallel()
	for mode, o := range map[string]pgtest.BouncerOptions{
		"transaction": {},
		"session": { // each session keeps one
			PoolMode: "session", Conf: map[string]string{"default_pool_size": "9", "max_db_connections": "9"},
		},
	} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			testPgBouncer(t, o)
		})
	}
}

func testPgBouncer(t *testing.T, o pgtest.BouncerOptions) {
	server := pgtest.New(t, pgtest.Options{Conf: map[string]string{"log_line_prefix": "%m [%p] %e "}})
	bouncer := pgtest.NewBouncer(t, server.Addr(), o)
	gateway, u := newSandbox(t, sandbox.Config{})
	u.attempt = "4s"
	db := at(bouncer.URL())
	db.connections = 4
	w := farWorld(t, settings{store: db, lease: "3s", gateway: []use{u}})
	w.see(server)
	a, b := w.pair()

	paid := send(a.at("stripe"), named("paid"))
	paid.wantResult(t, "succeeded", "sent")
	again := send(b.at("stripe"), named("paid"))
	again.wantResult(t, "succeeded", "replayed")
	if string(again.body) != string(paid.body) {
		t.Errorf("B answers otherwise:\n%s\n%s", paid, again)
	}

	token := a.acquire("order", 2*time.Second)
	send(a.at("stripe"), named("leased").under(token)).wantResult(t, "succeeded", "sent")
	if l := a.ask("/v1/leases/confirm", token, "{}").lease(t); l.Trusted <= 0 {
		t.Errorf("a confirmed lease: %+v", l)
	}
	if p := b.ask("/v1/leases/acquire", "", wanted("order", "another", time.Second)); p.slug() != "held" {
		t.Errorf("a held scope was granted: %s", p)
	}
	a.release(token)
	next := b.acquire("order", 2*time.Second)
	send(b.at("stripe"), named("leased").under(token)).want(t, 409, "fenced")
	send(b.at("stripe"), named("leased").under(next)).wantResult(t, "succeeded", "replayed")
	b.release(next)

	for key, p := range many("many", 50, a.at("stripe")) {
		p.want(t, 200, "")
		w.wantOnce(gateway, key, 1)
	}

	inject(t, gateway, sandbox.Fault{Name: "hold-after"})
	first := later(a.at("stripe"), named("taken over"))
	waitHold(t, gateway)
	a.kill()
	await(t, first)
	gateway.Release("hold")
	insist(t, named("taken over"), "stripe", b).want(t, 200, "")
	w.wantState("taken over", claims.StateSucceeded)
	w.wantOnce(gateway, "taken over", 0)

	if n := gateway.Moved(); n != 53 {
		t.Errorf("the gateway executed %d charges of 53 calls", n)
	}
	w.settled()
	theirs := serverLog(t, server)
	if !strings.Contains(theirs, "] 00000 ") {
		t.Error("the server's log has no SQLSTATE")
	}
	for _, code := range []string{"42P05", "26000", "08P01"} {
		if strings.Contains(a.logs()+b.logs(), "SQLSTATE "+code) || strings.Contains(theirs, "] "+code+" ") {
			t.Errorf("a log says %s", code)
		}
	}
}

// serverLog is the server's log, in which each error has its SQLSTATE.
func serverLog(t *testing.T, s *pgtest.Server) string {
	t.Helper()
	b, err := os.ReadFile(s.LogFile())
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}
