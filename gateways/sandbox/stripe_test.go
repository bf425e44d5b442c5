package sandbox_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/fence-sidecar/fence-sidecar/gateways/sandbox"
	"github.com/stripe/stripe-go/v85"
)

func sdk(r *rig) *stripe.Client {
	tr := &http.Transport{DisableKeepAlives: true, TLSClientConfig: r.pool}
	cfg := &stripe.BackendConfig{
		URL: stripe.String(r.base), MaxNetworkRetries: stripe.Int64(0), HTTPClient: &http.Client{Transport: tr},
		LeveledLogger: &stripe.LeveledLogger{Level: stripe.LevelNull},
	}
	return stripe.NewClient("sk_test_1", stripe.WithBackends(stripe.NewBackendsWithConfig(cfg)))
}

// TestStripeGo: the official SDK against the sandbox.
func TestStripeGo(t *testing.T) {
	r, ctx := startTLS(t, sandbox.Config{}), t.Context()
	c := sdk(r)
	pi, err := c.V1PaymentIntents.Create(ctx, &stripe.PaymentIntentCreateParams{
		Amount: stripe.Int64(1234), Currency: stripe.String("eur"), Metadata: map[string]string{"fence_ref": "r1"},
	})
	if err != nil || pi.Status != stripe.PaymentIntentStatusRequiresPaymentMethod {
		t.Fatalf("create: %v %+v", err, pi)
	}
	pi, err = c.V1PaymentIntents.Confirm(ctx, pi.ID, &stripe.PaymentIntentConfirmParams{PaymentMethod: stripe.String("pm_card_visa")})
	if err != nil || pi.Status != stripe.PaymentIntentStatusSucceeded || pi.AmountReceived != 1234 {
		t.Fatalf("confirm: %v %+v", err, pi)
	}
	found := 0
	for x, err := range c.V1PaymentIntents.List(ctx, &stripe.PaymentIntentListParams{CreatedRange: &stripe.RangeQueryParams{GreaterThanOrEqual: pi.Created}}).All(ctx) {
		if err != nil {
			t.Fatal(err)
		}
		if x.Metadata["fence_ref"] == "r1" {
			found++
		}
	}
	if found != 1 {
		t.Errorf("listed %d times", found)
	}
	re, err := c.V1Refunds.Create(ctx, &stripe.RefundCreateParams{PaymentIntent: &pi.ID, Amount: stripe.Int64(34)})
	if err != nil || re.Status != stripe.RefundStatusSucceeded || re.Amount != 34 {
		t.Errorf("refund: %v %+v", err, re)
	}
	_, err = c.V1PaymentIntents.Create(ctx, &stripe.PaymentIntentCreateParams{
		Amount: stripe.Int64(5), Currency: stripe.String("eur"), Confirm: new(true), PaymentMethod: stripe.String("pm_card_chargeDeclined"),
	})
	if e, ok := errors.AsType[*stripe.Error](err); !ok || e.Type != stripe.ErrorTypeCard || e.DeclineCode != "generic_decline" || e.HTTPStatusCode != 402 {
		t.Errorf("decline: %v", err)
	}
	if r.s.Moved() != 2 { // the confirm and the refund
		t.Errorf("ledger: %+v", r.s.Ledger())
	}
}

func TestIdempotency(t *testing.T) {
	r := start(t, sandbox.Config{})
	first, second := r.charge("k", ""), r.charge("k", "")
	if string(first.body) != string(second.body) || second.header.Get("Idempotent-Replayed") != "true" ||
		first.header.Get("Idempotent-Replayed") != "" || second.header.Get("Idempotency-Key") != "k" {
		t.Errorf("replay: %v", second.header)
	}
	other := r.send("POST", "/v1/payment_intents", "k", "", strings.Replace(charge, "1000", "1001", 1))
	if other.status != 400 || !strings.Contains(string(other.body), "idempotency_error") {
		t.Errorf("other parameters: %d %s", other.status, other.body)
	}
	r.executed("k", 1)
	if o := r.s.Ledger()[0]; o.Reference != "ref-1" || o.Amount != 1000 || !o.Money || o.Kind != "payment_intents.create" {
		t.Errorf("%+v", o)
	}
}

