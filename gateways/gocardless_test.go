package gateways

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fence-sidecar/fence-sidecar/claims"
)

func goCardless(t testing.TB) *Gateway {
	t.Helper()
	g := GoCardless()
	if _, err := NewRegistry(g); err != nil {
		t.Fatal(err)
	}
	return g
}

// TestGoCardlessRoutes: the POSTs of the official SDKs that move money or take it back, and what they may do.
func TestGoCardlessRoutes(t *testing.T) {
	g := goCardless(t)
	for _, tt := range []struct {
		target, route     string
		undo, probe, keys bool
	}{
		{"/payments", "payments_create", false, true, true},
		{"/payments/PM1/actions/cancel", "payments_cancel", true, false, true},
		{"/payments/PM1/actions/retry", "payments_retry", false, false, true},
		{"/refunds", "refunds_create", true, true, true},
		{"/subscriptions", "subscriptions_create", false, true, true},
		{"/subscriptions/SB1/actions/cancel", "subscriptions_cancel", true, false, true},
		{"/instalment_schedules", "instalment_schedules_create", false, true, true},
		{"/instalment_schedules/create_with_dates", "instalment_schedules_create", false, true, true},
		{"/instalment_schedules/create_with_schedule", "instalment_schedules_create", false, true, true},
		{"/instalment_schedules/IS1/actions/cancel", "instalment_schedules_cancel", true, false, true},
		{"/billing_requests", "create", false, true, true},
		{"/billing_requests/BRQ1/actions/fulfil", "billing_requests_fulfil", false, false, true},
		{"/billing_requests/BRQ1/actions/cancel", "billing_requests_cancel", true, false, true},
		{"/billing_requests/create_with_actions", "other", false, false, false},
		{"/outbound_payments", "outbound_payments_create", false, true, true},
		{"/outbound_payments/withdrawal", "outbound_payments_withdraw", false, false, true},
		{"/outbound_payments/OUT1/actions/cancel", "outbound_payments_cancel", true, false, true},
		{"/outbound_payments/OUT1/actions/approve", "outbound_payments_approve", false, false, true},
		{"/mandates", "create", false, true, true},
		{"/mandates/MD1/actions/cancel", "mandates_cancel", true, false, true},
		{"/mandates/MD1/actions/reinstate", "other", false, false, false},
		{"/scenario_simulators/payment_paid_out/actions/run", "other", false, false, false},
	} {
		m, ok := g.Match("POST", tt.target)
		if !ok || m.Route.Name != tt.route || m.Policy().Undo != tt.undo || m.Route.Probe != tt.probe || (g.key(m.Route) != nil) != tt.keys {
			t.Errorf("%s: %v %+v", tt.target, ok, m.Route)
		}
		if rules := g.LookupRules(tt.route); rules.Proves || rules.FirstStored {
			t.Errorf("%s: %+v: nothing that is not found proves anything", tt.route, rules)
		}
	}
	for _, method := range []string{"PUT", "DELETE"} {
		if m, ok := g.Match(method, "/subscriptions/SB1"); !ok || m.Route.Name != "other" || g.key(m.Route) != nil {
			t.Errorf("%s: %v %+v", method, ok, m.Route)
		}
	}
}

// goPayment is a payment as the official Go SDK sends it.
func goPayment(key string) Inbound {
	return Inbound{Method: "POST", Target: "/payments", Header: []claims.Field{
		{Name: "Authorization", Value: "Bearer sandbox_x"}, {Name: "GoCardless-Version", Value: "2015-07-06"},
		{Name: "GoCardless-Client-Library", Value: "gocardless-pro-go"}, {Name: "Content-Type", Value: "application/json"},
		{Name: "Idempotency-Key", Value: key},
	}, Body: []byte(`{"payments":{"amount":1000,"charge_date":"2026-05-19","currency":"GBP","links":{"mandate":"MD123"},"metadata":{"order":"1"}}}` + "\n")}
}

