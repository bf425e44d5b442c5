package sandbox_test

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fence-sidecar/fence-sidecar/gateways/sandbox"
)

// listener is an application's webhook.
type listener struct {
	srv *httptest.Server
	mu  sync.Mutex
	got []*http.Request
	all [][]byte
	bad int // how many are answered 500 first
}

func listen(t *testing.T, bad int) *listener {
	l := &listener{bad: bad}
	l.srv = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		l.mu.Lock()
		defer l.mu.Unlock()
		l.got, l.all = append(l.got, r), append(l.all, b)
		if l.bad--; l.bad >= 0 {
			w.WriteHeader(500)
		}
	}))
	t.Cleanup(l.srv.Close)
	return l
}

func (l *listener) types() (names []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, b := range l.all {
		var e struct{ Type string }
		json.Unmarshal(b, &e)
		names = append(names, e.Type)
	}
	return names
}

func waitTold(t *testing.T, r *rig, n int) {
	t.Helper()
	ctx := within(t, 20*time.Second)
	for r.s.Told() < n {
		if ctx.Err() != nil {
			t.Fatalf("%d notices were taken, want %d", r.s.Told(), n)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// What happens to a payment is told in Stripe's own form, signed over its time and body.
func TestStripeHooks(t *testing.T) {
	l := listen(t, 0)
	r := start(t, sandbox.Config{Hooks: []sandbox.Hook{{URL: l.srv.URL + "/hook", Secret: "whsec_test"}}})
	p := r.send("POST", "/v1/payment_intents", "k", "processing", charge)
	id, _ := p.object()["id"].(string)
	waitTold(t, r, 1)
	if err := r.s.Move(id, "done"); err != nil {
		t.Fatal(err)
	}
	waitTold(t, r, 2)
	if got := strings.Join(l.types(), " "); got != "payment_intent.processing payment_intent.succeeded" {
		t.Errorf("told %s", got)
	}
	for i, req := range l.got {
		at, sig, _ := strings.Cut(strings.TrimPrefix(req.Header.Get("Stripe-Signature"), "t="), ",v1=")
		mac := hmac.New(sha256.New, []byte("whsec_test"))
		mac.Write([]byte(at + "." + string(l.all[i])))
		if sig != hex.EncodeToString(mac.Sum(nil)) || req.Method != "POST" {
			t.Errorf("notice %d: %s %v", i, req.Method, req.Header)
		}
		if !strings.Contains(string(l.all[i]), `"fence_ref": "ref-1"`) {
			t.Errorf("notice %d without the reference: %s", i, l.all[i])
		}
	}
	if code, b := r.control("POST", "notices/"+id+"/done?secret=wrong", ""); code != 204 {
		t.Errorf("%d %s", code, b)
	}
	waitTold(t, r, 3)
	mac := hmac.New(sha256.New, []byte("wrong"))
	at, sig, _ := strings.Cut(strings.TrimPrefix(l.got[2].Header.Get("Stripe-Signature"), "t="), ",v1=")
	mac.Write([]byte(at + "." + string(l.all[2])))
	if sig != hex.EncodeToString(mac.Sum(nil)) {
		t.Error("not signed with the secret that was asked for")
	}
	if code, _ := r.control("POST", "notices/pi_none/done", ""); code != 400 {
		t.Errorf("of nothing: %d", code)
	}
}

// A notice that is not taken comes again; no other is sent meanwhile in its place.
func TestHooksComeAgain(t *testing.T) {
	l := listen(t, 1)
	r := start(t, sandbox.Config{Profile: "acme"})
	if code, b := r.control("POST", "webhooks", `{"url":"`+l.srv.URL+`","secret":"s","tries":3}`); code != 204 {
		t.Fatalf("%d %s", code, b)
	}
	r.json("POST", "/payments", "k", "", acmePay)
	waitTold(t, r, 1)
	if got := strings.Join(l.types(), " "); got != "payment.paid payment.paid" {
		t.Errorf("told %s", got)
	}
	for _, bad := range []string{`{"url":"no address"}`, `{"url":"http://x","what":1}`, `{`} {
		if code, _ := r.control("POST", "webhooks", bad); code != 400 {
			t.Errorf("%s: %d", bad, code)
		}
	}
	r.control("DELETE", "webhooks", "")
	r.json("POST", "/payments", "k2", "", acmePay)
	if r.s.Told() != 1 {
		t.Error("told although nobody is to be")
	}
}

// With no-outcome, what is under way stays so, and nobody is told.
func TestNoOutcome(t *testing.T) {
	l := listen(t, 0)
	r := start(t, sandbox.Config{Profile: "acme", Hooks: []sandbox.Hook{{URL: l.srv.URL, Secret: "s"}}})
	if err := r.s.Inject(sandbox.Fault{Name: "no-outcome"}); err != nil {
		t.Fatal(err)
	}
	id, _ := r.json("POST", "/payments", "k", "", strings.Replace(acmePay, "ok", "slow", 1)).object()["id"].(string)
	if code, _ := r.control("POST", "payments/"+id+"/done", ""); code != 204 {
		t.Errorf("%d", code)
	}
	if got := r.json("GET", "/payments/"+id, "", "", "").object()["status"]; got != "pending" || len(l.types()) != 0 {
		t.Errorf("%v, told %v", got, l.types())
	}
}

func TestProfiles(t *testing.T) {
	if _, err := sandbox.Open(sandbox.Config{Profile: "nobody"}); err == nil || !strings.Contains(err.Error(), "stripe") {
		t.Errorf("%v", err)
	}
	r := start(t, sandbox.Config{Profile: "acme-window"})
	if code, b := r.control("GET", "profile", ""); code != 200 || !strings.Contains(string(b), `"acme-window"`) {
		t.Errorf("%d %s", code, b)
	}
}

// A request that is held while everything is forgotten is not carried out into the new ledger.
func TestResetWhileHeld(t *testing.T) {
	r := start(t, sandbox.Config{})
	done := make(chan reply, 1)
	go func() { done <- r.charge("k", "hold-before") }()
	if err := r.s.WaitHold(within(t, 10*time.Second), "hold"); err != nil {
		t.Fatal(err)
	}
	r.s.Reset()
	if p := <-done; p.status != 503 {
		t.Errorf("%d %s", p.status, p.body)
	}
	if p := r.charge("k", ""); p.status != 200 || r.s.Moved() != 1 {
		t.Errorf("%d, %d charges", p.status, r.s.Moved())
	}
}
