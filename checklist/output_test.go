package checklist_test

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fence-sidecar/fence-sidecar/checklist"
	"github.com/fence-sidecar/fence-sidecar/gateways"
	"github.com/fence-sidecar/fence-sidecar/gateways/sandbox"
)

const hostileID = `pi_<script>alert("x")</script>&'`

// hostile is a gateway that says everything that must not get out: the credential, card numbers, markup, control characters.
func hostile(t *testing.T) *httptest.Server {
	t.Helper()
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Request-Id", "req "+r.Header.Get("Authorization"))
		w.Header().Set("Idempotency-Key", "4242424242424242")
		object := map[string]any{
			"id": hostileID, "object": "payment_intent", "status": "succeeded", "amount": 50, "currency": "eur", "metadata": map[string]any{},
			"reason": "\x1b[2J" + credential + " </td><img src=x onerror=alert(1)>", "code": "card 4242 4242 4242 4242", "client_secret": "pi_secret_shown",
			"type": string(body), "state": hookSecret,
		}
		if r.Method == http.MethodGet {
			json.NewEncoder(w).Encode(map[string]any{"object": "list", "has_more": false, "data": []any{object}})
			return
		}
		json.NewEncoder(w).Encode(object)
	}))
	t.Cleanup(s.Close)
	return s
}

func hostileReport(t *testing.T) (*checklist.Report, string) {
	t.Helper()
	g := declared(t, "stripe")
	if err := g.Validate(); err != nil {
		t.Fatal(err)
	}
	state := filepath.Join(t.TempDir(), "state.json")
	var said strings.Builder
	rep, err := checklist.Run(t.Context(), checklist.Config{
		Gateway: g, BaseURL: hostile(t).URL, Credential: func() (string, error) { return credential, nil }, State: state,
		OtherCredential: func() (string, error) { return "sk_test_otherSecretValue", nil }, LookupWait: time.Millisecond, OutcomeWait: time.Millisecond,
		Poll: time.Millisecond, Progress: func(step, text string) { said.WriteString(step + text + "\n") },
	})
	if err != nil {
		t.Fatal(err)
	}
	kept, err := os.ReadFile(state)
	if err != nil {
		t.Fatal(err)
	}
	if fi, _ := os.Stat(state); fi.Mode().Perm() != 0o600 {
		t.Errorf("the state file has mode %v", fi.Mode().Perm())
	}
	return rep, said.String() + string(kept)
}

