package reconcile_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"

	"github.com/fence-sidecar/fence-sidecar/claims"
	"github.com/fence-sidecar/fence-sidecar/claims/memory"
	"github.com/fence-sidecar/fence-sidecar/gateways"
	"github.com/fence-sidecar/fence-sidecar/reconcile"
)

const (
	whsec = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwMfKQ9r8GKYo="
	older = "whsec_b2xkZXIgc2VjcmV0IG9mIHRoZSBldmVudHMhISE="
)

// delivery is one request that the receiver read whole.
type delivery struct {
	header http.Header
	body   []byte
}

// post is a store with events and a receiver of them.
type post struct {
	t     *testing.T
	store *memory.Store
	moved atomic.Int64 // how far the store's clock was pushed on
	srv   *httptest.Server

	mu  sync.Mutex
	got []delivery
}

// newPost starts a receiver that answers as behave says; nil: 204.
func newPost(t *testing.T, behave http.HandlerFunc) *post {
	t.Setenv("WHSEC", whsec)
	p := &post{t: t}
	p.store = memory.New(memory.Config{Now: func() claims.Now {
		n := time.Now().Add(time.Duration(p.moved.Load())).UTC()
		return claims.Now{Store: n, Wall: n}
	}})
	p.srv = httptest.NewServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil || r.Method != http.MethodPost {
			t.Errorf("%s with a body that ends with %v", r.Method, err)
		}
		p.mu.Lock()
		p.got = append(p.got, delivery{r.Header, body})
		p.mu.Unlock()
		if behave == nil {
			rw.WriteHeader(http.StatusNoContent)
			return
		}
		behave(rw, r)
	}))
	t.Cleanup(p.srv.Close)
	return p
}

// settle writes the event of a doubt that came to rest.
func (p *post) settle(call string) {
	p.t.Helper()
	k := claims.Key{Tenant: "t", Call: call}
	rec := claims.Record{Key: k, State: claims.StateSucceeded, Revision: 1, Attempt: 2}
	_, err := p.store.Swap(p.t.Context(), claims.Condition{}, claims.Write{Next: rec, Event: &claims.Event{
		Key: k, Revision: 1, Attempt: 2, From: claims.StateUnknown, State: claims.StateSucceeded, Outcome: claims.Succeeded, Payment: "pending",
	}})
	if err != nil {
		p.t.Fatal(err)
	}
}

func (p *post) deliverer(journal claims.Journal, change ...func(*reconcile.DelivererConfig)) *reconcile.Deliverer {
	cfg := reconcile.DelivererConfig{
		Journal: journal, Confirm: p.store.Confirm, Realm: "memory", Tenants: []string{"t"}, URL: p.srv.URL + "/events",
		Secrets: []gateways.Secret{{Env: "WHSEC"}}, Log: slog.New(slog.DiscardHandler), Timeout: 2 * time.Second,
	}
	for _, c := range change {
		c(&cfg)
	}
	return reconcile.NewDeliverer(cfg)
}

// round delivers what is due, after every pause of a delivery that failed has passed.
func (p *post) round(d *reconcile.Deliverer) (n, told int) {
	p.t.Helper()
	n, told, err := d.Deliver(p.t.Context())
	if err != nil {
		p.t.Fatal(err)
	}
	p.moved.Add(int64(2 * time.Hour))
	return n, told
}

func (p *post) deliveries() []delivery {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.got)
}

// check verifies a delivery as its receiver does, with the library of Standard Webhooks.
func (v delivery) check(secret string) error {
	wh, err := standardwebhooks.NewWebhook(secret)
	if err != nil {
		return err
	}
	return wh.Verify(v.body, v.header)
}

func (v delivery) call() string {
	var b struct{ Data struct{ Call string } }
	json.Unmarshal(v.body, &b)
	return b.Data.Call
}

// lost are the events that no delivery with a good signature told of.
func (p *post) lost(calls ...string) (lost []string) {
	for _, c := range calls {
		if !slices.ContainsFunc(p.deliveries(), func(v delivery) bool { return v.call() == c && v.check(whsec) == nil }) {
			lost = append(lost, c)
		}
	}
	return lost
}

