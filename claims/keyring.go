package claims

// Ring makes and checks fingerprints.
type Ring interface {
	// Sign makes a fingerprint of a canonical request.
	Sign(version int, canonical []byte) (Fingerprint, error)
	// Match recomputes a fingerprint. One that cannot be recomputed is ErrUnreadable: neither equal nor different.
	Match(f Fingerprint, version int, canonical []byte) (bool, error)
}
