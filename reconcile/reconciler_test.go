package reconcile_test

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fence-sidecar/fence-sidecar/claims"
	"github.com/fence-sidecar/fence-sidecar/claims/memory"
	"github.com/fence-sidecar/fence-sidecar/gateways"
	"github.com/fence-sidecar/fence-sidecar/gateways/sandbox"
	"github.com/fence-sidecar/fence-sidecar/reconcile"
)

// world is a store with a bent clock, a gateway and a reconciler between them.
type world struct {
	t     *testing.T
	store *memory.Store
	gw    *sandbox.Server
	rec   *reconcile.Reconciler
	guard claims.Guard

	g *gateways.Gateway

	mu     sync.Mutex
	moved  time.Duration // how far the store's clocks were pushed on
	kinds  []claims.FindingKind
	states []claims.State
}

func (w *world) now() claims.Now {
	w.mu.Lock()
	defer w.mu.Unlock()
	n := time.Now().Add(w.moved).UTC()
	return claims.Now{Store: n, Wall: n}
}

func (w *world) advance(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.moved += d
}

const (
	key   = "charge:order:42"
	realm = "memory"
)

func newWorld(t *testing.T, bend func(*gateways.Gateway)) *world {
	w := &world{t: t}
	w.gw = sandbox.New(sandbox.Config{SearchLag: -1, Clock: func() time.Time { return w.now().Wall }})
	addr, err := w.gw.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.gw.Close() })
	t.Setenv("LOOKUP", "sk_test_lookup")
	g := gateways.Stripe()
	g.BaseURL = w.gw.URL(addr)
	g.Accounts = []gateways.Account{{
		Name: "shop", CredentialHash: gateways.AccountHash(realm, "sk_test_app"), LookupCredential: gateways.Secret{Env: "LOOKUP"},
	}}
	if bend != nil {
		bend(g)
	}
	w.g = g
	reg, err := gateways.NewRegistry(g)
	if err != nil {
		t.Fatal(err)
	}
	w.store = memory.New(memory.Config{Now: w.now})
	w.rec = reconcile.New(reconcile.Config{
		Store: w.store, Realm: realm, Gateways: reg, Tenants: []string{"t"}, Log: slog.New(slog.DiscardHandler),
		Verdict: func(_, _ string, k claims.FindingKind) { w.mu.Lock(); w.kinds = append(w.kinds, k); w.mu.Unlock() },
		Settled: func(r claims.Record) { w.mu.Lock(); w.states = append(w.states, r.State); w.mu.Unlock() },
	})
	l, err := w.store.Acquire(t.Context(), claims.InstancePrefix+"test", "test", 100*time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	w.guard = l.Guard
	return w
}

// doubt stores a call whose one attempt got no answer.
func (w *world) doubt(call, route string) claims.Record {
	w.t.Helper()
	id := claims.NewClaimID()
	next := claims.Record{
		Key: claims.Key{Tenant: "t", Call: call}, State: claims.StatePending, Revision: 1, Attempt: 1, Claim: id, Sender: w.guard,
		Fingerprint: claims.Fingerprint{KeyID: "k1", Canonical: 1, MAC: []byte{1}},
		Facts: claims.Facts{
			Gateway: "stripe", Account: "shop", Endpoint: w.g.BaseURL, Credential: gateways.AccountHash(realm, "sk_test_app"),
			LookupForm: w.g.LookupForm(route), Route: route, GatewayKey: "gk-" + call, Reference: "ref-" + call,
			Retention: 24 * time.Hour, SettleAfter: 10 * time.Minute, Lookup: map[string]string{"amount": "4990", "currency": "eur"},
		},
		Attempts: []claims.Attempt{{Number: 1, Claim: id, Sender: w.guard, Guard: w.guard, Wrote: true}},
	}
	sw, err := w.store.Swap(w.t.Context(), claims.Condition{Guard: w.guard, Sender: w.guard}, claims.Write{Next: next, Claim: true, Timeout: time.Second})
	if err != nil {
		w.t.Fatal(err)
	}
	rec := sw.Records[0]
	next, ok := claims.Settle(rec, 1, 1, id, claims.Sent{Cause: "timeout"})
	if !ok {
		w.t.Fatal("not settled")
	}
	if sw, err = w.store.Swap(w.t.Context(), claims.Condition{Guard: w.guard}, claims.Write{Version: rec.Version, Next: next}); err != nil {
		w.t.Fatal(err)
	}
	return sw.Records[0]
}

