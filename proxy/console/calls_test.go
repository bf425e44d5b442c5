package console

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fence-sidecar/fence-sidecar/claims"
	"github.com/fence-sidecar/fence-sidecar/claims/claimstest"
)

const adaToken, bobToken = "ada-token-0123456789", "bob-token-0123456789"

// operated makes a console with two operators.
func operated(c *Config) {
	for name, token := range map[string]string{"ada": adaToken, "bob": bobToken} {
		c.Operators = append(c.Operators, Operator{Name: name, Token: func() (string, error) { return token, nil }})
	}
}

// call is a record of one attempt, in a state, as a send that was cut leaves it.
func (k *kit) call(key string, state claims.State, edit ...func(*claims.Record)) claims.Record {
	k.Helper()
	id := claims.NewClaimID()
	r := claims.Record{
		Key: claims.Key{Tenant: k.Tenants[0], Call: key}, State: state, Revision: 1, Attempt: 1, Claim: id,
		Sender: claims.Guard{Scope: "@instance:gone", Token: 1}, Facts: claims.Facts{
			Gateway: "g", Account: "shop", Route: "pay", GatewayKey: "gk-" + key, Reference: "ref-" + key, Retention: 24 * time.Hour, SettleAfter: 10 * time.Minute,
		},
		Attempts: []claims.Attempt{{Number: 1, Claim: id, Wrote: true, Cause: "cut"}},
	}
	switch state {
	case claims.StateReview:
		r.Review = &claims.Review{Reason: "nobody knows"}
	case claims.StateSucceeded:
		r.Attempts[0].Outcome, r.Attempts[0].Proof = claims.Succeeded, "answer"
		r.Answer = &claims.Answer{Status: 200, Body: []byte("secret answer")}
	case claims.StateDeclined:
		r.Attempts[0].Outcome, r.Attempts[0].Proof = claims.Declined, "answer"
		r.Answer = &claims.Answer{Status: 402, Body: []byte("no")}
	}
	for _, f := range edit {
		f(&r)
	}
	return k.put(claims.Write{Next: r, Claim: true, Timeout: 10 * time.Second})
}

func (k *kit) put(w claims.Write) claims.Record {
	k.Helper()
	out, err := k.store.Backend.Swap(k.Context(), claims.Condition{}, w)
	if err != nil {
		k.Fatal(err)
	}
	return out.Records[0]
}

func (k *kit) record(key string) claims.Record {
	k.Helper()
	v, err := k.store.Backend.Get(k.Context(), claims.Key{Tenant: k.Tenants[0], Call: key}, claims.Guard{})
	if err != nil {
		k.Fatal(err)
	}
	return v.Record
}

// events are those that the store has.
func (k *kit) eventsOf() (out []string) {
	k.Helper()
	es, err := k.store.Backend.Events(k.Context(), "", 100)
	if err != nil {
		k.Fatal(err)
	}
	for _, e := range es {
		out = append(out, fmt.Sprintf("%s %s>%s %s", e.Key.Call, e.From, e.State, e.Payment))
	}
	return out
}

// ask reads from the calls API.
func (k *kit) ask(op string, params ...string) reply {
	k.Helper()
	return k.do(request(http.MethodGet, "/v1/calls"+op+query(params...), "", ""))
}

// query makes one of names and values.
func query(params ...string) string {
	q := url.Values{}
	for i := 0; i+1 < len(params); i += 2 {
		q.Add(params[i], params[i+1])
	}
	if len(q) == 0 {
		return ""
	}
	return "?" + q.Encode()
}

// tell changes something through the calls API.
func (k *kit) tell(op, token, body string, params ...string) reply {
	k.Helper()
	r := request(http.MethodPost, "/v1/calls/"+op+query(params...), "", body)
	if token != "" {
		r.Header.Set("Authorization", "Bearer "+token)
	}
	return k.do(r)
}

func (r reply) call() map[string]any { c, _ := r.body["call"].(map[string]any); return c }