// TestGoCardlessSDKRequests: what the SDKs make up counts for nothing, our key and reference are written, the rest passes.
func TestGoCardlessSDKRequests(t *testing.T) {
	g := goCardless(t)
	g.CallKey = GoCardlessCallKey()
	if err := g.Validate(); err != nil {
		t.Fatal(err)
	}
	first, second := goPayment("1764537000123456789-AbCdEfGhIjKlMn"), goPayment("0f8fad5b-d9cb-469f-a165-70867728950e")
	m, _ := g.Match("POST", "/payments")
	for _, in := range []Inbound{first, second} {
		if key, err := m.CallKey(in); err == nil {
			t.Errorf("a made-up key counts: %q", key)
		}
	}
	if key, err := m.CallKey(goPayment("order-1")); key != "order-1" || err != nil {
		t.Errorf("%q %v", key, err)
	}
	a, b := prepare(t, g, first), prepare(t, g, second)
	if string(a.Canonical) != string(b.Canonical) {
		t.Error("another made-up key is another call")
	}
	want := map[string]string{"amount": "1000", "currency": "GBP", "mandate": "MD123"}
	if fmt.Sprint(a.Facts.Lookup) != fmt.Sprint(want) {
		t.Errorf("%v, want %v", a.Facts.Lookup, want)
	}
	header, raw, err := m.Stamp(first, a.Facts)
	if err != nil || strings.Join(values(header, "Idempotency-Key"), " ") != a.Facts.GatewayKey || len(a.Facts.GatewayKey) > 128 {
		t.Errorf("%v %v", header, err)
	}
	if at := TextAt(raw, "/payments/metadata/fence_ref"); at != a.Facts.Reference || at == "" || TextAt(raw, "/payments/metadata/order") != "1" {
		t.Errorf("%s", raw)
	}
}

// TestGoCardlessSigned: a signed body passes as it is, under our key.
func TestGoCardlessSigned(t *testing.T) {
	g := goCardless(t)
	in := goPayment("k")
	in.Target, in.Body = "/outbound_payments", []byte(`{"outbound_payments":{"amount":5}}`)
	in.Header = append(in.Header, claims.Field{Name: "Content-Digest", Value: "sha256=:x:"}, claims.Field{Name: "Gc-Signature", Value: "sig-1=:x:"})
	m, _ := g.Match("POST", in.Target)
	c := prepare(t, g, in)
	header, raw, err := m.Stamp(in, c.Facts)
	if err != nil || string(raw) != string(in.Body) || c.Facts.Reference != "" || values(header, "Idempotency-Key")[0] != c.Facts.GatewayKey {
		t.Errorf("%v %s %+v", err, raw, c.Facts)
	}
}

// TestGoCardlessActionBody: the Python SDK sends null with an action that has no parameters.
func TestGoCardlessActionBody(t *testing.T) {
	in := goPayment("k")
	in.Target, in.Body = "/payments/PM1/actions/cancel", []byte("null")
	c := prepare(t, goCardless(t), in)
	if fmt.Sprint(c.Facts.Lookup) != "map[id:PM1]" || c.Effect != EffectUndo {
		t.Errorf("%+v", c)
	}
}

func gcErr(kind, reason, links string) string {
	return fmt.Sprintf(`{"error":{"type":%q,"code":1,"message":"m","errors":[{"reason":%q,"message":"m","links":{%s}}]}}`, kind, reason, links)
}

