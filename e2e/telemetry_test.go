package e2e

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/fence-sidecar/fence-sidecar/claims"
	"github.com/fence-sidecar/fence-sidecar/gateways/sandbox"
)

// TestProbes: live from the start, started and ready with the first lease; not ready while the lease is lost, and again
// when it is back.
func TestProbes(t *testing.T) {
	t.Parallel()
	gateway, u := newSandbox(t, sandbox.Config{})
	w := newWorld(t, settings{lease: "3s", gateway: []use{u}})
	db := filepath.Join(w.dir, "fence.db")
	statement(`CREATE TRIGGER nobody BEFORE INSERT ON leases BEGIN SELECT RAISE(ABORT, 'no leases today'); END`)(t, db)
	a := w.spawn("A")
	eventually(t, "A tries to take its lease", func() bool { return strings.Contains(a.logs(), "instance lease not taken yet") })
	probe := func(livez, startupz, readyz int) {
		t.Helper()
		for path, want := range map[string]int{"/livez": livez, "/startupz": startupz, "/readyz": readyz} {
			if got, body := a.get(path); got != want {
				t.Errorf("%s: want %d, got %d %s", path, want, got, body)
			}
		}
	}
	probe(200, 503, 503)
	if v := a.metric("fence_lease_remaining_seconds"); v != "0" {
		t.Errorf("without a lease it may be trusted for %s s", v)
	}
	send(a.at("stripe"), charge("k")).want(t, 503, "instance-lease-lost")
	statement(`DROP TRIGGER nobody`)(t, db)
	eventually(t, "A is ready", func() bool { return a.ready() != "" })
	probe(200, 200, 200)
	if v := a.metric("fence_lease_remaining_seconds"); v == "0" || v == "" {
		t.Errorf("with a lease it may be trusted for %q s", v)
	}
	// The store stops taking writes for longer than the lease (field report R60).
	unlock := lock(t, w)
	eventually(t, "A notices", func() bool { code, _ := a.get("/readyz"); return code == 503 })
	probe(200, 200, 503)
	p := send(a.at("stripe"), charge("k"))
	if s := p.slug(); p.status != 503 || s != "instance-lease-lost" && s != "store-unavailable" {
		t.Errorf("without a lease: %s", p)
	}
	if n := len(gateway.Sends()); n != 0 {
		t.Errorf("%d sends without a lease", n)
	}
	unlock()
	eventually(t, "A is ready again", func() bool { code, _ := a.get("/readyz"); return code == 200 })
	insist(t, charge("k"), "stripe", a).want(t, 200, "")
	probe(200, 200, 200)
}

// metricNames are the documented metrics.
var metricNames = []string{
	"fence_build_info", "fence_lease_remaining_seconds", "fence_calls_in_flight", "fence_calls_unsettled", "fence_doubt_oldest_seconds",
	"fence_calls_total", "fence_call_seconds", "fence_attempts_total", "fence_refusals_total", "fence_unfenced_total",
	"fence_calls_without_token_total", "fence_breaker_state", "fence_lookups_total", "fence_reconciled_total",
}

// TestMetrics: the documented names are there, and nothing of a request is.
func TestMetrics(t *testing.T) {
	gateway, u := newSandbox(t, sandbox.Config{})
	w := newWorld(t, settings{gateway: []use{u}})
	a := w.start("A")
	series := func() int {
		_, text := a.get("/metrics")
		return strings.Count(text, "\nfence_")
	}
	traffic := func(i int) {
		key := fmt.Sprintf("charge:secret-order-%d", i)
		send(a.at("stripe"), charge(key)).want(t, 200, "")
		send(a.at("stripe"), charge(key, "Fence-Kee: x")).want(t, 400, "bad-request")
		send(a.at("stripe"), request{method: fmt.Sprintf("FOO%d", i), target: fmt.Sprintf("/v1/secret-path-%d", i), lines: []string{"Host: secret-host"}}).want(t, 403, "untagged")
		send(a.at("stripe"), request{method: "GET", target: fmt.Sprintf("/v1/charges?secret-query-%d", i)})
		inject(t, gateway, sandbox.Fault{Name: "lose-fin"})
		insist(t, charge(key+"-lost"), "stripe", a)
	}
	traffic(0)
	before := series()
	for i := 1; i < 20; i++ {
		traffic(i)
	}
	if after := series(); after != before {
		t.Errorf("%d series before, %d after more of the same: a label's values are not a closed list", before, after)
	}
	_, text := a.get("/metrics")
	for _, name := range metricNames {
		if !strings.Contains(text, "# TYPE "+name+" ") {
			t.Errorf("%s is missing", name)
		}
	}
	for _, bad := range []string{"secret", "charge:", "/v1/", "FOO", secret} {
		if strings.Contains(text, bad) {
			t.Errorf("the metrics hold %q", bad)
		}
	}
	if v := a.metric(`fence_calls_total{gateway="stripe",outcome="succeeded",result="sent",route="charges_create"}`); v != "20" {
		t.Errorf("calls sent: %q", v)
	}
	if v := a.metric(`fence_calls_unsettled{state="review"}`); v != "0" {
		t.Errorf("calls in review: %q", v)
	}
}

