package gateways

import (
	"context"
	"crypto"
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"hash/crc32"
	"math/big"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	standardwebhooks "github.com/standard-webhooks/standard-webhooks/libraries/go"
	"github.com/stripe/stripe-go/v85/webhook"

	"github.com/fence-sidecar/fence-sidecar/claims"
)

const (
	noticeURL  = "https://hooks.example.com/webhooks/default/g/shop?data.id=ORD01"
	noticeBody = `{"id":"evt_1","type":"paid","data":{"ref":"r-9","object":"ch_1","amount":4990,"currency":"EUR"}}`
	adyenBody  = `{"live":"false","notificationItems":[{"NotificationRequestItem":{"pspReference":"PSP1","merchantAccountCode":"Shop",` +
		`"merchantReference":"r-9","amount":{"value":4990,"currency":"EUR"},"eventCode":"AUTHORISATION","success":"true","additionalData":{"hmacSignature":"%s"}}}]}`
	stdSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwMfKQ9r8GKYo="
)

var noticeTime = time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)

func mac(h func() hash.Hash, key, text string) []byte {
	m := hmac.New(h, []byte(key))
	m.Write([]byte(text))
	return m.Sum(nil)
}

// scheme is one gateway's way to sign, with a signer that knows nothing of the verifier.
type scheme struct {
	name   string
	form   Webhook
	secret string
	sign   func(secret string, at time.Time) Delivery
	timed  bool
}

func plainNotice(sig *Signature) Webhook {
	return Webhook{
		Signature: sig, ID: "/id", References: []string{"/data/ref"}, Object: "/data/object", Amount: "/data/amount", Currency: "/data/currency",
		Cases: []NoticeCase{{When: []Condition{{At: "/type", In: []string{"paid"}}}, Outcome: "succeeded", Payment: "done"}},
	}
}

func sent(body string, header ...string) Delivery {
	d := Delivery{URL: noticeURL, Body: []byte(body)}
	for i := 0; i+1 < len(header); i += 2 {
		d.Header = append(d.Header, claims.Field{Name: header[i], Value: header[i+1]})
	}
	return d
}

func adyenNotice() Webhook {
	return Webhook{
		Signature: &Signature{
			At: "/additionalData/hmacSignature", Secret: "hex", Encoding: "base64",
			Signed: "{/pspReference}:{/originalReference}:{/merchantAccountCode}:{/merchantReference}:{/amount/value}:{/amount/currency}:{/eventCode}:{/success}",
		},
		Events: "/notificationItems", Item: "/NotificationRequestItem",
		References: []string{"/merchantReference"}, Object: "/pspReference", Amount: "/amount/value", Currency: "/amount/currency",
		Cases: []NoticeCase{{When: []Condition{{At: "/eventCode", In: []string{"AUTHORISATION"}}, {At: "/success", In: []string{"true"}}}, Outcome: "succeeded"}},
	}
}