func TestGoCardlessAnswers(t *testing.T) {
	const pay, cancel = "payments_create", "payments_cancel"
	made := `{"payments":{"id":"PM1","status":"pending_submission","amount":1}}`
	conflict := gcErr("invalid_state", "idempotent_creation_conflict", `"conflicting_resource_id":"PM1"`)
	second := `{"error":{"type":"invalid_state","errors":[{"reason":"x"},{"reason":"idempotent_creation_conflict","links":{"conflicting_resource_id":"PM2"}}]}}`
	refused := Class{Outcome: claims.NotExecuted, Refused: true}
	for _, tt := range []struct {
		name, route string
		status      int
		body        string
		want        Class
	}{
		{"made", pay, 201, made, Class{Outcome: claims.Succeeded, Payment: "pending", Object: "PM1"}},
		{"paid out", pay, 201, strings.Replace(made, "pending_submission", "paid_out", 1), Class{Outcome: claims.Succeeded, Payment: "done", Object: "PM1"}},
		{"charged back", pay, 201, strings.Replace(made, "pending_submission", "charged_back", 1), Class{Outcome: claims.Succeeded, Payment: "reversed", Object: "PM1"}},
		{"without an envelope", pay, 201, `{"id":"PM1","status":"submitted"}`, Class{}},
		{"another resource", pay, 201, strings.Replace(made, "payments", "refunds", 1), Class{}},
		{"an error in a 2xx", pay, 201, `{"payments":{"id":"PM1","status":"x"},"error":{}}`, Class{}},
		{"no id", pay, 201, `{"payments":{"status":"submitted"}}`, Class{}},
		{"empty", pay, 201, "", Class{}},
		{"null", pay, 200, "null", Class{}},
		{"conflict", pay, 409, conflict, Class{Object: "PM1"}},
		{"conflict, second error", pay, 409, second, Class{Object: "PM2"}},
		{"conflict without an id", pay, 409, gcErr("invalid_state", "idempotent_creation_conflict", ""), Class{}},
		{"another conflict", pay, 409, gcErr("invalid_state", "bank_account_exists", `"conflicting_resource_id":"BA1"`), Class{}},
		{"inactive mandate", pay, 422, gcErr("invalid_state", "mandate_is_inactive", ""), refused},
		{"validation", pay, 422, gcErr("validation_failed", "", ""), refused},
		{"422 of a middlebox", pay, 422, "<html>", Class{}},
		{"bad request", pay, 400, gcErr("invalid_api_usage", "invalid_document_structure", ""), refused},
		{"not found", pay, 404, gcErr("invalid_api_usage", "resource_not_found", ""), refused},
		{"404 of a middlebox", pay, 404, `{"message":"no"}`, Class{}},
		{"401", pay, 401, gcErr("invalid_api_usage", "access_token_not_found", ""), refused},
		{"403", pay, 403, gcErr("invalid_api_usage", "insufficient_permissions", ""), refused},
		{"403 of a middlebox", pay, 403, `{}`, Class{}},
		{"429", pay, 429, gcErr("invalid_api_usage", "rate_limit_exceeded", ""), refused},
		{"500", pay, 500, gcErr("gocardless", "internal_server_error", ""), Class{Transient: true}},
		{"503 of a balancer", pay, 503, `{"message":"x"}`, Class{}},
		{"cancelled", cancel, 200, strings.Replace(made, "pending_submission", "cancelled", 1), Class{Outcome: claims.Succeeded, Payment: "done", Object: "PM1"}},
		{"cancelled before, perhaps by us", cancel, 422, gcErr("invalid_state", "cancellation_failed", ""), Class{}},
		{"retried before, perhaps by us", "payments_retry", 422, gcErr("invalid_state", "retry_failed", ""), Class{}},
		{"fulfilled before, perhaps by us", "billing_requests_fulfil", 422, gcErr("invalid_state", "x", ""), Class{}},
		{"a customer", "create", 201, `{"customers":{"id":"CU1"}}`, Class{Outcome: claims.Succeeded}},
		{"a customer: null", "create", 201, `null`, Class{}},
		{"refund", "refunds_create", 201, `{"refunds":{"id":"RF1","status":"paid"}}`, Class{Outcome: claims.Succeeded, Payment: "done", Object: "RF1"}},
		{"outbound", "outbound_payments_create", 201, `{"outbound_payments":{"id":"OUT1","status":"executed"}}`, Class{Outcome: claims.Succeeded, Payment: "done", Object: "OUT1"}},
	} {
		got := goCardless(t).Classify(tt.route, reply(tt.status, tt.body))
		if got.Why = ""; got != tt.want {
			t.Errorf("%s: %+v, want %+v", tt.name, got, tt.want)
		}
	}
	if refusal := reply(409, `{"error":{"type":"gocardless","errors":[]}}`); !goCardless(t).IsError(refusal) {
		t.Error("the gateway's own error is none")
	}
}

