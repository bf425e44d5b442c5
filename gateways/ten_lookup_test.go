package gateways

import (
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/fence-sidecar/fence-sidecar/claims"
)

// tenLookup is one lookup: where it asks and what it makes of an answer. In page, REF, 10.00, 1000 and EUR are the call's.
type tenLookup struct {
	g       *Gateway
	route   string
	target  string // with the reference REF
	page    string
	want    claims.FindingKind
	payment string
}

// tenPages wrap an item as each gateway's list does.
func sqList(status, amount string) string {
	return `{"payments":[{"id":"p1","reference_id":"REF","status":"` + status + `","amount_money":{"amount":` + amount + `,"currency":"EUR"}}]}`
}

func moList(items, resource, status, amount string) string {
	return `{"count":1,"_embedded":{"` + items + `":[{"resource":"` + resource + `","id":"x_1","status":"` + status + `","metadata":{"fence_ref":"REF"},` +
		`"amount":{"value":"` + amount + `","currency":"EUR"}}]},"_links":{"next":null}}`
}

func rzList(entity, status, amount string) string {
	return `{"entity":"collection","count":1,"items":[{"id":"x_1","entity":"` + entity + `","receipt":"REF","notes":{"fence_ref":"REF"},"status":"` + status +
		`","amount":` + amount + `,"currency":"EUR"},{"id":"x_2","entity":"` + entity + `","receipt":null,"notes":[],"amount":5}]}`
}

func rzPayment(status, amount string) string {
	return `{"id":"pay_1","entity":"payment","status":"` + status + `","amount":` + amount + `,"currency":"EUR"}`
}

func wpList(last, amount string) string {
	return `{"_embedded":{"payments":[{"paymentId":"pay1","transactionReference":"REF","lastEvent":"` + last + `","value":{"currency":"EUR","amount":` + amount + `}}]}}`
}

func awList(status, amount string) string {
	return `{"has_more":false,"items":[{"id":"int_1","merchant_order_id":"REF","status":"` + status + `","amount":` + amount + `,"currency":"EUR"}]}`
}

func mpList(status, amount string) string {
	return `{"paging":{"total":1},"results":[{"id":77,"external_reference":"REF","status":"` + status + `","transaction_amount":` + amount + `,"currency_id":"EUR"}]}`
}

func psVerify(reference, status, amount string) string {
	return `{"status":true,"message":"x","data":{"reference":"` + reference + `","status":"` + status + `","amount":` + amount + `,"currency":"EUR"}}`
}

// inLookups are Increase's: each kind of transfer is listed by its key.
func inLookups() (out []tenLookup) {
	for kind, good := range map[string]string{
		"account_transfer": "complete", "ach_transfer": "submitted", "wire_transfer": "complete", "check_transfer": "deposited",
		"real_time_payments_transfer": "complete", "fednow_transfer": "complete", "card_push_transfer": "complete", "swift_transfer": "initiated",
	} {
		item := func(key, status, amount string) string {
			return `{"data":[{"id":"t1","type":"` + kind + `","idempotency_key":"` + key + `","status":"` + status + `","amount":` + amount + `}],"next_cursor":null}`
		}
		pay := map[bool]string{true: "done", false: "pending"}[good == "complete" || good == "deposited"]
		add := func(page string, want claims.FindingKind, payment string) {
			out = append(out, tenLookup{Increase(), kind + "s_create", "/" + kind + "s?idempotency_key=KEY", page, want, payment})
		}
		add(item("KEY", good, "1000"), claims.FoundDone, pay)
		add(item("KEY", good, "999"), claims.Contradiction, "")
		add(item("KEY", "canceled", "1000"), claims.CouldNotTell, "")
		add(item("OTHER", good, "1000"), claims.Missed, "")
		add(`{"data":[],"next_cursor":null}`, claims.Missed, "")
	}
	return out
}

