package e2e

import (
	"testing"
	"time"

	"github.com/fence-sidecar/fence-sidecar/claims/postgres/pgtest"
	"github.com/fence-sidecar/fence-sidecar/gateways/sandbox"
)

// TestOutage: the store is away for longer than a lease and comes back, and the sidecar is not started again. Nothing new is
// sent meanwhile, the process stays alive, and what had been sent is answered and settled afterwards.
func TestOutage(t *testing.T) {
	t.Parallel()
	t.Run("sqlite", func(t *testing.T) {
		testOutage(t, database{}, func(w *world) func() { return lock(w.t, w) })
	})
	t.Run("postgres", func(t *testing.T) {
		server := pgtest.New(t, pgtest.Options{})
		url, schema := server.Schema(t)
		testOutage(t, database{url: url, schema: schema}, func(w *world) func() {
			if err := server.Stop(w.t.Context(), pgtest.Fast); err != nil {
				w.t.Fatal(err)
			}
			return func() {
				w.t.Helper()
				if err := server.Start(w.t.Context()); err != nil {
					w.t.Fatal(err)
				}
			}
		})
	})
}

func testOutage(t *testing.T, d database, away func(*world) (back func())) {
	gateway, u := newSandbox(t, sandbox.Config{})
	u.attempt = "40s"
	w := newWorld(t, settings{store: d, lease: "3s", maxTTL: "60s", gateway: []use{u}})
	s := scoped{world: w, gateway: gateway, a: w.start("A")}
	token := s.a.acquire("order", minute)
	under, answerUnder := s.inFlight("under", token)
	bare, answerBare := s.inFlight("bare", "")
	back := away(w)
	eventually(t, "A has lost its own lease", func() bool { code, _ := s.a.get("/readyz"); return code == 503 })
	answerUnder()
	answerBare()
	for what, r := range map[string]request{"new": charge("new"), "new, under a token": charge("new").under(token), "sent": charge("under").under(token)} {
		p := s.charge(r.with("Fence-Timeout: 12"))
		slug := p.slug()
		reads := d.url == "" // SQLite only takes no writes: what can be told from reading is told
		if !(slug == "store-unavailable" || reads && (slug == "instance-lease-lost" || what == "sent" && slug == "in-flight")) {
			t.Errorf("%s: without a store: %s", what, p)
		}
		if p.header("Fence-Outcome") != "unknown" || p.retryAfter() < 1 {
			t.Errorf("%s: without a store the app is told: %s", what, p)
		}
	}
	if p := s.a.ask("/v1/leases/confirm", token, "{}"); p.status != 503 || p.slug() != "store-unavailable" {
		t.Errorf("without a store the lease API says: %s", p)
	}
	if code, _ := s.a.get("/livez"); code != 200 {
		t.Errorf("livez %d: a restart would mend nothing", code)
	}
	if n := len(gateway.Sends("POST")); n != 2 {
		t.Errorf("%d sends while there was no store", n-2)
	}
	back()
	began := time.Now()
	for what, first := range map[string]<-chan reply{"under a token": under, "without one": bare} {
		p := await(t, first)
		p.want(t, 200, "")
		p.wantResult(t, "succeeded", "sent")
		if ledger := gateway.Ledger(); p.id() != ledger[0].ID && p.id() != ledger[1].ID {
			t.Errorf("the call %s was told of another charge: %s", what, p)
		}
	}
	insist(t, charge("new").under(token), "stripe", s.a).want(t, 200, "")
	if took := time.Since(began); took > 30*time.Second {
		t.Errorf("served again %s after the store was back", took)
	}
	for key, token := range map[string]string{"under": token, "bare": ""} {
		r := charge(key)
		if token != "" {
			r = r.under(token)
		}
		insist(t, r, "stripe", s.a).wantResult(t, "succeeded", "replayed")
	}
	w.settled()
	s.wantSends(3)
}