func schemes(t testing.TB) []scheme {
	paypal := certified(t)
	return []scheme{
		{"Stripe", plainNotice(&Signature{Header: "Stripe-Signature", Part: "v1", TimestampPart: "t", Signed: "{timestamp}.{body}"}), "whsec_stripe",
			func(secret string, at time.Time) Delivery {
				p := webhook.GenerateTestSignedPayload(&webhook.UnsignedPayload{Payload: []byte(noticeBody), Secret: secret, Timestamp: at})
				return sent(noticeBody, "Stripe-Signature", p.Header)
			}, true},
		{"Standard Webhooks", plainNotice(&Signature{
			Header: "webhook-signature", Separator: " ", Prefix: "v1,", Secret: "whsec", Encoding: "base64",
			TimestampHeader: "webhook-timestamp", Signed: "{header:webhook-id}.{timestamp}.{body}",
		}), stdSecret, func(secret string, at time.Time) Delivery {
			wh, err := standardwebhooks.NewWebhook(secret)
			if err != nil {
				wh, _ = standardwebhooks.NewWebhook("whsec_" + base64.StdEncoding.EncodeToString([]byte(secret+"........")))
			}
			s, _ := wh.Sign("msg_1", at, []byte(noticeBody))
			return sent(noticeBody, "webhook-id", "msg_1", "webhook-timestamp", fmt.Sprint(at.Unix()), "webhook-signature", s)
		}, true},
		{"Square", plainNotice(&Signature{Header: "x-square-hmacsha256-signature", Encoding: "base64", Signed: "{url}{body}"}), "sq0",
			func(secret string, _ time.Time) Delivery {
				return sent(noticeBody, "X-Square-HmacSha256-Signature", base64.StdEncoding.EncodeToString(mac(sha256.New, secret, noticeURL+noticeBody)))
			}, false},
		{"Authorize.Net", plainNotice(&Signature{Header: "X-ANET-Signature", Prefix: "sha512=", Hash: "sha512", Secret: "hex"}), "00ff11",
			func(secret string, _ time.Time) Delivery {
				key, _ := hex.DecodeString(secret)
				return sent(noticeBody, "X-ANET-Signature", "sha512="+strings.ToUpper(hex.EncodeToString(mac(sha512.New, string(key), noticeBody))))
			}, false},
		{"Airwallex", plainNotice(&Signature{Header: "x-signature", TimestampHeader: "x-timestamp", TimestampMillis: true, Signed: "{timestamp}{body}"}), "awx",
			func(secret string, at time.Time) Delivery {
				ms := fmt.Sprint(at.UnixMilli())
				return sent(noticeBody, "x-timestamp", ms, "x-signature", hex.EncodeToString(mac(sha256.New, secret, ms+noticeBody)))
			}, true},
		{"Adyen", adyenNotice(), "0102030405", func(secret string, _ time.Time) Delivery {
			key, _ := hex.DecodeString(secret)
			return sent(fmt.Sprintf(adyenBody, base64.StdEncoding.EncodeToString(mac(sha256.New, string(key), "PSP1::Shop:r-9:4990:EUR:AUTHORISATION:true"))))
		}, false},
		{"Mercado Pago", Webhook{
			Signature: &Signature{Header: "x-signature", Part: "v1", TimestampPart: "ts", Signed: "id:{query-lower:data.id};request-id:{header:x-request-id};ts:{timestamp};"},
			Object:    "/data/object",
		}, "mp", func(secret string, at time.Time) Delivery {
			ts := fmt.Sprint(at.Unix())
			sum := hex.EncodeToString(mac(sha256.New, secret, "id:ord01;request-id:q1;ts:"+ts+";"))
			return sent(noticeBody, "x-request-id", "q1", "x-signature", "ts="+ts+", v1="+sum)
		}, true},
		{"PayPal", plainNotice(&Signature{
			Scheme: SchemeCertificate, Header: "PAYPAL-TRANSMISSION-SIG", Encoding: "base64", TimestampHeader: "PAYPAL-TRANSMISSION-TIME",
			Signed:     "{header:PAYPAL-TRANSMISSION-ID}|{header:PAYPAL-TRANSMISSION-TIME}|{webhook-id}|{crc32}",
			CertHeader: "PAYPAL-CERT-URL", CertHosts: []string{"api.paypal.com"},
		}), "WH-1", func(id string, at time.Time) Delivery { return paypal(id, at, "https://api.paypal.com/v1/certs/c1") }, true},
	}
}

// certified signs as PayPal does, with a key of its own.
func certified(t testing.TB) func(id string, at time.Time, url string) Delivery {
	key := rsaKey(t)
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "messageverificationcerts"}, NotBefore: noticeTime.Add(-time.Hour), NotAfter: noticeTime.Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		t.Fatal(err)
	}
	return func(id string, at time.Time, url string) Delivery {
		stamp := at.UTC().Format(time.RFC3339)
		sum := sha256.Sum256(fmt.Appendf(nil, "tx1|%s|%s|%d", stamp, id, crc32.ChecksumIEEE([]byte(noticeBody))))
		sig, err := rsa.SignPKCS1v15(nil, key, crypto.SHA256, sum[:])
		if err != nil {
			t.Fatal(err)
		}
		d := sent(noticeBody, "Paypal-Transmission-Id", "tx1", "Paypal-Transmission-Time", stamp, "Paypal-Cert-Url", url,
			"Paypal-Transmission-Sig", base64.StdEncoding.EncodeToString(sig))
		d.Certificate = func(context.Context, string) (*x509.Certificate, error) { return cert, nil }
		return d
	}
}

