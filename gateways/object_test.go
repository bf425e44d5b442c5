package gateways

import (
	"strings"
	"testing"

	"github.com/fence-sidecar/fence-sidecar/claims"
)

// Where the gateway has named the object, that one is read: no list, and no miss.
func TestAskNamedObject(t *testing.T) {
	const pi = "payment_intents_create"
	sum := []string{"amount", "1000", "currency", "eur", "confirm", "true"}
	for _, tt := range []struct {
		name, page string
		status     int
		kind       claims.FindingKind
		pay        string
	}{
		{"paid", intent("pi_1", "REF", "succeeded", ""), 200, claims.FoundDone, "done"},
		{"processing", intent("pi_1", "REF", "processing", ""), 200, claims.FoundDone, "pending"},
		{"declined", intent("pi_1", "REF", "requires_payment_method", lastError), 200, claims.FoundFailed, "failed"},
		{"another object", intent("pi_2", "REF", "succeeded", ""), 200, claims.CouldNotTell, ""},
		{"of another call", intent("pi_1", "OTHER", "succeeded", ""), 200, claims.Contradiction, ""},
		{"of no call", `{"id":"pi_1","object":"payment_intent","status":"succeeded","amount":1000,"currency":"eur"}`, 200, claims.Contradiction, ""},
		{"another amount", strings.Replace(intent("pi_1", "REF", "succeeded", ""), "1000", "1001", 1), 200, claims.Contradiction, ""},
		{"another kind", `{"id":"pi_1","object":"charge","metadata":{"fence_ref":"REF"},"status":"succeeded"}`, 200, claims.CouldNotTell, ""},
		{"a list", list(false), 200, claims.CouldNotTell, ""},
		{"not there", `{"error":{}}`, 404, claims.CouldNotTell, ""},
	} {
		s := &script{t: t, pages: []string{tt.page}, date: later, mod: func(a *claims.Answer) { a.Status = tt.status }}
		g := stripe(t)
		g.route(pi).Lookup.NotFound = CaseMissed // whatever the list may say
		f, err := g.AskAt(t.Context(), WithObject(facts(pi, sum...), "pi_1"), begun, asked, s.ask)
		if err != nil || f.Kind != tt.kind || f.Payment != tt.pay {
			t.Errorf("%s: %v %q (%s), %v; want %v %q", tt.name, f.Kind, f.Payment, f.Reason, err, tt.kind, tt.pay)
		}
		if len(s.asked) != 1 || s.asked[0] != "/v1/payment_intents/pi_1" {
			t.Errorf("%s: asked %q", tt.name, s.asked)
		}
		if f.Kind == claims.FoundDone && f.Object != "pi_1" {
			t.Errorf("%s: object %q", tt.name, f.Object)
		}
	}
}

// A route whose objects cannot be read by their id is looked up as ever, but what the gateway has named is not absent.
func TestAskNamedWithoutObject(t *testing.T) {
	g := stripe(t)
	g.route("payment_intents_create").Lookup.Object = ""
	s := &script{t: t, pages: []string{list(false)}, date: later}
	f, err := g.AskAt(t.Context(), WithObject(facts("payment_intents_create"), "pi_1"), begun, asked, s.ask)
	if err != nil || f.Kind != claims.CouldNotTell {
		t.Errorf("%v (%s), %v", f.Kind, f.Reason, err)
	}
}

func TestWithObject(t *testing.T) {
	f := facts("payment_intents_create", "amount", "1")
	with := WithObject(f, "pi_1")
	if f.Lookup[objectParam] != "" || with.Lookup[objectParam] != "pi_1" || with.Lookup["amount"] != "1" {
		t.Errorf("%v from %v", with.Lookup, f.Lookup)
	}
	if got := WithObject(claims.Facts{}, "x").Lookup[objectParam]; got != "x" {
		t.Errorf("%q", got)
	}
	if got := WithObject(f, ""); len(got.Lookup) != 1 {
		t.Errorf("%v", got.Lookup)
	}
}

