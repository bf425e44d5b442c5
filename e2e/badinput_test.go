package e2e

import (
	"database/sql"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/fence-sidecar/fence-sidecar/gateways/sandbox"
)

// narrowFile declares a gateway that knows one route only, and takes the call key out of a body field.
const narrowFile = `name: narrow
baseURL: http://127.0.0.1:1
keyRetention: 24h
key: {header: Idempotency-Key}
callKey: {field: order}
error: {members: {error: {code: "{slug}"}}}
routes: [{name: pay, method: POST, path: /pay, answers: [{status: ["2xx"], outcome: succeeded}]}]
`

// TestBadInput: each gets a problem answer with the gateway's own error in it; nothing is sent, nothing is stored.
func TestBadInput(t *testing.T) {
	gateway, stripe := newSandbox(t, sandbox.Config{})
	stripe.body = 4 << 10
	raw := newRaw(t, nil)
	dir := t.TempDir()
	narrow := filepath.Join(dir, "narrow.yaml")
	if err := os.WriteFile(narrow, []byte(narrowFile), 0o600); err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, settings{gateway: []use{
		stripe,
		{file: narrow, name: "narrow", url: raw.url()},
		{file: narrow, name: "tokens", url: raw.url(), tokens: "required"},
	}})
	a := w.start("A")
	big := strings.Repeat("x", 5<<10)
	form := "Content-Type: application/x-www-form-urlencoded\r\nHost: h\r\nAuthorization: Bearer " + secret + "\r\n"
	post := func(target, lines, body string) string {
		return "POST " + target + " HTTP/1.1\r\n" + form + lines + "\r\n" + body
	}
	ok := func(lines ...string) string { return string(charge("k", lines...).wire()) }
	keyed := func(key string) string { return string(charge(key).wire()) }

	for _, c := range []struct {
		name, at, raw string
		status        int
		slug          string
	}{
		{"revision zero", "stripe", ok("Fence-Revision: 0"), 400, "bad-request"},
		{"revision text", "stripe", ok("Fence-Revision: two"), 400, "bad-request"},
		{"revision spelled", "stripe", ok("Fence-Revision: 01"), 400, "bad-request"},
		{"timeout", "stripe", ok("Fence-Timeout: soon"), 400, "bad-request"},
		{"timeout zero", "stripe", ok("Fence-Timeout: 0"), 400, "bad-request"},
		{"unknown fence header", "stripe", ok("Fence-Kee: k"), 400, "bad-request"},
		{"duplicate key", "stripe", ok("Fence-Key: k"), 400, "bad-request"},
		{"duplicate, other case", "stripe", ok("fence-key: k"), 400, "bad-request"},
		{"empty key", "stripe", keyed(""), 400, "bad-request"},
		{"token without number", "stripe", ok("Fence-Token: default:x"), 400, "bad-request"},
		{"token zero", "stripe", ok("Fence-Token: default:x#0"), 400, "bad-request"},
		{"token of an instance", "stripe", ok("Fence-Token: @instance:x#1"), 400, "bad-request"},
		{"token not encoded", "stripe", ok("Fence-Token: default:a b#1"), 400, "bad-request"},
		{"token of another tenant", "stripe", ok("Fence-Token: other:x#1"), 409, "fenced"},
		{"token never granted", "stripe", ok("Fence-Token: default:x#1"), 409, "fenced"},
		{"token demanded", "tokens", post("/pay", "Fence-Key: k\r\nContent-Length: 0\r\n", ""), 400, "bad-request"},
		{"tenant", "stripe", ok("Fence-Tenant: nobody"), 403, "tenant-not-served"},
		{"undo of a call", "stripe", ok("Fence-Undo: charge:1"), 400, "bad-request"},
		{"refund without a word", "stripe", post("/v1/refunds", "Fence-Key: k\r\nContent-Length: 11\r\n", "charge=ch_1"), 400, "bad-request"},
		{"revision two of nothing", "stripe", ok("Fence-Revision: 2"), 409, "revision-blocked"},

		{"key with U+0085", "stripe", keyed("a\u0085b"), 400, "bad-request"},
		{"key not UTF-8", "stripe", keyed("a\xffb"), 400, "bad-request"},
		{"key of 256 bytes", "stripe", keyed(strings.Repeat("k", 256)), 400, "bad-request"},
		{"key in the body with a control character", "narrow", post("/pay", "Content-Length: 9\r\n", "order=%01"), 400, "bad-request"},
		{"key in the body made up by an SDK", "narrow", post("/pay", "Content-Length: 42\r\n", "order=3f2504e0-4f89-11d3-9a0c-0305e82c3301"), 400, "no-call-key"},

		{"untagged", "stripe", post("/v1/charges", "Content-Length: 8\r\n", "amount=1"), 403, "untagged"},
		{"untagged with the gateway's key", "stripe", post("/v1/charges", "Idempotency-Key: k\r\nContent-Length: 8\r\n", "amount=1"), 403, "untagged"},
		{"tagged without a key", "stripe", post("/v1/charges", "Fence-Tenant: default\r\nContent-Length: 8\r\n", "amount=1"), 400, "no-call-key"},
		{"untagged PUT", "stripe", "PUT /v1/x HTTP/1.1\r\n" + form + "Content-Length: 0\r\n\r\n", 403, "untagged"},
		{"untagged, unheard-of method", "stripe", "FOO1 /v1/x HTTP/1.1\r\n" + form + "\r\n", 403, "untagged"},

		{"body over the limit", "stripe", post("/v1/charges", fmt.Sprintf("Fence-Key: k\r\nContent-Length: %d\r\n", len(big)), big), 413, "body-too-large"},
		{"body over the limit, chunked", "stripe", post("/v1/charges", "Fence-Key: k\r\nTransfer-Encoding: chunked\r\n", fmt.Sprintf("%x\r\n%s\r\n0\r\n\r\n", len(big), big)), 413, "body-too-large"},
		{"body over the limit, Expect", "stripe", post("/v1/charges", fmt.Sprintf("Fence-Key: k\r\nExpect: 100-continue\r\nContent-Length: %d\r\n", len(big)), ""), 413, "body-too-large"},
		{"both framings", "stripe", post("/v1/charges", "Fence-Key: k\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n"), 400, "bad-request"},
		{"both framings, other order", "stripe", post("/v1/charges", "Fence-Key: k\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n", "0\r\n\r\n"), 400, "bad-request"},
		{"body not a form", "stripe", post("/v1/charges", "Fence-Key: k\r\nContent-Length: 3\r\n", "%zz"), 400, "bad-request"},

		{"unknown gateway", "any gateway", post("/nobody/v1/charges", "Fence-Key: k\r\nContent-Length: 0\r\n", ""), 421, "unknown-gateway"},
		{"unknown host in the target", "any gateway", post("http://nobody.example/v1/charges", "Fence-Key: k\r\nContent-Length: 0\r\n", ""), 421, "unknown-gateway"},
		{"asterisk", "stripe", post("*", "Fence-Key: k\r\nContent-Length: 0\r\n", ""), 400, "bad-request"},
		{"unknown route", "narrow", post("/refund", "Fence-Key: k\r\nContent-Length: 0\r\n", ""), 400, "bad-request"},
		{"unknown route by spelling", "narrow", post("//pay", "Fence-Key: k\r\nContent-Length: 0\r\n", ""), 400, "bad-request"},
		{"another method", "narrow", "PUT /pay HTTP/1.1\r\n" + form + "Fence-Key: k\r\nContent-Length: 0\r\n\r\n", 400, "bad-request"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := sendRaw(a.at(c.at), []byte(c.raw))
			p.want(t, c.status, c.slug)
			wantProblem(t, c.at, p)
		})
	}
	if n := len(gateway.Sends()) + len(raw.sends("")); n != 0 {
		t.Errorf("%d requests reached a gateway", n)
	}
	if out, _, ok := w.cli("calls", "list", "--json"); !ok || out != "" {
		t.Errorf("something was stored: %s", out)
	}
}