func written(t *testing.T, write func(io.Writer) error) string {
	t.Helper()
	var b bytes.Buffer
	if err := write(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// No output shows a credential or a card number, whatever the gateway echoes.
func TestSecretsStayInside(t *testing.T) {
	rep, more := hostileReport(t)
	outs := map[string]string{
		"progress and state": more, "table": written(t, rep.WriteTable), "JSON": written(t, rep.WriteJSON),
		"JUnit": written(t, rep.WriteJUnit), "HTML": written(t, rep.WriteHTML),
	}
	for name, text := range outs {
		if !strings.Contains(text, "alert") {
			t.Errorf("%s does not show the gateway's id: nothing was looked at", name)
		}
		for _, secret := range []string{credential, "otherSecretValue", "4242424242424242", "4242 4242 4242 4242", "pi_secret_shown"} {
			if strings.Contains(text, secret) {
				t.Errorf("%s shows %s", name, secret)
			}
		}
		if strings.Contains(text, "\x1b") {
			t.Errorf("%s passes control characters on", name)
		}
	}
	if got := verdicts(rep)["G5"]; got != checklist.Fail {
		t.Errorf("a gateway that always says the same is %s in G5", got)
	}
}

var external = regexp.MustCompile(`(?i)(<script|<link|<img|<iframe|<object|@import|url\(|<[^>]*\ssrc=|<[^>]*\son[a-z]+=)`)

// The page loads nothing, runs nothing, and shows what a gateway says as text.
func TestHTML(t *testing.T) {
	rep, _ := hostileReport(t)
	rep.Rows[0].Documented.Source = []string{"https://docs.example/a", "javascript:alert(1)"}
	page := written(t, rep.WriteHTML)
	if m := external.FindAllString(page, -1); m != nil {
		t.Errorf("the page has %q", m)
	}
	for _, want := range []string{"&lt;script&gt;", "<!doctype html>", `<html lang="en">`, "prefers-color-scheme: dark", "@media print", "default-src 'none'", `href="https://docs.example/a"`} {
		if !strings.Contains(page, want) {
			t.Errorf("the page lacks %s", want)
		}
	}
	if strings.Contains(page, `href="javascript`) {
		t.Error("a source became a link that runs")
	}
	if !external.MatchString(`<td onclick="x">`) || !external.MatchString(`<SCRIPT>`) {
		t.Error("the pattern finds nothing")
	}
}

// junit is what CI servers read of it.
type junit struct {
	XMLName xml.Name `xml:"testsuites"`
	Suite   struct {
		Tests    int `xml:"tests,attr"`
		Failures int `xml:"failures,attr"`
		Skipped  int `xml:"skipped,attr"`
		Errors   int `xml:"errors,attr"`
		Cases    []struct {
			Name    string    `xml:"name,attr"`
			Failure *struct{} `xml:"failure"`
			Skipped *struct{} `xml:"skipped"`
			Error   *struct{} `xml:"error"`
		} `xml:"testcase"`
	} `xml:"testsuite"`
}

func TestJUnit(t *testing.T) {
	rep, _ := hostileReport(t)
	rep.Rows[0].Verdict, rep.Rows[1].Verdict, rep.Rows[2].Verdict = checklist.Fail, checklist.Partial, checklist.NotChecked
	rep.Rows[3].Reason = "]]> \x00 <&>"
	rep.Complete, rep.Problem = false, "ended"
	text := written(t, rep.WriteJUnit)
	dec := xml.NewDecoder(strings.NewReader(text))
	for {
		if _, err := dec.Token(); err == io.EOF {
			break
		} else if err != nil {
			t.Fatalf("not well-formed: %v", err)
		}
	}
	var j junit
	if err := xml.Unmarshal([]byte(text), &j); err != nil {
		t.Fatal(err)
	}
	failures, skipped, errors := 0, 0, 0
	for _, c := range j.Suite.Cases {
		failures += b2i(c.Failure != nil)
		skipped += b2i(c.Skipped != nil)
		errors += b2i(c.Error != nil)
	}
	want := 0
	for _, r := range rep.Rows {
		want += b2i(r.Verdict == checklist.Fail)
	}
	s := j.Suite
	if s.Tests != len(rep.Rows)+1 || len(s.Cases) != s.Tests || s.Failures != failures || failures != want || s.Skipped != skipped || s.Errors != 1 || errors != 1 {
		t.Errorf("counts do not fit: %+v", s)
	}
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

// The names of the JSON report's fields are what other programs rely on.
func TestJSONFields(t *testing.T) {
	rep := sound(t, "stripe")
	var doc map[string]any
	if err := json.Unmarshal([]byte(written(t, rep.WriteJSON)), &doc); err != nil {
		t.Fatal(err)
	}
	keys := func(v any) (out []string) {
		for k := range v.(map[string]any) {
			out = append(out, k)
		}
		slices.Sort(out)
		return out
	}
	row := doc["rows"].([]any)[0]
	step := doc["evidence"].(map[string]any)["steps"].([]any)[0].(map[string]any)
	for name, c := range map[string]struct{ got, want []string }{
		"report":     {keys(doc), []string{"base_url", "complete", "created", "declared", "ended", "evidence", "gateway", "rows", "started", "suggestion", "title"}},
		"row":        {keys(row), []string{"agrees", "asks", "consequence", "documented", "name", "reason", "tried", "verdict"}},
		"documented": {keys(row.(map[string]any)["documented"]), []string{"level", "mark", "says", "source"}},
		"tried":      {keys(row.(map[string]any)["tried"].([]any)[0]), []string{"got", "sent"}},
		"created":    {keys(doc["created"].([]any)[0]), []string{"amount", "at", "currency", "key", "object", "reference", "request", "step"}},
		"step":       {keys(step), []string{"done", "exchanges", "lookups", "name"}},
		"exchange": {keys(step["exchanges"].([]any)[1]), []string{
			"after_seconds", "amount", "at", "body_sha256", "currency", "excerpt", "header", "key", "meaning_sha256", "method", "object", "outcome", "payment",
			"reference", "role", "status", "target", "took_seconds",
		}},
		"lookup": {keys(step["lookups"].([]any)[0]), []string{"after_seconds", "kind", "object", "payment", "reason", "role", "status"}},
	} {
		if d := cmp.Diff(c.want, c.got); d != "" {
			t.Errorf("%s (-want +got):\n%s", name, d)
		}
	}
}

// The table has every row with its verdict, and what was made.
func TestTable(t *testing.T) {
	rep := sound(t, "gocardless")
	text := written(t, rep.WriteTable)
	for _, r := range rep.Rows {
		if !strings.Contains(text, fmt.Sprintf("\n%s %s: ", r.Name, r.Verdict)) || !strings.Contains(text, r.Consequence) {
			t.Errorf("the table lacks %s", r.Name)
		}
	}
	for _, c := range rep.Created {
		if !strings.Contains(text, c.Object) {
			t.Errorf("the table lacks %s", c.Object)
		}
	}
	if len(rep.Created) < 4 {
		t.Errorf("only %d things were made", len(rep.Created))
	}
}

// What is suggested is a gateway file that loads, and is never bolder than what is declared.
func TestSuggestion(t *testing.T) {
	_, settles := gateways.Stripe(), regexp.MustCompile(`(?m)^settleAfter: 10m0s #`)
	for _, f := range []sandbox.Fault{{}, {Name: "ignore-key"}, {Name: "not-repeated"}, {Name: "lookup-blind"}} {
		w := start(t, "stripe", sandbox.Config{}, nil)
		if f.Name != "" {
			w.inject(f)
		}
		rep := w.run()
		g, err := gateways.Load([]byte(rep.Suggestion), "suggestion")
		if err != nil {
			t.Fatalf("%v:\n%s", err, rep.Suggestion)
		}
		if g.KeyRetention > 24*time.Hour || g.SettleAfter < 10*time.Minute {
			t.Errorf("keyRetention %s, settleAfter %s", g.KeyRetention, g.SettleAfter)
		}
		want := map[string]bool{"": true, "lookup-blind": true}[f.Name]
		if got := strings.Contains(rep.Suggestion, "\nfamily: a\nreplayed: {name: \"Idempotent-Replayed\""); got != want {
			t.Errorf("%s: family suggested: %v\n%s", f.Name, got, rep.Suggestion)
		}
		if f.Name == "" && !settles.MatchString(rep.Suggestion) {
			t.Errorf("no settleAfter:\n%s", rep.Suggestion)
		}
	}
}
