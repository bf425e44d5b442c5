package gateways

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/fence-sidecar/fence-sidecar/claims"
)

// ten are the gateways that are declared from what little they document.
var ten = []func() *Gateway{
	Braintree, Square, Mollie, AuthorizeNet, Razorpay, Worldpay, Airwallex, MercadoPago, Paystack, Increase,
}

func tenValid(t testing.TB, g *Gateway) *Gateway {
	t.Helper()
	if _, err := NewRegistry(g); err != nil {
		t.Fatal(err)
	}
	return g
}

// TestTenLevels: the levels are those of the summary, G1 to G6.
func TestTenLevels(t *testing.T) {
	want := map[string]string{
		"braintree": "yyypyy", "square": "ypuyyy", "mollie": "ypyyyy", "authorizenet": "nppnny", "razorpay": "ppuyyy",
		"worldpay": "nyuuuy", "airwallex": "yyuuuy", "mercadopago": "yyuypy", "paystack": "pyunyy", "increase": "yyuyyy",
	}
	letters := map[byte]string{'y': Supported, 'p': Partial, 'n': Lacking, 'u': Undocumented}
	for _, declared := range ten {
		g := tenValid(t, declared())
		for i, n := range GuaranteeNames {
			v := g.Guarantees[n.Name]
			switch {
			case v == nil:
				t.Errorf("%s: nothing of %s", g.Name, n.Name)
			case v.Level != letters[want[g.Name][i]]:
				t.Errorf("%s %s: %s, want %s", g.Name, n.Name, v.Level, letters[want[g.Name][i]])
			case v.Says == "" || v.Mark == "" || len(v.Source) == 0:
				t.Errorf("%s %s: %+v", g.Name, n.Name, v)
			}
		}
		if g.Title == g.Name || len(g.Hosts) == 0 || len(g.Error.Members) == 0 {
			t.Errorf("%s: title %q, hosts %v, error %v", g.Name, g.Title, g.Hosts, g.Error)
		}
		if notes := strings.Join(g.Notes, " "); !strings.Contains(notes, "review") || !strings.Contains(notes, "after doubt nothing is sent again") {
			t.Errorf("%s: the notes do not say what a doubt leads to", g.Name)
		}
		if !strings.HasPrefix(g.BaseURL, "https://"+g.Hosts[0]) {
			t.Errorf("%s: %s is not its host %s", g.Name, g.BaseURL, g.Hosts[0])
		}
	}
	if _, err := NewRegistry(func() (all []*Gateway) {
		for _, declared := range append(ten, Stripe) {
			all = append(all, declared())
		}
		return all
	}()...); err != nil {
		t.Error("together: ", err)
	}
}

// TestTenAreFresh: no two copies share what a user's file could change.
func TestTenAreFresh(t *testing.T) {
	for _, declared := range ten {
		a, b := declared(), declared()
		a.Guarantees["G1"].Says, a.Notes[0], a.Routes[0].Name = "changed", "changed", "changed"
		a.Routes[len(a.Routes)-1].Answers = nil
		if b.Guarantees["G1"].Says == "changed" || b.Notes[0] == "changed" || b.Routes[0].Name == "changed" {
			t.Errorf("%s: two copies share a part", a.Name)
		}
	}
}

// tenPromises says what a route promises beyond what is documented.
func tenPromises(g *Gateway) (found []string) {
	for _, r := range g.Routes {
		rules := g.LookupRules(r.Name)
		if r.Probe && (g.key(r) == nil || first(r.KeyRetention, g.KeyRetention) == 0) {
			found = append(found, r.Name+": a probe without a key or without a retention")
		}
		if r.Probe {
			found = append(found, r.Name+": a probe, and nothing says that keys survive errors")
		}
		if rules.Proves || g.provesAbsence(r) {
			found = append(found, r.Name+": a lookup proves absence, and its lag is not documented")
		}
		if rules.Misses == 0 || rules.SettleAfter == 0 {
			found = append(found, r.Name+": no misses or settling time")
		}
		if l := r.Lookup; l != nil && l.NotFound != "" {
			found = append(found, r.Name+": a 404 that counts")
		}
	}
	return found
}

func TestTenPromiseNothing(t *testing.T) {
	for _, declared := range ten {
		g := tenValid(t, declared())
		for _, p := range tenPromises(g) {
			t.Errorf("%s.%s", g.Name, p)
		}
		if g.KeyRetention != 0 && g.Name != "mollie" {
			t.Errorf("%s: retention %v", g.Name, g.KeyRetention)
		}
		for _, r := range g.Routes {
			if r.KeyRetention != 0 {
				t.Errorf("%s.%s: retention %v", g.Name, r.Name, r.KeyRetention)
			}
		}
	}
	// It bites.
	g := Mollie()
	g.Family = FamilyA
	g.Routes[0].Probe, g.Routes[0].Lookup.Proves, g.Routes[0].Lookup.Kind = true, true, KindList
	g.Routes[0].Reference.Required = true
	if err := g.Validate(); err != nil {
		t.Fatal(err)
	}
	if found := tenPromises(g); len(found) != 2 {
		t.Errorf("a probe and a proof: %q", found)
	}
}

