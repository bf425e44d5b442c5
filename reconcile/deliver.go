package reconcile

import (
	"bytes"
	"context"
	"crypto/x509"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fence-sidecar/fence-sidecar/claims"
	"github.com/fence-sidecar/fence-sidecar/gateways"
)

// senders is how many events are delivered side by side. No more are taken at once, so that one that was taken is sent at once
// and no other process takes it meanwhile.
const senders = 8

// What became of one delivery.
const (
	DeliveryTold     = "told"     // 2xx
	DeliveryRefused  = "refused"  // any other status
	DeliveryGone     = "gone"     // 410: the receiver wants no more
	DeliveryFailed   = "failed"   // no answer
	DeliveryUnsigned = "unsigned" // no secret could be read: nothing was sent
)

// DelivererConfig is what a Deliverer works with.
type DelivererConfig struct {
	Journal claims.Journal
	// Confirm is the store's: nothing is told that a failover could still take back.
	Confirm func(context.Context) error
	Realm   string // of the store; part of a delivery's id
	Tenants []string
	URL     string
	Secrets []gateways.Secret // each delivery is signed with all of them; read anew each time
	Roots   *x509.CertPool    // nil: the system's
	Log     *slog.Logger
	// Result, if set, is told of every delivery.
	Result func(result string)

	Interval time.Duration // between two looks for events, jittered by a fifth; default 2 s
	Timeout  time.Duration // of one delivery; default 10 s
	// Base and Max bound the pause after a delivery that failed: doubled each time. Base must be longer than Timeout, or
	// another process delivers what is being delivered. Defaults: Timeout + 5 s, 1 h.
	Base, Max time.Duration
}

// Deliverer posts events to a receiver, signed as Standard Webhooks says. Each event is delivered at least once, in no order, as
// long as the journal keeps it; a repeat has the same webhook-id. Several processes may deliver from one journal.
type Deliverer struct {
	DelivererConfig
	client *http.Client
	lasts  atomic.Bool // the last Confirm succeeded
}

// NewDeliverer makes a Deliverer.
func NewDeliverer(cfg DelivererConfig) *Deliverer {
	cfg.Interval = orElse(cfg.Interval, 2*time.Second)
	cfg.Timeout = orElse(cfg.Timeout, 10*time.Second)
	cfg.Base = orElse(cfg.Base, cfg.Timeout+5*time.Second)
	cfg.Max = orElse(cfg.Max, time.Hour)
	return &Deliverer{DelivererConfig: cfg, client: newClient(Link{Roots: cfg.Roots})}
}

// slowest is the longest pause of a receiver that takes nothing.
const slowest = time.Minute

// Run delivers until ctx ends.
func (d *Deliverer) Run(ctx context.Context) {
	defer d.client.CloseIdleConnections()
	failing := 0 // rounds in a row in which the receiver took nothing
	for {
		n, told, err := d.Deliver(ctx)
		switch {
		case err != nil && ctx.Err() == nil:
			d.Log.Warn("events", "error", err)
		case told > 0 || n == 0:
			failing = 0
		default:
			failing++ // the others stay due, so that they are delivered soon after it takes them again
		}
		pause := claims.Sweep{Base: d.Interval, Max: max(slowest, d.Interval)}.Backoff(failing)
		if n == senders && told > 0 {
			pause = 0
		}
		t := time.NewTimer(pause*4/5 + rand.N(pause*2/5+1))
		select {
		case <-ctx.Done():
			t.Stop()
			return
		case <-t.C:
		}
	}
}

// Deliver delivers one batch of the events that are due and returns how many there were, and how many the receiver took.
func (d *Deliverer) Deliver(ctx context.Context) (n, told int, err error) {
	// To take events moves their next try: while nothing can be confirmed, they are left alone.
	if !d.lasts.Load() {
		if err := d.confirm(ctx); err != nil {
			return 0, 0, err
		}
	}
	events, err := d.Journal.Untold(ctx, claims.Sweep{Limit: senders, Tenants: d.Tenants, Base: d.Base, Max: d.Max})
	if err != nil || len(events) == 0 {
		return 0, 0, err
	}
	if err := d.confirm(ctx); err != nil { // what was taken may have been written since
		return 0, 0, err
	}
	took := make([]bool, len(events))
	var wg sync.WaitGroup
	for i, e := range events {
		wg.Go(func() { took[i] = d.deliver(ctx, e) })
	}
	wg.Wait()
	for _, ok := range took {
		if ok {
			told++
		}
	}
	return len(events), told, nil
}

func (d *Deliverer) confirm(ctx context.Context) error {
	err := d.Confirm(ctx)
	d.lasts.Store(err == nil)
	if err != nil {
		return fmt.Errorf("events are not told yet, they may not last: %w", err)
	}
	return nil
}

// deliver posts one event and, once the receiver has it, marks it as told.
func (d *Deliverer) deliver(ctx context.Context, e claims.Event) bool {
	result, err := d.post(ctx, e)
	if ctx.Err() != nil && result != DeliveryTold {
		return false // the process ends; the event comes back
	}
	if d.Result != nil {
		d.Result(result)
	}
	if result != DeliveryTold {
		d.Log.Warn("event not delivered; it is tried again", "event", e.ID, "tenant", e.Key.Tenant, "call", e.Key.Call, "result", result, "error", err)
		return false
	}
	mark, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if err := d.Journal.Told(mark, e.ID); err != nil {
		d.Log.Warn("an event was delivered and could not be marked; it is delivered again", "event", e.ID, "error", err)
	}
	return true
}

// post makes one delivery. A redirect is an answer that is no 2xx: signed events go to the configured address alone.
func (d *Deliverer) post(ctx context.Context, e claims.Event) (result string, err error) {
	ctx, cancel := context.WithTimeout(ctx, d.Timeout)
	defer cancel()
	id, body, now := deliveryID(d.Realm, e.ID), payload(e), time.Now()
	signatures, err := sign(d.Secrets, id, now, body)
	if signatures == "" {
		return DeliveryUnsigned, err
	}
	if err != nil {
		d.Log.Warn("events: signed without one of the secrets", "error", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, d.URL, bytes.NewReader(body))
	if err != nil {
		return DeliveryFailed, plain(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "fence-sidecar")
	req.Header.Set(headerID, id)
	req.Header.Set(headerTimestamp, strconv.FormatInt(now.Unix(), 10))
	req.Header.Set(headerSignature, signatures)
	resp, err := d.client.Do(req)
	if err != nil {
		return DeliveryFailed, plain(err)
	}
	defer resp.Body.Close()
	switch {
	case resp.StatusCode/100 == 2:
		io.CopyN(io.Discard, resp.Body, 4<<10) // a short answer leaves the connection usable; a long one is nobody's concern
		return DeliveryTold, nil
	case resp.StatusCode == http.StatusGone:
		return DeliveryGone, fmt.Errorf("the receiver answered 410: it wants no more events; take events.url out, or have it answer")
	}
	return DeliveryRefused, fmt.Errorf("the receiver answered %d", resp.StatusCode)
}