// charge puts the object of a call at the gateway, as if its lost send had been executed.
func (w *world) charge(call, amount string) {
	w.t.Helper()
	form := url.Values{
		"amount": {amount}, "currency": {"eur"}, "confirm": {"true"}, "payment_method": {"pm_card_visa"}, "metadata[fence_ref]": {"ref-" + call},
	}
	req := httptest.NewRequest("POST", "/v1/payment_intents", strings.NewReader(form.Encode()))
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set("Authorization", "Bearer sk_test_app")
	req.Header.Set("Idempotency-Key", "gk-"+call+amount)
	rw := httptest.NewRecorder()
	w.gw.ServeHTTP(rw, req)
	if rw.Code != 200 {
		w.t.Fatalf("the sandbox answered %d: %s", rw.Code, rw.Body)
	}
}

func (w *world) look(call string) claims.Record {
	w.t.Helper()
	k := claims.Key{Tenant: "t", Call: call}
	if err := w.rec.Call(w.t.Context(), k); err != nil {
		w.t.Fatal(err)
	}
	v, err := w.store.Get(w.t.Context(), k, claims.Guard{})
	if err != nil {
		w.t.Fatal(err)
	}
	return v.Record
}

func (w *world) want(r claims.Record, s claims.State) {
	w.t.Helper()
	if r.State != s {
		w.t.Errorf("the call is %s (%+v), want %s", r.State, r.Review, s)
	}
}

func TestReconcile_found(t *testing.T) {
	w := newWorld(t, nil)
	w.doubt(key, "payment_intents_create")
	w.charge(key, "4990")
	r := w.look(key)
	w.want(r, claims.StateSucceeded)
	if r.Answer == nil || r.Answer.Status != 200 || !strings.Contains(string(r.Answer.Body), `"payment_intent"`) || !r.Reconciled {
		t.Errorf("answer %+v: a found object must be one that an SDK takes for a payment", r.Answer)
	}
	if n := len(w.gw.Sends(http.MethodPost)); n != 1 {
		t.Errorf("%d POSTs at the gateway, want the one of the app", n)
	}
	if len(w.states) != 1 || w.states[0] != claims.StateSucceeded {
		t.Errorf("told of %v", w.states)
	}
}

// A miss proves something only after the deadline and the settling time, and only the second one, half a minute later.
func TestReconcile_absence(t *testing.T) {
	w := newWorld(t, nil)
	before := w.doubt(key, "payment_intents_create")
	if r := w.look(key); r.Version != before.Version {
		t.Errorf("a miss before the settling time was written (version %d to %d)", before.Version, r.Version)
	}
	w.advance(11 * time.Minute)
	r := w.look(key)
	w.want(r, claims.StateUnknown)
	if r.Misses != 1 {
		t.Errorf("%d misses, want 1", r.Misses)
	}
	if r = w.look(key); r.Misses != 1 {
		t.Errorf("a second miss at once counted")
	}
	w.advance(31 * time.Second)
	w.want(w.look(key), claims.StateOpen)
}

