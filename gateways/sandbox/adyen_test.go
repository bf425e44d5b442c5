package sandbox_test

import (
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fence-sidecar/fence-sidecar/gateways/sandbox"
)

const adyenBody = `{"merchantAccount":"ShopEU","amount":{"value":1000,"currency":"EUR"},"reference":"ref-1","returnUrl":"https://shop.example","paymentMethod":{"type":"scheme"}}`

func adyenRig(t *testing.T) *rig { return start(t, sandbox.Config{Profile: "adyen"}) }

func adyenText(method, target, key, fault, body string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s HTTP/1.1\r\nHost: sandbox\r\nX-API-Key: AQEtest\r\nContent-Type: application/json\r\n", method, target)
	if key != "" {
		b.WriteString("Idempotency-Key: " + key + "\r\n")
	}
	if fault != "" {
		b.WriteString("Sandbox-Fault: " + fault + "\r\n")
	}
	fmt.Fprintf(&b, "Content-Length: %d\r\n\r\n%s", len(body), body)
	return b.String()
}

func (r *rig) adyen(target, key, fault, body string) reply {
	r.t.Helper()
	return exchange(r.dial(), adyenText("POST", target, key, fault, body))
}

// adyenAnswered fails the test unless a reply has a status and a value at a member.
func (r *rig) adyenAnswered(p reply, status int, member, want string) string {
	r.t.Helper()
	o := p.object()
	if p.err != nil || p.status != status || fmt.Sprint(o[member]) != want {
		r.t.Fatalf("%d %v %s, want %d with %s %s", p.status, p.err, p.body, status, member, want)
	}
	id, _ := o["pspReference"].(string)
	return id
}

func adyenWith(name, value string) string {
	return strings.Replace(adyenBody, `"paymentMethod"`, `"additionalData":{"`+name+`":"`+value+`"},"paymentMethod"`, 1)
}

// TestAdyenResults: what picks a result, and whether money moved.
func TestAdyenResults(t *testing.T) {
	for _, tt := range []struct {
		body, fault, code string
		money             int
	}{
		{adyenBody, "", "Authorised", 1},
		{adyenWith("RequestedTestAcquirerResponseCode", "2"), "", "Refused", 0},
		{adyenWith("RequestedTestAcquirerResponseCode", "4"), "", "Error", 0},
		{strings.Replace(adyenBody, `"scheme"`, `"scheme","holderName":"DECLINED : 5"`, 1), "", "Refused", 0},
		{strings.Replace(adyenBody, "scheme", "ideal", 1), "", "RedirectShopper", 0},
		{strings.Replace(adyenBody, "scheme", "sepadirectdebit", 1), "", "Received", 1},
		{strings.Replace(adyenBody, "scheme", "bcmc_mobile", 1), "", "Pending", 1},
		{strings.Replace(adyenBody, "scheme", "multibanco", 1), "", "PresentToShopper", 1},
		{adyenBody, "decline", "Refused", 0},
		{adyenBody, "action", "ChallengeShopper", 0},
		{adyenBody, "processing", "Received", 1},
	} {
		r := adyenRig(t)
		p := r.adyen("/checkout/v72/payments", "k", tt.fault, tt.body)
		id := r.adyenAnswered(p, 200, "resultCode", tt.code)
		if waits := tt.code == "RedirectShopper" || tt.code == "ChallengeShopper"; waits == regexp.MustCompile(`^[A-Z0-9]{16}$`).MatchString(id) {
			t.Errorf("%s: pspReference %q", tt.code, id)
		}
		if r.s.Moved() != tt.money {
			t.Errorf("%s: money moved %d times", tt.code, r.s.Moved())
		}
		again := r.adyen("/checkout/v72/payments", "k", "", tt.body)
		if string(again.body) != string(p.body) || r.s.Moved() != tt.money || again.header.Get("Idempotency-Key") != "k" {
			t.Errorf("%s: the repeat got %d %s", tt.code, again.status, again.body)
		}
	}
}

