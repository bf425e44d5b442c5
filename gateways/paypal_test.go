package gateways

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/fence-sidecar/fence-sidecar/claims"
)

func paypal(t *testing.T) *Gateway {
	t.Helper()
	g := PayPal()
	if _, err := NewRegistry(g); err != nil {
		t.Fatal(err)
	}
	return g
}

func paypalErrorText(name, issues string) string {
	var details []string
	for issue := range strings.FieldsSeq(issues) {
		details = append(details, `{"issue":"`+issue+`"}`)
	}
	return `{"name":"` + name + `","message":"m","debug_id":"d","details":[` + strings.Join(details, ",") + `]}`
}

func paypalOrder(status, inside string) string {
	return `{"id":"O1","status":"` + status + `","purchase_units":[{"amount":{"currency_code":"USD","value":"10.00"},` +
		`"payments":{` + inside + `}}]}`
}

func paypalPayments(kind, status string, more ...string) string {
	list := `{"id":"P1","status":"` + status + `","amount":{"currency_code":"USD","value":"10.00"}}`
	return `"` + kind + `":[` + strings.Join(append([]string{list}, more...), ",") + `]`
}

func paypalBatch(status string, items ...string) string {
	for i := range items {
		items[i] = `{"transaction_status":"` + items[i] + `"}`
	}
	return `{"batch_header":{"payout_batch_id":"B1","batch_status":"` + status + `"},"items":[` + strings.Join(items, ",") + `]}`
}