func tenLookups() []tenLookup {
	const (
		done, failed, missed, cannot, contra = claims.FoundDone, claims.FoundFailed, claims.Missed, claims.CouldNotTell,
			claims.Contradiction
		sq     = "/v2/payments?begin_time=2026-03-01T11:50:00Z&location_id=L1&total=1000&limit=100"
		mo     = "/v2/payments?limit=250"
		wp     = "/paymentQueries/payments?transactionReference=REF"
		aw     = "/api/v1/pa/payment_intents?merchant_order_id=REF"
		mp     = "/v1/payments/search?external_reference=REF&sort=date_created&criteria=desc"
		ps, tr = "/transaction/verify/REF", "/transfer/verify/REF"
	)
	return append(inLookups(), []tenLookup{
		{Square(), "payments_create", sq, sqList("COMPLETED", "1000"), done, "done"},
		{Square(), "payments_create", sq, sqList("APPROVED", "1000"), done, "pending"},
		{Square(), "payments_create", sq, sqList("FAILED", "1000"), failed, "failed"},
		{Square(), "payments_create", sq, sqList("CANCELED", "1000"), cannot, ""},
		{Square(), "payments_create", sq, sqList("COMPLETED", "1001"), contra, ""},
		{Square(), "payments_create", sq, strings.Replace(sqList("COMPLETED", "1000"), "{", `{"cursor":"more",`, 1), cannot, ""},
		{Square(), "payments_create", sq, `{"payments":[]}`, missed, ""},
		{Square(), "payments_create", sq, `{}`, cannot, ""},
		{Square(), "payments_complete", "/v2/payments/x1", `{"payment":{"id":"x1","status":"COMPLETED"}}`, done, "done"},
		{Square(), "payments_complete", "/v2/payments/x1", `{"payment":{"id":"x1","status":"APPROVED"}}`, missed, ""},
		{Square(), "payments_complete", "/v2/payments/x1", `{"payment":{"id":"x2","status":"COMPLETED"}}`, cannot, ""},
		{Square(), "payments_cancel", "/v2/payments/x1", `{"payment":{"id":"x1","status":"CANCELED"}}`, done, "done"},
		{Square(), "payments_cancel", "/v2/payments/x1", `{"payment":{"id":"x1","status":"COMPLETED"}}`, cannot, ""},
		{Mollie(), "payments_create", mo, moList("payments", "payment", "paid", "10.00"), done, "done"},
		{Mollie(), "payments_create", mo, moList("payments", "payment", "open", "10.0"), done, "pending"},
		{Mollie(), "payments_create", mo, moList("payments", "payment", "failed", "10.00"), failed, "failed"},
		{Mollie(), "payments_create", mo, moList("payments", "payment", "expired", "10.00"), cannot, ""},
		{Mollie(), "payments_create", mo, moList("payments", "payment", "paid", "10.01"), contra, ""},
		{Mollie(), "payments_create", mo, `{"count":0,"_embedded":{"payments":[]}}`, missed, ""},
		{Mollie(), "refunds_create", "/v2/payments/x1/refunds?limit=250", moList("refunds", "refund", "refunded", "10.00"),
			done, "done"},
		{Mollie(), "refunds_create", "/v2/payments/x1/refunds?limit=250", moList("refunds", "refund", "canceled", "10.00"),
			cannot, ""},
		{Mollie(), "payments_cancel", "/v2/payments/x1", `{"resource":"payment","id":"x1","status":"canceled"}`, done, "done"},
		{Mollie(), "payments_cancel", "/v2/payments/x1", `{"resource":"payment","id":"x1","status":"paid"}`, cannot, ""},
		{Razorpay(), "orders_create", "/v1/orders?receipt=REF", rzList("order", "attempted", "1000"), done, ""},
		{Razorpay(), "orders_create", "/v1/orders?receipt=REF", rzList("order", "created", "999"), contra, ""},
		{Razorpay(), "payments_capture", "/v1/payments/pay_1", rzPayment("captured", "1000"), done, "done"},
		{Razorpay(), "payments_capture", "/v1/payments/pay_1", rzPayment("captured", "999"), contra, ""},
		{Razorpay(), "payments_capture", "/v1/payments/pay_1", rzPayment("authorized", "1000"), missed, ""},
		{Razorpay(), "payments_capture", "/v1/payments/pay_1", rzPayment("failed", "1000"), cannot, ""},
		{Razorpay(), "payments_refund", "/v1/payments/pay_1/refunds?count=100", rzList("refund", "processed", "1000"), done, "done"},
		{Razorpay(), "payments_refund", "/v1/payments/pay_1/refunds?count=100", rzList("refund", "failed", "1000"), failed, "failed"},
		{Razorpay(), "payments_recurring", "/v1/orders/order_1/payments", rzList("payment", "captured", "1000"), done, "done"},
		{Razorpay(), "payments_recurring", "/v1/orders/order_1/payments", rzList("payment", "failed", "1000"), cannot, ""},
		{Worldpay(), "payments_create", wp, wpList("authorizationSucceeded", "1000"), done, "pending"},
		{Worldpay(), "customer_initiated_create", wp, wpList("saleSucceeded", "1000"), done, "pending"},
		{Worldpay(), "payments_create", wp, wpList("authorizationRefused", "1000"), cannot, ""},
		{Worldpay(), "payments_create", wp, wpList("", "1000"), cannot, ""},
		{Worldpay(), "payments_create", wp, wpList("authorizationSucceeded", "1"), contra, ""},
		{Worldpay(), "payments_create", wp, `{"_embedded":{"payments":[]}}`, missed, ""},
		{Airwallex(), "payment_intents_create", aw, awList("SUCCEEDED", "10.00"), done, "done"},
		{Airwallex(), "payment_intents_create", aw, awList("REQUIRES_PAYMENT_METHOD", "10"), done, "pending"},
		{Airwallex(), "payment_intents_create", aw, awList("CANCELLED", "10.00"), cannot, ""},
		{Airwallex(), "payment_intents_create", aw, awList("SUCCEEDED", "1000"), contra, ""},
		{Airwallex(), "payment_intents_confirm", "/api/v1/pa/payment_intents/x1", `{"id":"x1","status":"REQUIRES_CAPTURE"}`,
			done, "pending"},
		{Airwallex(), "payment_intents_confirm", "/api/v1/pa/payment_intents/x1",
			`{"id":"x1","status":"REQUIRES_PAYMENT_METHOD"}`, cannot, ""},
		{Airwallex(), "payment_intents_cancel", "/api/v1/pa/payment_intents/x1", `{"id":"x1","status":"CANCELLED"}`, done, "done"},
		{MercadoPago(), "payments_create", mp, mpList("approved", "10"), done, "done"},
		{MercadoPago(), "payments_create", mp, mpList("in_process", "10.0"), done, "pending"},
		{MercadoPago(), "payments_create", mp, mpList("rejected", "10.00"), failed, "failed"},
		{MercadoPago(), "payments_create", mp, mpList("refunded", "10.00"), cannot, ""},
		{MercadoPago(), "payments_create", mp, mpList("approved", "10.01"), contra, ""},
		{MercadoPago(), "orders_process", "/v1/orders/x1", `{"id":"x1","status":"processed"}`, done, "done"},
		{MercadoPago(), "orders_process", "/v1/orders/x1", `{"id":"x1","status":"failed"}`, cannot, ""},
		{Paystack(), "charge_authorization", ps, psVerify("REF", "success", "1000"), done, "done"},
		{Paystack(), "charge_authorization", ps, psVerify("REF", "send_otp", "1000"), done, "pending"},
		{Paystack(), "charge_authorization", ps, psVerify("REF", "failed", "1000"), failed, "failed"},
		{Paystack(), "charge_authorization", ps, psVerify("REF", "abandoned", "1000"), cannot, ""},
		{Paystack(), "charge_authorization", ps, psVerify("REF", "reversed", "1000"), cannot, ""},
		{Paystack(), "charge_authorization", ps, psVerify("OTHER", "success", "1000"), cannot, ""},
		{Paystack(), "charge_authorization", ps, psVerify("REF", "success", "999"), contra, ""},
		{Paystack(), "partial_debit", ps, psVerify("REF", "success", "999"), done, "done"},
		{Paystack(), "transaction_initialize", ps, psVerify("REF", "abandoned", "1000"), done, "pending"},
		{Paystack(), "transfers_create", tr, psVerify("REF", "success", "1000"), done, "done"},
		{Paystack(), "transfers_create", tr, psVerify("REF", "failed", "1000"), cannot, ""},
		{Paystack(), "charge_submit", "/transaction/verify/x1", psVerify("x1", "success", "1000"), done, "done"},
		{Paystack(), "charge_submit", "/transaction/verify/x1", psVerify("x1", "pending", "1000"), cannot, ""},
	}...)
}

