package reconcile_test

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fence-sidecar/fence-sidecar/claims"
	"github.com/fence-sidecar/fence-sidecar/claims/memory"
	"github.com/fence-sidecar/fence-sidecar/gateways"
	"github.com/fence-sidecar/fence-sidecar/gateways/sandbox"
	"github.com/fence-sidecar/fence-sidecar/reconcile"
)

// events are all that the journal holds.
func (w *world) events() []claims.Event {
	w.t.Helper()
	es, err := w.store.Events(w.t.Context(), "", 100_000)
	if err != nil {
		w.t.Fatal(err)
	}
	return es
}

// story is an event without its id and its time.
func story(e claims.Event) string {
	return fmt.Sprintf("%s %s: %s to %s, %s, payment %q", reconcile.EventType(e), e.Key.Call, e.From, e.State, e.Outcome, e.Payment)
}

func (w *world) wantEvents(want ...string) {
	w.t.Helper()
	var got []string
	for _, e := range w.events() {
		got = append(got, story(e))
	}
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		w.t.Errorf("events:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// money is a kind of payment whose object the gateway makes.
type money struct {
	route, path, object string
	form                url.Values
}

var (
	intent = money{"payment_intents_create", "/v1/payment_intents", "payment_intent",
		url.Values{"confirm": {"true"}, "payment_method": {"pm_usBankAccount_processing"}}}
	bankCharge = money{"charges_create", "/v1/charges", "charge", url.Values{"source": {"btok_us_verified"}}}
	payout     = money{"payouts_create", "/v1/payouts", "payout", url.Values{}}
	hold       = money{"payment_intents_create", "/v1/payment_intents", "payment_intent",
		url.Values{"confirm": {"true"}, "payment_method": {"pm_card_visa"}, "capture_method": {"manual"}}}
)

// order executes a call at the gateway and returns the object's id.
func (w *world) order(m money, call string) string {
	w.t.Helper()
	form := url.Values{"amount": {"4990"}, "currency": {"eur"}, "metadata[fence_ref]": {"ref-" + call}}
	maps.Copy(form, m.form)
	req := httptest.NewRequest("POST", m.path, strings.NewReader(form.Encode()))
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set("Authorization", "Bearer sk_test_app")
	req.Header.Set("Idempotency-Key", "gk-"+call)
	rw := httptest.NewRecorder()
	w.gw.ServeHTTP(rw, req)
	if rw.Code != 200 {
		w.t.Fatalf("the sandbox answered %d: %s", rw.Code, rw.Body)
	}
	ledger := w.gw.Ledger()
	return ledger[len(ledger)-1].ID
}

// underWay is a call that succeeded and whose money is under way: its record and its object's id. The story so far is one event.
func (w *world) underWay(m money, call string) (claims.Record, string) {
	w.t.Helper()
	rec := w.doubt(call, m.route)
	next := rec.Clone()
	next.Facts.Lookup["confirm"] = m.form.Get("confirm")
	if _, err := w.store.Swap(w.t.Context(), claims.Condition{}, claims.Write{Version: rec.Version, Next: next}); err != nil {
		w.t.Fatal(err)
	}
	id := w.order(m, call)
	r := w.look(call)
	if r.State != claims.StateSucceeded || r.Payment != claims.PaymentPending || !r.Poll {
		w.t.Fatalf("%s, payment %q, polled %t", r.State, r.Payment, r.Poll)
	}
	return r, id
}

func (w *world) move(id, to string) {
	w.t.Helper()
	if err := w.gw.Move(id, to); err != nil {
		w.t.Fatal(err)
	}
}

// The money of a call that succeeded arrives, fails or comes back later: one event each, and the call stays what it is.
func TestPayment_moves(t *testing.T) {
	for _, tt := range []struct {
		name string
		money
		to, want string
	}{
		{"intent done", intent, "done", claims.PaymentDone},
		{"intent failed", intent, "failed", claims.PaymentFailed},
		{"charge done", bankCharge, "done", claims.PaymentDone},
		{"charge failed", bankCharge, "failed", claims.PaymentFailed},
		{"payout failed", payout, "failed", claims.PaymentFailed},
		{"payout reversed", payout, "reversed", claims.PaymentReversed},
		{"authorised and captured", hold, "done", claims.PaymentDone},
		{"authorised and canceled", hold, "reversed", claims.PaymentReversed},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, nil)
			_, id := w.underWay(tt.money, key)
			settled := "call.settled " + key + `: unknown to succeeded, succeeded, payment "pending"`
			w.wantEvents(settled)
			if r := w.look(key); r.Payment != claims.PaymentPending || !r.Poll {
				t.Errorf("still under way: payment %q, polled %t", r.Payment, r.Poll)
			}
			w.wantEvents(settled)
			w.move(id, tt.to)
			r := w.look(key)
			w.want(r, claims.StateSucceeded)
			again := tt.name == "intent failed" // another card may follow
			if r.Payment != tt.want || r.Poll != again || r.Outcome() != claims.Succeeded || r.Answer == nil {
				t.Errorf("payment %q, polled %t, outcome %s, answer %v", r.Payment, r.Poll, r.Outcome(), r.Answer)
			}
			seen := len(w.gw.Sends())
			w.look(key)
			w.wantEvents(settled, "call.payment "+key+`: succeeded to succeeded, succeeded, payment "`+tt.want+`"`)
			if n := len(w.gw.Sends()); n != seen && !again {
				t.Errorf("%d lookups of money that is at rest", n-seen)
			}
			if n := len(w.gw.Sends(http.MethodPost)); n != 1 {
				t.Errorf("%d POSTs at the gateway, want the app's one", n)
			}
		})
	}
}

