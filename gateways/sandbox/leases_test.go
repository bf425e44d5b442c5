package sandbox_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fence-sidecar/fence-sidecar/claims"
	"github.com/fence-sidecar/fence-sidecar/gateways/sandbox"
)

// leaseServer is a sidecar's control listener as far as the proxy can see: acquire grants the next token at once (as if the
// last lease had run out), everything else of a token is 200 while it is the newest, and 409 afterwards.
type leaseServer struct {
	mu    sync.Mutex
	token int
	got   []string // "POST /v1/leases/confirm default:order-1#1 {body}"
	emit  chan string
}

func (l *leaseServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	token := r.Header.Get("Fence-Token")
	l.mu.Lock()
	l.got = append(l.got, strings.TrimSpace(r.Method+" "+r.URL.RequestURI()+" "+token+" "+string(body)))
	if r.URL.Path == "/v1/leases/acquire" {
		l.token++
		token = fmt.Sprintf("default:order-1#%d", l.token)
	}
	fenced := token != fmt.Sprintf("default:order-1#%d", l.token)
	l.mu.Unlock()
	if r.URL.Path == "/v1/leases/watch" {
		l.watch(w, r)
		return
	}
	w.Header().Set("Fence-Token", token)
	w.Header().Set("X-Host", r.Host)
	if fenced {
		w.WriteHeader(http.StatusConflict)
	}
}

func (l *leaseServer) watch(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "text/event-stream")
	for {
		http.NewResponseController(w).Flush()
		select {
		case e, ok := <-l.emit:
			if !ok {
				return
			}
			io.WriteString(w, e)
		case <-r.Context().Done():
			return
		}
	}
}

func (l *leaseServer) requests() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.got)
}

// front is a sandbox whose lease proxy stands in front of a leaseServer.
type front struct {
	*rig
	sidecar *leaseServer
	leases  string
}

func startLeases(t *testing.T) *front {
	t.Helper()
	f := &front{rig: start(t, sandbox.Config{}), sidecar: &leaseServer{emit: make(chan string)}}
	srv := httptest.NewServer(f.sidecar)
	t.Cleanup(srv.Close)
	addr, err := f.s.StartLeases(t.Context(), "127.0.0.1:0", srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.s.Close() }) // before the sidecar's, which waits for its streams
	f.leases = "http://" + addr.String()
	return f
}

// call sends one request through the lease proxy and returns its answer's status; 0 where there is none.
func (f *front) call(ctx context.Context, method, path, token, body string) (int, *http.Response) {
	req, err := http.NewRequestWithContext(ctx, method, f.leases+path, strings.NewReader(body))
	if err != nil {
		f.t.Error(err)
		return 0, nil
	}
	if token != "" {
		req.Header.Set("Fence-Token", token)
	}
	res, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
	if err != nil {
		return 0, nil
	}
	if path != "/v1/leases/watch" {
		res.Body.Close()
	}
	return res.StatusCode, res
}

func (f *front) want(status int, method, path, token, body string) {
	f.t.Helper()
	if got, _ := f.call(within(f.t, 20*time.Second), method, path, token, body); got != status {
		f.t.Errorf("%s %s of %s: %d, want %d", method, path, token, got, status)
	}
}

const first, second = "default:order-1#1", "default:order-1#2"

func guard(t *testing.T, s string) claims.Guard {
	t.Helper()
	g, err := claims.ParseGuard(s)
	if err != nil {
		t.Fatal(err)
	}
	return g
}

// TestLeasesPass: without a stall the sidecar gets what was sent, and the client what was answered.
func TestLeasesPass(t *testing.T) {
	f := startLeases(t)
	f.want(200, "POST", "/v1/leases/acquire", "", `{"id":"order-1"}`)
	status, res := f.call(t.Context(), "POST", "/v1/leases/confirm?a=%2F", first, "")
	if status != 200 || res.Header.Get("Fence-Token") != first || res.Header.Get("X-Host") != strings.TrimPrefix(f.leases, "http://") {
		t.Errorf("%d %v", status, res)
	}
	f.want(409, "POST", "/v1/leases/confirm", "default:order-1#7", "")
	want := []string{`POST /v1/leases/acquire  {"id":"order-1"}`, "POST /v1/leases/confirm?a=%2F " + first, "POST /v1/leases/confirm default:order-1#7"}
	if d := cmp.Diff(want, f.sidecar.requests()); d != "" {
		t.Error(d)
	}
}

