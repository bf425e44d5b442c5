package proxy

import (
	"encoding/json"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fence-sidecar/fence-sidecar/claims"
	"github.com/fence-sidecar/fence-sidecar/gateways"
)

// The table of the contract: a refusal's status must not move by accident.
var wantStatus = map[claims.Reason]int{
	"bad-request": 400, "no-call-key": 400,
	"untagged": 403, "tenant-not-served": 403,
	"unknown-gateway": 421,
	"key-conflict":    422,
	"fenced":          409, "superseded-revision": 409, "revision-blocked": 409, "already-undone": 409, "nothing-to-undo": 409,
	"attempts-used": 409, "answer-gone": 409, "in-flight": 409, "needs-review": 409,
	"scope-finished": 410, "call-cancelled": 410, "retention-passed": 410,
	"body-too-large":    413,
	"not-sent":          502,
	"store-unavailable": 503, "instance-lease-lost": 503, "draining": 503, "breaker-open": 503, "quarantine": 503, "unreadable": 503,
	"in-doubt": 504,

	"unknown-watch": 404, "held": 409, "calls-in-flight": 409, "stale-ping": 409,

	"unauthorized": 401, "no-operators": 403, "no-such-call": 404, "record-changed": 409, "not-resolvable": 409,
	"notice-early": 409, "notice-conflict": 409, "notice-refused": 409,
}

func allReasons() []claims.Reason {
	return slices.Concat(claims.Reasons, claims.LeaseReasons, claims.CallsReasons)
}

func TestProblem_everyRefusalHasItsStatus(t *testing.T) {
	got := map[claims.Reason]int{}
	for _, r := range allReasons() {
		got[r] = StatusOf(r, nil)
	}
	if d := cmp.Diff(wantStatus, got); d != "" {
		t.Errorf("statuses (-want +got):\n%s", d)
	}
	for r := range problems {
		if _, ok := wantStatus[r]; !ok {
			t.Errorf("problem %s is no refusal of claims", r)
		}
	}
}

func TestProblem_unlistedRefusalFailsSafe(t *testing.T) {
	if got := StatusOf("made-up", nil); got != 503 {
		t.Errorf("status %d, want 503", got)
	}
	if got := reasonLabel("made-up"); got != "other" {
		t.Errorf("label %q: the label's values must stay a closed list", got)
	}
}

// Each refusal carries both shapes, whole.
func TestProblem_bothShapes(t *testing.T) {
	stripe := gateways.Builtin()[0]
	retry := map[claims.Reason]bool{claims.InFlight: true, claims.StoreUnavailable: true, claims.LeaseLost: true, claims.Draining: true,
		claims.ScopeHeld: true, claims.CallsInFlight: true, claims.NoSuchCall: true, claims.NoticeEarly: true}
	for _, reason := range allReasons() {
		w := httptest.NewRecorder()
		WriteProblem(w, &claims.Refusal{Reason: reason, Detail: "why \"so\"", Outcome: claims.Unknown}, stripe)
		var got struct {
			Type, Title, Detail, Outcome string
			Status                       int
			Error                        struct{ Type, Code, Message string }
		}
		if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
			t.Fatalf("%s: %v", reason, err)
		}
		if got.Type != ProblemBase+string(reason) || got.Status != w.Code || got.Title == "" || got.Detail != "why \"so\"" || got.Outcome != "unknown" {
			t.Errorf("%s: problem %+v", reason, got)
		}
		if got.Error.Type != "api_error" || got.Error.Code != "fence_"+string(reason) || got.Error.Message == "" {
			t.Errorf("%s: no Stripe error beside it: %+v", reason, got.Error)
		}
		if no := w.Header().Get("Stripe-Should-Retry") == "false"; no == retry[reason] {
			t.Errorf("%s: Stripe-Should-Retry: %q", reason, w.Header().Get("Stripe-Should-Retry"))
		}
		if after := w.Header().Get("Retry-After"); after == "" && (w.Code == 503 || w.Code == 409 && retry[reason]) {
			t.Errorf("%s: no Retry-After", reason)
		}
		if ct := w.Header().Get("Content-Type"); ct != "application/problem+json" {
			t.Errorf("%s: Content-Type %q", reason, ct)
		}
	}
}

