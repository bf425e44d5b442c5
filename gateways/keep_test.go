package gateways

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/fence-sidecar/fence-sidecar/claims"
	"github.com/google/go-cmp/cmp"
	stripesdk "github.com/stripe/stripe-go/v85"
)

// keeping is Stripe with limits on what is stored.
func keeping(t testing.TB, k *Kept) *Gateway {
	t.Helper()
	g := Stripe()
	g.Keep = k
	if err := g.Validate(); err != nil {
		t.Fatal(err)
	}
	return g
}

const keptBody = `{"id":"pi_1", "object" : "payment_intent","amount":10.50,"big":9007199254740993,"charges":{"data":[{"id":"ch_1","card":"4242"}],"url":"/v1"},` +
	`"last":{"error":{"code":"x\u00e9","card":{"last4":"4242"}}},"a/b":{"~":1},"":{"":2},"secret":"pi_1_secret"}`

// keepTests say what is stored of keptBody; "" stands for no body.
var keepTests = []struct{ fields, body string }{
	{"/id /object", `{"id":"pi_1","object" : "payment_intent"}`},
	{"/amount /big", `{"amount":10.50,"big":9007199254740993}`},
	{"/last/error/code", `{"last":{"error":{"code":"x\u00e9"}}}`},
	{"/last/error/code /last /id", `{"id":"pi_1","last":{"error":{"code":"x\u00e9","card":{"last4":"4242"}}}}`},
	{"/charges/url /nothing /id/x /last/nothing", `{"charges":{"url":"/v1"}}`},
	{"/charges/data", `{"charges":{"data":[{"id":"ch_1","card":"4242"}]}}`},
	{"/a~1b/~0", `{"a/b":{"~":1}}`},
	{"/charges/data/0/id", ""}, {"/charges/data/*/id", ""}, {"/nothing", ""}, {"/ID", ""}, {"/id/x", ""},
}

func fieldsOf(s string) []string { return strings.Fields(s) }

func TestKeepFields(t *testing.T) {
	for _, p := range keepProblems(func(k *Kept, a *claims.Answer) *claims.Answer { return keeping(t, k).KeepFor("nope", a) }) {
		t.Error(p)
	}
}

func keepProblems(keep func(*Kept, *claims.Answer) *claims.Answer) (problems []string) {
	for _, tt := range keepTests {
		a := reply(200, keptBody, "Content-Type", "application/json", "X-A", "1")
		got := keep(&Kept{Fields: fieldsOf(tt.fields)}, a)
		if string(got.Body) != tt.body || (got.Body == nil) != (tt.body == "") || got.Status != 200 || string(a.Body) != keptBody || len(a.Header) != 2 {
			problems = append(problems, fmt.Sprintf("%s: %s", tt.fields, got.Body))
		}
	}
	// What is no object has no fields. No bytes are no fields too, and are kept.
	for body, want := range map[string]string{`[{"id":1}]`: "", `"id"`: "", `null`: "", `<id>1</id>`: "", `{"id":1`: "", "{\"id\":\"\xff\"}": "", "{}": "", `{"id":1}`: `{"id":1}`, `{"id":1,"id":2}`: `{"id":1,"id":2}`} {
		if got := keep(&Kept{Fields: []string{"/id"}}, reply(200, body)); string(got.Body) != want || (got.Body == nil) != (want == "") {
			problems = append(problems, fmt.Sprintf("%s: %s", body, got.Body))
		}
	}
	if got := keep(&Kept{Fields: []string{"/id"}}, &claims.Answer{Status: 204, Body: []byte{}}); got.Body == nil || len(got.Body) > 0 {
		problems = append(problems, "an empty body is not kept")
	}
	if got := keep(&Kept{Fields: []string{"/id"}}, &claims.Answer{Status: 200}); got.Body != nil {
		problems = append(problems, "a body that was not kept is empty")
	}
	return problems
}

