package console

import (
	"fmt"
	"net"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/fence-sidecar/fence-sidecar/claims"
)

// What cannot be read is refused, and nothing is granted for it.
func TestBadInput(t *testing.T) {
	long := strings.Repeat("x", maxName+1)
	for _, tt := range []struct {
		op, token, body string
		status          int
	}{
		{"acquire", "", ``, 400},
		{"acquire", "", `{}`, 400},
		{"acquire", "", `{"id":""}`, 400},
		{"acquire", "", `{"id":null}`, 400},
		{"acquire", "", `{"id":7}`, 400},
		{"acquire", "", `{"id":["a"]}`, 400},
		{"acquire", "", `{"ID":"a"}`, 400},
		{"acquire", "", `{"id":"a","id":"b"}`, 400},
		{"acquire", "", `{"id":"a","more":1}`, 400},
		{"acquire", "", `{"id":"a"}{"id":"b"}`, 400},
		{"acquire", "", `{"id":"a"} x`, 400},
		{"acquire", "", `{"id":"a"`, 400},
		{"acquire", "", `["a"]`, 400},
		{"acquire", "", `null`, 400},
		{"acquire", "", "{\"id\":\"a\xff\"}", 400},
		{"acquire", "", `{"id":"a\ud800"}`, 400}, // half a surrogate pair
		{"acquire", "", `{"id":"a\n"}`, 400},
		{"acquire", "", `{"id":"a\u0085"}`, 400},
		{"acquire", "", `{"id":"` + long + `"}`, 400},
		{"acquire", "", `{"id":"` + strings.Repeat("é", 127) + `","tenant":"` + strings.Repeat("é", 127) + `"}`, 400}, // over 1024 as a scope key
		{"acquire", "", `{"id":"a","tenant":""}`, 400},
		{"acquire", "", `{"id":"a","tenant":"` + long + `"}`, 400},
		{"acquire", "", `{"id":"a","holder":"` + strings.Repeat("h", maxHolder+1) + `"}`, 400},
		{"acquire", "", `{"id":"a","holder":"a\u001fb"}`, 400},
		{"acquire", "", `{"id":"a","holder":null}`, 400},
		{"acquire", "", "{\"id\":\"a\",\"holder\":\"\xff\"}", 400},
		{"acquire", "", `{"id":"a","ttl_ms":999}`, 400},
		{"acquire", "", `{"id":"a","ttl_ms":1000}`, 400}, // no more than the margin: it could never be trusted
		{"acquire", "", `{"id":"a","ttl_ms":600001}`, 400},
		{"acquire", "", `{"id":"a","ttl_ms":0}`, 400},
		{"acquire", "", `{"id":"a","ttl_ms":-30000}`, 400},
		{"acquire", "", `{"id":"a","ttl_ms":30000.5}`, 400},
		{"acquire", "", `{"id":"a","ttl_ms":"30000"}`, 400},
		{"acquire", "", `{"id":"a","ttl_ms":9223372036854775808}`, 400},
		{"acquire", "default:a#1", `{"id":"a"}`, 400},
		{"acquire", "", `{"id":"a","holder":"` + strings.Repeat(" ", maxBody) + `"}`, 413},
		{"acquire?id=a", "", `{"id":"a"}`, 400},
		{"confirm", "", ``, 400},
		{"confirm", "default:a", ``, 400},
		{"confirm", "default:a#0", ``, 400},
		{"confirm", "default:a#01", ``, 400},
		{"confirm", "default:a#-1", ``, 400},
		{"confirm", "default:a#9223372036854775808", ``, 400},
		{"confirm", "default:a b#1", ``, 400},
		{"confirm", "@instance:6c1d6505#1", ``, 400},
		{"confirm", claims.ExternalPrefix + "default:a#1", ``, 400},
		{"confirm", "default:a#1", `{"ttl_ms":1}`, 400},
		{"confirm", "default:a#1", `{"id":"a"}`, 400},
		{"release", "@instance:6c1d6505#1", ``, 400},
		{"release", "default:a#1", `{"force":true}`, 400},
		{"finish", "", ``, 400},
		{"finish?force", "default:a#1", ``, 400},
		{"cancel", "", ``, 400},
		{"cancel", "", `{"id":"a","holder":"x"}`, 400},
		{"pong", "default:a#1", ``, 400},
		{"pong", "default:a#1", `{"watch":"x"}`, 400},
		{"pong", "default:a#1", `{"n":1}`, 400},
		{"pong", "", `{"watch":"x","n":1}`, 400},
	} {
		t.Run(fmt.Sprintf("%s %s %.40s", tt.op, tt.token, tt.body), func(t *testing.T) {
			k := newKit(t)
			k.store.breaks(func(op string) error { t.Errorf("the store was asked: %s", op); return nil }, nil)
			if r := k.post(tt.op, tt.token, tt.body); r.status != tt.status {
				t.Errorf("%d %s, want %d", r.status, r.raw, tt.status)
			}
		})
	}
}