// A refusal about a lease speaks of no call.
func TestProblem_ofALease(t *testing.T) {
	w := httptest.NewRecorder()
	WriteLeaseProblem(w, &claims.Refusal{Reason: claims.ScopeHeld, Detail: "by pod-1", RetryAfter: 1200 * time.Millisecond}, map[string]any{"retry_after_ms": 1200})
	var got map[string]any
	if err := json.Unmarshal(w.Body.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"type": ProblemBase + "held", "title": "The scope is held", "status": 409.0, "detail": "by pod-1", "retry_after_ms": 1200.0,
	}
	if d := cmp.Diff(want, got); d != "" || w.Code != 409 || w.Header().Get("Retry-After") != "2" {
		t.Errorf("status %d, Retry-After %q, (-want +got):\n%s", w.Code, w.Header().Get("Retry-After"), d)
	}
}

func TestProblem_gatewaysOwnStatusForDoubt(t *testing.T) {
	g := &gateways.Gateway{UnknownStatus: 524}
	w := httptest.NewRecorder()
	WriteProblem(w, &claims.Refusal{Reason: claims.InDoubt, RetryAfter: 1500 * time.Millisecond}, g)
	if w.Code != 524 || w.Header().Get("Retry-After") != "2" {
		t.Errorf("status %d, Retry-After %q; want 524 and 2 (rounded up)", w.Code, w.Header().Get("Retry-After"))
	}
	if got := StatusOf(claims.NeedsReview, g); got != 409 {
		t.Errorf("only a doubt has the gateway's own status, got %d", got)
	}
}

