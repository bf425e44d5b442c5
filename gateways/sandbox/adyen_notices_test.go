package sandbox_test

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/fence-sidecar/fence-sidecar/claims"
	"github.com/fence-sidecar/fence-sidecar/gateways"
	"github.com/fence-sidecar/fence-sidecar/gateways/sandbox"
)

const adyenSecret = "44782DEF547AAA06C910C43932B1EB0C71FC68D9D0C057550C48EC2ACF6BA056"

// adyenItem is a notification as the official SDK reads it.
type adyenItem struct {
	AdditionalData map[string]string
	Amount         struct {
		Value    int64
		Currency string
	}
	EventCode, MerchantAccountCode, MerchantReference, OriginalReference, PspReference, Success string
}

// adyenListener takes notices and hands them on.
type adyenListener struct {
	*rig
	g    *gateways.Gateway
	came chan []byte
}

func listenAdyen(t *testing.T) *adyenListener {
	t.Helper()
	l := &adyenListener{rig: adyenRig(t), g: gateways.Adyen(), came: make(chan []byte, 20)}
	t.Setenv("ADYEN_HMAC", adyenSecret)
	l.g.Accounts = []gateways.Account{{Name: "main", WebhookSecrets: []gateways.Secret{{Env: "ADYEN_HMAC"}}}}
	if err := l.g.Validate(); err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		l.came <- b
		io.WriteString(w, l.g.Webhook.Accept)
	}))
	t.Cleanup(srv.Close)
	l.s.AddHook(sandbox.Hook{URL: srv.URL, Secret: adyenSecret})
	return l
}

// next is the next notice, its signature verified by a computation of its own.
func (l *adyenListener) next() (adyenItem, []byte) {
	l.t.Helper()
	var body []byte
	select {
	case body = <-l.came:
	case <-time.After(10 * time.Second):
		l.t.Fatal("no notice came")
	}
	var n struct {
		Live              string
		NotificationItems []struct{ NotificationRequestItem adyenItem }
	}
	if err := json.Unmarshal(body, &n); err != nil || len(n.NotificationItems) != 1 || n.Live != "false" {
		l.t.Fatalf("%v %s", err, body)
	}
	i := n.NotificationItems[0].NotificationRequestItem
	key, _ := hex.DecodeString(adyenSecret)
	mac := hmac.New(sha256.New, key)
	fmt.Fprintf(mac, "%s:%s:%s:%s:%d:%s:%s:%s", i.PspReference, i.OriginalReference, i.MerchantAccountCode, i.MerchantReference,
		i.Amount.Value, i.Amount.Currency, i.EventCode, i.Success)
	if want := base64.StdEncoding.EncodeToString(mac.Sum(nil)); i.AdditionalData["hmacSignature"] != want {
		l.t.Errorf("signature %q, want %q", i.AdditionalData["hmacSignature"], want)
	}
	return i, body
}

// reads opens the next notice by the declaration and says what it tells a route's call.
func (l *adyenListener) reads(route string) (adyenItem, string) {
	l.t.Helper()
	i, body := l.next()
	ns, err := l.g.OpenNotice(l.t.Context(), "main", gateways.Delivery{Body: body, At: time.Now()})
	if err != nil || len(ns) != 1 {
		l.t.Fatalf("%v %d", err, len(ns))
	}
	n := ns[0]
	if n.Object != i.PspReference || len(n.References) != 1 || n.References[0] != i.MerchantReference || !n.Signed || n.Answer != nil ||
		!n.Fits(claims.Facts{Lookup: map[string]string{"amount": fmt.Sprint(i.Amount.Value), "currency": "EUR"}}) ||
		n.Fits(claims.Facts{Lookup: map[string]string{"amount": "1"}}) {
		l.t.Errorf("%+v", n)
	}
	o, payment, ok := n.Reading(route)
	if !ok {
		return i, ""
	}
	return i, fmt.Sprintf("%s/%s", o, payment)
}

