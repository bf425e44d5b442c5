package claimstest

import (
	"sync"
	"time"

	"github.com/fence-sidecar/fence-sidecar/claims"
)

// Clock is a test's clock: it stands still until it is moved.
type Clock struct {
	mu   sync.Mutex
	boot time.Duration
	wall time.Time
}

// start is what Now begins with; boot time and wall time start far apart, as on a machine.
var start = time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)

// NewClock makes a clock that has been up for an hour.
func NewClock() *Clock { return &Clock{boot: time.Hour, wall: start} }

// Advance moves both clocks on.
func (c *Clock) Advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.boot += d
	c.wall = c.wall.Add(d)
}

// StepWall moves the wall clock alone.
func (c *Clock) StepWall(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wall = c.wall.Add(d)
}

// Boot is the time since boot.
func (c *Clock) Boot() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.boot
}

// Wall is the wall time.
func (c *Clock) Wall() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.wall
}

// Now is a store's time that counts Boot.
func (c *Clock) Now() claims.Now {
	c.mu.Lock()
	defer c.mu.Unlock()
	return claims.Now{Store: start.Add(c.boot), Wall: c.wall}
}