func TestDeliver(t *testing.T) {
	p := newPost(t, nil)
	p.settle("charge:order:42")
	d := p.deliverer(p.store)
	if n, told := p.round(d); n != 1 || told != 1 {
		t.Fatalf("%d events, %d told", n, told)
	}
	if n, _ := p.round(d); n != 0 {
		t.Errorf("%d events after all were told", n)
	}
	v := p.deliveries()[0]
	if err := v.check(whsec); err != nil {
		t.Error(err)
	}
	if v.check(older) == nil {
		t.Error("another secret verifies it")
	}
	v.body = bytes.Replace(v.body, []byte("succeeded"), []byte("declined!"), 1)
	if v.check(whsec) == nil {
		t.Error("another body is verified")
	}
	v = p.deliveries()[0]
	var b map[string]any
	if err := json.Unmarshal(v.body, &b); err != nil {
		t.Fatal(err)
	}
	data := b["data"].(map[string]any)
	if b["type"] != "call.settled" || b["timestamp"] != data["at"] {
		t.Errorf("type %v at %v", b["type"], b["timestamp"])
	}
	if _, err := time.Parse(time.RFC3339, fmt.Sprint(data["at"])); err != nil {
		t.Error(err)
	}
	delete(data, "at")
	got := fmt.Sprint(data)
	want := "map[attempt:2 call:charge:order:42 event:1 from:unknown outcome:succeeded payment:pending revision:1 state:succeeded tenant:t]"
	if got != want {
		t.Errorf("data %s\nwant %s", got, want)
	}
	if v.header.Get("Content-Type") != "application/json" {
		t.Errorf("Content-Type %q", v.header.Get("Content-Type"))
	}
}

// While a secret is changed, a receiver may know either.
func TestDeliver_rotation(t *testing.T) {
	p := newPost(t, nil)
	t.Setenv("OLDER", older)
	two := func(c *reconcile.DelivererConfig) { c.Secrets = append(c.Secrets, gateways.Secret{Env: "OLDER"}) }
	p.settle("a")
	p.round(p.deliverer(p.store, two))
	t.Setenv("OLDER", "sk_test_1234") // is no secret: the other one signs alone
	p.settle("b")
	p.round(p.deliverer(p.store, two))
	got := p.deliveries()
	if len(got) != 2 || got[0].check(whsec) != nil || got[0].check(older) != nil || got[1].check(whsec) != nil {
		t.Errorf("deliveries %+v", got)
	}
	t.Setenv("WHSEC", "whsec_") // an empty key that anybody knows
	p.settle("c")
	result := ""
	if n, told := p.round(p.deliverer(p.store, func(c *reconcile.DelivererConfig) { c.Result = func(r string) { result = r } })); n != 1 || told != 0 {
		t.Errorf("%d events, %d told without a secret", n, told)
	}
	if n := len(p.deliveries()); n != 2 || result != reconcile.DeliveryUnsigned {
		t.Errorf("%d deliveries, the last one %s", n, result)
	}
	t.Setenv("WHSEC", whsec)
	p.round(p.deliverer(p.store))
	if lost := p.lost("a", "b", "c"); lost != nil {
		t.Errorf("lost: %q", lost)
	}
}

// Whatever the receiver does, each event is told at least once, always under the same id and with the same body.
func TestDeliver_hostile(t *testing.T) {
	var stolen atomic.Int64
	thief := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { stolen.Add(1) }))
	defer thief.Close()
	leave := make(chan struct{})
	for name, tt := range map[string]struct {
		bad    func(rw http.ResponseWriter, r *http.Request)
		result string
	}{
		"500": {func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(500) }, reconcile.DeliveryRefused},
		"410": {func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(410) }, reconcile.DeliveryGone},
		"redirect": {func(rw http.ResponseWriter, r *http.Request) {
			http.Redirect(rw, r, thief.URL, http.StatusTemporaryRedirect)
		}, reconcile.DeliveryRefused},
		"hangs": {func(_ http.ResponseWriter, r *http.Request) {
			select {
			case <-r.Context().Done():
			case <-leave:
			}
		}, reconcile.DeliveryFailed},
		"resets": {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, reconcile.DeliveryFailed},
	} {
		t.Run(name, func(t *testing.T) {
			var seen atomic.Int64
			p := newPost(t, func(rw http.ResponseWriter, r *http.Request) {
				if seen.Add(1) <= 3 {
					tt.bad(rw, r)
				}
			})
			p.srv.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo)
			p.settle("a")
			var results []string
			d := p.deliverer(p.store, func(c *reconcile.DelivererConfig) {
				c.Timeout = 300 * time.Millisecond
				c.Result = func(r string) { results = append(results, r) }
			})
			for range 5 {
				p.round(d)
			}
			want := []string{tt.result, tt.result, tt.result, reconcile.DeliveryTold}
			if !slices.Equal(results, want) {
				t.Errorf("results %q, want %q", results, want)
			}
			got := p.deliveries()
			if lost := p.lost("a"); lost != nil || len(got) != 4 {
				t.Fatalf("%d deliveries, lost %q", len(got), lost)
			}
			for _, v := range got {
				if v.header.Get("webhook-id") != got[0].header.Get("webhook-id") || !bytes.Equal(v.body, got[0].body) {
					t.Errorf("a repeat differs:\n%s %s\n%s %s", got[0].header.Get("webhook-id"), got[0].body, v.header.Get("webhook-id"), v.body)
				}
			}
		})
	}
	close(leave)
	if stolen.Load() != 0 {
		t.Error("a redirect was followed")
	}
}