func TestClassifyPayPal(t *testing.T) {
	g := paypal(t)
	const create, capture, authorize = "orders_create", "orders_capture", "orders_authorize"
	yes := func(payment, object string) Class {
		return Class{Outcome: claims.Succeeded, Payment: payment, Object: object}
	}
	no, refused, unknown := Class{Outcome: claims.Declined}, Class{Outcome: claims.NotExecuted, Refused: true}, Class{}
	inUse, transient := Class{InUse: true}, Class{Transient: true}
	issue := func(issues string) string { return paypalErrorText("UNPROCESSABLE_ENTITY", issues) }
	for _, tt := range []struct {
		route  string
		status int
		body   string
		want   Class
	}{
		{create, 201, `{"id":"O1","status":"CREATED"}`, yes("pending", "O1")},
		{create, 200, `{"id":"O1","status":"APPROVED"}`, yes("pending", "O1")},
		{create, 201, `{"id":"O1","status":"PAYER_ACTION_REQUIRED"}`, yes("pending", "O1")},
		{create, 200, `{"id":"O1","status":"VOIDED"}`, yes("reversed", "O1")},
		{create, 201, `{"id":"O1","status":"COMPLETED"}`, yes("pending", "O1")},
		{create, 201, `{"status":"CREATED"}`, unknown},
		{create, 201, `{"id":"O1","status":"NEW"}`, unknown},
		{create, 201, paypalOrder("COMPLETED", paypalPayments("captures", "COMPLETED")), yes("done", "O1")},
		{create, 201, paypalOrder("COMPLETED", paypalPayments("captures", "DECLINED")), no},
		{create, 201, paypalOrder("COMPLETED", paypalPayments("authorizations", "CREATED")), yes("pending", "O1")},
		{create, 201, paypalOrder("COMPLETED", paypalPayments("authorizations", "DENIED")), no},
		{create, 200, paypalOrder("COMPLETED", paypalPayments("authorizations", "CAPTURED")+","+paypalPayments("captures", "DECLINED")),
			yes("done", "O1")},
		{capture, 201, paypalOrder("COMPLETED", paypalPayments("captures", "PENDING")), yes("pending", "O1")},
		{capture, 200, paypalOrder("COMPLETED", paypalPayments("captures", "REFUNDED")), yes("reversed", "O1")},
		{capture, 200, paypalOrder("COMPLETED", paypalPayments("captures", "PARTIALLY_REFUNDED")), yes("done", "O1")},
		{capture, 201, paypalOrder("COMPLETED", paypalPayments("captures", "FAILED")), no},
		{capture, 201, paypalOrder("COMPLETED", paypalPayments("captures", "DECLINED", `{"status":"COMPLETED"}`)), yes("pending", "O1")},
		{capture, 201, strings.Replace(paypalOrder("COMPLETED", paypalPayments("captures", "DECLINED")), `[{"amount"`,
			`[{"payments":{"captures":[{"status":"DECLINED"}]}},{"amount"`, 1), yes("pending", "O1")},
		{capture, 201, paypalOrder("APPROVED", ""), unknown},
		{capture, 201, paypalOrder("PAYER_ACTION_REQUIRED", ""), unknown},
		{authorize, 201, paypalOrder("COMPLETED", paypalPayments("authorizations", "PENDING")), yes("pending", "O1")},
		{authorize, 200, paypalOrder("COMPLETED", paypalPayments("authorizations", "VOIDED")), yes("reversed", "O1")},
		{authorize, 201, paypalOrder("COMPLETED", paypalPayments("authorizations", "DENIED")), no},
		{"authorizations_capture", 201, `{"id":"C1","status":"COMPLETED"}`, yes("done", "C1")},
		{"authorizations_capture", 201, `{"id":"C1","status":"PENDING"}`, yes("pending", "C1")},
		{"authorizations_capture", 201, `{"id":"C1","status":"DECLINED"}`, no},
		{"authorizations_reauthorize", 201, `{"id":"A2","status":"CREATED"}`, yes("pending", "A2")},
		{"authorizations_reauthorize", 201, `{"id":"A2","status":"DENIED"}`, no},
		{"authorizations_void", 204, "", yes("done", "")},
		{"authorizations_void", 200, `{"id":"A1","status":"VOIDED"}`, yes("done", "A1")},
		{"authorizations_void", 200, `{"id":"A1","status":"CREATED"}`, unknown},
		{"authorizations_void", 422, issue("PREVIOUSLY_VOIDED"), unknown},
		{"authorizations_void", 422, issue("CANNOT_BE_VOIDED"), refused},
		{"captures_refund", 201, `{"id":"R1","status":"COMPLETED"}`, yes("done", "R1")},
		{"captures_refund", 201, `{"id":"R1","status":"PENDING"}`, yes("pending", "R1")},
		{"captures_refund", 200, `{"id":"R1","status":"CANCELLED"}`, yes("reversed", "R1")},
		{"captures_refund", 201, `{"id":"R1","status":"FAILED"}`, no},
		{"captures_refund", 409, paypalErrorText("RESOURCE_CONFLICT", "PREVIOUS_REQUEST_IN_PROGRESS"), inUse},
		{"captures_refund", 422, issue("CAPTURE_FULLY_REFUNDED"), unknown},
		{"captures_refund", 422, issue("REFUND_AMOUNT_EXCEEDED"), unknown},
		{"captures_refund", 422, issue("REFUND_FAILED_INSUFFICIENT_FUNDS"), no},
		{"payouts_create", 201, paypalBatch("PENDING"), yes("pending", "B1")},
		{"payouts_create", 200, paypalBatch("DENIED"), yes("failed", "B1")},
		{"payouts_create", 200, paypalBatch("SUCCESS"), yes("done", "B1")},
		{"payouts_create", 200, paypalBatch("SUCCESS", "UNCLAIMED"), yes("pending", "B1")},
		{"payouts_create", 200, paypalBatch("SUCCESS", "RETURNED"), yes("reversed", "B1")},
		{"payouts_create", 200, paypalBatch("SUCCESS", "RETURNED", "SUCCESS"), yes("done", "B1")},
		{"payouts_create", 201, `{"batch_header":{"batch_status":"PENDING"}}`, unknown},
		{"payouts_create", 400, paypalErrorText("USER_BUSINESS_ERROR", "X"), unknown},
		{"payouts_create", 400, paypalErrorText("VALIDATION_ERROR", "X"), refused},
		{"payouts_create", 403, paypalErrorText("SENDER_EMAIL_UNCONFIRMED", ""), refused},
		{"payouts_item_cancel", 200, `{"payout_item_id":"I1","transaction_status":"RETURNED"}`, yes("done", "I1")},
		{"payouts_item_cancel", 200, `{"payout_item_id":"I1","transaction_status":"SUCCESS"}`, unknown},
		{capture, 400, paypalErrorText("INVALID_REQUEST", "INVALID_PARAMETER_VALUE"), refused},
		{capture, 400, paypalErrorText("DUPLICATE_REQUEST_ID", ""), unknown},
		{capture, 400, "<html>", unknown},
		{capture, 401, paypalErrorText("AUTHENTICATION_FAILURE", ""), refused},
		{capture, 401, `{"error":"invalid_token","error_description":"x"}`, refused},
		{capture, 401, `{"message":"gate"}`, unknown},
		{capture, 403, paypalErrorText("NOT_AUTHORIZED", "PERMISSION_DENIED"), refused},
		{capture, 403, "", unknown},
		{capture, 404, paypalErrorText("RESOURCE_NOT_FOUND", "INVALID_RESOURCE_ID"), refused},
		{capture, 404, `{"error":"no such page"}`, unknown},
		{capture, 409, "", unknown},
		{capture, 422, issue("INSTRUMENT_DECLINED"), no},
		{capture, 422, issue("PAYER_CANNOT_PAY"), no},
		{capture, 422, issue("TRANSACTION_REFUSED"), no},
		{create, 422, issue("PAYMENT_SOURCE_DECLINED_BY_PROCESSOR"), no},
		{create, 422, issue("DECIMAL_PRECISION"), refused},
		{capture, 422, issue("ORDER_NOT_APPROVED"), refused},
		{capture, 422, issue("ORDER_ALREADY_CAPTURED"), unknown},
		{authorize, 422, issue("ORDER_ALREADY_AUTHORIZED"), unknown},
		{create, 422, issue("DUPLICATE_INVOICE_ID"), unknown},
		{capture, 422, issue("DUPLICATE_TRANSACTION"), unknown},
		{capture, 422, issue("ORDER_COMPLETION_IN_PROGRESS"), inUse},
		{capture, 422, issue("INSTRUMENT_DECLINED ORDER_ALREADY_CAPTURED"), unknown},
		{capture, 422, issue("NEW_ISSUE"), unknown},
		{capture, 422, `{"details":[{"issue":"INSTRUMENT_DECLINED"}]}`, unknown},
		{capture, 429, paypalErrorText("RATE_LIMIT_REACHED", ""), refused},
		{capture, 429, "", unknown},
		{capture, 500, paypalErrorText("INTERNAL_SERVER_ERROR", ""), transient},
		{capture, 503, "<html>", transient},
		{capture, 408, "", unknown},
		{capture, 200, "", unknown},
		{capture, 204, "", unknown},
		{capture, 307, "", unknown},
		{"other", 204, "", yes("", "")},
		{"other", 201, `{"id":"I-1"}`, yes("", "")},
		{"other", 200, "null", unknown},
		{"other", 200, `{"name":"X","debug_id":"d"}`, unknown},
		{"v1_sale_refund", 201, `{"id":"R1","state":"completed"}`, yes("", "")},
	} {
		got := g.Classify(tt.route, reply(tt.status, tt.body))
		if got.Why = ""; got != tt.want {
			t.Errorf("%s %d %s: %+v, want %+v", tt.route, tt.status, tt.body, got, tt.want)
		}
	}
}

