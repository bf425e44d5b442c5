package gateways

import (
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
)

func TestLoad(t *testing.T) {
	g := generic(t)
	if g.KeyRetention != 12*time.Hour || g.AttemptTimeout != 45*time.Second || g.Tokens != TokensNone || g.Untagged != UntaggedRefuse ||
		g.UnknownStatus != 502 || g.Key.Shape.Length != 36 || g.Reference.Shape.Length != 26 || g.Accounts[0].Credential.Env != "PLAIN_KEY" {
		t.Errorf("%+v", g)
	}
	before := *g.route("charge").Lookup
	if err := g.Validate(); err != nil { // a second time changes nothing
		t.Error(err)
	}
	if d := cmp.Diff(before, *g.route("charge").Lookup); d != "" {
		t.Error(d)
	}
}

// TestLoadErrors: one line that names file, field, value and what is allowed.
func TestLoadErrors(t *testing.T) {
	b, err := os.ReadFile("testdata/generic.yaml")
	if err != nil {
		t.Fatal(err)
	}
	good := string(b)
	tests := []struct{ from, to, want string }{
		{"keyRetention: 12h", "keyRetention: 12", `keyRetention: "12" is not allowed; allowed: a length of time such as`},
		{"keyRetention: 12h", "keyRetention: soon", `keyRetention: "soon"`},
		{"keyRetention: 12h", "keyRetention: -1h", `keyRetention: "-1h0m0s"`},
		{"tokens: none", "tokens: never", `tokens: "never" is not allowed; allowed: required, optional, none`},
		{"tokens: none", "token: none", "token: no such field; allowed here: accountHeaders, accounts"},
		{"unknownStatus: 502", "unknownStatus: 200", `unknownStatus: "200" is not allowed; allowed: 400 to 599`},
		{"unknownStatus: 502", "unknownStatus: no", `unknownStatus: "no"`},
		{"family: b", "family: d", `family: "d" is not allowed; allowed: a, b, c`},
		{"baseURL: https://api.plain.example:8443", "baseURL: https://x/v1", `baseURL: "https://x/v1"`},
		{"baseURL: https://api.plain.example:8443", "baseURL: ftp://x", `baseURL: "ftp://x"`},
		{"alphabet: uuid", "alphabet: rot13", `key.shape.alphabet: "rot13"`},
		{"length: 26", "length: 8", `reference.shape.length: "8" is not allowed; allowed: at least 20`},
		{"header: X-Request-Key", "header: \"X Key\"", `key.header: "X Key"`},
		{"kind: search", "kind: guess", `routes.charge.lookup.kind: "guess" is not allowed; allowed: list, get, search`},
		{"misses: 3", "proves: true", `routes.charge.lookup.proves: "true" is not allowed; allowed: false for kind search`},
		{"misses: 3", "misses: -1", `routes.charge.lookup.misses: "-1"`},
		{"each: [{at: /id}", "each: [{at: id}", `routes.charge.lookup.each[0].at: "id"`},
		{"kind: search\n      target: /charges?reference={reference}&from={since}\n      sinceFormat: rfc3339\n      items: /items", "kind: get\n      target: /charges/{reference}", "routes.charge.lookup.each: \"\" is not allowed; allowed: none for kind get"},
		{"misses: 3", "window: 1m", `routes.charge.lookup.window: "1m0s"`},
		{"misses: 3", "mises: 3", "routes[0].lookup.mises: no such field; allowed here: amount, answer"},
		{"{reference}", "{refrence}", `routes.charge.lookup.target: "{refrence}"`},
		{"body:money.amount", "head:x", `routes.charge.params.amount: "head:x"`},
		{"body:money.amount", "body:card.number", `routes.charge.params.amount: "body:card.number" is not allowed; allowed: no card`},
		{"method: POST", "method: GET", `routes.charge.method: "GET"`},
		{"effect: undo", "effect: maybe", `routes.refund.effect: "maybe" is not allowed; allowed: move, undo`},
		{"path: /charges\n", "path: /charges/{a}/{a}\n", `routes.charge.path: "/charges/{a}/{a}"`},
		{"path: /charges\n", "path: /**/charges\n", `routes.charge.path`},
		{"path: /charges\n", "probe: yes\n    path: /charges\n", `routes[0].probe: "yes" is not allowed; allowed: true or false`},
		{"name: refund", "name: charge", `routes[1].name: "charge"`},
		{"outcome: declined", "outcome: maybe", `answers[0].outcome: "maybe"`},
		{`status: ["422"]`, `status: [422]`, `answers[2].status[0]: "422" is not allowed; allowed: a text`},
		{`status: ["422"]`, `status: ["999"]`, `answers[2].status: "999"`},
		{`["2xx"], outcome: succeeded`, `["5xx"], outcome: succeeded`, `answers[1].status: "5xx" is not allowed; allowed: 200 to 299 for succeeded`},
		{"captured: done", "captured: gone", `payment.values.captured: "gone"`},
		{"at: /approved", "at: approved", `answers[0].when[0].at: "approved"`},
		{"{env: PLAIN_KEY}", "{env: A, file: B}", `accounts[0].credential: "…" is not allowed; allowed: env or file`},
		{"{env: PLAIN_KEY}", "sk_live_secret", `accounts[0].credential: "…" is not allowed; allowed: a map of fields`},
		{"name: main", "name: unmapped", `accounts[0].name: "unmapped"`},
		{"name: main", "name: main\n    credentialHash: abc", `accounts[0].credentialHash: "…"`},
		{"field: order.id", "field: order.id\n  refuse: [\"(\"]", `callKey.refuse[0]: "("`},
		{"members: {code:", "members: {status:", `error.members: "status"`},
		{"name: plain", "name: plain\nname: plain", "already defined"},
		{"hosts:", "hosts: {a: b}\nx:", `hosts: "map[a:b]" is not allowed; allowed: a list`},
		{"tokens: none", "tokens:", `tokens: "" is not allowed; allowed: a value`},
		{good, "", `the file: "" is not allowed`},
		{good, "- a", `the file: "[a]"`},
		{good, "a: [", "not YAML"},
		{good, strings.Repeat("#", 1<<20) + "\n#", "at most 1048576 are allowed"},
		{good, "name: x\nbaseURL: https://x", "routes"},
	}
	for _, tt := range tests {
		text := strings.Replace(good, tt.from, tt.to, 1)
		if text == good {
			t.Fatalf("%q is not in the file", tt.from)
		}
		_, err := Load([]byte(text), "plain.yaml")
		if err == nil || !strings.HasPrefix(err.Error(), "plain.yaml: ") || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v\n\twant %s", tt.to, err, tt.want)
		}
	}
}