// A 2xx is the receipt, whatever comes behind it.
func TestDeliver_endlessAnswer(t *testing.T) {
	p := newPost(t, func(rw http.ResponseWriter, r *http.Request) {
		rw.WriteHeader(200)
		for r.Context().Err() == nil {
			if _, err := rw.Write(make([]byte, 64<<10)); err != nil {
				return
			}
		}
	})
	p.settle("a")
	d := p.deliverer(p.store)
	if n, told := p.round(d); n != 1 || told != 1 {
		t.Errorf("%d events, %d told", n, told)
	}
	if n, _ := p.round(d); n != 0 || len(p.deliveries()) != 1 {
		t.Errorf("told again: %d deliveries", len(p.deliveries()))
	}
}

// eager marks an event as told when it hands it out, before anybody was told: the broken double that the test of a killed
// process must catch.
type eager struct{ claims.Journal }

func (e eager) Untold(ctx context.Context, s claims.Sweep) ([]claims.Event, error) {
	es, err := e.Journal.Untold(ctx, s)
	for _, ev := range es {
		err = errors.Join(err, e.Journal.Told(ctx, ev.ID))
	}
	return es, err
}

// killed delivers through a process that ends before the receiver has read the request, through one that ends after the
// receiver's answer and before its note, and through one that lives; it returns what was lost, and the deliveries.
func killed(t *testing.T, journal func(claims.Journal) claims.Journal) ([]string, []delivery) {
	p := newPost(t, nil)
	p.settle("a")
	nowhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
	nowhere.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo)
	defer nowhere.Close()
	p.round(p.deliverer(journal(p.store), func(c *reconcile.DelivererConfig) { c.URL = nowhere.URL }))
	p.round(p.deliverer(journal(noNote{p.store})))
	p.round(p.deliverer(journal(p.store)))
	return p.lost("a"), p.deliveries()
}

// noNote is a journal whose process is killed before it can mark an event.
type noNote struct{ claims.Journal }

func (noNote) Told(context.Context, string) error { return errors.New("killed") }

func TestDeliver_killed(t *testing.T) {
	lost, got := killed(t, func(j claims.Journal) claims.Journal { return j })
	if lost != nil {
		t.Errorf("lost: %q", lost)
	}
	if len(got) != 2 || got[0].header.Get("webhook-id") != got[1].header.Get("webhook-id") {
		t.Errorf("%d deliveries, want two under one id", len(got))
	}
}

func TestDeliver_killedBites(t *testing.T) {
	if lost, _ := killed(t, func(j claims.Journal) claims.Journal { return eager{j} }); len(lost) != 1 {
		t.Errorf("a deliverer that marks before it posts loses %q, want the event", lost)
	}
}

// What a failover may still take back is not told.
func TestDeliver_unconfirmed(t *testing.T) {
	p := newPost(t, nil)
	p.settle("a")
	d := p.deliverer(p.store, func(c *reconcile.DelivererConfig) {
		c.Confirm = func(context.Context) error { return errors.New("no standby") }
	})
	if _, _, err := d.Deliver(t.Context()); err == nil || len(p.deliveries()) != 0 {
		t.Errorf("%v, %d deliveries", err, len(p.deliveries()))
	}
}

