package proxy

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// newInbound serves h as a data listener does and returns its address.
func newInbound(t *testing.T, h http.Handler, cfg ServerConfig) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	s := NewServer(h, cfg)
	done := make(chan struct{})
	go func() { s.Serve(Listen(ln, cfg.MaxHead)); close(done) }()
	t.Cleanup(func() { s.Close(); <-done })
	return ln.Addr().String()
}

// echoHead answers with what HeadOf knows, 400 where it is an error or a flaw.
var echoHead = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	h, err := HeadOf(r)
	if err != nil || h.Flaw != "" {
		flaw := ""
		if h != nil {
			flaw = h.Flaw
		}
		http.Error(w, fmt.Sprint(err, " ", flaw), http.StatusBadRequest)
		return
	}
	body, _ := io.ReadAll(r.Body)
	fmt.Fprintf(w, "%s|%v|%s", h.Line, h.Fields, body)
})

// talk writes in to a new connection and returns everything that comes back until it ends.
func talk(t *testing.T, addr, in string) string {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(20 * time.Second))
	go io.WriteString(c, in)
	out, err := io.ReadAll(c)
	if ne, ok := errors.AsType[net.Error](err); ok && ne.Timeout() {
		t.Error("the connection was not ended")
	}
	return string(out)
}

// responses splits what came back.
func responses(t *testing.T, out string) (status []int, bodies []string) {
	t.Helper()
	br := bufio.NewReader(strings.NewReader(out))
	for {
		resp, err := http.ReadResponse(br, nil)
		if err != nil {
			return status, bodies
		}
		b, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		status, bodies = append(status, resp.StatusCode), append(bodies, string(b))
	}
}

