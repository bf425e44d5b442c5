package claims

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
)

// Ring makes and checks fingerprints.
type Ring interface {
	// Sign makes a fingerprint of a canonical request.
	Sign(version int, canonical []byte) (Fingerprint, error)
	// Match recomputes a fingerprint. One that cannot be recomputed is ErrUnreadable: neither equal nor different.
	Match(f Fingerprint, version int, canonical []byte) (bool, error)
}

// Keyring makes and checks fingerprints. The realm separates deployments that share a gateway account.
type Keyring struct {
	Realm   string
	Current string            // id of the key that signs
	Keys    map[string][]byte // all that can be checked
}

// Sign makes a fingerprint of a canonical request with the current key.
func (k *Keyring) Sign(version int, canonical []byte) (Fingerprint, error) {
	key, ok := k.Keys[k.Current]
	if !ok {
		return Fingerprint{}, fmt.Errorf("fingerprint key %q: %w", k.Current, ErrUnreadable)
	}
	return Fingerprint{KeyID: k.Current, Canonical: version, MAC: mac(key, version, canonical)}, nil
}

// Match recomputes f over a canonical request of the given version. A fingerprint of a key that is not in the ring, or
// of another canonical version, is ErrUnreadable: neither equal nor different.
func (k *Keyring) Match(f Fingerprint, version int, canonical []byte) (bool, error) {
	key, ok := k.Keys[f.KeyID]
	if !ok {
		return false, fmt.Errorf("fingerprint key %q is not in the ring: %w", f.KeyID, ErrUnreadable)
	}
	if f.Canonical != version {
		return false, fmt.Errorf("fingerprint of canonical version %d: %w", f.Canonical, ErrUnreadable)
	}
	return hmac.Equal(f.MAC, mac(key, version, canonical)), nil
}

func mac(key []byte, version int, canonical []byte) []byte {
	h := hmac.New(sha256.New, key)
	var v [8]byte
	binary.BigEndian.PutUint64(v[:], uint64(version))
	h.Write(v[:])
	h.Write(canonical)
	return h.Sum(nil)
}