// tenFacts are what a call of the route kept.
func tenFacts(g *Gateway, route string) claims.Facts {
	minor := g.Name == "square" || g.Name == "razorpay" || g.Name == "worldpay" || g.Name == "paystack" || g.Name == "increase"
	f := claims.Facts{Gateway: g.Name, Route: route, GatewayKey: "KEY", Reference: "REF", Lookup: map[string]string{}}
	for name := range g.route(route).Params {
		v := map[string]string{"amount": "10.00", "currency": "eur", "location": "L1", "order": "order_1", "customer": "cst_1",
			"id": "x1"}[name]
		if minor && name == "amount" {
			v = "1000"
		}
		if g.Name == "razorpay" && name == "id" {
			v = "pay_1"
		}
		f.Lookup[name] = v
	}
	return f
}

func TestTenLookups(t *testing.T) {
	seen := map[string]bool{}
	for _, tt := range tenLookups() {
		g := tenValid(t, tt.g)
		name := fmt.Sprintf("%s.%s %.100s", g.Name, tt.route, tt.page)
		seen[g.Name+"."+tt.route] = true
		s := &script{t: t, pages: []string{tt.page}, date: later}
		f, err := g.AskAt(t.Context(), tenFacts(g, tt.route), begun, asked, s.ask)
		if err != nil || f.Kind != tt.want || f.Payment != tt.payment {
			t.Errorf("%s: %s %q (%s) %v, want %s %q", name, f.Kind, f.Payment, f.Reason, err, tt.want, tt.payment)
		}
		if got, err := url.QueryUnescape(s.asked[0]); err != nil || got != tt.target {
			t.Errorf("%s: asked %s, want %s", name, got, tt.target)
		}
		if f.Kind == claims.FoundDone && f.Answer != nil {
			if c := g.Classify(tt.route, f.Answer); c.Outcome != claims.Succeeded {
				t.Errorf("%s: the answer that was made is %+v", name, c)
			}
		}
	}
	for _, declared := range ten {
		g := tenValid(t, declared())
		for _, r := range g.Routes {
			key := g.Name + "." + r.Name
			if r.Lookup != nil && !seen[key] && key != "mollie.customer_payments_create" && key != "worldpay.merchant_initiated_create" &&
				key != "paystack.charges_create" && key != "mercadopago.orders_capture" && key != "mercadopago.orders_cancel" &&
				key != "mercadopago.orders_refund" && key != "mercadopago.payments_update" {
				t.Errorf("%s: its lookup is not tried", key)
			}
		}
	}
}

