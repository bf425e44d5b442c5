package sandbox_test

import (
	"crypto"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"hash/crc32"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"
	"time"

	"github.com/fence-sidecar/fence-sidecar/gateways/sandbox"
)

type ppTold struct {
	header http.Header
	body   []byte
}

// ppListen is an address that keeps what it is told.
func ppListen(t *testing.T) (string, chan ppTold) {
	got := make(chan ppTold, 16)
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, _ := io.ReadAll(r.Body)
		got <- ppTold{r.Header, b}
	}))
	t.Cleanup(srv.Close)
	return srv.URL, got
}

func ppHear(t *testing.T, got chan ppTold) ppTold {
	t.Helper()
	select {
	case n := <-got:
		return n
	case <-time.After(10 * time.Second):
		t.Fatal("nothing was told")
		return ppTold{}
	}
}

// ppVerified checks a notice as PayPal says (https://developer.paypal.com/api/rest/webhooks/rest/), with the certificate that its
// address gives to anybody.
func ppVerified(t *testing.T, r ppRig, n ppTold, webhook string) bool {
	t.Helper()
	u, err := url.Parse(n.header.Get("Paypal-Cert-Url"))
	if err != nil || u.Host != r.addr {
		t.Fatalf("the certificate is at %v", u)
	}
	p := r.do("GET", u.Path, "", "", "", "Authorization", "")
	block, rest := pem.Decode(p.body)
	parent, _ := pem.Decode(rest)
	if p.status != 200 || block == nil || parent == nil {
		t.Fatalf("%d %s", p.status, p.body)
	}
	cert, err1 := x509.ParseCertificate(block.Bytes)
	ca, err2 := x509.ParseCertificate(parent.Bytes)
	if err1 != nil || err2 != nil || cert.CheckSignatureFrom(ca) != nil {
		t.Fatal("the certificate's chain is broken")
	}
	sig, err := base64.StdEncoding.DecodeString(n.header.Get("Paypal-Transmission-Sig"))
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(fmt.Appendf(nil, "%s|%s|%s|%d", n.header.Get("Paypal-Transmission-Id"),
		n.header.Get("Paypal-Transmission-Time"), webhook, crc32.ChecksumIEEE(n.body)))
	return rsa.VerifyPKCS1v15(cert.PublicKey.(*rsa.PublicKey), crypto.SHA256, sum[:], sig) == nil
}

func TestPayPalNotices(t *testing.T) {
	r := startPayPal(t, sandbox.Config{})
	address, got := ppListen(t)
	r.s.AddHook(sandbox.Hook{URL: address, ID: "WH-1"})
	o := r.must(201, ppOrders, "k", "processing", ppOrder("CAPTURE", "10.00", ppCard))
	capture := ppAt(o, "purchase_units.0.payments.captures.0.id").(string)
	event := func(want string) ppTold {
		t.Helper()
		n := ppHear(t, got)
		var e map[string]any
		if json.Unmarshal(n.body, &e) != nil || e["event_type"] != want {
			t.Errorf("told %s, want %s", n.body, want)
		}
		if !ppVerified(t, r, n, "WH-1") || ppVerified(t, r, n, "WH-2") {
			t.Error("the signature is not over the hook's id")
		}
		if n.body = append(n.body, ' '); ppVerified(t, r, n, "WH-1") {
			t.Error("the signature is not over the body")
		}
		n.body = n.body[:len(n.body)-1]
		return n
	}
	event("PAYMENT.CAPTURE.PENDING")
	if err := r.s.Move(capture, "done"); err != nil {
		t.Fatal(err)
	}
	n := event("PAYMENT.CAPTURE.COMPLETED")
	var e map[string]any
	json.Unmarshal(n.body, &e)
	if ppAt(e, "resource.supplementary_data.related_ids.order_id") != o["id"] || ppAt(e, "resource._order") != nil {
		t.Errorf("%s", n.body)
	}
	ask := fmt.Sprintf(`{"transmission_id":%q,"transmission_time":%q,"transmission_sig":%q,"webhook_id":"WH-1",`+
		`"auth_algo":"SHA256withRSA","webhook_event":%s}`,
		n.header.Get("Paypal-Transmission-Id"), n.header.Get("Paypal-Transmission-Time"), n.header.Get("Paypal-Transmission-Sig"), n.body)
	if p := r.must(200, "/v1/notifications/verify-webhook-signature", "", "", ask); p["verification_status"] != "SUCCESS" {
		t.Errorf("PayPal's own verification: %v", p)
	}
	r.must(201, "/v2/payments/captures/"+capture+"/refund", "r", "", `{"custom_id":"ref"}`)
	if n := event("PAYMENT.CAPTURE.REFUNDED"); json.Unmarshal(n.body, &e) != nil || ppAt(e, "resource.custom_id") != "ref" {
		t.Errorf("%s", n.body)
	}
	if err := r.s.Tell(capture, "done", "WH-other"); err == nil {
		t.Error("of a refunded capture nothing is told")
	}
	r.must(201, ppPayouts, "p", "", ppPayout)
	n = event("PAYMENT.PAYOUTSBATCH.PROCESSING")
	json.Unmarshal(n.body, &e)
	batch, _ := ppAt(e, "resource.batch_header.payout_batch_id").(string)
	if err := r.s.Tell(batch, "created", "WH-other"); err != nil {
		t.Fatal(err)
	}
	if n := ppHear(t, got); ppVerified(t, r, n, "WH-1") || !ppVerified(t, r, n, "WH-other") {
		t.Error("a forged notice is signed over the hook's id")
	}
}
