package e2e

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fence-sidecar/fence-sidecar/claims"
	"github.com/fence-sidecar/fence-sidecar/gateways"
	"github.com/fence-sidecar/fence-sidecar/gateways/sandbox"
)

// player is a gateway as the scenarios below use it, each played by the sandbox with its real paths, fields and errors.
type player struct {
	name string
	open func(t *testing.T, cfg sandbox.Config) (*sandbox.Server, use)
	// pay is a payment that goes through. before makes at the gateway what it needs.
	pay    func(key, needs string) request
	before func(t *testing.T, gateway *sandbox.Server, url string) string
	// decline and slow make it one that is declined (nil: nothing is, at once), and one whose outcome comes later.
	decline, slow func(request) request
	// finds: the gateway can be asked. asks: a repeat under the same key is the question.
	finds, asks bool
	// stored: a 500 after the charge stands under the key, and nothing else tells: the call stays in doubt.
	stored bool
	// told: where the money of the slow payment is can be read.
	told bool
	// steps are what lies between the slow payment and its end, such as an authorisation.
	steps int
	// moving is the id of what moves on, in an answer; nil: it is the call's object.
	moving func(answer []byte) string
}

func players() []player {
	return []player{
		{
			name: "stripe", finds: true, asks: true, told: true,
			open: func(t *testing.T, cfg sandbox.Config) (*sandbox.Server, use) { return newSandbox(t, cfg) },
			pay: func(key, _ string) request {
				r := charge(key)
				r.target, r.body = "/v1/payment_intents", "amount=4990&currency=eur&confirm=true&payment_method=pm_card_visa"
				return r
			},
			decline: replacing("pm_card_visa", "pm_card_chargeDeclined"),
			slow:    replacing("pm_card_visa", "pm_usBankAccount_processing"),
		},
		{
			name: "acme", finds: true, asks: true, told: true,
			open:    func(t *testing.T, cfg sandbox.Config) (*sandbox.Server, use) { return acme(t, cfg) },
			pay:     func(key, _ string) request { return pay(key) },
			decline: replacing(`"ok"`, `"declined"`), slow: replacing(`"ok"`, `"slow"`),
		},
		{
			name: "checkout", finds: true, told: true, steps: 1,
			open: played("checkout", ""),
			pay: jsonCall("/payments", `{"source":{"type":"card","number":"4242424242424242","expiry_month":12,"expiry_year":2034,"cvv":"100"},`+
				`"amount":4900,"currency":"GBP"}`),
			decline: replacing("4900", "2005"), slow: faulty("processing"),
		},
		{
			name: "gocardless", finds: true, asks: true, told: true,
			open: played("gocardless", ""),
			pay:  jsonCall("/payments", `{"payments":{"amount":4990,"currency":"GBP","links":{"mandate":"MD000SANDBOX1"}}}`, "GoCardless-Version: 2015-07-06"),
			slow: func(r request) request { return r },
		},
		{
			name: "adyen", asks: true, stored: true,
			open: played("adyen", ""),
			pay: jsonCall("/v72/payments", `{"amount":{"value":4990,"currency":"EUR"},"merchantAccount":"ShopEU","returnUrl":"https://shop.example","paymentMethod":{"type":"scheme"},`+
				`"additionalData":{"x":"y"}}`, "X-API-Key: "+secret),
			decline: replacing(`"x":"y"`, `"RequestedTestAcquirerResponseCode":"2"`), slow: faulty("processing"),
		},
		{
			name: "paypal", asks: true, told: true,
			open: played("paypal", ""),
			pay: jsonCall("/v2/checkout/orders", `{"intent":"CAPTURE","purchase_units":[{"amount":{"currency_code":"USD","value":"49.90"}}],`+
				`"payment_source":{"card":{"number":"4012888888881881","expiry":"2035-12","security_code":"123"}}}`, "Prefer: return=representation"),
			decline: func(r request) request {
				return r.with(`PayPal-Mock-Response: {"mock_application_codes":"INSTRUMENT_DECLINED"}`)
			},
			slow: faulty("processing"),
			moving: func(answer []byte) string {
				return gateways.TextAt(answer, "/purchase_units/0/payments/captures/0/id")
			},
		},
	}
}