// TestTenLookupFaults: whatever goes wrong on the way, nothing is found and nothing missed.
func TestTenLookupFaults(t *testing.T) {
	for _, tt := range tenLookups() {
		if tt.want == claims.CouldNotTell {
			continue
		}
		g := tenValid(t, tt.g)
		for name, mod := range map[string]func(*claims.Answer){
			"cut":   func(a *claims.Answer) { a.Body = a.Body[:len(a.Body)/2] },
			"500":   func(a *claims.Answer) { a.Status = 500 },
			"404":   func(a *claims.Answer) { a.Status = 404 },
			"empty": func(a *claims.Answer) { a.Body = nil },
			"no JSON object": func(a *claims.Answer) {
				a.Body = []byte("[]")
			},
		} {
			s := &script{t: t, pages: []string{tt.page}, date: later, mod: mod}
			if f, err := g.AskAt(t.Context(), tenFacts(g, tt.route), begun, asked, s.ask); err != nil || f.Kind != claims.CouldNotTell {
				t.Errorf("%s.%s, %s: %s (%s) %v", g.Name, tt.route, name, f.Kind, f.Reason, err)
			}
		}
	}
}

// TestTenPolls: where an object's id is known, it is what is read.
func TestTenPolls(t *testing.T) {
	for _, tt := range []struct {
		g                     *Gateway
		route, target, object string
		payment               string
	}{
		{Square(), "payments_create", "/v2/payments/p1",
			`{"payment":{"id":"p1","reference_id":"REF","status":"COMPLETED","amount_money":{"amount":1000,"currency":"EUR"}}}`,
			"done"},
		{Mollie(), "payments_create", "/v2/payments/p1",
			`{"resource":"payment","id":"p1","status":"paid","metadata":{"fence_ref":"REF"},"amount":{"value":"10.00","currency":"EUR"}}`, "done"},
		{Worldpay(), "payments_create", "/paymentQueries/payments/p1",
			`{"paymentId":"p1","transactionReference":"REF","lastEvent":"saleSucceeded","value":{"amount":1000,"currency":"EUR"}}`, "pending"},
		{Airwallex(), "payment_intents_create", "/api/v1/pa/payment_intents/p1",
			`{"id":"p1","merchant_order_id":"REF","status":"SUCCEEDED","amount":10,"currency":"EUR"}`, "done"},
		{MercadoPago(), "payments_create", "/v1/payments/p1",
			`{"id":"p1","external_reference":"REF","status":"approved","transaction_amount":10}`, "done"},
	} {
		g := tenValid(t, tt.g)
		s := &script{t: t, pages: []string{tt.object}, date: later}
		f, err := g.AskAt(t.Context(), WithObject(tenFacts(g, tt.route), "p1"), begun, asked, s.ask)
		if err != nil || f.Kind != claims.FoundDone || f.Payment != tt.payment || f.Object != "p1" || s.asked[0] != tt.target {
			t.Errorf("%s: %+v %v, asked %v", g.Name, f, err, s.asked)
		}
		other := strings.Replace(tt.object, `"REF"`, `"OTHER"`, 1)
		s = &script{t: t, pages: []string{other}, date: later}
		if f, _ := g.AskAt(t.Context(), WithObject(tenFacts(g, tt.route), "p1"), begun, asked, s.ask); f.Kind != claims.Contradiction {
			t.Errorf("%s: an object of another call: %+v", g.Name, f)
		}
	}
}