// After a loss a doubt may be about an attempt that the store no longer knows, made until the loss was noticed: absence counts
// from then, and a success of it is found all the same.
func TestReconcile_afterALoss(t *testing.T) {
	w := newWorld(t, nil)
	w.doubt(key, "payment_intents_create")
	found := "charge:order:43"
	w.doubt(found, "payment_intents_create")
	w.advance(time.Hour)
	w.store.Lose(w.now(), time.Second)
	r := w.look(key)
	w.want(r, claims.StateUnknown)
	if len(r.Attempts) != 2 || !r.Attempts[1].Presumed || r.Era != 1 {
		t.Errorf("attempts %+v in era %d", r.Attempts, r.Era)
	}
	w.advance(5 * time.Minute)
	if r = w.look(key); r.Misses != 0 {
		t.Errorf("%d misses counted before a lost attempt had settled", r.Misses)
	}
	w.advance(10 * time.Minute)
	w.look(key)
	w.advance(31 * time.Second)
	w.want(w.look(key), claims.StateOpen)
	w.charge(found, "4990")
	w.want(w.look(found), claims.StateSucceeded)
}

// A record that its sender settles between the sweeper's two looks is not put in doubt because of a loss.
func TestReconcile_settledMeanwhile(t *testing.T) {
	w := newWorld(t, nil)
	rec := w.doubt(key, "payment_intents_create")
	w.store.Lose(w.now(), time.Second)
	w.rec.GiveUp = func(context.Context, claims.View) error {
		next := rec.Clone()
		next.State = claims.StateSucceeded
		_, err := w.store.Swap(t.Context(), claims.Condition{}, claims.Write{Version: rec.Version, Next: next})
		return err
	}
	w.want(w.look(key), claims.StateSucceeded)
}

// A gateway whose clock is off shows another window than the one asked for: a miss there is none.
func TestReconcile_gatewayClockOff(t *testing.T) {
	w := newWorld(t, nil)
	w.doubt(key, "payment_intents_create")
	w.advance(11 * time.Minute)
	w.gw.Inject(sandbox.Fault{Name: "date-skew", Arg: "-6m"})
	if r := w.look(key); r.Misses != 0 || r.State != claims.StateUnknown {
		t.Errorf("%s, %d misses counted", r.State, r.Misses)
	}
	w.gw.ClearFaults()
	if r := w.look(key); r.Misses != 1 {
		t.Errorf("%d misses with the clock right again, want 1", r.Misses)
	}
}

func TestReconcile_otherAmountIsForAPerson(t *testing.T) {
	w := newWorld(t, nil)
	w.doubt(key, "payment_intents_create")
	w.charge(key, "4991")
	w.want(w.look(key), claims.StateReview)
}

func TestReconcile_twoSuccessesAreForAPerson(t *testing.T) {
	w := newWorld(t, nil)
	w.doubt(key, "payment_intents_create")
	w.charge(key, "4990")
	w.gw.Inject(sandbox.Fault{Name: "ignore-key"})
	w.charge(key, "4990")
	r := w.look(key)
	w.want(r, claims.StateReview)
	if r.Review == nil || !r.Review.Alarm {
		t.Errorf("review %+v raises no alarm", r.Review)
	}
}

// Nobody learns anything from a gateway that does not answer, an account without a credential, or an unknown gateway; in
// the end a person is asked.
func TestReconcile_couldNotTell(t *testing.T) {
	t.Run("no credential", func(t *testing.T) {
		w := newWorld(t, func(g *gateways.Gateway) { g.Accounts = nil })
		w.doubt(key, "payment_intents_create")
		w.advance(12 * time.Hour)
		w.want(w.look(key), claims.StateUnknown)
		if n := len(w.gw.Sends()); n != 0 {
			t.Errorf("%d requests without a credential", n)
		}
		w.advance(12 * time.Hour)
		r := w.look(key)
		w.want(r, claims.StateReview)
		if r.Review == nil || !strings.Contains(r.Review.Reason, "credential") {
			t.Errorf("review %+v does not say why", r.Review)
		}
	})
	t.Run("errors", func(t *testing.T) {
		w := newWorld(t, nil)
		w.doubt(key, "payment_intents_create")
		w.charge(key, "4990")
		w.gw.Inject(sandbox.Fault{Name: "error-before", Route: "GET /v1/payment_intents", Times: -1})
		for range 15 {
			w.want(w.look(key), claims.StateUnknown)
		}
		if n := len(w.gw.Sends(http.MethodGet)); n != 10 {
			t.Errorf("%d lookups, want 10: the lookups' own breaker opens", n)
		}
	})
	t.Run("gateway gone", func(t *testing.T) {
		w := newWorld(t, func(g *gateways.Gateway) { g.Name = "other" })
		w.doubt(key, "payment_intents_create")
		w.want(w.look(key), claims.StateUnknown)
	})
}

