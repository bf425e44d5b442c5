package proxy

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"net/url"
	"strings"
	"testing"

	"github.com/fence-sidecar/fence-sidecar/claims"
	"github.com/google/go-cmp/cmp"
)

// track feeds stream in the given pieces and returns the heads.
func track(maxHead int, pieces ...[]byte) ([]*Head, *tracker) {
	t := &tracker{maxHead: maxHead}
	for _, p := range pieces {
		t.feed(p)
	}
	var hs []*Head
	for len(t.queue) > 0 {
		h, _ := t.next()
		hs = append(hs, h)
	}
	return hs, t
}

func TestInboundTracker(t *testing.T) {
	const next = "GET /next HTTP/1.1\r\nHost: h\r\n\r\n"
	for _, tc := range []struct {
		name, stream string
		targets      string // of the heads, joined
		flaw         string // of the first
		stopped      bool
	}{
		{"no body", "GET /a HTTP/1.1\r\nHost: h\r\n\r\n" + next, "/a /next", "", false},
		{"body that looks like a request", "POST /a HTTP/1.1\r\nContent-Length: 18\r\n\r\nGET / HTTP/1.1\r\n\r\n" + next, "/a /next", "", false},
		{"bare LF", "POST /a HTTP/1.1\nContent-Length: 2\n\nxx" + next, "/a /next", "", false},
		{"line ends after a body", "POST /a HTTP/1.1\r\nContent-Length: 2\r\n\r\nxx\r\n\r\n" + next, "/a /next", "", false},
		{"chunked", "POST /a HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + next, "/a", "", true},
		{"both framings", "POST /a HTTP/1.1\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n" + next, "/a", "both Transfer-Encoding and Content-Length", true},
		{"both framings, other order and case", "POST /a HTTP/1.1\r\ntransfer-ENCODING: chunked\r\ncontent-LENGTH: 5\r\n\r\n", "/a", "both Transfer-Encoding and Content-Length", true},
		{"chunked in HTTP/1.0", "POST /a HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", "/a", "Transfer-Encoding in HTTP/1.0", true},
		{"two lengths", "POST /a HTTP/1.1\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\nx" + next, "/a /next", "more than one Content-Length", false},
		{"length with a sign", "POST /a HTTP/1.1\r\nContent-Length: +1\r\n\r\nx" + next, "/a", "a Content-Length that is no number", true},
		{"length list", "POST /a HTTP/1.1\r\nContent-Length: 1, 1\r\n\r\nx" + next, "/a", "a Content-Length that is no number", true},
		{"length too large", "POST /a HTTP/1.1\r\nContent-Length: 9223372036854775808\r\n\r\nx" + next, "/a", "a Content-Length that is no number", true},
		{"empty length", "POST /a HTTP/1.1\r\nContent-Length:\r\n\r\nx" + next, "/a", "a Content-Length that is no number", true},
		{"folded", "POST /a HTTP/1.1\r\nX: a\r\n\tb\r\n\r\n", "/a", "a folded header line", false},
		{"blank before the colon", "POST /a HTTP/1.1\r\nX : a\r\n\r\n", "/a", "a header name that is no token", false},
		{"hidden length", "POST /a HTTP/1.1\r\nContent-Length : 5\r\n\r\n", "/a", "a header name that is no token", false},
		{"no colon", "POST /a HTTP/1.1\r\nX\r\n\r\n", "/a", "a header line without a colon", false},
		{"HTTP/2 preface", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "* ", "not HTTP/1.0 or HTTP/1.1", false},
		{"unfinished", "POST /a HTTP/1.1\r\nX: a\r\n", "", "", false},
		{"over the limit", "POST /a HTTP/1.1\r\nX: " + strings.Repeat("a", 2000) + "\r\n\r\n" + next, "", "", true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			hs, tr := track(1000, []byte(tc.stream))
			var targets []string
			for _, h := range hs {
				targets = append(targets, h.Target)
			}
			if got := strings.Join(targets, " "); got != tc.targets || (tr.stopped != "") != tc.stopped {
				t.Errorf("heads %q, stopped %q; want %q", got, tr.stopped, tc.targets)
			}
			if len(hs) > 0 && hs[0].Flaw != tc.flaw {
				t.Errorf("flaw %q, want %q", hs[0].Flaw, tc.flaw)
			}
			if len(tr.buf) > 1000 {
				t.Errorf("%d bytes kept", len(tr.buf))
			}
		})
	}
}