// played is a built-in gateway, played by the sandbox.
func played(name, more string) func(*testing.T, sandbox.Config) (*sandbox.Server, use) {
	return func(t *testing.T, cfg sandbox.Config) (*sandbox.Server, use) {
		cfg.Profile = name
		gateway, u := newSandbox(t, cfg)
		u.builtin, u.more = name, more
		return gateway, u
	}
}

func jsonCall(target, body string, lines ...string) func(key, needs string) request {
	return func(key, needs string) request {
		return request{
			target: strings.ReplaceAll(target, "{needs}", needs), body: strings.ReplaceAll(body, "{needs}", needs),
			lines: append([]string{"Fence-Key: " + key, "Content-Type: application/json"}, lines...),
		}
	}
}

// faulty has the sandbox misbehave once.
func faulty(name string) func(request) request {
	return func(r request) request { return r.with(fault + name) }
}

// replacing changes a request's body.
func replacing(old, other string) func(request) request {
	return func(r request) request {
		if !strings.Contains(r.body, old) {
			panic("e2e: the body has no " + old)
		}
		r.body = strings.Replace(r.body, old, other, 1)
		return r
	}
}

// act is one gateway on stage with a sidecar before it.
type act struct {
	t       *testing.T
	p       player
	gateway *sandbox.Server
	url     string
	w       *world
	s       *sidecar
}

func (p player) act(t *testing.T, cfg sandbox.Config) *act {
	t.Helper()
	gateway, u := p.open(t, cfg)
	w := newWorld(t, settings{gateway: []use{u}})
	return &act{t: t, p: p, gateway: gateway, url: u.url, w: w, s: w.start("A")}
}

func (a *act) request(t *testing.T, key string, lines ...string) request {
	t.Helper()
	needs := ""
	if a.p.before != nil {
		needs = a.p.before(t, a.gateway, a.url)
	}
	return a.p.pay(key, needs).with(lines...)
}

func (a *act) send(r request) reply { return send(a.s.at(a.p.name), r) }

// executed counts what the gateway carried out under the keys of a call's attempts.
func (a *act) executed(call string) (n int) {
	key := a.w.record(call).Facts.GatewayKey
	for _, o := range a.gateway.Ledger() {
		if o.Key == key && o.Money {
			n++
		}
	}
	return n
}

// sends counts the requests that reached the gateway's socket for a call.
func (a *act) sends(call string) (n int) {
	key := a.w.record(call).Facts.GatewayKey
	for _, s := range a.gateway.Sends("POST") {
		if s.Key == key {
			n++
		}
	}
	return n
}

func (a *act) wantExecuted(t *testing.T, call string, want int) {
	t.Helper()
	if got := a.executed(call); got != want {
		t.Errorf("%s was executed %d times, want %d; %d sends", call, got, want, a.sends(call))
	}
}

const fault = "Sandbox-Fault: "

// TestGateways drives every gateway through the sidecar. Whatever goes wrong, nothing is executed twice.
func TestGateways(t *testing.T) {
	for _, p := range players() {
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			a := p.act(t, sandbox.Config{})
			for _, scene := range scenes {
				t.Run(scene.name, func(t *testing.T) {
					t.Parallel()
					scene.play(t, a)
				})
			}
			t.Run("stale lookup", func(t *testing.T) {
				t.Parallel()
				stale(t, p)
			})
		})
	}
}