// What may mean that an earlier request worked is on no list; a list that had it would be seen.
func TestPayPalListsAreDefinite(t *testing.T) {
	doubtful := func(list []string) (bad []string) {
		for _, issue := range list {
			for _, word := range []string{"ALREADY", "PREVIOUSLY", "DUPLICATE_INVOICE", "DUPLICATE_TRANSACTION", "FULLY", "COUNT_EXCEEDED",
				"AMOUNT_EXCEEDED", "VOIDED", "IN_PROGRESS", "RELATED_TXN"} {
				if strings.Contains(issue, word) && issue != "CANNOT_BE_VOIDED" {
					bad = append(bad, issue)
				}
			}
		}
		return bad
	}
	for _, list := range [][]string{paypalDeclines, paypalRefusals} {
		if bad := doubtful(list); len(bad) > 0 {
			t.Errorf("%v in %v", bad, list)
		}
	}
	for _, issue := range paypalDeclines {
		if slices.Contains(paypalRefusals, issue) {
			t.Errorf("%s is a decline and a refusal", issue)
		}
	}
	if len(doubtful([]string{"ORDER_ALREADY_CAPTURED", "CARD_EXPIRED", "REFUND_AMOUNT_EXCEEDED"})) != 2 {
		t.Error("the words do not bite")
	}
}

