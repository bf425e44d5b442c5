package claims

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"time"
	"unicode/utf8"
)

// Key addresses a call. Both parts are compared byte by byte: case, accents, Unicode forms and trailing spaces never
// merge two keys.
type Key struct {
	Tenant string
	Call   string
}

func (k Key) String() string { return k.Tenant + "/" + k.Call }

// MaxKey bounds a tenant's and a call key's length, in bytes.
const MaxKey = 255

// Check refuses what cannot be a key: empty, over MaxKey bytes, not UTF-8, or with a control character.
func (k Key) Check() error {
	for _, p := range []struct{ name, s string }{{"tenant", k.Tenant}, {"call key", k.Call}} {
		switch {
		case p.s == "":
			return fmt.Errorf("%s is empty", p.name)
		case len(p.s) > MaxKey:
			return fmt.Errorf("%s has %d bytes, at most %d are allowed", p.name, len(p.s), MaxKey)
		case !utf8.ValidString(p.s):
			return fmt.Errorf("%s is not UTF-8", p.name)
		}
		for _, r := range p.s {
			if r < 0x20 || r == 0x7f || r >= 0x80 && r < 0xa0 {
				return fmt.Errorf("%s has a control character (U+%04X)", p.name, r)
			}
		}
	}
	return nil
}

// ClaimID is the random 128-bit name of one claim: a row is mine only by it.
type ClaimID [16]byte

// NewClaimID draws a claim id.
func NewClaimID() (id ClaimID) {
	rand.Read(id[:]) // never fails (crypto/rand, Go 1.24)
	return id
}

func (id ClaimID) String() string { return hex.EncodeToString(id[:]) }

// MarshalText writes the id in hex.
func (id ClaimID) MarshalText() ([]byte, error) { return []byte(id.String()), nil }

// UnmarshalText reads what MarshalText wrote.
func (id *ClaimID) UnmarshalText(b []byte) error {
	if len(b) != 32 {
		return fmt.Errorf("claim id has %d characters, want 32", len(b))
	}
	_, err := hex.Decode(id[:], b)
	return err
}

// Field is one header line.
type Field struct{ Name, Value string }

// Answer is a complete answer of a gateway: the bytes that were on the wire, headers as a list of lines.
type Answer struct {
	Status int
	Header []Field
	Body   []byte // nil: not kept; empty: the gateway sent no bytes
	// Key is the id of the ring's key under which Body holds header and body together; "": they are as they came. Only what
	// lies in a store is sealed.
	Key string
}

// Facts are fixed at the first claim of a revision and read from there ever after.
type Facts struct {
	Gateway string
	Account string
	// Endpoint is the base URL that the call goes to, Credential a keyed hash of the secret that it goes with: a key means
	// nothing at another gateway or under another account, so nothing is asked or repeated there.
	Endpoint   string
	Credential string
	Route      string
	GatewayKey string // the idempotency key that the gateway sees
	KeyPlace   string // where it stands: the same value in another place is another key
	// LookupForm is a digest of how the call was to be found: a miss by another form proves nothing.
	LookupForm string
	Reference  string // what a lookup matches
	// Retention is how long the gateway surely keeps the key (G3); 0: not declared.
	Retention time.Duration
	// SettleAfter is the longest late execution plus the lookup's index lag.
	SettleAfter time.Duration
	// Lookup holds what a lookup needs (object ids, amount, currency): never card data.
	Lookup map[string]string
}

// Strict is f with the stricter of f's and the configured times: the shorter retention, the longer settling time.
func (f Facts) Strict(configured Facts) Facts {
	f.Retention = min(f.Retention, configured.Retention)
	f.SettleAfter = max(f.SettleAfter, configured.SettleAfter)
	return f
}

// Attempt is one numbered send of a call's revision.
type Attempt struct {
	Number  int
	Claim   ClaimID
	Sender  Guard
	Guard   Guard
	Started Now
	// Deadline is when the sender has surely given up, by the store's clock.
	Deadline time.Time
	Outcome  Outcome
	// Proof names what proved the outcome: answer, zero-bytes, stored-answer, lookup, evidence, operator.
	Proof string
	// Wrote says that a byte of the request was perhaps passed on. It is true from the claim on, until shown otherwise.
	Wrote bool
	// Refused marks a listed refusal of the gateway: it does not count against the attempts.
	Refused bool
	// InUse: the gateway said that another request with the key is in flight.
	InUse bool
	// Stands: the answer is the gateway's own and kept under the key, so that a repeat would bring the same again.
	Stands bool
	// Presumed: no record of it was found; the store perhaps lost it.
	Presumed bool
	Status   int    // status of the gateway's answer, 0: none
	Cause    string // why the outcome is what it is, one word (timeout, cut, dial, unlisted, …)
}

// Counts reports whether the attempt perhaps reached the gateway and was not refused there.
func (a Attempt) Counts() bool {
	return a.Wrote && !a.Refused && !(a.Presumed && a.Outcome == NotExecuted)
}

// Doubtful reports whether the attempt has no proof of its own.
func (a Attempt) Doubtful() bool { return a.Outcome == Unknown }