// TestLeasesStall: a stalled holder's requests wait, another one takes over, and the late ones are refused.
func TestLeasesStall(t *testing.T) {
	f := startLeases(t)
	f.want(200, "POST", "/v1/leases/acquire", "", "")
	if status, b := f.control("POST", "leases/stall", url.Values{"token": {first}}.Encode()); status != 200 || !strings.Contains(string(b), first) {
		t.Fatalf("%d %s", status, b)
	}
	late := make(chan int, 2)
	for _, path := range []string{"/v1/leases/confirm", "/v1/leases/release"} {
		go func() {
			status, _ := f.call(t.Context(), "POST", path, first, "")
			late <- status
		}()
	}
	if err := f.s.WaitStalled(within(t, 20*time.Second), 2); err != nil {
		t.Fatal(err)
	}
	f.want(200, "POST", "/v1/leases/acquire", "", "") // token 2
	f.want(200, "POST", "/v1/leases/confirm", second, "")
	if n := len(f.sidecar.requests()); n != 3 {
		t.Errorf("the sidecar got %d requests, want 3: %q", n, f.sidecar.requests())
	}
	_, b := f.control("GET", "leases", "")
	var list struct {
		Stalled []string
		Waiting []sandbox.Waiting
	}
	if err := json.Unmarshal(b, &list); err != nil || len(list.Waiting) != 2 || !slices.Equal(list.Stalled, []string{first}) || list.Waiting[0].Side != "request" {
		t.Errorf("%v %s", err, b)
	}
	if status, b := f.control("POST", "leases/resume", ""); status != 200 || !strings.Contains(string(b), `"released": 2`) {
		t.Errorf("%d %s", status, b)
	}
	for range 2 {
		if got := <-late; got != 409 {
			t.Errorf("a held request was answered %d, want 409", got)
		}
	}
	if n := len(f.sidecar.requests()); n != 5 {
		t.Errorf("the sidecar got %d requests, want 5: %q", n, f.sidecar.requests())
	}
}

// TestLeasesStallScope: a scope stands for the tokens granted so far, not for the next one.
func TestLeasesStallScope(t *testing.T) {
	f := startLeases(t)
	if status, b := f.control("POST", "leases/stall?scope=default:order-1", ""); status != 400 || !strings.Contains(string(b), "no token") {
		t.Errorf("%d %s", status, b)
	}
	f.want(200, "POST", "/v1/leases/acquire", "", "")
	f.want(200, "POST", "/v1/leases/acquire", "", "")
	if status, b := f.control("POST", "leases/stall?scope=default:order-1", ""); status != 200 || !strings.Contains(string(b), first) || !strings.Contains(string(b), second) {
		t.Errorf("%d %s", status, b)
	}
	f.want(200, "POST", "/v1/leases/acquire", "", "")
	f.want(200, "POST", "/v1/leases/confirm", "default:order-1#3", "")
	ctx, cancel := context.WithCancel(t.Context())
	go f.call(ctx, "POST", "/v1/leases/confirm", second, "")
	if err := f.s.WaitStalled(within(t, 20*time.Second), 1); err != nil {
		t.Fatal(err)
	}
	cancel() // a client that goes takes its request with it
	eventually(t, func() bool { _, w := f.s.Stalled(); return len(w) == 0 })
	if f.s.Resume(guard(t, first)) != 0 || len(f.sidecar.requests()) != 4 {
		t.Errorf("%q", f.sidecar.requests())
	}
}

// TestLeasesStallStream: events come at once, not at all while stalled, and late after that.
func TestLeasesStallStream(t *testing.T) {
	f := startLeases(t)
	f.want(200, "POST", "/v1/leases/acquire", "", "")
	status, res := f.call(t.Context(), "GET", "/v1/leases/watch", first, "")
	if status != 200 {
		t.Fatal(status)
	}
	defer res.Body.Close()
	lines := make(chan string, 10)
	go func() {
		defer close(lines)
		for in := bufio.NewScanner(res.Body); in.Scan(); {
			lines <- in.Text()
		}
	}()
	select {
	case f.sidecar.emit <- "event: ping\n":
	case <-time.After(20 * time.Second):
		t.Fatal("the stream was not opened")
	}
	select {
	case got := <-lines:
		if got != "event: ping" {
			t.Errorf("%q", got)
		}
	case <-time.After(20 * time.Second): // nothing else is sent that could push it along
		t.Fatal("the first event was not passed on")
	}
	f.s.Stall(guard(t, first))
	f.sidecar.emit <- "event: lost\n"
	if err := f.s.WaitStalled(within(t, 20*time.Second), 1); err != nil {
		t.Fatal(err)
	}
	close(f.sidecar.emit) // the stream's end is held too
	select {
	case got, open := <-lines:
		t.Errorf("%q (open %v) came through a stall", got, open)
	case <-time.After(100 * time.Millisecond):
	}
	f.s.Reset()
	if got := <-lines; got != "event: lost" {
		t.Errorf("%q", got)
	}
	if got, open := <-lines; open {
		t.Errorf("%q, want the end", got)
	}
}

