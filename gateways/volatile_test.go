package gateways

import (
	"strings"
	"testing"
)

// volatile is a gateway with a route that declares volatile fields.
func volatile(t testing.TB, fields ...string) *Gateway {
	t.Helper()
	g := anything(t)
	g.Routes[0].Volatile = fields
	if err := g.Validate(); err != nil {
		t.Fatal(err)
	}
	return g
}

// TestVolatile: a volatile field does not count, everything beside it does, and it is sent as the app wrote it.
func TestVolatile(t *testing.T) {
	g := volatile(t, "sent_at", "meta.trace")
	const base = `{"amount":1,"sent_at":"10:00","meta":{"trace":"t1","order":7}}`
	for _, tt := range []struct {
		media, a, b string
		same        bool
	}{
		{"application/json", base, `{"amount":1,"sent_at":"10:01","meta":{"order":7,"trace":"t2"}}`, true},
		{"application/json", base, `{"amount":1,"meta":{"order":7}}`, true},
		{"application/json", base, `{"amount":1,"sent_at":5,"meta":{"order":7,"trace":null}}`, true},
		{"application/json", base, `{"amount":2,"sent_at":"10:00","meta":{"trace":"t1","order":7}}`, false},
		{"application/json", base, `{"amount":1,"sent_at":"10:00","meta":{"trace":"t1","order":8}}`, false},
		{"application/json", base, `{"amount":1,"sent_at":"10:00","trace":"t2","meta":{"trace":"t1","order":7}}`, false},
		{"application/json", base, `{"amount":1,"Sent_at":"10:01","meta":{"order":7}}`, false},
		{"application/json", base, `{"amount":1,"sent_at":{"amount":2},"meta":{"order":7}}`, false},
		{"application/json", base, `{"amount":1,"sent_at":["x"],"meta":{"order":7}}`, false},
		{"application/json", base, `{"amount":1,"sent_at":1,"sent_at":2,"meta":{"order":7}}`, false},
		{"application/json", base, `{"amount":1,"meta":{"order":7,"trace":"\ud800"}}`, false},
		{"application/json", `{"d":"\ud800","sent_at":1}`, `{"d":"\ud800","sent_at":2}`, true}, // by bytes, without the field
		{"application/json", `{"d":"\ud800","sent_at":1}`, `{"d":"\udfff","sent_at":1}`, false},
		{mediaForm, "amount=1&sent_at=10&meta[trace]=a", "amount=1&sent_at=11&meta[trace]=b", true},
		{mediaForm, "amount=1&sent_at=10&meta[trace]=a", "amount=1", true},
		{mediaForm, "amount=1&sent_at=10", "amount=2&sent_at=10", false},
		{mediaForm, "amount=1&sent_at=10", "amount=1&sent_at=11&sent_at=12", false},
		{mediaForm, "amount=1&sent_at=10", "amount=1&sent_at[]=11", false},
		{"text/plain", "sent_at=1", "sent_at=2", false},
	} {
		one, two := post("/x", tt.media, tt.a), post("/x", tt.media, tt.b)
		a, b := prepare(t, g, one), prepare(t, g, two)
		if got := string(a.Canonical) == string(b.Canonical); got != tt.same {
			t.Errorf("%s and %s: one call %v", tt.a, tt.b, got)
		}
		if _, raw, err := match(t, g, two).Stamp(two, b.Facts); err != nil || string(raw) != tt.b {
			t.Errorf("%s was sent as %s: %v", tt.b, raw, err)
		}
	}
	// Never the path or the query.
	if string(prepare(t, g, post("/x?sent_at=1", mediaForm, "")).Canonical) == string(prepare(t, g, post("/x?sent_at=2", mediaForm, "")).Canonical) {
		t.Error("the query does not count")
	}
	// What a digest covers counts whole.
	one, two := post("/x", mediaForm, "sent_at=1", "Content-Digest", "sha-256=:x:"), post("/x", mediaForm, "sent_at=2", "Content-Digest", "sha-256=:y:")
	if string(prepare(t, g, one).Canonical) == string(prepare(t, g, two).Canonical) {
		t.Error("a signed body does not count")
	}
	// Without the declaration it counts.
	g = anything(t)
	if string(prepare(t, g, post("/x", mediaForm, "sent_at=1")).Canonical) == string(prepare(t, g, post("/x", mediaForm, "sent_at=2")).Canonical) {
		t.Error("a field is volatile without being declared")
	}
}

// TestVolatileValidate: what says how much is paid, by whom and to whom, and what we read or write, is never volatile.
func TestVolatileValidate(t *testing.T) {
	const at = "    params: {amount: \"body:money.amount\", currency: \"body:money.currency\"}\n"
	file := func(t *testing.T, add string) error {
		t.Helper()
		_, err := Load([]byte(strings.Replace(genericText(t), at, at+"    volatile: "+add+"\n", 1)), "x.yaml")
		return err
	}
	for _, good := range []string{"[sent_at]", "[meta.sent_at, nonce]", "[]", "[moneys]"} {
		if err := file(t, good); err != nil {
			t.Errorf("%s: %v", good, err)
		}
	}
	for _, bad := range []string{
		`[""]`, `["*"]`, `["a.*"]`, `["path:id"]`, `["query:x"]`, `["a..b"]`, `[" a"]`, `["/a"]`, "[a, b, 'a[b]']",
		"[money]", "[money.amount]", "[MONEY.Amount]", "[money.amount.x]", "[money.currency]", // params
		"[reference]", "[reference.x]", "[Reference]", // the reference
		"[order.id]", "[order]", "[order.id.x]", // callKey
		"[amount]", "[total]", "[a.currency]", "[sub_account]", "[accountId]", "[payAmount.value]", "[destination]", "[customer]", "[card]", "[card.number]", "[a.iban]",
	} {
		err := file(t, bad)
		if err == nil || !strings.Contains(err.Error(), "routes.charge.volatile[") {
			t.Errorf("%s: %v", bad, err)
		}
	}
	for name, change := range map[string]func(*Gateway){
		"the key's field":         func(g *Gateway) { g.Key = &KeyPlace{Field: "sent_at"} },
		"the route's key's field": func(g *Gateway) { g.Routes[0].Key = &KeyPlace{Field: "sent_at.k"} },
		"another route's own field": func(g *Gateway) {
			g.Routes = append(g.Routes, &Route{Name: "o", Method: "POST", Path: "/o", Reference: &RefPlace{Field: "sent_at", Owned: true}})
		},
		"a param's name": func(g *Gateway) {
			g.Routes[0].Path, g.Routes[0].Params = "/{p}", map[string]string{"sent_at": "path:p"}
		},
		"a probe": func(g *Gateway) {
			g.Key, g.Family, g.KeyRetention, g.Routes[0].Probe = &KeyPlace{Header: "K"}, FamilyA, defaultSettle, true
		},
	} {
		g := volatile(t, "sent_at")
		change(g)
		if err := g.Validate(); err == nil || !strings.Contains(err.Error(), "routes.all.volatile") {
			t.Errorf("%s: %v", name, err)
		}
		g.Routes[0].Volatile = nil
		if err := g.Validate(); err != nil {
			t.Errorf("%s, nothing volatile: %v", name, err)
		}
	}
}