const (
	cardNumber = "4242424242424242"
	cardSpaced = "5555 5555 5555 4444"
	cardCVC    = "9731"
	querySalt  = "qs_secret_77"
	signature  = "sig_secret_78"
)

var (
	digits  = regexp.MustCompile(`(?:^|[^0-9A-Za-z.])((?:[0-9][ -]?){11,18}[0-9])(?:[^0-9A-Za-z]|$)`)
	cvcWord = regexp.MustCompile(`(^|[^0-9A-Za-z.])` + cardCVC + `([^0-9A-Za-z]|$)`) // not inside a hexadecimal id
)

// leaks are the secrets and card numbers in a text.
func leaks(text string) (found []string) {
	for _, m := range digits.FindAllStringSubmatch(text, -1) {
		if luhn(m[1]) {
			found = append(found, m[1])
		}
	}
	if cvcWord.MatchString(text) {
		found = append(found, "CVC")
	}
	for _, s := range []string{cardNumber, cardSpaced, secret, querySalt, signature} {
		if strings.Contains(text, s) {
			found = append(found, s)
		}
	}
	return found
}

// luhn reports whether digits pass the check of ISO/IEC 7812-1.
func luhn(s string) bool {
	sum, double := 0, false
	for i := len(s) - 1; i >= 0; i-- {
		if s[i] < '0' || s[i] > '9' {
			continue
		}
		d := int(s[i] - '0')
		if double {
			if d *= 2; d > 9 {
				d -= 9
			}
		}
		sum, double = sum+d, !double
	}
	return sum%10 == 0
}

// TestLeaks_bites: the scan finds what it must find.
func TestLeaks_bites(t *testing.T) {
	for _, text := range []string{
		`{"body":"number=4000056655665556"}`, `card 5555-5555-5555-4444.`, `"cvc":"9731"`, "Authorization: Bearer " + secret, "?api_key=" + querySalt,
	} {
		if len(leaks(text)) == 0 {
			t.Errorf("nothing was found in %s", text)
		}
	}
	if f := leaks(`{"time":"2026-11-30T11:40:16.973112345Z","took":200123456,"claim":"00001234123412341234abcd","key":"a9731b"}`); len(f) > 0 {
		t.Errorf("found %v where nothing is", f)
	}
}

