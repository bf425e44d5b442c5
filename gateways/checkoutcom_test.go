package gateways

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fence-sidecar/fence-sidecar/claims"
	"github.com/google/go-cmp/cmp"
)

func checkoutCom(t testing.TB) *Gateway {
	t.Helper()
	g := CheckoutCom()
	if err := g.Validate(); err != nil {
		t.Fatal(err)
	}
	return g
}

const ckoCharge = `{"source":{"type":"token","token":"tok_1"},"amount":1000,"currency":"GBP","capture":true}`

func ckoPost(target, body string) Inbound {
	return post(target, "application/json", body)
}

// TestCheckoutDeclaration: it is valid alone and in a registry, fresh each time, and says what the gateway documents.
func TestCheckoutDeclaration(t *testing.T) {
	g := checkoutCom(t)
	if _, err := NewRegistry(g); err != nil {
		t.Fatal(err)
	}
	levels := map[string]string{}
	for name, v := range g.Guarantees {
		levels[name] = v.Level
	}
	want := map[string]string{"G1": Supported, "G2": Supported, "G3": Supported, "G4": Partial, "G5": Undocumented, "G6": Supported}
	if d := cmp.Diff(want, levels); d != "" {
		t.Error(d)
	}
	CheckoutCom().Routes[0].Name = "changed"
	if CheckoutCom().Routes[0].Name == "changed" {
		t.Error("two calls share a route")
	}
	for _, live := range []string{"sk_m3h7uoe5jkq2c7v4b6n5x2zabc", "sk_be458ac1-f20e-4194-bf58-b28e5ffd88e7"} {
		if !g.Checks.LiveCredential(live) || g.Checks.LiveCredential(strings.Replace(live, "sk_", "sk_sbox_", 1)) ||
			g.Checks.LiveCredential(strings.Replace(live, "sk_", "sk_test_", 1)) {
			t.Errorf("%s: live and test keys are not told apart", live)
		}
	}
	if !g.Checks.LiveHost("abc123.api.checkout.com") || g.Checks.LiveHost("api.sandbox.checkout.com") {
		t.Error("live hosts")
	}
}

// TestCheckoutNeverResends: no route has a probe or proves absence, nothing stands as a first answer, and the sender dials anew.
func TestCheckoutNeverResends(t *testing.T) {
	g := checkoutCom(t)
	for _, r := range g.Routes {
		rules, p := g.LookupRules(r.Name), g.policy(r)
		if r.Probe || p.Probe || rules.Proves || rules.FirstStored || !p.FreshDial {
			t.Errorf("%s: %+v %+v", r.Name, rules, p)
		}
	}
	broken := CheckoutCom()
	broken.Family = FamilyA // a decline would speak for an attempt whose 5xx left no key
	if err := broken.Validate(); err != nil {
		t.Fatal(err)
	}
	if !broken.LookupRules("payments_create").FirstStored {
		t.Error("family a would not matter")
	}
}

// TestCheckoutDoubt: a doubt of which nothing or a declined payment is found is never resolved by that, and is a person's once
// the key may be gone. In family a the declined payment would have resolved it.
func TestCheckoutDoubt(t *testing.T) {
	g := checkoutCom(t)
	begun := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	start := claims.Now{Store: begun, Wall: begun}
	r := claims.Record{
		Version: 3, Revision: 1, Attempt: 1, State: claims.StateUnknown, Deadline: begun.Add(2 * time.Minute), FirstStarted: start,
		Facts:    prepare(t, g, ckoPost("/payments", ckoCharge)).Facts,
		Attempts: []claims.Attempt{{Number: 1, Wrote: true, Started: start}},
	}
	after := func(d time.Duration, kind claims.FindingKind, rules claims.LookupRules) claims.State {
		at := begun.Add(d)
		next, _ := claims.Apply(r, claims.Verdict{
			Finding: claims.Finding{Kind: kind}, Rules: rules, Looked: true, Version: 3, Asked: claims.Now{Store: at, Wall: at},
		})
		return next.State
	}
	rules := g.LookupRules("payments_create")
	for _, kind := range []claims.FindingKind{claims.Missed, claims.FoundFailed} {
		if got := after(20*time.Hour, kind, rules); got != claims.StateUnknown {
			t.Errorf("%s within the retention: %s", kind, got)
		}
		if got := after(25*time.Hour, kind, rules); got != claims.StateReview {
			t.Errorf("%s after it: %s", kind, got)
		}
	}
	if got := after(time.Hour, claims.FoundDone, rules); got != claims.StateSucceeded {
		t.Errorf("found: %s", got)
	}
	rules.FirstStored = true
	if got := after(time.Hour, claims.FoundFailed, rules); got != claims.StateDeclined {
		t.Errorf("family a: %s", got)
	}
}