func TestBadQueries(t *testing.T) {
	for _, tt := range []struct{ target, token string }{
		{"state", ""}, {"state?id=", ""}, {"state?id=a&id=b", ""}, {"state?id=a&more=1", ""}, {"state?id=%ff", ""}, {"state?id=%zz", ""},
		{"state?id=a;b", ""}, {"state?id=a", "default:a#1"}, {"log", ""}, {"log?id=%0a", ""}, {"log?id=a", "default:a#1"},
		{"fenced", ""}, {"fenced?token=default:a%231", ""}, {"fenced?token=default:a%231", "default:a#1"}, {"fenced", "@instance:x#1"},
		{"watch", ""}, {"watch", "@instance:x#1"}, {"watch?ttl_ms=1", "default:a#1"}, {"watch?ttl_ms=30s", "default:a#1"},
		{"watch?ttl_ms=030000", "default:a#1"}, {"watch?ttl_ms=", "default:a#1"}, {"watch?ttl=30000", "default:a#1"},
	} {
		k := newKit(t)
		k.store.breaks(func(op string) error { t.Errorf("%s: the store was asked: %s", tt.target, op); return nil }, nil)
		if r := k.get(tt.target, tt.token); r.status != 400 || r.slug() != "bad-request" {
			t.Errorf("%s: %d %s", tt.target, r.status, r.raw)
		}
	}
}

// A fence header that means nothing here is refused: it was sent to be obeyed.
func TestBadHeaders(t *testing.T) {
	k := newKit(t)
	token := k.acquire("a", "me")
	r := request("POST", "/v1/leases/confirm", token, "")
	r.Header.Add("Fence-Token", token)
	k.wants(k.do(r), 400, "bad-request")
	for _, h := range []string{"Fence-Tenant", "Fence-Key", "Fence-Tokens"} {
		r := request("POST", "/v1/leases/acquire", "", `{"id":"b"}`)
		r.Header.Set(h, "x")
		k.wants(k.do(r), 400, "bad-request")
		r = request("POST", "/v1/leases/confirm", token, "")
		r.Header.Set(h, "x")
		k.wants(k.do(r), 400, "bad-request")
	}
	for _, ct := range []string{"", "text/plain", "application/x-www-form-urlencoded", "application/json; charset"} {
		r := request("POST", "/v1/leases/acquire", "", `{"id":"b"}`)
		r.Header.Set("Content-Type", ct)
		if got := k.do(r); got.status != 415 {
			t.Errorf("Content-Type %q: %d", ct, got.status)
		}
	}
	r = request("POST", "/v1/leases/acquire", "", `{"id":"b"}`)
	r.Header.Set("Content-Encoding", "gzip")
	if got := k.do(r); got.status != 415 {
		t.Errorf("Content-Encoding: %d", got.status)
	}
	r = request("POST", "/v1/leases/acquire", "", `{"id":"b"}`)
	r.Header.Set("Content-Type", "application/json; charset=utf-8")
	k.wants(k.do(r), 200, "")
	r = request("POST", "/v1/leases/confirm", token, "")
	r.ContentLength = -1 // chunked, and empty
	k.wants(k.do(r), 200, "")
}

// A name that somebody's DNS server can point at this machine is refused, and so is what a page of another origin sends.
func TestHostAndOrigin(t *testing.T) {
	k := newKit(t)
	for host, want := range map[string]int{
		"localhost": 200, "LOCALHOST:8182": 200, "127.0.0.1:8182": 200, "127.1.2.3": 200, "[::1]:8182": 200, "[::1]": 200, "[::ffff:127.0.0.1]:1": 200,
		"": 421, "attacker.example": 421, "attacker.example:8182": 421, "localhost.attacker.example": 421, "127.0.0.1.attacker.example:80": 421,
		"10.0.0.1": 421, "0.0.0.0:8182": 421, "[::]:8182": 421, "[::1%25lo]:8182": 421, "localhost:": 200, "127.0.0.1 ": 421,
	} {
		r := request("GET", "/v1/leases/state?id=a", "", "")
		r.Host = host
		if got := k.do(r); got.status != want {
			t.Errorf("Host %q: %d, want %d", host, got.status, want)
		}
	}
	for _, tt := range []struct {
		name, value string
		want        int
	}{
		{"Sec-Fetch-Site", "cross-site", 403}, {"Sec-Fetch-Site", "same-site", 403}, {"Sec-Fetch-Site", "same-origin", 200}, {"Sec-Fetch-Site", "none", 200},
		{"Origin", "https://attacker.example", 403}, {"Origin", "http://localhost:3000", 403}, {"Origin", "null", 403}, {"Origin", "http://localhost:8182", 200},
	} {
		r := request("POST", "/v1/leases/cancel", "", `{"id":"a"}`)
		r.Host = "localhost:8182"
		r.Header.Set(tt.name, tt.value)
		got := k.do(r)
		if got.status != tt.want {
			t.Errorf("%s: %s: %d, want %d", tt.name, tt.value, got.status, tt.want)
		}
		for name := range got.header {
			if strings.HasPrefix(name, "Access-Control-") {
				t.Errorf("%s is answered", name)
			}
		}
	}
}