// TestAdyenKeys: which answers stand under a key, as the API description tells, and that bodies are not compared.
func TestAdyenKeys(t *testing.T) {
	const retry, once = "RequestedTestErrorResponseCode", ";times=1"
	for _, tt := range []struct {
		name, body, fault       string
		first, second, executed int
		transient               string
	}{
		{"transient", adyenWith(retry, "NO_CONNECTION_AVAILABLE"), "", 500, 200, 1, "true"},
		{"stored, and the bank has acted", adyenWith(retry, "IOEXCEPTION_RECEIVED"), "", 500, 500, 1, ""},
		{"validation", strings.Replace(adyenBody, "returnUrl", "x", 1), "", 422, 422, 0, ""},
		{"no merchant", strings.Replace(adyenBody, "merchantAccount", "x", 1), "", 403, 200, 1, ""},
		{"no JSON", "{", "", 400, 200, 1, ""},
		{"unauthorized", adyenBody, "unauthorized" + once, 401, 200, 1, ""},
		{"error after", adyenBody, "error-after" + once, 500, 500, 1, ""},
		{"error after, unstored", adyenBody, "error-after-unstored" + once, 500, 200, 1, ""},
		{"error before", adyenBody, "error-before=503" + once, 503, 200, 1, ""},
		{"another amount", strings.Replace(adyenBody, "1000", "2000", 1), "", 200, 200, 1, ""},
	} {
		r := adyenRig(t)
		a := r.adyen("/v72/payments", "k", tt.fault, tt.body)
		b := r.adyen("/v72/payments", "k", "", adyenBody)
		if a.status != tt.first || b.status != tt.second || a.header.Get("Transient-Error") != tt.transient {
			t.Errorf("%s: %d %s, then %d %s", tt.name, a.status, a.body, b.status, b.body)
		}
		if e, ok := a.object()["errorCode"]; (a.status >= 400) != ok || ok && e == "" {
			t.Errorf("%s: %s", tt.name, a.body)
		}
		r.executed("k", tt.executed)
		if echoed := a.header.Get("Idempotency-Key") == "k"; echoed != (a.status == 200 || a.status == 422) {
			t.Errorf("%s: the key is echoed: %v", tt.name, echoed)
		}
	}
	r := adyenRig(t)
	r.adyen("/v72/payments", "k", "", adyenBody)
	other := strings.Replace(adyenBody, "ShopEU", "ShopUS", 1)
	if p := r.adyen("/v72/payments", "k", "", other); p.status != 200 {
		t.Errorf("%d", p.status)
	}
	r.executed("k", 1) // one company account
	if p := r.adyen("/v72/payments", strings.Repeat("k", 65), "", adyenBody); p.status != 422 {
		t.Errorf("a key of 65 characters: %d", p.status)
	}
	r.s.Inject(sandbox.Fault{Name: "forget"})
	r.adyen("/v72/payments", "k", "", adyenBody)
	r.executed("k", 2)
}

// TestAdyenLost: whatever becomes of the answer, one payment is executed, and a repeat gets what the first would have got.
func TestAdyenLost(t *testing.T) {
	for _, fault := range []string{"lose-fin", "lose-rst", "truncate-head", "truncate-length", "empty", "html", "no-content"} {
		r := adyenRig(t)
		r.adyen("/v72/payments", "k", fault+";times=1", adyenBody)
		r.adyenAnswered(r.adyen("/v72/payments", "k", "", adyenBody), 200, "resultCode", "Authorised")
		r.executed("k", 1)
	}
}

