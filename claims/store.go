package claims

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// View is one snapshot of a call.
type View struct {
	Record Record    // zero where there is none
	Guard  GuardView // the asked guard's standing
	Sender GuardView // the standing of Record.Sender
	Now    Now
	// Era counts the times that the store perhaps lost what it had acknowledged; see Loss.
	Era uint64
	// Loss is set where the record, or the want of one, may be older than what was once acknowledged.
	Loss *Loss
	// Quarantine is how long nothing may be granted, renewed or claimed yet after a loss was noticed; 0: no quarantine.
	Quarantine time.Duration
}

// Loss is a time in which writes were acknowledged that the store perhaps no longer has: a standby that was behind was
// promoted, or an older copy was put back. Whatever was written after From may be missing; At is when it was noticed.
type Loss struct{ From, At Now }

// LossWatch is how long after a loss a call without a record is looked up before it is sent.
const LossWatch = 168 * time.Hour

// TokenJump is added to every scope's next token at a loss, so that no token that was granted and lost is granted again.
const TokenJump = 1_000_000

// Condition is what must hold in the transaction of a Swap, besides the versions.
type Condition struct {
	Guard Guard // must be live; zero: not asked for (verdicts, evidence, the operator's word)
	// Finisher lets Guard also be the token that finished its scope: only with it something of a finished scope is undone.
	Finisher bool
	Sender   Guard // the process's own lease, must be live; zero: not asked for
	Dead     Guard // a sender that must not be live any more; zero: not asked for
}

// Write is one record's compare-and-set.
type Write struct {
	Version int64 // version that must be stored now; 0: no record must be there
	Next    Record
	// Claim marks the write of a claim: the store stamps the attempt's start and its deadline, its time + Timeout.
	Claim   bool
	Timeout time.Duration
	// Event is written with the record; nil: none. The store gives it its id and its time.
	Event *Event
}

// Stamp is the record as a store writes it at its time now: whatever has no time yet gets that one. Every Store uses it,
// so that all stamp alike.
func (w Write) Stamp(now Now) Record {
	r := w.Next.Clone()
	r.Version = w.Version + 1
	r.Updated = r.Updated.later(now) // a clock that stepped back stays noticed
	if r.Created.IsZero() {
		r.Created = now
	}
	if r.Review != nil && r.Review.Since.IsZero() {
		r.Review.Since = now
	}
	for i := range r.Evidence {
		if r.Evidence[i].At.IsZero() {
			r.Evidence[i].At = now
		}
	}
	if w.Claim {
		r.Deadline = now.Store.Add(w.Timeout)
		if r.FirstStarted.IsZero() {
			r.FirstStarted = now
		}
		if n := len(r.Attempts); n > 0 {
			r.Attempts[n-1].Started = now
			r.Attempts[n-1].Deadline = r.Deadline
		}
		r.NextCheck = r.Deadline
	}
	return r
}

// Swapped is what a Swap found or wrote.
type Swapped struct {
	Records []Record // as written; after ErrLost as they stand, zero where there is none
	Guard   GuardView
	Sender  GuardView
	Now     Now
}

// Event says that a call which was in doubt came to rest, or that its money moved.
type Event struct {
	ID       string // by the store: unique, and what Events is asked with
	Key      Key
	Revision int
	Attempt  int
	From     State // what it was before
	State    State
	Outcome  Outcome
	Payment  string
	At       Now
}

// Journal keeps events until they are pruned.
type Journal interface {
	// Events returns at most limit events after the one with the given id ("": from the oldest kept on), oldest first. Reading
	// on from the last one misses none: an event never shows up before one that was returned earlier.
	Events(ctx context.Context, after string, limit int) ([]Event, error)
	// LastEvent is the id after which there is no event yet, "" where there was none.
	LastEvent(ctx context.Context) (string, error)
	// Untold returns events of the sweep's tenants that nobody has marked as told and whose next try is due, and moves their
	// next try on as Unsettled does.
	Untold(ctx context.Context, s Sweep) ([]Event, error)
	// Told marks an event as told. One that is told already, or gone, is no error.
	Told(ctx context.Context, id string) error
}