func gcPage(next string, items ...string) string {
	return fmt.Sprintf(`{"payments":[%s],"meta":{"cursors":{"before":null,"after":%s},"limit":500}}`, strings.Join(items, ","), next)
}

func gcPayment(id, ref, status string) string {
	return fmt.Sprintf(`{"id":%q,"status":%q,"amount":1000,"currency":"GBP","links":{"mandate":"MD1"},"metadata":{"fence_ref":%q}}`, id, status, ref)
}

func gcFacts(route string, object string) claims.Facts {
	f := facts(route, "amount", "1000", "currency", "GBP", "mandate", "MD1")
	f.Gateway = "gocardless"
	return WithObject(f, object)
}

func TestGoCardlessLists(t *testing.T) {
	mine := gcPayment("PM1", "REF", "submitted")
	other := gcPayment("PM9", "OTHER", "submitted")
	many := make([]string, 100)
	for i := range many {
		many[i] = gcPage(fmt.Sprintf(`"c%d"`, i), other)
	}
	for _, tt := range []struct {
		name  string
		pages []string
		kind  claims.FindingKind
		pay   string
	}{
		{"nothing", []string{gcPage("null", other)}, claims.Missed, ""},
		{"pending", []string{gcPage("null", other, mine)}, claims.FoundDone, "pending"},
		{"on the second page", []string{gcPage(`"c1"`, other), gcPage("null", mine)}, claims.FoundDone, "pending"},
		{"confirmed", []string{gcPage("null", gcPayment("PM1", "REF", "confirmed"))}, claims.FoundDone, "done"},
		{"paid out", []string{gcPage("null", gcPayment("PM1", "REF", "paid_out"))}, claims.FoundDone, "done"},
		{"failed: it was made", []string{gcPage("null", gcPayment("PM1", "REF", "failed"))}, claims.FoundDone, "failed"},
		{"charged back", []string{gcPage("null", gcPayment("PM1", "REF", "charged_back"))}, claims.FoundDone, "reversed"},
		{"cancelled", []string{gcPage("null", gcPayment("PM1", "REF", "cancelled"))}, claims.FoundDone, "reversed"},
		{"a status that is not known", []string{gcPage("null", gcPayment("PM1", "REF", "new"))}, claims.CouldNotTell, ""},
		{"another amount", []string{gcPage("null", strings.Replace(mine, "1000", "1001", 1))}, claims.Contradiction, ""},
		{"another currency", []string{gcPage("null", strings.Replace(mine, "GBP", "EUR", 1))}, claims.Contradiction, ""},
		{"another mandate", []string{gcPage("null", strings.Replace(mine, "MD1", "MD2", 1))}, claims.Contradiction, ""},
		{"no mandate", []string{gcPage("null", strings.Replace(mine, `"mandate":"MD1"`, "", 1))}, claims.CouldNotTell, ""},
		{"two", []string{gcPage(`"c1"`, mine), gcPage("null", gcPayment("PM2", "REF", "submitted"))}, claims.Contradiction, ""},
		{"more than are read", many, claims.CouldNotTell, ""},
		{"the same cursor again", []string{gcPage(`"c1"`, other), gcPage(`"c1"`, other)}, claims.CouldNotTell, ""},
		{"a cursor that is none", []string{gcPage("7", other)}, claims.CouldNotTell, ""},
		{"no cursors", []string{`{"payments":[]}`}, claims.CouldNotTell, ""},
		{"no list", []string{`{"meta":{"cursors":{"after":null}}}`}, claims.CouldNotTell, ""},
	} {
		s := &script{t: t, pages: tt.pages, date: later}
		got, err := goCardless(t).AskAt(t.Context(), gcFacts("payments_create", ""), begun, asked, s.ask)
		if err != nil || got.Kind != tt.kind || got.Payment != tt.pay || len(s.asked) != len(tt.pages) {
			t.Errorf("%s: %s %q (%s) %v, asked %d", tt.name, got.Kind, got.Payment, got.Reason, err, len(s.asked))
		}
	}
	s := &script{t: t, pages: []string{gcPage(`"c/1"`, other), gcPage("null")}, date: later}
	if _, err := goCardless(t).AskAt(t.Context(), gcFacts("payments_create", ""), begun, asked, s.ask); err != nil {
		t.Fatal(err)
	}
	first := "/payments?created_at%5Bgte%5D=" + strings.ReplaceAll(started.Add(-10*time.Minute).Format(time.RFC3339), ":", "%3A") + "&limit=500"
	if want := []string{first, first + "&after=c%2F1"}; fmt.Sprint(s.asked) != fmt.Sprint(want) {
		t.Errorf("asked %v, want %v", s.asked, want)
	}
}

