package gateways

import (
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/stripe/stripe-go/v85/webhook"

	"github.com/fence-sidecar/fence-sidecar/claims"
)

// unsigned is a gateway whose notices nobody signs.
func unsigned(t testing.TB, w Webhook) *Gateway {
	t.Helper()
	g := Stripe()
	g.Webhook, g.Checks, g.Accounts = &w, nil, []Account{{Name: "shop"}}
	if err := g.Validate(); err != nil {
		t.Fatal(err)
	}
	return g
}

// stripeEvent is an event as Stripe signs it.
func stripeEvent(t testing.TB, text string) Delivery {
	p := webhook.GenerateTestSignedPayload(&webhook.UnsignedPayload{Payload: []byte(text), Secret: "whsec_stripe", Timestamp: noticeTime})
	d := sent(text, "Stripe-Signature", p.Header)
	d.At = noticeTime
	return d
}

func stripeHooked(t testing.TB) *Gateway {
	if tt, ok := t.(*testing.T); ok {
		tt.Setenv("HOOK", "whsec_stripe")
	}
	g := stripe(t)
	g.Accounts = []Account{{Name: "shop", WebhookSecrets: []Secret{{Env: "HOOK"}}}}
	if err := g.Validate(); err != nil {
		t.Fatal(err)
	}
	return g
}

const intentEvent = `{"id":"evt_1","type":"payment_intent.succeeded","data":{"object":{"id":"pi_1","status":"succeeded","amount":4990,` +
	`"currency":"eur","metadata":{"fence_ref":"r-9","fence_capture_ref":"r-10"}}}}`

// TestStripeNotice: what Stripe's own declaration makes of an event.
func TestStripeNotice(t *testing.T) {
	g := stripeHooked(t)
	ns, err := open(g, stripeEvent(t, intentEvent))
	if err != nil || len(ns) != 1 {
		t.Fatal(ns, err)
	}
	n := ns[0]
	if n.ID != "evt_1" || !slices.Equal(n.References, []string{"r-9", "r-10"}) || n.Object != "pi_1" || n.Amount != "4990" || n.Currency != "eur" || !n.Signed {
		t.Errorf("%+v", n)
	}
	if n.Answer == nil || n.Answer.Status != 200 || !strings.HasPrefix(string(n.Answer.Body), `{"id":"pi_1"`) {
		t.Errorf("answer %+v", n.Answer)
	}
	for route, want := range map[string]bool{"payment_intents_create": true, "payment_intents_capture": true, "refunds_create": false, "": false} {
		o, p, ok := n.Reading(route)
		if ok != want || ok && (o != claims.Succeeded || p != "done") {
			t.Errorf("%s: %v %s %v", route, o, p, ok)
		}
	}
	for _, tt := range []struct {
		amount, currency string
		want             bool
	}{{"4990", "EUR", true}, {"4990.0", "", true}, {"", "eur", true}, {"4991", "eur", false}, {"4990", "usd", false}, {"x", "", false}, {"", "", true}} {
		if got := n.Fits(claims.Facts{Lookup: map[string]string{"amount": tt.amount, "currency": tt.currency}}); got != tt.want {
			t.Errorf("%+v fits: %v", tt, got)
		}
	}
}

// A notice that is kept comes back as it was, without its answer.
func TestPackedNotice(t *testing.T) {
	g := stripeHooked(t)
	ns, err := open(g, stripeEvent(t, strings.Replace(intentEvent, `"currency"`, `"receipt_email":"ada@example.com","currency"`, 1)))
	if err != nil {
		t.Fatal(err)
	}
	b, err := ns[0].Pack("shop")
	if err != nil || strings.Contains(string(b), "ada@") || len(b) > 1000 {
		t.Fatalf("%s %v", b, err)
	}
	account, back, err := UnpackNotice(b)
	ns[0].Answer = nil
	if d := cmp.Diff(ns[0], back, cmp.AllowUnexported(Notice{})); err != nil || account != "shop" || d != "" {
		t.Errorf("%v %s %s", err, account, d)
	}
	for _, bad := range []string{"", "{}", `{"v":2,"account":"a","id":"b"}`, `{"v":1,"account":"a","id":"b","more":1}`,
		`{"v":1,"account":"a","id":"b","reads":[{"outcome":"maybe"}]}`, `{"v":1,"account":"a","id":"b","reads":[{"outcome":"declined","payment":"done"}]}`} {
		if _, _, err := UnpackNotice([]byte(bad)); err == nil {
			t.Errorf("taken: %s", bad)
		}
	}
	plain := unsigned(t, Webhook{ID: "/id", References: []string{"/data/ref"}, Cases: []NoticeCase{{Outcome: "succeeded"}}})
	ns, err = open(plain, sent(noticeBody))
	if err != nil {
		t.Fatal(err)
	}
	if b, err := ns[0].Pack("shop"); err == nil {
		t.Errorf("an unsigned notice is kept: %s", b)
	}
}

