package e2e

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fence-sidecar/fence-sidecar/claims"
	"github.com/fence-sidecar/fence-sidecar/gateways/sandbox"
)

// rig is a Stripe-like gateway over TLS behind a relay, and two sidecars.
type rig struct {
	t       *testing.T
	gateway *sandbox.Server
	relay   *relay
	w       *world
	a, b    *sidecar
	call    request
	first   <-chan reply // what the app gets for its first request, through A
}

const rigKey = "charge:order:42"

func newRig(t *testing.T, attempt string) *rig {
	t.Helper()
	cert, ca := certificate(t)
	r := &rig{t: t, gateway: sandbox.New(sandbox.Config{TLS: cert.TLS()}), call: charge(rigKey)}
	addr, err := r.gateway.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.gateway.Close() })
	r.relay = newRelay(t, addr.String())
	r.w = newWorld(t, settings{lease: "3s", gateway: []use{{
		builtin: "stripe", url: "https://" + r.relay.ln.Addr().String(), ca: ca, attempt: attempt,
	}}})
	r.a, r.b = r.w.pair()
	return r
}

func (r *rig) charge() { r.first = later(r.a.at("stripe"), r.call) }

// point is a place where a process can end or freeze. reach brings A there; release, called after the signal, lets the
// rest of the world go on.
type point struct {
	name  string
	reach func(r *rig) (release func())
	// sends is how many POST the gateway gets if A never comes back; 0: more than one may be right.
	sends int
}

var points = []point{
	{"beforeSend", beforeSend, 1},
	{"afterSend", func(r *rig) func() { return held(r, "hold-before") }, 0},
	{"afterExecution", func(r *rig) func() { return held(r, "hold-after") }, 1},
	{"beforeSettle", beforeSettle, 1},
}

// beforeSend: the claim is written, the connection is in its handshake.
func beforeSend(r *rig) func() {
	r.relay.hold()
	r.charge()
	eventually(r.t, "A has claimed and connected", func() bool {
		return r.relay.count() > 0 && r.w.state(rigKey) == claims.StatePending
	})
	return r.relay.release
}

// held: the gateway has the request, and stands before or after its execution.
func held(r *rig, fault string) func() {
	inject(r.t, r.gateway, sandbox.Fault{Name: fault, Route: "POST /v1/**"})
	r.charge()
	waitHold(r.t, r.gateway)
	return func() { r.gateway.Release("hold") }
}

func waitHold(t *testing.T, g *sandbox.Server) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	if err := g.WaitHold(ctx, "hold"); err != nil {
		t.Fatalf("no request came to the gateway's hold: %v", err)
	}
}

// beforeSettle: A has the gateway's answer, and cannot write it: the test has the store's write lock.
func beforeSettle(r *rig) func() {
	answer := held(r, "hold-after")
	unlock := lock(r.t, r.w)
	answer()
	eventually(r.t, "A has read the gateway's answer", func() bool {
		return r.a.metric(`fence_attempts_total{cause="answered",gateway="stripe",wrote="yes"}`) == "1"
	})
	return unlock
}