func TestMethodsAndPaths(t *testing.T) {
	k := newKit(t)
	for _, r := range routes() {
		for _, method := range []string{"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"} {
			if method == r.method {
				continue
			}
			w := httptest.NewRecorder()
			k.h.ServeHTTP(w, request(method, r.path, "", ""))
			if w.Code != 405 || w.Header().Get("Allow") != r.method {
				t.Errorf("%s %s: %d, Allow %q", method, r.path, w.Code, w.Header().Get("Allow"))
			}
		}
	}
	for _, p := range []string{"/", "/v1", "/v1/leases", "/v1/leases/", "/v1/leases/state/", "//v1/leases/state", "/v1/../v1/leases/state", "/v1/leases/STATE", "/openapi.json"} {
		if r := k.do(request("GET", p, "", "")); r.status != 404 || r.slug() != "about:blank" {
			t.Errorf("%s: %d %s", p, r.status, r.raw)
		}
	}
}

// What was taken is what was said: a name is never another one's, and no member slips through.
func FuzzDecode(f *testing.F) {
	for _, s := range []string{`{"id":"a"}`, `{"tenant":"t","id":"é","holder":"h","ttl_ms":30000}`, `{"id":"a","id":"b"}`, `{"id":null}`, `{"ttl_ms":1e3}`, `{"id":"\ud800"}`, `{}{}`, `[]`, ``} {
		f.Add([]byte(s))
	}
	c := New(Config{Log: quiet})
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := decode(b, "tenant", "id", "holder", "ttl_ms")
		if err != nil {
			if p := asProblem(err); p.Reason != claims.BadRequest {
				t.Errorf("%q is refused as %s", b, p.Reason)
			}
			return
		}
		if got.N != nil || got.Watch != nil {
			t.Errorf("%q: a member that is not asked for was taken", b)
		}
		s, err := c.newScope(got.Tenant, got.ID)
		if err != nil {
			return
		}
		tenant, id, err := claims.SplitScope(s.key)
		if err != nil || tenant != s.tenant || id != *got.ID {
			t.Errorf("%q became scope %q", b, s.key)
		}
		if ttl, err := c.ttl(got.TTL); err == nil && (ttl < minTTL || ttl > c.MaxTTL || ttl <= c.Times.Margin) {
			t.Errorf("%q: a lease of %s", b, ttl)
		}
	})
}

func FuzzToken(f *testing.F) {
	for _, s := range []string{"default:a#1", "default:%C3%BC#7", "@instance:x#1", "@external:default:a#1", "default:a#0", "a#1", "default:a", "default:%2f#1"} {
		f.Add(s)
	}
	c := New(Config{Log: quiet})
	f.Fuzz(func(t *testing.T, v string) {
		s, g, err := c.parseToken(v)
		if err != nil {
			return
		}
		if g.Instance() || g.External() || g.Token == 0 || g.String() != v || s.tenant != "default" || claims.ScopeKey(s.tenant, s.id) != g.Scope {
			t.Errorf("%q was taken as %v of %+v", v, g, s)
		}
	})
}

func FuzzHost(f *testing.F) {
	for _, s := range []string{"localhost", "127.0.0.1:1", "[::1]:1", "x.example", "", "::1", "[", "localhost:x"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, host string) {
		name := host
		if h, _, err := net.SplitHostPort(host); err == nil {
			name = h
		}
		name = strings.Trim(name, "[]")
		if loopback(host) && !strings.EqualFold(name, "localhost") && !net.ParseIP(name).IsLoopback() {
			t.Errorf("%q passes for this machine", host)
		}
	})
}

// A body that does not come is not waited for for ever, also where it is not asked for.
func TestSlowBody(t *testing.T) {
	for host, want := range map[string]struct {
		status int
		within time.Duration
	}{"localhost": {400, ioTimeout + time.Second}, "attacker.example": {421, restTimeout + time.Second}} {
		bubble(t, func(b *bubbled) {
			conn := b.dial()
			fmt.Fprintf(conn, "POST /v1/leases/acquire HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nContent-Length: 10\r\n\r\n{", host)
			began := time.Now()
			resp := b.readResponse(conn)
			if took := time.Since(began); resp.StatusCode != want.status || took > want.within {
				t.Errorf("%s: %d after %s", host, resp.StatusCode, took)
			}
		})
	}
}