func TestCheckoutMatch(t *testing.T) {
	g := checkoutCom(t)
	undos := []string{"cancellations_create", "refunds_create", "reversals_create", "voids_create"}
	for target, route := range map[string]string{
		"/payments":                       "payments_create",
		"/payments/pay_1/authorizations":  "authorizations_create",
		"/payments/pay_1/captures":        "captures_create",
		"/payments/pay_1/refunds":         "refunds_create",
		"/payments/pay_1/voids":           "voids_create",
		"/payments/pay_1/reversals":       "reversals_create",
		"/payments/pay_1/cancellations":   "cancellations_create",
		"/transfers":                      "transfers_create",
		"/payment-contexts":               "payment_contexts_create",
		"/payments/search":                "payments_search",
		"/payment-sessions":               "other",
		"/payments/setups/x/confirm/card": "other",
		"/payments/":                      "other",
	} {
		m, ok := g.Match("POST", target)
		if !ok || m.Route.Name != route {
			t.Errorf("%s: %v", target, m.Route)
			continue
		}
		if got := m.Route.Effect == EffectUndo; got != slices.Contains(undos, route) {
			t.Errorf("%s: undo %v", target, got)
		}
		keyless := []string{"reversals_create", "payments_search", "other"}
		if got := g.key(m.Route) == nil; got != slices.Contains(keyless, route) {
			t.Errorf("%s: keyless %v", target, got)
		}
	}
	if _, ok := g.Match("GET", "/payments?reference=x"); ok {
		t.Error("a GET has a route")
	}
	if m, _ := g.Match("POST", "/payments%2Fpay_1/refunds"); m.Flaw() == "" {
		t.Error("another spelling of a refund passes")
	}
}

// TestCheckoutStamp: what the official SDKs send, with our key in place of theirs and our reference where they left none. The
// Go SDK spells what it makes: checkout-sdk-go, payments/nas/client.go and client/client.go.
func TestCheckoutStamp(t *testing.T) {
	g := checkoutCom(t)
	shape := regexp.MustCompile(`^[0-9a-f]{30}$`)
	key := regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)
	for _, tt := range []struct{ target, body, params string }{
		{"/payments", `{"currency":"GBP","source":{"type":"token","token":"tok_1"},"amount":1000,"capture":true}`, "amount=1000 currency=GBP"},
		{"/payments", `{"source":{"id":"ca_1"},"destination":{"id":"src_1"},"amount":5,"currency":"EUR"}`, "amount=5 currency=EUR"},
		{"/payments/pay_1/captures", `{"amount":400}`, "amount=400 id=pay_1"},
		{"/payments/pay_1/refunds", `{}`, "id=pay_1"},
		{"/payments/pay_1/voids", `{"metadata":{"a":"b"}}`, "id=pay_1"},
		{"/transfers", `{"source":{"id":"ent_1","amount":100,"currency":"GBP"},"destination":{"id":"ent_2"}}`, "amount=100 currency=GBP"},
	} {
		in := ckoPost(tt.target, tt.body)
		in.Header = append(in.Header, claims.Field{Name: "Cko-Idempotency-Key", Value: "the-apps-own"})
		m := match(t, g, in)
		c := prepare(t, g, in)
		header, raw, err := m.Stamp(in, c.Facts)
		if err != nil {
			t.Fatal(err)
		}
		if got := values(header, "Cko-Idempotency-Key"); len(got) != 1 || !key.MatchString(got[0]) || got[0] != c.Facts.GatewayKey {
			t.Errorf("%s: key %v", tt.target, got)
		}
		if !shape.MatchString(c.Facts.Reference) || !strings.Contains(string(raw), `"reference":"`+c.Facts.Reference+`"`) {
			t.Errorf("%s: reference %q in %s", tt.target, c.Facts.Reference, raw)
		}
		var params []string
		for _, name := range slices.Sorted(maps.Keys(c.Facts.Lookup)) {
			params = append(params, name+"="+c.Facts.Lookup[name])
		}
		if got := strings.Join(params, " "); got != tt.params {
			t.Errorf("%s: params %s", tt.target, got)
		}
	}
}

