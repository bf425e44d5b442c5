package reconcile

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/fence-sidecar/fence-sidecar/claims"
)

const (
	// longestGap is the longest time between two polls of one call's payment.
	longestGap = 12 * time.Hour
	// maxPolls bounds the calls that wait in memory for their poll. One that finds no place comes back by the store's backoff.
	maxPolls = 10_000
)

// recheck asks about a call that has succeeded: its money is under way, or the store perhaps lost what came after its success.
// Only the payment state moves, unless the gateway shows two successes.
//
// Polling ends when the money has arrived or come back, after claims.PollFor, or at once where the route has no lookup: a probe
// is a send, and a call that has succeeded is not sent again. Where this process cannot ask (no credential, gateway not
// configured) nothing is written: another process may be able to, and the store's backoff bounds the reads.
func (r *Reconciler) recheck(ctx context.Context, v claims.View) error {
	d := r.ask(ctx, v)
	if g, ok := r.Gateways.ByName(v.Record.Facts.Gateway); ok && g.LookupForm(v.Record.Facts.Route) == "" {
		d.Rules.NoWay = true
	}
	next, moved := claims.Recheck(v, d)
	if next.State != claims.StateSucceeded {
		next.Poll = false // a person's now
	}
	if next.Poll && d.Looked {
		next.NextCheck, moved = v.Now.Store.Add(r.pollGap(v.Now.Age(v.Record.FirstStarted))), true
	}
	r.tell(next, d)
	if !moved {
		return nil
	}
	return r.write(ctx, v, next)
}

// pollGap is how long a payment is left alone: until the call is a quarter older. That is under a hundred polls in PollFor,
// whatever the interval, as against thousands by the backoff of doubts; a bank debit takes days.
func (r *Reconciler) pollGap(age time.Duration) time.Duration {
	return min(max(10*r.Interval, age/4), longestGap)
}

// backlog holds calls that have succeeded and are to be looked up, until no doubt is waiting.
type backlog struct {
	mu      sync.Mutex
	waiting []claims.Key
	version map[claims.Key]int64 // as it was when it was put here; a call that was written since has had its turn
}

func (b *backlog) put(r *claims.Record) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.version == nil {
		b.version = map[claims.Key]int64{}
	}
	_, there := b.version[r.Key]
	if !there && len(b.waiting) >= maxPolls {
		return
	}
	if !there {
		b.waiting = append(b.waiting, r.Key)
	}
	b.version[r.Key] = r.Version
}

func (b *backlog) take() (k claims.Key, version int64, ok bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.waiting) == 0 {
		b.waiting = nil
		return claims.Key{}, 0, false
	}
	k, b.waiting = b.waiting[0], b.waiting[1:]
	version = b.version[k]
	delete(b.version, k)
	return k, version, true
}

func (b *backlog) empty() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.waiting) == 0
}

// pollUntil asks about the payments in the backlog. None is begun after end, so that a doubt waits for the ones that are under
// way at most, however many there are.
func (r *Reconciler) pollUntil(ctx context.Context, end time.Time) {
	var wg sync.WaitGroup
	for range workers {
		wg.Go(func() {
			for ctx.Err() == nil && time.Now().Before(end) {
				k, version, ok := r.polls.take()
				if !ok {
					return
				}
				if err := r.poll(ctx, k, version); err != nil && ctx.Err() == nil {
					r.Log.Warn("poll of a payment", "tenant", k.Tenant, "call", k.Call, "error", err)
				}
			}
		})
	}
	wg.Wait()
}

func (r *Reconciler) poll(ctx context.Context, k claims.Key, version int64) error {
	v, err := r.Store.Get(ctx, k, claims.Guard{})
	if err != nil {
		return fmt.Errorf("read: %w", err)
	}
	if v.Record.Version != version {
		return nil
	}
	return r.call(ctx, v)
}
