package e2e

import (
	"errors"
	"testing"
	"time"

	"github.com/fence-sidecar/fence-sidecar/claims"
	"github.com/fence-sidecar/fence-sidecar/claims/postgres/pgtest"
	"github.com/fence-sidecar/fence-sidecar/gateways/sandbox"
)

// doubtful is a sidecar that reaches its store through a proxy.
type doubtful struct {
	*testing.T
	w       *world
	a       *sidecar
	proxy   *pgtest.Proxy
	gateway *sandbox.Server
}

func newDoubtful(t *testing.T, server *pgtest.Server, lease string) doubtful {
	t.Helper()
	d := doubtful{T: t}
	var db database
	if server == pgtest.Shared(t) {
		db, d.proxy = behind(t)
	} else {
		d.proxy = pgtest.NewProxy(t, server.Addr())
		db = at(d.proxy.URL())
	}
	var u use
	d.gateway, u = newSandbox(t, sandbox.Config{})
	u.attempt = "30s" // it is the lease that ends first
	d.w = farWorld(t, settings{store: db, lease: lease, gateway: []use{u}})
	d.w.see(server)
	d.a = d.w.start("A")
	return d
}

// paid fails the test unless the reply is the gateway's own, of one send and one execution, and stored.
func (d doubtful) paid(p reply) {
	d.Helper()
	p.want(d.T, 200, "")
	p.wantResult(d.T, "succeeded", "sent")
	d.w.wantState("k", claims.StateSucceeded)
	d.w.wantOnce(d.gateway, "k", 1)
	again := send(d.a.at("stripe"), named("k"))
	again.wantResult(d.T, "succeeded", "replayed")
	if string(again.body) != string(p.body) {
		d.Errorf("the stored answer is another one:\n%s\n%s", p, again)
	}
}

// happened waits for a caught statement.
func (d doubtful) happened(c *pgtest.Catch) {
	d.Helper()
	select {
	case <-c.Done():
	case <-time.After(patience):
		d.Fatal("the statement never came")
	}
}

// TestR42CommitAnswerLost: nobody knows whether the commit of the claim, or of the answer, was applied. The sidecar reads
// the row again: one send, and the app gets the gateway's answer.
func TestR42CommitAnswerLost(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name    string
		write   func(string) bool
		action  pgtest.Action
		applied bool
	}{
		{"claim, applied", into("INSERT", "calls"), pgtest.DropAnswer, true},
		{"claim, not applied", into("INSERT", "calls"), pgtest.DropRequest, false},
		{"settle, applied", into("INSERT", "answers"), pgtest.DropAnswer, true},
		{"settle, not applied", into("INSERT", "answers"), pgtest.DropRequest, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			d := newDoubtful(t, pgtest.Shared(t), "6s")
			caught := d.proxy.On(c.write, 1, c.action)
			p := send(d.a.at("stripe"), named("k"))
			d.happened(caught)
			if tags := caught.Answer(); c.applied != pgtest.IsCommit(tags[max(0, len(tags)-len("COMMIT SELECT 1")):]) {
				t.Errorf("the server answered %q", tags)
			}
			d.paid(p)
		})
	}
	t.Run("claim, server killed", func(t *testing.T) {
		t.Parallel()
		server := pgtest.New(t, pgtest.Options{})
		d := newDoubtful(t, server, "6s")
		caught := d.proxy.On(into("INSERT", "calls"), 1, pgtest.HoldRequest)
		first := later(d.a.at("stripe"), named("k"))
		d.happened(caught)
		if err := errors.Join(server.Kill(), server.Start(t.Context())); err != nil {
			t.Fatal(err)
		}
		caught.Release()
		p := await(t, first)
		if p.closed() { // also right: nothing was sent for it
			if n := sendsOf(d.gateway)["k"]; n != 0 {
				t.Errorf("%d sends of a call that was refused: %s", n, p)
			}
			p = insist(t, named("k"), "stripe", d.a)
		}
		d.paid(p)
	})
}