// TestStored: which answers are stored under the key.
func TestStored(t *testing.T) {
	for _, tt := range []struct {
		fault, body   string
		first, second int
	}{
		{"error-after;times=1", charge, 500, 500},
		{"error-after-unstored;times=1", charge, 500, 200},
		{"error-stored;times=1", charge, 500, 500},
		{"error-before;times=1", charge, 500, 200},
		{"decline;times=1", charge, 402, 402},
		{"rate-limit;times=1", charge, 429, 200},
		{"unauthorized;times=1", charge, 401, 200},
	} {
		t.Run(tt.fault, func(t *testing.T) {
			r := start(t, sandbox.Config{})
			a, b := r.charge("k", tt.fault), r.charge("k", tt.fault)
			replayed := b.header.Get("Idempotent-Replayed") == "true"
			if a.status != tt.first || b.status != tt.second {
				t.Errorf("%d, %d; want %d, %d", a.status, b.status, tt.first, tt.second)
			}
			if want := tt.first == tt.second || tt.fault == "error-after-unstored;times=1"; replayed != want {
				t.Errorf("replayed %v", replayed)
			}
		})
	}
}

func TestParameterErrorsAreNotStored(t *testing.T) {
	r := start(t, sandbox.Config{})
	for body, code := range map[string]string{
		"currency=eur": "parameter_missing", "amount=x&currency=eur": "parameter_invalid_integer",
		"amount=5": "parameter_missing", "amount=5&currency=eur&confirm=true&payment_method=pm_nope": "resource_missing",
	} {
		p := r.send("POST", "/v1/payment_intents", "k-"+code, "", body)
		if p.status/100 != 4 || !strings.Contains(string(p.body), code) {
			t.Errorf("%s: %d %s", body, p.status, p.body)
		}
		if p := r.charge("k-"+code, ""); p.status != 200 || p.header.Get("Idempotent-Replayed") != "" {
			t.Errorf("%s: the key was used up: %d", body, p.status)
		}
		r.s.Reset()
	}
	req := "POST /v1/payment_intents HTTP/1.1\r\nHost: s\r\nAuthorization: Bearer k\r\nContent-Type: application/json\r\nContent-Length: 2\r\n\r\n{}"
	if p := exchange(r.dial(), req); p.status != 400 {
		t.Errorf("JSON: %d", p.status)
	}
	if len(r.s.Ledger()) != 0 {
		t.Errorf("ledger %+v", r.s.Ledger())
	}
}

