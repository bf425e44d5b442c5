// Package keys holds the secrets of a store: what fingerprints are made with, so that nobody who reads the store can try out
// requests against them, and what stored answers are sealed with, so that nobody who reads the store reads them.
//
// A Set is what is made, kept and rotated: one keyset of Tink for each of the two uses. A Ring is what a process works with: it
// writes with the primary keys of one Set and reads with all keys of several. Rotating takes two steps, as a process must not
// write what another one cannot read: a key is added that all can read, then it becomes the primary.
//
// What a ring cannot read is claims.ErrUnreadable: no conflict, no replay, and never a reason to send.
package keys

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/tink-crypto/tink-go/v2/aead/aesgcm"
	"github.com/tink-crypto/tink-go/v2/insecurecleartextkeyset"
	"github.com/tink-crypto/tink-go/v2/key"
	"github.com/tink-crypto/tink-go/v2/keyset"
	"github.com/tink-crypto/tink-go/v2/mac/hmac"
)

// version of the document that a Set is kept as.
const version = 1

// What the keys of a set are for.
const (
	Fingerprints = "fingerprints"
	Answers      = "answers"
)

// Set is the keys that are kept together, in one document. It is never changed: what changes it returns another one.
type Set struct {
	fingerprints *keyset.Handle
	answers      *keyset.Handle
}

// Key says what is known of a key without its secret.
type Key struct {
	ID      string // 8 hexadecimal digits
	Use     string // Fingerprints, Answers
	Primary bool   // it writes; all others only read
}

// use is one of a set's two keysets: how it is called, and which keys may be in it.
type use struct {
	name       string
	what       string
	parameters func() (key.Parameters, error)
	of         func(*Set) **keyset.Handle
}

var uses = []use{
	{Fingerprints, "HMAC-SHA256 with keys and tags of 32 bytes and Tink's prefix", macParameters, func(s *Set) **keyset.Handle { return &s.fingerprints }},
	{Answers, "AES-256-GCM with Tink's prefix", aeadParameters, func(s *Set) **keyset.Handle { return &s.answers }},
}

const tagSize = 32

func macParameters() (key.Parameters, error) {
	return hmac.NewParameters(hmac.ParametersOpts{KeySizeInBytes: 32, TagSizeInBytes: tagSize, HashType: hmac.SHA256, Variant: hmac.VariantTink})
}

func aeadParameters() (key.Parameters, error) {
	return aesgcm.NewParameters(aesgcm.ParametersOpts{KeySizeInBytes: 32, IVSizeInBytes: 12, TagSizeInBytes: 16, Variant: aesgcm.VariantTink})
}

// New makes a set of fresh keys, one for each use.
func New() (*Set, error) {
	s, err := new(Set).add()
	if err != nil {
		return nil, err
	}
	return s.Promote()
}

// Add is the set with one more key for each use, which only reads.
func (s *Set) Add() (*Set, error) { return s.add() }

func (s *Set) add() (*Set, error) {
	next := new(Set)
	for _, u := range uses {
		m := keyset.NewManager()
		if h := *u.of(s); h != nil {
			m = keyset.NewManagerFromHandle(h)
		}
		p, err := u.parameters()
		if err != nil {
			return nil, fmt.Errorf("%s: %w", u.name, err)
		}
		id, err := m.AddNewKeyFromParameters(p)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", u.name, err)
		}
		if *u.of(s) == nil {
			if err := m.SetPrimary(id); err != nil {
				return nil, fmt.Errorf("%s: %w", u.name, err)
			}
		}
		if *u.of(next), err = m.Handle(); err != nil {
			return nil, fmt.Errorf("%s: %w", u.name, err)
		}
	}
	if err := next.unique(); err != nil { // two draws of 32 bits were equal
		return s.add()
	}
	return next, nil
}

// Pending are the ids of the keys that were added after the primary ones, at most one for each use: Promote is the next step
// where there are some, else Add.
func (s *Set) Pending() (ids []string) {
	for _, u := range uses {
		if e := youngest(*u.of(s)); !e.IsPrimary() {
			ids = append(ids, idOf(e))
		}
	}
	return ids
}

// Promote is the set with the youngest keys as the primary ones.
func (s *Set) Promote() (*Set, error) {
	next := new(Set)
	for _, u := range uses {
		h := *u.of(s)
		m := keyset.NewManagerFromHandle(h)
		if err := m.SetPrimary(youngest(h).KeyID()); err != nil {
			return nil, fmt.Errorf("%s: %w", u.name, err)
		}
		var err error
		if *u.of(next), err = m.Handle(); err != nil {
			return nil, fmt.Errorf("%s: %w", u.name, err)
		}
	}
	return next, nil
}

