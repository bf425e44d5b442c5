package e2e

import (
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fence-sidecar/fence-sidecar/claims"
	"github.com/fence-sidecar/fence-sidecar/claims/postgres/pgtest"
	"github.com/fence-sidecar/fence-sidecar/gateways/sandbox"
)

// market is apps that make fresh charges one after the other, each until it is settled.
type market struct {
	over atomic.Bool
	wg   sync.WaitGroup
	mu   sync.Mutex
	paid map[string]string // call key to the payment's id
	errs []error
}

func newMarket(apps int, addrs ...string) *market {
	m := &market{paid: map[string]string{}}
	for app := range apps {
		m.wg.Go(func() {
			for i := 0; !m.over.Load(); i++ {
				key := fmt.Sprintf("app:%d:%d", app, i)
				p, err := insistAt(named(key), addrs...)
				m.mu.Lock()
				if err != nil {
					m.errs = append(m.errs, fmt.Errorf("%s: %w", key, err))
				} else {
					m.paid[key] = p.id()
				}
				m.mu.Unlock()
			}
		})
	}
	return m
}

func (m *market) size() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.paid)
}

// check lets the apps finish, and fails the test unless every charge is stored as the app saw it and was executed once.
func (m *market) check(t *testing.T, w *world, gateway *sandbox.Server) {
	t.Helper()
	m.over.Store(true)
	m.wg.Wait()
	if err := errors.Join(m.errs...); err != nil {
		t.Error(err)
	}
	ids := map[string][]string{} // by gateway key
	for _, o := range gateway.Ledger() {
		if o.Money {
			ids[o.Key] = append(ids[o.Key], o.ID)
		}
	}
	seen := 0
	for _, r := range w.all() {
		id, ok := m.paid[r.Key.Call]
		if !ok {
			continue
		}
		seen++
		if r.State != claims.StateSucceeded {
			t.Errorf("the app saw call %s succeed, the store has it %s", r.Key, r.State)
		}
		if got := ids[r.Facts.GatewayKey]; len(got) != 1 || got[0] != id {
			t.Errorf("call %s was executed as %v, the app was told of %q", r.Key, got, id)
		}
		delete(ids, r.Facts.GatewayKey)
	}
	if seen != len(m.paid) {
		t.Errorf("the apps saw %d calls succeed, the store has %d of them", len(m.paid), seen)
	}
	t.Logf("%d charges", seen)
}

// TestSynchronousFailover: the primary is killed under load and its synchronous standby promoted. Nothing that was
// acknowledged is lost, so that there is no quarantine.
func TestSynchronousFailover(t *testing.T) {
	t.Parallel()
	pair := pgtest.NewPair(t, pgtest.PairOptions{Synchronous: true})
	gateway, u := newSandbox(t, sandbox.Config{})
	db := at(fmt.Sprintf("postgres://postgres@%s,%s/postgres?sslmode=disable", pair.A.Addr(), pair.B.Addr()))
	db.failover = "synchronous"
	w := farWorld(t, settings{store: db, lease: "3s", gateway: []use{u}})
	a, b := w.pair()
	inject(t, gateway, sandbox.Fault{Name: "delay", Arg: "50ms", Times: -1}) // so that calls are under way at any moment
	m := newMarket(20, addresses("stripe", []*sidecar{a, b})...)
	eventually(t, "there is load", func() bool { return m.size() >= 40 })

	if err := errors.Join(pair.A.Kill(), pair.Promote(t.Context())); err != nil {
		t.Fatal(err)
	}
	servedWithin(t, 5*time.Second, "after:A", a)
	servedWithin(t, 5*time.Second, "after:B", b)
	before := m.size()
	eventually(t, "there is load again", func() bool { return m.size() >= before+40 })
	if n := w.era(pair.B); n != 0 {
		t.Errorf("a failover without loss began era %d", n)
	}
	for _, s := range []*sidecar{a, b} {
		if n := s.metric(`fence_refusals_total{gateway="stripe",reason="quarantine"}`); n != "" {
			t.Errorf("sidecar %s refused %s requests for a quarantine", s.name, n)
		}
	}
	w.see(pair.B)
	m.check(t, w, gateway)
	if n, calls := gateway.Moved(), len(w.all()); n != calls {
		t.Errorf("the gateway executed %d charges of %d calls", n, calls)
	}
	w.settled()
}

// wantQuarantine polls until the sidecar refuses a request because of a loss, and says for how long.
func wantQuarantine(t *testing.T, s *sidecar, r request, lease time.Duration) {
	t.Helper()
	var p reply
	eventually(t, "sidecar "+s.name+" notices the loss", func() bool {
		p = send(s.at("stripe"), r)
		if !p.closed() {
			t.Fatalf("want a quarantine, got %s", p)
		}
		return p.slug() == "quarantine"
	})
	if n := p.retryAfter(); n < 1 || n > int(lease.Seconds())+2 {
		t.Errorf("a quarantine of a lease of %s ends in %d s", lease, n)
	}
	p.wantResult(t, "unknown", "refused")
}

