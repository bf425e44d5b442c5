package sandbox_test

import (
	"strings"
	"testing"

	"github.com/fence-sidecar/fence-sidecar/gateways/sandbox"
)

// A payment under way is moved on by the control API, once; no operation is booked for it.
func TestPaymentsMove(t *testing.T) {
	const money = "amount=1000&currency=eur"
	for _, tt := range []struct{ path, fault, body, under, to, status string }{
		{"payment_intents", "", money + "&confirm=true&payment_method=pm_usBankAccount_processing", "processing", "done", "succeeded"},
		{"payment_intents", "processing", charge, "processing", "failed", "requires_payment_method"},
		{"payment_intents", "action", charge, "requires_action", "reversed", "canceled"},
		{"charges", "", money + "&source=btok_us_verified", "pending", "done", "succeeded"},
		{"charges", "processing", money + "&source=tok_visa", "pending", "failed", "failed"},
		{"payouts", "", money, "pending", "done", "paid"},
		{"topups", "", money, "pending", "reversed", "canceled"},
	} {
		t.Run(tt.path+" "+tt.to, func(t *testing.T) {
			r := start(t, sandbox.Config{})
			p := r.send("POST", "/v1/"+tt.path, "k", tt.fault, tt.body)
			id, _ := p.object()["id"].(string)
			if p.status != 200 || p.object()["status"] != tt.under {
				t.Fatalf("%d %s, want a status of %s", p.status, p.body, tt.under)
			}
			for _, bad := range []string{"payments/" + id + "/paid", "payments/x_1/done"} {
				if code, b := r.control("POST", bad, ""); code != 400 || !strings.Contains(string(b), "error") {
					t.Errorf("%s: %d %s", bad, code, b)
				}
			}
			if code, b := r.control("POST", "payments/"+id+"/"+tt.to, ""); code != 204 {
				t.Fatalf("%d %s", code, b)
			}
			if got := r.get("/v1/" + tt.path + "/" + id)["status"]; got != tt.status {
				t.Errorf("status %v, want %s", got, tt.status)
			}
			if code, _ := r.control("POST", "payments/"+id+"/done", ""); code != 400 {
				t.Error("what is at rest was moved again")
			}
			if n := len(r.s.Ledger()); n != 1 {
				t.Errorf("%d operations, want the call's", n)
			}
		})
	}
}

// A refund can be under way too.
func TestPaymentsMove_refund(t *testing.T) {
	r := start(t, sandbox.Config{})
	ch := r.send("POST", "/v1/charges", "k", "", "amount=1000&currency=eur&source=tok_visa").object()["id"].(string)
	re := r.send("POST", "/v1/refunds", "r", "processing", "charge="+ch).object()
	if re["status"] != "pending" {
		t.Fatalf("the refund is %v", re["status"])
	}
	if err := r.s.Move(re["id"].(string), "failed"); err != nil {
		t.Fatal(err)
	}
	if err := r.s.Move(ch, "failed"); err == nil {
		t.Error("a charge that went through was moved")
	}
}