// pointing is a gateway of family c, with cursors and a compared mandate.
func pointing(t *testing.T) *Gateway {
	t.Helper()
	if _, err := Load([]byte(strings.Replace(pointingFile, "/v2/payments", "/{version}/payments", 1)), "pointing.yaml"); err == nil {
		t.Error("a path with other names than the first was taken")
	}
	g, err := Load([]byte(pointingFile), "pointing.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return g
}

const pointingFile = `
name: pointing
baseURL: https://api.pointing.example
family: c
keyRetention: 24h
key: {header: Idempotency-Key}
reference: {field: payments.metadata.ref, owned: true, required: true}
answers:
  - {status: ["201"], outcome: succeeded}
  - {status: ["409"], when: [{at: /error/reason, in: [conflict]}], outcome: unknown, points: /error/id}
routes:
  - name: create
    method: POST
    path: /payments
    also: ["/v2/payments"]
    params: {mandate: "body:payments.links.mandate"}
    object: /payments/id
    lookup:
      kind: list
      target: /payments?since={since}
      object: /payments/{object}
      objectAt: /payments
      items: /payments
      id: /id
      reference: /metadata/ref
      same: {mandate: /links/mandate}
      cases: [{when: [{at: /status, in: [paid]}], is: done}]
      pages: {next: /meta/after, param: after}
`

func TestPointing(t *testing.T) {
	g := pointing(t)
	for _, path := range []string{"/payments", "/v2/payments"} {
		if m, ok := g.Match("POST", path); !ok || m.Route.Name != "create" {
			t.Errorf("%s: %v", path, ok)
		}
	}
	if _, ok := g.Match("POST", "/v3/payments"); ok {
		t.Error("a path that is not declared")
	}
	c := g.Classify("create", reply(409, `{"error":{"reason":"conflict","id":"PM1"}}`))
	if c.Outcome != claims.Unknown || c.Object != "PM1" || c.InUse {
		t.Errorf("%+v", c)
	}
	if c := g.Classify("create", reply(201, `{"payments":{"id":"PM2"}}`)); c.Object != "PM2" || c.Outcome != claims.Succeeded {
		t.Errorf("%+v", c)
	}
	item := func(mandate string) string {
		return `{"payments":{"id":"PM1","status":"paid","metadata":{"ref":"REF"},"links":{"mandate":"` + mandate + `"}}}`
	}
	for mandate, want := range map[string]claims.FindingKind{"MD1": claims.FoundDone, "MD2": claims.Contradiction, "": claims.CouldNotTell} {
		s := &script{t: t, pages: []string{item(mandate)}, date: later}
		f, err := g.AskAt(t.Context(), WithObject(facts("create", "mandate", "MD1"), "PM1"), begun, asked, s.ask)
		if err != nil || f.Kind != want {
			t.Errorf("mandate %q: %v (%s), %v; want %v", mandate, f.Kind, f.Reason, err, want)
		}
	}
}

func TestCursors(t *testing.T) {
	page := func(after, items string) string { return `{"payments":[` + items + `],"meta":{"after":` + after + `}}` }
	mine := `{"id":"PM7","status":"paid","metadata":{"ref":"REF"},"links":{"mandate":"MD1"}}`
	for _, tt := range []struct {
		name  string
		pages []string
		kind  claims.FindingKind
	}{
		{"one page", []string{page("null", mine)}, claims.FoundDone},
		{"the second page", []string{page(`"c1"`, ""), page("null", mine)}, claims.FoundDone},
		{"nothing", []string{page(`"c1"`, ""), page("null", "")}, claims.Missed},
		{"the same cursor again", []string{page(`"c1"`, ""), page(`"c1"`, "")}, claims.CouldNotTell},
		{"an empty cursor", []string{page(`""`, "")}, claims.CouldNotTell},
		{"no text", []string{page("7", "")}, claims.CouldNotTell},
		{"no meta", []string{`{"payments":[]}`}, claims.CouldNotTell},
		{"no cursor", []string{`{"payments":[],"meta":{}}`}, claims.CouldNotTell},
	} {
		s := &script{t: t, pages: tt.pages, date: later}
		f, err := pointing(t).AskAt(t.Context(), facts("create", "mandate", "MD1"), begun, asked, s.ask)
		if err != nil || f.Kind != tt.kind {
			t.Errorf("%s: %v (%s), %v; want %v", tt.name, f.Kind, f.Reason, err, tt.kind)
		}
		if len(s.asked) > 1 && !strings.HasSuffix(s.asked[1], "&after=c1") {
			t.Errorf("%s: asked %q", tt.name, s.asked)
		}
	}
}

// A poll of the money reads the list first, which shows a second success, and the object where the list tells nothing.
func TestAskPaymentNamed(t *testing.T) {
	const pi = "payment_intents_create"
	paid := intent("pi_1", "REF", "succeeded", "")
	for _, tt := range []struct {
		name  string
		pages []string
		kind  claims.FindingKind
		last  string
	}{
		{"in the list", []string{list(false, paid)}, claims.FoundDone, "/v1/payment_intents?"},
		{"twice in the list", []string{list(false, paid, intent("pi_2", "REF", "succeeded", ""))}, claims.Contradiction, "/v1/payment_intents?"},
		{"not in the list", []string{list(false), paid}, claims.FoundDone, "/v1/payment_intents/pi_1"},
		{"a long list", []string{list(true, `{"id":"a"}`), list(true, `{"id":"b"}`), list(true, `{"id":"c"}`), list(true, `{"id":"d"}`), list(true, `{"id":"e"}`), paid},
			claims.FoundDone, "/v1/payment_intents/pi_1"},
	} {
		s := &script{t: t, pages: tt.pages, date: later}
		f, err := stripe(t).AskPayment(t.Context(), WithObject(facts(pi), "pi_1"), begun, asked, s.ask)
		if err != nil || f.Kind != tt.kind || !strings.HasPrefix(s.asked[len(s.asked)-1], tt.last) {
			t.Errorf("%s: %v (%s), %v, asked %q", tt.name, f.Kind, f.Reason, err, s.asked)
		}
	}
}

// A reference that the app chose names other calls too, perhaps; an object that the gateway named is this call's.
func TestAskNamedOfTheApps(t *testing.T) {
	const pi = "payment_intents_create"
	f := facts(pi, appReference, "app")
	paid := intent("pi_1", "REF", "succeeded", "")
	s := &script{t: t, pages: []string{list(false, paid)}, date: later}
	if got, err := stripe(t).AskAt(t.Context(), f, begun, asked, s.ask); err != nil || got.Kind != claims.CouldNotTell {
		t.Errorf("by reference: %v, %v", got.Kind, err)
	}
	s = &script{t: t, pages: []string{paid}, date: later}
	if got, err := stripe(t).AskAt(t.Context(), WithObject(f, "pi_1"), begun, asked, s.ask); err != nil || got.Kind != claims.FoundDone {
		t.Errorf("by id: %v (%s), %v", got.Kind, got.Reason, err)
	}
}