// TestUnsignedTellsNothing: what nobody signed, or what the signature does not cover, carries no outcome, whatever it says.
func TestUnsignedTellsNothing(t *testing.T) {
	says := []NoticeCase{{Outcome: "succeeded", Payment: "done"}}
	form := unsigned(t, Webhook{Form: true, Object: "/id", Cases: says})
	ns, err := open(form, sent("id=tr_1"))
	if err != nil || len(ns) != 1 || ns[0].Object != "tr_1" || ns[0].Signed {
		t.Fatalf("%+v %v", ns, err)
	}
	all := schemes(t)
	mercado := all[slices.IndexFunc(all, func(s scheme) bool { return s.name == "Mercado Pago" })]
	mercado.form.Cases = says
	d := mercado.sign(mercado.secret, noticeTime)
	d.At = noticeTime
	more, err := open(listening(t, mercado), d)
	if err != nil {
		t.Fatal(err)
	}
	adyen := all[slices.IndexFunc(all, func(s scheme) bool { return s.name == "Adyen" })]
	adyen.form.Cases = []NoticeCase{{When: []Condition{{At: "/reason", Absent: true}}, Outcome: "succeeded"}} // reason is not signed
	open3, err := open(listening(t, adyen), adyen.sign(adyen.secret, noticeTime))
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range slices.Concat(ns, more, open3) {
		if o, p, ok := n.Reading("charges_create"); ok || o != claims.Unknown || p != "" || n.Signed || n.Tells() || n.Answer != nil {
			t.Errorf("%+v tells %v %s", n, o, p)
		}
		signed := n
		signed.Signed = true // the same, read without that rule, would tell
		if _, _, ok := signed.Reading("charges_create"); !ok {
			t.Errorf("%+v tells nothing either way: the test shows nothing", n)
		}
	}
}

// An unescaped colon makes Adyen's text that of other values too: moved over the border, it would be another call's.
func TestAmbiguousText(t *testing.T) {
	all := schemes(t)
	adyen := all[slices.IndexFunc(all, func(s scheme) bool { return s.name == "Adyen" })]
	g := listening(t, adyen)
	signed := func(ref, text string) Delivery {
		sig := base64.StdEncoding.EncodeToString(mac(g.Webhook.Signature.hash(), "\x01\x02\x03\x04\x05", text))
		return sent(strings.Replace(fmt.Sprintf(adyenBody, sig), `"r-9"`, `"`+ref+`"`, 1))
	}
	for _, tt := range []struct {
		ref, text string
		covers    bool
	}{
		{"r-9", "PSP1::Shop:r-9:4990:EUR:AUTHORISATION:true", true},
		{"r:9", "PSP1::Shop:r:9:4990:EUR:AUTHORISATION:true", false},
		{"r:9", `PSP1::Shop:r\:9:4990:EUR:AUTHORISATION:true`, true},
		{`r\\9`, `PSP1::Shop:r\\9:4990:EUR:AUTHORISATION:true`, true},
	} {
		ns, err := open(g, signed(tt.ref, tt.text))
		if err != nil || ns[0].Signed != tt.covers {
			t.Errorf("%s: %+v %v", tt.text, ns, err)
			continue
		}
		if _, _, ok := ns[0].Reading("charges_create"); ok != tt.covers {
			t.Errorf("%s: tells %v", tt.text, ok)
		}
	}
	// The id of a notice that has none is a digest of what is signed: what is not signed makes no other notice of it.
	a, _ := open(g, signed("r-9", "PSP1::Shop:r-9:4990:EUR:AUTHORISATION:true"))
	d := signed("r-9", "PSP1::Shop:r-9:4990:EUR:AUTHORISATION:true")
	d.Body = []byte(strings.Replace(string(d.Body), `"success"`, `"reason":"x","success"`, 1))
	if b, err := open(g, d); err != nil || a[0].ID != b[0].ID {
		t.Errorf("%v: %s and %s", err, a[0].ID, b[0].ID)
	}
}

