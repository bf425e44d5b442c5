package reconcile

import (
	"context"
	"errors"
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
		n, err := r.Sweep(ctx)
		pruned, err2 := r.Prune(ctx)
		if err := errors.Join(err, err2); err != nil && ctx.Err() == nil {
			r.Log.Warn("sweep", "error", err)
		} else if n == r.Batch || pruned == r.Batch {
			wait = time.Second // there is more
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

// Sweep looks at one batch of due calls and returns how many there were.
func (r *Reconciler) Sweep(ctx context.Context) (int, error) {
	keys, err := r.Store.Unsettled(ctx, claims.Sweep{Limit: r.Batch, Tenants: r.Tenants, Base: r.Interval, Max: max(10*time.Minute, r.Interval)})
	if err != nil {
		return 0, err
	}
	work := make(chan claims.Key)
	var wg sync.WaitGroup
	for range min(workers, len(keys)) {
		wg.Go(func() {
			for k := range work {
				if err := r.Call(ctx, k); err != nil && ctx.Err() == nil {
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

// Prune drops one batch of answers, not outcomes, that are older than KeepAnswers, and returns how many.
func (r *Reconciler) Prune(ctx context.Context) (int, error) {
	v, err := r.Store.Get(ctx, claims.Key{Tenant: "-", Call: "-"}, claims.Guard{}) // for the store's time
	if err != nil {
		return 0, err
	}
	return r.Store.Prune(ctx, v.Now.Store.Add(-r.KeepAnswers), r.Batch)
}