func TestCalls_list(t *testing.T) {
	k := newKit(t, func(c *Config) { c.Tenants = []string{"eu", "us"} })
	for i, tenant := range []string{"eu", "us", "eu", "elsewhere"} {
		k.call(fmt.Sprint("call-", i), []claims.State{claims.StateUnknown, claims.StateReview}[i%2], func(r *claims.Record) { r.Key.Tenant = tenant })
		k.clock.Advance(time.Second)
	}
	for _, tt := range []struct {
		params []string
		want   string
		more   bool
	}{
		{nil, "call-2 call-1 call-0", false},
		{[]string{"tenant", "eu"}, "call-2 call-0", false},
		{[]string{"state", "review"}, "call-1", false},
		{[]string{"state", "review,unknown", "limit", "2"}, "call-2 call-1", true},
		{[]string{"state", "declined"}, "", false},
		{[]string{"limit", "3"}, "call-2 call-1 call-0", false},
	} {
		r := k.ask("", tt.params...)
		k.wants(r, 200, "")
		var got []string
		for _, c := range r.body["calls"].([]any) {
			got = append(got, c.(map[string]any)["call"].(string))
		}
		if strings.Join(got, " ") != tt.want || r.body["more"] != tt.more {
			t.Errorf("%v: %q, more %v; want %q, %v", tt.params, got, r.body["more"], tt.want, tt.more)
		}
	}
	k.store.Spoil(claims.Key{Tenant: "eu", Call: "call-0"})
	if r := k.ask("", "tenant", "eu"); r.status != 200 || r.body["unreadable"] != true || len(r.body["calls"].([]any)) != 1 {
		t.Errorf("%d %s", r.status, r.raw)
	}
	k.wants(k.ask("/show", "tenant", "eu", "key", "call-0"), 503, "unreadable")
	for _, params := range [][]string{
		{"limit", "0"}, {"limit", "501"}, {"limit", "01"}, {"limit", "x"}, {"state", ""}, {"state", "pending,"}, {"state", "x"}, {"more", "1"}, {"tenant", "eu", "tenant", "eu"},
	} {
		k.wants(k.ask("", params...), 400, "bad-request")
	}
	k.wants(k.ask("", "tenant", "elsewhere"), 403, "tenant-not-served")
}

// Every byte that a key may have comes through, on every operation.
func TestCalls_keys(t *testing.T) {
	k := newKit(t, operated)
	for _, key := range []string{
		"charge:order/42", "a/../b", "..", "/", "a b", "a+b", "a%2Fb", "%", "?x=y&key=z#f", "a;b", "é", "e\u0301", "\u202eevil", "A", "a", "a ", "\ufffd", "\"'<>\\",
		strings.Repeat("é", 127),
	} {
		k.call(key, claims.StateReview)
		for _, op := range []string{"/show", "/explain"} {
			r := k.ask(op, "key", key)
			if r.status != 200 || r.call()["call"] != key {
				t.Errorf("%s of %q: %d %v", op, key, r.status, r.call()["call"])
			}
		}
		r := k.tell("resolve", adaToken, `{"version":1,"word":"look-again","why":"w"}`, "key", key)
		if r.status != 200 || r.call()["call"] != key || r.call()["state"] != "unknown" {
			t.Errorf("resolve of %q: %d %s", key, r.status, r.raw)
		}
		if r := k.tell("evidence", adaToken, `{"id":"1","outcome":"succeeded"}`, "key", key); r.status != 200 || r.call()["call"] != key {
			t.Errorf("evidence of %q: %d %s", key, r.status, r.raw)
		}
	}
	for _, params := range [][]string{{}, {"key", ""}, {"key", "a\nb"}, {"key", "\xff"}, {"key", strings.Repeat("x", 256)}, {"key", "a", "tenant", "default", "more", ""}} {
		k.wants(k.ask("/show", params...), 400, "bad-request")
		k.wants(k.tell("resolve", adaToken, `{"version":1,"word":"executed","why":"w"}`, params...), 400, "bad-request")
	}
	k.wants(k.ask("/show", "key", "nobody"), 404, "no-such-call")
	k.wants(k.ask("/show", "key", "a", "tenant", "other"), 403, "tenant-not-served")
	withToken := request("GET", "/v1/calls/show?key=a", "default:a#1", "")
	k.wants(k.do(withToken), 400, "bad-request")
}