// paypalCall is a request as the official server SDK for Python sends it: JSON, an id that it may leave out, Prefer.
func paypalCall(method, target, body string, header ...string) Inbound {
	in := Inbound{Method: method, Target: target, Body: []byte(body), Header: []claims.Field{
		{Name: "Content-Type", Value: "application/json"}, {Name: "accept", Value: "application/json"},
		{Name: "Authorization", Value: "Bearer A21AAtoken"},
	}}
	for i := 0; i+1 < len(header); i += 2 {
		in.Header = append(in.Header, claims.Field{Name: header[i], Value: header[i+1]})
	}
	return in
}

const paypalPayoutBody = `{"sender_batch_header":{"email_subject":"s"},` +
	`"items":[{"receiver":"a@b.c","amount":{"currency":"USD","value":"1.00"}}]}`

// The server SDK's requests meet the intended routes, with the key's header and the reference's field where there is one.
func TestPayPalRequests(t *testing.T) {
	g := paypal(t)
	g.Accounts = []Account{{Name: "shop"}}
	const (
		orders, auth = "/v2/checkout/orders", "/v2/payments/authorizations/0VF52814A37998046"
		refund       = "/v2/payments/captures/2GG279541U471931P/refund"
		sum          = `{"amount":{"currency_code":"USD","value":"10.99"}}`
	)
	for _, tt := range []struct {
		target, body, route string
		undo, keyed         bool
		params, stamped     string
	}{
		{orders, `{"intent":"CAPTURE","purchase_units":[` + sum + `]}`, "orders_create", false, true, "", ""},
		{orders + "/5O190127TN364715T/authorize", "", "orders_authorize", false, true, "id:5O190127TN364715T", ""},
		{orders + "/5O190127TN364715T/capture", `{}`, "orders_capture", false, true, "id:5O190127TN364715T", ""},
		{auth + "/capture", sum, "authorizations_capture", false, true, "amount:10.99 currency:USD id:0VF52814A37998046", ""},
		{auth + "/reauthorize", sum, "authorizations_reauthorize", false, true, "amount:10.99 currency:USD id:0VF52814A37998046", ""},
		{auth + "/void", "", "authorizations_void", true, false, "id:0VF52814A37998046", ""},
		{refund, sum, "captures_refund", true, true, "amount:10.99 currency:USD id:2GG279541U471931P", `{"custom_id":"`},
		{refund, "", "captures_refund", true, true, "id:2GG279541U471931P", ""},
		{"/v1/payments/payouts", paypalPayoutBody, "payouts_create", false, true, "", `{"sender_batch_header":{"sender_batch_id":"`},
		{"/v1/payments/payouts-item/8AELMXH8UB2P8/cancel", "", "payouts_item_cancel", true, false, "id:8AELMXH8UB2P8", ""},
		{"/v1/payments/sale/36C38912MN9658832/refund", "{}", "v1_sale_refund", true, false, "", ""},
		{"/v1/payments/authorization/2DC87612EK520411B/void", "", "v1_authorization_void", true, false, "", ""},
		{"/v1/billing/subscriptions/I-BW452GLLEP1G/capture", "{}", "other", false, false, "", ""},
		{orders + "/5O190127TN364715T/confirm-payment-source", "{}", "other", false, false, "", ""},
	} {
		in := paypalCall("POST", tt.target, tt.body, "PayPal-Request-Id", "the SDK's own", "Prefer", "return=minimal")
		m, ok := g.Match(in.Method, in.Target)
		if !ok || m.Route.Name != tt.route || m.Policy().Undo != tt.undo {
			t.Errorf("%s: %v", tt.target, m.Route)
			continue
		}
		c, err := m.Prepare(in, Identity{Realm: "r", Tenant: "t", CallKey: "k", Revision: 1})
		if err != nil {
			t.Errorf("%s: %v", tt.target, err)
			continue
		}
		header, raw, err := m.Stamp(in, c.Facts)
		id := values(header, "PayPal-Request-Id")
		if err != nil || len(id) != 1 || (id[0] == c.Facts.GatewayKey) != tt.keyed || tt.keyed && len(id[0]) != 64 {
			t.Errorf("%s: id %q, key %q (%v)", tt.target, id, c.Facts.GatewayKey, err)
		}
		if got := fmt.Sprint(c.Facts.Lookup); got != "map["+tt.params+"]" {
			t.Errorf("%s: parameters %s, want %s", tt.target, got, tt.params)
		}
		start := tt.stamped + c.Facts.Reference + `"`
		if tt.stamped == "" && string(raw) != tt.body || tt.stamped != "" && !strings.HasPrefix(string(raw), start) {
			t.Errorf("%s: sent %s", tt.target, raw)
		}
	}
}

