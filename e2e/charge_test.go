package e2e

import (
	"bytes"
	"fmt"
	"sync"
	"testing"

	"github.com/fence-sidecar/fence-sidecar/claims"
	"github.com/fence-sidecar/fence-sidecar/gateways/sandbox"
)

// TestCharge_twoSidecars: 20 identical charges at once, half to each of two processes on one file, 100 rounds.
func TestCharge_twoSidecars(t *testing.T) {
	gateway, u := newSandbox(t, sandbox.Config{})
	w := newWorld(t, settings{gateway: []use{{builtin: u.builtin, url: u.url, attempt: "30s"}}})
	a, b := w.pair()
	const rounds = 100
	for i := range rounds {
		key := fmt.Sprintf("charge:order:%d", i)
		crowd(t, charge(key), 20, a.at("stripe"), b.at("stripe"))
		if n := gateway.Executed(w.record(key).Facts.GatewayKey); n != 1 {
			t.Fatalf("round %d: the gateway executed %d charges", i, n)
		}
		if t.Failed() {
			return
		}
	}
	if n := gateway.Moved(); n != rounds {
		t.Errorf("the gateway moved money %d times in %d rounds", n, rounds)
	}
	if n := len(gateway.Sends("POST")); n != rounds {
		t.Errorf("the gateway got %d sends in %d rounds", n, rounds)
	}
	for _, r := range w.all() {
		if r.State != claims.StateSucceeded || r.Attempt != 1 {
			t.Errorf("call %s: %s after attempt %d", r.Key, r.State, r.Attempt)
		}
	}
}

// crowd makes n identical requests at once, in turn to the addresses. Whoever is told that the call is in flight repeats
// it. All must get the same answer, and exactly one the gateway's own.
func crowd(t *testing.T, r request, n int, addrs ...string) reply {
	t.Helper()
	replies, errs := make([]reply, n), make([]error, n)
	start := make(chan struct{})
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			<-start
			replies[i], errs[i] = insistAt(r, addrs[i%len(addrs)])
		})
	}
	close(start)
	wg.Wait()
	sent := 0
	for i, p := range replies {
		if errs[i] != nil {
			t.Errorf("caller %d: %v", i, errs[i])
			continue
		}
		if p.header("Fence-Result") == "sent" {
			sent++
		}
		if p.status != replies[0].status || !bytes.Equal(p.body, replies[0].body) {
			t.Errorf("callers 0 and %d got different answers:\n%s\n%s", i, replies[0], p)
		}
	}
	if sent != 1 {
		t.Errorf("%d callers got the answer of a send, want 1", sent)
	}
	return replies[0]
}
