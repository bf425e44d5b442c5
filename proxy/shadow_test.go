package proxy

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/fence-sidecar/fence-sidecar/claims"
	"github.com/fence-sidecar/fence-sidecar/claims/memory"
	"github.com/fence-sidecar/fence-sidecar/gateways"
)

// sick is a store that can be away or hang.
type sick struct {
	claims.Store
	mu   sync.Mutex
	how  string
	wake chan struct{} // ends deafness
}

func (s *sick) be(how string) { s.mu.Lock(); s.how = how; s.mu.Unlock() }

func (s *sick) ail(ctx context.Context) error {
	s.mu.Lock()
	how := s.how
	s.mu.Unlock()
	switch how {
	case "away":
		return io.ErrUnexpectedEOF
	case "hangs":
		<-ctx.Done()
		return ctx.Err()
	case "deaf": // also to its context
		<-s.wake
		return io.ErrUnexpectedEOF
	}
	return nil
}

func (s *sick) Get(ctx context.Context, k claims.Key, g claims.Guard) (claims.View, error) {
	if err := s.ail(ctx); err != nil {
		return claims.View{}, err
	}
	return s.Store.Get(ctx, k, g)
}

func (s *sick) Swap(ctx context.Context, c claims.Condition, w ...claims.Write) (claims.Swapped, error) {
	if err := s.ail(ctx); err != nil {
		return claims.Swapped{}, err
	}
	return s.Store.Swap(ctx, c, w...)
}

// shade is a proxy in shadow mode before a gateway that keeps bytes.
type shade struct {
	t     *testing.T
	gw    *wireGateway
	mem   *memory.Store
	store *sick
	fence *claims.Fence
	reg   *prometheus.Registry
	addr  string
}

const shadeFile = `name: acme
hosts: [acme.example]
baseURL: %s
untagged: refuse
attemptTimeout: 10s
keyRetention: 24h
bodyLimit: 1000
family: a
replayed: {name: Replayed, value: "true"}
key: {header: Idempotency-Key}
answers:
  - {status: [2xx], outcome: succeeded, stored: "yes"}
  - {status: ["402"], outcome: declined, stored: "yes"}
routes:
  - {name: pay, method: POST, path: /pay}
  - {name: refund, method: POST, path: /refund, effect: undo}
`

func newShade(t *testing.T, answer func(*wireCall) bool) *shade {
	t.Helper()
	s := &shade{t: t, gw: newWireGateway(t, answer), mem: memory.New(memory.Config{}), reg: prometheus.NewRegistry()}
	s.store = &sick{Store: s.mem, wake: make(chan struct{})}
	g, err := gateways.Load(fmt.Appendf(nil, shadeFile, s.gw.url()), "acme.yaml")
	if err != nil {
		t.Fatal(err)
	}
	registry, err := gateways.NewRegistry(g)
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.DiscardHandler)
	instance := claims.NewInstance(s.mem, claims.SystemClock, claims.LeaseTimes{TTL: time.Hour}, "test", log)
	if err := instance.Take(t.Context()); err != nil {
		t.Fatal(err)
	}
	s.fence = claims.New(claims.Config{
		Store: s.store, Leases: s.mem, Keys: memory.Ring{}, Instance: instance, Clock: claims.SystemClock, Log: log,
	})
	p, err := New(Config{
		Fence: s.fence, Realm: "r", Gateways: registry, Egress: map[string]*Egress{"acme": wireEgress(t, s.gw)}, Log: log, Shadow: true,
		Metrics: NewMetrics(s.reg), Breaker: BreakerConfig{Failures: 3, Open: time.Hour},
	})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := NewServer(p.For(g), ServerConfig{Log: log})
	done := make(chan struct{})
	go func() { srv.Serve(Listen(l, 0)); close(done) }()
	t.Cleanup(func() { srv.Close(); <-done })
	s.addr = l.Addr().String()
	return s
}

// raw sends bytes and reads the answer.
func (s *shade) raw(text string) (*http.Response, string) {
	s.t.Helper()
	c, err := net.Dial("tcp", s.addr)
	if err != nil {
		s.t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(20 * time.Second))
	io.WriteString(c, text)
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		s.t.Fatalf("%q: %v", text, err)
	}
	defer resp.Body.Close()
	b, _ := io.ReadAll(resp.Body)
	return resp, string(b)
}