// TestAdyenNotices: what each operation comes to is told by its own event, which the declaration reads.
func TestAdyenNotices(t *testing.T) {
	l := listenAdyen(t)
	expect := func(route, event, success, reads, reference, psp string) {
		t.Helper()
		i, got := l.reads(route)
		if i.EventCode != event || i.Success != success || got != reads || i.MerchantReference != reference || psp != "" && i.PspReference != psp {
			t.Errorf("%+v reads %q, want %s %s %q", i, got, event, success, reads)
		}
	}
	amount := `{"merchantAccount":"ShopEU","reference":"mod","amount":{"value":400,"currency":"EUR"}}`
	pay := l.adyen("/v72/payments", "a", "", adyenWith("manualCapture", "true")).object()["pspReference"].(string)
	expect("payments_create", "AUTHORISATION", "true", "succeeded/done", "ref-1", pay)
	do := func(path, fault, body string) string {
		t.Helper()
		return l.adyenAnswered(l.adyen("/v72/payments/"+pay+"/"+path, "", fault, body), 201, "status", "received")
	}
	capture := do("captures", "", amount)
	expect("captures_create", "CAPTURE", "true", "succeeded/done", "mod", capture)
	do("captures", "", strings.Replace(amount, "400", "9999", 1))
	expect("captures_create", "CAPTURE", "false", "succeeded/failed", "mod", "")
	refund := do("refunds", "processing", amount)
	move := func(id, to string) {
		t.Helper()
		if err := l.s.Move(id, to); err != nil {
			t.Fatal(err)
		}
	}
	move(refund, "failed")
	expect("refunds_create", "REFUND", "false", "succeeded/failed", "mod", refund)
	refund = do("refunds", "", amount) // what failed before can be refunded again
	expect("refunds_create", "REFUND", "true", "succeeded/done", "mod", refund)
	move(refund, "reversed")
	expect("refunds_create", "REFUNDED_REVERSED", "true", "succeeded/reversed", "mod", refund)
	refund = do("refunds", "processing", amount)
	move(refund, "reversed")
	expect("refunds_create", "REFUND_FAILED", "true", "succeeded/reversed", "mod", refund)
	move(capture, "reversed")
	expect("captures_create", "CAPTURE_FAILED", "true", "succeeded/reversed", "mod", capture)
	do("cancels", "", `{"merchantAccount":"ShopEU"}`)
	expect("cancels_create", "CANCELLATION", "true", "succeeded/done", "ref-1", "") // without a reference of its own
	do("reversals", "", `{"merchantAccount":"ShopEU","reference":"mod"}`)
	expect("reversals_create", "CANCEL_OR_REFUND", "false", "succeeded/failed", "mod", "")
	l.adyen("/v72/cancels", "", "", `{"merchantAccount":"ShopEU","paymentReference":"ref-1","reference":"own"}`)
	expect("payments_create", "TECHNICAL_CANCEL", "false", "", "ref-1", "") // names the payment, of which it says nothing
	l.adyen("/v72/payments", "b", "decline", adyenBody)
	expect("payments_create", "AUTHORISATION", "false", "declined/", "ref-1", "")
}

// TestAdyenMoved: a payment under way is told when it moves, and only then; nothing more is booked.
func TestAdyenMoved(t *testing.T) {
	l := listenAdyen(t)
	pay := l.adyen("/v72/payments", "a", "processing", adyenBody).object()["pspReference"].(string)
	link := l.adyen("/v72/paymentLinks", "b", "", adyenBody).object()["id"].(string)
	for _, tt := range []struct{ id, to, route, reads string }{
		{pay, "done", "payments_create", "succeeded/done"},
		{pay, "reversed", "payments_create", "unknown/reversed"},
		{link, "failed", "payment_links_create", "succeeded/pending"},
		{link, "done", "payment_links_create", "succeeded/done"},
	} {
		if err := l.s.Move(tt.id, tt.to); err != nil {
			t.Fatal(err)
		}
		if i, got := l.reads(tt.route); got != tt.reads {
			t.Errorf("%s: %+v reads %q, want %q", tt.to, i, got, tt.reads)
		}
	}
	for _, bad := range [][2]string{{pay, "done"}, {pay, "paid"}, {"NOTHERE", "done"}, {link, "done"}} {
		if err := l.s.Move(bad[0], bad[1]); err == nil {
			t.Errorf("%s was moved to %s", bad[0], bad[1])
		}
	}
	if n := len(l.s.Ledger()); n != 2 || len(l.came) != 0 {
		t.Errorf("%d operations, %d notices", n, len(l.came))
	}
}

// TestAdyenForged: what is not signed as Adyen signs is refused, whichever field was changed; what nobody signs is not read.
func TestAdyenForged(t *testing.T) {
	l := listenAdyen(t)
	pay := l.adyen("/v72/payments", "a", "", adyenBody).object()["pspReference"].(string)
	_, body := l.next()
	open := func(b []byte) error {
		_, err := l.g.OpenNotice(t.Context(), "main", gateways.Delivery{Body: b, At: time.Now()})
		return err
	}
	for _, tt := range []struct{ old, fresh string }{
		{pay, "XXXXXXXXXXXXXXXX"}, {`"value":1000`, `"value":1001`}, {`"EUR"`, `"USD"`}, {"AUTHORISATION", "CAPTURE"}, {`"success":"true"`, `"success":"false"`},
		{"ref-1", "ref-2"}, {"ShopEU", "ShopUS"}, {"hmacSignature", "other"},
	} {
		changed := bytes.ReplaceAll(body, []byte(tt.old), []byte(tt.fresh))
		if err := open(changed); bytes.Equal(changed, body) || !errors.Is(err, gateways.ErrForged) {
			t.Errorf("%s: %v", tt.old, err)
		}
	}
	if err := open(bytes.Replace(body, []byte(`"reason":""`), []byte(`"reason":"x"`), 1)); err != nil {
		t.Errorf("a field that is not signed: %v", err)
	}
	if err := l.s.Tell(pay, "done", strings.Repeat("00", 32)); err != nil {
		t.Fatal(err)
	}
	if err := open(<-l.came); !errors.Is(err, gateways.ErrForged) {
		t.Errorf("another secret: %v", err)
	}
}
