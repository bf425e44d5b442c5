package console

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fence-sidecar/fence-sidecar/claims"
	"github.com/fence-sidecar/fence-sidecar/claims/memory"
)

// bubbled is a console behind a real server, in virtual time. A goroutine that is left behind fails the test.
type bubbled struct {
	*testing.T
	*Console
	store  *double
	reg    *prometheus.Registry
	asleep atomic.Int64 // ns by which boot time and wall time are ahead: the machine was suspended

	listener *pipes
	client   *http.Client
}

func bubble(t *testing.T, f func(*bubbled)) {
	t.Helper()
	described(t)
	synctest.Test(t, func(t *testing.T) {
		b := &bubbled{T: t, reg: prometheus.NewRegistry(), listener: newPipes()}
		b.store = &double{Backend: memory.New(memory.Config{})}
		began := time.Now()
		b.Console = New(Config{
			Leases: b.store, Lister: b.store, Confirm: b.store.Confirm, Calls: b.store, Journal: b.store, Log: quiet, Metrics: NewMetrics(b.reg),
			Clock: func() claims.Reading {
				up, asleep := time.Since(began), time.Duration(b.asleep.Load())
				return claims.Reading{Mono: up, Boot: up + asleep, Wall: began.Round(0).Add(up + asleep)}
			},
		})
		server := &http.Server{Handler: b.Handler(), ReadHeaderTimeout: 10 * time.Second}
		var wg sync.WaitGroup
		wg.Go(func() { server.Serve(b.listener) })
		transport := &http.Transport{DialContext: func(context.Context, string, string) (net.Conn, error) { return b.listener.dial() }}
		b.client = &http.Client{Transport: transport}
		defer func() {
			server.Close()
			transport.CloseIdleConnections()
			wg.Wait()
		}()
		f(b)
	})
}

// pipes is a listener whose connections are pipes: nothing is buffered, so that a client that does not read is felt at once.
type pipes struct {
	conns chan net.Conn
	done  chan struct{}
	once  sync.Once
}

func newPipes() *pipes { return &pipes{conns: make(chan net.Conn), done: make(chan struct{})} }

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error { p.once.Do(func() { close(p.done) }); return nil }

func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipes", Net: "unix"} }

func (p *pipes) dial() (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case p.conns <- server:
		return client, nil
	case <-p.done:
		return nil, errors.New("the server is closed")
	}
}

func (b *bubbled) dial() net.Conn {
	c, err := b.listener.dial()
	if err != nil {
		b.Fatal(err)
	}
	return c
}

func (b *bubbled) readResponse(c net.Conn) *http.Response {
	b.Helper()
	defer c.Close()
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		b.Fatal(err)
	}
	return resp
}

func (b *bubbled) send(ctx context.Context, method, op, token, body string) *http.Response {
	b.Helper()
	r, err := http.NewRequestWithContext(ctx, method, "http://localhost/v1/leases/"+op, strings.NewReader(body))
	if err != nil {
		b.Fatal(err)
	}
	if body != "" {
		r.Header.Set("Content-Type", "application/json")
	}
	if token != "" {
		r.Header.Set("Fence-Token", token)
	}
	resp, err := b.client.Do(r)
	if err != nil {
		b.Fatal(err)
	}
	return resp
}

func (b *bubbled) post(op, token, body string) reply {
	b.Helper()
	resp := b.send(b.Context(), "POST", op, token, body)
	defer resp.Body.Close()
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		b.Fatal(err)
	}
	got := reply{status: resp.StatusCode, header: resp.Header, raw: raw, body: map[string]any{}}
	json.Unmarshal(raw, &got.body)
	if err := described(b.T).check(request("POST", "/v1/leases/"+op, token, body), []byte(body), got); err != nil {
		b.Errorf("%s %s → %d %s\nis not as described: %v", op, body, got.status, raw, err)
	}
	return got
}

func (b *bubbled) acquire(id string) string {
	b.Helper()
	r := b.post("acquire", "", `{"id":"`+id+`","holder":"me"}`)
	if r.status != 200 {
		b.Fatalf("acquire: %d %s", r.status, r.raw)
	}
	return r.text("fence_token")
}

// watcher reads one watch stream.
type watcher struct {
	b      *bubbled
	token  string
	id     string // of the watch, once it was told
	events chan event
	close  context.CancelFunc
}

type event struct {
	name string
	data map[string]any
	at   time.Duration // since the stream was opened
}

func (b *bubbled) watch(token string) *watcher { return b.watchFor(token, "") }

func (b *bubbled) watchFor(token, query string) *watcher {
	b.Helper()
	ctx, cancel := context.WithCancel(b.Context())
	began := time.Now()
	resp := b.send(ctx, "GET", "watch"+query, token, "")
	if err := described(b.T).check(request("GET", "/v1/leases/watch"+query, token, ""), nil, reply{status: resp.StatusCode, header: resp.Header}); err != nil || resp.StatusCode != 200 {
		b.Fatalf("%d: %v", resp.StatusCode, err)
	}
	w := &watcher{b: b, token: token, events: make(chan event, 100), close: cancel}
	go func() {
		defer close(w.events)
		defer resp.Body.Close()
		for lines := bufio.NewScanner(resp.Body); lines.Scan(); {
			name, _ := strings.CutPrefix(lines.Text(), "event: ")
			lines.Scan()
			data, _ := strings.CutPrefix(lines.Text(), "data: ")
			lines.Scan()
			if err := described(b.T).event("/v1/leases/watch", name, []byte(data)); err != nil || lines.Text() != "" {
				b.Errorf("event %s, %s is not as described: %v", name, data, err)
			}
			e := event{name: name, at: time.Since(began)}
			json.Unmarshal([]byte(data), &e.data)
			w.events <- e
		}
	}()
	return w
}

// next is the next event, of that name; "" for the end of the stream.
func (w *watcher) next(name string) event {
	w.b.Helper()
	select {
	case e := <-w.events:
		if e.name != name {
			w.b.Fatalf("event %q %v after %s, want %q", e.name, e.data, e.at, name)
		}
		if name == "ping" {
			w.id, _ = e.data["watch"].(string)
		}
		return e
	case <-time.After(time.Hour):
		w.b.Fatalf("no event, want %q", name)
	}
	return event{}
}

func (w *watcher) pong(n int) reply {
	w.b.Helper()
	return w.b.post("pong", w.token, fmt.Sprintf(`{"watch":%q,"n":%d}`, w.id, n))
}

// keep answers the next n pings.
func (w *watcher) keep(n int) {
	w.b.Helper()
	for range n {
		e := w.next("ping")
		if r := w.pong(int(e.data["n"].(float64))); r.status != 200 || r.num("trusted_for_ms") != 29000 {
			w.b.Fatalf("pong %v: %d %s", e.data["n"], r.status, r.raw)
		}
	}
}

// gone says whether no watch is open.
func (b *bubbled) gone() {
	b.Helper()
	synctest.Wait()
	b.mu.Lock()
	defer b.mu.Unlock()
	if n := metric(b.T, b.reg, "fence_lease_watches"); len(b.watches) != 0 || n != "0" {
		b.Errorf("%d watches are open, %s are counted", len(b.watches), n)
	}
}

func (b *bubbled) state(id string) claims.Lease {
	b.Helper()
	l, err := b.store.Backend.State(b.Context(), "default:"+id)
	if err != nil {
		b.Fatal(err)
	}
	return l
}