var rsaKey = func() func(testing.TB) *rsa.PrivateKey {
	once := sync.OnceValues(func() (*rsa.PrivateKey, error) { return rsa.GenerateKey(rand.Reader, 2048) })
	return func(t testing.TB) *rsa.PrivateKey {
		k, err := once()
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
}()

// listening is a gateway whose account shop has two secrets, the scheme's being the second: it is being rolled.
func listening(t testing.TB, s scheme) *Gateway {
	t.Helper()
	other := map[string]string{"hex": "aa", "base64": "YWE=", "whsec": "whsec_b2xkZXIgc2VjcmV0IG9mIHRoZSBldmVudHMhISE="}[s.form.Signature.Secret]
	if other == "" {
		other = "other"
	}
	if tt, ok := t.(*testing.T); ok {
		tt.Setenv("HOOK_NEW", s.secret)
		tt.Setenv("HOOK_OLD", other)
	}
	w := s.form
	sig := *s.form.Signature
	w.Signature, w.Cases = &sig, slices.Clone(w.Cases)
	g := Stripe()
	g.Webhook, g.Checks = &w, nil
	g.Accounts = []Account{{Name: "shop", WebhookSecrets: []Secret{{Env: "HOOK_OLD"}, {Env: "HOOK_NEW"}}}}
	if err := g.Validate(); err != nil {
		t.Fatalf("%s: %v", s.name, err)
	}
	return g
}

type opener func(*Gateway, Delivery) ([]Notice, error)

func open(g *Gateway, d Delivery) ([]Notice, error) {
	return g.OpenNotice(context.Background(), "shop", d)
}

// forgeries are deliveries that must be refused: each differs from a good one in one thing.
func forgeries(s scheme) map[string]func() Delivery {
	good := func() Delivery {
		d := s.sign(s.secret, noticeTime)
		d.At = noticeTime
		return d
	}
	sig := first(s.form.Signature.Header, "none")
	out := map[string]func() Delivery{
		"another secret": func() Delivery { d := s.sign("5f5f", noticeTime); d.At = noticeTime; return d },
		"no signature": func() Delivery {
			d := good()
			d.Header = slices.DeleteFunc(d.Header, func(f claims.Field) bool { return strings.EqualFold(f.Name, sig) })
			d.Body = []byte(strings.Replace(string(d.Body), "hmacSignature", "hmac", 1))
			return d
		},
	}
	if s.name != "Mercado Pago" {
		out["another body"] = func() Delivery {
			d := good()
			d.Body = []byte(strings.Replace(string(d.Body), "4990", "1", 1))
			return d
		}
	}
	if sig != "none" {
		out["the signature twice"] = func() Delivery {
			d := good()
			for _, f := range d.Header {
				if strings.EqualFold(f.Name, sig) {
					d.Header = append(d.Header, f)
				}
			}
			return d
		}
	}
	if s.timed {
		out["too old"] = func() Delivery { d := good(); d.At = noticeTime.Add(6 * time.Minute); return d }
		out["from the future"] = func() Delivery { d := good(); d.At = noticeTime.Add(-6 * time.Minute); return d }
		out["an old one with a new time"] = func() Delivery {
			d, late := good(), s.sign("5f5f", noticeTime.Add(time.Hour))
			for i, f := range late.Header {
				if strings.Contains(strings.ToLower(f.Name), "time") {
					d.Header[i] = f
				}
			}
			d.At = noticeTime.Add(time.Hour)
			return d
		}
	}
	return out
}

func schemeProblems(t *testing.T, open opener) (problems []string) {
	for _, s := range schemes(t) {
		g := listening(t, s)
		d := s.sign(s.secret, noticeTime)
		for _, off := range []time.Duration{0, 4 * time.Minute, -4 * time.Minute} {
			d.At = noticeTime.Add(off)
			ns, err := open(g, d)
			if err != nil || len(ns) != 1 || ns[0].Object == "" {
				problems = append(problems, fmt.Sprintf("%s: a good notice: %+v %v", s.name, ns, err))
			} else if ns[0].Signed != (s.name != "Mercado Pago") {
				problems = append(problems, fmt.Sprintf("%s: signed %v", s.name, ns[0].Signed))
			}
		}
		for what, forged := range forgeries(s) {
			if ns, err := open(g, forged()); !errors.Is(err, ErrForged) {
				problems = append(problems, fmt.Sprintf("%s: %s: %+v %v", s.name, what, ns, err))
			}
		}
	}
	return problems
}

// TestSignatureSchemes: what each gateway signs is taken with either secret while one is rolled, and nothing else is.
func TestSignatureSchemes(t *testing.T) {
	for _, p := range schemeProblems(t, open) {
		t.Error(p)
	}
}

// TestSignatureSchemesBite: verifiers that leave something out are found by the same table.
func TestSignatureSchemesBite(t *testing.T) {
	with := func(change func(*Gateway, *Delivery)) opener {
		return func(g *Gateway, d Delivery) ([]Notice, error) {
			c, w, s := *g, *g.Webhook, *g.Webhook.Signature
			c.Webhook, w.Signature = &w, &s
			c.Accounts = slices.Clone(g.Accounts)
			d.Header = slices.Clone(d.Header)
			change(&c, &d)
			return open(&c, d)
		}
	}
	for name, broken := range map[string]struct {
		open opener
		want string
	}{
		"verifies nothing":     {with(func(g *Gateway, _ *Delivery) { g.Webhook.Signature = nil }), "another body"},
		"forgets the time":     {with(func(g *Gateway, _ *Delivery) { g.Webhook.Signature.Tolerance = 24 * time.Hour }), "too old"},
		"trusts its own clock": {with(func(_ *Gateway, d *Delivery) { d.At = noticeTime }), "from the future"},
		"knows one secret":     {with(func(g *Gateway, _ *Delivery) { g.Accounts[0].WebhookSecrets = g.Accounts[0].WebhookSecrets[:1] }), "a good notice"},
		"takes the first signature": {with(func(g *Gateway, d *Delivery) {
			d.Header = slices.CompactFunc(d.Header, func(a, b claims.Field) bool { return a == b })
		}), "the signature twice"},
		"signs the body alone": {with(func(g *Gateway, _ *Delivery) { g.Webhook.Signature.Signed = "{body}" }), "a good notice"},
	} {
		got := strings.Join(schemeProblems(t, broken.open), "\n")
		if !strings.Contains(got, broken.want) {
			t.Errorf("%s: not found, but\n%s", name, got)
		}
	}
}

// Several signatures in one header: Stripe and Standard Webhooks send one for each secret that is being rolled.
func TestSeveralSignatures(t *testing.T) {
	for _, s := range schemes(t)[:2] {
		g := listening(t, s)
		good, wrong := s.sign(s.secret, noticeTime), s.sign("5f5f", noticeTime)
		i := slices.IndexFunc(good.Header, func(f claims.Field) bool { return strings.EqualFold(f.Name, s.form.Signature.Header) })
		a, b := good.Header[i].Value, wrong.Header[i].Value
		good.Header[i].Value, good.At = b+" v1a,AAAA "+a, noticeTime
		if _, own, ok := strings.Cut(a, ",v1="); s.name == "Stripe" && ok {
			good.Header[i].Value = b + ",v1=" + own + ",v0=00"
		}
		if _, err := open(g, good); err != nil {
			t.Errorf("%s: %v", s.name, err)
		}
		stamp, one, _ := strings.Cut(b, ",v1=")
		many := strings.Repeat(b+" ", 20) + a
		if _, own, ok := strings.Cut(a, ",v1="); ok && s.name == "Stripe" {
			many = stamp + strings.Repeat(",v1="+one, 20) + ",v1=" + own
		}
		good.Header[i].Value = many
		if _, err := open(g, good); !errors.Is(err, ErrForged) {
			t.Errorf("%s: any number of signatures is tried: %v", s.name, err)
		}
	}
}

// A certificate is asked for on a declared host only, and only one that was valid then counts.
func TestCertificateAddress(t *testing.T) {
	all := schemes(t)
	s := all[len(all)-1]
	g := listening(t, s)
	for _, url := range []string{
		"http://api.paypal.com/c", "https://api.paypal.com.evil.example/c", "https://evil.example/c", "https://evilapi.paypal.com/c", "https://api.paypal.com@evil.example/c",
		"https://u@api.paypal.com/c", "https://api.paypal.com:444/c", "https://API.paypal.com/c", "//api.paypal.com/c", "https:api.paypal.com/c",
		"https://api.paypal.com/c?x=1", "https://api.paypal.com/c#x", "", "https://api.paypal.com/" + strings.Repeat("c", 500),
	} {
		d := certified(t)("WH-1", noticeTime, url)
		d.At = noticeTime
		d.Certificate = func(context.Context, string) (*x509.Certificate, error) {
			t.Errorf("%s was asked", url)
			return nil, errors.New("no")
		}
		if _, err := open(g, d); !errors.Is(err, ErrForged) {
			t.Errorf("%s: %v", url, err)
		}
	}
	d := certified(t)("WH-1", noticeTime, "https://api.paypal.com/c")
	cert, _ := d.Certificate(t.Context(), "")
	for _, off := range []time.Duration{-2 * time.Hour, 2 * time.Hour} { // the certificate's, not the notice's
		d := certified(t)("WH-1", noticeTime.Add(off), "https://api.paypal.com/c")
		d.At = noticeTime.Add(off)
		if _, err := open(g, d); !errors.Is(err, ErrForged) {
			t.Errorf("out of the certificate's time: %v", err)
		}
	}
	d.At = noticeTime
	d.Certificate = func(context.Context, string) (*x509.Certificate, error) { return nil, errors.New("away") }
	if _, err := open(g, d); !is503(err) {
		t.Errorf("no certificate: %v", err)
	}
	short, err := rsa.GenerateKey(rand.Reader, 1024)
	if err != nil {
		t.Fatal(err)
	}
	stamp := noticeTime.Format(time.RFC3339)
	sum := sha256.Sum256(fmt.Appendf(nil, "tx1|%s|WH-1|%d", stamp, crc32.ChecksumIEEE([]byte(noticeBody))))
	sig, err := rsa.SignPKCS1v15(nil, short, crypto.SHA256, sum[:])
	if err != nil {
		t.Fatal(err)
	}
	weak := *cert
	weak.PublicKey = &short.PublicKey
	d.Certificate = func(context.Context, string) (*x509.Certificate, error) { return &weak, nil }
	d.Header = setHeader(d.Header, "Paypal-Transmission-Sig", base64.StdEncoding.EncodeToString(sig))
	if _, err := open(g, d); !errors.Is(err, ErrForged) {
		t.Errorf("a short key: %v", err)
	}
}

func is503(err error) bool {
	_, ok := errors.AsType[*Unavailable](err)
	return ok
}

// A secret that cannot be read may have been the one: the notice is to come again. No error shows it.
func TestUnreadableSecrets(t *testing.T) {
	s := schemes(t)[0]
	g := listening(t, s)
	d := s.sign(s.secret, noticeTime)
	d.At = noticeTime
	g.Accounts[0].WebhookSecrets = []Secret{{Env: "HOOK_NEW"}, {File: "/nowhere/secret"}}
	if _, err := open(g, d); err != nil {
		t.Errorf("one of two is there: %v", err)
	}
	g.Accounts[0].WebhookSecrets = []Secret{{Env: "HOOK_OLD"}, {File: "/nowhere/secret"}}
	if _, err := open(g, d); !is503(err) {
		t.Errorf("the missing one may be the one: %v", err)
	}
	for _, none := range [][]Secret{nil, {{File: "/nowhere/secret"}}} {
		g.Accounts[0].WebhookSecrets = none
		if _, err := open(g, d); !is503(err) || g.CheckWebhookSecrets(&g.Accounts[0]) == nil {
			t.Errorf("%v: %v", none, err)
		}
	}
	t.Setenv("HOOK_NEW", "zz-not-hex")
	g.Accounts[0].WebhookSecrets = []Secret{{Env: "HOOK_NEW"}}
	g.Webhook.Signature.Secret = "hex"
	if err := g.CheckWebhookSecrets(&g.Accounts[0]); err == nil || strings.Contains(err.Error(), "zz-not-hex") {
		t.Errorf("%v", err)
	}
}