// tenBodies are what answers of unclear status may carry: the gateway's successes, declines and errors, and what is none of them.
func tenBodies(g *Gateway) (all []string) {
	for _, tt := range tenAnswers()[g.Name] {
		all = append(all, tt.body)
	}
	return append(all, "", "{}", "null", "[]", "<html></html>", "\xff", `{"id":"1"}`, `<t/>`)
}

// tenUnclear are statuses that also come after a call was carried out.
var tenUnclear = []int{100, 301, 307, 408, 409, 423, 424, 425, 500, 501, 502, 503, 504, 520, 599}

func tenMisread(g *Gateway) (found []string) {
	for _, r := range g.Routes {
		for _, status := range tenUnclear {
			for _, body := range tenBodies(g) {
				for _, media := range []string{"application/json", "application/xml"} {
					if c := g.Classify(r.Name, reply(status, body, "Content-Type", media)); c.Outcome != claims.Unknown || c.Stored || c.Refused {
						found = append(found, fmt.Sprintf("%s: %d %.80s: %+v", r.Name, status, body, c))
					}
				}
			}
		}
		if c := g.Classify(r.Name, nil); c.Outcome != claims.Unknown {
			found = append(found, r.Name+": no answer")
		}
	}
	return found
}

func TestTenDoubtfulStatuses(t *testing.T) {
	for _, declared := range ten {
		g := tenValid(t, declared())
		for _, m := range tenMisread(g) {
			t.Errorf("%s.%s", g.Name, m)
		}
	}
	g := Square() // It bites.
	g.Answers = append(g.Answers, answered("declined", "", on("5xx"), is("/errors/0/category", "PAYMENT_METHOD_ERROR")))
	if err := g.Validate(); err != nil {
		t.Fatal(err)
	}
	if len(tenMisread(g)) == 0 {
		t.Error("a 5xx that counts as a decline was not found")
	}
}

