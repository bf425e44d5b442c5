package gateways

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math/big"
	"strings"
)

// Identity is what a gateway key and a reference derive from.
type Identity struct {
	Realm    string // made by the store's migration: two deployments on one gateway account never replay each other
	Tenant   string
	CallKey  string
	Revision int
}

// minBits is the least that a derived value may carry: below it two calls could meet under one key.
const minBits = 96

// alphabets that a gateway may demand; each is in ascending order of value.
var alphabets = map[string]string{
	"hex":    "0123456789abcdef",
	"base32": "abcdefghijklmnopqrstuvwxyz234567",
	"base62": "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz",
	"digits": "0123456789",
}

// fullLength is how many characters 256 bits need.
var fullLength = map[string]int{"hex": 64, "base32": 52, "base62": 43, "digits": 78, "uuid": 36}

// minLength is how many characters minBits need.
var minLength = map[string]int{"hex": 24, "base32": 20, "base62": 17, "digits": 29, "uuid": 36}

// derive makes a value from the identity: SHA-256 over a length-prefixed encoding, cut to the shape.
func (id Identity) derive(label string, s Shape) string {
	h := sha256.Sum256(encode(label, id.Realm, id.Tenant, id.CallKey, fmt.Sprint(id.Revision)))
	n := min(first(s.Length, fullLength[s.Alphabet]), fullLength[s.Alphabet])
	if s.Alphabet == "uuid" {
		return uuidText(h[:16])
	}
	return spell(h[:], alphabets[s.Alphabet], n)
}

// spell writes the n lowest digits of a number in the alphabet's base.
func spell(b []byte, alphabet string, n int) string {
	v, base, digit := new(big.Int).SetBytes(b), big.NewInt(int64(len(alphabet))), new(big.Int)
	out := make([]byte, n)
	for i := n - 1; i >= 0; i-- {
		v.DivMod(v, base, digit)
		out[i] = alphabet[digit.Int64()]
	}
	return string(out)
}

// uuidText is a UUID of version 8 (RFC 9562, section 5.8): made by a hash of our own.
func uuidText(b []byte) string {
	u := [16]byte(b)
	u[6] = u[6]&0x0f | 0x80
	u[8] = u[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", u[:4], u[4:6], u[6:8], u[8:10], u[10:])
}

// encode joins texts so that no two lists collide: each is preceded by its length in eight bytes.
func encode(parts ...string) []byte {
	var out []byte
	for _, p := range parts {
		out = binary.BigEndian.AppendUint64(out, uint64(len(p)))
		out = append(out, p...)
	}
	return out
}

// AccountHash is the keyed hash (HMAC-SHA256, hex) by which configuration names an app's credential without holding it.
// The credential is the bare secret, without a scheme.
func AccountHash(realm, credential string) string {
	h := hmac.New(sha256.New, []byte(realm))
	h.Write(encode("fence account", credential))
	return hex.EncodeToString(h.Sum(nil))
}

func validHash(s string) bool {
	b, err := hex.DecodeString(s)
	return err == nil && len(b) == sha256.Size && s == strings.ToLower(s)
}

// looks reports whether a text could have been derived in this shape.
func (s Shape) looks(text string) bool {
	n := min(first(s.Length, fullLength[s.Alphabet]), fullLength[s.Alphabet])
	if s.Alphabet == "uuid" {
		return len(text) == fullLength["uuid"]
	}
	return len(text) == n && strings.Trim(text, alphabets[s.Alphabet]) == ""
}