// Tokens change and the account stays; with two accounts nothing could tell which is meant.
func TestPayPalTokens(t *testing.T) {
	g := PayPal()
	g.Accounts = []Account{{Name: "shop", OAuth2: &OAuth2{
		TokenPath: "/v1/oauth2/token", ClientID: Secret{Env: "ID"}, ClientSecret: Secret{Env: "SECRET"},
	}}}
	if err := g.Validate(); err != nil {
		t.Fatal(err)
	}
	forms := map[string]bool{}
	for _, header := range [][]string{{"Authorization", "Bearer one"}, {"Authorization", "Bearer two"}} {
		in := paypalCall("POST", "/v2/checkout/orders/O1/capture", "")
		in.Header = append(in.Header[:2], claims.Field{Name: header[0], Value: header[1]})
		m, _ := g.Match(in.Method, in.Target)
		c, err := m.Prepare(in, Identity{Realm: "r", Tenant: "t", CallKey: "k", Revision: 1})
		if err != nil || c.Facts.Account != "shop" {
			t.Fatalf("%+v %v", c.Facts, err)
		}
		forms[string(c.Canonical)] = true
	}
	if len(forms) != 1 {
		t.Error("a fresh token made another call")
	}
	g.Accounts = append(g.Accounts, Account{Name: "other"})
	if g.Validate() == nil {
		t.Error("two accounts were taken")
	}
}

func TestPayPalPasses(t *testing.T) {
	g := paypal(t)
	for _, r := range g.Routes {
		pass := slices.Contains([]string{"oauth2_token", "oauth2_token_terminate", "verify_webhook_signature"}, r.Name)
		if (r.Untagged == UntaggedPass) != pass {
			t.Errorf("%s: untagged %q", r.Name, r.Untagged)
		}
	}
	for target, want := range map[string]string{
		"/v1/oauth2/token": "oauth2_token", "/v1/oauth2/token/terminate": "oauth2_token_terminate", "/v1/oauth2/token/x": "other",
		"/v1/notifications/verify-webhook-signature": "verify_webhook_signature", "/v1/notifications/webhooks": "other",
	} {
		if m, ok := g.Match("POST", target); !ok || m.Route.Name != want || !m.Route.Keyless {
			t.Errorf("%s: %+v", target, m.Route)
		}
	}
	if m, _ := g.Match("POST", "/v2/checkout/orders/O1/%63apture"); m.Flaw() == "" {
		t.Error("another spelling of a capture passes as a keyless call")
	}
}