// TestAdyenInFlight: a repeat while the first is under way is told so, and executes nothing.
func TestAdyenInFlight(t *testing.T) {
	r := adyenRig(t)
	var wg sync.WaitGroup
	wg.Go(func() { exchange(r.dial(), adyenText("POST", "/v72/payments", "k", "hold-before=h", adyenBody)) })
	if err := r.s.WaitHold(within(t, 10*time.Second), "h"); err != nil {
		t.Fatal(err)
	}
	r.adyenAnswered(r.adyen("/v72/payments", "k", "", adyenBody), 422, "errorCode", "704")
	r.s.Release("h")
	wg.Wait()
	r.adyenAnswered(r.adyen("/v72/payments", "k", "", adyenBody), 200, "resultCode", "Authorised")
	r.executed("k", 1)
}

// TestAdyenDetails: sent twice, also without a key, the second is error 704 after a payment that succeeded.
func TestAdyenDetails(t *testing.T) {
	r := adyenRig(t)
	p := r.adyen("/v72/payments", "k", "", strings.Replace(adyenBody, "scheme", "ideal", 1))
	data := p.object()["action"].(map[string]any)["paymentData"].(string)
	details := `{"details":{"redirectResult":"` + data + `"}}`
	r.adyenAnswered(r.adyen("/v72/payments/details", "", "", details), 200, "resultCode", "Authorised")
	r.adyenAnswered(r.adyen("/v72/payments/details", "", "", details), 422, "errorCode", "704")
	if r.s.Moved() != 1 {
		t.Errorf("%+v", r.s.Ledger())
	}
	p = r.adyen("/v72/payments", "k2", "action", adyenBody)
	data = p.object()["action"].(map[string]any)["paymentData"].(string)
	r.adyenAnswered(r.adyen("/v72/payments/details", "d", "decline", `{"details":{},"paymentData":"`+data+`"}`), 200, "resultCode", "Refused")
	r.adyenAnswered(r.adyen("/v72/payments/details", "e", "", `{"details":{}}`), 422, "errorCode", "14_018")
	if r.s.Moved() != 1 {
		t.Errorf("%+v", r.s.Ledger())
	}
}

