package sandbox_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fence-sidecar/fence-sidecar/gateways/sandbox"
)

const (
	ppOrders  = "/v2/checkout/orders"
	ppPayouts = "/v1/payments/payouts"
	ppPayout  = `{"sender_batch_header":{"sender_batch_id":"b-1"},` +
		`"items":[{"receiver":"unclaimed@x.y","amount":{"currency":"USD","value":"3.00"}}]}`
)

// ppOrder is an order's body; source is the payment source's text, or "".
func ppOrder(intent, value, source string) string {
	if source != "" {
		source = `,"payment_source":` + source
	}
	return `{"intent":"` + intent + `","purchase_units":[{"amount":{"currency_code":"USD","value":"` + value + `"}}]` + source + `}`
}

const ppCard = `{"card":{"number":"4012888888881881","expiry":"2035-12","security_code":"123"}}`

// ppRaw is a request's text; header holds names and values.
func ppRaw(method, target, key, fault, body string, header ...string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s HTTP/1.1\r\nHost: sandbox\r\nContent-Length: %d\r\n", method, target, len(body))
	lines := append([]string{
		"Authorization", "Bearer app", "Content-Type", "application/json", "PayPal-Request-Id", key, "Sandbox-Fault", fault,
	}, header...)
	last := map[string]string{}
	for i := 0; i+1 < len(lines); i += 2 {
		last[lines[i]] = lines[i+1]
	}
	for name, v := range last {
		if v != "" {
			b.WriteString(name + ": " + v + "\r\n")
		}
	}
	return b.String() + "\r\n" + body
}

type ppRig struct{ *rig }

func startPayPal(t *testing.T, cfg sandbox.Config) ppRig {
	cfg.Profile = "paypal"
	return ppRig{start(t, cfg)}
}

func (r ppRig) do(method, target, key, fault, body string, header ...string) reply {
	r.t.Helper()
	return exchange(r.dial(), ppRaw(method, target, key, fault, body, header...))
}

func (r ppRig) must(status int, target, key, fault, body string) map[string]any {
	r.t.Helper()
	p := r.do("POST", target, key, fault, body, "Prefer", "return=representation")
	if p.status != status {
		r.t.Fatalf("%s: %d %s (%v), want %d", target, p.status, p.body, p.err, status)
	}
	return p.object()
}

// ppAt follows a dotted path through a decoded answer.
func ppAt(doc any, path string) any {
	for name := range strings.SplitSeq(path, ".") {
		switch x := doc.(type) {
		case map[string]any:
			doc = x[name]
		case []any:
			if len(x) == 0 {
				return nil
			}
			doc = x[int(name[0]-'0')]
		}
	}
	return doc
}

func ppIssue(p reply) string { s, _ := ppAt(p.object(), "details.0.issue").(string); return s }

