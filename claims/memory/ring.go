package memory

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"sync"

	"github.com/fence-sidecar/fence-sidecar/claims"
	"github.com/fence-sidecar/fence-sidecar/claims/keys"
)

var keyset = sync.OnceValue(func() []byte {
	s, err := keys.New()
	if err != nil {
		panic(err) // drawing keys does not fail
	}
	b, err := s.JSON()
	if err != nil {
		panic(err)
	}
	return b
})

// Ring is a claims.Ring with one fixed key, for tests of what is above it.
type Ring struct{}

const ringKey = "k1"

// Sign implements claims.Ring.
func (Ring) Sign(version int, canonical []byte) (claims.Fingerprint, error) {
	h := hmac.New(sha256.New, []byte("a key for tests"))
	h.Write(binary.BigEndian.AppendUint64(nil, uint64(version)))
	h.Write(canonical)
	return claims.Fingerprint{KeyID: ringKey, Canonical: version, MAC: h.Sum(nil)}, nil
}

// Match implements claims.Ring.
func (r Ring) Match(f claims.Fingerprint, version int, canonical []byte) (bool, error) {
	if f.KeyID != ringKey || f.Canonical != version {
		return false, fmt.Errorf("fingerprint of key %q, canonical version %d: %w", f.KeyID, f.Canonical, claims.ErrUnreadable)
	}
	want, err := r.Sign(version, canonical)
	return hmac.Equal(want.MAC, f.MAC), err
}
