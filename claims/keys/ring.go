package keys

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/tink-crypto/tink-go/v2/aead"
	"github.com/tink-crypto/tink-go/v2/key"
	"github.com/tink-crypto/tink-go/v2/mac"
	"github.com/tink-crypto/tink-go/v2/tink"

	"github.com/fence-sidecar/fence-sidecar/claims"
)

// Ring writes with the primary keys of one Set and reads with all keys of several. It may be used by any number of goroutines.
type Ring struct {
	signer string // id of the key that fingerprints are made with
	sealer string // id of the key that answers are sealed with
	macs   map[string]tink.MAC
	aeads  map[string]tink.AEAD
	ids    []string
}

var _ claims.Ring = (*Ring)(nil)

// NewRing makes a ring that writes with the first set. A key may be in several sets; two keys with one id are refused.
func NewRing(first *Set, others ...*Set) (*Ring, error) {
	r := &Ring{macs: map[string]tink.MAC{}, aeads: map[string]tink.AEAD{}}
	seen := map[string]key.Key{}
	for _, s := range append([]*Set{first}, others...) {
		m, err := mac.New(s.fingerprints)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", Fingerprints, err)
		}
		a, err := aead.New(s.answers)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", Answers, err)
		}
		for _, u := range uses {
			for e := range entries(*u.of(s)) {
				id := idOf(e)
				had, ok := seen[id]
				if ok && !had.Equal(e.Key()) {
					return nil, fmt.Errorf("two keys have the id %s", id)
				}
				if ok {
					continue // its own set's primitive knows it as well as this one's
				}
				seen[id] = e.Key()
				r.ids = append(r.ids, id)
				if u.name == Fingerprints {
					r.macs[id] = m
				} else {
					r.aeads[id] = a
				}
			}
		}
	}
	for _, k := range first.Keys() {
		switch {
		case k.Primary && k.Use == Fingerprints:
			r.signer = k.ID
		case k.Primary:
			r.sealer = k.ID
		}
	}
	r.ids = slices.DeleteFunc(r.ids, func(id string) bool { return id == r.signer || id == r.sealer })
	r.ids = append(r.Primaries(), r.ids...)
	return r, nil
}

// Primaries are the ids of the keys that the ring writes with: the one for fingerprints, then the one for answers.
func (r *Ring) Primaries() []string { return []string{r.signer, r.sealer} }

// IDs are all keys that the ring can read with: the two primary ones first, so that whoever is told them knows what it must
// be able to read.
func (r *Ring) IDs() []string { return slices.Clone(r.ids) }

// prefixSize is the length of Tink's prefix: a byte 1 and the key's id, big-endian.
const prefixSize = 5

// bears reports whether what was signed or sealed names the key with this id itself.
func bears(b []byte, id string) bool {
	return len(b) >= prefixSize && b[0] == 1 && fmt.Sprintf("%08x", binary.BigEndian.Uint32(b[1:prefixSize])) == id
}

// Sign implements claims.Ring.
func (r *Ring) Sign(version int, canonical []byte) (claims.Fingerprint, error) {
	m, err := r.macs[r.signer].ComputeMAC(signed(version, canonical))
	if err != nil {
		return claims.Fingerprint{}, fmt.Errorf("fingerprint key %s: %w", r.signer, err)
	}
	return claims.Fingerprint{KeyID: r.signer, Canonical: version, MAC: m}, nil
}

// Match implements claims.Ring. What is no fingerprint of its key at all is damaged, and no word about the request.
func (r *Ring) Match(f claims.Fingerprint, version int, canonical []byte) (bool, error) {
	m, ok := r.macs[f.KeyID]
	switch {
	case !ok:
		return false, fmt.Errorf("fingerprint key %q is not in the ring: %w", f.KeyID, claims.ErrUnreadable)
	case f.Canonical != version:
		return false, fmt.Errorf("fingerprint of canonical version %d: %w", f.Canonical, claims.ErrUnreadable)
	case len(f.MAC) != prefixSize+tagSize || !bears(f.MAC, f.KeyID):
		return false, fmt.Errorf("fingerprint of key %s is damaged: %w", f.KeyID, claims.ErrUnreadable)
	}
	return m.VerifyMAC(f.MAC, signed(version, canonical)) == nil, nil
}

// signed is what is authenticated: the canonical form's version and the form.
func signed(version int, canonical []byte) []byte {
	b := binary.BigEndian.AppendUint64(make([]byte, 0, 8+len(canonical)), uint64(version))
	return append(b, canonical...)
}