// TestOperations walks through every operation.
func TestOperations(t *testing.T) {
	r := start(t, sandbox.Config{})
	n := 0
	do := func(target, body string, want map[string]any) string {
		t.Helper()
		n++
		p := r.send("POST", target, "key-"+itoa(n), "", body)
		o := p.object()
		if p.status != 200 {
			t.Fatalf("%s: %d %s", target, p.status, p.body)
		}
		for k, v := range want {
			if o[k] != v {
				t.Errorf("%s: %s is %v, want %v", target, k, o[k], v)
			}
		}
		id, _ := o["id"].(string)
		if g := r.get(strings.Join(strings.Split(target, "/")[:3], "/") + "?limit=100"); g["object"] != "list" {
			t.Errorf("%s: cannot be listed", target)
		}
		return id
	}
	pi := do("/v1/payment_intents", "amount=100&currency=eur&confirm=true&capture_method=manual&payment_method=pm_card_visa", map[string]any{"status": "requires_capture"})
	do("/v1/payment_intents/"+pi+"/capture", "amount_to_capture=60&metadata[fence_capture_ref]=c", map[string]any{"status": "succeeded", "amount_received": 60.0})
	do("/v1/refunds", "payment_intent="+pi, map[string]any{"amount": 60.0})
	pi = do("/v1/payment_intents", "amount=100&currency=eur", map[string]any{"status": "requires_payment_method"})
	do("/v1/payment_intents/"+pi+"/cancel", "", map[string]any{"status": "canceled"})
	ch := do("/v1/charges", "amount=7&currency=eur&source=tok_visa&capture=false", map[string]any{"captured": false})
	do("/v1/charges/"+ch+"/capture", "", map[string]any{"captured": true, "amount_captured": 7.0})
	tr := do("/v1/transfers", "amount=7&currency=eur&destination=acct_1", map[string]any{"object": "transfer"})
	do("/v1/transfers/"+tr+"/reversals", "amount=3", map[string]any{"object": "transfer_reversal", "amount": 3.0})
	if l := r.get("/v1/transfers/" + tr + "/reversals"); len(l["data"].([]any)) != 1 {
		t.Errorf("reversals: %v", l)
	}
	po := do("/v1/payouts", "amount=7&currency=eur", map[string]any{"status": "pending"})
	do("/v1/payouts/"+po+"/cancel", "", map[string]any{"status": "canceled"})
	po = do("/v1/payouts", "amount=7&currency=eur&method=instant", map[string]any{"status": "paid"})
	do("/v1/payouts/"+po+"/reverse", "", map[string]any{"original_payout": po})
	tu := do("/v1/topups", "amount=7&currency=eur", map[string]any{"status": "pending"})
	do("/v1/topups/"+tu+"/cancel", "", map[string]any{"status": "canceled"})
	if len(r.s.Ledger()) != n {
		t.Errorf("%d rows, %d operations", len(r.s.Ledger()), n)
	}
}

func TestListPages(t *testing.T) {
	r := start(t, sandbox.Config{})
	for i := range 5 {
		r.charge("k"+itoa(i), "")
	}
	after, seen := "", 0
	for {
		l := r.get("/v1/payment_intents?limit=2&created%5Bgte%5D=1" + after)
		data := l["data"].([]any)
		seen += len(data)
		if l["has_more"] != true {
			break
		}
		after = "&starting_after=" + data[len(data)-1].(map[string]any)["id"].(string)
	}
	if seen != 5 {
		t.Errorf("read %d of 5", seen)
	}
	if l := r.get("/v1/payment_intents?created%5Bgte%5D=99999999999"); len(l["data"].([]any)) != 0 {
		t.Error("created[gte] does not filter")
	}
	if p := r.send("GET", "/v1/payment_intents/pi_nope", "", "", ""); p.status != 404 {
		t.Errorf("%d", p.status)
	}
}

// TestAccounts: keys and objects of two accounts do not meet.
func TestAccounts(t *testing.T) {
	r := start(t, sandbox.Config{})
	other := strings.Replace(raw("POST", "/v1/payment_intents", "k", "", charge), "Host:", "Stripe-Account: acct_1\r\nHost:", 1)
	r.charge("k", "")
	if p := exchange(r.dial(), other); p.header.Get("Idempotent-Replayed") != "" {
		t.Error("replayed across accounts")
	}
	r.executed("k", 2)
}

// TestHandler: under net/http, with the faults of the wire.
func TestHandler(t *testing.T) {
	s := sandbox.New(sandbox.Config{})
	srv := httptest.NewServer(s)
	defer srv.Close()
	tr := &http.Transport{DisableKeepAlives: true}
	for fault, want := range map[string]int{"": 200, "lose-rst": 0, "truncate-head": 0} {
		req, _ := http.NewRequest("POST", srv.URL+"/v1/payment_intents", strings.NewReader(charge))
		req.Header.Set("Authorization", "Bearer sk")
		req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		if fault != "" {
			req.Header.Set("Sandbox-Fault", fault)
		}
		res, err := tr.RoundTrip(req)
		got := 0
		if err == nil {
			got = res.StatusCode
			res.Body.Close()
		}
		if got != want {
			t.Errorf("%q: %d (%v)", fault, got, err)
		}
	}
	if len(s.Ledger()) != 3 || len(s.Sends()) != 3 {
		t.Errorf("executed %d, sends %d", len(s.Ledger()), len(s.Sends()))
	}
}