// TestAdyenOperations walks through the other operations; each is booked once.
func TestAdyenOperations(t *testing.T) {
	r := adyenRig(t)
	n := 0
	do := func(target, body string, status int, member, want string) string {
		t.Helper()
		n++
		p := r.adyen(target, fmt.Sprint("key-", n), "", body)
		r.adyenAnswered(p, status, member, want)
		if l := r.s.Ledger(); len(l) != n || strings.HasPrefix(target, "/v72/") && (l[n-1].Key != fmt.Sprint("key-", n) || l[n-1].Account != "ShopEU") {
			t.Fatalf("%s: ledger %+v", target, l)
		}
		if id, ok := p.object()["pspReference"].(string); ok {
			return id
		}
		id, _ := p.object()["id"].(string)
		return id
	}
	money := func(v int) string {
		return fmt.Sprintf(`{"merchantAccount":"ShopEU","reference":"m%d","amount":{"value":%d,"currency":"EUR"}}`, v, v)
	}
	held := adyenWith("manualCapture", "true")
	pay := do("/v72/payments", held, 200, "resultCode", "Authorised")
	do("/v72/payments/"+pay+"/amountUpdates", money(900), 201, "status", "received")
	do("/v72/payments/"+pay+"/captures", money(600), 201, "status", "received")
	do("/v72/payments/"+pay+"/captures", money(600), 201, "status", "received") // more than is left: told by webhook
	do("/v72/payments/"+pay+"/refunds", money(600), 201, "status", "received")
	do("/v72/payments/"+pay+"/refunds", money(1), 201, "status", "received")
	if r.s.Moved() != 3 {
		t.Errorf("money moved %d times: %+v", r.s.Moved(), r.s.Ledger())
	}
	other := do("/v72/payments", strings.Replace(held, "ref-1", "ref-2", 1), 200, "resultCode", "Authorised")
	do("/v72/payments/"+other+"/cancels", `{"merchantAccount":"ShopEU","reference":"c"}`, 201, "status", "received")
	third := do("/v72/payments", strings.Replace(adyenBody, "ref-1", "ref-3", 1), 200, "resultCode", "Authorised")
	do("/v72/payments/"+third+"/reversals", `{"merchantAccount":"ShopEU"}`, 201, "paymentPspReference", third)
	do("/v72/payments", strings.Replace(held, "ref-1", "ref-4", 1), 200, "resultCode", "Authorised")
	do("/v72/cancels", `{"merchantAccount":"ShopEU","paymentReference":"ref-4"}`, 201, "status", "received")
	order := do("/v72/orders", money(5), 200, "resultCode", "Success")
	do("/v72/orders/cancel", `{"merchantAccount":"ShopEU","order":{"pspReference":"`+order+`"}}`, 200, "resultCode", "Received")
	do("/v72/donations", money(7), 200, "status", "completed")
	link := do("/v72/paymentLinks", money(8), 201, "status", "active")
	do("/v72/sessions", money(8), 201, "reference", "m8")
	transfer := do("/btl/v4/transfers", money(9), 202, "status", "authorised")
	do("/btl/v4/transfers/"+transfer+"/returns", money(9), 200, "status", "Authorised")
	classic := do("/pal/servlet/Payment/v68/authorise", money(11), 200, "resultCode", "Authorised")
	do("/pal/servlet/Payment/v68/refund", `{"merchantAccount":"ShopEU","originalReference":"`+classic+`","modificationAmount":{"value":11,"currency":"EUR"}}`, 200, "response", "[refund-received]")
	for target, want := range map[string]int{"/v72/paymentLinks/" + link: 200, "/btl/v4/transfers/" + transfer: 200, "/v72/payments/" + pay: 404} {
		if p := exchange(r.dial(), adyenText("GET", target, "", "", "")); p.status != want {
			t.Errorf("GET %s: %d", target, p.status)
		}
	}
	for target, want := range map[string]string{"/v72/payments/" + other + "/captures": "201", "/v72/payments/NOTTHERE/refunds": "422", "/v72/nothing": "404", "/payments": "404"} {
		if p := r.adyen(target, "", "", money(1)); fmt.Sprint(p.status) != want {
			t.Errorf("%s: %d %s", target, p.status, p.body)
		}
	}
}

// TestAdyenTransfersList: by reference between two dates, and blind where it is told to be.
func TestAdyenTransfersList(t *testing.T) {
	r := adyenRig(t)
	for i := range 3 {
		r.adyen("/btl/v4/transfers", "", "", fmt.Sprintf(`{"reference":"t%d","amount":{"value":5,"currency":"EUR"}}`, i%2))
	}
	at := func(d time.Duration) string {
		return strings.ReplaceAll(time.Now().Add(d).UTC().Format(time.RFC3339), ":", "%3A")
	}
	list := func(query string) (int, int) {
		p := exchange(r.dial(), adyenText("GET", "/btl/v4/transfers?"+query, "", "", ""))
		var l struct{ Data []any }
		json.Unmarshal(p.body, &l)
		return p.status, len(l.Data)
	}
	window := "createdSince=" + at(-time.Hour) + "&createdUntil=" + at(time.Hour)
	for query, want := range map[string][2]int{
		"reference=t0&" + window: {200, 2}, "reference=t1&" + window: {200, 1}, "reference=t9&" + window: {200, 0}, window: {200, 3},
		"reference=t0": {422, 0}, "createdSince=" + at(-9000*time.Hour) + "&createdUntil=" + at(time.Hour): {422, 0},
	} {
		if status, n := list(query); status != want[0] || n != want[1] {
			t.Errorf("%s: %d with %d", query, status, n)
		}
	}
	for _, fault := range []string{"list-lag", "lookup-blind"} {
		r.s.Inject(sandbox.Fault{Name: fault})
		if _, n := list(window); n != 0 {
			t.Errorf("%s shows %d", fault, n)
		}
		r.s.ClearFaults()
	}
}