// post is a request as an app writes it.
func post(path, body string, lines ...string) string {
	return fmt.Sprintf("POST %s HTTP/1.1\r\nHost: localhost\r\nIdempotency-Key: app-key-1\r\nContent-Type: text/plain\r\nX-Odd:  a , b\r\n%sContent-Length: %d\r\n\r\n%s",
		path, strings.Join(append(lines, ""), "\r\n"), len(body), body)
}

// would sends and returns what the shadow said. Everything else that a shadow must keep to is checked on the way: the gateway got one
// request more, with the app's lines and body and none of the fence's, and its answer came back with no promise.
func (s *shade) would(text string) string {
	s.t.Helper()
	before := len(s.gw.sends(""))
	resp, body := s.raw(text)
	sends := s.gw.sends("")
	if len(sends) != before+1 {
		s.t.Fatalf("%q: the gateway got %d requests, want one; the app got %d %s", text[:min(60, len(text))], len(sends)-before, resp.StatusCode, body)
	}
	s.same(text, sends[before])
	for name := range resp.Header {
		if strings.HasPrefix(name, "Fence-") && name != HeaderShadow {
			s.t.Errorf("the answer has %s", name)
		}
	}
	return strings.TrimPrefix(resp.Header.Get(HeaderShadow), "would=")
}

// same compares what the gateway got with a direct send of the same text.
func (s *shade) same(text string, got *wireCall) {
	s.t.Helper()
	head, body, _ := strings.Cut(text, "\r\n\r\n")
	lines := strings.Split(head, "\r\n")
	var want []string
	for _, l := range lines[1:] {
		name, value, _ := strings.Cut(l, ":")
		if lower := strings.ToLower(name); !strings.HasPrefix(lower, "fence-") && lower != "host" && lower != "content-length" && lower != "prefer" {
			want = append(want, name+": "+strings.Trim(value, " "))
		}
	}
	if len(body) > 0 || strings.Contains(head, "Content-Length") {
		want = append(want, fmt.Sprintf("Content-Length: %d", len(body)))
	}
	want = append([]string{"Host: acme.example"}, want...)
	if got.Line != lines[0] || got.Body != body || !slices.Equal(got.Lines, want) {
		s.t.Errorf("the gateway got %q %q %q, want %q %q %q", got.Line, got.Lines, got.Body, lines[0], want, body)
	}
}

func (s *shade) settled() {
	s.t.Helper()
	wireEventually(s.t, "the shadows are closed", func() bool { return s.fence.InFlight() == 0 })
	rs, err := s.mem.List(s.t.Context(), "", nil, 1000)
	if err != nil {
		s.t.Fatal(err)
	}
	for _, r := range rs {
		if !strings.HasPrefix(r.Key.Tenant, claims.ShadowPrefix) || r.State.Unsettled() || r.Poll {
			s.t.Errorf("record %s is %s", r.Key, r.State)
		}
	}
}

func ok200(c *wireCall) bool { return c.ok(`{"id":"p1"}`) }

