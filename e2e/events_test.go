package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/fence-sidecar/fence-sidecar/claims"
	"github.com/fence-sidecar/fence-sidecar/gateways/sandbox"
)

const eventsSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwMfKQ9r8GKYo="

// delivered is an event as it was delivered.
type delivered struct {
	id, body string
	Type     string
	Data     struct{ Tenant, Call, From, State, Outcome, Payment string }
}

// receiver takes events, and checks each as an app would, with the library of Standard Webhooks.
type receiver struct {
	t    *testing.T
	srv  *httptest.Server
	yaml string // of a configuration that delivers here

	mu   sync.Mutex
	hang chan struct{} // not nil: the next delivery gets no answer
	got  []delivered
}

func newReceiver(t *testing.T) *receiver {
	t.Helper()
	file := filepath.Join(t.TempDir(), "whsec")
	if err := os.WriteFile(file, []byte(eventsSecret+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := &receiver{t: t}
	r.srv = httptest.NewServer(r)
	t.Cleanup(r.srv.Close)
	r.yaml = fmt.Sprintf("events: {url: %q, secrets: [{file: %q}]}\n", r.srv.URL+"/events", file)
	return r
}

func (r *receiver) ServeHTTP(rw http.ResponseWriter, req *http.Request) {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return // its sender was killed
	}
	wh, err := standardwebhooks.NewWebhook(eventsSecret)
	if err == nil {
		err = wh.Verify(body, req.Header)
	}
	e := delivered{id: req.Header.Get("webhook-id"), body: string(body)}
	if err != nil || json.Unmarshal(body, &e) != nil {
		r.t.Errorf("a delivery that an app must refuse (%v): %v %s", err, req.Header, body)
	}
	r.mu.Lock()
	hang := r.hang
	r.hang = nil
	r.got = append(r.got, e)
	r.mu.Unlock()
	if hang != nil {
		close(hang)
		<-req.Context().Done()
	}
	rw.WriteHeader(http.StatusNoContent)
}

// events are the deliveries of a type.
func (r *receiver) events(kind string) (es []delivered) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.got {
		if e.Type == kind {
			es = append(es, e)
		}
	}
	return es
}

// await waits for a delivery of a type, and fails the test if it says anything else.
func (r *receiver) await(kind, call, from, state, payment string) delivered {
	r.t.Helper()
	eventually(r.t, "a delivery of "+kind, func() bool { return len(r.events(kind)) > 0 })
	e := r.events(kind)[0]
	want := e
	want.Data.Tenant, want.Data.Call, want.Data.From, want.Data.State, want.Data.Payment = "default", call, from, state, payment
	if e != want {
		r.t.Errorf("delivered: %s\nwant %s of default/%s, from %s to %s, payment %s", e.body, kind, call, from, state, payment)
	}
	return e
}

// lostCharge makes a charge whose answer is lost; lookups and repeats fail until the app has been told that nobody knows.
func lostCharge(t *testing.T, g *sandbox.Server, s *sidecar, key string) {
	t.Helper()
	inject(t, g, sandbox.Fault{Name: "hold-after", Route: "POST /v1/charges"})
	reply := later(s.at("stripe"), charge(key))
	waitHold(t, g)
	inject(t, g, sandbox.Fault{Name: "balancer", Route: "* /v1/charges", Times: -1})
	await(t, reply).want(t, 504, "in-doubt")
	g.ClearFaults()
	g.Release("hold")
}

// TestEvents_doubt: the app's request ended in doubt. The sweeper finds out, and the app's receiver is told, signed.
func TestEvents_doubt(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, d database) {
		gateway, u := newSandbox(t, sandbox.Config{})
		r := newReceiver(t)
		w := newWorld(t, settings{store: d, gateway: []use{u}, extra: r.yaml})
		a := w.start("A")
		lostCharge(t, gateway, a, "k")
		r.await("call.settled", "k", "unknown", "succeeded", "done")
		w.wantState("k", claims.StateSucceeded)
		if n := gateway.Moved(); n != 1 {
			t.Errorf("the gateway charged %d times", n)
		}
		eventually(t, "the delivery is counted", func() bool { return a.metric(`fence_events_delivered_total{result="told"}`) == "1" })
	})
}

// TestEvents_killed: a sidecar is killed while the receiver has its delivery and has not answered. Another one delivers the event
// again, under the same id.
func TestEvents_killed(t *testing.T) {
	t.Parallel()
	gateway, u := newSandbox(t, sandbox.Config{})
	r := newReceiver(t)
	w := newWorld(t, settings{lease: "3s", gateway: []use{u}, extra: r.yaml})
	a := w.start("A")
	arrived := make(chan struct{})
	r.mu.Lock()
	r.hang = arrived
	r.mu.Unlock()
	lostCharge(t, gateway, a, "k")
	eventually(t, "A delivers", func() bool {
		select {
		case <-arrived:
			return true
		default:
			return false
		}
	})
	a.kill()
	w.start("B")
	eventually(t, "B delivers", func() bool { return len(r.events("call.settled")) > 1 })
	es := r.events("call.settled")
	if es[0] != es[1] {
		t.Errorf("the repeat is another delivery:\n%s %s\n%s %s", es[0].id, es[0].body, es[1].id, es[1].body)
	}
}

// TestEvents_payment: a bank debit is under way when the app is told that it succeeded, and comes to its end later. The receiver
// is told; for the app's repeats nothing changes.
func TestEvents_payment(t *testing.T) {
	t.Parallel()
	for to, want := range map[string]string{"done": claims.PaymentDone, "failed": claims.PaymentFailed} {
		t.Run(to, func(t *testing.T) {
			gateway, u := newSandbox(t, sandbox.Config{})
			r := newReceiver(t)
			w := newWorld(t, settings{gateway: []use{u}, extra: r.yaml})
			a, b := w.pair()
			call := charge("k")
			call.body = strings.Replace(call.body, "tok_visa", "btok_us_verified", 1)
			first := send(a.at("stripe"), call)
			first.wantResult(t, "succeeded", "sent")
			if p := w.record("k").Payment; p != claims.PaymentPending {
				t.Fatalf("the payment is %q", p)
			}
			if err := gateway.Move(first.id(), to); err != nil {
				t.Fatal(err)
			}
			r.await("call.payment", "k", "succeeded", "succeeded", want)
			again := send(b.at("stripe"), call)
			again.wantResult(t, "succeeded", "replayed")
			if string(again.body) != string(first.body) {
				t.Errorf("the repeat's answer is another:\n%s\n%s", first, again)
			}
			if rec := w.record("k"); rec.State != claims.StateSucceeded || rec.Payment != want || rec.Poll {
				t.Errorf("%s, payment %q, polled %t", rec.State, rec.Payment, rec.Poll)
			}
			if n := len(gateway.Sends("POST")); n != 1 {
				t.Errorf("%d sends", n)
			}
			if n := len(r.events("call.settled")); n != 0 {
				t.Errorf("%d events tell the app what it was told", n)
			}
		})
	}
}
