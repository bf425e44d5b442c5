package gateways

import (
	"context"
	"crypto"
	"crypto/hmac"
	"crypto/rsa"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"hash"
	"hash/crc32"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fence-sidecar/fence-sidecar/claims"
)

// MaxNotice bounds a delivery's body, in bytes.
const MaxNotice = 1 << 20

// maxSignatures bounds how many signatures of one delivery are tried.
const maxSignatures = 16

// Refusals of OpenNotice, beside *Unavailable, after which the notice is to come again.
var (
	ErrNoNotices = errors.New("the account is none that notices are taken for")
	ErrForged    = errors.New("the notice's signature is wrong, missing or out of its time")
	ErrMalformed = errors.New("the notice cannot be read")
)

// Delivery is one request of a gateway to the address that it tells of late outcomes.
type Delivery struct {
	URL    string // as the gateway knows it: scheme, host, path and query
	Header []claims.Field
	Body   []byte
	At     time.Time // when it arrived
	// Certificate returns the certificate at an https address on one of the declared hosts, its chain verified (scheme
	// certificate). nil: none can be had.
	Certificate func(ctx context.Context, url string) (*x509.Certificate, error)
}

// header is the one value of a header; false: there is none, or more than one.
func (d *Delivery) header(name string) (string, bool) {
	vs := values(d.Header, name)
	if len(vs) != 1 {
		return "", false
	}
	return vs[0], true
}

// webhookSecrets reads the account's secrets; nil and an error where none can be read. Of several one may be missing: the error
// then says which, and whether it matters shows when no other one verifies.
func (a *Account) webhookSecrets(form string) (keys [][]byte, unread error) {
	if len(a.WebhookSecrets) == 0 {
		return nil, errors.New("no webhookSecrets are configured")
	}
	for _, s := range a.WebhookSecrets {
		v, err := s.Value()
		if err != nil {
			unread = errors.Join(unread, err)
			continue
		}
		key, err := secretKey(form, v)
		if err != nil || len(key) == 0 {
			unread = errors.Join(unread, errors.New("secret "+s.Env+s.File+" is not written as the gateway's secrets are ("+form+")"))
			continue
		}
		keys = append(keys, key)
	}
	return keys, unread
}

// CheckWebhookSecrets says which of an account's webhook secrets cannot be used. It shows none.
func (g *Gateway) CheckWebhookSecrets(a *Account) error {
	if g.Webhook == nil || g.Webhook.Signature == nil {
		return nil
	}
	_, err := a.webhookSecrets(g.Webhook.Signature.Secret)
	return err
}

func secretKey(form, v string) ([]byte, error) {
	switch form {
	case "hex":
		return hex.DecodeString(v)
	case "base64":
		return base64.StdEncoding.DecodeString(v)
	case "whsec":
		return base64.StdEncoding.DecodeString(strings.TrimPrefix(v, "whsec_"))
	}
	return []byte(v), nil
}

// verifier checks the signatures of one delivery.
type verifier struct {
	s      *Signature
	d      *Delivery
	keys   [][]byte
	unread error
	stamp  string // the time of signing as it was written
}

func (g *Gateway) verifier(a *Account, d *Delivery) (*verifier, error) {
	v := &verifier{s: g.Webhook.Signature, d: d}
	v.keys, v.unread = a.webhookSecrets(v.s.Secret)
	if len(v.keys) == 0 {
		return nil, &Unavailable{Detail: "gateway " + g.Name + ": account " + a.Name + ": notices cannot be verified: " + v.unread.Error()}
	}
	return v, v.timely()
}

// forged is the refusal where no key verified: a secret that could not be read may have been the one.
func (v *verifier) forged() error {
	if v.unread != nil {
		return &Unavailable{Detail: "a notice cannot be verified: " + v.unread.Error()}
	}
	return ErrForged
}