// Place is where in a store an answer lies: under which call, and as what of its record.
type Place struct {
	Key      claims.Key
	Revision int
	Slot     string
}

// placeOf is where a record's own answer lies.
func placeOf(r *claims.Record) Place { return Place{r.Key, r.Revision, "answer"} }

// placeBeside is where the answer of one of a record's evidence lies.
func placeBeside(key claims.Key, e *claims.Evidence) Place {
	return Place{key, e.Revision, fmt.Sprintf("evidence %d %x %s", e.Attempt, e.Claim[:], e.Source)}
}

// Seal is an answer as it may lie in a store: its status stays in the clear, header and body are sealed together. It can be
// opened only at that place, with that status.
func (r *Ring) Seal(at Place, a *claims.Answer) (*claims.Answer, error) {
	if a == nil {
		return nil, nil
	}
	b, err := r.aeads[r.sealer].Encrypt(pack(a), at.bound(a.Status))
	if err != nil {
		return nil, fmt.Errorf("seal an answer of %s: %w", at.Key, err)
	}
	return &claims.Answer{Status: a.Status, Body: b, Key: r.sealer}, nil
}

// Open is the inverse of Seal. An answer that cannot be opened is claims.ErrUnreadable, and so is one that is not sealed:
// whoever can write the store could have made it.
func (r *Ring) Open(at Place, a *claims.Answer) (*claims.Answer, error) {
	if a == nil {
		return nil, nil
	}
	if a.Key == "" {
		return nil, fmt.Errorf("answer of %s is not sealed: %w", at.Key, claims.ErrUnreadable)
	}
	k, ok := r.aeads[a.Key]
	if !ok {
		return nil, fmt.Errorf("answer of %s: key %q is not in the ring: %w", at.Key, a.Key, claims.ErrUnreadable)
	}
	if !bears(a.Body, a.Key) || len(a.Header) > 0 {
		return nil, fmt.Errorf("answer of %s is damaged: %w", at.Key, claims.ErrUnreadable)
	}
	b, err := k.Decrypt(a.Body, at.bound(a.Status))
	if err == nil {
		a, err = unpack(a.Status, b)
	}
	if err != nil {
		return nil, fmt.Errorf("answer of %s cannot be opened with key %s: %w", at.Key, a.Key, claims.ErrUnreadable)
	}
	return a, nil
}

// bound is what a sealed answer belongs to, each part with its length, so that no two places have the same.
func (p Place) bound(status int) []byte {
	b := []byte("fence-sidecar answer 1\x00")
	for _, s := range []string{p.Key.Tenant, p.Key.Call, p.Slot} {
		b = binary.BigEndian.AppendUint64(b, uint64(len(s)))
		b = append(b, s...)
	}
	b = binary.BigEndian.AppendUint64(b, uint64(p.Revision))
	return binary.BigEndian.AppendUint64(b, uint64(status))
}

// ErrSilent is what every *SilentError is.
var ErrSilent = errors.New("a process has not said yet what it can read")

// SilentError names a live process that has announced nothing: it has just started, or just got its lease again.
type SilentError struct{ Member claims.Member }

func (e *SilentError) Error() string {
	return fmt.Sprintf("%s has not said yet which keys it can read", e.Member.Guard.Scope)
}

// Is makes errors.Is(err, ErrSilent) true.
func (e *SilentError) Is(target error) bool { return target == ErrSilent }

// LacksError names a live process that cannot read what would be written with a key.
type LacksError struct {
	Key    string
	Member claims.Member
}

func (e *LacksError) Error() string {
	return fmt.Sprintf("key %s cannot be read by %s", e.Key, e.Member.Guard.Scope)
}

// ReadByAll wants every member but the one with the scope own to read every one of the ids. Errors: *LacksError, else
// *SilentError.
func ReadByAll(ids []string, own string, members []claims.Member) error {
	var silent error
	for _, m := range members {
		if m.Guard.Scope == own {
			continue
		}
		if len(m.Keys) == 0 {
			silent = &SilentError{m}
			continue
		}
		for _, id := range ids {
			if !slices.Contains(m.Keys, id) {
				return &LacksError{id, m}
			}
		}
	}
	return silent
}

// Lacks are the keys that others write with and the ring cannot read, by what the members said (see IDs).
func (r *Ring) Lacks(members []claims.Member) []LacksError {
	var all []LacksError
	for _, m := range members {
		for _, id := range m.Keys[:min(len(m.Keys), 2)] {
			if !slices.Contains(r.ids, id) {
				all = append(all, LacksError{id, m})
			}
		}
	}
	return all
}
