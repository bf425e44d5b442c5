package e2e

import (
	"strings"
	"testing"
	"time"

	"github.com/fence-sidecar/fence-sidecar/claims"
	"github.com/fence-sidecar/fence-sidecar/gateways/sandbox"
)

// Zombies: who holds a lease freezes for longer than the lease, another holder takes the scope over through another sidecar
// and repeats the calls, and the first one goes on.

// handover is one gateway behind a relay, two sidecars, and beside A an application for each place at which A, the application
// or both freeze. Each application has a scope and a call key of its own, which are called like the place.
type handover struct {
	t       *testing.T
	w       *world
	gateway *sandbox.Server
	relay   *relay
	a, b    *sidecar
	apps    map[string]*app
	late    map[string]reply // what the application is told of its first request when all has gone on
}

// Where the application's first request stands when the world freezes.
const (
	beforeClaim    = "before the claim"
	claimed        = "claimed, no byte sent"
	sent           = "sent, not answered"
	executedUnread = "answered, not settled"
)

var places = []string{beforeClaim, claimed, sent, executedUnread}

func newHandover(t *testing.T, d database, attempt string, places ...string) *handover {
	t.Helper()
	cert, ca := certificate(t)
	h := &handover{t: t, apps: map[string]*app{}, late: map[string]reply{}}
	var u use
	h.gateway, u = newSandbox(t, sandbox.Config{TLS: cert.TLS()})
	h.relay = newRelay(t, strings.TrimPrefix(u.url, "https://"))
	u.url, u.ca, u.attempt = "https://"+h.relay.ln.Addr().String(), ca, attempt
	h.w = newWorld(t, settings{store: d, lease: "3s", maxTTL: "60s", gateway: []use{u}})
	h.a, h.b = h.w.pair()
	for _, place := range places {
		h.apps[place] = startApp(t, h.a, "stripe", place)
	}
	return h
}

// reach brings the application's requests to their places. release lets the gateway and the store go on.
func (h *handover) reach() (release func()) {
	h.t.Helper()
	for _, place := range []string{sent, executedUnread} {
		inject(h.t, h.gateway, sandbox.Fault{Name: "hold-after", Arg: place, Route: "POST /v1/**"})
		h.apps[place].charge(place)
		if err := h.gateway.WaitHold(h.t.Context(), place); err != nil {
			h.t.Fatal(err)
		}
	}
	connected := h.relay.count()
	h.relay.hold()
	h.apps[claimed].charge(claimed)
	eventually(h.t, "A has claimed and connected", func() bool {
		return h.relay.count() > connected && h.w.state(claimed) == claims.StatePending
	})
	unlock := h.w.holdCalls()
	h.gateway.Release(executedUnread)
	eventually(h.t, "A has read the gateway's answer", func() bool {
		return h.a.metric(`fence_attempts_total{cause="answered",gateway="stripe",wrote="yes"}`) == "1"
	})
	return func() {
		h.t.Helper()
		h.relay.release()
		h.gateway.Release(sent)
		unlock()
	}
}

// freezing is who freezes.
type freezing struct{ sidecar, app bool }

// freeze stops who is to be stopped, with the requests that are made before any claim on their way.
func (h *handover) freeze(who freezing) {
	h.t.Helper()
	if !who.sidecar { // the application wakes up with its charge still to be made
		h.apps[beforeClaim].freeze()
	}
	if who.sidecar { // the sidecar wakes up with the request in its socket
		h.a.stop()
	}
	h.apps[beforeClaim].charge(beforeClaim)
	if who.app {
		for _, a := range h.apps {
			a.freeze()
		}
	}
}

// wake lets all go on and waits for what the applications are told of their first request.
func (h *handover) wake(who freezing) {
	h.t.Helper()
	if who.sidecar {
		h.a.resume()
	}
	for place, a := range h.apps {
		if who.app {
			a.resume()
		}
		h.late[place] = await(h.t, a.replies)
	}
}

// takeOver makes another holder, through B, take a scope and make its call.
func (h *handover) takeOver(place string) (token string, got reply) {
	h.t.Helper()
	token = h.b.acquire(place, 60*time.Second)
	return token, insist(h.t, charge(place).under(token), "stripe", h.b)
}

func TestHandover(t *testing.T) {
	t.Parallel()
	for name, who := range map[string]freezing{
		"the sidecar freezes":     {sidecar: true},
		"the application freezes": {app: true},
		"both freeze":             {sidecar: true, app: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			onBoth(t, func(t *testing.T, d database) { testHandover(t, d, who) })
		})
	}
}

func testHandover(t *testing.T, d database, who freezing) {
	h := newHandover(t, d, "2s", places...)
	release := h.reach()
	h.freeze(who)
	if !who.sidecar { // A settles at once if it can: the hand-over comes first
		h.w.leaseOver(executedUnread)
	}
	release()
	for _, place := range places {
		h.w.leaseOver(place)
	}
	tokens, answers := map[string]string{}, map[string]reply{}
	for _, place := range places {
		tokens[place], answers[place] = h.takeOver(place)
	}
	h.wake(who)
	for _, place := range places {
		t.Run(place, func(t *testing.T) { h.check(t, place, tokens[place], answers[place]) })
	}
	if n := len(h.gateway.Sends("POST")); n != len(places) {
		t.Errorf("the gateway got %d sends, want %d", n, len(places))
	}
	if n := h.gateway.Moved(); n != len(places) {
		t.Errorf("the gateway executed %d charges, want %d", n, len(places))
	}
	h.w.settled()
}

// check is what must hold at a place: one charge, which the new holder is told of and the old one is not, unless it learnt of
// it from the gateway itself.
func (h *handover) check(t *testing.T, place, token string, got reply) {
	rec := h.w.record(place)
	if n := h.gateway.Executed(rec.Facts.GatewayKey); n != 1 || rec.State != claims.StateSucceeded {
		t.Errorf("executed %d times, record %s", n, rec.State)
	}
	got.want(t, 200, "")
	if l := got.header("Fence-Lease"); l != "live" {
		t.Errorf("the new holder is told that its lease is %s", l)
	}
	late := h.late[place]
	switch {
	case place == beforeClaim:
		late.wantFenced(t)
	case late.definite():
		if late.id() != got.id() || late.header("Fence-Lease") == "instance" {
			t.Errorf("the old holder was told of another charge than the new one (%s): %s", got.id(), late)
		}
	case late.slug() != "fenced" && !late.mayRepeat():
		t.Errorf("the old holder's first answer: %s", late)
	}
	if late.header("Fence-Outcome") == "not-executed" && late.header("Fence-Lease") != "live" {
		t.Errorf("a holder that was superseded is told that nothing was executed: %s", late)
	}
	a := h.apps[place]
	a.charge(place)
	await(t, a.replies).wantFenced(t)
	for _, s := range []*sidecar{h.a, h.b} {
		again := insist(t, charge(place).under(token), "stripe", s)
		if string(again.body) != string(got.body) || again.header("Fence-Lease") != "live" {
			t.Errorf("through sidecar %s the new holder gets another answer:\n%s\n%s", s.name, got, again)
		}
	}
	send(h.b.at("stripe"), charge(place).under(a.token)).wantFenced(t)
}
