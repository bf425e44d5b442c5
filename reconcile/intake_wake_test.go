package reconcile

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/fence-sidecar/fence-sidecar/claims"
)

// Each call waits once, is asked about at once, and again only after the pause; nothing that is put waits for a place.
func TestWakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w wakes
		w.init(time.Second)
		began := time.Now()
		var mu sync.Mutex
		var asked []string
		ctx, stop := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for range workers {
			wg.Go(func() {
				w.run(ctx, func(_ context.Context, k claims.Key) {
					mu.Lock()
					asked = append(asked, fmt.Sprint(k.Call, " ", time.Since(began)))
					mu.Unlock()
					time.Sleep(100 * time.Millisecond) // a lookup
				})
			})
		}
		a, b := claims.Key{Tenant: "t", Call: "a"}, claims.Key{Tenant: "t", Call: "b"}
		for range 100 {
			w.put(a)
		}
		synctest.Wait()
		w.put(a) // while it is asked about: what came meanwhile may be news
		w.put(b)
		time.Sleep(5 * time.Second)
		synctest.Wait()
		mu.Lock()
		defer mu.Unlock()
		if got, want := fmt.Sprint(asked), "[a 0s b 0s a 1.1s]"; got != want {
			t.Errorf("asked %s, want %s", got, want)
		}
		if len(w.state) != 0 || len(w.queue) != 0 {
			t.Errorf("left %v %v", w.state, w.queue)
		}
		stop()
		wg.Wait()
	})
}

// A queue that is full takes no more and blocks nobody: the sweeper comes anyway.
func TestWakesAreBounded(t *testing.T) {
	var w wakes
	w.init(time.Second)
	for i := range 2 * maxWakes {
		w.put(claims.Key{Tenant: "t", Call: fmt.Sprint(i)})
	}
	if len(w.queue) != maxWakes || len(w.state) != maxWakes {
		t.Errorf("%d wait, want %d", len(w.queue), maxWakes)
	}
}
