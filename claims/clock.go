package claims

import "time"

// Now is the store's time, read inside one of its transactions.
//
// Store is the clock for leases, deadlines and settling times; it never runs ahead of the time that really passed (on
// SQLite it is boot time, and stands still between boots). Wall is calendar time. A key's age is the greater of both
// differences, so that neither clock can make an old key look young.
type Now struct {
	Store time.Time
	Wall  time.Time
}

// Age is how old an instant is at most.
func (n Now) Age(since Now) time.Duration {
	return max(n.Store.Sub(since.Store), n.Wall.Sub(since.Wall))
}

// later is the later of both instants, clock by clock.
func (n Now) later(m Now) Now {
	if n.Store.After(m.Store) {
		m.Store = n.Store
	}
	if n.Wall.After(m.Wall) {
		m.Wall = n.Wall
	}
	return m
}

// IsZero reports whether the instant was never set.
func (n Now) IsZero() bool { return n.Store.IsZero() }

// Reading is one look at the process's own clocks.
type Reading struct {
	Mono time.Duration // CLOCK_MONOTONIC, stands still while the machine is suspended
	Boot time.Duration // CLOCK_BOOTTIME, counts a suspend
	Wall time.Time     // without a monotonic part
}

// Clock reads the process's own clocks; it is injected so that tests can bend them one by one.
type Clock func() Reading

var processStart = time.Now()

// SystemClock reads the machine's clocks.
func SystemClock() Reading {
	now := time.Now()
	return Reading{Mono: now.Sub(processStart), Boot: BootTime(), Wall: now.Round(0)}
}

// Sub is the time that passed between two readings by the clock that counted most: a suspend, a freeze or a step can
// only make it longer.
func (r Reading) Sub(earlier Reading) time.Duration {
	return max(r.Mono-earlier.Mono, r.Boot-earlier.Boot, r.Wall.Sub(earlier.Wall))
}

// Trust is how long the process may rely on something that the store granted: for For, counted from a reading taken
// before the request left. It ends by the first of the three clocks (assumptions A4, A5).
type Trust struct {
	From Reading
	For  time.Duration
}

// Left is what remains; negative or zero means over.
func (t Trust) Left(now Reading) time.Duration { return t.For - now.Sub(t.From) }