// Keys lists the keys, the oldest of each use first.
func (s *Set) Keys() (all []Key) {
	for _, u := range uses {
		for e := range entries(*u.of(s)) {
			all = append(all, Key{idOf(e), u.name, e.IsPrimary()})
		}
	}
	return all
}

// entries of a handle, in the order in which they were added.
func entries(h *keyset.Handle) func(func(*keyset.Entry) bool) {
	return func(yield func(*keyset.Entry) bool) {
		for i := range h.Len() {
			if e, err := h.Entry(i); err != nil || !yield(e) {
				return
			}
		}
	}
}

func youngest(h *keyset.Handle) (last *keyset.Entry) {
	for e := range entries(h) {
		last = e
	}
	return last
}

func idOf(e *keyset.Entry) string { return fmt.Sprintf("%08x", e.KeyID()) }

// unique refuses an id that is there twice: whoever announces an id must mean one key.
func (s *Set) unique() error {
	seen := map[string]bool{}
	for _, k := range s.Keys() {
		if seen[k.ID] {
			return fmt.Errorf("key %s is there twice", k.ID)
		}
		seen[k.ID] = true
	}
	return nil
}

// document is how a Set is written.
type document struct {
	Version      int             `json:"version"`
	Fingerprints json.RawMessage `json:"fingerprints"`
	Answers      json.RawMessage `json:"answers"`
}

// JSON is the document that Parse reads. It holds the keys as they are: it is itself the secret.
func (s *Set) JSON() ([]byte, error) {
	d := document{Version: version}
	for i, to := range []*json.RawMessage{&d.Fingerprints, &d.Answers} {
		var b bytes.Buffer
		if err := insecurecleartextkeyset.Write(*uses[i].of(s), keyset.NewJSONWriter(&b)); err != nil {
			return nil, fmt.Errorf("%s: %w", uses[i].name, err)
		}
		*to = b.Bytes()
	}
	b, err := json.MarshalIndent(d, "", "  ") // Tink's own spacing is random
	return append(b, '\n'), err
}

// Parse reads a document. It takes only what New, Add and Promote make: whatever else is there was meant by somebody, and is
// refused by name. No error holds a part of a key.
func Parse(b []byte) (*Set, error) {
	members, err := membersOf(b)
	if err != nil {
		return nil, err
	}
	var v int
	if json.Unmarshal(members["version"], &v) != nil || v != version {
		return nil, fmt.Errorf("key set: version must be %d", version)
	}
	s := new(Set)
	for _, u := range uses {
		if *u.of(s), err = u.parse(members[u.name]); err != nil {
			return nil, fmt.Errorf("key set: %s: %w", u.name, err)
		}
	}
	if err := s.unique(); err != nil {
		return nil, fmt.Errorf("key set: %w", err)
	}
	return s, nil
}

// membersOf splits the document. encoding/json would let the last of two members of one name win.
func membersOf(b []byte) (map[string]json.RawMessage, error) {
	d := json.NewDecoder(bytes.NewReader(b))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil, errors.New("key set: not a JSON object")
	}
	members := map[string]json.RawMessage{}
	for d.More() {
		t, err := d.Token()
		name, ok := t.(string)
		if err != nil || !ok {
			return nil, errors.New("key set: not JSON")
		}
		if _, twice := members[name]; twice || !slices.Contains([]string{"version", Fingerprints, Answers}, name) {
			return nil, fmt.Errorf("key set: member %q is unknown, or there twice", printable(name))
		}
		var raw json.RawMessage
		if err := d.Decode(&raw); err != nil {
			return nil, fmt.Errorf("key set: %s: not JSON", name)
		}
		members[name] = raw
	}
	if _, err := d.Token(); err != nil || d.More() {
		return nil, errors.New("key set: not one JSON object")
	}
	for _, name := range []string{"version", Fingerprints, Answers} {
		if members[name] == nil {
			return nil, fmt.Errorf("key set: %s is missing", name)
		}
	}
	return members, nil
}

// printable bounds what an error repeats: what stands in a wrong place may be a secret.
func printable(name string) string { return name[:min(len(name), 20)] }

func (u use) parse(raw json.RawMessage) (*keyset.Handle, error) {
	h, err := insecurecleartextkeyset.Read(keyset.NewJSONReader(bytes.NewReader(raw)))
	if err != nil {
		return nil, fmt.Errorf("not a keyset of Tink with an enabled primary key, each key once (%w)", err)
	}
	want, err := u.parameters()
	if err != nil {
		return nil, err
	}
	for e := range entries(h) {
		switch {
		case e.KeyStatus() != keyset.Enabled:
			return nil, fmt.Errorf("key %s is %s: it must be enabled or not there", idOf(e), e.KeyStatus())
		case !want.Equal(e.Key().Parameters()):
			return nil, fmt.Errorf("key %s is not %s", idOf(e), u.what)
		}
	}
	return h, nil
}