// TestLeasesStallAnswer: the answer to a request that was under way when the stall began is held.
func TestLeasesStallAnswer(t *testing.T) {
	arrived, answer := make(chan bool), make(chan bool)
	slow := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { arrived <- true; <-answer }))
	defer slow.Close()
	r := start(t, sandbox.Config{})
	addr, err := r.s.StartLeases(t.Context(), "127.0.0.1:0", slow.URL)
	if err != nil {
		t.Fatal(err)
	}
	f := &front{rig: r, leases: "http://" + addr.String()}
	got := make(chan int, 1)
	go func() {
		status, _ := f.call(t.Context(), "POST", "/v1/leases/confirm", first, "")
		got <- status
	}()
	<-arrived
	r.s.Stall(guard(t, first))
	answer <- true
	if err := r.s.WaitStalled(within(t, 20*time.Second), 1); err != nil {
		t.Fatal(err)
	}
	if _, w := r.s.Stalled(); w[0].Side != "answer" {
		t.Errorf("%+v", w)
	}
	select {
	case status := <-got:
		t.Fatalf("the head %d came through a stall", status)
	case <-time.After(100 * time.Millisecond):
	}
	if r.s.Resume() != 1 || <-got != 200 {
		t.Error("the answer was not let go")
	}
}

// TestLeasesOnce: a request whose connection dies is not sent again, also where the one before it left a connection open, and
// its client is told.
func TestLeasesOnce(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var served sync.WaitGroup
	var requests atomic.Int32
	served.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			served.Go(func() { // every other request is answered, the others are cut
				defer c.Close()
				c.SetDeadline(time.Now().Add(20 * time.Second))
				for in := bufio.NewReader(c); ; {
					if _, err := http.ReadRequest(in); err != nil || requests.Add(1)%2 == 0 {
						return
					}
					io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")
				}
			})
		}
	})
	r := start(t, sandbox.Config{})
	addr, err := r.s.StartLeases(t.Context(), "127.0.0.1:0", "http://"+l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	f := &front{rig: r, leases: "http://" + addr.String()}
	for _, method := range []string{"GET", "POST"} {
		f.want(200, method, "/v1/leases/state", "", "")
		f.want(502, method, "/v1/leases/state", "", "")
	}
	r.s.Close()
	l.Close()
	served.Wait()
	if n := requests.Load(); n != 4 {
		t.Errorf("the sidecar saw %d requests, want 4", n)
	}
}

// TestLeasesLimits: held requests are bounded, bodies too, and the end of the sandbox ends what is held.
func TestLeasesLimits(t *testing.T) {
	f := startLeases(t)
	f.s.Stall(guard(t, first))
	f.want(413, "POST", "/v1/leases/acquire", "", strings.Repeat("x", 1<<20))
	var held sync.WaitGroup
	for range 100 {
		held.Go(func() { f.call(t.Context(), "POST", "/v1/leases/confirm", first, "") })
	}
	if err := f.s.WaitStalled(within(t, 20*time.Second), 100); err != nil {
		t.Fatal(err)
	}
	f.want(503, "POST", "/v1/leases/confirm", first, "")
	f.s.Close()
	held.Wait()
	if n := len(f.sidecar.requests()); n != 0 {
		t.Errorf("the sidecar got %d requests, want none", n)
	}
}

func TestLeasesBadControls(t *testing.T) {
	f := startLeases(t)
	for _, c := range []struct {
		method, path, body, want string
		status                   int
	}{
		{"POST", "leases/stall", "", "say which", 400},
		{"POST", "leases/stall", "token=x", "fence token", 400},
		{"POST", "leases/stall?scope=order-1", "", "scope key", 400},
		{"POST", "leases/stall?token=%zz", "", "escape", 400},
		{"POST", "leases/halt", "", "no such control", 404},
	} {
		if status, b := f.control(c.method, c.path, c.body); status != c.status || !bytes.Contains(b, []byte(c.want)) {
			t.Errorf("%s %s: %d %s", c.method, c.path, status, b)
		}
	}
	if status, b := start(t, sandbox.Config{}).control("GET", "leases", ""); status != 404 || !strings.Contains(string(b), "--leases") {
		t.Errorf("%d %s", status, b)
	}
	for _, bad := range []string{"", "127.0.0.1:1", "https://127.0.0.1:1", "http://127.0.0.1:1/x"} {
		if _, err := start(t, sandbox.Config{}).s.StartLeases(t.Context(), "127.0.0.1:0", bad); err == nil {
			t.Errorf("sidecar %q was taken", bad)
		}
	}
}

func eventually(t *testing.T, holds func() bool) {
	t.Helper()
	for end := time.Now().Add(20 * time.Second); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("never happened")
		}
	}
}