// TestExtends: a file may say only what differs from a built-in gateway.
func TestExtends(t *testing.T) {
	g, err := Load([]byte("extends: stripe\nbaseURL: http://127.0.0.1:12111\nattemptTimeout: 30s\nkey: {header: Idempotency-Key, shape: {length: 40}}\ncallKey: {header: Idempotency-Key}\naccounts:\n  - name: main\n    lookupCredential: {env: K}\n"), "s.yaml")
	if err != nil {
		t.Fatal(err)
	}
	want := Stripe()
	want.Extends, want.BaseURL, want.AttemptTimeout, want.Key.Shape.Length = "stripe", "http://127.0.0.1:12111", 30*time.Second, 40
	want.CallKey = &CallKey{Header: "Idempotency-Key"}
	want.Accounts = []Account{{Name: "main", LookupCredential: Secret{Env: "K"}}}
	if err := want.Validate(); err != nil {
		t.Fatal(err)
	}
	opts := cmp.Options{cmp.AllowUnexported(Route{}, AnswerRule{}), cmpopts.IgnoreUnexported(CallKey{})}
	if d := cmp.Diff(want, g, opts); d != "" {
		t.Error(d)
	}
	if _, err := Load([]byte("extends: paypall"), "s.yaml"); err == nil || !strings.Contains(err.Error(), `extends: "paypall" is not allowed; allowed: stripe`) {
		t.Error(err)
	}
}

func TestValidateStripe(t *testing.T) {
	broken := map[string]func(*Gateway){
		"probe": func(g *Gateway) { g.KeyRetention = 0 },
		"prove": func(g *Gateway) { g.route("refunds_create").Reference.Required = false },
		"sign":  func(g *Gateway) { g.Key = &KeyPlace{Field: "k"}; g.route("post").Signed = true },
		"get":   func(g *Gateway) { g.route("payouts_cancel").Lookup.SameAs = "" },
		"pages": func(g *Gateway) { g.route("refunds_create").Lookup.Pages.More = "" },
		"cases": func(g *Gateway) { g.route("refunds_create").Lookup.Cases = nil },
		"miss":  func(g *Gateway) { g.route("refunds_create").Lookup.Cases[0].Is = CaseMissed },
		"nil":   func(g *Gateway) { g.Routes = append(g.Routes, nil) },
	}
	for name, breakIt := range broken {
		g := stripe(t)
		breakIt(g)
		if err := g.Validate(); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func FuzzLoad(f *testing.F) {
	b, err := os.ReadFile("testdata/generic.yaml")
	if err != nil {
		f.Fatal(err)
	}
	f.Add(b)
	f.Add([]byte("name: x\nbaseURL: https://x\nroutes: [null]"))
	f.Add([]byte("a: &a [*a]"))
	f.Add([]byte("{\xc0\r\r\r77?Z\xa5}"))
	f.Add([]byte("? {a: b}\n: c"))
	f.Add([]byte("---\na: 1\n---\nb: 2"))
	f.Fuzz(func(t *testing.T, data []byte) {
		g, err := Load(data, "f.yaml")
		if err == nil && g.Validate() != nil {
			t.Error("what was loaded does not validate")
		}
		if err != nil && (strings.Contains(err.Error(), "\n") || !strings.HasPrefix(err.Error(), "f.yaml: ")) {
			t.Errorf("error %q", err)
		}
	})
}

// A file that extends a built-in gateway promises no more than that one documents, at its own address.
func TestLoosened(t *testing.T) {
	for text, want := range map[string]string{
		"extends: stripe\n": "",
		"extends: stripe\nkeyRetention: 12h\nsettleAfter: 20m\n":                                                        "",
		"extends: stripe\nkeyRetention: 25h\n":                                                                          "keyRetention",
		"extends: stripe\nsettleAfter: 1s\n":                                                                            "settleAfter",
		"extends: stripe\nbaseURL: https://API.stripe.com.:443\nkeyRetention: 25h\n":                                    "keyRetention",
		"extends: stripe\nbaseURL: http://127.0.0.1:1\nkeyRetention: 25h\n":                                             "",
		"extends: checkout\nfamily: a\nroutes: [{name: payments_create, method: POST, path: /payments, probe: true}]\n": "routes.payments_create",
	} {
		g, found := Lint([]byte(text), "f")
		if g == nil {
			t.Fatalf("%q: %v", text, found)
		}
		why := g.Loosened()
		if (why == "") != (want == "") || !strings.HasPrefix(why, want) {
			t.Errorf("%q: %q, want %q", text, why, want)
		}
		warned := slices.ContainsFunc(found, func(p Problem) bool { return strings.Contains(p.What, "run refuses it") })
		if warned != (want != "") {
			t.Errorf("%q: warned %v", text, warned)
		}
	}
}
