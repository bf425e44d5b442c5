package gateways

import (
	"crypto/hmac"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"hash"
	"strings"
	"testing"
	"time"

	"github.com/fence-sidecar/fence-sidecar/claims"
)

func tenMAC(h func() hash.Hash, secret, over string) []byte {
	m := hmac.New(h, []byte(secret))
	m.Write([]byte(over))
	return m.Sum(nil)
}

// tenNotice is one delivery as the gateway makes it.
type tenNotice struct {
	g         *Gateway
	url, body string
	header    []claims.Field
	object    string
	reference string
}

const tenSecret = "whsec_of_the_test"

// tenNotices sign with code of the test's own, as the gateways' pages say.
func tenNotices(at time.Time) []tenNotice {
	field := func(name, value string) []claims.Field { return []claims.Field{{Name: name, Value: value}} }
	sq := `{"event_id":"e1","type":"payment.updated","data":{"type":"payment","id":"p1","object":{"payment":{"id":"p1","reference_id":"REF","status":"COMPLETED"}}}}`
	rz := `{"entity":"event","event":"payment.captured","payload":{"payment":{"entity":{"id":"pay_1","notes":{"fence_ref":"REF"}}}}}`
	ps := `{"event":"charge.success","data":{"reference":"REF","status":"success"}}`
	aw := `{"id":"evt_1","name":"payment_intent.succeeded","data":{"object":{"id":"int_1","merchant_order_id":"REF"}}}`
	mp := `{"id":1,"type":"payment","action":"payment.updated","data":{"id":"123"}}`
	const base = "https://hooks.example/a"
	millis, seconds := fmt.Sprint(at.UnixMilli()), fmt.Sprint(at.Unix())
	return []tenNotice{
		{Square(), base, sq, field("x-square-hmacsha256-signature", base64.StdEncoding.EncodeToString(tenMAC(sha256.New,
			tenSecret, base+sq))), "p1", "REF"},
		{Razorpay(), base, rz, field("X-Razorpay-Signature", hex.EncodeToString(tenMAC(sha256.New, tenSecret, rz))), "pay_1", "REF"},
		{Paystack(), base, ps, field("x-paystack-signature", hex.EncodeToString(tenMAC(sha512.New, tenSecret, ps))), "", "REF"},
		{Airwallex(), base, aw, append(field("x-timestamp", millis),
			field("x-signature", hex.EncodeToString(tenMAC(sha256.New, tenSecret, millis+aw)))...), "int_1", "REF"},
		{MercadoPago(), base + "?data.id=123&type=payment", mp, append(field("x-request-id", "r-1"),
			field("x-signature", "ts="+seconds+",v1="+hex.EncodeToString(tenMAC(sha256.New, tenSecret,
				"id:123;request-id:r-1;ts:"+seconds+";")))...), "123", ""},
		{Mollie(), base, "id=tr_1", field("Content-Type", "application/x-www-form-urlencoded"), "tr_1", ""},
	}
}

// TestTenNotices: a notice that is signed as the gateway does it is taken, names its call, and tells no outcome.
func TestTenNotices(t *testing.T) {
	t.Setenv("TEN_SECRET", tenSecret)
	at := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	for _, tt := range tenNotices(at) {
		g := tt.g
		g.Accounts = []Account{{Name: "main", WebhookSecrets: []Secret{{Env: "TEN_SECRET"}}}}
		tenValid(t, g)
		d := Delivery{URL: tt.url, Header: tt.header, Body: []byte(tt.body), At: at}
		ns, err := g.OpenNotice(t.Context(), "main", d)
		if err != nil || len(ns) != 1 {
			t.Errorf("%s: %d notices, %v", g.Name, len(ns), err)
			continue
		}
		n := ns[0]
		named := tt.reference == "" || len(n.References) > 0 && n.References[0] == tt.reference
		if n.Object != tt.object || !named || n.ID == "" || n.Signed != (g.Name != "mollie" && g.Name != "mercadopago") {
			t.Errorf("%s: %+v", g.Name, n)
		}
		for _, r := range g.Routes {
			if o, p, ok := n.Reading(r.Name); ok || o != claims.Unknown || p != "" {
				t.Errorf("%s.%s: a notice tells %s %s", g.Name, r.Name, o, p)
			}
		}
		if g.Webhook.Signature == nil {
			continue
		}
		for name, forge := range map[string]func(*Delivery){
			"other body": func(d *Delivery) { d.Body = []byte(strings.Replace(tt.body, "REF", "XXX", 1) + " ") },
			"no header":  func(d *Delivery) { d.Header = nil },
			"other secret": func(d *Delivery) {
				d.Header = append([]claims.Field(nil), d.Header...)
				last := &d.Header[len(d.Header)-1]
				last.Value = last.Value[:len(last.Value)-8] + "AAAAAAA="
			},
			"late": func(d *Delivery) { d.At = at.Add(time.Hour) },
		} {
			other := d
			forge(&other)
			timed := g.Name == "airwallex" || g.Name == "mercadopago"
			if name == "late" && !timed || name == "other body" && g.Name == "mercadopago" { // its signature does not cover the body
				continue
			}
			if _, err := g.OpenNotice(t.Context(), "main", other); err == nil {
				t.Errorf("%s: %s was taken", g.Name, name)
			}
		}
	}
	for _, declared := range []func() *Gateway{Braintree, AuthorizeNet, Worldpay, Increase} {
		if g := declared(); g.Webhook != nil {
			t.Errorf("%s: its notices are not documented well enough", g.Name)
		}
	}
}