// A lookup credential stays with its host.
func TestReconcile_followsNoRedirect(t *testing.T) {
	var stolen atomic.Int64
	thief := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { stolen.Add(1) }))
	defer thief.Close()
	front := httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		http.Redirect(rw, r, thief.URL+r.URL.Path, http.StatusTemporaryRedirect)
	}))
	defer front.Close()
	w := newWorld(t, func(g *gateways.Gateway) { g.BaseURL = front.URL })
	w.doubt(key, "payment_intents_create")
	w.want(w.look(key), claims.StateUnknown)
	if stolen.Load() != 0 {
		t.Error("the lookup followed a redirect")
	}
}

// A verdict counts only for the version that was read before its lookup began.
func TestReconcile_lostRaceIsThrownAway(t *testing.T) {
	w := newWorld(t, nil)
	rec := w.doubt(key, "payment_intents_create")
	w.charge(key, "4990")
	w.gw.Inject(sandbox.Fault{Name: "hold-before", Route: "GET /v1/payment_intents"})
	done := make(chan error, 1)
	go func() { done <- w.rec.Call(t.Context(), rec.Key) }()
	if err := w.gw.WaitHold(t.Context(), "hold"); err != nil {
		t.Fatal(err)
	}
	next := rec.Clone()
	next.State, next.Review = claims.StateReview, &claims.Review{Reason: "somebody else was quicker"}
	if _, err := w.store.Swap(t.Context(), claims.Condition{}, claims.Write{Version: rec.Version, Next: next}); err != nil {
		t.Fatal(err)
	}
	w.gw.Release("hold")
	if err := <-done; err != nil {
		t.Errorf("a lost race is no error: %v", err)
	}
	v, _ := w.store.Get(t.Context(), rec.Key, claims.Guard{})
	w.want(v.Record, claims.StateReview)
}

// Evidence decides before anybody is asked.
func TestReconcile_evidenceFirst(t *testing.T) {
	w := newWorld(t, nil)
	rec := w.doubt(key, "payment_intents_create")
	next := rec.Clone()
	next.Evidence = []claims.Evidence{{Revision: 1, Attempt: 1, Claim: rec.Claim, Outcome: claims.Succeeded, Source: "answer", Answer: &claims.Answer{Status: 200, Body: []byte("{}")}}}
	if _, err := w.store.Swap(t.Context(), claims.Condition{}, claims.Write{Version: rec.Version, Next: next}); err != nil {
		t.Fatal(err)
	}
	if n, err := w.rec.Sweep(t.Context()); n != 1 || err != nil {
		t.Fatalf("swept %d, %v", n, err)
	}
	v, _ := w.store.Get(t.Context(), rec.Key, claims.Guard{})
	w.want(v.Record, claims.StateSucceeded)
	if n := len(w.gw.Sends()); n != 0 {
		t.Errorf("%d lookups although the record told it", n)
	}
}

func TestSweep_batches(t *testing.T) {
	w := newWorld(t, nil)
	for _, c := range []string{"a", "b", "c", "d", "e", "f", "g"} {
		w.doubt(c, "payment_intents_create")
		w.charge(c, "4990")
	}
	if n, err := w.rec.Sweep(t.Context()); n != 7 || err != nil {
		t.Fatalf("swept %d, %v; want 7", n, err)
	}
	rs, err := w.store.List(t.Context(), "t", []claims.State{claims.StateSucceeded}, 100)
	if err != nil || len(rs) != 7 {
		t.Errorf("%d succeeded, %v; want 7", len(rs), err)
	}
	if n, err := w.rec.Sweep(t.Context()); n != 0 || err != nil {
		t.Errorf("swept %d, %v; want none: all are settled", n, err)
	}
}

