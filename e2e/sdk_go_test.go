package e2e

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stripe/stripe-go/v85"

	"github.com/fence-sidecar/fence-sidecar/claims"
	"github.com/fence-sidecar/fence-sidecar/examples/sdks/gostripe"
	"github.com/fence-sidecar/fence-sidecar/examples/sdks/problems"
	"github.com/fence-sidecar/fence-sidecar/gateways/sandbox"
)

// sdkQuiet keeps the SDK from printing every refusal that a test asks for.
func sdkQuiet(t *testing.T) {
	t.Helper()
	was := stripe.DefaultLeveledLogger
	stripe.DefaultLeveledLogger = &stripe.LeveledLogger{Level: stripe.LevelNull}
	t.Cleanup(func() { stripe.DefaultLeveledLogger = was })
}

// sdkWorld is a sandbox gateway, a sidecar before it, and the SDK pointed at the sidecar.
func sdkWorld(t *testing.T) (*world, *sandbox.Server, *stripe.Client) {
	t.Helper()
	sdkQuiet(t)
	gw := sandbox.New(sandbox.Config{})
	addr, err := gw.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { gw.Close() })
	w := newWorld(t, settings{wait: "10s", gateway: []use{{builtin: "stripe", url: gw.URL(addr)}}})
	s := w.start("A")
	return w, gw, gostripe.NewClient(secret, "http://"+s.at("stripe"))
}

func sdkCreate(key, card string) *stripe.PaymentIntentCreateParams {
	p := &stripe.PaymentIntentCreateParams{
		Amount: new(int64(4990)), Currency: new("eur"), Confirm: new(true), PaymentMethod: new(card),
	}
	p.Headers = gostripe.Fence(key, "")
	return p
}

// sdkWant fails the test unless err is Stripe's error of a type and code, and the example decides so.
func sdkWant(t *testing.T, err error, kind stripe.ErrorType, code string, next gostripe.Next) {
	t.Helper()
	e, ok := errors.AsType[*stripe.Error](err)
	if !ok || e.Type != kind || string(e.Code) != code {
		t.Fatalf("want a %s with code %s, got %v", kind, code, err)
	}
	if got, _ := gostripe.Decide(err); got != next {
		t.Errorf("an application would %s on %s, want %s", got, code, next)
	}
}

// sdkPosts fails the test unless the gateway got this many POSTs and executed this many operations.
func sdkPosts(t *testing.T, gw *sandbox.Server, posts, executed int) {
	t.Helper()
	if got := len(gw.Sends(http.MethodPost)); got != posts {
		t.Errorf("%d POSTs reached the gateway, want %d", got, posts)
	}
	if got := len(gw.Ledger()); got != executed {
		t.Errorf("the gateway executed %d operations, want %d: %+v", got, executed, gw.Ledger())
	}
}

func sdkHeader(r *stripe.APIResponse, name string) string {
	if r == nil {
		return ""
	}
	return r.Header.Get(name)
}

func TestSDKCreateAndReplay(t *testing.T) {
	_, gw, c := sdkWorld(t)
	first, err := c.V1PaymentIntents.Create(t.Context(), sdkCreate("charge:order:1", "pm_card_visa"))
	if err != nil {
		t.Fatal(err)
	}
	if first.Status != stripe.PaymentIntentStatusSucceeded || first.Amount != 4990 {
		t.Errorf("got %+v", first)
	}
	again, err := c.V1PaymentIntents.Create(t.Context(), sdkCreate("charge:order:1", "pm_card_visa"))
	if err != nil {
		t.Fatal(err)
	}
	if again.ID != first.ID || sdkHeader(again.LastResponse, "Fence-Result") != "replayed" {
		t.Errorf("the repeat got %s (%s), the first %s", again.ID, sdkHeader(again.LastResponse, "Fence-Result"), first.ID)
	}
	sdkPosts(t, gw, 1, 1)
	other := sdkCreate("charge:order:1", "pm_card_visa")
	other.Amount = new(int64(100))
	_, err = c.V1PaymentIntents.Create(t.Context(), other)
	sdkWant(t, err, stripe.ErrorTypeAPI, "fence_key-conflict", gostripe.Stop)
	sdkPosts(t, gw, 1, 1)
}

