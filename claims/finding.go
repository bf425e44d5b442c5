package claims

import "time"

// FindingKind is what a lookup saw. The zero value says nothing.
type FindingKind uint8

const (
	CouldNotTell  FindingKind = iota // the gateway did not answer, or not clearly
	FoundDone                        // carried out, or still processing: Payment says where the money is
	FoundFailed                      // an object that failed
	Missed                           // nothing under the reference
	Contradiction                    // two successes, or another amount or currency under the reference: a person decides
)

func (k FindingKind) String() string {
	return [...]string{"could-not-tell", "found-done", "found-failed", "missed", "contradiction"}[k]
}

// Finding is the result of one lookup.
type Finding struct {
	Kind    FindingKind
	Payment string  // pending, done, failed, reversed
	Object  string  // the gateway's own id of the match; "": not known
	Answer  *Answer // what the lookup's declaration makes of its match; nil: none
	Alarm   bool    // of a Contradiction: two successes, which no further word of success explains
	Reason  string  // for people: what was seen, without card data
}

// LookupRules say what a route's lookup is worth (DESIGN section 4).
type LookupRules struct {
	// Proves: a miss of this lookup kind proves absence once the time is right. A search index never does.
	Proves bool
	// Misses is how many lookups in a row must miss, MissGap apart.
	Misses  int
	MissGap time.Duration
	// SettleAfter is the settling time as configured now; the longer of it and the record's counts.
	SettleAfter time.Duration
	// Keyed: the gateway deduplicates on the key (G1). Without it, absence after a written byte is a person's matter.
	Keyed bool
	// FirstStored: the gateway stores the first answer of a key, failures included (replay family a).
	FirstStored bool
	// RollsForward: an operation that was answered with a stored 5xx may still be carried out, long after.
	RollsForward bool
	// NoWay: the route has neither a lookup nor a probe: nothing but a person or a notice can ever tell.
	NoWay bool
}

// Verdict is a finding with what makes it applicable: the version that was read, and the store time that was read,
// before the lookup left.
type Verdict struct {
	Finding
	Rules   LookupRules
	Looked  bool // the gateway was asked; false: this process could not
	Version int64
	Asked   Now
}