// Evidence is a word about one attempt that came after its record had moved on, or from elsewhere.
type Evidence struct {
	Revision int
	Attempt  int
	Claim    ClaimID
	Outcome  Outcome
	Source   string // answer, notice, operator
	At       Now
	Answer   *Answer
	Payment  string
	// Stored: the answer is the stored first answer of its key, so that it speaks of every attempt.
	Stored bool
	// By and Note are a person's word: who, and why, with what was seen.
	By   string
	Note string
	// Read says that a decision took it in.
	Read bool
}

// Review says why a person must decide.
type Review struct {
	Reason string
	// Alarm: what is known contradicts itself (two successes, a success after a no), so that no further word of success
	// ends the review; only a person does.
	Alarm bool
	Since Now
}

// Undo is the key of a call that undoes another, and the part that it undoes; "": all of it.
type Undo struct{ Key, Part string }

// Past is an earlier revision of a call: how it ended and by which proofs.
type Past struct {
	Revision     int
	State        State
	Facts        Facts
	FirstStarted Now
	Attempts     []Attempt
}

// Fingerprint is a keyed MAC over a canonical request.
type Fingerprint struct {
	KeyID     string // key of the ring it was made with
	Canonical int    // version of the canonical form
	MAC       []byte
}

// IsZero reports whether there is no fingerprint.
func (f Fingerprint) IsZero() bool { return f.KeyID == "" && len(f.MAC) == 0 }

// Record is all that is kept of a call.
type Record struct {
	Key     Key
	Version int64 // 0: no record
	State   State
	// Era is the store's (see View) in which the record was first claimed, or last taken for in doubt after a loss.
	Era uint64

	// Revision counts from 1. Attempt numbers are of the current revision, from 1.
	Revision int
	Attempt  int
	Claim    ClaimID
	Sender   Guard
	Deadline time.Time

	// Scope is the application scope written at the first claim; "" where that came without a token.
	Scope       string
	Fingerprint Fingerprint
	Facts       Facts
	// FirstStarted is the store time of the revision's first claim: the gateway key's age counts from it.
	FirstStarted Now
	// Attempts are the current revision's, oldest first; see trim for what is dropped.
	Attempts []Attempt
	Evidence []Evidence

	// Object is the gateway's own id of what the revision's call made or changed; "": not known. A refusal that points at the
	// first object (replay family c) tells it while the outcome is still unknown.
	Object string

	Answer *Answer
	// Reconciled says that Answer was made from a lookup.
	Reconciled bool
	// Payment says where the money is: "", pending, done, failed, reversed.
	Payment string
	// Poll says that the call has succeeded and that where its money is has still to be asked for.
	Poll bool

	Misses   int // lookups in a row that missed
	LastMiss time.Time
	// NextCheck is when the sweeper looks next; moving it does not move the version.
	NextCheck time.Time
	Review    *Review

	// Undos are the calls that undo this one: a single one without a part, or one for each part.
	Undos []Undo
	// Undoes is the key of the call that this one undoes, Part what of it.
	Undoes string
	Part   string
	// Past holds the earlier revisions, oldest first.
	Past []Past

	Created Now
	Updated Now
}

// Exists reports whether there is a record.
func (r *Record) Exists() bool { return r.Version > 0 }

// Unread reports whether the record holds success evidence that no decision has taken in: the sweeper must look at it,
// and no claim or undo passes before.
func (r *Record) Unread() bool {
	for _, e := range r.Evidence {
		if e.Outcome == Succeeded && !e.Read {
			return true
		}
	}
	return false
}

// Mine reports whether the record's current attempt is the one named.
func (r *Record) Mine(revision, attempt int, claim ClaimID) bool {
	return r.Exists() && r.Revision == revision && r.Attempt == attempt && r.Claim == claim
}

// knows reports whether an attempt of the current revision is the one that was claimed under id.
func (r *Record) knows(id ClaimID) bool {
	return slices.ContainsFunc(r.Attempts, func(a Attempt) bool { return a.Claim == id })
}

// Clone is a deep copy: stores hand out nothing that they keep.
func (r *Record) Clone() Record {
	c := *r
	c.Fingerprint.MAC = slices.Clone(r.Fingerprint.MAC)
	c.Attempts = slices.Clone(r.Attempts)
	c.Evidence = slices.Clone(r.Evidence)
	for i := range c.Evidence {
		c.Evidence[i].Answer = c.Evidence[i].Answer.Clone()
	}
	c.Answer = r.Answer.Clone()
	c.Facts.Lookup = maps.Clone(r.Facts.Lookup)
	c.Undos = slices.Clone(r.Undos)
	c.Past = slices.Clone(r.Past)
	for i := range c.Past {
		c.Past[i].Facts.Lookup = maps.Clone(c.Past[i].Facts.Lookup)
		c.Past[i].Attempts = slices.Clone(c.Past[i].Attempts)
	}
	if r.Review != nil {
		v := *r.Review
		c.Review = &v
	}
	return c
}

// Clone is a deep copy that keeps "no body" and "empty body" apart.
func (a *Answer) Clone() *Answer {
	if a == nil {
		return nil
	}
	return &Answer{Status: a.Status, Header: slices.Clone(a.Header), Body: slices.Clone(a.Body), Key: a.Key}
}
