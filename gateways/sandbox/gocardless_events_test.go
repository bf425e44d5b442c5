package sandbox_test

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fence-sidecar/fence-sidecar/claims"
	"github.com/fence-sidecar/fence-sidecar/gateways"
	"github.com/fence-sidecar/fence-sidecar/gateways/sandbox"
)

// gcHooked collects the deliveries of a webhook.
func gcHooked(t *testing.T, d debits) (next func() (http.Header, []byte)) {
	t.Helper()
	type delivery struct {
		header http.Header
		body   []byte
	}
	in := make(chan delivery, 100)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		in <- delivery{r.Header, b}
		w.WriteHeader(204)
	}))
	t.Cleanup(srv.Close)
	d.s.AddHook(sandbox.Hook{URL: srv.URL, Secret: "hush"})
	return func() (http.Header, []byte) {
		t.Helper()
		select {
		case x := <-in:
			return x.header, x.body
		case <-time.After(10 * time.Second):
			t.Fatal("nothing was told")
		}
		return nil, nil
	}
}

// TestGoCardlessEvents: every scenario's last status and events, signed over the body.
func TestGoCardlessEvents(t *testing.T) {
	for _, tt := range []struct{ scene, status, events string }{
		{"payment_submitted", "submitted", "created submitted"},
		{"payment_confirmed", "confirmed", "confirmed created submitted"},
		{"payment_paid_out", "paid_out", "confirmed created paid_out submitted"},
		{"payment_failed", "failed", "created failed submitted"},
		{"payment_late_failure", "failed", "confirmed created failed paid_out submitted"},
		{"payment_late_failure_settled", "failed", "confirmed created failed late_failure_settled paid_out submitted"},
		{"payment_charged_back", "charged_back", "charged_back confirmed created paid_out submitted"},
	} {
		d := newDebits(t, sandbox.Config{})
		n := len(strings.Fields(tt.events))
		next := gcHooked(t, d)
		id := d.pay("k")
		if p := d.simulate(tt.scene, id); p.status != 200 {
			t.Fatalf("%s: %d %s", tt.scene, p.status, p.body)
		}
		var events []string
		for range n {
			header, body := next()
			mac := hmac.New(sha256.New, []byte("hush"))
			mac.Write(body)
			if header.Get("Webhook-Signature") != hex.EncodeToString(mac.Sum(nil)) {
				t.Errorf("signature %q", header.Get("Webhook-Signature"))
			}
			at := func(p string) string { return gateways.TextAt(body, "/events/0"+p) }
			if at("/links/payment") != id || at("/resource_type") != "payments" || at("/resource_metadata/fence_ref") != "r1" || at("/id") == "" {
				t.Errorf("%s", body)
			}
			events = append(events, at("/action"))
		}
		slices.Sort(events)
		if strings.Join(events, " ") != tt.events || d.status("payments", id) != tt.status {
			t.Errorf("%s: %v, %s", tt.scene, events, d.status("payments", id))
		}
		if p := d.simulate("payment_confirmed", id); p.status != 422 {
			t.Errorf("%s: moved from %s: %d", tt.scene, tt.status, p.status)
		}
		if len(d.s.Ledger()) != 1 {
			t.Errorf("%s: %+v", tt.scene, d.s.Ledger())
		}
	}
}

// TestGoCardlessNotice: the sandbox's notice is what the declaration reads, and a wrong secret is seen.
func TestGoCardlessNotice(t *testing.T) {
	t.Setenv("GC_SECRET", "hush")
	d := newDebits(t, sandbox.Config{})
	d.g.Accounts = []gateways.Account{{Name: "main", WebhookSecrets: []gateways.Secret{{Env: "GC_SECRET"}}}}
	next := gcHooked(t, d)
	id := d.pay("k")
	next()
	for _, tt := range []struct {
		event, secret string
		pay           string
		forged        bool
	}{
		{"done", "", "done", false}, {"paid_out", "", "done", false}, {"reversed", "", "reversed", false},
		{"late_failure_settled", "", "reversed", false}, {"done", "guessed", "", true},
	} {
		if err := d.s.Tell(id, tt.event, tt.secret); err != nil {
			t.Fatal(err)
		}
		header, body := next()
		ns, err := d.g.OpenNotice(t.Context(), "main", gateways.Delivery{
			Header: []claims.Field{{Name: "Webhook-Signature", Value: header.Get("Webhook-Signature")}}, Body: body, At: time.Now(),
		})
		if tt.forged {
			if err == nil {
				t.Error("a forged notice passes")
			}
			continue
		}
		if err != nil || len(ns) != 1 || ns[0].Object != id || !bytes.Contains(body, []byte(ns[0].ID)) {
			t.Fatalf("%+v %v", ns, err)
		}
		if o, pay, ok := ns[0].Reading("payments_create"); !ok || o != claims.Succeeded || pay != tt.pay {
			t.Errorf("%s: %v %q %v", tt.event, o, pay, ok)
		}
	}
}

// TestGoCardlessMoves: the control API moves what is under way, and a payment that was collected can still fail.
func TestGoCardlessMoves(t *testing.T) {
	d := newDebits(t, sandbox.Config{})
	for _, tt := range []struct {
		moves  []string
		status string
		fails  bool
	}{
		{[]string{"done"}, "confirmed", false},
		{[]string{"failed"}, "failed", false},
		{[]string{"done", "failed"}, "failed", false},
		{[]string{"done", "reversed"}, "charged_back", false},
		{[]string{"failed", "done"}, "failed", true},
		{[]string{"done", "paid"}, "confirmed", true},
	} {
		id := d.pay("")
		var err error
		for _, to := range tt.moves {
			err = d.s.Move(id, to)
		}
		if (err != nil) != tt.fails || d.status("payments", id) != tt.status {
			t.Errorf("%v: %v, %s", tt.moves, err, d.status("payments", id))
		}
	}
	d.s.Inject(sandbox.Fault{Name: "no-outcome"})
	id := d.pay("")
	if p := d.simulate("payment_paid_out", id); p.status != 200 || d.status("payments", id) != "pending_submission" || d.s.Move(id, "done") != nil {
		t.Errorf("%d, %s", p.status, d.status("payments", id))
	}
	if p := d.call("POST", "/payments", "a", "action", collect); p.at("/payments/status") != "pending_customer_approval" {
		t.Errorf("%s", p.body)
	}
}