// TestAsynchronousFailoverWithLoss: the promoted standby lacks a call that was made and answered. The operator has accepted
// that in writing; what is left is that the call is not made again.
func TestAsynchronousFailoverWithLoss(t *testing.T) {
	t.Parallel()
	pair := pgtest.NewPair(t, pgtest.PairOptions{})
	name := pgtest.NewProxy(t, pair.A.Addr())
	gateway, u := newSandbox(t, sandbox.Config{})
	w := farWorld(t, settings{store: at(name.URL()), lease: "4s", gateway: []use{u}})
	a, b := w.pair()
	kept := insist(t, named("kept"), "stripe", a)
	token := a.ask("/v1/leases/acquire", "", wanted("order", "e2e", time.Second)).lease(t)
	if err := pair.CatchUp(t.Context()); err != nil {
		t.Fatal(err)
	}
	pair.StopReplication()
	lost := insist(t, named("lost"), "stripe", a)
	lost.wantResult(t, "succeeded", "sent")

	if err := errors.Join(pair.A.Kill(), pair.Promote(t.Context())); err != nil {
		t.Fatal(err)
	}
	name.Target(pair.B.Addr())
	if n, err := pgtest.Value[int](t.Context(), pair.B, `SELECT count(*) FROM fence.calls`); err != nil || n != 1 {
		t.Fatalf("the promoted server has %d calls, want the one that was kept: %v", n, err)
	}
	wantQuarantine(t, a, named("lost"), 4*time.Second)
	wantQuarantine(t, b, named("fresh"), 4*time.Second)
	if p := a.ask("/v1/leases/acquire", "", wanted("order", "e2e", time.Second)); p.slug() != "quarantine" || p.retryAfter() < 1 {
		t.Errorf("a lease in a quarantine: %s", p)
	}

	for _, s := range []*sidecar{b, a} {
		p := insistQuarantined(t, named("lost"), s)
		p.want(t, 200, "")
		if r := p.header("Fence-Result"); p.id() != lost.id() || r != "reconciled" && r != "replayed" {
			t.Errorf("the repeat of a lost call got another payment than %s: %s", lost.id(), p)
		}
		again := insistQuarantined(t, named("kept"), s)
		again.wantResult(t, "succeeded", "replayed")
		if string(again.body) != string(kept.body) {
			t.Errorf("what was kept is answered otherwise:\n%s\n%s", kept, again)
		}
	}
	insistQuarantined(t, named("fresh"), b).want(t, 200, "")
	next := b.ask("/v1/leases/acquire", "", wanted("order", "e2e", time.Second)).lease(t)
	if next.Token != token.Token+1+claims.TokenJump {
		t.Errorf("token %d after token %d and a loss", next.Token, token.Token)
	}
	w.see(pair.B)
	for _, key := range []string{"kept", "lost", "fresh"} {
		w.wantOnce(gateway, key, 1)
	}
	if n, era := gateway.Moved(), w.era(pair.B); n != 3 || era != 1 {
		t.Errorf("the gateway executed %d charges of 3 calls; era %d", n, era)
	}
	w.settled()
}

// insistQuarantined repeats until the answer is definite, as an app does that was told to wait.
func insistQuarantined(t *testing.T, r request, s *sidecar) (p reply) {
	t.Helper()
	eventually(t, "the call is settled", func() bool {
		p = send(s.at("stripe"), r)
		if !p.definite() && !p.mayRepeat() && p.slug() != "quarantine" {
			t.Fatalf("an answer that no repeat changes: %s", p)
		}
		return p.definite()
	})
	return p
}

// TestR43RestoredCopy: under living sidecars the database is replaced by a copy from before the claim.
func TestR43RestoredCopy(t *testing.T) {
	t.Parallel()
	for name, restore := range map[string]func(*testing.T, *pgtest.Server, *pgtest.Backup) error{
		"same timeline": func(t *testing.T, s *pgtest.Server, b *pgtest.Backup) error {
			return s.Restore(t.Context(), b)
		},
		"to a point in time": func(t *testing.T, s *pgtest.Server, b *pgtest.Backup) error {
			return s.RestoreNewTimeline(t.Context(), b)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := pgtest.New(t, pgtest.Options{})
			gateway, u := newSandbox(t, sandbox.Config{})
			w := farWorld(t, settings{store: at(server.URL()), lease: "4s", gateway: []use{u}})
			a, b := w.pair()
			insist(t, named("kept"), "stripe", b)
			copied, err := server.Backup(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			paid := insist(t, named("k"), "stripe", a)
			after := insist(t, named("later"), "stripe", a)

			if err := restore(t, server, copied); err != nil {
				t.Fatal(err)
			}
			wantQuarantine(t, a, named("k"), 4*time.Second)
			for key, paid := range map[string]reply{"k": paid, "later": after} {
				got := insistQuarantined(t, named(key), b)
				got.want(t, 200, "")
				got.wantResult(t, "succeeded", "reconciled")
				if got.id() != paid.id() {
					t.Errorf("the repeat got another payment than %s: %s", paid.id(), got)
				}
			}
			insistQuarantined(t, named("kept"), a).wantResult(t, "succeeded", "replayed")
			w.see(server)
			w.wantOnce(gateway, "k", 1)
			w.wantOnce(gateway, "kept", 1)
			w.wantOnce(gateway, "later", 1)
			if n, era := gateway.Moved(), w.era(server); n != 3 || era != 1 {
				t.Errorf("the gateway executed %d charges of 3 calls; era %d", n, era)
			}
		})
	}
}

// TestR43UnconfirmedServer: a server whose commits nobody confirms is refused by name unless the operator accepts the
// loss in writing.
func TestR43UnconfirmedServer(t *testing.T) {
	t.Parallel()
	_, u := newSandbox(t, sandbox.Config{})
	db := onPostgres(t)
	db.failover = "synchronous"
	w := farWorld(t, settings{store: db, gateway: []use{u}})
	s := w.spawn("A")
	code := s.wait()
	s.killed = true // it ended by itself, as it must
	if log := s.logs(); code == 0 || !strings.Contains(log, "synchronous_standby_names") || !strings.Contains(log, "may-lose") {
		t.Errorf("a sidecar without a confirming standby ended with exit code %d:\n%s", code, log)
	}
}
