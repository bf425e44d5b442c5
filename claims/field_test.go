package claims_test

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/fence-sidecar/fence-sidecar/claims"
	"github.com/fence-sidecar/fence-sidecar/claims/memory"
)

// finishers are those who come to know of one charge at the same moment: its sender, somebody who looked it up, and a notice.
type finishers struct {
	t     *testing.T
	store *memory.Store
	fence *claims.Fence
	guard claims.Guard
}

func newFinishers(t *testing.T) *finishers {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	s := memory.New(memory.Config{})
	inst := claims.NewInstance(s, claims.SystemClock, claims.LeaseTimes{TTL: time.Hour}, "p", log)
	if err := inst.Take(t.Context()); err != nil {
		t.Fatal(err)
	}
	f := claims.New(claims.Config{Store: s, Leases: s, Keys: memory.Ring{}, Instance: inst, Clock: claims.SystemClock, Log: log})
	return &finishers{t: t, store: s, fence: f, guard: inst.Guard()}
}

// write applies a change to the record until it is in or tells nothing any more.
func (f *finishers) write(key claims.Key, change func(v claims.View) (claims.Record, bool)) (won bool) {
	for {
		v, err := f.store.Get(context.Background(), key, claims.Guard{})
		if err != nil {
			f.t.Error(err)
			return false
		}
		next, changed := change(v)
		if !changed {
			return false
		}
		_, err = f.store.Swap(context.Background(), claims.Condition{}, claims.Write{Version: v.Record.Version, Next: next, Event: claims.EventOf(v.Record, next)})
		if err == nil {
			return v.Record.State != claims.StateSucceeded && next.State == claims.StateSucceeded
		}
		if !errors.Is(err, claims.ErrLost) {
			f.t.Error(err)
			return false
		}
	}
}

// TestField_R67_twoFinishers: 500 rounds. One compare-and-set settles the call, one event at most tells of it, the app gets the
// gateway's own answer, and what the others saw is kept.
func TestField_R67_twoFinishers(t *testing.T) {
	f := newFinishers(t)
	won := map[string]int{}
	for i := range 500 {
		key := claims.Key{Tenant: "shop", Call: claims.NewClaimID().String()}
		go3 := make(chan struct{})
		var wg sync.WaitGroup
		var mu sync.Mutex
		count := func(who string, is bool) {
			mu.Lock()
			defer mu.Unlock()
			if is {
				won[who]++
			}
		}
		wg.Go(func() {
			<-go3
			count("reconciler", f.write(key, func(v claims.View) (claims.Record, bool) {
				late := v.Now // the deadline has passed by the reconciler's clock
				late.Store = v.Record.Deadline.Add(time.Second)
				return claims.Apply(v.Record, claims.Verdict{
					Finding: claims.Finding{Kind: claims.FoundDone, Answer: &claims.Answer{Status: 200, Body: []byte("found")}},
					Looked:  true, Version: v.Record.Version, Asked: late,
				})
			}))
		})
		wg.Go(func() {
			<-go3
			count("notice", f.write(key, func(v claims.View) (claims.Record, bool) {
				next, _, changed, err := claims.Notice(v, claims.Noticed{ID: "n1", Outcome: claims.Succeeded, By: "gateway"})
				if err != nil {
					t.Error(err)
				}
				return next, changed
			}))
		})
		r := f.fence.Do(t.Context(), claims.Call{
			Key: key, Revision: 1, Canonical: []byte("x"), CanonicalVersion: 1,
			Facts:  claims.Facts{Gateway: "g", GatewayKey: "gk", Retention: 24 * time.Hour},
			Policy: claims.Policy{AttemptTimeout: time.Minute, MaxAttempts: 5},
			Send: func(_ context.Context, _ claims.Pass, gate func() error) claims.Sent {
				if err := gate(); err != nil {
					return claims.Sent{Unsent: true}
				}
				close(go3)
				if i%3 == 0 { // the others come first
					wg.Wait()
				}
				return claims.Sent{Outcome: claims.Succeeded, Answer: &claims.Answer{Status: 200, Body: []byte("direct")}}
			},
		})
		wg.Wait()
		if r.Answer == nil || string(r.Answer.Body) != "direct" || r.Outcome != claims.Succeeded {
			t.Fatalf("the app got %s", show(r))
		}
		v, err := f.store.Get(t.Context(), key, claims.Guard{})
		if err != nil || v.Record.State != claims.StateSucceeded || v.Record.Answer == nil {
			t.Fatalf("%s: %v", v.Record.State, err)
		}
	}
	events, err := f.store.Events(t.Context(), "", 10000)
	if err != nil {
		t.Fatal(err)
	}
	told := map[claims.Key]int{}
	for _, e := range events {
		told[e.Key]++
	}
	for k, n := range told {
		if n != 1 {
			t.Errorf("%d events of %s", n, k)
		}
	}
	if won["reconciler"]+won["notice"] != len(events) {
		t.Errorf("%d events, settled by %v", len(events), won)
	}
	if len(events) < 160 {
		t.Errorf("only %d of 500 rounds were settled by others than the sender: the race was not run", len(events))
	}
}