// TestKeepBites: broken ways to keep are found by the same table.
func TestKeepBites(t *testing.T) {
	decoded := func(change func(k *Kept, doc map[string]any) map[string]any) func(*Kept, *claims.Answer) *claims.Answer {
		return func(k *Kept, a *claims.Answer) *claims.Answer {
			out := *a
			var doc map[string]any
			if json.Unmarshal(a.Body, &doc) != nil {
				out.Body = nil
				return &out
			}
			out.Body, _ = json.Marshal(change(k, doc))
			return &out
		}
	}
	for name, keep := range map[string]func(*Kept, *claims.Answer) *claims.Answer{
		"everything": func(_ *Kept, a *claims.Answer) *claims.Answer { return a },
		"nothing":    func(_ *Kept, a *claims.Answer) *claims.Answer { return &claims.Answer{Status: a.Status} },
		"in place": func(k *Kept, a *claims.Answer) *claims.Answer {
			a.Body = k.body(a)
			return a
		},
		"numbers by float64": decoded(func(_ *Kept, d map[string]any) map[string]any { return d }),
		"top members whole": decoded(func(k *Kept, d map[string]any) map[string]any {
			out := map[string]any{}
			for _, p := range k.Fields {
				name := pointerParts(p)[0]
				if v, ok := d[name]; ok {
					out[name] = v
				}
			}
			return out
		}),
		"an empty object for nothing": func(k *Kept, a *claims.Answer) *claims.Answer {
			out := *a
			if out.Body = k.body(a); out.Body == nil {
				out.Body = []byte("{}")
			}
			return &out
		},
	} {
		if len(keepProblems(keep)) == 0 {
			t.Errorf("%s: nothing was found", name)
		}
	}
}

func TestKeepHeaders(t *testing.T) {
	all := []string{"content-type", "application/json", "Request-Id", "req_1", "Set-Cookie", "a=b", "X-A", "1", "Content-Length", "9", "Content-Encoding", "gzip", "Content-Digest", "d", "ETag", "e"}
	names := func(a *claims.Answer) (out []string) {
		for _, f := range a.Header {
			out = append(out, f.Name)
		}
		return out
	}
	for _, tt := range []struct {
		keep   *Kept
		coding string // of the body
		want   string
	}{
		{nil, "gzip", "content-type Request-Id Set-Cookie X-A Content-Length Content-Encoding Content-Digest ETag"},
		{&Kept{Headers: []string{"request-ID", "Nope"}}, "gzip", "content-type Request-Id Content-Encoding"}, // else nobody can read the body
		{&Kept{Headers: []string{}}, "gzip", "content-type Content-Encoding"},
		{&Kept{Fields: []string{"/id"}}, "gzip", "content-type Request-Id Set-Cookie X-A"},
		{&Kept{Headers: []string{"X-A", "Content-Length", "content-encoding"}, Fields: []string{"/id"}}, "gzip", "content-type X-A"},
	} {
		a := reply(200, zipped(keptBody), all...)
		got := keeping(t, tt.keep).KeepFor("payment_intents_create", a)
		if d := cmp.Diff(fieldsOf(tt.want), names(got)); d != "" {
			t.Errorf("%+v: %s", tt.keep, d)
		}
		want := string(a.Body)
		if tt.keep != nil && tt.keep.Fields != nil {
			want = `{"id":"pi_1"}`
		}
		if string(got.Body) != want || len(a.Header) != len(all)/2 {
			t.Errorf("%+v: %q", tt.keep, got.Body)
		}
	}
}

// TestKeepCodings: fields are taken out of a body in any coding that is read; what is not read is not kept.
func TestKeepCodings(t *testing.T) {
	g := keeping(t, &Kept{Fields: []string{"/id"}})
	for coding, code := range coders(t) {
		got := g.KeepFor("payment_intents_create", reply(200, code(keptBody), "Content-Encoding", coding))
		if string(got.Body) != `{"id":"pi_1"}` || len(got.Header) != 0 {
			t.Errorf("%s: %q %v", coding, got.Body, got.Header)
		}
		if got := g.KeepFor("payment_intents_create", reply(200, code(keptBody)[:20], "Content-Encoding", coding)); got.Body != nil {
			t.Errorf("%s, cut: %q", coding, got.Body)
		}
	}
	if got := g.KeepFor("payment_intents_create", reply(200, keptBody, "Content-Encoding", "compress")); got.Body != nil || len(got.Header) != 0 {
		t.Errorf("%+v", got)
	}
}