// TestOddBodies: what readers take for different things, or cannot read, is refused whole.
func TestOddBodies(t *testing.T) {
	g := stripeHooked(t)
	for name, body := range map[string]string{
		"a member twice":              strings.Replace(intentEvent, `"id":"pi_1"`, `"id":"pi_1","id":"pi_2"`, 1),
		"a member twice, one escaped": strings.Replace(intentEvent, `"id":"pi_1"`, `"id":"pi_1","\u0069d":"pi_2"`, 1),
		"no JSON":                     "id=evt_1",
		"two values":                  intentEvent + intentEvent,
		"not UTF-8":                   strings.Replace(intentEvent, "eur", "\xff", 1),
		"half a pair":                 strings.Replace(intentEvent, "eur", `\ud800`, 1),
		"a byte order mark":           "\xef\xbb\xbf" + intentEvent,
		"cut short":                   intentEvent[:len(intentEvent)-1],
		"too large":                   `{"id":"` + strings.Repeat("x", MaxNotice) + `"}`,
		"empty":                       "",
	} {
		if ns, err := open(g, stripeEvent(t, body)); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %+v %v", name, ns, err)
		}
	}
	coded := stripeEvent(t, intentEvent)
	coded.Header = append(coded.Header, claims.Field{Name: "Content-Encoding", Value: "gzip"})
	if _, err := open(g, coded); !errors.Is(err, ErrMalformed) {
		t.Errorf("coded: %v", err)
	}
	list := unsigned(t, Webhook{Events: "/events", ID: "/id", Object: "/id"})
	for body, want := range map[string]int{`{"events":[]}`: 0, `{"events":[{"id":"a"},{"id":"b"}]}`: 2, `{}`: -1, `{"events":{}}`: -1, `{"events":null}`: 0,
		`{"events":[` + strings.Repeat("{},", maxEvents) + `{}]}`: -1} {
		ns, err := open(list, sent(body))
		if want < 0 && !errors.Is(err, ErrMalformed) || want >= 0 && (err != nil || len(ns) != want) {
			t.Errorf("%.40s: %d %v", body, len(ns), err)
		}
	}
	form := unsigned(t, Webhook{Form: true, Object: "/id"})
	for _, body := range []string{"id=a&id=b", "id=%zz", "id=%ff", "a;b"} {
		if ns, err := open(form, sent(body)); !errors.Is(err, ErrMalformed) {
			t.Errorf("%s: %+v %v", body, ns, err)
		}
	}
	if _, err := g.OpenNotice(t.Context(), "other", stripeEvent(t, intentEvent)); !errors.Is(err, ErrNoNotices) {
		t.Errorf("another account: %v", err)
	}
}

// By an object alone only a case that names the route tells: an intent is its creation's, its capture's and its cancellation's.
func TestReadingByObject(t *testing.T) {
	n := Notice{Signed: true, readings: []reads{
		{Outcome: "succeeded"}, {Routes: []string{"capture"}, Outcome: "succeeded", Payment: "done"},
	}}
	if _, _, ok := n.ReadingOf(claims.Facts{Route: "cancel"}, true); ok {
		t.Error("a case of all routes tells by an object")
	}
	if o, p, ok := n.ReadingOf(claims.Facts{Route: "capture"}, true); !ok || o != claims.Succeeded || p != "done" {
		t.Error("a case that names the route tells nothing")
	}
	if _, p, _ := n.Reading("capture"); p != "" {
		t.Error("the first case that holds does not count")
	}
}