// timely refuses a notice that was signed too long ago, or too far in the future.
func (v *verifier) timely() error {
	s := v.s
	if s.TimestampHeader == "" && s.TimestampPart == "" {
		return nil
	}
	raw, ok := v.d.header(first(s.TimestampHeader, s.Header))
	if ok && s.TimestampPart != "" {
		stamps := s.parts(raw, s.TimestampPart)
		if ok = len(stamps) == 1; ok {
			raw = stamps[0]
		}
	}
	at, readable := signedAt(raw, s.TimestampMillis)
	if off := v.d.At.Sub(at).Abs(); !ok || !readable || off > s.Tolerance {
		return ErrForged
	}
	v.stamp = raw
	return nil
}

func signedAt(raw string, millis bool) (time.Time, bool) {
	if n, err := strconv.ParseUint(raw, 10, 50); err == nil && raw[0] != '+' {
		if millis {
			return time.UnixMilli(int64(n)), true
		}
		return time.Unix(int64(n), 0), true
	}
	at, err := time.Parse(time.RFC3339, raw)
	return at, err == nil
}

// parts are the values of a header's parts of one name: name=value, where they are parted by something else than a comma also
// name,value.
func (s *Signature) parts(header, name string) (vs []string) {
	sep := first(s.Separator, ",")
	for part := range strings.SplitSeq(header, sep) {
		part = strings.TrimSpace(part)
		if v, ok := strings.CutPrefix(part, name+"="); ok {
			vs = append(vs, v)
		} else if v, ok := strings.CutPrefix(part, name+","); ok && sep != "," {
			vs = append(vs, v)
		}
	}
	return vs
}

// signatures are what a header, or a value of an event, holds of them, decoded.
func (s *Signature) signatures(raw string) (sigs [][]byte) {
	vs := []string{raw}
	switch {
	case s.Part != "":
		vs = s.parts(raw, s.Part)
	case s.Separator != "":
		vs = strings.Split(raw, s.Separator)
	}
	for _, v := range vs[:min(len(vs), maxSignatures)] {
		v, ok := strings.CutPrefix(strings.TrimSpace(v), s.Prefix)
		if !ok {
			continue
		}
		decode := hex.DecodeString
		if s.Encoding == "base64" {
			decode = base64.StdEncoding.DecodeString
		}
		if sig, err := decode(v); err == nil && len(sig) > 0 {
			sigs = append(sigs, sig)
		}
	}
	return sigs
}

// delivery verifies what is signed as a whole.
func (v *verifier) delivery(ctx context.Context) error {
	raw, ok := v.d.header(v.s.Header)
	sigs := v.s.signatures(raw)
	if !ok || len(sigs) == 0 {
		return ErrForged
	}
	ps, _ := pieces(v.s.Signed)
	if v.s.Scheme == SchemeCertificate {
		return v.certified(ctx, ps, sigs)
	}
	text, ok := v.text(ps, "")
	if !ok {
		return ErrForged
	}
	if !v.holds(text, sigs) {
		return v.forged()
	}
	return nil
}

// holds compares every signature with that of every key, in constant time.
func (v *verifier) holds(text []byte, sigs [][]byte) bool {
	hit := false
	for _, key := range v.keys {
		h := hmac.New(v.s.hash(), key)
		h.Write(text)
		want := h.Sum(nil)
		for _, sig := range sigs {
			hit = hmac.Equal(want, sig) || hit
		}
	}
	return hit
}

func (s *Signature) hash() func() hash.Hash {
	if s.Hash == "sha512" {
		return sha512.New
	}
	return sha256.New
}

// text is what the signature is over; false: something of it is not there, or there more than once.
func (v *verifier) text(ps []piece, webhookID string) (text []byte, ok bool) {
	for _, c := range ps {
		s := c.arg
		switch c.kind {
		case "body":
			text = append(text, v.d.Body...)
			continue
		case "timestamp":
			s = v.stamp
		case "url":
			s = v.d.URL
		case "crc32":
			s = strconv.FormatUint(uint64(crc32.ChecksumIEEE(v.d.Body)), 10)
		case "webhook-id":
			s = webhookID
		case "header":
			if s, ok = v.d.header(c.arg); !ok {
				return nil, false
			}
		case "query", "query-lower":
			if s, ok = v.query(c); !ok {
				return nil, false
			}
		}
		text = append(text, s...)
	}
	return text, true
}