func TestSDKCreateThenConfirm(t *testing.T) {
	_, gw, c := sdkWorld(t)
	p := sdkCreate("intent:order:1", "pm_card_visa")
	p.Confirm = nil
	intent, err := c.V1PaymentIntents.Create(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	confirm := &stripe.PaymentIntentConfirmParams{}
	confirm.Headers = gostripe.Fence("confirm:order:1", "")
	done, err := c.V1PaymentIntents.Confirm(t.Context(), intent.ID, confirm)
	if err != nil {
		t.Fatal(err)
	}
	if done.ID != intent.ID || done.Status != stripe.PaymentIntentStatusSucceeded {
		t.Errorf("got %s %s, want %s succeeded", done.ID, done.Status, intent.ID)
	}
	sdkPosts(t, gw, 2, 2)
}

func TestSDKDecline(t *testing.T) {
	_, gw, c := sdkWorld(t)
	for range 2 { // the repeat gets the stored no
		_, err := c.V1PaymentIntents.Create(t.Context(), sdkCreate("charge:order:1", "pm_card_chargeDeclined"))
		sdkWant(t, err, stripe.ErrorTypeCard, "card_declined", gostripe.Declined)
		if _, ok := errors.AsType[*stripe.CardError](err); !ok {
			t.Errorf("want a card error, got %T", err)
		}
	}
	if got := len(gw.Sends(http.MethodPost)); got != 1 || gw.Moved() != 0 {
		t.Errorf("%d POSTs, money moved %d times", got, gw.Moved())
	}
}

func TestSDKRefund(t *testing.T) {
	_, gw, c := sdkWorld(t)
	intent, err := c.V1PaymentIntents.Create(t.Context(), sdkCreate("charge:order:1", "pm_card_visa"))
	if err != nil {
		t.Fatal(err)
	}
	p := &stripe.RefundCreateParams{PaymentIntent: new(intent.ID), Amount: new(int64(1000))}
	p.Headers = gostripe.Fence("refund:order:1", "")
	_, err = c.V1Refunds.Create(t.Context(), p)
	sdkWant(t, err, stripe.ErrorTypeAPI, "fence_bad-request", gostripe.Stop)
	sdkPosts(t, gw, 1, 1)
	p.Headers.Set("Fence-Undo", "none") // the shop gives money back by its own decision: it compensates nothing
	refund, err := c.V1Refunds.Create(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	if refund.Amount != 1000 || refund.PaymentIntent.ID != intent.ID {
		t.Errorf("got %+v", refund)
	}
	sdkPosts(t, gw, 2, 2)
}

func TestSDKListPasses(t *testing.T) {
	_, gw, c := sdkWorld(t)
	intent, err := c.V1PaymentIntents.Create(t.Context(), sdkCreate("charge:order:1", "pm_card_visa"))
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	for pi, err := range c.V1PaymentIntents.List(t.Context(), &stripe.PaymentIntentListParams{}).All(t.Context()) {
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, pi.ID)
	}
	if !slices.Equal(ids, []string{intent.ID}) {
		t.Errorf("listed %v, want %s", ids, intent.ID)
	}
	sdkPosts(t, gw, 1, 1)
}

func TestSDKUntaggedIsNotSent(t *testing.T) {
	_, gw, c := sdkWorld(t)
	p := sdkCreate("", "pm_card_visa")
	p.Headers = nil
	_, err := c.V1PaymentIntents.Create(t.Context(), p)
	sdkWant(t, err, stripe.ErrorTypeAPI, "fence_untagged", gostripe.Stop)
	sdkPosts(t, gw, 0, 0)
}

// TestSDKAnswerLost: the gateway charges and drops its answer; the SDK gets the payment all the same.
func TestSDKAnswerLost(t *testing.T) {
	for _, fault := range []string{"lose-fin", "lose-rst", "error-after-unstored"} {
		t.Run(fault, func(t *testing.T) {
			w, gw, c := sdkWorld(t)
			if err := gw.Inject(sandbox.Fault{Name: fault, Route: "POST /v1/payment_intents"}); err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			intent, err := gostripe.Charge(ctx, c, "1", 4990, "pm_card_visa", "")
			if err != nil {
				t.Fatal(err)
			}
			if intent.Status != stripe.PaymentIntentStatusSucceeded || intent.Amount != 4990 || intent.Object != "payment_intent" {
				t.Errorf("got %+v", intent)
			}
			if got := sdkHeader(intent.LastResponse, "Fence-Outcome"); got != "succeeded" {
				t.Errorf("Fence-Outcome: %s", got)
			}
			if l := gw.Ledger(); len(l) != 1 || l[0].ID != intent.ID || gw.Moved() != 1 {
				t.Errorf("want one execution, the one answered (%s): %+v", intent.ID, l)
			}
			w.wantState("charge:order:1", claims.StateSucceeded)
		})
	}
}

// TestSDKGatewayError: the gateway's own 500 does not say what became of the call. The application is to repeat, and its
// repeat is not sent while nobody knows.
func TestSDKGatewayError(t *testing.T) {
	_, gw, c := sdkWorld(t)
	if err := gw.Inject(sandbox.Fault{Name: "error-before", Route: "POST /v1/payment_intents"}); err != nil {
		t.Fatal(err)
	}
	p := sdkCreate("charge:order:1", "pm_card_visa")
	p.Headers.Set("Prefer", "wait=0")
	for _, code := range []string{"", "fence_in-doubt"} {
		_, err := c.V1PaymentIntents.Create(t.Context(), p)
		sdkWant(t, err, stripe.ErrorTypeAPI, code, gostripe.Repeat)
	}
	sdkPosts(t, gw, 1, 0)
}

// TestSDKToken: a token passes per call; one that was taken over is a hand-over, not a failure, and nothing is sent.
func TestSDKToken(t *testing.T) {
	w, gw, c := sdkWorld(t)
	scope := claims.ScopeKey("default", "order:1")
	lease, err := w.store.Acquire(t.Context(), scope, "worker 1", time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	intent, err := gostripe.Charge(t.Context(), c, "1", 4990, "pm_card_visa", lease.Guard.String())
	if err != nil {
		t.Fatal(err)
	}
	if got := sdkHeader(intent.LastResponse, "Fence-Lease"); got != "live" {
		t.Errorf("Fence-Lease: %s", got)
	}
	if err := w.store.Release(t.Context(), lease.Guard); err != nil {
		t.Fatal(err)
	}
	if _, err := w.store.Acquire(t.Context(), scope, "worker 2", time.Minute); err != nil {
		t.Fatal(err)
	}
	_, err = gostripe.Charge(t.Context(), c, "1", 4990, "pm_card_visa", lease.Guard.String())
	sdkWant(t, err, stripe.ErrorTypeAPI, "fence_fenced", gostripe.HandedOver)
	sdkPosts(t, gw, 1, 1)
}

// sdkNext is what an application does on each refusal; the rest are for a person.
var sdkNext = map[gostripe.Next][]claims.Reason{
	gostripe.HandedOver: {claims.Fenced, claims.ScopeFinished},
	gostripe.Repeat: {
		claims.InFlight, claims.InDoubt, claims.NotSent, claims.StoreUnavailable, claims.LeaseLost, claims.Draining,
		claims.BreakerOpen, claims.Quarantine, claims.Unreadable,
	},
}

// sdkFlaws asks for a refusal in all its variants and returns what is wrong with what the SDK makes of it.
func sdkFlaws(ctx context.Context, c *stripe.Client, h *problems.Handler, slug claims.Reason) (flaws []string) {
	flaw := func(key, format string, args ...any) {
		flaws = append(flaws, key+": "+fmt.Sprintf(format, args...))
	}
	for _, key := range problems.Variants(slug) {
		intent, err := c.V1PaymentIntents.Create(ctx, sdkCreate(key, "pm_card_visa"))
		if err == nil {
			flaw(key, "taken for a payment: %+v", intent)
		}
		e, ok := errors.AsType[*stripe.Error](err)
		if !ok || string(e.Code) != "fence_"+string(slug) {
			flaw(key, "not told as what it is: %v", err)
		}
		if got, _ := gostripe.Decide(err); got != sdkWantNext(slug) {
			flaw(key, "an application would %s, want %s", got, sdkWantNext(slug))
		}
		switch n := h.Counts()[key]; {
		case n == 0:
			flaw(key, "never asked for")
		case n > 1 && !slices.Contains(problems.Repeatable, slug):
			flaw(key, "%d requests, want 1", n)
		}
	}
	return flaws
}

func sdkWantNext(slug claims.Reason) gostripe.Next {
	for next, slugs := range sdkNext {
		if slices.Contains(slugs, slug) {
			return next
		}
	}
	return gostripe.Stop
}

// sdkRefusals runs sdkFlaws for every refusal and adds requests that came in under another call key or none.
func sdkRefusals(t *testing.T, h *problems.Handler) map[claims.Reason][]string {
	t.Helper()
	sdkQuiet(t)
	srv := httptest.NewServer(h)
	t.Cleanup(srv.Close)
	c := gostripe.NewClient(secret, srv.URL)
	var mu sync.Mutex
	var wg sync.WaitGroup
	found, asked := map[claims.Reason][]string{}, []string{}
	for _, slug := range claims.Reasons {
		asked = append(asked, problems.Variants(slug)...)
		wg.Go(func() { // the SDK sleeps between its resends
			flaws := sdkFlaws(t.Context(), c, h, slug)
			mu.Lock()
			defer mu.Unlock()
			found[slug] = flaws
		})
	}
	wg.Wait()
	for key, n := range h.Counts() {
		if !slices.Contains(asked, key) {
			t.Errorf("%d requests under the call key %q, which was never given", n, key)
		}
	}
	return found
}

// TestSDKRefusals: every refusal, in every outcome and with a Retry-After, is an error for the SDK, never a payment, and
// the SDK with its retries on repeats only what may be repeated, under the same call key.
func TestSDKRefusals(t *testing.T) {
	for _, flaws := range sdkRefusals(t, &problems.Handler{}) {
		for _, f := range flaws {
			t.Error(f)
		}
	}
}

// TestSDKRefusalsBite: without the gateway's own error shape the SDK cannot tell a refusal and sends it again, and the check
// above says so for every refusal.
func TestSDKRefusalsBite(t *testing.T) {
	found := sdkRefusals(t, &problems.Handler{Fault: problems.NoShape})
	for _, slug := range claims.Reasons {
		all := strings.Join(found[slug], "\n")
		if !strings.Contains(all, "not told as what it is") {
			t.Errorf("%s without the error shape went unnoticed: %s", slug, all)
		}
		if !slices.Contains(problems.Repeatable, slug) && !strings.Contains(all, "3 requests, want 1") {
			t.Errorf("%s was sent again, unnoticed: %s", slug, all)
		}
	}
}

// TestExampleConfiguration: the example configuration is one that the program takes, but for the place of the store.
func TestExampleConfiguration(t *testing.T) {
	text, err := os.ReadFile("../examples/config/fence.yaml")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	const path = "path: /var/lib/fence-sidecar/fence.db"
	if strings.Count(string(text), path) != 1 {
		t.Fatalf("the example does not say %q once", path)
	}
	for _, c := range []struct {
		name, old, new string
		want           string // in the error; "" for none
	}{
		{"as it is", path, "path: " + filepath.Join(dir, "fence.db"), ""},
		{"a field that is not known", "\ngateways:", "\ngatewayz:", "gatewayz"},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := &world{t: t, dir: dir}
			w.config = w.write("fence.yaml", strings.Replace(string(text), c.old, c.new, 1))
			_, stderr, ok := w.cli("store", "migrate")
			if ok != (c.want == "") || !strings.Contains(stderr, c.want) {
				t.Errorf("ok %v: %s", ok, stderr)
			}
		})
	}
}
