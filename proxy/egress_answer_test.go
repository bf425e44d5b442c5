package proxy

import (
	"bytes"
	"compress/gzip"
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/fence-sidecar/fence-sidecar/claims"
	"github.com/google/go-cmp/cmp"
)

// answers are scripts of a gateway, and what a sender may make of them.
var answers = []struct {
	name   string
	raw    string
	reset  bool   // end the connection by RST
	tls    string // "", "notify" or "bare": over TLS, with or without close_notify at the end
	allow  bool   // AllowCloseFramed
	method string // default POST
	cause  string
	body   string // where cause is ""
	status int
	keeps  bool // the connection is used again
}{
	{name: "R34a short length", raw: "HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\n{\"id\":\"ch_1\"}", cause: CauseTruncated},
	{name: "R34a over TLS", tls: "bare", raw: "HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\n{\"id\":\"ch_1\"}", cause: CauseTruncated},
	{name: "R34a reset", reset: true, raw: "HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\n{\"id\":\"ch_1\"}", cause: CauseTruncated},
	{name: "R34b no last chunk", raw: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{\"id\"\r\n", cause: CauseTruncated},
	{name: "R34b no blank line after the last chunk", raw: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n", cause: CauseMalformed},
	{name: "R34c close-framed", raw: "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{\"id\":", cause: CauseCloseFramed},
	{name: "R34c HTTP/1.0", raw: "HTTP/1.0 200 OK\r\n\r\n{\"id\":", cause: CauseCloseFramed},
	{name: "R34c allowed", allow: true, raw: "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{}", status: 200, body: "{}"},
	{name: "R34c allowed, reset", allow: true, reset: true, raw: "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{}", cause: CauseTruncated},
	{name: "R34c allowed, TLS goodbye", allow: true, tls: "notify", raw: "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{}", status: 200, body: "{}"},
	{name: "R34c allowed, no TLS goodbye", allow: true, tls: "bare", raw: "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{}", cause: CauseTruncated},
	{name: "R34d cut after the status line", raw: "HTTP/1.1 200 OK\r\n", cause: CauseCut},
	{name: "R34d cut in a header", raw: "HTTP/1.1 200 OK\r\nContent-Le", cause: CauseCut},
	{name: "nothing", raw: "", cause: CauseCut},
	{name: "204", raw: "HTTP/1.1 204 No Content\r\n\r\n", status: 204, keeps: true},
	{name: "304", raw: "HTTP/1.1 304 Not Modified\r\nContent-Length: 9\r\n\r\n", status: 304, keeps: true},
	{name: "empty 200", raw: "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", status: 200, keeps: true},
	{name: "body null", raw: "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nnull", status: 200, body: "null", keeps: true},
	{name: "length in HTTP/1.0", raw: "HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\n{}", status: 200, body: "{}"},
	{name: "HEAD", method: "HEAD", raw: "HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\n", status: 200, keeps: true},
	{name: "chunked with trailer", raw: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X-T\r\n\r\n2\r\n{}\r\n0\r\nX-T: 1\r\n\r\n", status: 200, body: "{}", keeps: true},
	{name: "100 and 103 before", raw: "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}", status: 200, body: "{}", keeps: true},
	{name: "100 without end", raw: strings.Repeat("HTTP/1.1 100 Continue\r\n\r\n", 50), cause: CauseMalformed},
	{name: "only 100", raw: "HTTP/1.1 100 Continue\r\n\r\n", cause: CauseCut},
	{name: "101", raw: "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n", cause: CauseUpgrade},
	{name: "no HTTP", raw: "220 mail.example ESMTP\r\n\r\n", cause: CauseMalformed},
	{name: "HTTP/2 status line", raw: "HTTP/2.0 200 OK\r\nContent-Length: 0\r\n\r\n", cause: CauseMalformed},
	{name: "two lengths", raw: "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 4\r\n\r\n{}{}", cause: CauseMalformed},
	{name: "header without colon", raw: "HTTP/1.1 200 OK\r\nnonsense\r\nContent-Length: 0\r\n\r\n", cause: CauseMalformed},
	{name: "bad chunk", raw: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n", cause: CauseMalformed},
	{name: "gzip, chunked", raw: "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", cause: CauseMalformed},
	{name: "both framings", raw: "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", status: 200, body: "{}"},
	{name: "over the limit", raw: "HTTP/1.1 200 OK\r\nContent-Length: 1001\r\n\r\n" + strings.Repeat("x", 1001), cause: CauseOversize},
	{name: "over the limit, chunked", raw: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3E9\r\n" + strings.Repeat("x", 1001) + "\r\n0\r\n\r\n", cause: CauseOversize},
	{name: "at the limit", raw: "HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n" + strings.Repeat("x", 1000), status: 200, body: strings.Repeat("x", 1000), keeps: true},
	{name: "endless head", raw: "HTTP/1.1 200 OK\r\n" + strings.Repeat("X-A: "+strings.Repeat("a", 1000)+"\r\n", 300), cause: CauseOversize},
	{name: "long head", raw: "HTTP/1.1 200 OK\r\n" + strings.Repeat("X-A: "+strings.Repeat("a", 9000)+"\r\n", 9) + "Content-Length: 2\r\n\r\n{}", status: 200, body: "{}", keeps: true},
	{name: "a second answer", raw: "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nforged", status: 200, body: "{}"},
	{name: "a second answer, TLS", tls: "notify", raw: "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nforged", status: 200, body: "{}"},
	{name: "a second answer beyond the buffer, TLS", tls: "notify", raw: "HTTP/1.1 200 OK\r\nContent-Length: 9000\r\n\r\n" + strings.Repeat("x", 9000) + "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nforged", status: 200, body: strings.Repeat("x", 9000)},
	{name: "body of a 204", raw: "HTTP/1.1 204 No Content\r\nContent-Length: 6\r\n\r\nforged", status: 204},
}

func TestEgressAnswers(t *testing.T) {
	for _, tc := range answers {
		t.Run(tc.name, func(t *testing.T) {
			wireNoLeaks(t)
			second := make(chan struct{})
			script := func(c *wireCall) bool {
				if c.has("X-Second") {
					return c.ok("second")
				}
				io.WriteString(c.conn, tc.raw)
				if tc.keeps || tc.status > 0 && !tc.allow {
					return true // the sender decides
				}
				if tc.reset {
					<-second // until the answer was read so far
					c.tcp.SetLinger(0)
				}
				if tc.tls == "bare" {
					c.tcp.Close()
				}
				return false
			}
			var g *wireGateway
			if tc.tls != "" {
				g = newTLSWireGateway(t, script)
			} else {
				g = newWireGateway(t, script)
			}
			out := wirePost("amount=1")
			if tc.method != "" {
				out.Method = tc.method
			}
			out.AllowCloseFramed = tc.allow
			if out.AnswerLimit = 1000; tc.status > 0 {
				out.AnswerLimit = int64(max(1000, len(tc.body)))
			}
			e := wireEgress(t, g)
			time.AfterFunc(50*time.Millisecond, func() { close(second) })
			x := wireSend(t, e, out)
			g.count("", 1)
			if x.Cause != tc.cause || !x.Wrote {
				t.Fatalf("cause %q (%v), wrote %t; want %q", x.Cause, x.Err, x.Wrote, tc.cause)
			}
			if (x.Answer != nil) != (tc.cause == "") {
				t.Fatalf("answer %v with cause %q", x.Answer, x.Cause)
			}
			if a := x.Answer; a != nil && (a.Status != tc.status || a.Body == nil || string(a.Body) != tc.body) {
				t.Errorf("answer %d %q, want %d %q", a.Status, a.Body, tc.status, tc.body)
			}
			if tc.status == 0 || tc.allow {
				return
			}
			again := wirePost("amount=2")
			again.Header = append(again.Header, claims.Field{Name: "X-Second", Value: "1"})
			if x = wireSend(t, e, again); x.Answer == nil || string(x.Answer.Body) != "second" || x.Reused != tc.keeps {
				t.Errorf("next answer %v, reused %t; want its own, reused %t", x.Answer, x.Reused, tc.keeps)
			}
		})
	}
}

// R32, R29: header lines and coded bytes come through as they were sent.
func TestEgressKeepsAnswerBytes(t *testing.T) {
	var coded bytes.Buffer
	z := gzip.NewWriter(&coded)
	z.Write([]byte(`{"paid":true}`))
	z.Close()
	lines := []claims.Field{
		{Name: "date", Value: "Tue, 01 Jul 2025 10:00:00 GMT"},
		{Name: "Set-Cookie", Value: "a=1; Expires=Wed, 02 Jul 2025 10:00:00 GMT"},
		{Name: "X-Empty", Value: ""},
		{Name: "set-cookie", Value: "b=2"},
		{Name: "Content-Disposition", Value: `attachment; filename="a, b.txt"`},
		{Name: "X-Latin", Value: "caf\xe9"},
		{Name: "Content-Encoding", Value: "gzip"},
		{Name: "Digest", Value: "sha-256=of-the-coded-bytes"},
		{Name: "WWW-authenticate", Value: "Basic"},
	}
	g := newWireGateway(t, func(c *wireCall) bool {
		c.say("HTTP/1.1 200 Very Fine\r\nConnection: keep-alive, X-Hop\r\nX-Hop: 1\r\nKeep-Alive: timeout=5\r\nUpgrade: h3\r\n")
		for _, f := range lines {
			c.say("%s: %s\r\n", f.Name, f.Value)
		}
		c.say("Content-Length: %d\r\n\r\n%s", coded.Len(), coded.Bytes())
		return true
	})
	e := wireEgress(t, g)
	x := wireSend(t, e, wirePost("amount=1"))
	if x.Answer == nil {
		t.Fatal(x.Cause, x.Err)
	}
	if d := cmp.Diff(lines, x.Answer.Header); d != "" {
		t.Error(d)
	}
	if !bytes.Equal(x.Answer.Body, coded.Bytes()) {
		t.Error("the coded body was touched")
	}
	if g.sends("")[0].has("Accept-Encoding") {
		t.Error("Accept-Encoding was added")
	}
	h := http.Header{}
	SetFields(h, x.Answer.Header)
	if d := cmp.Diff([]string{lines[1].Value, "b=2"}, h["Set-Cookie"]); d != "" {
		t.Error(d)
	}
}

func TestEgressStream(t *testing.T) {
	for _, tc := range []struct {
		name, raw string
		cut       bool // the app sees its connection end
		err       string
		body      string
	}{
		{name: "whole", raw: "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nset-cookie: a\r\n\r\nhello", body: "hello"},
		{name: "chunked", raw: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n", body: "hello"},
		{name: "short length", raw: "HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nhello", cut: true},
		{name: "no last chunk", raw: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n", cut: true},
		{name: "close-framed", raw: "HTTP/1.1 200 OK\r\n\r\nhello", err: CauseCloseFramed},
		{name: "no head", raw: "HTTP/1.1 200", err: CauseCut},
	} {
		t.Run(tc.name, func(t *testing.T) {
			wireNoLeaks(t)
			g := newWireGateway(t, func(c *wireCall) bool { io.WriteString(c.conn, tc.raw); return false })
			e := wireEgress(t, g)
			s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				err := e.Stream(r.Context(), Outbound{Method: "GET", Target: r.RequestURI}, w)
				if err != nil {
					http.Error(w, err.(*SendError).Cause, http.StatusBadGateway)
				}
			}))
			defer s.Close()
			tr := &http.Transport{DisableKeepAlives: true}
			defer tr.CloseIdleConnections()
			resp, err := (&http.Client{Transport: tr}).Get(s.URL + "/v1//x?a=b&&c=%zz")
			if err != nil {
				if !tc.cut {
					t.Fatal(err)
				}
				return
			}
			defer resp.Body.Close()
			got, err := io.ReadAll(resp.Body)
			switch {
			case tc.cut && err == nil:
				t.Errorf("the app got half an answer as a whole one: %q", got)
			case !tc.cut && err != nil:
				t.Error(err)
			case tc.err != "" && (resp.StatusCode != 502 || strings.TrimSpace(string(got)) != tc.err):
				t.Errorf("%d %q, want 502 %s", resp.StatusCode, got, tc.err)
			case tc.body != "" && (resp.StatusCode != 200 || string(got) != tc.body || resp.Header["Date"] != nil):
				t.Errorf("%d %q %v, want 200 %q as sent", resp.StatusCode, got, resp.Header, tc.body)
			}
			if line := g.sends("GET")[0].Line; line != "GET /v1//x?a=b&&c=%zz HTTP/1.1" {
				t.Errorf("the gateway got %q", line)
			}
		})
	}
}

// A stream that the app leaves, or whose time is over, ends at the gateway too.
func TestEgressStreamEnds(t *testing.T) {
	wireNoLeaks(t)
	left := make(chan struct{})
	g := newWireGateway(t, func(c *wireCall) bool {
		c.say("HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nhello")
		c.conn.Read(make([]byte, 1))
		close(left)
		return false
	})
	e := wireEgress(t, g)
	ctx, cancel := context.WithCancel(t.Context())
	w := httptest.NewRecorder()
	defer func() {
		if p := recover(); p != http.ErrAbortHandler {
			t.Errorf("panic %v, want ErrAbortHandler", p)
		}
		<-left
	}()
	e.Stream(ctx, Outbound{Method: "GET", Target: "/"}, cancelOnWrite{w, cancel})
	t.Error("half an answer ended without a panic")
}

type cancelOnWrite struct {
	*httptest.ResponseRecorder
	cancel context.CancelFunc
}

func (w cancelOnWrite) Write(b []byte) (int, error) { w.cancel(); return w.ResponseRecorder.Write(b) }
