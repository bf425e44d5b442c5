package gateways

import (
	"strings"
	"testing"

	"github.com/fence-sidecar/fence-sidecar/claims"
)

func paypalFacts(route string, kv ...string) claims.Facts {
	f := facts(route, kv...)
	f.Gateway = "paypal"
	return f
}

// What each state of the object that is read says of a call whose answer was lost, and of one that is known to have been made.
func TestAskPayPal(t *testing.T) {
	const capture, authorize, part, cancel = "orders_capture", "orders_authorize", "authorizations_capture", "payouts_item_cancel"
	order, item := []string{"id", "O1"}, []string{"id", "I1"}
	auth := func(status string) string { return `{"id":"A1","status":"` + status + `","amount":{"value":"10.00"}}` }
	captured := func(status string) string {
		return `{"id":"C1","status":"` + status + `","amount":{"currency_code":"USD","value":"4.00"},"final_capture":false}`
	}
	sum := []string{"id", "A1", "amount", "4.0", "currency", "USD"}
	for _, tt := range []struct {
		route  string
		params []string
		object string
		page   string
		status int
		kind   claims.FindingKind
		pay    string
	}{
		{capture, order, "", paypalOrder("APPROVED", ""), 200, claims.Missed, ""},
		{capture, order, "", paypalOrder("CREATED", ""), 200, claims.Missed, ""},
		{capture, order, "", paypalOrder("PAYER_ACTION_REQUIRED", ""), 200, claims.CouldNotTell, ""},
		{capture, order, "", paypalOrder("VOIDED", ""), 200, claims.CouldNotTell, ""},
		{capture, order, "", paypalOrder("NEW", ""), 200, claims.CouldNotTell, ""},
		{capture, order, "", paypalOrder("COMPLETED", paypalPayments("captures", "COMPLETED")), 200, claims.FoundDone, "done"},
		{capture, order, "", paypalOrder("COMPLETED", paypalPayments("captures", "PENDING")), 200, claims.FoundDone, "pending"},
		{capture, order, "", paypalOrder("COMPLETED", paypalPayments("captures", "REFUNDED")), 200, claims.FoundDone, "reversed"},
		{capture, order, "", paypalOrder("COMPLETED", paypalPayments("captures", "DECLINED")), 200, claims.FoundFailed, "failed"},
		{capture, order, "", paypalOrder("COMPLETED", paypalPayments("captures", "FAILED")), 200, claims.FoundFailed, "failed"},
		{capture, order, "", strings.Replace(paypalOrder("COMPLETED", paypalPayments("captures", "COMPLETED")), "10.00", "11.00", 1), 200,
			claims.Contradiction, ""},
		{capture, order, "", paypalOrder("COMPLETED", ""), 200, claims.CouldNotTell, ""},
		{capture, order, "", strings.Replace(paypalOrder("APPROVED", ""), "O1", "O2", 1), 200, claims.CouldNotTell, ""},
		{capture, order, "", `{"name":"RESOURCE_NOT_FOUND"}`, 404, claims.CouldNotTell, ""},
		{capture, order, "O1", paypalOrder("APPROVED", ""), 200, claims.CouldNotTell, ""},
		{capture, order, "O1", paypalOrder("COMPLETED", paypalPayments("captures", "COMPLETED")), 200, claims.FoundDone, "done"},
		{authorize, order, "", paypalOrder("APPROVED", ""), 200, claims.Missed, ""},
		{authorize, order, "", paypalOrder("COMPLETED", paypalPayments("authorizations", "CREATED")), 200, claims.FoundDone, "pending"},
		{authorize, order, "", paypalOrder("COMPLETED", paypalPayments("authorizations", "DENIED")), 200, claims.FoundFailed, "failed"},
		{authorize, order, "", paypalOrder("COMPLETED", paypalPayments("authorizations", "CAPTURED")+","+paypalPayments("captures", "DECLINED")),
			200, claims.FoundDone, "done"},
		{"orders_create", nil, "O1", paypalOrder("PAYER_ACTION_REQUIRED", ""), 200, claims.FoundDone, "pending"},
		{"orders_create", nil, "O1", paypalOrder("COMPLETED", paypalPayments("captures", "COMPLETED")), 200, claims.FoundDone, "done"},
		{"orders_create", nil, "O1", paypalOrder("COMPLETED", paypalPayments("captures", "DECLINED")), 200, claims.FoundFailed, "failed"},
		{"orders_create", nil, "O1", `{"name":"RESOURCE_NOT_FOUND"}`, 404, claims.CouldNotTell, ""},
		{part, sum, "", auth("CREATED"), 200, claims.Missed, ""},
		{part, sum, "", auth("PENDING"), 200, claims.CouldNotTell, ""},
		{part, sum, "", auth("PARTIALLY_CAPTURED"), 200, claims.CouldNotTell, ""},
		{part, sum, "", auth("CAPTURED"), 200, claims.CouldNotTell, ""},
		{part, sum, "", auth("VOIDED"), 200, claims.CouldNotTell, ""},
		{part, sum, "C1", captured("COMPLETED"), 200, claims.FoundDone, "done"},
		{part, sum, "C1", captured("PENDING"), 200, claims.FoundDone, "pending"},
		{part, sum, "C1", captured("DECLINED"), 200, claims.FoundFailed, "failed"},
		{part, sum, "C1", strings.Replace(captured("COMPLETED"), "4.00", "10.00", 1), 200, claims.Contradiction, ""},
		{part, sum, "C1", strings.Replace(captured("COMPLETED"), "USD", "EUR", 1), 200, claims.Contradiction, ""},
		{"authorizations_reauthorize", sum, "A2", strings.Replace(captured("CREATED"), "C1", "A2", 1), 200, claims.FoundDone, "pending"},
		{"authorizations_void", sum[:2], "", auth("VOIDED"), 200, claims.FoundDone, "done"},
		{"authorizations_void", sum[:2], "", auth("CREATED"), 200, claims.Missed, ""},
		{"authorizations_void", sum[:2], "", auth("CAPTURED"), 200, claims.Missed, ""},
		{"authorizations_void", sum[:2], "", auth("PARTIALLY_CAPTURED"), 200, claims.CouldNotTell, ""},
		{"captures_refund", sum, "C1", captured("COMPLETED"), 200, claims.FoundDone, "done"},
		{"captures_refund", sum, "C1", captured("FAILED"), 200, claims.FoundFailed, "failed"},
		{"payouts_create", nil, "B1", paypalBatch("SUCCESS", "SUCCESS"), 200, claims.FoundDone, "done"},
		{"payouts_create", nil, "B1", paypalBatch("SUCCESS", "BLOCKED"), 200, claims.FoundDone, "failed"},
		{"payouts_create", nil, "B2", paypalBatch("PENDING"), 200, claims.CouldNotTell, ""},
		{cancel, item, "", `{"payout_item_id":"I1","transaction_status":"RETURNED"}`, 200, claims.FoundDone, "done"},
		{cancel, item, "", `{"payout_item_id":"I1","transaction_status":"UNCLAIMED"}`, 200, claims.Missed, ""},
		{cancel, item, "", `{"payout_item_id":"I1","transaction_status":"SUCCESS"}`, 200, claims.CouldNotTell, ""},
	} {
		s := &script{t: t, pages: []string{tt.page}, date: later, mod: func(a *claims.Answer) { a.Status = tt.status }}
		f, err := paypal(t).AskAt(t.Context(), WithObject(paypalFacts(tt.route, tt.params...), tt.object), begun, asked, s.ask)
		if err != nil || f.Kind != tt.kind || f.Payment != tt.pay {
			t.Errorf("%s %q %s: %v %q (%s), %v; want %v %q", tt.route, tt.object, tt.page, f.Kind, f.Payment, f.Reason, err, tt.kind, tt.pay)
		}
		if f.Kind == claims.FoundDone && paypal(t).Classify(tt.route, f.Answer).Outcome != claims.Succeeded {
			t.Errorf("%s: the made answer %s is no success", tt.route, f.Answer.Body)
		}
	}
}