func TestBadWebhooks(t *testing.T) {
	const bare = "name: x\nbaseURL: https://x.example\nroutes: [{name: a, method: POST, path: /a, keyless: true, noReference: true}]\n"
	for _, tt := range [][2]string{
		{`{id: id, object: /x}`, "webhook.id"},
		{`{references: [""]}`, "webhook.references[0]"},
		{`{id: /id}`, "webhook.references"},
		{`{object: /x, refuse: 500}`, "webhook.refuse"},
		{`{object: /x, accept: ` + strings.Repeat("a", 1001) + `}`, "webhook.accept"},
		{`{object: /x, form: true, answer: {at: /x}}`, "webhook.answer"},
		{`{object: /x, answer: {at: /x, status: 404}}`, "webhook.answer.status"},
		{`{object: /x, cases: [{outcome: maybe}]}`, "webhook.cases[0].outcome"},
		{`{object: /x, cases: [{outcome: unknown}]}`, "webhook.cases[0].outcome"},
		{`{object: /x, cases: [{payment: gone}]}`, "webhook.cases[0].payment"},
		{`{object: /x, cases: [{outcome: declined, payment: done}]}`, "webhook.cases[0].payment"},
		{`{object: /x, cases: [{routes: [nowhere]}]}`, "webhook.cases[0].routes"},
		{`{object: /x, cases: [{when: [{at: x}]}]}`, "webhook.cases[0].when[0].at"},
		{`{object: /x, signature: {}}`, "webhook.signature"},
		{`{object: /x, signature: {header: S, at: /s}}`, "webhook.signature"},
		{`{object: /x, signature: {header: S, scheme: rot13}}`, "webhook.signature.scheme"},
		{`{object: /x, signature: {header: S, hash: md5}}`, "webhook.signature.hash"},
		{`{object: /x, signature: {header: S, secret: rot13}}`, "webhook.signature.secret"},
		{`{object: /x, signature: {header: S, encoding: base32}}`, "webhook.signature.encoding"},
		{`{object: /x, signature: {header: S, signed: "{nothing}"}}`, "webhook.signature.signed"},
		{`{object: /x, signature: {header: S, signed: "text"}}`, "webhook.signature.signed"},
		{`{object: /x, signature: {header: S, signed: "{{body}}"}}`, "webhook.signature.signed"},
		{`{object: /x, signature: {header: S, signed: "{timestamp}{body}"}}`, "webhook.signature.signed"},
		{`{object: /x, signature: {header: S, timestampPart: t}}`, "webhook.signature.signed"},
		{`{object: /x, signature: {header: S, signed: "{webhook-id}{body}"}}`, "webhook.signature.signed"},
		{`{object: /x, signature: {header: S, signed: "{/a}"}}`, "webhook.signature.signed"},
		{`{object: /x, signature: {at: /s, signed: "{/a}{/b}"}}`, "webhook.signature.signed"},
		{`{object: /x, signature: {at: /s, signed: "{/a}|{/b}"}}`, "webhook.signature.signed"},
		{`{object: /x, signature: {at: /s, signed: "{/a}:{/b}"}, answer: {at: /x}}`, "webhook.answer"},
		{`{object: /x, answer: {at: /x, wrap: y}}`, "webhook.answer.wrap"},
		{`{object: /x, form: true, events: /y}`, "webhook.form"},
		{`{object: /x, signature: {at: /s}}`, "webhook.signature.signed"},
		{`{object: /x, signature: {header: S, tolerance: 1000h}}`, "webhook.signature.tolerance"},
		{`{object: /x, signature: {header: S, certHosts: [a.example]}}`, "webhook.signature.certHosts"},
		{`{object: /x, signature: {header: S, scheme: certificate, certHeader: C}}`, "webhook.signature.signed"},
		{`{object: /x, signature: {header: S, scheme: certificate, certHosts: [A/b], certHeader: C, signed: "{webhook-id}"}}`, "webhook.signature.certHosts[0]"},
	} {
		text, want := tt[0], tt[1]
		_, err := Load([]byte(bare+"webhook: "+text+"\n"), "x.yaml")
		if err == nil || !strings.Contains(err.Error(), want+":") || !strings.Contains(err.Error(), "allowed: ") {
			t.Errorf("%s: %v, want one that names %s", text, err, want)
		}
	}
}

// FuzzNotice: nothing that anybody sends panics, and nothing is taken that Stripe did not sign.
func FuzzNotice(f *testing.F) {
	f.Add(intentEvent, "t=1,v1=00", "https://x/?a=b")
	f.Add(`{"events":[{"id":1}]}`, "t=,v1=", "")
	f.Add("a=b&c=d", ",,,=", "%zz")
	f.Setenv("HOOK", "whsec_stripe")
	signed := stripeHooked(f)
	list, form := unsigned(f, Webhook{Events: "/events", ID: "/id", Object: "/id"}), unsigned(f, Webhook{Form: true, Object: "/id"})
	f.Fuzz(func(t *testing.T, body, header, url string) {
		d := sent(body, "Stripe-Signature", header)
		d.URL, d.At = url, time.Unix(1, 0)
		if _, err := open(signed, d); err == nil {
			t.Errorf("taken: %q %q", header, body)
		}
		for _, g := range []*Gateway{list, form} {
			ns, err := open(g, d)
			for _, n := range ns {
				if err != nil || n.Signed || n.Tells() || n.ID == "" || len(n.ID) > claims.MaxKey || len(n.Object) > claims.MaxKey {
					t.Errorf("%+v %v", n, err)
				}
			}
		}
	})
}

// FuzzUnpackNotice: what was kept is read as it was written, or not at all.
func FuzzUnpackNotice(f *testing.F) {
	f.Add([]byte(`{"v":1,"account":"shop","id":"e","references":["r"],"reads":[{"routes":["a"],"outcome":"succeeded","payment":"done"}]}`))
	f.Add([]byte(`{"v":1,"account":"shop","id":"e","reads":[{}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		account, n, err := UnpackNotice(b)
		if err != nil || !n.Tells() {
			return
		}
		again, err := n.Pack(account)
		if err != nil {
			t.Fatal(err)
		}
		if a, m, err := UnpackNotice(again); err != nil || a != account || !cmp.Equal(n, m, cmp.AllowUnexported(Notice{})) {
			t.Errorf("%s: %v %+v %+v", b, err, n, m)
		}
	})
}
