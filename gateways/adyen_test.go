package gateways

import (
	"strings"
	"testing"

	"github.com/fence-sidecar/fence-sidecar/claims"
)

func adyen(t testing.TB) *Gateway {
	t.Helper()
	g := Adyen()
	if err := g.Validate(); err != nil {
		t.Fatal(err)
	}
	return g
}

func TestAdyenDeclared(t *testing.T) {
	r, err := NewRegistry(Adyen(), Stripe())
	if err != nil {
		t.Fatal(err)
	}
	if g, ok := r.ByHost("checkout-test.adyen.com:443"); !ok || g.Name != "adyen" || g.Title != "Adyen" {
		t.Error("the test host is not Adyen's")
	}
	g := adyen(t)
	for name, want := range map[string]string{
		"G1": Supported, "G2": Partial, "G3": Supported, "G4": Supported, "G5": Undocumented, "G6": Supported,
	} {
		if v := g.Guarantee(name); v.Level != want || v.Says == "" || len(v.Source) == 0 {
			t.Errorf("%s: %+v", name, v)
		}
	}
	a, b := Adyen(), Adyen()
	a.Routes[0].Answers[1].Outcome, a.Notes[0], a.Webhook.Cases[0].Outcome, a.Routes[0].Payment.Values["Pending"] = "unknown", "", "", ""
	a.Routes[0].Answers[3].When[0].In[0] = "Refused"
	for _, g := range []*Gateway{b, Adyen()} {
		r := g.Routes[0]
		if r.Answers[1].Outcome != "declined" || g.Notes[0] == "" || g.Webhook.Cases[0].Outcome != "succeeded" || r.Payment.Values["Pending"] != "pending" ||
			r.Answers[3].When[0].In[0] != "Received" {
			t.Error("two declarations share memory")
		}
	}
}

// TestAdyenMatch: the paths of the API descriptions, at the test host and at a live one.
func TestAdyenMatch(t *testing.T) {
	g := adyen(t)
	for _, tt := range []struct {
		path, route string
		probe, undo bool
	}{
		{"payments", "payments_create", true, false},
		{"payments/details", "payments_details", true, false},
		{"payments/QFQTPCQ8HXSKGK82/captures", "captures_create", true, false},
		{"payments/QFQTPCQ8HXSKGK82/refunds", "refunds_create", true, true},
		{"payments/QFQTPCQ8HXSKGK82/cancels", "cancels_create", true, true},
		{"payments/QFQTPCQ8HXSKGK82/reversals", "reversals_create", true, true},
		{"payments/QFQTPCQ8HXSKGK82/amountUpdates", "amount_updates_create", true, false},
		{"cancels", "cancels_standalone", true, true},
		{"donations", "donations_create", true, false},
		{"sessions", "sessions_create", true, false},
		{"paymentLinks", "payment_links_create", true, false},
		{"orders", "orders_create", true, false},
		{"orders/cancel", "orders_cancel", true, true},
		{"paymentMethods", "reads", false, false},
		{"paymentMethods/balance", "reads", false, false},
		{"applePay/sessions", "reads", false, false},
		{"storedPaymentMethods", "other", false, false},
		{"forward", "other", false, false},
		{"paypal/updateOrder", "other", false, false},
		{"payments/QFQTPCQ8HXSKGK82/captures/more", "other", false, false},
	} {
		for _, prefix := range []string{"/v72/", "/v71/", "/checkout/v72/"} {
			m, ok := g.Match("POST", prefix+tt.path)
			if !ok || m.Route.Name != tt.route || m.Flaw() != "" {
				t.Errorf("%s%s: %v %q, want %s", prefix, tt.path, ok, m.Flaw(), tt.route)
				continue
			}
			pol := m.Policy()
			if rules := g.LookupRules(tt.route); pol.Probe != tt.probe || pol.Undo != tt.undo || !pol.FreshDial || rules.Proves || rules.NoWay == tt.probe || rules.FirstStored != (tt.probe) {
				t.Errorf("%s: %+v %+v", tt.route, pol, rules)
			}
		}
	}
	for path, want := range map[string]string{
		"/btl/v4/transfers": "transfers_create", "/btl/v4/transfers/1W1UG35U8A9J5ZLG/returns": "transfers_return",
		"/btl/v4/transfers/cancel": "transfers_cancel", "/btl/v4/transfers/approve": "transfers_approve", "/btl/v4/grants": "grants_create",
		"/pal/servlet/Payment/v68/authorise": "pal_authorise", "/pal/servlet/Payment/v68/capture": "pal_capture",
		"/pal/servlet/Payment/v68/refund": "pal_refund", "/pal/servlet/Payment/v68/technicalCancel": "pal_technical_cancel",
		"/pal/servlet/Payout/v68/payout": "other", "/v72/payments/%2e%2e": "other",
	} {
		if m, ok := g.Match("POST", path); !ok || m.Route.Name != want {
			t.Errorf("%s: not %s", path, want)
		}
	}
	for _, path := range []string{"/v72/Payments", "/v72/payments/", "/checkout//v72/payments", "/v72/payments/X/refunds;a"} {
		if m, _ := g.Match("POST", path); m.Flaw() == "" {
			t.Errorf("%s passes", path)
		}
	}
	for _, r := range g.Routes {
		if strings.HasPrefix(r.Name, "pal_") && (r.Probe || !g.LookupRules(r.Name).NoWay || g.key(r) != nil) {
			t.Errorf("%s: after a doubt something could be sent", r.Name)
		}
		if pass := r.Name == "reads"; pass != (r.Untagged == UntaggedPass) {
			t.Errorf("%s: untagged %q", r.Name, r.Untagged)
		}
	}
}