// A lost call of these can be told by a repeat only: nothing is asked, and nothing is proved.
func TestPayPalCannotAsk(t *testing.T) {
	g := paypal(t)
	for _, route := range []string{"orders_create", "authorizations_reauthorize", "captures_refund", "payouts_create"} {
		s := &script{t: t, date: later}
		f, err := g.AskAt(t.Context(), paypalFacts(route, "id", "A1"), begun, asked, s.ask)
		if err != nil || f.Kind != claims.CouldNotTell || len(s.asked) > 0 {
			t.Errorf("%s: %v (%s), asked %v", route, f.Kind, f.Reason, s.asked)
		}
		if rules := g.LookupRules(route); rules.Proves || rules.NoWay || !g.route(route).Probe {
			t.Errorf("%s: %+v", route, rules)
		}
	}
	// Nothing is resent where no request id is taken.
	for _, route := range []string{"authorizations_void", "payouts_item_cancel", "other"} {
		if r := g.route(route); r.Probe || g.key(r) != nil || g.provesAbsence(r) {
			t.Errorf("%s can be resent", route)
		}
	}
}

// How long ids are kept differs by API; none is longer than what the gateway says.
func TestPayPalRetention(t *testing.T) {
	g := paypal(t)
	hours := map[string]float64{"orders_create": 6, "orders_authorize": 6, "orders_capture": 6, "authorizations_capture": 45 * 24,
		"authorizations_reauthorize": 45 * 24, "captures_refund": 45 * 24, "payouts_create": 30 * 24}
	for _, r := range g.Routes {
		if keyed := g.key(r) != nil; keyed != (hours[r.Name] > 0) || keyed && r.KeyRetention.Hours() != hours[r.Name] {
			t.Errorf("%s keeps ids for %s", r.Name, r.KeyRetention)
		}
	}
}