// A miss counts only with the account's own credential and the way of finding that the call was sent for; what is found,
// counts all the same.
func TestReconcile_missElsewhere(t *testing.T) {
	for name, other := range map[string]func(*claims.Facts){
		"another credential": func(f *claims.Facts) { f.Credential = gateways.AccountHash(realm, "sk_other") },
		"found another way":  func(f *claims.Facts) { f.LookupForm = "f00d" },
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, nil)
			rec := w.doubt(key, "payment_intents_create")
			next := rec.Clone()
			other(&next.Facts)
			if _, err := w.store.Swap(t.Context(), claims.Condition{}, claims.Write{Version: rec.Version, Next: next}); err != nil {
				t.Fatal(err)
			}
			w.advance(time.Hour)
			if r := w.look(key); r.Misses != 0 || r.State != claims.StateUnknown {
				t.Errorf("%s with %d misses", r.State, r.Misses)
			}
			w.charge(key, "4990")
			w.want(w.look(key), claims.StateSucceeded)
		})
	}
}

// A sidecar that looks elsewhere does not undo the misses of one that looks in the right place.
func TestReconcile_elsewhereKeepsMisses(t *testing.T) {
	w := newWorld(t, nil)
	w.doubt(key, "payment_intents_create")
	w.advance(11 * time.Minute)
	if r := w.look(key); r.Misses != 1 {
		t.Fatalf("%d misses", r.Misses)
	}
	own := w.g.Accounts[0].CredentialHash
	w.g.Accounts[0].CredentialHash = gateways.AccountHash(realm, "sk_other")
	w.advance(31 * time.Second)
	if r := w.look(key); r.Misses != 1 {
		t.Errorf("%d misses after a look elsewhere, want the 1 that was proved", r.Misses)
	}
	w.g.Accounts[0].CredentialHash = own
	w.want(w.look(key), claims.StateOpen)
}

// Another tenant's call is not this process's: its account of the same name is another one.
func TestReconcile_otherTenant(t *testing.T) {
	w := newWorld(t, nil)
	w.doubt(key, "payment_intents_create")
	w.rec.Tenants = []string{"another"}
	w.advance(time.Hour)
	if n, err := w.rec.Sweep(t.Context()); n != 0 || err != nil {
		t.Errorf("swept %d, %v", n, err)
	}
	w.look(key)
	if n := len(w.gw.Sends()); n != 0 {
		t.Errorf("%d lookups of another tenant's call", n)
	}
}

// Requests that wait for one call share a lookup, and come back no sooner than the pace allows.
func TestInline_paced(t *testing.T) {
	w := newWorld(t, nil)
	rec := w.doubt(key, "payment_intents_create")
	w.rec.Pace = time.Hour
	w.gw.Inject(sandbox.Fault{Name: "hold-before", Route: "GET /v1/payment_intents"})
	var wg sync.WaitGroup
	for range 20 {
		wg.Go(func() {
			if err := w.rec.Inline(t.Context(), rec.Key); err != nil {
				t.Error(err)
			}
		})
	}
	if err := w.gw.WaitHold(t.Context(), "hold"); err != nil {
		t.Fatal(err)
	}
	gone, leave := context.WithCancel(t.Context())
	leave()
	if err := w.rec.Inline(gone, rec.Key); err == nil {
		t.Error("a request whose app is gone waited")
	}
	w.gw.Release("hold")
	wg.Wait()
	w.rec.Inline(t.Context(), rec.Key)
	if n := len(w.gw.Sends(http.MethodGet)); n != 1 {
		t.Errorf("%d lookups for 22 requests, want 1", n)
	}
}