func TestInboundHeadsOfOneConnection(t *testing.T) {
	wireNoLeaks(t)
	addr := newInbound(t, echoHead, ServerConfig{})
	reqs := []string{
		"POST /v1//a%2Fb/../c?x=%zz HTTP/1.1\r\nHost: h\r\nx-oDD: 1\r\nX-Odd: 2\r\nx-odd:  caf\xe9 \r\nPragma: no-cache\r\nContent-Length: 30\r\n\r\n" +
			"GET /hidden HTTP/1.1\r\nX: y\r\n\r\n",
		"DELETE /two HTTP/1.1\r\nHost: h\r\nContent-Length: 0\r\n\r\n",
		"PUT /three HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: 5\r\n\r\nthree",
	}
	want := []string{
		"POST /v1//a%2Fb/../c?x=%zz HTTP/1.1|[{Host h} {x-oDD 1} {X-Odd 2} {x-odd caf\xe9} {Pragma no-cache} {Content-Length 30}]|GET /hidden HTTP/1.1\r\nX: y\r\n\r\n",
		"DELETE /two HTTP/1.1|[{Host h} {Content-Length 0}]|",
		"PUT /three HTTP/1.1|[{Host h} {Connection close} {Content-Length 5}]|three",
	}
	t.Run("pipelined", func(t *testing.T) {
		status, bodies := responses(t, talk(t, addr, strings.Join(reqs, "")))
		if d := cmp.Diff(want, bodies); d != "" {
			t.Error(status, d)
		}
	})
	t.Run("kept alive", func(t *testing.T) {
		c, err := net.Dial("tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		br := bufio.NewReader(c)
		for i, r := range reqs {
			for _, b := range []byte(r) { // byte by byte
				c.Write([]byte{b})
			}
			resp, err := http.ReadResponse(br, nil)
			if err != nil {
				t.Fatal(err)
			}
			if b, _ := io.ReadAll(resp.Body); string(b) != want[i] {
				t.Errorf("%q, want %q", b, want[i])
			}
		}
	})
}

func TestInboundRefuses(t *testing.T) {
	wireNoLeaks(t)
	const next = "GET /smuggled HTTP/1.1\r\nHost: h\r\n\r\n"
	addr := newInbound(t, echoHead, ServerConfig{MaxHead: 32 << 10})
	for _, tc := range []struct {
		name, in string
		status   []int
	}{
		{"both framings", "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + next, []int{400}},
		{"chunked ends the connection", "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n\r\n" + next, []int{200}},
		{"two lengths", "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\nx" + next, []int{400}},
		{"two other lengths", "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nx" + next, []int{400}},
		{"folded", "POST / HTTP/1.1\r\nHost: h\r\nX: a\r\n b\r\nContent-Length: 1\r\n\r\nx" + next, []int{400}},
		{"blank before the colon", "POST / HTTP/1.1\r\nHost: h\r\nX : a\r\nContent-Length: 1\r\n\r\nx" + next, []int{400}},
		{"chunked in HTTP/1.0", "POST / HTTP/1.0\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + next, []int{400}},
		{"head of 1 MiB", "GET / HTTP/1.1\r\nHost: h\r\nX: " + strings.Repeat("a", 1<<20) + "\r\n\r\n", []int{431}},
		{"head just over the limit", "GET / HTTP/1.1\r\nHost: h\r\nX: " + strings.Repeat("a", 32<<10) + "\r\n\r\n" + next, []int{400}},
		{"HTTP/2 preface", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", []int{400}},
		{"OPTIONS *", "OPTIONS * HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n", []int{200}},
		{"an old client's line end", "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 1\r\n\r\nx\r\nGET / HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n", []int{200, 200}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			out := talk(t, addr, tc.in)
			status, bodies := responses(t, out)
			if d := cmp.Diff(tc.status, status); d != "" {
				t.Errorf("%s\n%q", d, bodies)
			}
		})
	}
}

// A head that is not the request's is refused: the comparison bites.
func TestInboundHeadMustMatch(t *testing.T) {
	for name, change := range map[string]func(*Head){
		"as it is":      func(*Head) {},
		"method":        func(h *Head) { h.Method = "PUT" },
		"target":        func(h *Head) { h.Target += "/" },
		"protocol":      func(h *Head) { h.Proto = "HTTP/1.0" },
		"value":         func(h *Head) { h.Fields[1].Value = "2" },
		"line missing":  func(h *Head) { h.Fields = h.Fields[:1] },
		"one line more": func(h *Head) { h.Fields = append(h.Fields, h.Fields[1]) },
	} {
		raw := "POST /a HTTP/1.1\r\nHost: h\r\nX-A: 1\r\n\r\n"
		r, err := http.ReadRequest(bufio.NewReader(strings.NewReader(raw)))
		if err != nil {
			t.Fatal(err)
		}
		h, _ := parseRequestHead([]byte(raw))
		change(h)
		if err := h.matches(r); (err == nil) != (name == "as it is") || err != nil && !errors.Is(err, ErrNoHead) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := HeadOf((&http.Request{}).WithContext(context.Background())); !errors.Is(err, ErrNoHead) {
		t.Errorf("without a listener: %v", err)
	}
}

// What net/http logs about requests does not reach the log.
func TestInboundErrorLogHasNoRequestData(t *testing.T) {
	var buf bytes.Buffer
	log := slog.New(slog.NewTextHandler(&buf, nil))
	s := NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { panic("card " + r.Header.Get("X-Card")) }), ServerConfig{Log: log})
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { s.Serve(Listen(ln, 0)); close(done) }()
	talk(t, ln.Addr().String(), "GET / HTTP/1.1\r\nHost: h\r\nX-Card: 4242424242424242\r\n\r\n")
	s.Close()
	<-done
	if got := buf.String(); !strings.Contains(got, "http: panic serving") || strings.Contains(got, "4242") {
		t.Errorf("log %q", got)
	}
}

// R27, R30, R36, R37 from the app's socket to the gateway's.
func TestInboundToEgress(t *testing.T) {
	wireNoLeaks(t)
	g := newWireGateway(t, func(c *wireCall) bool { return c.ok("paid") })
	e := wireEgress(t, g)
	addr := newInbound(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h, err := HeadOf(r)
		if err != nil || h.Flaw != "" {
			http.Error(w, "", http.StatusBadRequest)
			return
		}
		if r.ContentLength > 64<<10 { // before the first Read, which asks for the body
			http.Error(w, "", http.StatusRequestEntityTooLarge)
			return
		}
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, 64<<10))
		if err != nil {
			http.Error(w, "", http.StatusRequestEntityTooLarge)
			return
		}
		ctx, cancel := context.WithTimeout(r.Context(), 20*time.Second)
		defer cancel()
		x := e.Send(ctx, Outbound{
			Method: h.Method, Target: h.Target, Host: "api.example", Header: ForwardFields(h), Body: body, HadLength: h.HasCL || h.HasTE,
		}, nil)
		if x.Answer == nil {
			http.Error(w, x.Cause, http.StatusGatewayTimeout)
			return
		}
		SetFields(w.Header(), x.Answer.Header)
		w.WriteHeader(x.Answer.Status)
		w.Write(x.Answer.Body)
	}), ServerConfig{})
	big := strings.Repeat("b", 20<<10)
	for _, tc := range []struct {
		name, in string
		line     string // "": nothing is sent
		lines    []string
		body     string
		out      string // start of what the app gets
	}{
		{"length", "POST /v1//charges HTTP/1.1\r\nHost: 127.0.0.1\r\nFence-Key: k\r\nx-A: 1\r\nConnection: close\r\nContent-Length: 17\r\n\r\namount=1&currency", "POST /v1//charges HTTP/1.1", []string{"Host: api.example", "x-A: 1", "Content-Length: 17"}, "amount=1&currency", "HTTP/1.1 200 OK"},
		{"chunked", "POST /c HTTP/1.1\r\nHost: 127.0.0.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\na=1\r\n4\r\n&b=2\r\n0\r\n\r\n", "POST /c HTTP/1.1", []string{"Host: api.example", "Content-Length: 7"}, "a=1&b=2", "HTTP/1.1 200 OK"},
		{"empty", "POST /c HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nContent-Length: 0\r\n\r\n", "POST /c HTTP/1.1", []string{"Host: api.example", "Content-Length: 0"}, "", "HTTP/1.1 200 OK"},
		{"DELETE", "DELETE /c HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n\r\n", "DELETE /c HTTP/1.1", []string{"Host: api.example"}, "", "HTTP/1.1 200 OK"},
		{"HTTP/1.0", "POST /c HTTP/1.0\r\nContent-Length: 3\r\n\r\na=1", "POST /c HTTP/1.1", []string{"Host: api.example", "Content-Length: 3"}, "a=1", "HTTP/1.0 200 OK"},
		{"Expect", "POST /c HTTP/1.1\r\nHost: 127.0.0.1\r\nExpect: 100-continue\r\nConnection: close\r\nContent-Length: 20480\r\n\r\n" + big, "POST /c HTTP/1.1", []string{"Host: api.example", "Content-Length: 20480"}, big, "HTTP/1.1 100 Continue"},
		{"Expect, over the limit", "POST /c HTTP/1.1\r\nHost: 127.0.0.1\r\nExpect: 100-continue\r\nContent-Length: 99999\r\n\r\n", "", nil, "", "HTTP/1.1 413"},
		{"both framings", "POST /c HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", "", nil, "", "HTTP/1.1 400"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			before := len(g.sends(""))
			out := talk(t, addr, tc.in)
			if !strings.HasPrefix(out, tc.out) || tc.line != "" && !strings.HasSuffix(out, "paid") {
				t.Errorf("the app got %q", out)
			}
			calls := g.sends("")[before:]
			if tc.line == "" {
				if len(calls) != 0 {
					t.Errorf("%d sends, want none", len(calls))
				}
				return
			}
			if len(calls) != 1 {
				t.Fatalf("%d sends, want 1", len(calls))
			}
			if d := cmp.Diff(tc.lines, calls[0].Lines); d != "" || calls[0].Line != tc.line || calls[0].Body != tc.body {
				t.Errorf("%q %s", calls[0].Line, d)
			}
		})
	}
}