// TestGoCardlessNamed: what a conflict named is read, and compared as what a list shows.
func TestGoCardlessNamed(t *testing.T) {
	mine := gcPayment("PM1", "REF", "paid_out")
	for name, tt := range map[string]struct {
		status int
		object string
		kind   claims.FindingKind
	}{
		"mine":             {200, mine, claims.FoundDone},
		"of another call":  {200, gcPayment("PM1", "OTHER", "paid_out"), claims.Contradiction},
		"another amount":   {200, strings.Replace(mine, "1000", "1", 1), claims.Contradiction},
		"another mandate":  {200, strings.Replace(mine, "MD1", "MD2", 1), claims.Contradiction},
		"another object":   {200, gcPayment("PM2", "REF", "paid_out"), claims.CouldNotTell},
		"not there":        {404, mine, claims.CouldNotTell},
		"no object at all": {200, "null", claims.CouldNotTell},
	} {
		s := &script{t: t, pages: []string{`{"payments":` + tt.object + `}`}, date: later, mod: func(a *claims.Answer) { a.Status = tt.status }}
		got, err := goCardless(t).AskAt(t.Context(), gcFacts("payments_create", "PM1"), begun, asked, s.ask)
		if err != nil || got.Kind != tt.kind || fmt.Sprint(s.asked) != "[/payments/PM1]" {
			t.Errorf("%s: %s (%s) %v, asked %v", name, got.Kind, got.Reason, err, s.asked)
		}
		if tt.kind == claims.FoundDone && (got.Object != "PM1" || got.Payment != "done") {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

func TestGoCardlessActions(t *testing.T) {
	for _, tt := range []struct {
		route, resource, status string
		kind                    claims.FindingKind
		pay                     string
	}{
		{"payments_cancel", "payments", "cancelled", claims.FoundDone, "done"},
		{"payments_cancel", "payments", "pending_submission", claims.Missed, ""},
		{"payments_cancel", "payments", "submitted", claims.CouldNotTell, ""},
		{"payments_retry", "payments", "submitted", claims.FoundDone, "pending"},
		{"payments_retry", "payments", "failed", claims.CouldNotTell, ""},
		{"billing_requests_fulfil", "billing_requests", "fulfilled", claims.FoundDone, ""},
		{"billing_requests_fulfil", "billing_requests", "ready_to_fulfil", claims.Missed, ""},
		{"billing_requests_fulfil", "billing_requests", "cancelled", claims.CouldNotTell, ""},
		{"mandates_cancel", "mandates", "cancelled", claims.FoundDone, ""},
		{"subscriptions_cancel", "subscriptions", "active", claims.Missed, ""},
		{"instalment_schedules_cancel", "instalment_schedules", "completed", claims.CouldNotTell, ""},
	} {
		g := goCardless(t)
		s := &script{t: t, pages: []string{fmt.Sprintf(`{%q:{"id":"X1","status":%q}}`, tt.resource, tt.status)}, date: later}
		got, err := g.AskAt(t.Context(), claims.Facts{Route: tt.route, Lookup: map[string]string{"id": "X1"}}, begun, asked, s.ask)
		if err != nil || got.Kind != tt.kind || got.Payment != tt.pay || fmt.Sprint(s.asked) != "[/"+tt.resource+"/X1]" {
			t.Errorf("%s %s: %s %q (%s) %v", tt.route, tt.status, got.Kind, got.Payment, got.Reason, err)
		}
		if tt.kind == claims.FoundDone && g.Classify(tt.route, got.Answer).Outcome != claims.Succeeded {
			t.Errorf("%s: the made answer is no success: %s", tt.route, got.Answer.Body)
		}
	}
}

func TestGoCardlessNotices(t *testing.T) {
	t.Setenv("GC_HOOK", "hook secret")
	g := goCardless(t)
	g.Accounts = []Account{{Name: "main", WebhookSecrets: []Secret{{Env: "GC_HOOK"}}}}
	event := func(resource, action, rest string) string {
		return fmt.Sprintf(`{"id":"EV1","resource_type":%q,"action":%q,"links":{"payment":"PM1"},"resource_metadata":{"fence_ref":"REF"}%s}`, resource, action, rest)
	}
	open := func(sig, body string) ([]Notice, error) {
		return g.OpenNotice(t.Context(), "main", Delivery{Header: []claims.Field{{Name: "Webhook-Signature", Value: sig}}, Body: []byte(body), At: later})
	}
	sign := func(secret, body string) string {
		mac := hmac.New(sha256.New, []byte(secret))
		mac.Write([]byte(body))
		return hex.EncodeToString(mac.Sum(nil))
	}
	for _, tt := range []struct {
		event, route string
		outcome      claims.Outcome
		pay          string
		ok           bool
	}{
		{event("payments", "created", ""), "payments_create", claims.Succeeded, "pending", true},
		{event("payments", "confirmed", ""), "payments_create", claims.Succeeded, "done", true},
		{event("payments", "paid_out", ""), "payments_create", claims.Succeeded, "done", true},
		{event("payments", "failed", ""), "payments_create", claims.Succeeded, "failed", true},
		{event("payments", "failed", `,"details":{"will_attempt_retry":true}`), "payments_create", claims.Succeeded, "pending", true},
		{event("payments", "failed", `,"details":{"will_attempt_retry":false}`), "payments_create", claims.Succeeded, "failed", true},
		{event("payments", "charged_back", ""), "payments_create", claims.Succeeded, "reversed", true},
		{event("payments", "late_failure_settled", ""), "payments_create", claims.Succeeded, "reversed", true},
		{event("payments", "cancelled", ""), "payments_create", claims.Succeeded, "reversed", true},
		{event("payments", "cancelled", ""), "payments_cancel", 0, "", false}, // somebody's cancel, perhaps not this call's
		{event("payments", "chargeback_cancelled", ""), "payments_create", 0, "", false},
		{event("payments", "created", ""), "refunds_create", 0, "", false},
		{event("refunds", "paid", ""), "refunds_create", claims.Succeeded, "done", true},
		{event("refunds", "failed", ""), "refunds_create", claims.Succeeded, "failed", true},
		{event("refunds", "failed", ""), "payments_create", 0, "", false},
		{event("mandates", "created", ""), "create", 0, "", false},
	} {
		body := `{"events":[` + tt.event + `],"meta":{"webhook_id":"WB1"}}`
		ns, err := open(sign("hook secret", body), body)
		if err != nil || len(ns) != 1 || ns[0].ID != "EV1" || ns[0].Object != "PM1" || fmt.Sprint(ns[0].References) != "[REF]" {
			t.Fatalf("%s: %+v %v", tt.event, ns, err)
		}
		if o, pay, ok := ns[0].Reading(tt.route); o != tt.outcome || pay != tt.pay || ok != tt.ok {
			t.Errorf("%s: %s: %v %q %v", tt.event, tt.route, o, pay, ok)
		}
	}
	body := `{"events":[` + event("payments", "confirmed", "") + `]}`
	for _, sig := range []string{"", "00", sign("another", body), sign("hook secret", body+" ")} {
		if _, err := open(sig, body); err == nil {
			t.Errorf("signature %q passes", sig)
		}
	}
	if g.Webhook.Refuse != 498 {
		t.Errorf("a wrong signature is answered %d", g.Webhook.Refuse)
	}
}
