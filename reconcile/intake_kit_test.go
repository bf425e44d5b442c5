package reconcile_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stripe/stripe-go/v85/webhook"

	"github.com/fence-sidecar/fence-sidecar/claims"
	"github.com/fence-sidecar/fence-sidecar/gateways"
	"github.com/fence-sidecar/fence-sidecar/reconcile"
)

const hookSecret = "whsec_shop"

// desk is a world with an intake behind a real listener. Its gateway's accounts are shop and other, its tenants t and t2.
type desk struct {
	*world
	in    *reconcile.Intake
	srv   *httptest.Server
	store *frail
	log   strings.Builder

	mu      sync.Mutex
	results []string
}

// frail is a store whose next calls of some kinds go wrong.
type frail struct {
	claims.Backend
	mu      sync.Mutex
	lost    int  // swaps that another write outran
	half    bool // the next swap is written, and said to have failed
	confirm error
	full    bool
	down    bool
}

func (f *frail) Swap(ctx context.Context, c claims.Condition, ws ...claims.Write) (claims.Swapped, error) {
	f.mu.Lock()
	lost, half, down := f.lost > 0, f.half, f.down
	if lost {
		f.lost--
	}
	f.half = false
	f.mu.Unlock()
	switch {
	case down:
		return claims.Swapped{}, errors.New("the store is away")
	case lost:
		ws = slices.Clone(ws)
		ws[0].Version += 1000
	}
	sw, err := f.Backend.Swap(ctx, c, ws...)
	if half && err == nil {
		return claims.Swapped{}, errors.New("the connection broke in the commit")
	}
	return sw, err
}

func (f *frail) Confirm(ctx context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.confirm != nil {
		return f.confirm
	}
	return f.Backend.Confirm(ctx)
}

func (f *frail) Keep(ctx context.Context, e claims.Early) error {
	f.mu.Lock()
	full := f.full
	f.mu.Unlock()
	if full {
		return fmt.Errorf("%w: 3 of tenant %s", claims.ErrInboxFull, e.Tenant)
	}
	return f.Backend.Keep(ctx, e)
}

func (f *frail) set(change func(*frail)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(f)
}

func newDesk(t *testing.T, bend func(*gateways.Gateway)) *desk {
	t.Setenv("HOOK", hookSecret)
	t.Setenv("HOOK_OTHER", "whsec_other")
	d := &desk{}
	d.world = newWorld(t, func(g *gateways.Gateway) {
		g.Accounts[0].WebhookSecrets = []gateways.Secret{{Env: "HOOK"}}
		g.Accounts = append(g.Accounts, gateways.Account{Name: "other", WebhookSecrets: []gateways.Secret{{Env: "HOOK_OTHER"}}})
		for _, r := range g.Routes {
			if r.Reference != nil {
				r.Reference.Owned = false // the references here are not of our making
			}
		}
		if bend != nil {
			bend(g)
		}
	})
	d.store = &frail{Backend: d.world.store}
	cfg := d.rec.Config
	cfg.Tenants, cfg.Pace, cfg.Store = []string{"t", "t2"}, 20*time.Millisecond, d.store
	cfg.Log = slog.New(slog.NewTextHandler(&lockedWriter{w: &d.log}, nil))
	d.rec = reconcile.New(cfg)
	d.in = d.intake()
	d.srv = httptest.NewServer(d.in)
	t.Cleanup(d.srv.Close)
	return d
}

type lockedWriter struct {
	mu sync.Mutex
	w  io.Writer
}

func (l *lockedWriter) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.w.Write(b)
}

// intake is one more process's.
func (d *desk) intake() *reconcile.Intake {
	return reconcile.NewIntake(reconcile.IntakeConfig{
		Store: d.store, Finder: d.store, Inbox: d.store, Reconciler: d.rec, Log: d.rec.Log, Interval: 20 * time.Millisecond,
		Result: func(_, r string) { d.mu.Lock(); d.results = append(d.results, r); d.mu.Unlock() },
	})
}

// run lets the intake work in the background until the test ends.
func (d *desk) run(t *testing.T) {
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan struct{})
	go func() { defer close(done); d.in.Run(ctx) }()
	t.Cleanup(func() { stop(); <-done })
}

const shopPath = "/webhooks/t/stripe/shop"

// post sends a body to an address, signed by a secret at a time.
func (d *desk) post(path, body, secret string, at time.Time) (status int, answer string) {
	d.t.Helper()
	p := webhook.GenerateTestSignedPayload(&webhook.UnsignedPayload{Payload: []byte(body), Secret: secret, Timestamp: at})
	return d.raw(http.MethodPost, path, body, p.Header)
}

func (d *desk) raw(method, path, body, signature string) (status int, answer string) {
	d.t.Helper()
	req, err := http.NewRequest(method, d.srv.URL+path, strings.NewReader(body))
	if err != nil {
		d.t.Fatal(err)
	}
	if signature != "" {
		req.Header.Set("Stripe-Signature", signature)
	}
	resp, err := d.srv.Client().Do(req)
	if err != nil {
		d.t.Fatal(err)
	}
	defer resp.Body.Close()
	b, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(b)
}

// tell sends a good notice to the shop's address and wants an answer.
func (d *desk) tell(body string, want int) {
	d.t.Helper()
	if status, answer := d.post(shopPath, body, hookSecret, time.Now()); status != want {
		d.t.Errorf("answered %d %q, want %d", status, answer, want)
	}
}

// event is one of Stripe's, of an object whose metadata name a call.
type event struct {
	id, kind, object, status, call string
	amount                         int
}

func (e event) json() string {
	amount := e.amount
	if amount == 0 {
		amount = 4990
	}
	return fmt.Sprintf(`{"id":%q,"type":%q,"data":{"object":{"id":%q,"object":"x","status":%q,"amount":%d,"currency":"eur","receipt_email":"ada@example.com",`+
		`"metadata":{"fence_ref":%q}}}}`, e.id, e.kind, e.object, e.status, amount, "ref-"+e.call)
}

func paid(call string) event {
	return event{id: "evt_" + call, kind: "charge.succeeded", object: "ch_" + call, status: "succeeded", call: call}
}

func failed(call string) event {
	return event{id: "evt_f_" + call, kind: "charge.failed", object: "ch_" + call, status: "failed", call: call}
}

func (d *desk) record(call string) claims.Record {
	d.t.Helper()
	v, err := d.store.Get(context.Background(), claims.Key{Tenant: "t", Call: call}, claims.Guard{})
	if err != nil {
		d.t.Fatal(err)
	}
	return v.Record
}

// told are the results since the last time.
func (d *desk) told() string {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := strings.Join(d.results, " ")
	d.results = nil
	return out
}

func (d *desk) wantTold(want string) {
	d.t.Helper()
	if got := d.told(); got != want {
		d.t.Errorf("results %q, want %q", got, want)
	}
}

// kept are the notices in the inbox.
func (d *desk) kept() []claims.Early {
	d.t.Helper()
	es, err := d.world.store.Kept(context.Background(), nil, 1000)
	if err != nil {
		d.t.Fatal(err)
	}
	return es
}

// noSend fails if anything but reads came to the gateway.
func (d *desk) noSend() {
	d.t.Helper()
	if n := len(d.gw.Sends(http.MethodPost)); n != 0 {
		d.t.Errorf("%d sends", n)
	}
}

func soon(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !cond(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never happened: %s", what)
		}
	}
}