var scenes = []struct {
	name string
	play func(t *testing.T, a *act)
}{
	{"success", func(t *testing.T, a *act) {
		r := a.request(t, "success")
		first := a.send(r)
		first.wantResult(t, "succeeded", "sent")
		again := a.send(r)
		again.wantResult(t, "succeeded", "replayed")
		if string(again.body) != string(first.body) || again.status != first.status {
			t.Errorf("replayed %s, was %s", again, first)
		}
		a.wantExecuted(t, "success", 1)
		if n := a.sends("success"); n != 1 {
			t.Errorf("%d sends", n)
		}
	}},
	{"decline", func(t *testing.T, a *act) {
		if a.p.decline == nil { // it says no later
			r := a.request(t, "decline")
			a.send(r).wantOutcome(t, "succeeded")
			if err := a.gateway.Move(a.w.record("decline").Object, "failed"); err != nil {
				t.Fatal(err)
			}
			eventually(t, "the failure is known", func() bool { return a.w.record("decline").Payment == "failed" })
			a.wantExecuted(t, "decline", 1)
			return
		}
		r := a.p.decline(a.request(t, "decline"))
		a.send(r).wantResult(t, "declined", "sent")
		a.send(r).wantResult(t, "declined", "replayed")
		a.wantExecuted(t, "decline", 0)
		if n := a.sends("decline"); n != 1 {
			t.Errorf("%d sends", n)
		}
	}},
	{"answer lost after the charge", func(t *testing.T, a *act) {
		r := a.request(t, "lost", fault+"lose-rst;times=1")
		insist(t, r, a.p.name, a.s).wantOutcome(t, "succeeded")
		a.wantExecuted(t, "lost", 1)
	}},
	{"dropped unread", func(t *testing.T, a *act) {
		r := a.request(t, "dropped", fault+"drop;times=1", "Prefer: wait=0")
		if a.p.asks {
			insist(t, r, a.p.name, a.s).wantOutcome(t, "succeeded")
			a.wantExecuted(t, "dropped", 1)
			return
		}
		for range 4 { // not to be found, and that proves nothing
			if p := a.send(r); p.definite() {
				t.Errorf("told an outcome: %s", p)
			}
			time.Sleep(300 * time.Millisecond)
		}
		a.wantExecuted(t, "dropped", 0)
		if n := len(a.w.record("dropped").Attempts); n != 1 {
			t.Errorf("%d attempts", n)
		}
	}},
	{"500 after the charge", func(t *testing.T, a *act) {
		r := a.request(t, "failed", fault+"error-after;times=1", "Prefer: wait=0")
		if !a.p.stored {
			insist(t, r, a.p.name, a.s).wantOutcome(t, "succeeded")
			a.wantExecuted(t, "failed", 1)
			return
		}
		for range 4 {
			if p := a.send(r); p.header("Fence-Outcome") != "unknown" {
				t.Errorf("told an outcome: %s", p)
			}
		}
		a.wantExecuted(t, "failed", 1)
	}},
	{"late execution", func(t *testing.T, a *act) {
		r := a.request(t, "late", fault+"delay=5s;times=1", "Prefer: wait=0")
		a.send(r).wantOutcome(t, "unknown")
		eventually(t, "the gateway executed it after all", func() bool { return a.executed("late") > 0 })
		insist(t, r, a.p.name, a.s).wantOutcome(t, "succeeded")
		a.wantExecuted(t, "late", 1)
	}},
	{"pending, then done", func(t *testing.T, a *act) {
		r := a.p.slow(a.request(t, "slow"))
		first := a.send(r)
		first.wantOutcome(t, "succeeded")
		rec := a.w.record("slow")
		if rec.Payment != "pending" || rec.Object == "" {
			t.Fatalf("payment %q of %q", rec.Payment, rec.Object)
		}
		id := rec.Object
		if a.p.moving != nil {
			id = a.p.moving(first.body)
		}
		for range 1 + a.p.steps {
			if err := a.gateway.Move(id, "done"); err != nil {
				t.Fatal(err)
			}
		}
		if a.p.told {
			eventually(t, "the money is known to have arrived", func() bool { return a.w.record("slow").Payment == "done" })
		}
		a.wantExecuted(t, "slow", 1)
	}},
}

// stale: what was charged is not shown for a while. Nothing is sent in its place.
func stale(t *testing.T, p player) {
	a := p.act(t, sandbox.Config{})
	for _, lag := range []string{"list-lag", "search-lag"} {
		inject(t, a.gateway, sandbox.Fault{Name: lag, Arg: "3s"})
	}
	r := a.request(t, "stale", fault+"lose-fin;times=1", "Prefer: wait=0")
	if first := a.send(r); !p.asks { // else the repeat under the same key has told already
		first.wantOutcome(t, "unknown")
	}
	insist(t, r, p.name, a.s).wantOutcome(t, "succeeded")
	a.wantExecuted(t, "stale", 1)
	if !p.asks && a.sends("stale") != 1 {
		t.Errorf("%d sends", a.sends("stale"))
	}
	if st := a.w.state("stale"); st != claims.StateSucceeded {
		t.Errorf("the call is %s", st)
	}
}

// wantOutcome is what the call is said to have come to.
func (p reply) wantOutcome(t *testing.T, outcome string) {
	t.Helper()
	if got := p.header("Fence-Outcome"); got != outcome {
		t.Errorf("outcome %q, want %q: %s", got, outcome, fmt.Sprint(p))
	}
}