// Many small requests without anybody who takes their heads do not fill the memory.
func TestInboundTrackerIsBounded(t *testing.T) {
	tr := &tracker{maxHead: 100}
	for range 100_000 {
		tr.feed([]byte("GET / HTTP/1.1\r\n\r\n"))
	}
	if len(tr.queue) > maxQueued || tr.stopped == "" {
		t.Errorf("%d heads kept, stopped %q", len(tr.queue), tr.stopped)
	}
	tr = &tracker{maxHead: 100}
	for range 100_000 {
		tr.feed([]byte("aaaaaaaaaa"))
	}
	if len(tr.buf) != 0 || cap(tr.buf) > 1000 || tr.stopped == "" {
		t.Errorf("%d bytes kept, stopped %q", len(tr.buf), tr.stopped)
	}
}

func FuzzInboundHeadSplits(f *testing.F) {
	f.Add([]byte("POST /a HTTP/1.1\r\nContent-Length: 2\r\n\r\nxxGET /b HTTP/1.1\r\n\r\n"), uint64(1))
	f.Add([]byte("\r\n\nPOST /a HTTP/1.1\nX: a\n b\nTransfer-Encoding: chunked\n\n0\r\n\r\nGET / HTTP/1.1\r\n\r\n"), uint64(2))
	f.Add([]byte("A\r\r\n\r\n\r\r\n B\n\n"+strings.Repeat("a", 300)), uint64(3))
	f.Fuzz(func(t *testing.T, stream []byte, seed uint64) {
		whole, one := track(200, stream)
		rnd := rand.New(rand.NewPCG(seed, seed))
		var pieces [][]byte
		for rest := stream; len(rest) > 0; {
			n := 1 + rnd.IntN(min(len(rest), 20))
			pieces, rest = append(pieces, rest[:n]), rest[n:]
		}
		split, other := track(200, pieces...)
		if d := cmp.Diff(whole, split); d != "" {
			t.Error(d)
		}
		if one.stopped != other.stopped || one.state != other.state || one.body != other.body || !bytes.Equal(one.buf, other.buf) {
			t.Errorf("%+v in one piece, %+v in many", one, other)
		}
	})
}

func FuzzWireRequest(f *testing.F) {
	f.Add("POST", "/v1/x?y", "h", "X-A", "b", "body")
	f.Add("GET", "/ HTTP/1.1\r\n", "h", "X", "a\r\nb: c", "")
	f.Fuzz(func(t *testing.T, method, target, host, name, value, body string) {
		base := &url.URL{Scheme: "http", Host: "base.example"}
		out := &Outbound{Method: method, Target: target, Host: host, Header: []claims.Field{{Name: name, Value: value}}, Body: []byte(body)}
		head, err := wireRequest(base, out)
		if err != nil {
			return
		}
		hs, tr := track(1<<20, append(head, body...))
		if len(hs) != 1 || tr.state == inBody || len(tr.buf) > 0 && len(body) == 0 {
			t.Fatalf("%q is %d requests", head, len(hs))
		}
		if h := hs[0]; h.Flaw != "" || h.Method != method || h.Target != target || h.Proto != "HTTP/1.1" {
			t.Fatalf("%q reads back as %+v", head, h)
		}
		if want := len(body) > 0 || wantsLength(method); hs[0].HasCL != want || hs[0].HasTE {
			t.Fatalf("%q: framing", head)
		}
	})
}

func TestInboundForwardFields(t *testing.T) {
	lines := func(s string) (fs []claims.Field) {
		for l := range strings.Lines(s) {
			n, v, _ := strings.Cut(strings.TrimSpace(l), ": ")
			fs = append(fs, claims.Field{Name: n, Value: v})
		}
		return fs
	}
	h := &Head{Fields: lines(`Host: api
		x-ODD: 1
		Connection: keep-alive, X-Hop
		X-Hop: 1
		Keep-Alive: 5
		Proxy-Connection: close
		Proxy-Authorization: b
		TE: trailers
		Trailer: X
		Transfer-Encoding: chunked
		Upgrade: h2c
		Expect: 100-continue
		Content-Length: 5
		fence-key: charge:1
		Fence-Anything-New: x
		FENCE-TOKEN: t
		Prefer: wait=5
		prefer: return=representation
		Prefer: return=minimal, wait=5
		X-ODD: 2
		Authorization: Bearer x`)}
	want := lines(`x-ODD: 1
		prefer: return=representation
		Prefer: return=minimal, wait=5
		X-ODD: 2
		Authorization: Bearer x`)
	if d := cmp.Diff(want, ForwardFields(h)); d != "" {
		t.Error(d)
	}
}

func ExampleForwardFields() {
	h := &Head{Fields: []claims.Field{{Name: "Fence-Key", Value: "charge:1"}, {Name: "x-request-id", Value: "7"}}}
	fmt.Println(ForwardFields(h))
	// Output: [{x-request-id 7}]
}
