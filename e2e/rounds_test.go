package e2e

import (
	"bufio"
	"bytes"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/fence-sidecar/fence-sidecar/claims"
	"github.com/fence-sidecar/fence-sidecar/gateways/sandbox"
)

// TestTwentyIdenticalChargesTwoHundredRounds: 20 identical charges at once, half to each of two sidecars on one database,
// and nobody repeats. Each is answered with the payment, or told that it is in flight; the gateway executes one.
func TestTwentyIdenticalChargesTwoHundredRounds(t *testing.T) {
	t.Parallel()
	gateway, u := newSandbox(t, sandbox.Config{})
	u.attempt = "30s"
	w := newWorld(t, settings{store: onPostgres(t), gateway: []use{u}})
	a, b := w.pair()
	const rounds, crowd = 200, 20
	sidecars := []*sidecar{a, b}
	lines := make([]*line, crowd)
	for i := range lines {
		lines[i] = newLine(t, sidecars[i%2].at("stripe"))
	}
	won := map[string]int{} // by sidecar
	paid := 0
	for round := range rounds {
		r := charge(fmt.Sprintf("charge:order:%d", round))
		replies := make([]reply, crowd)
		start := make(chan struct{})
		var wg sync.WaitGroup
		for i := range crowd {
			wg.Go(func() {
				<-start
				replies[i] = lines[i].send(r)
			})
		}
		close(start)
		wg.Wait()
		final := send(a.at("stripe"), r)
		final.want(t, 200, "")
		final.wantResult(t, "succeeded", "replayed")
		sent := 0
		for i, p := range replies {
			switch {
			case p.err == nil && p.status == 200 && bytes.Equal(p.body, final.body):
				paid++
				if p.header("Fence-Result") == "sent" {
					sent++
					won[sidecars[i%2].name]++
				}
			case p.slug() == "in-flight" && p.status == 409 && p.retryAfter() >= 1:
			default:
				t.Errorf("round %d, caller %d: want %s, or in-flight, got %s", round, i, final.body, p)
			}
		}
		if sent != 1 {
			t.Errorf("round %d: %d callers got the answer of a send, want 1", round, sent)
		}
		if n := gateway.Executed(w.record(fmt.Sprintf("charge:order:%d", round)).Facts.GatewayKey); n != 1 {
			t.Errorf("round %d: the gateway executed %d charges", round, n)
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
	if won["A"] == 0 || won["B"] == 0 {
		t.Errorf("one sidecar won every round, nothing was contended: %v", won)
	}
	t.Logf("won by %v; %d of %d callers got the payment at once", won, paid, rounds*crowd)
}

// line is an app's connection that is used again and again.
type line struct {
	c  net.Conn
	br *bufio.Reader
}

func newLine(t *testing.T, addr string) *line {
	t.Helper()
	c, err := dial(addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return &line{c, bufio.NewReader(c)}
}

func (l *line) send(r request) reply {
	l.c.SetDeadline(time.Now().Add(patience))
	if _, err := l.c.Write(bytes.Replace(r.wire(), []byte("Connection: close\r\n"), nil, 1)); err != nil {
		return reply{err: err}
	}
	return readReply(l.br)
}
