package gateways

import (
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/fence-sidecar/fence-sidecar/claims"
	"github.com/google/go-cmp/cmp"
)

func stripe(t testing.TB) *Gateway {
	t.Helper()
	g := Stripe()
	if err := g.Validate(); err != nil {
		t.Fatal(err)
	}
	return g
}

func generic(t testing.TB) *Gateway {
	t.Helper()
	t.Setenv("PLAIN_KEY", "plain_secret")
	g, err := Load([]byte(genericText(t)), "generic.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func genericText(t testing.TB) string {
	t.Helper()
	b, err := os.ReadFile("testdata/generic.yaml")
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

var ident = Identity{Realm: "realm", Tenant: "shop", CallKey: "charge:order:42", Revision: 1}

func post(target, media, body string, header ...string) Inbound {
	in := Inbound{Method: "POST", Target: target, Body: []byte(body), Header: []claims.Field{{Name: "Authorization", Value: "Bearer sk_test_1"}}}
	if media != "" {
		in.Header = append(in.Header, claims.Field{Name: "Content-Type", Value: media})
	}
	for i := 0; i+1 < len(header); i += 2 {
		in.Header = append(in.Header, claims.Field{Name: header[i], Value: header[i+1]})
	}
	return in
}

func match(t testing.TB, g *Gateway, in Inbound) Match {
	t.Helper()
	m, ok := g.Match(in.Method, in.Target)
	if !ok {
		t.Fatalf("%s %s: no route", in.Method, in.Target)
	}
	return m
}

func prepare(t testing.TB, g *Gateway, in Inbound) Call {
	t.Helper()
	c, err := match(t, g, in).Prepare(in, ident)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestMatch(t *testing.T) {
	tests := []struct{ method, target, route string }{
		{"POST", "/v1/payment_intents", "payment_intents_create"},
		{"POST", "/v1/payment_intents?expand[]=x", "payment_intents_create"},
		{"POST", "/v1/payment_intents/pi_1/confirm", "payment_intents_confirm"},
		{"POST", "/v1/payment_intents/pi_1/capture", "payment_intents_capture"},
		{"POST", "/v1/payment_intents/pi_1/cancel", "payment_intents_cancel"},
		{"POST", "/v1/charges", "charges_create"},
		{"POST", "/v1/charges/ch_1/capture", "charges_capture"},
		{"POST", "/v1/charges/ch_1/refund", "charges_refund"},
		{"POST", "/v1/refunds", "refunds_create"},
		{"POST", "/v1/refunds/re_1/cancel", "refunds_cancel"},
		{"POST", "/v1/transfers", "transfers_create"},
		{"POST", "/v1/transfers/tr_1/reversals", "transfer_reversals_create"},
		{"POST", "/v1/payouts", "payouts_create"},
		{"POST", "/v1/payouts/po_1/cancel", "payouts_cancel"},
		{"POST", "/v1/payouts/po_1/reverse", "payouts_reverse"},
		{"POST", "/v1/topups", "topups_create"},
		{"POST", "/v1/topups/tu_1/cancel", "topups_cancel"},
		{"POST", "/v1/payment_intents/pi_1", "post"},
		{"POST", "/v1/customers", "post"},
		{"POST", "/v2/core/accounts", "post_other"},
		{"POST", "/", "other"},
		{"DELETE", "/v1/customers/cus_1", "other"},
		{"PUT", "/v1/payment_intents", "other"},
		{"PROPFIND", "/", "other"},
		// Nothing that another server would clean or decode reaches a declared route.
		{"POST", "//v1/payment_intents", "other"},
		{"POST", "/v1//payment_intents", "other"},
		{"POST", "/v1/payment_intents/", "other"},
		{"POST", "/v1/payment_intents/pi%5F1/confirm", "other"},
		{"POST", "/v1/payment_intents/pi_1%2Fconfirm", "other"},
		{"POST", "/v1/x/../payment_intents", "other"},
		{"POST", "/v1/payment_intents/../confirm", "other"},
		{"POST", "/v1/./payment_intents", "other"},
		{"POST", "/v1/payment_intents;a=b", "other"},
		{"POST", "/V1/payment_intents", "other"},
		{"POST", "/v1/%70ayment_intents", "other"},
		{"post", "/v1/payment_intents", ""},
		{"Post", "/v1/payment_intents", ""},
		{"CONNECT", "/v1/payment_intents", ""},
		{"PO ST", "/v1/payment_intents", ""},
		{"", "/v1/payment_intents", ""},
		// Safe methods and what is no origin form have no route.
		{"GET", "/v1/payment_intents", ""},
		{"HEAD", "/v1/payment_intents", ""},
		{"POST", "https://api.stripe.com/v1/charges", ""},
		{"POST", "*", ""},
		{"POST", "", ""},
		{"POST", "/v1/payment_intents#x", ""},
		{"POST", "/v1/payment intents", ""},
	}
	g := stripe(t)
	for _, tt := range tests {
		got := ""
		m, ok := g.Match(tt.method, tt.target)
		if ok {
			got = m.Route.Name
		}
		if got != tt.route {
			t.Errorf("%s %s: route %q, want %q", tt.method, tt.target, got, tt.route)
		}
	}
	if m, _ := g.Match("POST", "/v1/payment_intents/pi_1/confirm"); m.Params["id"] != "pi_1" {
		t.Errorf("params %v", m.Params)
	}
	if _, ok := generic(t).Match("POST", "/other"); ok {
		t.Error("a gateway without a catch-all matched")
	}
}

func TestSafe(t *testing.T) {
	for _, m := range []string{"GET", "HEAD", "OPTIONS", "TRACE"} {
		if !Safe(m) {
			t.Errorf("%s is safe", m)
		}
	}
	for _, m := range []string{"POST", "PUT", "PATCH", "DELETE", "CONNECT", "get", ""} {
		if Safe(m) {
			t.Errorf("%q is not safe", m)
		}
	}
}

func TestRegistry(t *testing.T) {
	r, err := NewRegistry(append(Builtin(), generic(t))...)
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range []string{"api.stripe.com", "API.Stripe.com:443", "api.stripe.com."} {
		if g, ok := r.ByHost(h); !ok || g.Name != "stripe" {
			t.Errorf("%s: %v", h, ok)
		}
	}
	if g, ok := r.ByName("plain"); !ok || g.BaseURL != "https://api.plain.example:8443" || len(r.All()) != len(Builtin())+1 {
		t.Error("plain is not there")
	}
	if _, ok := r.ByHost("evil.example"); ok {
		t.Error("an unknown host matched")
	}
	other := Stripe()
	other.Name = "stripe2"
	for _, gs := range [][]*Gateway{{Stripe(), Stripe()}, {Stripe(), other}, {{Name: "x"}}} {
		if _, err := NewRegistry(gs...); err == nil || strings.Contains(err.Error(), "\n") {
			t.Errorf("error %v", err)
		}
	}
}

// TestFreshCopies: changing one built-in does not change the next.
func TestFreshCopies(t *testing.T) {
	a := Builtin()[0]
	a.Routes[0].Probe, a.Answers[0].Outcome, a.Key.Header = false, "unknown", "X"
	if b := Builtin()[0]; !b.Routes[0].Probe || b.Answers[0].Outcome != "succeeded" || b.Key.Header != "Idempotency-Key" {
		t.Error("built-ins share memory")
	}
}

func TestPolicies(t *testing.T) {
	g := stripe(t)
	base := Policy{AttemptTimeout: 2 * time.Minute, BodyLimit: 1 << 20, AnswerLimit: 1 << 20}
	with := func(f func(*Policy)) Policy { p := base; f(&p); return p }
	for route, want := range map[string]Policy{
		"payment_intents_create": with(func(p *Policy) { p.Probe = true }),
		"payment_intents_cancel": with(func(p *Policy) { p.Probe, p.Undo = true, true }),
		"refunds_create":         with(func(p *Policy) { p.Probe, p.Undo = true, true }),
		"charges_refund":         with(func(p *Policy) { p.Probe, p.Undo, p.FreshDial = true, true, true }),
		"post":                   with(func(p *Policy) { p.Probe, p.FreshDial = true, true }),
		"post_other":             with(func(p *Policy) { p.FreshDial = true }),
		"other":                  with(func(p *Policy) { p.FreshDial = true }),
	} {
		got, ok := g.RoutePolicy(route)
		if d := cmp.Diff(want, got); !ok || d != "" {
			t.Errorf("%s: %s", route, d)
		}
	}
	if _, ok := g.RoutePolicy("nope"); ok {
		t.Error("an unknown route has a policy")
	}
	p := generic(t)
	want := Policy{AttemptTimeout: 45 * time.Second, FreshDial: true, BodyLimit: 65536, AnswerLimit: 262144}
	if got, _ := p.RoutePolicy("charge"); got != want {
		t.Errorf("%+v", got)
	}
}

func TestLookupRules(t *testing.T) {
	g, p := stripe(t), generic(t)
	strong := claims.LookupRules{Proves: true, Misses: 2, MissGap: 30 * time.Second, SettleAfter: 10 * time.Minute, Keyed: true, FirstStored: true, RollsForward: true}
	weak := strong
	weak.Proves = false
	keyless := claims.LookupRules{RollsForward: true, Misses: 2, MissGap: 30 * time.Second, SettleAfter: 10 * time.Minute, NoWay: true}
	for _, tt := range []struct {
		g     *Gateway
		route string
		want  claims.LookupRules
	}{
		{g, "payment_intents_create", strong}, {g, "payouts_reverse", strong}, {g, "post", weak}, {g, "other", keyless},
		{g, "nope", claims.LookupRules{}},
		{p, "charge", claims.LookupRules{Misses: 3, MissGap: time.Minute, SettleAfter: 15 * time.Minute, Keyed: true}},
	} {
		if got := tt.g.LookupRules(tt.route); got != tt.want {
			t.Errorf("%s %s: %+v", tt.g.Name, tt.route, got)
		}
	}
	// A search that claims to prove is refused, and would not be believed.
	p.route("charge").Lookup.Proves = true
	if err := p.Validate(); err == nil || p.LookupRules("charge").Proves {
		t.Errorf("a search proves absence: %v", err)
	}
}

// TestMoneyRoutes: every operation of Stripe that the facts name has a route of its own that can prove absence.
func TestMoneyRoutes(t *testing.T) {
	g := stripe(t)
	for _, p := range []string{
		"payment_intents", "payment_intents/x/confirm", "payment_intents/x/capture", "payment_intents/x/cancel", "charges",
		"charges/x/capture", "refunds", "transfers", "transfers/x/reversals", "payouts", "payouts/x/cancel", "payouts/x/reverse", "topups",
	} {
		m, _ := g.Match(http.MethodPost, "/v1/"+p)
		proves := p != "payment_intents/x/confirm" // whose state does not show what ran
		if pol := m.Policy(); pol.FreshDial == proves || !pol.Probe || g.LookupRules(m.Route.Name).Proves != proves {
			t.Errorf("%s: %s %+v", p, m.Route.Name, pol)
		}
	}
}

func TestRender(t *testing.T) {
	for _, retry := range []bool{false, true} {
		members, header := Stripe().Error.Render("in-flight", `say "when"`, retry)
		want := map[string]any{"error": map[string]any{"type": "api_error", "code": "fence_in-flight", "message": `say "when"`}}
		if d := cmp.Diff(want, members); d != "" {
			t.Error(d)
		}
		if (len(header) == 0) != retry {
			t.Errorf("retry %v: %v", retry, header)
		}
	}
	members, _ := generic(t).Error.Render("fenced", "d", false)
	if d := cmp.Diff(map[string]any{"code": "fence-fenced", "errors": []any{"d"}}, members); d != "" {
		t.Error(d)
	}
	if m, h := (ErrorShape{}).Render("x", "y", false); len(m) != 0 || len(h) != 0 {
		t.Error("an empty shape renders something")
	}
}

// Only what the gateway's SDKs surely take for an error is one: stripe-node takes a body without "error" for an object.
func TestIsError(t *testing.T) {
	g := stripe(t)
	for body, want := range map[string]bool{
		`{"error":{"type":"api_error"}}`:       true,
		`{"message":"upstream connect error"}`: false,
		`{"error":null}`:                       false,
		`[]`:                                   false,
		`upstream connect error`:               false,
		``:                                     false,
	} {
		if got := g.IsError(&claims.Answer{Status: 503, Body: []byte(body)}); got != want {
			t.Errorf("%q: %v", body, got)
		}
	}
	bare := &Gateway{}
	if bare.IsError(&claims.Answer{Status: 503, Body: []byte(`{}`)}) {
		t.Error("a gateway that declares no shape has none")
	}
}