// counting counts how often events are taken from a journal.
type counting struct {
	claims.Journal
	n int
}

func (c *counting) Untold(ctx context.Context, s claims.Sweep) ([]claims.Event, error) {
	c.n++
	return c.Journal.Untold(ctx, s)
}

// However long nothing can be confirmed, the events are delivered as soon as it can: their next try is not put off meanwhile.
func TestDeliver_confirmsFirst(t *testing.T) {
	for name, before := range map[string]int{"from the start": 0, "later": 1} {
		t.Run(name, func(t *testing.T) {
			p := newPost(t, nil)
			j, lasts := &counting{Journal: p.store}, before == 1
			d := p.deliverer(j, func(c *reconcile.DelivererConfig) {
				c.Confirm = func(context.Context) error {
					if lasts {
						return nil
					}
					return errors.New("no standby")
				}
			})
			for range before {
				p.settle("early")
				p.round(d)
			}
			taken := j.n
			lasts = false
			p.settle("a")
			for range 20 {
				if _, _, err := d.Deliver(t.Context()); err == nil {
					t.Fatal("told what may not last")
				}
				p.moved.Add(int64(20 * time.Second))
			}
			if j.n > taken+before { // the first time it is not known yet
				t.Errorf("events were taken %d times in vain", j.n-taken)
			}
			lasts = true
			if n, told := p.round(d); n != 1 || told != 1 {
				t.Errorf("%d events, %d told as soon as they last", n, told)
			}
		})
	}
}

// Two processes share the events of one journal, and a third, of another tenant, has none of them.
func TestDeliver_shared(t *testing.T) {
	p := newPost(t, func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(http.StatusAccepted) })
	var calls []string
	for i := range 100 {
		calls = append(calls, fmt.Sprintf("c%d", i))
		p.settle(calls[i])
	}
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	soon := func(c *reconcile.DelivererConfig) { c.Interval = 20 * time.Millisecond }
	for range 2 {
		wg.Go(func() { p.deliverer(p.store, soon).Run(ctx) })
	}
	wg.Go(func() {
		p.deliverer(p.store, soon, func(c *reconcile.DelivererConfig) {
			c.Tenants, c.URL = []string{"u"}, "http://127.0.0.1:1"
			c.Result = func(r string) { t.Errorf("another tenant's event: %s", r) }
		}).Run(ctx)
	})
	for end := time.Now().Add(30 * time.Second); p.lost(calls...) != nil; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("lost: %q", p.lost(calls...))
		}
	}
	cancel()
	wg.Wait()
	if n := len(p.deliveries()); n != 100 {
		t.Errorf("%d deliveries of 100 events to a receiver that takes each", n)
	}
}

// A receiver that takes nothing is left alone more and more; the events that were not tried stay due.
func TestDeliver_receiverDown(t *testing.T) {
	p := newPost(t, func(rw http.ResponseWriter, _ *http.Request) { rw.WriteHeader(503) })
	for i := range 1000 {
		p.settle(fmt.Sprintf("c%d", i))
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	p.deliverer(p.store, func(c *reconcile.DelivererConfig) { c.Interval = 100 * time.Millisecond }).Run(ctx)
	if n := len(p.deliveries()); n < 8 || n > 6*8 {
		t.Errorf("%d deliveries in 2 s to a receiver that takes none, want a few rounds of 8", n)
	}
}

func TestCheckWebhookSecret(t *testing.T) {
	for secret, ok := range map[string]bool{
		whsec: true, older: true, strings.TrimPrefix(whsec, "whsec_"): false, "whsec_": false, "whsec_c2hvcnQ=": false,
		"whsec_not base64 at all, but long enough": false, "whsec_" + strings.Repeat("QUFB", 30): false, "": false,
	} {
		t.Setenv("WHSEC", secret)
		err := reconcile.CheckWebhookSecret(gateways.Secret{Env: "WHSEC"})
		if (err == nil) != ok {
			t.Errorf("%q: %v", secret, err)
		}
		if err != nil && len(secret) > 10 && strings.Contains(err.Error(), secret[6:]) {
			t.Errorf("the error shows the secret: %v", err)
		}
	}
}