// TestCheckoutStampLess: a capture may have no body, and a reference that the app chose is left alone.
func TestCheckoutStampLess(t *testing.T) {
	g := checkoutCom(t)
	for _, body := range []string{"", "null"} { // CapturePaymentWithoutRequest
		in := ckoPost("/payments/pay_1/captures", body)
		c := prepare(t, g, in)
		if _, raw, err := match(t, g, in).Stamp(in, c.Facts); err != nil || string(raw) != body || c.Facts.Reference != "" {
			t.Errorf("%q: %q %q %v", body, raw, c.Facts.Reference, err)
		}
	}
	own := ckoPost("/payments", strings.Replace(ckoCharge, `"amount"`, `"reference":"ORD-1","amount"`, 1))
	if f := prepare(t, g, own).Facts; f.Reference != "ORD-1" || f.Lookup[appReference] == "" {
		t.Errorf("%+v", f)
	}
	g.Reference.Unique = true
	if f := prepare(t, g, own).Facts; f.Reference != "ORD-1" || f.Lookup[appReference] != "" {
		t.Errorf("unique: %+v", f)
	}
}

// TestCheckoutAnswers: every row of the documented table, and the traps.
func TestCheckoutAnswers(t *testing.T) {
	g := checkoutCom(t)
	pay := func(status, more string) string { return `{"id":"pay_1","status":"` + status + `"` + more + `}` }
	invalid := `{"request_id":"r","error_type":"request_invalid","error_codes":["amount_invalid"]}`
	done := func(payment, object string) Class {
		return Class{Outcome: claims.Succeeded, Payment: payment, Object: object}
	}
	refused, declined := Class{Outcome: claims.NotExecuted, Refused: true}, Class{Outcome: claims.Declined}
	for _, tt := range []struct {
		route  string
		status int
		body   string
		want   Class
	}{
		{"payments_create", 201, pay("Authorized", `,"approved":true`), done("pending", "pay_1")},
		{"payments_create", 201, pay("Captured", `,"approved":true`), done("done", "pay_1")},
		{"payments_create", 201, pay("Card Verified", `,"approved":true`), done("done", "pay_1")},
		{"payments_create", 201, pay("Paid", ""), done("done", "pay_1")},
		{"payments_create", 202, pay("Pending", ""), done("pending", "pay_1")},
		{"payments_create", 202, pay("Requested", ""), done("pending", "pay_1")},
		{"payments_create", 201, pay("Declined", `,"approved":false,"response_code":"20005"`), declined},
		// The gateway will try it again by itself: another charge would be the second.
		{"payments_create", 201, pay("Declined", `,"approved":false,"retry":{"next_attempt_on":"2026-01-01"}`), done("pending", "pay_1")},
		{"payments_create", 201, pay("Declined", `,"approved":false,"retry":{"attempts_made":1}`), Class{}},
		{"payments_create", 201, pay("Declined", `,"approved":true`), Class{}},
		{"payments_create", 201, pay("Authorized", `,"approved":false`), Class{}},
		{"payments_create", 201, pay("Expired", `,"approved":false`), Class{}},
		{"payments_create", 202, pay("Declined", `,"approved":false`), Class{}},
		{"payments_create", 201, `{"status":"Authorized","approved":true}`, Class{}},
		{"payments_create", 200, `null`, Class{}},
		{"payments_create", 204, ``, Class{}},
		{"payments_create", 201, `<html>`, Class{}},
		{"payments_create", 422, invalid, refused},
		{"payments_create", 422, `{"error_type":"request_invalid","error_codes":["card_authorization_failed"]}`, Class{}},
		{"payments_create", 422, `{"error_type":"processing_error","error_codes":["x"]}`, Class{}},
		{"payments_create", 422, ``, Class{}},
		{"payments_create", 400, invalid, Class{}},
		{"payments_create", 401, ``, refused},
		{"payments_create", 403, ``, refused},
		{"payments_create", 404, ``, refused},
		{"payments_create", 429, ``, refused},
		{"payments_create", 409, ``, Class{InUse: true}},
		{"payments_create", 408, ``, Class{}},
		{"payments_create", 500, invalid, Class{}},
		{"payments_create", 502, ``, Class{}},
		{"payments_create", 307, ``, Class{}},
		{"captures_create", 202, `{"action_id":"act_1"}`, done("pending", "act_1")},
		{"refunds_create", 202, `{"action_id":"act_1"}`, done("pending", "act_1")},
		{"voids_create", 202, `{"action_id":"act_1"}`, done("pending", "act_1")},
		{"reversals_create", 202, `{"action_id":"act_1"}`, done("pending", "act_1")},
		{"cancellations_create", 202, `{"action_id":"act_1"}`, done("pending", "act_1")},
		{"captures_create", 202, `{}`, Class{}},
		{"captures_create", 403, ``, refused},
		{"authorizations_create", 201, `{"action_id":"act_1","approved":true}`, done("pending", "act_1")},
		{"authorizations_create", 201, `{"action_id":"act_1","approved":false}`, declined},
		{"authorizations_create", 201, `{"action_id":"act_1"}`, Class{}},
		{"transfers_create", 201, `{"id":"tra_1","status":"pending"}`, done("pending", "tra_1")},
		{"transfers_create", 201, `{"id":"tra_1","status":"rejected"}`, Class{}},
		{"payment_contexts_create", 201, `{"id":"pct_1"}`, done("", "pct_1")},
		{"other", 200, `{"id":"x"}`, Class{}},
	} {
		got := g.Classify(tt.route, &claims.Answer{Status: tt.status, Body: []byte(tt.body)})
		if got.Why = ""; got != tt.want {
			t.Errorf("%s %d %s: %+v, want %+v", tt.route, tt.status, tt.body, got, tt.want)
		}
	}
}

