package reconcile

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/fence-sidecar/fence-sidecar/claims"
)

// workers is how many calls a sweep looks at side by side.
const workers = 4

// Run sweeps until ctx ends. Several processes may: the store hands each due call to one of them, and if two look, the
// version decides.
func (r *Reconciler) Run(ctx context.Context) {
	for {
		wait := r.Interval*4/5 + time.Duration(rand.Int64N(int64(r.Interval*2/5)+1))
		_, more, err := r.sweep(ctx)
		pruned, err2 := r.Prune(ctx)
		if err := errors.Join(err, err2); err != nil && ctx.Err() == nil {
			r.Log.Warn("sweep", "error", err)
		} else if more || pruned >= r.Batch {
			wait = min(wait, time.Second)
		}
		t := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			t.Stop()
			return
		case <-t.C:
		}
	}
}

// Sweep looks at the calls that are due and returns how many there were. Doubts come first, at once; payments under way wait in a
// backlog, for which a quarter of an interval is left. So ten thousand bank debits delay a doubt by the time that reading them
// takes, and by the few lookups that are under way, not by ten thousand lookups.
func (r *Reconciler) Sweep(ctx context.Context) (int, error) {
	n, _, err := r.sweep(ctx)
	return n, err
}

func (r *Reconciler) sweep(ctx context.Context) (all int, more bool, err error) {
	for end := time.Now().Add(r.Interval / 2); ctx.Err() == nil; {
		n, err := r.batch(ctx)
		all += n
		if err != nil {
			return all, false, err
		}
		if more = n == r.Batch; !more || !time.Now().Before(end) {
			break
		}
	}
	r.pollUntil(ctx, time.Now().Add(r.Interval/4))
	return all, more || !r.polls.empty(), nil
}

// batch takes one batch of due calls, looks at those in doubt and leaves the others to the backlog.
func (r *Reconciler) batch(ctx context.Context) (int, error) {
	keys, err := r.Store.Unsettled(ctx, claims.Sweep{Limit: r.Batch, Tenants: r.Tenants, Base: r.Interval, Max: max(10*time.Minute, r.Interval)})
	if err != nil {
		return 0, err
	}
	work := make(chan claims.Key)
	var wg sync.WaitGroup
	for range min(workers, len(keys)) {
		wg.Go(func() {
			for k := range work {
				if err := r.due(ctx, k); err != nil && ctx.Err() == nil {
					r.Log.Warn("reconcile", "tenant", k.Tenant, "call", k.Call, "error", err)
				}
			}
		})
	}
	for _, k := range keys {
		work <- k
	}
	close(work)
	wg.Wait()
	return len(keys), nil
}

func (r *Reconciler) due(ctx context.Context, k claims.Key) error {
	v, err := r.Store.Get(ctx, k, claims.Guard{}) // the time is read before the lookup leaves
	if err != nil {
		return fmt.Errorf("read: %w", err)
	}
	if v.Recheckable() && !v.Record.Unread() {
		r.polls.put(&v.Record)
		return nil
	}
	return r.call(ctx, v)
}

// Effects forgets the results of fenced effects of before a store time, at most limit of them; a repeat of such a one runs again.
type Effects interface {
	PruneEffects(ctx context.Context, before time.Time, limit int) (int, error)
}

// Prune drops one batch of answers, not outcomes, and one of events that are older than KeepAnswers, and one of effects' results
// that are older than KeepEffects, and returns how many.
func (r *Reconciler) Prune(ctx context.Context) (int, error) {
	v, err := r.Store.Get(ctx, claims.Key{Tenant: "-", Call: "-"}, claims.Guard{}) // for the store's time
	if err != nil {
		return 0, err
	}
	n, err := r.Store.Prune(ctx, v.Now.Store.Add(-r.KeepAnswers), r.Batch)
	if err != nil || r.Effects == nil {
		return n, err
	}
	effects, err := r.Effects.PruneEffects(ctx, v.Now.Store.Add(-r.KeepEffects), r.Batch)
	return n + effects, err
}