const adyenPayment = `{"merchantAccount":"ShopEU","amount":{"value":1000,"currency":"EUR"},"returnUrl":"https://shop.example","paymentMethod":{"type":"scheme"},"splits":[{"reference":"s1"}]}`

func adyenPost(target, body string) Inbound {
	return Inbound{Method: "POST", Target: target, Body: []byte(body), Header: []claims.Field{
		{Name: "Content-Type", Value: "application/json"}, {Name: "X-API-Key", Value: "AQEtest"},
		{Name: "adyen-library-name", Value: "adyen-go-api-library"}, {Name: "Idempotency-Key", Value: "37ca9c97-d1d1-4c62-89e8-706891a563ed"},
	}}
}

// TestAdyenStamp: a request as the official SDKs write it gets our key and, where it has none, our reference.
func TestAdyenStamp(t *testing.T) {
	g := adyen(t)
	for _, tt := range []struct {
		target, body, reference string
		unique                  bool
	}{
		{"/checkout/v72/payments", adyenPayment, "", false},
		{"/v72/payments", `{"reference":"order-7",` + adyenPayment[1:], "order-7", false},
		{"/v72/payments", `{"reference":"order-7",` + adyenPayment[1:], "order-7", true},
		{"/v72/payments/QFQTPCQ8HXSKGK82/captures", `{"merchantAccount":"ShopEU","amount":{"value":10,"currency":"EUR"}}`, "", false},
		{"/v72/cancels", `{"merchantAccount":"ShopEU","paymentReference":"order-7"}`, "", false},
	} {
		g.Reference.Unique = tt.unique
		in := adyenPost(tt.target, tt.body)
		m := match(t, g, in)
		c := prepare(t, g, in)
		header, raw, err := m.Stamp(in, c.Facts)
		if err != nil {
			t.Fatal(err)
		}
		doc, _ := decode(raw)
		key := values(header, "idempotency-key")
		if len(key) != 1 || key[0] != c.Facts.GatewayKey || len(key[0]) != 64 {
			t.Errorf("%s: key %v", tt.target, key)
		}
		ref := text(doc, "/reference")
		if ref != c.Facts.Reference || tt.reference != "" && ref != tt.reference || tt.reference == "" && len(ref) != 32 {
			t.Errorf("%s: reference %q of %q", tt.target, ref, c.Facts.Reference)
		}
		if app := c.Facts.Lookup[appReference] != ""; app != (tt.reference != "" && !tt.unique) {
			t.Errorf("%s: the app's own reference: %v", tt.target, app)
		}
		if tt.reference != "" && string(raw) != tt.body {
			t.Errorf("%s: the body was changed", tt.target)
		}
	}
	c := prepare(t, g, adyenPost("/v72/payments", adyenPayment))
	if c.Facts.Lookup["amount"] != "1000" || c.Facts.Lookup["currency"] != "EUR" || c.Facts.Retention >= 7*24*60*60*1e9 {
		t.Errorf("%+v", c.Facts)
	}
	// What takes no reference gets none; where no key is taken the app's own stays.
	for target, body := range map[string]string{"/v72/payments/details": `{"details":{"redirectResult":"x"}}`, "/pal/servlet/Payment/v68/authorise": adyenPayment, "/v72/paymentMethods": `{}`} {
		in := adyenPost(target, body)
		m, c := match(t, g, in), prepare(t, g, in)
		header, raw, err := m.Stamp(in, c.Facts)
		if err != nil || strings.HasPrefix(target, "/v72/") && string(raw) != body {
			t.Errorf("%s: %v %s", target, err, raw)
		}
		if kept := values(header, "Idempotency-Key")[0] == "37ca9c97-d1d1-4c62-89e8-706891a563ed"; kept != (m.Route.Name != "payments_details") {
			t.Errorf("%s: the app's key stays: %v", target, kept)
		}
	}
}

func TestAdyenRender(t *testing.T) {
	g := adyen(t)
	members, header := g.Error.Render("needs-review", "look", false)
	if members["errorCode"] != "fence_needs-review" || members["message"] != "look" || members["errorType"] == "validation" || len(header) != 1 || header[0].Value != "false" {
		t.Errorf("%v %v", members, header)
	}
	if _, header := g.Error.Render("in-flight", "", true); len(header) != 0 {
		t.Errorf("%v", header)
	}
	if !g.IsError(reply(500, adyenError("905", "configuration"))) || g.IsError(reply(503, `{"message":"upstream connect error"}`)) {
		t.Error("Adyen's own error is not told from a balancer's")
	}
}