// A payment is asked about when it is due, less and less often, and not after 30 days.
func TestPayment_pace(t *testing.T) {
	w := newWorld(t, nil)
	r, _ := w.underWay(intent, key)
	first := len(w.gw.Sends(http.MethodGet))
	sweep := func() claims.Record {
		if _, err := w.rec.Sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
		v, err := w.store.Get(t.Context(), r.Key, claims.Guard{})
		if err != nil {
			t.Fatal(err)
		}
		return v.Record
	}
	for r = sweep(); r.Poll; {
		left := r.NextCheck.Sub(w.now().Store)
		if left < 5*time.Minute-10*time.Second || left > 12*time.Hour {
			t.Fatalf("the next poll is in %s", left)
		}
		seen := len(w.gw.Sends(http.MethodGet))
		w.advance(left - 10*time.Second)
		sweep()
		if n := len(w.gw.Sends(http.MethodGet)); n != seen {
			t.Fatalf("asked %s before it was due", 10*time.Second)
		}
		w.advance(11 * time.Second)
		r = sweep()
		if n := len(w.gw.Sends(http.MethodGet)); n != seen+1 {
			t.Fatalf("%d lookups when one was due", n-seen)
		}
	}
	if age := w.now().Age(r.FirstStarted); age < claims.PollFor || age > claims.PollFor+13*time.Hour {
		t.Errorf("polling ended after %s", age)
	}
	if r.Payment != claims.PaymentPending || r.State != claims.StateSucceeded {
		t.Errorf("after a month: %s, payment %q", r.State, r.Payment)
	}
	if n := len(w.gw.Sends(http.MethodGet)) - first; n > 100 {
		t.Errorf("%d polls in a month", n)
	}
}

// Where no lookup can ever tell, polling ends at once; where this process alone cannot ask, it goes on.
func TestPayment_noWay(t *testing.T) {
	route := func(g *gateways.Gateway) *gateways.Route {
		for _, r := range g.Routes {
			if r.Name == intent.route {
				return r
			}
		}
		return nil
	}
	for name, tt := range map[string]struct {
		bend  func(*gateways.Gateway)
		polls bool
	}{
		"a probe alone":             {func(g *gateways.Gateway) { route(g).Lookup = nil }, false},
		"neither lookup nor probe":  {func(g *gateways.Gateway) { route(g).Lookup, route(g).Probe = nil, false }, false},
		"no lookup credential here": {func(g *gateways.Gateway) { g.Accounts[0].LookupCredential = gateways.Secret{} }, true},
		"gateway not configured":    {func(g *gateways.Gateway) { g.Name = "other" }, true},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, tt.bend)
			w.succeeded(key, intent.route)
			r := w.look(key)
			w.want(r, claims.StateSucceeded)
			if r.Payment != claims.PaymentPending || r.Poll != tt.polls {
				t.Errorf("payment %q, polled %t, want %t", r.Payment, r.Poll, tt.polls)
			}
			again := w.look(key)
			if again.Version != r.Version {
				t.Errorf("a look that asked nobody was written: version %d to %d", r.Version, again.Version)
			}
			w.advance(claims.PollFor)
			if r = w.look(key); r.Poll {
				t.Error("polled after 30 days")
			}
			if n := len(w.gw.Sends()); n != 0 {
				t.Errorf("%d requests", n)
			}
		})
	}
}

