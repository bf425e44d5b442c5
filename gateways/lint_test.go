package gateways

import (
	"os"
	"slices"
	"strings"
	"testing"
)

const lintFile = `name: mine
baseURL: https://api.mine.example
family: z
key:
  header: Idempotency Key
answers:
  - {status: ["2xx"], outcome: succeeded}
  - status: ["404"]
    outcome: not-executed
routes:
  - name: charge
    method: POST
    path: /charges
    probe: true
  - name: refund
    method: GET
    path: /refunds
    lookup:
      kind: list
      target: /refunds
      cases:
        - is: gone
`

// Every error is told at once, each with its line, field and remedy.
func TestLintErrors(t *testing.T) {
	g, found := Lint([]byte(lintFile), "mine.yaml")
	if g != nil {
		t.Fatal("a file with errors was taken")
	}
	type at struct {
		line  int
		field string
	}
	var got []at
	for _, p := range found {
		got = append(got, at{p.Line, p.Field})
		if p.Warning || p.What == "" || !strings.HasPrefix(p.Remedy, "allowed: ") {
			t.Errorf("%+v", p)
		}
	}
	for _, want := range []at{
		{3, "family"}, {5, "key.header"}, {14, "routes.charge.probe"}, {16, "routes.refund.method"}, {22, "routes.refund.lookup.cases[0].is"},
		{18, "routes.refund.lookup.reference"},
	} {
		if !slices.Contains(got, want) {
			t.Errorf("%v is not among %v", want, got)
		}
	}
	if !slices.IsSortedFunc(found, func(a, b Problem) int { return a.Line - b.Line }) {
		t.Error("not in order of lines")
	}
}

func TestLintForm(t *testing.T) {
	for name, tt := range map[string]struct {
		text, field, what string
		line              int
	}{
		"no YAML":          {"name: mine\nroutes: [\n", "", "not YAML", 0},
		"an unknown field": {"name: mine\nbaseUrl: https://x.example\n", "baseUrl", "no such field", 2},
		"a wrong kind":     {"name: mine\nroutes:\n  - name: a\n    probe: perhaps\n", "routes[0].probe", "is not allowed", 4},
		"a bad time":       {"name: mine\nkeyRetention: 24\n", "keyRetention", "is not allowed", 2},
		"a name twice":     {"name: mine\nname: yours\n", "", "", 2},
		"extends nothing":  {"extends: nobody\n", "extends", "is not allowed", 1},
		"empty":            {"", "", "", 0},
	} {
		g, found := Lint([]byte(tt.text), "mine.yaml")
		if g != nil || len(found) == 0 {
			t.Errorf("%s: taken", name)
			continue
		}
		if p := found[0]; tt.field != "" && p.Field != tt.field || !strings.Contains(p.What, tt.what) || tt.line != 0 && p.Line != tt.line || p.Remedy == "" {
			t.Errorf("%s: %+v", name, p)
		}
	}
}

// A secret that stands where its place belongs is not shown.
func TestLintSecrets(t *testing.T) {
	_, found := Lint([]byte("name: mine\naccounts:\n  - name: a\n    credential: sk_live_1234\n"), "mine.yaml")
	for _, p := range found {
		if strings.Contains(p.String(), "1234") {
			t.Errorf("%s", p)
		}
	}
}