// TestTenKeys: a key is within what the gateway takes, and the app's own is dropped.
func TestTenKeys(t *testing.T) {
	tests := []struct {
		g                        *Gateway
		method, target, where    string
		shape                    string
		body, reference, ownsRef string
	}{
		{Square(), "POST", "/v2/payments", "idempotency_key", `^[0-9a-f]{45}$`,
			`{"amount_money":{"amount":100,"currency":"USD"}}`, "reference_id", ""},
		{Square(), "POST", "/v2/refunds", "idempotency_key", `^[0-9a-f]{45}$`, `{"payment_id":"p"}`, "", ""},
		{Mollie(), "POST", "/v2/payments", "Idempotency-Key", `^[0-9a-f-]{36}$`,
			`{"amount":{"value":"10.00","currency":"EUR"}}`, "metadata.fence_ref", ""},
		{Razorpay(), "POST", "/v1/payouts", "X-Payout-Idempotency", `^[A-Za-z0-9_ -]{4,36}$`, `{"amount":100,"currency":"INR"}`,
			"reference_id", ""},
		{Razorpay(), "POST", "/v1/payments/pay_1/refund", "X-Refund-Idempotency", `^[A-Za-z0-9_-]{10,}$`, `{"amount":100}`,
			"notes.fence_ref", ""},
		{Worldpay(), "POST", "/accountPayouts", "Idempotency-Key", `^[0-9a-f]{1,35}$`, `{}`, "", ""},
		{Airwallex(), "POST", "/api/v1/pa/payment_intents/create", "request_id", `^[0-9a-f-]{36}$`,
			`{"amount":1.5,"currency":"EUR"}`, "merchant_order_id", ""},
		{Airwallex(), "POST", "/api/v1/transfers/create", "request_id", `^[0-9a-f-]{36}$`, `{}`, "", ""},
		{MercadoPago(), "POST", "/v1/payments", "X-Idempotency-Key", `^[0-9a-f]{1,128}$`, `{"transaction_amount":1.5}`,
			"external_reference", ""},
		{MercadoPago(), "POST", "/v1/orders", "X-Idempotency-Key", `^[0-9a-f]{1,128}$`, `{}`, "", ""},
		{Increase(), "POST", "/ach_transfers", "Idempotency-Key", `^[0-9a-f]{1,200}$`, `{"amount":100}`, "", ""},
		{Paystack(), "POST", "/charge", "", "", `{"amount":100}`, "reference", ""},
		{Paystack(), "POST", "/transfer", "", "", `{"amount":100}`, "reference", ""},
		{Worldpay(), "POST", "/api/payments", "", "", `{"instruction":{"value":{"amount":250,"currency":"GBP"}}}`,
			"transactionReference", ""},
		{Braintree(), "POST", "/merchants/m/transactions", "", "", `{}`, "", ""},
		{AuthorizeNet(), "POST", "/xml/v1/request.api", "", "", `{}`, "", ""},
	}
	for _, tt := range tests {
		g := tenValid(t, tt.g)
		if g.Rotating {
			g.Accounts = []Account{{Name: "main"}}
		}
		in := post(tt.target, "application/json", tt.body, "Idempotency-Key", "of-the-app")
		in.Method = tt.method
		m := match(t, g, in)
		c, err := m.Prepare(in, ident)
		if err != nil {
			t.Errorf("%s %s: %v", g.Name, tt.target, err)
			continue
		}
		header, raw, err := m.Stamp(in, c.Facts)
		if err != nil {
			t.Fatal(err)
		}
		doc, _ := decode(raw)
		if tt.where == "" && (c.Facts.GatewayKey != "" || !m.Route.Keyless) {
			t.Errorf("%s %s: key %q", g.Name, tt.target, c.Facts.GatewayKey)
		}
		if tt.where != "" {
			got := text(doc, "/"+tt.where)
			if vs := values(header, tt.where); len(vs) == 1 {
				got = vs[0]
			}
			if got != c.Facts.GatewayKey || !regexp.MustCompile(tt.shape).MatchString(got) {
				t.Errorf("%s %s: key %q is not %s", g.Name, tt.target, got, tt.shape)
			}
		}
		ref := text(doc, "/"+strings.ReplaceAll(tt.reference, ".", "/"))
		if (tt.reference == "") != (c.Facts.Reference == "") || tt.reference != "" && (ref != c.Facts.Reference || len(ref) > 40 || len(ref) < 16) {
			t.Errorf("%s %s: reference %q, facts %q", g.Name, tt.target, ref, c.Facts.Reference)
		}
		if p := m.Policy(); p.Probe || !p.FreshDial || c.Facts.Retention != g.KeyRetention && tt.where != "" {
			t.Errorf("%s %s: %+v, retention %v", g.Name, tt.target, p, c.Facts.Retention)
		}
	}
}

// TestTenOwnReferences: where a gateway's references are unique the app's own finds its call; elsewhere it finds none, and in no case is
// it replaced.
func TestTenOwnReferences(t *testing.T) {
	for _, tt := range []struct {
		g             *Gateway
		target, field string
		unique        bool
	}{
		{Paystack(), "/transaction/charge_authorization", "reference", true},
		{Worldpay(), "/cardPayments/customerInitiatedTransactions", "transactionReference", true},
		{Square(), "/v2/payments", "reference_id", false},
		{MercadoPago(), "/v1/payments", "external_reference", false},
		{Razorpay(), "/v1/orders", "receipt", false},
	} {
		g := tenValid(t, tt.g)
		in := post(tt.target, "application/json", `{"`+tt.field+`":"order-7"}`)
		m := match(t, g, in)
		c := prepare(t, g, in)
		_, raw, err := m.Stamp(in, c.Facts)
		doc, _ := decode(raw)
		if err != nil || c.Facts.Reference != "order-7" || text(doc, "/"+tt.field) != "order-7" || (c.Facts.Lookup[appReference] == "") != tt.unique {
			t.Errorf("%s: %v %+v %s", g.Name, err, c.Facts, raw)
		}
	}
}