// wantProblem checks a refusal's two forms: the problem's members and the gateway's own error.
func wantProblem(t *testing.T, gateway string, p reply) {
	t.Helper()
	var v struct {
		Type, Title, Detail, Outcome string
		Status                       int
		Error                        struct{ Type, Code, Message string }
	}
	if err := json.Unmarshal(p.body, &v); err != nil {
		t.Errorf("not JSON: %v: %s", err, p)
		return
	}
	if v.Status != p.status || v.Title == "" || v.Detail == "" || v.Outcome == "" {
		t.Errorf("the problem says too little: %s", p.body)
	}
	if p.header("Fence-Outcome") != v.Outcome || p.header("Fence-Result") != "refused" || p.header("Proxy-Status") == "" {
		t.Errorf("the fence's headers say something else: %s", p)
	}
	switch gateway {
	case "stripe":
		if v.Error.Type != "api_error" || v.Error.Code != "fence_"+p.slug() || v.Error.Message == "" || p.header("Stripe-Should-Retry") != "false" {
			t.Errorf("the SDK would not see an error of Stripe's: %s", p)
		}
	case "narrow", "tokens":
		if v.Error.Code != p.slug() {
			t.Errorf("the gateway's own error shape is missing: %s", p.body)
		}
	}
}

// TestBadInput_tenants: where several tenants are served, a request says whose it is; a token is of that tenant.
func TestBadInput_tenants(t *testing.T) {
	gateway, stripe := newSandbox(t, sandbox.Config{})
	w := newWorld(t, settings{gateway: []use{stripe}, tenants: "default, other"})
	a := w.start("A")
	for _, c := range []struct {
		lines  []string
		status int
		slug   string
	}{
		{nil, 400, "bad-request"},
		{[]string{"Fence-Tenant: nobody"}, 403, "tenant-not-served"},
		{[]string{"Fence-Tenant: default", "Fence-Token: other:x#1"}, 409, "fenced"},
	} {
		send(a.at("stripe"), charge("k", c.lines...)).want(t, c.status, c.slug)
	}
	if n := len(gateway.Sends()); n != 0 || len(w.all()) != 0 {
		t.Errorf("%d sends, %d records", n, len(w.all()))
	}
	// One key of two tenants is two calls.
	for _, tenant := range []string{"default", "other"} {
		send(a.at("stripe"), charge("k", "Fence-Tenant: "+tenant)).wantResult(t, "succeeded", "sent")
	}
	if n := gateway.Moved(); n != 2 {
		t.Errorf("%d charges of two tenants", n)
	}
}

