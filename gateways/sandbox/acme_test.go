package sandbox_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fence-sidecar/fence-sidecar/gateways/sandbox"
)

const acmePay = `{"amount":100,"currency":"eur","card":"ok","reference":"r-1"}`

func (r *rig) json(method, target, key, fault, body string) reply {
	r.t.Helper()
	text := raw(method, target, key, fault, body)
	return exchange(r.dial(), strings.Replace(text, "application/x-www-form-urlencoded", "application/json", 1))
}

func errorCode(p reply) string {
	e, _ := p.object()["error"].(map[string]any)
	code, _ := e["code"].(string)
	return code
}

// Each way of dealing with a repeat: of a success, of a decline, after a 500 that executed, and of another body.
func TestFamilies(t *testing.T) {
	for _, tt := range []struct {
		profile                          string
		repeat, declined, failed, others string
		executed                         int // payments under one key after all of that
	}{
		{"acme", "201 paid", "402 declined", "500 internal", "422 key_reused", 2},
		{"acme-state", "200 paid", "200 failed", "200 paid", "422 key_reused", 2},
		{"acme-pointing", "409 already_done", "402 declined", "201 paid", "409 already_done", 3},
		{"acme-after-error", "201 paid", "402 declined", "201 paid", "422 key_reused", 3},
		{"acme-ignored-body", "201 paid", "402 declined", "500 internal", "201 paid", 2},
		{"acme-window", "422 duplicate", "422 duplicate", "422 duplicate", "201 paid", 3},
		{"acme-keyless", "201 paid", "402 declined", "201 paid", "201 paid", 5},
	} {
		t.Run(tt.profile, func(t *testing.T) {
			r := start(t, sandbox.Config{Profile: tt.profile})
			says := func(p reply) string {
				s, _ := p.object()["status"].(string)
				return strings.TrimSpace(fmt.Sprint(p.status, " ", s, errorCode(p)))
			}
			pay := func(key, ref, body, fault string) reply {
				return r.json("POST", "/payments", key, fault, strings.Replace(body, "r-1", ref, 1))
			}
			first := pay("k1", "r-1", acmePay, "")
			if says(first) != "201 paid" {
				t.Fatalf("%s", says(first))
			}
			again := pay("k1", "r-1", acmePay, "")
			if says(again) != tt.repeat {
				t.Errorf("a repeat gets %s, want %s", says(again), tt.repeat)
			}
			if tt.profile == "acme" && (again.header.Get("Acme-Replayed") != "true" || again.object()["id"] != first.object()["id"]) {
				t.Errorf("a replay: %v %s", again.header, again.body)
			}
			if p := pay("k0", "r-0", acmePay, "error-stored"); p.status != 500 {
				t.Errorf("%s", says(p))
			}
			if p := pay("k0", "r-0", acmePay, ""); tt.profile != "acme-keyless" && p.status/100 == 2 {
				t.Errorf("a stored error is not repeated: %s", says(p))
			} else if p.status/100 == 2 {
				tt.executed++
			}
			no := strings.Replace(acmePay, `"ok"`, `"declined"`, 1)
			pay("k2", "r-2", no, "")
			if got := says(pay("k2", "r-2", no, "")); got != tt.declined {
				t.Errorf("a repeat of a decline gets %s, want %s", got, tt.declined)
			}
			pay("k3", "r-3", acmePay, "error-after")
			if got := says(pay("k3", "r-3", acmePay, "")); got != tt.failed {
				t.Errorf("a repeat after a 500 gets %s, want %s", got, tt.failed)
			}
			if got := says(pay("k1", "r-1", strings.Replace(acmePay, "100", "101", 1), "")); got != tt.others {
				t.Errorf("another body gets %s, want %s", got, tt.others)
			}
			if n := r.s.Moved(); n != tt.executed {
				t.Errorf("%d payments, want %d", n, tt.executed)
			}
		})
	}
}

// The planted defects, each seen.
func TestDefects(t *testing.T) {
	for fault, check := range map[string]func(r *rig, repeat, other reply) bool{
		"ignore-key":        func(r *rig, repeat, _ reply) bool { return r.s.Moved() == 3 && repeat.status == 201 },
		"forget":            func(r *rig, repeat, _ reply) bool { return r.s.Moved() == 3 && repeat.status == 201 },
		"accept-other-body": func(r *rig, _, other reply) bool { return r.s.Moved() == 1 && other.status == 201 },
		"not-repeated":      func(r *rig, repeat, _ reply) bool { return r.s.Moved() == 1 && repeat.status == 409 },
		"lookup-blind": func(r *rig, _, _ reply) bool {
			return !strings.Contains(string(r.json("GET", "/payments", "", "", "").body), "pay_") &&
				r.json("GET", "/payments/pay_00000001", "", "", "").status == 404
		},
		"": func(r *rig, repeat, other reply) bool {
			return r.s.Moved() == 1 && repeat.status == 201 && other.status == 422 && strings.Contains(string(r.json("GET", "/payments", "", "", "").body), "pay_")
		},
	} {
		r := start(t, sandbox.Config{Profile: "acme"})
		if fault != "" {
			if err := r.s.Inject(sandbox.Fault{Name: fault}); err != nil {
				t.Fatal(err)
			}
		}
		r.json("POST", "/payments", "k", "", acmePay)
		repeat := r.json("POST", "/payments", "k", "", acmePay)
		other := r.json("POST", "/payments", "k", "", strings.Replace(acmePay, "100", "101", 1))
		if !check(r, repeat, other) {
			t.Errorf("%q: %d payments, repeat %d, other %d", fault, r.s.Moved(), repeat.status, other.status)
		}
	}
}

func TestAcmeOperations(t *testing.T) {
	r := start(t, sandbox.Config{Profile: "acme"})
	held, _ := r.json("POST", "/payments", "k1", "", strings.Replace(acmePay, `"card":"ok"`, `"card":"ok","capture":false`, 1)).object()["id"].(string)
	for _, step := range []struct {
		target, body string
		status       int
	}{
		{"/payments/" + held + "/refunds", "", 409}, {"/payments/" + held + "/capture", "", 200}, {"/payments/" + held + "/capture", "", 409},
		{"/payments/" + held + "/refunds", `{"amount":60,"reference":"u-1"}`, 201}, {"/payments/" + held + "/refunds", `{"amount":60}`, 409},
		{"/payments/" + held + "/refunds", "", 201}, {"/payments/" + held + "/void", "", 409}, {"/payments/pay_9/void", "", 404},
		{"/payments", `{"amount":0,"currency":"eur","card":"ok"}`, 400}, {"/payments", `{"amount":1,"currency":"eur","card":"x"}`, 400},
		{"/payments", `no`, 400}, {"/elsewhere", "", 404},
	} {
		if p := r.json("POST", step.target, "", "", step.body); p.status != step.status {
			t.Errorf("%s %s: %d %s, want %d", step.target, step.body, p.status, p.body, step.status)
		}
	}
	if got := string(r.json("GET", "/payments/"+held+"/refunds", "", "", "").body); strings.Count(got, "ref_") != 2 || !strings.Contains(got, "u-1") {
		t.Errorf("%s", got)
	}
	since := time.Now().Add(time.Hour).UTC().Format(time.RFC3339)
	if got := string(r.json("GET", "/payments?created_after="+since, "", "", "").body); strings.Contains(got, "pay_") {
		t.Errorf("an old payment is listed: %s", got)
	}
	if got := string(r.json("GET", "/payments/search?reference=r-1", "", "", "").body); strings.Contains(got, "pay_") {
		t.Errorf("search does not lag: %s", got)
	}
}