// Member is what a process says of itself, so that others know what all can read.
type Member struct {
	Guard   Guard  // its own lease
	Version string // of the program
	Schema  int    // of the store, as the program knows it
	Keys    []string
}

// Members tells processes of each other.
type Members interface {
	// Announce replaces what a process said of itself before. Its lease must be live: *FencedError.
	Announce(ctx context.Context, m Member) error
	// Members returns what those processes said whose lease is live, by scope. One that has said nothing is among them, with
	// nothing but its Guard.
	Members(ctx context.Context) ([]Member, error)
}

// Sweep asks for calls that somebody has to look at.
type Sweep struct {
	Limit   int
	Tenants []string // whose calls; none: everybody's
	// A returned call's next check moves to now + Base doubled with every earlier check, at most Max.
	Base, Max time.Duration
}

// Backoff is how long a call is left alone after so many checks since its last write: Base doubled with every one, at most
// Max (no Max: Base).
func (s Sweep) Backoff(checks int) time.Duration {
	if s.Max <= 0 {
		return s.Base
	}
	d := s.Base
	for range checks {
		if d >= s.Max/2 {
			return s.Max
		}
		d *= 2
	}
	return min(d, s.Max)
}

// CheckWrites refuses what no caller of Swap may ask for; that is a caller's mistake, no refusal by a store's rules.
func CheckWrites(writes []Write) error {
	if len(writes) < 1 || len(writes) > 2 {
		return fmt.Errorf("swap of %d records, want one or two", len(writes))
	}
	if len(writes) == 2 && writes[0].Next.Key == writes[1].Next.Key {
		return fmt.Errorf("swap names %s twice", writes[0].Next.Key)
	}
	for _, w := range writes {
		if st := w.Next.State; st == None || !st.Readable() {
			return fmt.Errorf("swap of %s to state %q", w.Next.Key, st)
		}
	}
	return nil
}

// Store keeps calls. Every method is one transaction of one database; times are the store's.
//
// An error that Refused does not report means perhaps applied: read again before deciding anything.
type Store interface {
	// Get reads a record, the standing of guard and of the record's sender, and the time, in one snapshot.
	// A record that this version cannot read is ErrUnreadable.
	Get(ctx context.Context, key Key, guard Guard) (View, error)

	// Swap writes one record, or two for an undo's first claim (all or nothing), if their stored versions are the expected
	// ones and the condition holds, and returns them as written. Named refusals, in the order in which they are checked:
	// *QuarantineError (where the condition names a guard or a sender), *FencedError (Guard, then Sender), ErrSenderLives,
	// ErrLost. A claim whose record is of an earlier era than the store's is ErrLost too: it must be decided with the loss in
	// view. Rows are locked leases first, each kind in byte order.
	Swap(ctx context.Context, cond Condition, writes ...Write) (Swapped, error)

	// Unsettled returns the keys of calls that are unknown, or pending past their deadline, or hold success evidence that
	// their state does not tell of, or are to be polled (Record.Poll), and whose next check is due; it moves the next check on
	// without moving the version.
	Unsettled(ctx context.Context, s Sweep) ([]Key, error)

	// Prune drops the answers, not the outcomes, of at most limit settled calls that were last written before the given
	// store time. Pending, unknown and review are never touched. It also drops at most limit events of before that time.
	// It returns how many answers and events it dropped.
	Prune(ctx context.Context, before time.Time, limit int) (int, error)

	// Confirm returns nil only when whatever was visible before the call is as lasting as an acknowledged write. What was read
	// after a write that was perhaps applied must not be relied on, nor told, before: it may be there without having been
	// confirmed, and be gone after a failover.
	Confirm(ctx context.Context) error
}

// Lister browses calls and leases for people. It is no part of any decision.
type Lister interface {
	// List returns at most limit calls of a tenant ("" for all), newest first, of the listed states (none: all).
	List(ctx context.Context, tenant string, states []State, limit int) ([]Record, error)
	// Log returns a scope's lease log, oldest first.
	Log(ctx context.Context, scope string) ([]LeaseEvent, error)
}