// TestBadInput_rawControl: bytes that no header may hold are refused too, before they are anybody's request.
func TestBadInput_rawControl(t *testing.T) {
	gateway, stripe := newSandbox(t, sandbox.Config{})
	w := newWorld(t, settings{gateway: []use{stripe}})
	a := w.start("A")
	for _, key := range []string{"a\x01b", "a\x00b", "a\x7fb", "a\x1b[31mb", "a\rb"} {
		p := send(a.at("stripe"), charge(key))
		if p.err != nil || p.status != 400 {
			t.Errorf("key %q: want 400, got %s", key, p)
		}
	}
	if n := len(gateway.Sends()); n != 0 || len(w.all()) != 0 {
		t.Errorf("%d sends, %d records", n, len(w.all()))
	}
}

// TestBadConfiguration: one line that names file, field, value and what is allowed.
func TestBadConfiguration(t *testing.T) {
	good := settings{gateway: []use{{builtin: "stripe", url: "http://127.0.0.1:1"}}}
	w := newWorld(t, good)
	text := good.yaml(w.dir)
	narrow := w.write("narrow.yaml", narrowFile)
	for _, c := range []struct{ name, old, new, field, value, allowed string }{
		{"unknown field", "wait: 1s", "wayt: 1s", "wayt", "", ""},
		{"time", "wait: 1s", "wait: soon", "wait", "soon", ""},
		{"time without a unit", "attemptTimeout: 2s", "attemptTimeout: 2", "gateways[0].attemptTimeout", "2", "90s"},
		{"number", "attempts: 10", "attempts: many", "attempts", "many", "whole number"},
		{"list", "[default]", "default", "tenants", "", "list"},
		{"lease", "ttl: 10s", "ttl: 3ms", "lease.ttl", "3ms", "1s"},
		{"margin", "margin: 200ms", "margin: 20s", "lease.margin", "20s", ""},
		{"kind", "kind: sqlite", "kind: oracle", "store.kind", "oracle", "sqlite"},
		{"listen", "any: 127.0.0.1:0", "any: 0.0.0.0:8181", "listen.any", "0.0.0.0:8181", "loopback"},
		{"level", "level: info", "level: loud", "log.level", "loud", "debug"},
		{"tenant", "[default]", `["a\u0001b"]`, "tenants", "", "control"},
		{"built-in", "use: stripe", "use: strype", "use", "strype", "stripe"},
		{"base URL", "http://127.0.0.1:1", "http://127.0.0.1:1/path", "baseURL", "/path", "without a path"},
		{"tokens", "attemptTimeout: 2s", "tokens: maybe", "tokens", "maybe", "required"},
		{"route", "attemptTimeout: 2s", "routes: {nope: {attemptTimeout: 1s}}", "nope", "nope", "route"},
		{"no such file", "use: stripe", "file: nowhere.yaml", "", "nowhere.yaml", "no such file"},
		{"CA bundle", "attemptTimeout: 2s", "caBundle: " + narrow, "caBundle", narrow, "PEM"},
	} {
		t.Run(c.name, func(t *testing.T) {
			bad := strings.Replace(text, c.old, c.new, 1)
			if bad == text {
				t.Fatal("nothing was made bad")
			}
			oneLine(t, w, bad, c.field, c.value, c.allowed)
		})
	}
	t.Run("gateway file", func(t *testing.T) {
		w.write("narrow.yaml", strings.Replace(narrowFile, "method: POST", "method: GET", 1))
		oneLine(t, w, strings.Replace(text, "use: stripe", "file: narrow.yaml", 1), "method", "GET", "unsafe", "narrow.yaml")
	})
}