// TestPayPalOperations walks through every operation, with PayPal's statuses, and counts what was executed.
func TestPayPalOperations(t *testing.T) {
	r := startPayPal(t, sandbox.Config{})
	o := r.must(201, ppOrders, "k1", "", ppOrder("CAPTURE", "10.00", ""))
	id := o["id"].(string)
	if o["status"] != "CREATED" || r.s.Moved() != 0 {
		t.Errorf("an order without a source: %v, %d moved", o["status"], r.s.Moved())
	}
	if p := r.do("POST", ppOrders+"/"+id+"/capture", "k2", "", ""); p.status != 422 || ppIssue(p) != "ORDER_NOT_APPROVED" {
		t.Errorf("%d %s", p.status, p.body)
	}
	if err := r.s.Move(id, "done"); err != nil {
		t.Fatal(err)
	}
	o = r.must(201, ppOrders+"/"+id+"/capture", "k2", "", "")
	capture := ppAt(o, "purchase_units.0.payments.captures.0.id").(string)
	if o["status"] != "COMPLETED" || ppAt(o, "purchase_units.0.payments.captures.0.status") != "COMPLETED" {
		t.Errorf("%v", o)
	}
	if p := r.do("POST", ppOrders+"/"+id+"/capture", "k3", "", ""); ppIssue(p) != "ORDER_ALREADY_CAPTURED" {
		t.Errorf("%d %s", p.status, p.body)
	}
	refund := "/v2/payments/captures/" + capture + "/refund"
	r.must(201, refund, "k4", "", `{"amount":{"currency_code":"USD","value":"4.00"},"custom_id":"ref-1"}`)
	if p := r.do("GET", "/v2/payments/captures/"+capture, "", "", ""); p.object()["status"] != "PARTIALLY_REFUNDED" {
		t.Errorf("%s", p.body)
	}
	const more = `{"amount":{"currency_code":"USD","value":"6.01"}}`
	if p := r.do("POST", refund, "k5", "", more); ppIssue(p) != "REFUND_AMOUNT_EXCEEDED" {
		t.Errorf("%d %s", p.status, p.body)
	}
	if re := r.must(201, refund, "k5", "", ""); ppAt(re, "amount.value") != "6.00" {
		t.Errorf("the rest is %v", re)
	}
	if p := r.do("POST", refund, "k6", "", ""); ppIssue(p) != "CAPTURE_FULLY_REFUNDED" {
		t.Errorf("%d %s", p.status, p.body)
	}
	o = r.must(201, ppOrders, "k7", "", ppOrder("AUTHORIZE", "10.00", ppCard))
	auth := "/v2/payments/authorizations/" + ppAt(o, "purchase_units.0.payments.authorizations.0.id").(string)
	again := r.must(201, auth+"/reauthorize", "k8", "", `{"amount":{"currency_code":"USD","value":"10.00"}}`)
	r.must(201, auth+"/capture", "k9", "", `{"amount":{"currency_code":"USD","value":"1.00"}}`)
	if p := r.do("POST", auth+"/void", "", "", ""); p.status != 204 {
		t.Errorf("void: %d %s", p.status, p.body)
	}
	if p := r.do("POST", auth+"/void", "", "", ""); ppIssue(p) != "PREVIOUSLY_VOIDED" {
		t.Errorf("%d %s", p.status, p.body)
	}
	if p := r.do("POST", "/v2/payments/authorizations/"+again["id"].(string)+"/void", "", "", ""); ppIssue(p) != "CANNOT_BE_VOIDED" {
		t.Errorf("%d %s", p.status, p.body)
	}
	b := r.must(201, ppPayouts, "k10", "", ppPayout)
	batch := ppAt(b, "batch_header.payout_batch_id").(string)
	if p := r.do("POST", ppPayouts, "k11", "", ppPayout); p.status != 400 || !strings.Contains(string(p.body), ppPayouts+"/"+batch) {
		t.Errorf("a used batch id: %d %s", p.status, p.body)
	}
	if err := r.s.Move(batch, "done"); err != nil {
		t.Fatal(err)
	}
	item := ppAt(b, "items.0.payout_item_id").(string)
	if it := r.must(200, "/v1/payments/payouts-item/"+item+"/cancel", "", "", ""); it["transaction_status"] != "RETURNED" {
		t.Errorf("%v", it)
	}
	var kinds []string
	for _, op := range r.s.Ledger() {
		kinds = append(kinds, fmt.Sprint(op.Kind, " ", op.Amount, " ", op.Reference))
	}
	want := []string{"orders.create 1000 ", "orders.capture 1000 ", "captures.refund 400 ref-1", "captures.refund 600 ",
		"orders.create 1000 ", "authorizations.reauthorize 1000 ", "authorizations.capture 100 ", "authorizations.void 900 ",
		"payouts.create 300 b-1", "payouts_items.cancel 300 "}
	if fmt.Sprint(kinds) != fmt.Sprint(want) {
		t.Errorf("executed\n%q, want\n%q", kinds, want)
	}
}

// TestPayPalKeys: what a repeat of an id gets, and how often the operation ran.
func TestPayPalKeys(t *testing.T) {
	pay := ppOrder("CAPTURE", "10.00", ppCard)
	for _, tt := range []struct {
		name, fault, body, second string
		first, again, executed    int
	}{
		{"current state", "", pay, pay, 201, 200, 1},
		{"another body", "", pay, ppOrder("CAPTURE", "11.00", ppCard), 201, 200, 1},
		{"500 after", "error-after;times=1", pay, pay, 500, 200, 1},
		{"500 after, not stored", "error-after-unstored;times=1", pay, pay, 500, 200, 1},
		{"500 stored", "error-stored;times=1", pay, pay, 500, 500, 0},
		{"500 before", "error-before;times=1", pay, pay, 500, 201, 1},
		{"declined", "decline;times=1", pay, pay, 422, 422, 0},
		{"declined in a completed order", "decline=DECLINED;times=1", pay, pay, 201, 200, 0},
		{"refused", "", ppOrder("CAPTURE", "1.001", ppCard), pay, 422, 201, 1},
		{"not well-formed", "", "{", pay, 400, 201, 1},
		{"lost", "lose-fin;times=1", pay, pay, 0, 200, 1},
		{"reset", "lose-rst;times=1", pay, pay, 0, 200, 1},
		{"forgotten", "forget", pay, pay, 201, 201, 2},
		{"ignored", "ignore-key", pay, pay, 201, 201, 2},
	} {
		r := startPayPal(t, sandbox.Config{})
		a, b := r.do("POST", ppOrders, "k", tt.fault, tt.body), r.do("POST", ppOrders, "k", tt.fault, tt.second)
		if a.status != tt.first || b.status != tt.again || r.s.Executed("k") != tt.executed {
			t.Errorf("%s: %d, %d, executed %d: %s %s", tt.name, a.status, b.status, r.s.Executed("k"), a.body, b.body)
		}
	}
}