// ckoDelivery signs an event as the gateway does.
func ckoDelivery(body, secret string) Delivery {
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte(body))
	return Delivery{Body: []byte(body), Header: []claims.Field{{Name: "Cko-Signature", Value: hex.EncodeToString(mac.Sum(nil))}}}
}

// TestCheckoutNotices: what an event says of a call, by its route.
func TestCheckoutNotices(t *testing.T) {
	t.Setenv("CKO_HOOK", "whs")
	g := CheckoutCom()
	g.Accounts = []Account{{Name: "main", WebhookSecrets: []Secret{{Env: "CKO_HOOK"}}}}
	if err := g.Validate(); err != nil {
		t.Fatal(err)
	}
	event := func(kind, more string) string {
		return `{"id":"evt_1","type":"` + kind + `","data":{"id":"pay_1","reference":"r1","amount":1000,"currency":"GBP"` + more + `}}`
	}
	card := `,"response_code":"20005","source":{"type":"card"}`
	for _, tt := range []struct {
		event, route string
		want         string // outcome and payment; "": ask
	}{
		{event("payment_approved", `,"response_code":"10000"`), "payments_create", "succeeded pending"},
		{event("payment_approved", `,"response_code":"10100"`), "payments_create", ""},
		{event("payment_approved", `,"response_code":"10000"`), "captures_create", ""},
		{event("payment_declined", card), "payments_create", "declined "},
		{event("payment_declined", card+`,"3ds":{"challenged":true}`), "payments_create", ""},
		{event("payment_declined", card+`,"retry":{"next_attempt_on":"2026-01-01"}`), "payments_create", ""},
		{event("payment_declined", `,"source":{"type":"klarna"}`), "payments_create", ""},
		{event("payment_captured", ""), "payments_create", "unknown done"},
		{event("payment_captured", ""), "captures_create", ""},
		{event("payment_capture_declined", ""), "captures_create", ""},
		{event("payment_refunded", ""), "payments_create", "unknown reversed"},
		{event("payment_refunded", ""), "refunds_create", ""},
		{event("payment_voided", ""), "payments_create", "unknown reversed"},
		{event("payment_pending", ""), "payments_create", ""},
		{event("payment_paid", ""), "payments_create", ""},
	} {
		ns, err := g.OpenNotice(t.Context(), "main", ckoDelivery(tt.event, "whs"))
		if err != nil || len(ns) != 1 {
			t.Fatalf("%s: %v", tt.event, err)
		}
		n := ns[0]
		if n.ID != "evt_1" || !slices.Equal(n.References, []string{"r1"}) || n.Object != "pay_1" || n.Amount != "1000" || !n.Signed {
			t.Errorf("%+v", n)
		}
		got := ""
		if o, payment, ok := n.Reading(tt.route); ok {
			got = o.String() + " " + payment
		}
		if got != tt.want {
			t.Errorf("%s for %s: %q, want %q", tt.event, tt.route, got, tt.want)
		}
	}
	if _, err := g.OpenNotice(t.Context(), "main", ckoDelivery(event("payment_approved", ""), "other")); err == nil {
		t.Error("a forged event was read")
	}
}

// TestCheckoutRefusal: the official SDK reads error_type and error_codes of our refusals.
func TestCheckoutRefusal(t *testing.T) {
	members, _ := checkoutCom(t).Error.Render("in-flight", "wait", true)
	want := map[string]any{"request_id": "fence", "error_type": "fence_in-flight", "error_codes": []any{"fence_in-flight"}}
	if d := cmp.Diff(want, members); d != "" {
		t.Error(d)
	}
}