// TestR42CommitAnswerLate: the claim's lease runs out while its commit is not confirmed. Nothing is sent on it, whether the
// answer comes at last or never.
func TestR42CommitAnswerLate(t *testing.T) {
	t.Parallel()
	for _, answered := range []bool{true, false} {
		name := map[bool]string{true: "at last", false: "never"}[answered]
		t.Run("app lease, "+name, func(t *testing.T) {
			t.Parallel()
			d := newDoubtful(t, pgtest.Shared(t), "6s")
			token := d.a.acquire("order", 2*time.Second)
			caught := d.proxy.On(into("INSERT", "calls"), 1, pgtest.HoldAnswer)
			first := later(d.a.at("stripe"), named("k").under(token))
			d.happened(caught)
			d.w.leaseOver("order")
			if answered {
				caught.Release()
			}
			await(t, first).want(t, 409, "fenced")
			if n := sendsOf(d.gateway)["k"]; n != 0 {
				t.Errorf("%d sends on a claim whose lease had run out", n)
			}
			caught.Release()
			// The next holder gets the call done.
			next := d.a.acquire("order", 6*time.Second)
			insist(t, named("k").under(next), "stripe", d.a).wantResult(t, "succeeded", "sent")
			d.w.wantOnce(d.gateway, "k", 1)
		})
	}
	t.Run("instance lease", func(t *testing.T) {
		t.Parallel()
		d := newDoubtful(t, pgtest.Shared(t), "2s")
		caught := d.proxy.On(into("INSERT", "calls"), 1, pgtest.HoldAnswer)
		first := later(d.a.at("stripe"), named("k"))
		d.happened(caught)
		d.proxy.Stall() // no renewal gets through
		d.a.leaseOver()
		caught.Release()
		if err := d.proxy.Heal(); err != nil {
			t.Fatal(err)
		}
		if p := await(t, first); !p.closed() {
			t.Errorf("want a refusal, got %s", p)
		}
		if n := sendsOf(d.gateway)["k"]; n != 0 {
			t.Errorf("%d sends on a claim whose lease had run out", n)
		}
		insist(t, named("k"), "stripe", d.a).wantResult(t, "succeeded", "sent")
		d.w.wantOnce(d.gateway, "k", 1)
	})
}

// TestR47ReadOnlyServer: the server turns read-only under living connections; some seconds later another one with the same
// data takes over behind the same name.
func TestR47ReadOnlyServer(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		turn func(t *testing.T, pair *pgtest.Pair, name *pgtest.Proxy) // returns when new transactions are read-only
		over func(t *testing.T, pair *pgtest.Pair, name *pgtest.Proxy)
	}{
		"setting": {
			func(t *testing.T, pair *pgtest.Pair, _ *pgtest.Proxy) {
				if err := pair.A.Set(t.Context(), "default_transaction_read_only", "on"); err != nil {
					t.Fatal(err)
				}
			},
			func(t *testing.T, pair *pgtest.Pair, name *pgtest.Proxy) { // A lives on, and so do the connections to it
				if err := pair.Promote(t.Context()); err != nil {
					t.Fatal(err)
				}
				name.Target(pair.B.Addr())
			},
		},
		"standby": {
			func(t *testing.T, pair *pgtest.Pair, name *pgtest.Proxy) {
				name.Cut()
				name.Target(pair.B.Addr())
				if err := name.Heal(); err != nil {
					t.Fatal(err)
				}
			},
			func(t *testing.T, pair *pgtest.Pair, _ *pgtest.Proxy) {
				if err := errors.Join(pair.A.Kill(), pair.Promote(t.Context())); err != nil {
					t.Fatal(err)
				}
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			pair := pgtest.NewPair(t, pgtest.PairOptions{Synchronous: true})
			name := pgtest.NewProxy(t, pair.A.Addr())
			gateway, u := newSandbox(t, sandbox.Config{})
			u.attempt = "30s"
			db := at(name.URL())
			db.failover = "synchronous"
			w := farWorld(t, settings{store: db, lease: "3s", gateway: []use{u}})
			a := w.start("A")
			inject(t, gateway, sandbox.Fault{Name: "hold-after"})
			inject(t, gateway, sandbox.Fault{Name: "list-lag", Arg: "1h"}) // only the sender knows what the gateway did
			first := later(a.at("stripe"), named("first"))
			waitHold(t, gateway)

			c.turn(t, pair, name)
			from := time.Now()
			load := newStream(t, "load", a.at("stripe"))
			gateway.Release("hold") // its answer comes when nothing can be stored
			time.Sleep(4 * time.Second)
			to := time.Now()
			c.over(t, pair, name)
			writes(t, name.URL())
			servedWithin(t, 5*time.Second, "after", a)
			load.check(t, gateway, from, to, 20)

			p := await(t, first)
			p.want(t, 200, "")
			p.wantResult(t, "succeeded", "sent")
			w.see(pair.B)
			w.wantState("first", claims.StateSucceeded)
			w.wantOnce(gateway, "first", 1)
			if r := w.record("first"); r.Reconciled || r.Answer == nil || string(r.Answer.Body) != string(p.body) {
				t.Errorf("what is stored is not the gateway's answer: %+v", r)
			}
			if n := w.era(pair.B); n != 0 {
				t.Errorf("a failover without loss began era %d", n)
			}
		})
	}
}