// A lookup that nobody waited for says nothing of the gateway: the breaker stays closed.
func TestReconcile_gaveUp(t *testing.T) {
	w := newWorld(t, nil)
	rec := w.doubt(key, "payment_intents_create")
	w.charge(key, "4990")
	for range 12 {
		w.gw.Inject(sandbox.Fault{Name: "hang-before", Route: "GET /v1/payment_intents"})
		ctx, cancel := context.WithCancel(t.Context())
		seen := len(w.gw.Sends(http.MethodGet))
		done := make(chan error, 1)
		go func() { done <- w.rec.Call(ctx, rec.Key) }()
		if err := w.gw.WaitSends(t.Context(), seen+1, http.MethodGet); err != nil {
			t.Fatal(err)
		}
		cancel()
		<-done
	}
	w.gw.ClearFaults()
	w.want(w.look(key), claims.StateSucceeded)
}

// An answer is dropped after its time, and so is the event that told of it; the outcome stays, and so does a doubt.
func TestPrune(t *testing.T) {
	w := newWorld(t, nil)
	w.doubt("old", "payment_intents_create")
	w.charge("old", "4990")
	w.look("old")
	w.doubt("lost", "payment_intents_create")
	w.advance(167 * time.Hour)
	if n, err := w.rec.Prune(t.Context()); n != 0 || err != nil {
		t.Fatalf("pruned %d, %v, an hour too early", n, err)
	}
	w.advance(2 * time.Hour)
	if n := len(w.events()); n != 1 {
		t.Fatalf("%d events before their time, want 1", n)
	}
	if n, err := w.rec.Prune(t.Context()); n != 2 || err != nil {
		t.Fatalf("pruned %d, %v; want the answer and the event", n, err)
	}
	if n := len(w.events()); n != 0 {
		t.Errorf("%d events after their time", n)
	}
	v, err := w.store.Get(t.Context(), claims.Key{Tenant: "t", Call: "old"}, claims.Guard{})
	if err != nil || v.Record.State != claims.StateSucceeded || v.Record.Answer != nil {
		t.Errorf("%s, answer %v, %v", v.Record.State, v.Record.Answer, err)
	}
}

// A call that was sent elsewhere is not looked for here: a miss would prove nothing.
func TestReconcile_otherAddress(t *testing.T) {
	w := newWorld(t, nil)
	rec := w.doubt(key, "payment_intents_create")
	next := rec.Clone()
	next.Facts.Endpoint = "https://before.example"
	if _, err := w.store.Swap(t.Context(), claims.Condition{}, claims.Write{Version: rec.Version, Next: next}); err != nil {
		t.Fatal(err)
	}
	w.advance(time.Hour)
	if r := w.look(key); r.Misses != 0 {
		t.Errorf("%d misses counted at another address", r.Misses)
	}
	if n := len(w.gw.Sends()); n != 0 {
		t.Errorf("%d lookups at another address", n)
	}
}

// Run goes on after a store that fails, and ends with its context.
func TestRun(t *testing.T) {
	w := newWorld(t, nil)
	w.doubt(key, "payment_intents_create")
	w.charge(key, "4990")
	w.rec.Interval = 50 * time.Millisecond
	failing := &failingStore{Store: w.store}
	failing.left.Store(3)
	w.rec.Store = failing
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	wg.Go(func() { w.rec.Run(ctx) })
	deadline := time.Now().Add(20 * time.Second)
	for {
		v, err := w.store.Get(t.Context(), claims.Key{Tenant: "t", Call: key}, claims.Guard{})
		if err != nil {
			t.Fatal(err)
		}
		if v.Record.State == claims.StateSucceeded {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the sweeper did not find it: %s", v.Record.State)
		}
		time.Sleep(10 * time.Millisecond)
	}
	stop()
	wg.Wait()
	if failing.left.Load() >= 0 {
		t.Error("the store never failed")
	}
}

type failingStore struct {
	claims.Store
	left atomic.Int64
}

func (s *failingStore) Unsettled(ctx context.Context, sw claims.Sweep) ([]claims.Key, error) {
	if s.left.Add(-1) >= 0 {
		return nil, context.DeadlineExceeded
	}
	return s.Store.Unsettled(ctx, sw)
}