// succeeded stores a call whose sender was told that the money is under way.
func (w *world) succeeded(call, route string) claims.Record {
	w.t.Helper()
	rec := w.doubt(call, route)
	next := rec.Clone()
	next.State, next.Payment, next.Poll = claims.StateSucceeded, claims.PaymentPending, true
	next.Attempts[0].Outcome, next.Attempts[0].Proof = claims.Succeeded, "answer"
	next.Answer = &claims.Answer{Status: 200, Body: []byte("{}")}
	sw, err := w.store.Swap(w.t.Context(), claims.Condition{}, claims.Write{Version: rec.Version, Next: next})
	if err != nil {
		w.t.Fatal(err)
	}
	return sw.Records[0]
}

// A gateway that shows two successes is a person's matter, also when the call had succeeded; then nothing is polled.
func TestPayment_twoSuccesses(t *testing.T) {
	w := newWorld(t, nil)
	w.underWay(intent, key)
	w.gw.Inject(sandbox.Fault{Name: "ignore-key"})
	w.order(intent, key)
	r := w.look(key)
	w.want(r, claims.StateReview)
	if r.Review == nil || !r.Review.Alarm || r.Poll {
		t.Errorf("review %+v, polled %t", r.Review, r.Poll)
	}
	es := w.events()
	if got, want := story(es[len(es)-1]), "call.review "+key+`: succeeded to review, unknown, payment "pending"`; got != want {
		t.Errorf("told %s, want %s", got, want)
	}
	w.advance(time.Hour)
	if n, err := w.rec.Sweep(t.Context()); n != 0 || err != nil {
		t.Errorf("swept %d, %v: a person decides", n, err)
	}
}

// After a loss a call that succeeded is looked up once.
func TestPayment_afterALoss(t *testing.T) {
	w := newWorld(t, nil)
	w.doubt(key, "payment_intents_create")
	w.charge(key, "4990")
	w.want(w.look(key), claims.StateSucceeded)
	w.store.Lose(w.now(), time.Second)
	seen := len(w.gw.Sends(http.MethodGet))
	for range 3 {
		r := w.look(key)
		w.want(r, claims.StateSucceeded)
		if r.Era != 1 {
			t.Errorf("the record is of era %d", r.Era)
		}
	}
	if n := len(w.gw.Sends(http.MethodGet)) - seen; n != 1 {
		t.Errorf("%d lookups after a loss, want 1", n)
	}
	if n := len(w.events()); n != 1 {
		t.Errorf("%d events, want the settlement's alone", n)
	}
}

// A pending call that outlived its sender is a doubt: that it came to rest is told.
func TestEvents_pendingPastItsDeadline(t *testing.T) {
	w := newWorld(t, nil)
	rec := w.doubt(key, "payment_intents_create")
	next := rec.Clone()
	next.State = claims.StatePending
	if _, err := w.store.Swap(t.Context(), claims.Condition{}, claims.Write{Version: rec.Version, Next: next}); err != nil {
		t.Fatal(err)
	}
	w.charge(key, "4990")
	w.advance(time.Minute)
	w.want(w.look(key), claims.StateSucceeded)
	w.wantEvents("call.settled " + key + `: unknown to succeeded, succeeded, payment "done"`)
}

// Ten thousand payments under way do not keep a doubt waiting, though the gateway is slow.
func TestSweep_doubtsFirst(t *testing.T) {
	w := newWorld(t, nil)
	const flood = 10_000
	rec := w.succeeded("a", intent.route)
	w.store.Edit(func(d *memory.Data, _ claims.Now) {
		for i := range flood {
			c := *d.Calls[rec.Key]
			c.Record = c.Record.Clone()
			c.Record.Key.Call = fmt.Sprintf("a%d", i)
			d.Calls[c.Record.Key] = &c
		}
	})
	w.doubt("z", intent.route) // the last of all by its key
	w.charge("z", "4990")
	w.gw.Inject(sandbox.Fault{Name: "delay", Arg: "50ms", Route: "GET /v1/payment_intents", Times: -1})
	w.rec.Interval, w.rec.Batch = time.Minute, 1000
	began := time.Now()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); w.rec.Sweep(ctx) }()
	k := claims.Key{Tenant: "t", Call: "z"}
	for settled := false; !settled; time.Sleep(5 * time.Millisecond) {
		v, err := w.store.Get(t.Context(), k, claims.Guard{})
		if err != nil || time.Since(began) > 30*time.Second {
			t.Fatalf("the doubt waits behind %d payments, %v", flood, err)
		}
		settled = v.Record.State == claims.StateSucceeded
	}
	t.Logf("the doubt waited %s behind %d payments", time.Since(began).Round(time.Millisecond), flood)
	if n := len(w.gw.Sends(http.MethodGet)); n > 100 {
		t.Errorf("%d lookups were made before the doubt's, want next to none", n)
	}
	if err := w.gw.WaitSends(ctx, 30, http.MethodGet); err != nil { // their turn comes in the same sweep
		t.Error(err)
	}
	cancel()
	<-done
}