// oneLine runs with a configuration that must be refused in one line with these words.
func oneLine(t *testing.T, w *world, config string, words ...string) {
	t.Helper()
	path := w.write("bad.yaml", config)
	cmd := w.command("run", "--config", path)
	out, err := cmd.CombinedOutput()
	if err == nil {
		t.Fatalf("it ran: %s", out)
	}
	line := strings.TrimSuffix(string(out), "\n")
	if strings.Contains(line, "\n") || line == "" {
		t.Errorf("want one line, got %q", out)
	}
	for _, word := range words {
		if !strings.Contains(line, word) {
			t.Errorf("the line does not say %q: %s", word, line)
		}
	}
	if len(words) > 1 && !strings.Contains(line, "bad.yaml") && !strings.Contains(line, "narrow.yaml") {
		t.Errorf("the line does not name the file: %s", line)
	}
}

// TestBadStore: a store that is not migrated, is newer, or is another application's is refused in one line.
func TestBadStore(t *testing.T) {
	good := settings{gateway: []use{{builtin: "stripe", url: "http://127.0.0.1:1"}}}
	for name, c := range map[string]struct {
		spoil func(t *testing.T, path string)
		words []string
	}{
		"not migrated":   {func(t *testing.T, path string) { remove(t, path) }, []string{"migrate"}},
		"newer":          {statement(`INSERT INTO schema_version SELECT version + 1, '9999_future', sum, applied_wall FROM schema_version ORDER BY version DESC LIMIT 1`), []string{"newer", "9999_future"}},
		"changed":        {statement(`UPDATE schema_version SET sum = 'x'`), []string{"unknown migration"}},
		"someone else's": {func(t *testing.T, path string) { remove(t, path); statement(`CREATE TABLE orders (id)`)(t, path) }, []string{"another application"}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, good)
			w.store.Close()
			c.spoil(t, filepath.Join(w.dir, "fence.db"))
			out, err := w.command("run", "--config", w.config).CombinedOutput()
			if err == nil || strings.Count(string(out), "\n") != 1 || !strings.Contains(string(out), "fence.db") {
				t.Errorf("want one line naming the file, got %v: %q", err, out)
			}
			for _, word := range c.words {
				if !strings.Contains(string(out), word) {
					t.Errorf("the line does not say %q: %s", word, out)
				}
			}
		})
	}
}

func remove(t *testing.T, path string) {
	t.Helper()
	for _, suffix := range []string{"", "-wal", "-shm"} {
		if err := os.Remove(path + suffix); err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
	}
}

// statement spoils a store's file from outside.
func statement(text string) func(t *testing.T, path string) {
	return func(t *testing.T, path string) {
		t.Helper()
		db, err := sql.Open("sqlite", fmt.Sprintf("file:%s?_pragma=busy_timeout(%d)", path, patience.Milliseconds())) // a sidecar may be writing
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		if _, err := db.Exec(text); err != nil {
			t.Fatal(err)
		}
	}
}