// TestTenRoutes: undoes are undoes, reads pass, and what is not declared is known of.
func TestTenRoutes(t *testing.T) {
	tests := []struct {
		g              *Gateway
		method, target string
		route          string
		undo           bool
	}{
		{Braintree(), "POST", "/merchants/m/transactions", "transactions_create", false},
		{Braintree(), "PUT", "/merchants/m/transactions/t/void", "transactions_void", true},
		{Braintree(), "POST", "/merchants/m/transactions/t/refund", "transactions_refund", true},
		{Braintree(), "PUT", "/merchants/m/transactions/t/submit_for_settlement", "transactions_submit", false},
		{Braintree(), "POST", "/merchants/m/transactions/advanced_search_ids", "transactions_search", false},
		{Square(), "POST", "/v2/payments/cancel", "payments_cancel_by_key", true},
		{Square(), "POST", "/v2/payments/p/cancel", "payments_cancel", true},
		{Square(), "POST", "/v2/payments/p/complete", "payments_complete", false},
		{Mollie(), "DELETE", "/v2/payments/tr_1", "payments_cancel", true},
		{Mollie(), "POST", "/v2/payments/tr_1/refunds", "refunds_create", true},
		{Mollie(), "POST", "/v2/payments/tr_1/release-authorization", "payments_release", true},
		{Mollie(), "POST", "/v2/customers", "post", false},
		{Razorpay(), "POST", "/v1/payments/pay_1/refund", "payments_refund", true},
		{Razorpay(), "POST", "/v1/payments/create/recurring", "payments_recurring", false},
		{Razorpay(), "POST", "/v1/payments/pay_1/capture", "payments_capture", false},
		{Worldpay(), "POST", "/api/payments/abc/reversals", "reversals_create", true},
		{Worldpay(), "POST", "/payments/settlements/refunds/full/abc", "card_refunds_create", true},
		{Worldpay(), "POST", "/payments/settlements/full/abc", "card_settlements_create", false},
		{Worldpay(), "POST", "/payments/authorizations/cancellations/abc", "card_cancellations_create", true},
		{Airwallex(), "POST", "/api/v1/authentication/login", "login", false},
		{Airwallex(), "POST", "/api/v1/pa/payment_intents/int_1/cancel", "payment_intents_cancel", true},
		{Airwallex(), "POST", "/api/v1/pa/refunds/create", "refunds_create", true},
		{MercadoPago(), "PUT", "/v1/payments/1", "payments_update", false},
		{MercadoPago(), "POST", "/v1/payments/1/refunds", "refunds_create", true},
		{MercadoPago(), "POST", "/v1/orders/o/refund", "orders_refund", true},
		{Paystack(), "POST", "/charge/submit_pin", "charge_submit", false},
		{Paystack(), "POST", "/refund", "refunds_create", true},
		{Paystack(), "POST", "/transfer/bulk", "transfers_bulk", false},
		{Increase(), "POST", "/wire_transfers/w/cancel", "wire_transfers_cancel", true},
		{Increase(), "POST", "/check_transfers/c/stop_payment", "check_transfers_stop", true},
		{Increase(), "POST", "/real_time_payments_transfers", "real_time_payments_transfers_create", false},
		{Increase(), "POST", "/accounts", "post", false},
		{Increase(), "PATCH", "/accounts/a", "other", false},
		{AuthorizeNet(), "POST", "/xml/v1/request.api", "request", false},
	}
	passes := []string{"transactions_search", "login"}
	for _, tt := range tests {
		m, ok := tenValid(t, tt.g).Match(tt.method, tt.target)
		if !ok || m.Route.Name != tt.route || m.Policy().Undo != tt.undo {
			t.Errorf("%s %s %s: %v, want %s, undo %v", tt.g.Name, tt.method, tt.target, m.Route, tt.route, tt.undo)
			continue
		}
		if (m.Route.Untagged == UntaggedPass) != slices.Contains(passes, tt.route) {
			t.Errorf("%s.%s: untagged %q", tt.g.Name, tt.route, m.Route.Untagged)
		}
	}
	for _, declared := range ten {
		g := tenValid(t, declared())
		m, ok := g.Match("PROPFIND", "/nothing/known")
		if !ok || !m.Route.Keyless || !m.Route.catchAll() || g.Untagged != UntaggedRefuse {
			t.Errorf("%s: %v", g.Name, m.Route)
		}
		for _, r := range g.Routes {
			if undoing.MatchString(r.Path) && r.Effect != EffectUndo {
				t.Errorf("%s.%s: %s is no undo", g.Name, r.Name, r.Path)
			}
		}
	}
}

// tenResending are the statuses that each gateway's official SDKs resend on.
var tenResending = map[string][]string{
	"square": {"408", "409", "429", "5"}, "mollie": {"5"}, "mercadopago": {"429", "5"}, "increase": {"408", "409", "429", "5"},
}

func TestTenUnknownStatus(t *testing.T) {
	for _, declared := range ten {
		g := tenValid(t, declared())
		for _, s := range tenResending[g.Name] {
			if strings.HasPrefix(fmt.Sprint(g.UnknownStatus), s) {
				t.Errorf("%s: the SDKs resend %d", g.Name, g.UnknownStatus)
			}
		}
		members, _ := g.Error.Render("in-doubt", "x", false)
		if !g.IsError(&claims.Answer{Status: g.UnknownStatus, Body: marshalled(t, members)}) {
			t.Errorf("%s: a refusal of ours is no error of its shape: %v", g.Name, members)
		}
		for _, tt := range tenAnswers()[g.Name] {
			if tt.want == claims.Succeeded && g.IsError(tt.answer()) {
				t.Errorf("%s: a success is taken for an error: %s", g.Name, tt.body)
			}
		}
	}
}
