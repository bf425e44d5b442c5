package memory

import (
	"fmt"
	"strconv"
	"time"

	"github.com/fence-sidecar/fence-sidecar/claims"
)

// Data is all that a Store holds. Tests that need a broken store reach it through Store.Edit.
type Data struct {
	Calls  map[claims.Key]*Call
	Leases map[string]*Lease
	Log    map[string][]claims.LeaseEvent
	// Losses are what the store was told that it lost (see Store.Lose); their number is its era.
	Losses     []claims.Loss
	Quarantine time.Time // store time until which nothing is granted; zero: none
	Events     []*Event
	LastEvent  int                      // the id that was given last
	Members    map[string]claims.Member // by scope
	Notices    []*Notice                // in the order in which they came
	Given      int                      // how often Kept gave some
}

// Notice is a notice with what Kept needs.
type Notice struct {
	claims.Early
	Given int // the number of the Kept that gave it last; 0: none did
}

// Event is an event with what Untold needs.
type Event struct {
	claims.Event
	Told    bool
	NextTry time.Time
	Tries   int
}

// Call is a record with what the sweeper counts beside it.
type Call struct {
	Record claims.Record
	Checks int // times that Unsettled returned it since its last Swap
}

// Lease is a scope's row; it stays when the lease ends, as the token must never be granted again.
type Lease struct {
	Token     uint64 // 0: never taken, only marked as cancelled
	Holder    string
	End       claims.LeaseStatus // LeaseReleased, LeaseFinished; else not ended
	Expiry    time.Time          // store time; at this very instant the lease has expired
	Cancelled bool
	Era       uint64 // the store's, when it was taken; of an earlier one it is not live
}

// Edit runs f on the stored data itself, locked, at the store's time. It exists so that tests can build stores that
// break a rule; whatever f keeps is shared with the store.
func (s *Store) Edit(f func(d *Data, now claims.Now)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(&s.data, s.now())
}

// Spoil gives a stored record a state that no version knows.
func (s *Store) Spoil(key claims.Key) {
	s.Edit(func(d *Data, _ claims.Now) { d.Calls[key].Record.State = "martian" })
}

// Fill keeps n notices of a tenant.
func (s *Store) Fill(tenant string, n int) {
	s.Edit(func(d *Data, now claims.Now) {
		for i := range n {
			d.Notices = append(d.Notices, &Notice{Early: claims.Early{Tenant: tenant, Gateway: "filled", ID: strconv.Itoa(i), At: now}})
		}
	})
}

func (d *Data) read(key claims.Key) (claims.Record, error) {
	c, ok := d.Calls[key]
	if !ok {
		return claims.Record{}, nil
	}
	if !c.Record.State.Readable() {
		return claims.Record{}, fmt.Errorf("%s: state %q: %w", key, c.Record.State, claims.ErrUnreadable)
	}
	return c.Record.Clone(), nil
}

// standing is what the lease is worth to this guard now.
func (d *Data) standing(g claims.Guard, now claims.Now) claims.GuardView {
	l, ok := d.Leases[g.Scope]
	switch {
	case !ok || g.Token == 0 || g.Token > l.Token:
		return claims.GuardView{Status: claims.LeaseAbsent}
	case g.Token < l.Token:
		return claims.GuardView{Status: claims.LeaseSuperseded}
	case g.External():
		return claims.GuardView{Status: claims.LeaseLive, Remaining: claims.ExternalTrust}
	case l.End == claims.LeaseReleased || l.End == claims.LeaseFinished:
		return claims.GuardView{Status: l.End, Finisher: l.End == claims.LeaseFinished}
	case !now.Store.Before(l.Expiry) || l.Era < d.era():
		return claims.GuardView{Status: claims.LeaseExpired}
	}
	return claims.GuardView{Status: claims.LeaseLive, Remaining: l.Expiry.Sub(now.Store)}
}

// hold refuses in the documented order; the standings are those of the same instant.
func (d *Data) hold(c claims.Condition, at claims.Swapped, now claims.Now) error {
	if !c.Guard.IsZero() || !c.Sender.IsZero() {
		if err := d.open(now); err != nil {
			return err
		}
	}
	if !c.Guard.IsZero() && !at.Guard.Live() && !(c.Finisher && at.Guard.Finisher) {
		return &claims.FencedError{Guard: c.Guard, Status: at.Guard.Status}
	}
	if !c.Sender.IsZero() && !at.Sender.Live() {
		return &claims.FencedError{Guard: c.Sender, Status: at.Sender.Status, Sender: true}
	}
	if !c.Dead.IsZero() && d.standing(c.Dead, now).Live() {
		return claims.ErrSenderLives
	}
	return nil
}