func TestLintWarnings(t *testing.T) {
	text := `name: mine
baseURL: https://api.mine.example
key: {header: Idempotency-Key}
answers:
  - {status: ["2xx"], outcome: succeeded}
  - {status: ["404"], outcome: not-executed}
  - {status: ["503"], when: [{at: /code}], outcome: declined}
routes:
  - {name: charge, method: POST, path: /charges}
  - {name: refund, method: POST, path: "/charges/{id}/refund", keyless: true}
  - {name: token, method: POST, path: /token, keyless: true, untagged: pass}
webhook: {references: [/ref], cases: [{outcome: succeeded}]}
`
	g, found := Lint([]byte(text), "mine.yaml")
	if g == nil {
		t.Fatal(found)
	}
	for _, want := range []struct {
		line        int
		field, what string
	}{
		{0, "error", "no error shape"}, {0, "guarantees.G3", "retention"}, {5, "answers[0]", "whatever its body says"}, {6, "answers[1]", "a proxy"},
		{7, "answers[2]", "503"}, {9, "routes.charge.keyRetention", "nothing is resent"}, {9, "routes.charge.lookup", "neither a lookup"},
		{10, "routes.refund.effect", "is move"}, {10, "routes.refund.key", "no key"}, {11, "routes.token.untagged", "without a fence"}, {12, "webhook.cases", "not signed"},
	} {
		if !slices.ContainsFunc(found, func(p Problem) bool {
			return p.Line == want.line && p.Field == want.field && strings.Contains(p.What, want.what) && p.Warning && p.Remedy != ""
		}) {
			t.Errorf("no warning %+v among %v", want, found)
		}
	}
	clean, err := os.ReadFile("testdata/generic.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if g, found := Lint(clean, "generic.yaml"); g == nil || slices.ContainsFunc(found, func(p Problem) bool { return strings.Contains(p.Field, "error") }) {
		t.Errorf("%v", found)
	}
}

func TestAfterDoubt(t *testing.T) {
	g := stripe(t)
	for route, want := range map[string]string{
		"payment_intents_create": "listed; 2 misses prove absence; the app's repeat asks within 24h",
		"post":                   "the app's repeat asks within 24h",
		"other":                  "never resent; a notice or a person decides",
	} {
		if got := g.AfterDoubt(g.route(route)); got != want {
			t.Errorf("%s: %q, want %q", route, got, want)
		}
	}
}

func FuzzLint(f *testing.F) {
	f.Add([]byte(lintFile))
	f.Add([]byte("name: a\n? [x]\n: b\n"))
	f.Add([]byte("routes: {a: [&x {name: *x}]}"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if len(data) > 4<<10 {
			return
		}
		g, found := Lint(data, "f")
		if g == nil && len(found) == 0 {
			t.Error("refused without a reason")
		}
	})
}

// Nothing of a file that a secret may stand in by mistake is repeated.
func TestLintShowsNoSecret(t *testing.T) {
	const secret = "sk_live_77aa"
	head := "name: mine\nbaseURL: https://api.mine.example\n"
	for _, text := range []string{
		head + "accounts:\n  - name: a\n    credential: {" + secret + ": x}\n", head + "lookupScheme: \"Bearer " + secret + "\"\n",
		head + "accounts:\n  - {name: a, oauth2: {tokenPath: \"x?k=" + secret + "\", clientID: {env: A}, clientSecret: {env: B}}}\n",
		head + "error: {header: [{name: \"X " + secret + "\", value: v}]}\n", head + "x: *" + secret + "\n",
		head + "accounts:\n  - name: a\n    credential: {env: A}\n    credential: {env: \"" + secret + "\"}\n",
		head + "accounts:\n  - {name: a, oauth2: {tokenURL: \"http://" + secret + "@x.example/\", clientID: {env: A}, clientSecret: {env: B}}}\n",
	} {
		g, found := Lint([]byte(text), "f")
		if g != nil || len(found) == 0 {
			t.Errorf("taken: %s", text)
		}
		for _, p := range found {
			if strings.Contains(p.String(), secret) {
				t.Errorf("%s", p)
			}
		}
	}
	if g, found := Lint([]byte(head+"routes: [{name: a, method: POST, path: /a}]\n---\nuntagged: pass\n"), "f"); g != nil || !strings.Contains(found[0].What, "several") {
		t.Errorf("a second document: %v", found)
	}
	if g, found := Lint([]byte(head+"answers: [{status: [\"\"], outcome: succeeded}]\nroutes: [{name: a, method: POST, path: /a}]\n"), "f"); g != nil || found[0].Field != "answers[0].status" {
		t.Errorf("an empty status: %v", found)
	}
	if g, found := Lint([]byte(head+"routes:\n  - &r\n    name: a\n    method: GET\n    path: /a\n"), "f"); g != nil || found[0].Line != 6 {
		t.Errorf("behind an anchor: %v", found)
	}
	if g, _ := Lint([]byte(head+"routes:\n  - {name: a, method: POST, path: /a, also: [\"/b/**\"]}\n"), "f"); g != nil {
		t.Error("a plain path beside a prefix")
	}
}
