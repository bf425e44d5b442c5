// Package gostripe shows how an application calls Stripe through the sidecar with the official Go SDK: another host and
// port, one header per call, and one decision per error.
package gostripe

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/stripe/stripe-go/v85"
)

// NewClient is Stripe's own client, pointed at the sidecar's port for Stripe (http://127.0.0.1:8100). The API key stays
// the application's; the SDK's retries may stay on.
func NewClient(apiKey, sidecar string) *stripe.Client {
	api := stripe.GetBackendWithConfig(stripe.APIBackend, &stripe.BackendConfig{
		URL: new(sidecar),
		// Longer than the sidecar's attemptTimeout and wait together. A client that hangs up earlier loses nothing: the
		// call goes on, and a repeat gets its answer.
		HTTPClient: &http.Client{Timeout: 150 * time.Second},
	})
	return stripe.NewClient(apiKey, stripe.WithBackends(&stripe.Backends{API: api}))
}

// Fence makes the headers of one fenced call. The key names what is to happen once, so it is made of the application's own
// identifiers, never at random: a repeat after a crash must find the same one. token is what the lease API gave ("": the
// call has no hand-over protection).
func Fence(key, token string) http.Header {
	h := http.Header{"Fence-Key": {key}}
	if token != "" {
		h.Set("Fence-Token", token)
	}
	return h
}

// Next is what an application does about an error.
type Next string

const (
	// Repeat the very same call under the same key, later. It is not known whether money moved, or nothing could be tried.
	Repeat Next = "repeat"
	// Declined is the gateway's no, and the only error on which anything is undone.
	Declined Next = "declined"
	// HandedOver means that somebody else works on this now: stop, undo nothing, repeat nothing.
	HandedOver Next = "handed-over"
	// Stop and tell a person: repeating does not help, and whether money moved is in the problem's text.
	Stop Next = "stop"
)

// Decide reads an error of the SDK. after is how long to wait before a repeat.
func Decide(err error) (next Next, after time.Duration) {
	e, ok := errors.AsType[*stripe.Error](err)
	if !ok || e.LastResponse == nil {
		return Repeat, time.Second // no answer came: the call may have been carried out
	}
	h := e.LastResponse.Header
	slug, refused := strings.CutPrefix(string(e.Code), "fence_")
	switch {
	case refused && (slug == "fenced" || slug == "scope-finished"):
		return HandedOver, 0
	case refused && (slug == "in-flight" || e.HTTPStatusCode >= 500):
		return Repeat, retryAfter(h)
	case refused:
		return Stop, 0
	case h.Get("Fence-Outcome") == "declined":
		return Declined, 0
	case h.Get("Fence-Outcome") == "unknown": // the gateway's own 5xx: what became of the call is not found out yet
		return Repeat, retryAfter(h)
	case h.Get("Fence-Outcome") == "not-executed" && e.HTTPStatusCode == http.StatusTooManyRequests:
		return Repeat, retryAfter(h)
	}
	return Stop, 0
}

func retryAfter(h http.Header) time.Duration {
	n, err := strconv.Atoi(h.Get("Retry-After"))
	if err != nil || n < 1 {
		n = 1
	}
	return time.Duration(n) * time.Second
}

// Charge takes amount (in minor units) for an order, until the answer is known or ctx ends. An error that asks for a repeat
// when ctx ends is no failure: the order stays open, and a later Charge of it goes on.
func Charge(ctx context.Context, c *stripe.Client, order string, amount int64, card, token string) (*stripe.PaymentIntent, error) {
	params := &stripe.PaymentIntentCreateParams{
		Amount: new(amount), Currency: new("eur"),
		Confirm: new(true), PaymentMethod: new(card),
	}
	params.Headers = Fence("charge:order:"+order, token)
	for {
		intent, err := c.V1PaymentIntents.Create(ctx, params)
		if err == nil {
			return intent, nil
		}
		next, after := Decide(err)
		if next != Repeat {
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(after):
		}
	}
}