// Lease is a scope's standing.
type Lease struct {
	Guard
	Status    LeaseStatus // LeaseAbsent: never taken
	Holder    string
	Remaining time.Duration // until expiry, where live
	Cancelled bool          // somebody asked for the scope's work to stop; kept across takes
}

// LeaseEvent is one line of the lease log. Renewals are not logged.
type LeaseEvent struct {
	Guard
	Event  string // take (the scope was free), takeover (the last holder's time had run out), release, finish, cancel
	Holder string
	At     Now
}

// Leases grants scopes. Expiry is decided by the store's clock alone. During a quarantine Acquire, Renew, Release and
// Finish are refused with *QuarantineError.
type Leases interface {
	// Acquire takes a free or expired scope: token + 1. Refusals: ErrHeld, ErrFinished, ErrBadScope.
	Acquire(ctx context.Context, scope, holder string, ttl time.Duration) (Lease, error)
	// Renew moves the expiry of a live lease to now + ttl, never back. An expired lease is not renewed: *FencedError.
	// An external guard (see ExternalPrefix) has no expiry: its renewal raises the scope's mark to its token, and a token
	// below the mark is *FencedError.
	Renew(ctx context.Context, g Guard, ttl time.Duration) (Lease, error)
	// Release gives a live lease back; the token stays counted. Refusals: *FencedError; ErrCallsInFlight while a call of
	// the scope is pending or unknown, or an attempt that was sent under this lease is pending.
	Release(ctx context.Context, g Guard) error
	// Finish ends a scope for good: it is never granted again. Refusals as Release.
	Finish(ctx context.Context, g Guard) error
	// Cancel marks a scope, held or not, so that whoever holds it learns at its next renewal that its work is to stop. It
	// takes the lease from nobody. Marking again changes nothing. Refusals: ErrFinished, ErrBadScope (also for scopes that
	// are no application's).
	Cancel(ctx context.Context, scope string) (Lease, error)
	// State reads a scope.
	State(ctx context.Context, scope string) (Lease, error)
}

// Backend is one database: calls and the leases that guard them, so that both are read in one transaction (A2).
type Backend interface {
	Store
	Leases
	Lister
	Journal
	Members
	Finder
	Inbox
	// Realm is what the migration drew to separate deployments that share a gateway account: gateway keys derive from it.
	Realm() string
	// Keyset is the key set that the migration made, as package keys writes it. It is a secret.
	Keyset() []byte
	Close() error
}

// Named refusals of a Store or of Leases: nothing was applied.
var (
	ErrLost          = errors.New("another write of this record won")
	ErrSenderLives   = errors.New("the attempt's sender is still live")
	ErrHeld          = errors.New("the scope is held")
	ErrFinished      = errors.New("the scope is finished")
	ErrCallsInFlight = errors.New("calls of the scope are in flight")
	ErrUnreadable    = errors.New("the record cannot be read by this version")
	ErrBadScope      = errors.New("not a scope key")
	ErrBadEvent      = errors.New("not an event's id")
)

// FencedError says that a guard was not live when the store looked.
type FencedError struct {
	Guard  Guard
	Status LeaseStatus
	Sender bool // it was the process's own lease
}

func (e *FencedError) Error() string {
	return fmt.Sprintf("lease %s is %s", e.Guard, e.Status)
}

// QuarantineError says that the store perhaps lost leases that it had granted: nothing is granted, renewed or claimed until
// they have surely run out.
type QuarantineError struct{ Left time.Duration }

func (e *QuarantineError) Error() string {
	return fmt.Sprintf("the store perhaps lost what it had acknowledged: in quarantine for %s", e.Left.Round(time.Millisecond))
}

// Refused reports whether err is a named refusal, so that surely nothing was written. Any other error of a write means
// perhaps applied.
func Refused(err error) bool {
	if _, ok := errors.AsType[*FencedError](err); ok {
		return true
	}
	if _, ok := errors.AsType[*QuarantineError](err); ok {
		return true
	}
	for _, r := range []error{ErrLost, ErrSenderLives, ErrHeld, ErrFinished, ErrCallsInFlight, ErrUnreadable, ErrBadScope, ErrBadEvent, ErrInboxFull} {
		if errors.Is(err, r) {
			return true
		}
	}
	return false
}