// TestPayPalRepeatShowsNow: a repeat does not bring the first answer but how things stand.
func TestPayPalRepeatShowsNow(t *testing.T) {
	r := startPayPal(t, sandbox.Config{})
	pay := ppOrder("CAPTURE", "10.00", ppCard)
	o := r.must(201, ppOrders, "k", "processing;times=1", pay)
	capture := ppAt(o, "purchase_units.0.payments.captures.0.id").(string)
	if ppAt(o, "purchase_units.0.payments.captures.0.status") != "PENDING" {
		t.Fatalf("%v", o)
	}
	if err := r.s.Move(capture, "failed"); err != nil {
		t.Fatal(err)
	}
	o = r.must(200, ppOrders, "k", "", pay)
	if ppAt(o, "purchase_units.0.payments.captures.0.status") != "DECLINED" {
		t.Errorf("%v", o)
	}
	if r.s.Move(capture, "done") == nil || r.s.Move(capture, "gone") == nil {
		t.Error("what is at rest was moved")
	}
	p := r.do("POST", ppOrders, "k", "", pay)
	if ppAt(p.object(), "purchase_units") != nil || ppAt(p.object(), "status") != "COMPLETED" {
		t.Errorf("a minimal answer: %s", p.body)
	}
	r.executed("k", 1)
}

// TestPayPalKeysByTypeOfCall: one id for a creation, an authorisation and a capture is three ids; that of a void is none.
func TestPayPalKeysByTypeOfCall(t *testing.T) {
	r := startPayPal(t, sandbox.Config{})
	id := r.must(201, ppOrders, "k", "", ppOrder("AUTHORIZE", "10.00", ""))["id"].(string)
	if err := r.s.Move(id, "done"); err != nil {
		t.Fatal(err)
	}
	o := r.must(201, ppOrders+"/"+id+"/authorize", "k", "", "")
	auth := "/v2/payments/authorizations/" + ppAt(o, "purchase_units.0.payments.authorizations.0.id").(string)
	r.must(201, auth+"/capture", "k", "", `{"amount":{"currency_code":"USD","value":"1.00"}}`)
	r.executed("k", 3)
	r.do("POST", auth+"/void", "k", "", "")
	if p := r.do("POST", auth+"/void", "k", "", ""); p.status != 422 {
		t.Errorf("a void was replayed: %d", p.status)
	}
	long := strings.Repeat("k", 109)
	if p := r.do("POST", ppOrders, long, "", ppOrder("CAPTURE", "1.00", "")); ppIssue(p) != "INVALID_STRING_LENGTH" {
		t.Errorf("%d %s", p.status, p.body)
	}
	if p := r.do("POST", ppOrders, "", "", ppOrder("CAPTURE", "1.00", ppCard)); ppIssue(p) != "PAYPAL_REQUEST_ID_REQUIRED" {
		t.Errorf("%d %s", p.status, p.body)
	}
}

// TestPayPalInFlight: of requests with one id at once one is executed, the others are told so.
func TestPayPalInFlight(t *testing.T) {
	r := startPayPal(t, sandbox.Config{})
	if err := r.s.Inject(sandbox.Fault{Name: "hold-before"}); err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	var first atomic.Int64
	wg.Go(func() {
		first.Store(int64(r.do("POST", ppOrders, "k", "", ppOrder("CAPTURE", "10.00", ppCard)).status))
	})
	if err := r.s.WaitHold(within(t, 10*time.Second), "hold"); err != nil {
		t.Fatal(err)
	}
	p := r.do("POST", ppOrders, "k", "", ppOrder("CAPTURE", "10.00", ppCard))
	if p.status != 409 || ppIssue(p) != "PREVIOUS_REQUEST_IN_PROGRESS" {
		t.Errorf("%d %s", p.status, p.body)
	}
	r.s.Release("hold")
	wg.Wait()
	if first.Load() != 201 {
		t.Errorf("the first got %d", first.Load())
	}
	r.executed("k", 1)
}