// Every situation in which enforcing refuses: the request passes all the same, and is reported.
func TestShadowRefusesNothing(t *testing.T) {
	big := strings.Repeat("x", 300_000)
	const key = "Fence-Key: k"
	for _, tc := range []struct {
		name, want string
		do         func(s *shade) string
	}{
		{"first", "send", func(s *shade) string { return s.would(post("/pay", "a", key)) }},
		{"safe method", "pass", func(s *shade) string {
			return s.would("GET /pay?x=%2F HTTP/1.1\r\nHost: localhost\r\nAccept: */*\r\n\r\n")
		}},
		{"untagged", "refused:untagged", func(s *shade) string { return s.would(post("/pay", "a")) }},
		{"no call key", "refused:no-call-key", func(s *shade) string { return s.would(post("/pay", "a", "Fence-Timeout: 3")) }},
		{"header twice", "refused:bad-request", func(s *shade) string { return s.would(post("/pay", "a", key, key)) }},
		{"unknown header", "refused:bad-request", func(s *shade) string { return s.would(post("/pay", "a", key, "Fence-Nonsense: 1")) }},
		{"no such route", "refused:bad-request", func(s *shade) string { return s.would(post("/elsewhere", "a", key)) }},
		{"undo not said", "refused:bad-request", func(s *shade) string { return s.would(post("/refund", "a", key)) }},
		{"another tenant", "refused:tenant-not-served", func(s *shade) string { return s.would(post("/pay", "a", key, "Fence-Tenant: other")) }},
		{"external token", "refused:bad-request", func(s *shade) string { return s.would(post("/pay", "a", key, "Fence-External-Token: default:o#1")) }},
		{"method override", "refused:bad-request", func(s *shade) string { return s.would(post("/pay", "a", key, "X-HTTP-Method-Override: DELETE")) }},
		{"body over the limit", "refused:body-too-large", func(s *shade) string { return s.would(post("/pay", big, key)) }},
		{"untagged body over the limit", "refused:body-too-large", func(s *shade) string { return s.would(post("/pay", big)) }},
		{"stale token", "refused:fenced", func(s *shade) string { return s.would(post("/pay", "a", key, "Fence-Token: default:o#7")) }},
		{"undo of nothing", "refused:fenced", func(s *shade) string {
			return s.would(post("/refund", "a", key, "Fence-Undo: never"))
		}},
		{"repeat", "replay", func(s *shade) string {
			s.would(post("/pay", "a", key))
			s.settled()
			return s.would(post("/pay", "a", key))
		}},
		{"conflict", "refused:key-conflict", func(s *shade) string {
			s.would(post("/pay", "a", key))
			s.settled()
			return s.would(post("/pay", "b", key))
		}},
		{"later revision", "refused:revision-blocked", func(s *shade) string { return s.would(post("/pay", "a", key, "Fence-Revision: 2")) }},
		{"finished scope", "refused:scope-finished", func(s *shade) string {
			l, err := s.mem.Acquire(s.t.Context(), "default:o", "app", time.Hour)
			if err != nil {
				s.t.Fatal(err)
			}
			if err := s.mem.Finish(s.t.Context(), l.Guard); err != nil {
				s.t.Fatal(err)
			}
			return s.would(post("/pay", "a", key, "Fence-Token: "+l.Guard.String()))
		}},
		{"store away", "undecided", func(s *shade) string { s.store.be("away"); return s.would(post("/pay", "a", key)) }},
		{"store hangs", "undecided", func(s *shade) string { s.store.be("hangs"); return s.would(post("/pay", "a", key)) }},
		{"store does not come back", "undecided", func(s *shade) string {
			s.store.be("deaf")
			defer close(s.store.wake)
			began := time.Now()
			w := s.would(post("/pay", "a", key))
			if took := time.Since(began); took > 10*time.Second {
				s.t.Errorf("the app waited %s for the store", took)
			}
			return w
		}},
		{"draining", "refused:draining", func(s *shade) string {
			if err := s.fence.Drain(s.t.Context()); err != nil {
				s.t.Fatal(err)
			}
			return s.would(post("/pay", "a", key))
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newShade(t, ok200)
			if got := tc.do(s); got != tc.want {
				t.Errorf("would=%s, want %s", got, tc.want)
			}
			s.settled()
		})
	}
}

// What needs the gateway's help: an attempt in flight, one without an answer, one that was never sent, an open breaker.
func TestShadowSeesDoubt(t *testing.T) {
	hold := make(chan struct{})
	s := newShade(t, func(c *wireCall) bool {
		switch c.Body {
		case "slow":
			select {
			case <-hold:
			case <-c.g.stop:
			}
		case "cut":
			return false
		case "busy":
			c.say("HTTP/1.1 503 Busy\r\nContent-Length: 0\r\n\r\n")
			return true
		case "no":
			c.say("HTTP/1.1 402 No\r\nContent-Length: 0\r\n\r\n")
			return true
		}
		return ok200(c)
	})
	first := make(chan string, 1)
	go func() {
		resp, _ := s.raw(post("/pay", "slow", "Fence-Key: slow"))
		first <- resp.Header.Get(HeaderShadow)
	}()
	wireEventually(t, "the first request is in flight", func() bool { return len(s.gw.sends("")) == 1 })
	wireEventually(t, "the shadow of the first is there", func() bool {
		rs, err := s.mem.List(t.Context(), "", nil, 10)
		return err == nil && len(rs) == 1 && !rs[0].State.Unsettled()
	})
	go func() { time.Sleep(50 * time.Millisecond); close(hold) }()
	if got := s.would(post("/pay", "slow", "Fence-Key: slow")); got != "refused:in-flight" {
		t.Errorf("a twin in flight: would=%s", got)
	}
	if got := <-first; got != "would=send" {
		t.Errorf("the first: %s", got)
	}
	for _, tc := range []struct{ body, again string }{{"cut", "reconcile"}, {"busy", "reconcile"}, {"no", "replay"}, {"slow", "replay"}} {
		text := post("/pay", tc.body, "Fence-Key: "+tc.body)
		s.raw(text)
		s.settled()
		if resp, _ := s.raw(text); resp.Header.Get(HeaderShadow) != "would="+tc.again {
			t.Errorf("%s again: %s, want %s", tc.body, resp.Header.Get(HeaderShadow), tc.again)
		}
		s.settled()
	}
	for i := range 3 {
		s.raw(post("/pay", "cut", fmt.Sprintf("Fence-Key: fails-%d", i)))
	}
	s.settled()
	if got := s.would(post("/pay", "a", "Fence-Key: behind the breaker")); got != "refused:breaker-open" {
		t.Errorf("an open breaker: would=%s", got)
	}
}

