package sandbox

import (
	"bytes"
	"cmp"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"hash/crc32"
	"math/big"
	"sync"
	"time"
)

// paypalCertPath is where the certificate that signs notices is read.
const paypalCertPath = "/v1/notifications/certs/CERT-sandbox"

// paypalSigner is a key with its certificate and the authority that signed it.
type paypalSigner struct {
	key   *rsa.PrivateKey
	chain []byte // PEM: the certificate, then its authority
}

// paypalSigning makes the process's signer once. The authority's key is thrown away.
var paypalSigning = sync.OnceValue(func() paypalSigner {
	now := time.Now()
	ca := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "fence-sidecar sandbox PayPal CA"},
		NotBefore: now.Add(-time.Hour), NotAfter: now.Add(7 * 24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: "messageverificationcerts.sandbox.paypal.com"},
		DNSNames:  []string{"messageverificationcerts.sandbox.paypal.com"},
		NotBefore: ca.NotBefore, NotAfter: ca.NotAfter, KeyUsage: x509.KeyUsageDigitalSignature,
	}
	caKey, err1 := rsa.GenerateKey(rand.Reader, 2048)
	key, err2 := rsa.GenerateKey(rand.Reader, 2048)
	if err1 != nil || err2 != nil {
		panic("sandbox: no random numbers")
	}
	var chain bytes.Buffer
	for _, c := range []*x509.Certificate{leaf, ca} {
		public := &key.PublicKey
		if c == ca {
			public = &caKey.PublicKey
		}
		der, err := x509.CreateCertificate(rand.Reader, c, ca, public, caKey)
		if err != nil {
			panic("sandbox: " + err.Error()) // the templates are ours
		}
		pem.Encode(&chain, &pem.Block{Type: "CERTIFICATE", Bytes: der})
	}
	return paypalSigner{key: key, chain: chain.Bytes()}
})

// PayPalCertificate is what the sandbox serves as the certificate of its notices: PEM, with the authority behind it.
func PayPalCertificate() []byte { return paypalSigning().chain }

// paypalEvent is the name of what happened to an object; "": nothing is told of it.
func paypalEvent(o *object, event string) (name, resource string) {
	status := paypalStatusOf(o)
	switch o.kind {
	case "order":
		return map[string]string{"APPROVED": "CHECKOUT.ORDER.APPROVED"}[status], "checkout-order"
	case "capture":
		if event == "reversed" && status == "REFUNDED" {
			return "PAYMENT.CAPTURE.REVERSED", "capture"
		}
		return map[string]string{
			"COMPLETED": "PAYMENT.CAPTURE.COMPLETED", "PENDING": "PAYMENT.CAPTURE.PENDING", "DECLINED": "PAYMENT.CAPTURE.DECLINED",
		}[status], "capture"
	case "authorization":
		return map[string]string{
			"CREATED": "PAYMENT.AUTHORIZATION.CREATED", "VOIDED": "PAYMENT.AUTHORIZATION.VOIDED",
		}[status], "authorization"
	case "refund":
		return map[string]string{"COMPLETED": "PAYMENT.CAPTURE.REFUNDED", "PENDING": "PAYMENT.CAPTURE.REFUNDED"}[status], "refund"
	case "payout":
		return map[string]string{
			"PENDING": "PAYMENT.PAYOUTSBATCH.PROCESSING", "SUCCESS": "PAYMENT.PAYOUTSBATCH.SUCCESS",
			"DENIED": "PAYMENT.PAYOUTSBATCH.DENIED",
		}[status], "payouts"
	}
	return map[string]string{
		"SUCCESS": "PAYMENT.PAYOUTS-ITEM.SUCCEEDED", "UNCLAIMED": "PAYMENT.PAYOUTS-ITEM.UNCLAIMED",
		"FAILED": "PAYMENT.PAYOUTS-ITEM.FAILED", "RETURNED": "PAYMENT.PAYOUTS-ITEM.RETURNED",
	}[status], "payouts_item"
}

// noticePayPal tells of an object as it is now. The webhook's id, over which notices are signed, is the hook's ID; a Secret
// stands in for it, so that a notice can be signed over another.
func noticePayPal(s *Server, o *object, event string, h Hook) (notice, bool) {
	name, kind := paypalEvent(o, event)
	if name == "" {
		return notice{}, false
	}
	s.serial++
	view := s.paypalView(o)
	if o.kind == "payout" {
		delete(view, "items") // a batch's notice has no items
	}
	now := s.now().UTC().Format(time.RFC3339)
	body, err := json.Marshal(map[string]any{
		"id": fmt.Sprintf("WH-%08dSB%06d-SANDBOX", s.serial, s.serial), "event_version": "1.0", "create_time": now, "resource_type": kind,
		"resource_version": "2.0", "event_type": name, "summary": "", "resource": view, "links": []any{},
	})
	if err != nil {
		return notice{}, false
	}
	transmission := fmt.Sprintf("%08x-0000-11f0-8000-%012x", s.serial, s.serial)
	sum := sha256.Sum256(paypalSigned(transmission, now, cmp.Or(h.Secret, h.ID), body))
	signer := paypalSigning()
	sig, err := rsa.SignPKCS1v15(rand.Reader, signer.key, crypto.SHA256, sum[:])
	if err != nil {
		return notice{}, false
	}
	base := "https://api.sandbox.paypal.com"
	if len(s.listeners) > 0 {
		base = s.URL(s.listeners[0].Addr())
	}
	return notice{body: body, header: []Line{
		{"Content-Type", "application/json"}, {"PAYPAL-AUTH-ALGO", "SHA256withRSA"}, {"PAYPAL-CERT-URL", base + paypalCertPath},
		{"PAYPAL-TRANSMISSION-ID", transmission}, {"PAYPAL-TRANSMISSION-TIME", now},
		{"PAYPAL-TRANSMISSION-SIG", base64.StdEncoding.EncodeToString(sig)},
	}}, true
}

func paypalSigned(transmission, at, webhook string, body []byte) []byte {
	return fmt.Appendf(nil, "%s|%s|%s|%d", transmission, at, webhook, crc32.ChecksumIEEE(body))
}

// paypalVerify is PayPal's own verification of a notice.
func (x *call) paypalVerify(_ []string, _ map[string]any) (answer, bool) {
	var v struct {
		ID      string          `json:"transmission_id"`
		Time    string          `json:"transmission_time"`
		Sig     string          `json:"transmission_sig"`
		Webhook string          `json:"webhook_id"`
		Event   json.RawMessage `json:"webhook_event"`
	}
	if json.Unmarshal(x.r.body, &v) != nil || len(v.Event) == 0 {
		return paypalInvalid("MISSING_REQUIRED_PARAMETER"), false
	}
	sig, err := base64.StdEncoding.DecodeString(v.Sig)
	sum := sha256.Sum256(paypalSigned(v.ID, v.Time, v.Webhook, v.Event))
	status := "FAILURE"
	if err == nil && rsa.VerifyPKCS1v15(&paypalSigning().key.PublicKey, crypto.SHA256, sum[:], sig) == nil {
		status = "SUCCESS"
	}
	return answerJSON(200, map[string]any{"verification_status": status}), false
}