// What is shown of a record: all that tells its story, and nothing of what was sent or answered.
func TestCalls_show(t *testing.T) {
	k := newKit(t)
	rec := claimstest.FullRecord(claims.Key{Tenant: "default", Call: "full"})
	rec = k.put(claims.Write{Next: rec})
	r := k.ask("/show", "key", "full")
	k.wants(r, 200, "")
	for _, secret := range []string{"ch_1", "Request-Id", "req_1", "c0ffee", "k2", "k1", "X-Key", "f00d"} {
		for _, shown := range [][]byte{r.raw, k.ask("/explain", "key", "full").raw, k.ask("").raw} {
			if strings.Contains(string(shown), secret) {
				t.Errorf("%q is shown: %s", secret, shown)
			}
		}
	}
	c := r.call()
	k.same("fields", map[string]any{
		"state": c["state"], "alarm": c["alarm"], "review": c["review"], "payment": c["payment"], "poll": c["poll"], "answerStatus": c["answerStatus"],
		"undos": c["undos"], "undoes": c["undoes"], "part": c["part"], "scope": c["scope"], "version": c["version"],
	}, map[string]any{
		"state": "review", "alarm": true, "review": "two successes", "payment": "done", "poll": true, "answerStatus": 200.0,
		"undos": []any{map[string]any{"call": "undo:1", "part": "line 2"}}, "undoes": "charge:1", "part": "line 3", "scope": rec.Scope, "version": 1.0,
	})
	e := c["evidence"].([]any)[0].(map[string]any)
	if e["by"] != "ada" || e["note"] != "seen" || e["payment"] != "pending" || e["outcome"] != "succeeded" || e["source"] != "notice" || e["at"] == "" {
		t.Errorf("evidence %v", e)
	}
	p := c["past"].([]any)[0].(map[string]any)
	if p["state"] != "declined" || p["revision"] != 1.0 || p["reference"] != "ref" || len(p["attempts"].([]any)) != 1 {
		t.Errorf("past %v", p)
	}
	var again Call // the same that the command prints
	if err := json.Unmarshal(r.raw, &struct{ Call *Call }{&again}); err != nil {
		t.Fatal(err)
	}
	k.same("call", again, Show(&rec))
}

func TestCalls_explain(t *testing.T) {
	k := newKit(t, operated)
	k.call("a\u202eb", claims.StateUnknown)
	text := func(accept string) reply {
		r := request("GET", "/v1/calls/explain?key="+url.QueryEscape("a\u202eb"), "", "")
		r.Header.Set("Accept", accept)
		return k.do(r)
	}
	plain, asJSON := text("text/plain, */*"), text("application/json, text/plain")
	if !strings.HasPrefix(plain.header.Get("Content-Type"), "text/plain") || strings.Contains(string(plain.raw), "\u202e") || !strings.Contains(string(plain.raw), "Next: gateway g is not in the configuration") {
		t.Errorf("%s: %s", plain.header.Get("Content-Type"), plain.raw)
	}
	k.same("text", asJSON.text("text"), string(plain.raw))
	k.tell("evidence", adaToken, `{"id":"evt","outcome":"succeeded","payment":"pending","why":"dashboard"}`, "key", "a\u202eb")
	words := string(text("text/plain").raw)
	for _, want := range []string{"The money is pending.", "evidence (notice ada) of attempt 1: succeeded, the money is pending", "dashboard", "is succeeded"} {
		if !strings.Contains(words, want) {
			t.Errorf("%q is not in %s", want, words)
		}
	}
}

// The data listeners' handler serves that one operation, to this machine only.
func TestCallByKey(t *testing.T) {
	k := newKit(t)
	k.call("a", claims.StateUnknown)
	h := k.CallByKey()
	do := func(edit func(*http.Request)) reply {
		r := request("GET", CallByKeyPath+"?key=a", "", "")
		edit(r)
		return serve(h, r)
	}
	if r := do(func(*http.Request) {}); r.status != 200 || r.call()["state"] != "unknown" || r.header.Get("Cache-Control") != "no-store" {
		t.Errorf("%d %s", r.status, r.raw)
	}
	for name, tt := range map[string]struct {
		edit   func(*http.Request)
		status int
	}{
		"another host":   {func(r *http.Request) { r.Host = "api.example" }, 421},
		"another path":   {func(r *http.Request) { r.URL.Path += "/x" }, 404},
		"another method": {func(r *http.Request) { r.Method = "POST" }, 405},
		"another call":   {func(r *http.Request) { r.URL.RawQuery = "key=b" }, 404},
		"another tenant": {func(r *http.Request) { r.URL.RawQuery = "key=a&tenant=b" }, 403},
	} {
		if r := do(tt.edit); r.status != tt.status || !slices.Contains([]string{"about:blank", "no-such-call", "tenant-not-served"}, r.slug()) {
			t.Errorf("%s: %d %s", name, r.status, r.raw)
		}
	}
}