func TestTags(t *testing.T) {
	fields := func(lines ...string) (fs []claims.Field) {
		for _, l := range lines {
			name, value, _ := strings.Cut(l, ": ")
			fs = append(fs, claims.Field{Name: name, Value: value})
		}
		return fs
	}
	good := []struct {
		lines []string
		want  Tags
	}{
		{nil, Tags{Revision: 1, Wait: -1}},
		{[]string{"Prefer: respond-async, wait=3"}, Tags{Revision: 1, Wait: 3 * time.Second}},
		{[]string{"prefer: WAIT=0"}, Tags{Revision: 1}},
		{[]string{"Prefer: wait=18446744073"}, Tags{Revision: 1, Wait: maxWait}},
		{[]string{"Prefer: wait=soon"}, Tags{Revision: 1, Wait: -1}},
		{[]string{"fence-KEY: a b", "FENCE-token: t:x#7"}, Tags{Key: "a b", Token: claims.Guard{Scope: "t:x", Token: 7}, Revision: 1, Wait: -1, Any: true}},
		{[]string{"Fence-External-Token: t:x#7"}, Tags{Token: claims.Guard{Scope: claims.ExternalPrefix + "t:x", Token: 7}, Revision: 1, Wait: -1, Any: true}},
		{[]string{"Fence-Key: k", "Fence-Tenant: t", "Fence-Revision: 12", "Fence-Undo: none", "Fence-Timeout: 30"},
			Tags{Key: "k", Tenant: "t", Revision: 12, Undo: true, Timeout: 30 * time.Second, Wait: -1, Any: true}},
		{[]string{"Fence-Undo: charge:order:42"}, Tags{Revision: 1, Undo: true, Undoes: "charge:order:42", Wait: -1, Any: true}},
		{[]string{"Fence-Undo: a b ; part=line 1"}, Tags{Revision: 1, Undo: true, Undoes: "a b", Part: "line 1", Wait: -1, Any: true}},
		{[]string{`Fence-Undo: "none"`}, Tags{Revision: 1, Undo: true, Undoes: "none", Wait: -1, Any: true}},
		{[]string{`Fence-Undo: "a;b\"\\c";part="x;y"`}, Tags{Revision: 1, Undo: true, Undoes: `a;b"\c`, Part: "x;y", Wait: -1, Any: true}},
	}
	for _, tt := range good {
		got, err := ParseTags(fields(tt.lines...))
		if err != nil {
			t.Errorf("%q: %v", tt.lines, err)
		}
		if d := cmp.Diff(tt.want, got); d != "" {
			t.Errorf("%q (-want +got):\n%s", tt.lines, d)
		}
	}
	for _, lines := range [][]string{
		{"Fence-Key: "}, {"Fence-Key: a", "fence-key: a"}, {"Fence-Token: t:x"}, {"Fence-Token: t:x#0"}, {"Fence-Token: t:x#07"},
		{"Fence-Token: @instance:u#1"}, {"Fence-Token: t#1"}, {"Fence-Revision: 0"}, {"Fence-Revision: +1"}, {"Fence-Revision: x"},
		{"Fence-Timeout: 0"}, {"Fence-Timeout: 1.5"}, {"Fence-Timeout: 601"}, {"Fence-External-Token: @external:t:x#1"},
		{"Fence-External-Token: t:x#1", "Fence-Token: t:x#1"}, {"Fence-Token: @external:t:x#1"}, {"Fence-Tenant: "},
		{"Fence-Undo: "}, {"Fence-Undo: none; part=1"}, {"Fence-Undo: ;part=1"}, {"Fence-Revision: 101"}, {"Fence-Timeout: 18446744073"}, {"Fence-Undo: a;part="}, {"Fence-Undo: a;part"}, {"Fence-Undo: a; Part=1"}, {"Fence-Undo: a;b"},
		{"Fence-Undo: a;part=1;part=2"}, {`Fence-Undo: "a`}, {`Fence-Undo: "a"b`}, {`Fence-Undo: ""`}, {`Fence-Undo: "a\b"`}, {`Fence-Undo: a"b`}, {"Fence-Undo: a;part=x\x01"}, {"Fence-Kee: a"},
	} {
		if got, err := ParseTags(fields(lines...)); err == nil {
			t.Errorf("%q was taken: %+v", lines, got)
		}
	}
}

func FuzzParseTags(f *testing.F) {
	f.Add("Fence-Key", "k", "Fence-Token", "t:x#7")
	f.Add("Prefer", "wait=1", "Fence-Revision", "1")
	f.Fuzz(func(t *testing.T, n1, v1, n2, v2 string) {
		tags, err := ParseTags([]claims.Field{{Name: n1, Value: v1}, {Name: n2, Value: v2}})
		if err == nil && (tags.Revision < 1 || tags.Timeout < 0 || tags.Timeout > maxWait || tags.Wait > maxWait) {
			t.Errorf("out of bounds: %+v", tags)
		}
		if err == nil && !tags.Token.IsZero() && tags.Token.Instance() {
			t.Errorf("an app got an instance's guard: %v", tags.Token)
		}
	})
}

func TestOriginForm(t *testing.T) {
	for _, tt := range []struct{ in, target, host string }{
		{"/v1/a%2Fb?x=%zz", "/v1/a%2Fb?x=%zz", ""},
		{"//v1//c", "//v1//c", ""},
		{"http://api.stripe.com/v1/charges", "/v1/charges", "api.stripe.com"},
		{"HTTPS://h:1?q", "/?q", "h:1"},
		{"http://h", "/", "h"},
	} {
		target, host, err := originForm(tt.in)
		if err != nil || target != tt.target || host != tt.host {
			t.Errorf("%q: %q %q %v", tt.in, target, host, err)
		}
	}
	for _, in := range []string{"*", "", "api.stripe.com:443", "ftp://x/"} {
		if target, _, err := originForm(in); err == nil {
			t.Errorf("%q was taken as %q", in, target)
		}
	}
}