// TestPayPalTokens: tokens end by the clock, are told apart by client, and are asked for with the client's id and secret.
func TestPayPalTokens(t *testing.T) {
	var now atomic.Int64
	now.Store(time.Now().UnixNano())
	r := startPayPal(t, sandbox.Config{Clock: func() time.Time { return time.Unix(0, now.Load()) }})
	token := func(auth, body string) (reply, string) {
		p := r.do("POST", "/v1/oauth2/token", "", "", body, "Authorization", auth, "Content-Type", "application/x-www-form-urlencoded")
		s, _ := p.object()["access_token"].(string)
		return p, s
	}
	if p, _ := token("Basic eDp5", "grant_type=password"); p.status != 400 {
		t.Errorf("another grant: %d", p.status)
	}
	if p, _ := token("Bearer x", "grant_type=client_credentials"); p.status != 401 {
		t.Errorf("no client: %d", p.status)
	}
	p, tok := token("Basic eDp5", "grant_type=client_credentials") // x:y
	if p.status != 200 || p.object()["expires_in"] != 32400.0 || tok == "" {
		t.Fatalf("%d %s", p.status, p.body)
	}
	_, short := token("Basic ZXhwaXJlcy0yczp5", "grant_type=client_credentials") // expires-2s:y
	use := func(tok string) (int, string) {
		p := r.do("POST", ppOrders, "k", "", ppOrder("CAPTURE", "10.00", ""), "Authorization", "Bearer "+tok)
		s, _ := p.object()["error"].(string)
		return p.status, s
	}
	for _, tk := range []string{tok, short} { // two clients: an id of one is not the other's
		if code, _ := use(tk); code != 201 {
			t.Errorf("%d", code)
		}
	}
	now.Add(int64(3 * time.Second))
	if code, why := use(short); code != 401 || why != "invalid_token" {
		t.Errorf("an old token: %d %s", code, why)
	}
	if code, _ := use(tok); code != 200 {
		t.Errorf("%d", code)
	}
	now.Add(int64(9 * time.Hour))
	if code, _ := use(tok); code != 401 {
		t.Errorf("a token of 9 h: %d", code)
	}
	if code, _ := use("A21AAbroken"); code != 401 {
		t.Errorf("a broken token: %d", code)
	}
	r.executed("k", 2)
	if p := r.do("GET", ppOrders+"/x", "", "", "", "Authorization", ""); p.status != 401 {
		t.Errorf("without a token: %d", p.status)
	}
}

// TestPayPalMock: PayPal-Mock-Response forces an answer, as in PayPal's own sandbox, and executes nothing.
func TestPayPalMock(t *testing.T) {
	r := startPayPal(t, sandbox.Config{})
	for code, want := range map[string]int{"INSTRUMENT_DECLINED": 422, "DUPLICATE_INVOICE_ID": 422, "INTERNAL_SERVER_ERROR": 500} {
		mock, _ := json.Marshal(map[string]string{"mock_application_codes": code})
		p := r.do("POST", ppOrders, "k", "", ppOrder("CAPTURE", "10.00", ppCard), "PayPal-Mock-Response", string(mock))
		if p.status != want || want == 422 && ppIssue(p) != code {
			t.Errorf("%s: %d %s", code, p.status, p.body)
		}
	}
	r.executed("k", 0)
}

// TestPayPalInvoices: only an account that is set so refuses an invoice id that was used.
func TestPayPalInvoices(t *testing.T) {
	r := startPayPal(t, sandbox.Config{})
	body := strings.Replace(ppOrder("CAPTURE", "10.00", ppCard), `{"amount"`, `{"invoice_id":"i-1","amount"`, 1)
	p := r.do("POST", "/v1/oauth2/token", "", "", "grant_type=client_credentials",
		"Content-Type", "application/x-www-form-urlencoded", "Authorization", "Basic dW5pcXVlLWludm9pY2VzOng=") // unique-invoices:x
	strict := p.object()["access_token"].(string)
	for _, tt := range []struct {
		token, key string
		want       int
	}{{"app", "a", 201}, {"app", "b", 201}, {strict, "c", 201}, {strict, "d", 422}} {
		p := r.do("POST", ppOrders, tt.key, "", body, "Authorization", "Bearer "+tt.token)
		if p.status != tt.want || tt.want == 422 && ppIssue(p) != "DUPLICATE_INVOICE_ID" {
			t.Errorf("%s: %d %s", tt.key, p.status, p.body)
		}
	}
}