// TestLeaks: no card number, security code, credential or query secret comes out in logs, metrics or problem answers, at
// debug level, whatever the gateway does (field report R71).
func TestLeaks(t *testing.T) {
	const form = "application/x-www-form-urlencoded"
	bodies := map[string]string{
		form:               "amount=1&number=" + cardNumber + "&cvc=" + cardCVC + "&note=5555+5555+5555+4444",
		"application/json": `{"amount":1,"card":{"number":"` + cardNumber + `","cvc":"` + cardCVC + `"},"note":"` + cardSpaced + `"}`,
		"multipart/form-data; boundary=b": "--b\r\nContent-Disposition: form-data; name=\"number\"\r\n\r\n" + cardNumber +
			"\r\n--b\r\nContent-Disposition: form-data; name=\"cvc\"\r\n\r\n" + cardCVC + "\r\n--b--\r\n",
		"text/plain": cardNumber + " " + cardCVC,
	}
	misbehave := map[string]func(*rawCall) verdict{
		"ok":        func(*rawCall) verdict { return behave },
		"fin":       (*rawCall).fin,
		"reset":     (*rawCall).reset,
		"error":     func(c *rawCall) verdict { return c.reply(500, "", "you sent "+c.body+" to "+c.target()) },
		"unlisted":  func(c *rawCall) verdict { return c.reply(299, "", c.body) },
		"malformed": func(c *rawCall) verdict { c.say("%s %s\r\n\r\n", c.body, c.target()); return hangUp },
		"truncated": func(c *rawCall) verdict {
			c.say("HTTP/1.1 200 OK\r\nX: %s\r\nContent-Length: 999\r\n\r\n%s", cardNumber, c.body)
			return hangUp
		},
		"declined": func(c *rawCall) verdict { return c.reply(402, "", c.body) },
	}
	g := newRaw(t, func(c *rawCall) verdict {
		if c.method() == http.MethodGet {
			return c.reply(404, "X-Echo: "+c.target()+"\r\n", `{"number":"`+cardNumber+`"}`)
		}
		return misbehave[c.header("X-Misbehave")](c)
	})
	dead := rawUse(g)
	dead.name, dead.url = "dead", "http://127.0.0.1:1"
	u := rawUse(g)
	u.body = 4 << 10
	w := rawWorld(t, settings{gateway: []use{u, dead}, level: "debug", wait: "0s"})
	a := w.start("A")
	n, problems := 0, ""
	ask := func(at string, r request) {
		if p := send(a.at(at), r); p.slug() != "" || p.err != nil {
			problems += p.String() + "\n"
		}
	}
	for media, body := range bodies {
		for how := range misbehave {
			for _, target := range []string{"/v1/charges?api_key=" + querySalt, "/plain/x?api_key=" + querySalt, "/v1/pay?api_key=" + querySalt + "&n=" + cardNumber} {
				n++
				r := request{target: target, body: body, lines: []string{
					fmt.Sprintf("Fence-Key: k%d", n), "Content-Type: " + media, "X-Misbehave: " + how, "X-Signature: " + signature,
				}}
				ask("raw", r)
				ask("raw", r)
				ask("raw", request{target: target, body: body + "x", lines: r.lines}) // a conflict
				ask("dead", r)
				ask("raw", r.with("Fence-Foo: 1"))
				ask("raw", request{target: target, body: body, lines: r.lines[1:]}) // untagged
				ask("raw", request{method: "GET", target: target, lines: r.lines[1:]})
				ask("dead", request{method: "GET", target: target, lines: r.lines[1:]})
				ask("raw", request{target: target, body: body + strings.Repeat(" ", 5<<10), lines: r.lines})
			}
		}
	}
	for _, raw := range []string{
		"POST /v1/x?n=" + cardNumber + " HTTP/9.9\r\n\r\n", "POST /v1/%zz" + cardNumber + " HTTP/1.1\r\nHost: h\r\n\r\n", "number=" + cardNumber + "\r\n\r\n",
		"POST /v1/x HTTP/1.1\r\nHost: h\r\nAuthorization: Bearer " + secret + "\r\nX: a\x01" + cardNumber + "\r\n\r\n",
		"POST /v1/x HTTP/1.1\r\nHost: h\r\nFence-Key: k\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\nAuthorization: Bearer " + secret + "\r\n\r\n" + cardNumber,
		"POST " + cardNumber + " HTTP/1.1\r\nHost: h\r\n\r\n",
	} {
		problems += sendRaw(a.at("raw"), []byte(raw)).String()
	}
	_, metrics := a.get("/metrics")
	list, errs, _ := w.cli("calls", "list", "--json")
	shown, _, _ := w.cli("calls", "explain", "k1")
	before := n
	for _, r := range w.all() {
		if r.State == claims.StateUnknown {
			before--
		}
	}
	if before == n || !strings.Contains(problems, "in-doubt") || !strings.Contains(problems, "not-sent") || !strings.Contains(a.logs(), `"DEBUG"`) {
		t.Error("the run did not fail in every way: nothing was tested")
	}
	a.term()
	for what, text := range map[string]string{
		"the log": a.logs(), "standard output": a.out.String(), "the metrics": metrics, "a problem answer": problems,
		"calls list": list + errs, "calls explain": shown,
	} {
		if f := leaks(text); len(f) > 0 {
			t.Errorf("%s holds %q", what, f)
		}
	}
	w.wantSealed()
}

// wantSealed looks into the store's files: no request body is kept, and answers, which echo some, are sealed.
func (w *world) wantSealed() {
	w.t.Helper()
	files, err := filepath.Glob(filepath.Join(w.dir, "fence.db*"))
	if err != nil || len(files) == 0 {
		w.t.Fatalf("no store file: %v", err)
	}
	known := false
	for _, name := range files {
		b, err := os.ReadFile(name)
		if err != nil {
			w.t.Fatal(err)
		}
		known = known || strings.Contains(string(b), "k1") // keys are in the clear
		for _, s := range []string{cardNumber, cardSpaced, "5555+5555", secret, querySalt, signature, "you sent"} {
			if strings.Contains(string(b), s) {
				w.t.Errorf("%s holds %q", filepath.Base(name), s)
			}
		}
	}
	if !known {
		w.t.Error("not even a call key was found: the wrong files were read")
	}
}