// The report tells repeats that the gateway executed from those that its own key caught.
func TestShadowCountsRepeats(t *testing.T) {
	caught := false
	s := newShade(t, func(c *wireCall) bool {
		if caught {
			c.say("HTTP/1.1 200 OK\r\nReplayed: true\r\nContent-Length: 2\r\n\r\n{}")
			return true
		}
		return ok200(c)
	})
	for _, want := range []string{"send", "replay", "replay"} {
		if got := s.would(post("/pay", "a", "Fence-Key: k")); got != want {
			t.Errorf("would=%s, want %s", got, want)
		}
		s.settled()
	}
	caught = true
	s.would(post("/pay", "a", "Fence-Key: k"))
	s.settled()
	want := map[string]float64{
		"fence_shadow_repeats_total executed acme": 2, "fence_shadow_repeats_total replayed acme": 1,
		"fence_shadow_requests_total acme replay": 3, "fence_shadow_requests_total acme send": 1,
	}
	wireEventually(t, "the counts are there", func() bool { return len(seriesOf(t, s.reg, "fence_shadow_")) == len(want) })
	for name, n := range seriesOf(t, s.reg, "fence_shadow_") {
		if want[name] != n {
			t.Errorf("%s = %v, want %v", name, n, want[name])
		}
	}
}

func seriesOf(t *testing.T, reg *prometheus.Registry, prefix string) map[string]float64 {
	t.Helper()
	out := map[string]float64{}
	mfs, err := reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, mf := range mfs {
		for _, m := range mf.GetMetric() {
			name := mf.GetName()
			for _, l := range m.GetLabel() {
				name = name + " " + l.GetValue()
			}
			if strings.HasPrefix(name, prefix) {
				out[name] = m.GetCounter().GetValue()
			}
		}
	}
	return out
}

// What cannot be passed on is still refused, without a promise.
func TestShadowStillRefusesWhatCannotPass(t *testing.T) {
	s := newShade(t, ok200)
	for _, tc := range []struct {
		text   string
		status int
	}{
		{"POST /pay HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n", 400},
		{"POST http://other.example/pay HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n", 421},
		{"CONNECT x:1 HTTP/1.1\r\nHost: x:1\r\n\r\n", 400},
	} {
		resp, body := s.raw(tc.text)
		if resp.StatusCode != tc.status || !strings.HasPrefix(resp.Header.Get(HeaderShadow), "would=refused:") || resp.Header.Get(HeaderOutcome) != "" {
			t.Errorf("%q: %d %v %s", tc.text, resp.StatusCode, resp.Header, body)
		}
	}
	s.gw.count("", 0)
	s.gw.close()
	resp, _ := s.raw(post("/pay", "a", "Fence-Key: k"))
	if resp.StatusCode != 502 || resp.Header.Get(HeaderShadow) != "would=send" || resp.Header.Get(HeaderOutcome) != "" {
		t.Errorf("a gateway that is away: %d %v", resp.StatusCode, resp.Header)
	}
	s.settled()
}

// A chunked body passes with a length; a body that ends early never looks whole to the gateway.
func TestShadowBodies(t *testing.T) {
	s := newShade(t, ok200)
	resp, _ := s.raw("POST /pay HTTP/1.1\r\nHost: x\r\nFence-Key: k\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n")
	if calls := s.gw.sends(""); resp.StatusCode != 200 || len(calls) != 1 || calls[0].Body != "abc" {
		t.Errorf("%d %+v", resp.StatusCode, calls)
	}
	c, err := net.Dial("tcp", s.addr)
	if err != nil {
		t.Fatal(err)
	}
	io.WriteString(c, "POST /pay HTTP/1.1\r\nHost: x\r\nContent-Length: 200000\r\n\r\n"+strings.Repeat("x", 150_000))
	wireEventually(t, "the head came through", func() bool { return len(s.gw.sends("")) == 2 })
	c.Close()
	s.settled()
	time.Sleep(10 * time.Millisecond)
	if b := s.gw.sends("")[1].Body; b != "" {
		t.Errorf("the gateway took %d bytes for the whole body", len(b))
	}
}