func (v *verifier) query(c piece) (string, bool) {
	u, err := url.Parse(v.d.URL)
	if err != nil {
		return "", false
	}
	q, err := url.ParseQuery(u.RawQuery)
	if err != nil || len(q[c.arg]) != 1 {
		return "", false
	}
	if c.kind == "query-lower" {
		return strings.ToLower(q[c.arg][0]), true
	}
	return q[c.arg][0], true
}

// certified verifies RSA signatures (PKCS #1 v1.5) of a certificate that the delivery names, on one of the declared hosts. Each
// secret is an id that the gateway gave to this very address.
func (v *verifier) certified(ctx context.Context, ps []piece, sigs [][]byte) error {
	address, ok := v.d.header(v.s.CertHeader)
	if !ok || !v.s.certAddress(address) {
		return ErrForged
	}
	if v.d.Certificate == nil {
		return &Unavailable{Detail: "certificates of notices cannot be fetched here"}
	}
	cert, err := v.d.Certificate(ctx, address)
	if err != nil {
		return &Unavailable{Detail: "the certificate of a notice cannot be had: " + err.Error()}
	}
	pub, ok := cert.PublicKey.(*rsa.PublicKey)
	if !ok || pub.N.BitLen() < 2048 || v.d.At.Before(cert.NotBefore) || v.d.At.After(cert.NotAfter) {
		return ErrForged
	}
	kind := crypto.SHA256
	if v.s.Hash == "sha512" {
		kind = crypto.SHA512
	}
	for _, id := range v.keys {
		text, ok := v.text(ps, string(id))
		if !ok {
			return ErrForged
		}
		h := v.s.hash()()
		h.Write(text)
		digest := h.Sum(nil)
		if slices.ContainsFunc(sigs, func(sig []byte) bool { return rsa.VerifyPKCS1v15(pub, kind, digest, sig) == nil }) {
			return nil
		}
	}
	return v.forged()
}

// certAddress reports whether an address may be asked for a certificate: whoever sends a notice chooses it.
func (s *Signature) certAddress(address string) bool {
	u, err := url.Parse(address)
	return err == nil && len(address) <= 500 && u.Scheme == "https" && u.User == nil && u.Opaque == "" && u.Fragment == "" && u.RawQuery == "" &&
		slices.Contains(s.CertHosts, u.Host)
}

// covers reports whether what a pointer points at is signed, where each event carries its own signature.
func (s *Signature) covers(at string) bool {
	ps, _ := pieces(s.Signed)
	return slices.Contains(ps, piece{"pointer", at})
}

// event verifies one event that carries its own signature, and returns the text that is signed. covers is false where the text
// could also be made of other values, so that it proves none of them: an unescaped value that holds a separator.
//
// Adyen's libraries join the values of a payment's notice as they are; the escaping is that of its older notices. Both are
// tried (https://docs.adyen.com/development-resources/webhooks/verify-hmac-signatures).
func (v *verifier) event(doc any) (signed string, covers bool, err error) {
	sigs := v.s.signatures(text(doc, v.s.At))
	if len(sigs) == 0 {
		return "", false, ErrForged
	}
	ps, _ := pieces(v.s.Signed)
	plain, escaped := new(strings.Builder), new(strings.Builder)
	apart := true // no value holds a separator
	for _, c := range ps {
		if c.kind == "" {
			plain.WriteString(c.arg)
			escaped.WriteString(c.arg)
			continue
		}
		s := text(doc, c.arg)
		plain.WriteString(s)
		escaped.WriteString(escaper.Replace(s))
		apart = apart && !slices.ContainsFunc(ps, func(o piece) bool { return o.kind == "" && strings.Contains(s, o.arg) })
	}
	switch {
	case v.holds([]byte(escaped.String()), sigs):
		return escaped.String(), true, nil
	case v.holds([]byte(plain.String()), sigs):
		return plain.String(), apart, nil
	}
	return "", false, v.forged()
}

var escaper = strings.NewReplacer(`\`, `\\`, `:`, `\:`)