// Payments take a part of a sweep only, however many there are: a doubt that arises meanwhile is found by the next one.
func TestSweep_paymentsTakeTurns(t *testing.T) {
	w := newWorld(t, nil)
	for i := range 60 {
		w.succeeded(fmt.Sprintf("a%d", i), intent.route)
	}
	w.gw.Inject(sandbox.Fault{Name: "delay", Arg: "100ms", Route: "GET /v1/payment_intents", Times: -1})
	w.rec.Interval = time.Second // a quarter of it is some three lookups by each worker
	if n, err := w.rec.Sweep(t.Context()); n != 60 || err != nil {
		t.Fatalf("swept %d, %v", n, err)
	}
	if n := len(w.gw.Sends(http.MethodGet)); n < 4 || n > 20 {
		t.Errorf("%d lookups of payments in one sweep, want a dozen", n)
	}
	w.doubt("z", intent.route)
	w.charge("z", "4990")
	w.rec.Sweep(t.Context())
	v, err := w.store.Get(t.Context(), claims.Key{Tenant: "t", Call: "z"}, claims.Guard{})
	if err != nil || v.Record.State != claims.StateSucceeded {
		t.Errorf("the doubt is %s, %v", v.Record.State, err)
	}
	for range 60 { // what was left comes first to last, once each
		w.rec.Sweep(t.Context())
		if len(w.gw.Sends(http.MethodGet)) >= 61 {
			break
		}
	}
	w.rec.Sweep(t.Context())
	if n := len(w.gw.Sends(http.MethodGet)); n != 61 {
		t.Errorf("%d lookups of 60 payments and a doubt", n)
	}
}

// A payment that another process has asked about meanwhile is not asked about again.
func TestSweep_twoProcesses(t *testing.T) {
	w := newWorld(t, nil)
	for i := range 20 {
		w.succeeded(fmt.Sprintf("a%d", i), intent.route)
	}
	other := reconcile.New(w.rec.Config)
	w.rec.Interval = 1 // time enough to take them from the store, none to ask
	w.rec.Sweep(t.Context())
	if n, err := other.Sweep(t.Context()); n != 20 || err != nil || len(w.gw.Sends()) != 20 {
		t.Fatalf("the other process swept %d, %v, and asked %d times", n, err, len(w.gw.Sends()))
	}
	w.rec.Interval = 30 * time.Second
	w.rec.Sweep(t.Context())
	if n := len(w.gw.Sends()); n != 20 {
		t.Errorf("%d lookups of 20 payments", n)
	}
}

// A poll does not read a list that goes on for ever; after a loss, which asks whether there is a second success, it is read on.
func TestPayment_longList(t *testing.T) {
	var pages atomic.Int64
	endless := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, _ *http.Request) {
		rw.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(rw, `{"object":"list","has_more":true,"data":[{"id":"pi_%d","object":"payment_intent","metadata":{}}]}`, pages.Add(1))
	}))
	defer endless.Close()
	w := newWorld(t, func(g *gateways.Gateway) { g.BaseURL = endless.URL })
	w.succeeded(key, intent.route)
	if r := w.look(key); pages.Swap(0) != 5 || r.Payment != claims.PaymentPending || !r.Poll {
		t.Errorf("payment %q, polled %t", r.Payment, r.Poll)
	}
	w.store.Lose(w.now(), time.Second)
	w.look(key)
	if n := pages.Load(); n != 100 {
		t.Errorf("%d pages after a loss, want all 100 that the lookup declares", n)
	}
}
