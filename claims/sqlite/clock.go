package sqlite

import (
	"errors"
	"fmt"
	"time"

	"github.com/fence-sidecar/fence-sidecar/claims"
)

// Clock is where a Store reads the machine's clocks; nil fields: the machine's own. Tests bend them one by one.
type Clock struct {
	Boot     func() time.Duration   // CLOCK_BOOTTIME
	Wall     func() time.Time       // calendar time
	Identity func() (string, error) // what Boot counts from: boot id and time namespace
}

func (c Clock) filled() Clock {
	if c.Boot == nil {
		c.Boot = claims.BootTime
	}
	if c.Wall == nil {
		c.Wall = time.Now
	}
	if c.Identity == nil {
		c.Identity = systemIdentity
	}
	return c
}

// ErrClockChanged says that another process, of another boot or time namespace, has adopted the store. Nothing was read
// or written, and this process can do nothing more with it: it must end.
var ErrClockChanged = errors.New("the store's clock was adopted by another boot or time namespace")

// ErrLeasesYoung is what every *LeasesYoungError is.
var ErrLeasesYoung = errors.New("leases of another boot or time namespace may still be trusted")

// LeasesYoungError says that the store cannot be adopted yet: a process of another boot or time namespace may still
// trust a lease.
type LeasesYoungError struct {
	Scope string
	Wait  time.Duration // by wall time; start again after it
}

func (e *LeasesYoungError) Error() string {
	return fmt.Sprintf("%v (%s): start again in %s", ErrLeasesYoung, e.Scope, e.Wait.Round(time.Millisecond))
}

// Is makes errors.Is(err, ErrLeasesYoung) true.
func (e *LeasesYoungError) Is(target error) bool { return target == ErrLeasesYoung }

// timekeeper tells the store's time inside a transaction.
type timekeeper struct {
	Clock
	identity string
}

// now is the store's time: what the file says and the boot clock at this moment. It must be called after the lock (or
// the snapshot) was got: an older time would let an expired lease pass (field report R45).
func (k *timekeeper) now(c *conn) (claims.Now, error) {
	var identity string
	var base, last int64
	err := c.row(`SELECT clock_identity, clock_base, last_store FROM store`).Scan(&identity, &base, &last)
	if err != nil {
		return claims.Now{}, fmt.Errorf("sqlite store: clock: %w", err)
	}
	if identity != k.identity {
		return claims.Now{}, fmt.Errorf("sqlite store: %w", ErrClockChanged)
	}
	// A machine restored from a snapshot can bring boot time back: store time then waits for it.
	return claims.Now{Store: moment(max(base+int64(k.Boot()), last)), Wall: k.wall()}, nil
}

// wall is calendar time without a monotonic part.
func (k *timekeeper) wall() time.Time { return k.Wall().Round(0).UTC() }

// seen records the time of a write, from which an adoption goes on.
func (k *timekeeper) seen(c *conn, now claims.Now) error {
	_, err := c.exec(`UPDATE store SET last_store = ?, last_wall = ?`, now.Store.UnixNano(), now.Wall.UnixNano())
	return err
}

// adopt makes the store's clock this machine's, inside a write transaction. The first process ever starts it at wall
// time. After a reboot (or in another time namespace) it goes on where it stood: no time has passed then by the store's
// clock, which is less than what really passed. Only leases that were held run out, after their real time is over.
func (k *timekeeper) adopt(c *conn, margin time.Duration) error {
	var identity *string
	var last *int64
	if err := c.row(`SELECT clock_identity, last_store FROM store`).Scan(&identity, &last); err != nil {
		return fmt.Errorf("sqlite store: clock: %w", err)
	}
	var start int64
	switch {
	case identity == nil || last == nil:
		start = k.wall().UnixNano()
	case *identity == k.identity:
		return nil
	default:
		expired, err := k.outlived(c, *last, margin)
		if err != nil {
			return err
		}
		start = max(*last, expired)
	}
	_, err := c.exec(`UPDATE store SET clock_identity = ?, clock_base = ?, last_store = ?, last_wall = ?`,
		k.identity, start-int64(k.Boot()), start, k.wall().UnixNano())
	return err
}

// outlived is a store time at which every lease of the other clock has expired. It is an error as long as, by wall time,
// one of them was renewed less than its time and the margin ago. What had expired by the time the store last saw needs
// no waiting.
func (k *timekeeper) outlived(c *conn, last int64, margin time.Duration) (int64, error) {
	rows, err := c.query(`SELECT scope, expiry, renewed_store, renewed_wall FROM leases
		WHERE standing = 'held' AND expiry > ?`, last)
	if err != nil {
		return 0, err
	}
	defer rows.Close()
	wall, end := k.wall(), last
	young := &LeasesYoungError{}
	for rows.Next() {
		var scope string
		var expiry, store, renewed int64
		if err := rows.Scan(&scope, &expiry, &store, &renewed); err != nil {
			return 0, err
		}
		over := moment(renewed).Add(time.Duration(expiry-store) + margin)
		if wait := over.Sub(wall); wait > young.Wait {
			young = &LeasesYoungError{Scope: scope, Wait: wait}
		}
		end = max(end, expiry+int64(margin))
	}
	if err := rows.Err(); err != nil {
		return 0, err
	}
	if young.Wait > 0 {
		return 0, young
	}
	return end, nil
}

// moment is the time of a column.
func moment(ns int64) time.Time { return time.Unix(0, ns).UTC() }