// TestMercadoPagoUpdate: what is found is read by what the call asked for.
func TestMercadoPagoUpdate(t *testing.T) {
	for _, tt := range []struct {
		status, capture, amount, found string
		want                           claims.FindingKind
	}{
		{"", "true", "", "approved", claims.FoundDone},
		{"", "true", "", "authorized", claims.Missed},
		{"", "true", "5.00", "approved", claims.CouldNotTell},
		{"cancelled", "", "", "cancelled", claims.FoundDone},
		{"cancelled", "", "", "authorized", claims.Missed},
		{"cancelled", "", "", "approved", claims.CouldNotTell},
		{"cancelled", "true", "", "cancelled", claims.CouldNotTell},
		{"", "", "", "approved", claims.CouldNotTell},
	} {
		g := tenValid(t, MercadoPago())
		f := claims.Facts{Gateway: g.Name, Route: "payments_update", Lookup: map[string]string{"id": "7", "status": tt.status,
			"capture": tt.capture, "amount": tt.amount}}
		s := &script{t: t, pages: []string{`{"id":7,"status":"` + tt.found + `","transaction_amount":10}`}, date: later}
		if got, err := g.AskAt(t.Context(), f, begun, asked, s.ask); err != nil || got.Kind != tt.want {
			t.Errorf("%+v: %+v %v", tt, got, err)
		}
	}
}