// TestKeepWhose: a route's own limits replace the gateway's; whoever made the answer, they hold.
func TestKeepWhose(t *testing.T) {
	g := Stripe()
	g.Keep = &Kept{Fields: []string{"/id"}}
	g.route("charges_create").Keep = &Kept{Fields: []string{"/object"}}
	if err := g.Validate(); err != nil {
		t.Fatal(err)
	}
	const body = `{"id":"x","object":"charge"}`
	for route, want := range map[string]string{"charges_create": `{"object":"charge"}`, "refunds_create": `{"id":"x"}`, "no_such_route": `{"id":"x"}`} {
		if got := g.KeepFor(route, reply(200, body)); string(got.Body) != want {
			t.Errorf("%s: %s", route, got.Body)
		}
	}
	in := post("/v1/charges", mediaForm, "")
	if got := match(t, g, in).Keep(reply(200, body)); string(got.Body) != `{"object":"charge"}` {
		t.Errorf("%s", got.Body)
	}
	if match(t, g, in).Keep(nil) != nil || g.KeepFor("x", nil) != nil {
		t.Error("nil is an answer")
	}
	sealed := &claims.Answer{Status: 200, Body: []byte("sealed"), Key: "k1"}
	if got := g.KeepFor("x", sealed); got != sealed {
		t.Error("a sealed answer was changed")
	}
	// Twice is once.
	once := g.KeepFor("x", reply(402, body, "X", "1"))
	if d := cmp.Diff(once, g.KeepFor("x", once)); d != "" {
		t.Error(d)
	}
	s := &script{t: t, pages: []string{list(false, intent("pi_1", "REF", "succeeded", ""))}, date: later}
	f, err := g.AskAt(t.Context(), facts("payment_intents_create"), begun, asked, s.ask)
	if err != nil || f.Answer == nil {
		t.Fatalf("%+v %v", f, err)
	}
	if got := g.KeepFor("payment_intents_create", f.Answer); string(got.Body) != `{"id":"pi_1"}` {
		t.Errorf("found: %s", got.Body)
	}
}

// TestKeepValidate: lists of names and of pointers, each said or left out.
func TestKeepValidate(t *testing.T) {
	for text, want := range map[string]string{
		"{headers: [Request-Id], fields: [/id, /error/code]}": "", "{headers: []}": "", "{fields: [/a~1b]}": "",
		"{}": "keep:", "{fields: []}": "keep.fields:", "{fields: ['']}": "keep.fields[0]", "{fields: [id]}": "keep.fields[0]", "{fields: [/id, /a~2]}": "keep.fields[1]", "{fields: [/id/]}": "keep.fields[0]",
		"{headers: ['X A']}": "keep.headers[0]", "{headers: ['']}": "keep.headers[0]", "{field: [/id]}": "keep.field: no such field; allowed here: fields, headers",
	} {
		for _, place := range []string{"\nkeep: ", "routes.charge."} {
			file := genericText(t) + "keep: " + text + "\n"
			if place != "\nkeep: " {
				file = strings.Replace(genericText(t), "    path: /charges\n", "    path: /charges\n    keep: "+text+"\n", 1)
			}
			g, err := Load([]byte(file), "x.yaml")
			if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
				t.Errorf("%s: %v", text, err)
			}
			if want == "" && text == "{headers: []}" && place == "\nkeep: " && (g.Keep.Headers == nil || g.Keep.Fields != nil) {
				t.Errorf("%s was read as %+v", text, g.Keep)
			}
		}
	}
}

// TestKeepForStripe: what the document's example keeps of a success and of a decline tells the SDK what the whole told it.
func TestKeepForStripe(t *testing.T) {
	doc, err := os.ReadFile("../docs/gateway-files.md")
	if err != nil {
		t.Fatal(err)
	}
	_, example, _ := strings.Cut(string(doc), "```yaml\nextends: stripe\n")
	example, _, ok := strings.Cut(example, "```")
	g, err := Load([]byte("extends: stripe\n"+example), "gateway-files.md")
	if !ok || err != nil || g.Keep == nil {
		t.Fatalf("the document's example: %v", err)
	}
	got := g.KeepFor("payment_intents_create", reply(200, `{"id":"pi_1","object":"payment_intent","amount":1000,"currency":"eur","status":"succeeded","client_secret":"pi_1_secret","metadata":{"fence_ref":"r","name":"Ann"}}`))
	var pi stripesdk.PaymentIntent
	if err := json.Unmarshal(got.Body, &pi); err != nil || pi.ID != "pi_1" || pi.Status != stripesdk.PaymentIntentStatusSucceeded || pi.Amount != 1000 || pi.ClientSecret != "" || len(pi.Metadata) != 1 {
		t.Errorf("%v %s", err, got.Body)
	}
	got = g.KeepFor("payment_intents_create", reply(402, `{"error":{"type":"card_error","code":"card_declined","decline_code":"fraudulent","message":"No.","payment_method":{"card":{"last4":"4242"}},"payment_intent":{"id":"pi_1","status":"requires_payment_method"}}}`))
	var e struct{ Error *stripesdk.Error }
	if err := json.Unmarshal(got.Body, &e); err != nil || e.Error.Type != stripesdk.ErrorTypeCard || e.Error.DeclineCode != "fraudulent" || e.Error.PaymentIntent.ID != "pi_1" || strings.Contains(string(got.Body), "4242") {
		t.Errorf("%v %s", err, got.Body)
	}
	// What is kept is read by the answer table as the whole was.
	if c := g.Classify("payment_intents_create", got); c.Outcome != claims.Declined {
		t.Errorf("%+v", c)
	}
}