// An event counts for the route that it speaks of, and only where its reference was given to that call; of a capture the order
// is asked.
func TestPayPalEvents(t *testing.T) {
	w := paypal(t).Webhook
	for _, tt := range []struct{ event, route, outcome, payment string }{
		{`{"event_type":"PAYMENT.CAPTURE.REFUNDED","resource":{"status":"COMPLETED"}}`, "captures_refund", "succeeded", "done"},
		{`{"event_type":"PAYMENT.CAPTURE.REFUNDED","resource":{"status":"PENDING"}}`, "captures_refund", "succeeded", "pending"},
		{`{"event_type":"PAYMENT.CAPTURE.REFUNDED","resource":{"status":"FAILED"}}`, "captures_refund", "", ""},
		{`{"event_type":"PAYMENT.CAPTURE.REFUNDED","resource":{"status":"COMPLETED"}}`, "authorizations_capture", "", ""},
		{`{"event_type":"PAYMENT.CAPTURE.COMPLETED","resource":{"status":"COMPLETED"}}`, "orders_capture", "", ""},
		{`{"event_type":"CHECKOUT.ORDER.APPROVED","resource":{"status":"APPROVED"}}`, "orders_create", "", ""},
		{`{"event_type":"PAYMENT.PAYOUTSBATCH.PROCESSING","resource":{}}`, "payouts_create", "succeeded", "pending"},
		{`{"event_type":"PAYMENT.PAYOUTSBATCH.DENIED","resource":{}}`, "payouts_create", "succeeded", "failed"},
		{`{"event_type":"PAYMENT.PAYOUTSBATCH.SUCCESS","resource":{}}`, "payouts_create", "", ""},
		{`{"event_type":"PAYMENT.PAYOUTS-ITEM.SUCCEEDED","resource":{}}`, "payouts_create", "", ""},
	} {
		doc, _ := decode([]byte(tt.event))
		var got NoticeCase
		for _, c := range w.Cases {
			if allHold(c.When, doc) && (len(c.Routes) == 0 || strings.Contains(strings.Join(c.Routes, " "), tt.route)) {
				got = c
				break
			}
		}
		if got.Outcome != tt.outcome || got.Payment != tt.payment {
			t.Errorf("%s for %s: %q %q", tt.event, tt.route, got.Outcome, got.Payment)
		}
	}
}