// lock takes the SQLite file's write lock.
func lock(t *testing.T, w *world) (unlock func()) {
	t.Helper()
	end, err := begin(w, 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	w.locked = true
	return func() {
		t.Helper()
		w.locked = false
		if err := end(); err != nil {
			t.Fatal(err)
		}
	}
}

// writable reports whether a writer gets the file's lock within a second.
func writable(t *testing.T, w *world) bool {
	t.Helper()
	end, err := begin(w, time.Second)
	if err == nil {
		err = end()
	}
	if err != nil && !strings.Contains(err.Error(), "SQLITE_BUSY") {
		t.Fatal(err)
	}
	return err == nil
}

// begin starts a write transaction; end rolls it back.
func begin(w *world, patience time.Duration) (end func() error, err error) {
	db, err := sql.Open("sqlite", fmt.Sprintf("file:%s?mode=rw&_pragma=busy_timeout(%d)", filepath.Join(w.dir, "fence.db"), patience.Milliseconds()))
	if err != nil {
		return nil, err
	}
	c, err := db.Conn(context.Background())
	if err == nil {
		_, err = c.ExecContext(context.Background(), "BEGIN IMMEDIATE")
	}
	if err != nil {
		db.Close()
		return nil, err
	}
	return func() error {
		_, err := c.ExecContext(context.Background(), "ROLLBACK")
		return errors.Join(err, c.Close(), db.Close())
	}, nil
}

// check is what must hold however the story went: one charge, its answer given everywhere, nothing left open.
func (r *rig) check(p point, got reply, all ...*sidecar) {
	r.t.Helper()
	ledger := r.gateway.Ledger()
	if len(ledger) != 1 || r.gateway.Moved() != 1 {
		r.t.Fatalf("the gateway executed %d charges, want 1: %+v", len(ledger), ledger)
	}
	got.want(r.t, 200, "")
	if got.id() != ledger[0].ID {
		r.t.Errorf("the app was told of %q, the gateway executed %q", got.id(), ledger[0].ID)
	}
	if n := len(r.gateway.Sends("POST")); p.sends > 0 && n != p.sends {
		r.t.Errorf("the gateway got %d sends, want %d", n, p.sends)
	}
	r.w.wantState(rigKey, claims.StateSucceeded)
	r.w.settled()
	for _, s := range all {
		again := send(s.at("stripe"), r.call)
		again.want(r.t, 200, "")
		if res := again.header("Fence-Result"); again.header("Fence-Outcome") != "succeeded" || res != "replayed" && res != "reconciled" {
			r.t.Errorf("sidecar %s does not repeat the stored answer: %s", s.name, again)
		}
		if string(again.body) != string(got.body) {
			r.t.Errorf("sidecar %s answers otherwise:\n%s\n%s", s.name, got, again)
		}
	}
}

// TestKill: A is killed; the app goes on through B, and through A started again.
func TestKill(t *testing.T) {
	t.Parallel()
	for _, p := range points {
		t.Run(p.name, func(t *testing.T) {
			r := newRig(t, "2s")
			release := p.reach(r)
			r.a.kill()
			if got := await(t, r.first); got.err == nil {
				t.Errorf("a killed sidecar answered: %s", got)
			}
			release()
			got := insist(t, r.call, "stripe", r.b)
			restarted := r.w.start("A again")
			r.check(p, got, r.b, restarted)
		})
	}
}

// TestKill_bites: a gateway that breaks its word (it ignores keys, and hides what it did) charges twice. The count of
// the ledger, on which every other test here rests, must see that.
func TestKill_bites(t *testing.T) {
	t.Parallel()
	r := newRig(t, "2s")
	release := held(r, "hold-after")
	inject(t, r.gateway, sandbox.Fault{Name: "ignore-key"})
	inject(t, r.gateway, sandbox.Fault{Name: "list-lag", Arg: "1h"})
	r.a.kill()
	await(t, r.first)
	release()
	insist(t, r.call, "stripe", r.b)
	if n := r.gateway.Moved(); n != 2 {
		t.Fatalf("the ledger has %d charges of a gateway that charges twice", n)
	}
}

// TestKill_restart: A is killed and started again; the app knows no other sidecar. The restarted one waits for nothing but
// the dead one's deadline and lease.
func TestKill_restart(t *testing.T) {
	t.Parallel()
	for _, p := range points {
		t.Run(p.name, func(t *testing.T) {
			r := newRig(t, "2s")
			release := p.reach(r)
			r.a.kill()
			await(t, r.first)
			release()
			restarted := r.w.start("A again")
			r.check(p, insist(t, r.call, "stripe", restarted), r.b, restarted)
		})
	}
}

// TestKill_declined: the gateway had said no; the repeat is told so, and nothing is charged.
func TestKill_declined(t *testing.T) {
	t.Parallel()
	r := newRig(t, "2s")
	r.call.body = strings.Replace(r.call.body, "tok_visa", "tok_chargeDeclined", 1)
	release := held(r, "hold-after")
	r.a.kill()
	await(t, r.first)
	release()
	got := insist(t, r.call, "stripe", r.b)
	got.want(t, 402, "")
	if got.header("Fence-Outcome") != "declined" {
		t.Errorf("want declined, got %s", got)
	}
	if n := len(r.gateway.Ledger()); n != 0 {
		t.Errorf("the gateway executed %d charges of a declined card", n)
	}
	r.w.wantState(rigKey, claims.StateDeclined)
}

// TestStop: A freezes for longer than its lease, B takes the call over, A goes on.
func TestStop(t *testing.T) {
	t.Parallel()
	for _, p := range points {
		t.Run(p.name, func(t *testing.T) {
			r := newRig(t, "2s")
			release := p.reach(r)
			r.a.stop()
			release()
			r.a.leaseOver()
			got := insist(t, r.call, "stripe", r.b)
			r.a.resume()
			late := await(t, r.first)
			if late.definite() && late.id() != got.id() {
				t.Errorf("the frozen sidecar answered with another charge:\n%s\n%s", got, late)
			}
			if !late.definite() && !late.mayRepeat() {
				t.Errorf("the frozen sidecar's answer stops the app from asking again: %s", late)
			}
			// A takes its lease again on its own; until then it refuses.
			insist(t, r.call, "stripe", r.a)
			r.check(p, got, r.a, r.b)
		})
	}
}

// TestStop_leaseOnly: A's lease runs out before the first byte while the attempt's own time does not. It must not send,
// and says that nothing was.
func TestStop_leaseOnly(t *testing.T) {
	t.Parallel()
	r := newRig(t, "50s")
	release := beforeSend(r)
	r.a.stop()
	release()
	r.a.leaseOver()
	busy := send(r.b.at("stripe"), r.call)
	busy.want(t, 409, "in-flight")
	r.a.resume()
	late := await(t, r.first)
	late.want(t, 503, "instance-lease-lost")
	if n := len(r.gateway.Sends("POST")); n != 0 {
		t.Fatalf("A sent %d times although its lease had run out", n)
	}
	// The record can no longer be read under this request's fence, so that the app may also be told: unknown.
	if o := late.header("Fence-Outcome"); o != "not-executed" && o != "unknown" {
		t.Errorf("nothing was sent, but the app is told: %s", late)
	}
	r.w.wantState(rigKey, claims.StateOpen)
	got := insist(t, r.call, "stripe", r.b)
	r.check(points[0], got, r.b)
}

// TestStop_withWriteLock: what holds the store's write lock freezes. Nobody can claim, so that nothing is sent; once it
// goes on, or is gone, so does everybody.
func TestStop_withWriteLock(t *testing.T) {
	t.Parallel()
	r := newRig(t, "2s")
	unlock := lock(t, r.w) // it does not matter who holds it
	r.b.leaseOver()
	for range 3 {
		p := send(r.b.at("stripe"), r.call)
		if s := p.slug(); p.status != 503 || s != "instance-lease-lost" && s != "store-unavailable" {
			t.Errorf("without a store: %s", p)
		}
	}
	if n := len(r.gateway.Sends("POST")); n != 0 {
		t.Errorf("%d sends without a claim", n)
	}
	unlock()
	r.check(points[0], insist(t, r.call, "stripe", r.b), r.b)
}
