package sqlite

import (
	"errors"
	"testing"
	"time"

	"github.com/fence-sidecar/fence-sidecar/claims"
)

func storeNow(t *testing.T, s *Store) claims.Now {
	t.Helper()
	v, err := s.Get(t.Context(), key("none"), claims.Guard{})
	if err != nil {
		t.Fatal(err)
	}
	return v.Now
}

func take(t *testing.T, s *Store, scope string, ttl time.Duration) claims.Guard {
	t.Helper()
	l, err := s.Acquire(t.Context(), scope, "holder", ttl)
	if err != nil {
		t.Fatal(err)
	}
	return l.Guard
}

// reboot ends the machine's boot; down is how long it is off, by the wall clock.
func (m *machine) reboot(down time.Duration) {
	m.boot += "'"
	up := m.Boot()
	m.Advance(-up) // boot time starts anew
	m.StepWall(up + down)
}

func TestStoreTimeStartsAtWallTime(t *testing.T) {
	m := newMachine()
	s := openAt(t, migrated(t), m)
	if now := storeNow(t, s); !now.Store.Equal(m.Wall()) || !now.Wall.Equal(m.Wall()) {
		t.Errorf("a new store's time is %+v, the wall clock says %s", now, m.Wall())
	}
}

func TestStoreTimeCountsBootTime(t *testing.T) {
	path, m := migrated(t), newMachine()
	s := openAt(t, path, m)
	first := storeNow(t, s)
	m.Advance(time.Hour)
	m.StepWall(-5 * time.Hour)
	other := openAt(t, path, m) // another process of the same boot
	for _, s := range []*Store{s, other} {
		if d := storeNow(t, s).Store.Sub(first.Store); d != time.Hour {
			t.Errorf("%s passed by the store's clock, want an hour", d)
		}
	}
}

func TestRebootWaitsForLeases(t *testing.T) {
	path, m := migrated(t), newMachine()
	s := openAt(t, path, m)
	take(t, s, "shop:long-gone", time.Second)
	m.Advance(time.Minute)
	g := take(t, s, "shop:a", 30*time.Second)
	m.Advance(10 * time.Second)
	if _, err := s.Renew(t.Context(), g, 30*time.Second); err != nil {
		t.Fatal(err)
	}
	before := storeNow(t, s)
	s.Close()

	wall := m.Wall()
	m.reboot(29 * time.Second)
	_, err := Open(t.Context(), Config{Path: path, Clock: m.clock()})
	e, ok := errors.AsType[*LeasesYoungError](err)
	if !ok || !errors.Is(err, ErrLeasesYoung) || e.Wait != 2*time.Second || e.Scope != "shop:a" {
		t.Fatalf("29 s after a renewal for 30 s: %v, want to wait 2 s for shop:a", err)
	}
	m.Advance(e.Wait - 1)
	if _, err := Open(t.Context(), Config{Path: path, Clock: m.clock()}); !errors.Is(err, ErrLeasesYoung) {
		t.Fatalf("1 ns before its time: %v", err)
	}
	m.Advance(1)
	s = openAt(t, path, m)
	now := storeNow(t, s)
	if d := now.Store.Sub(before.Store); d < 30*time.Second || d > m.Wall().Sub(wall) {
		t.Errorf("the store's clock went on by %s, the wall clock by %s: want from 30 s up to that", d, m.Wall().Sub(wall))
	}
	if _, err := s.Renew(t.Context(), g, 30*time.Second); !claims.Refused(err) {
		t.Errorf("a lease of before the reboot was renewed: %v", err)
	}
	if g := take(t, s, "shop:a", time.Second); g.Token != 2 {
		t.Errorf("token %d after the reboot, want 2", g.Token)
	}
}

func TestRebootWithoutLeasesDoesNotWait(t *testing.T) {
	path, m := migrated(t), newMachine()
	s := openAt(t, path, m)
	g := take(t, s, "shop:a", time.Hour)
	if err := s.Release(t.Context(), g); err != nil {
		t.Fatal(err)
	}
	take(t, s, "shop:b", time.Second)
	m.Advance(time.Second)
	m.StepWall(-time.Hour) // by the wall clock it seems to have been renewed in the future
	put(t, s, record("c")) // by the time that the store last saw, it has expired
	last := storeNow(t, s)
	s.Close()
	m.reboot(0)
	s = openAt(t, path, m)
	if now := storeNow(t, s); !now.Store.Equal(last.Store) {
		t.Errorf("store time %s after the reboot, want %s: none has passed", now.Store, last.Store)
	}
}

// TestStoreTimeIsMonotone over many boots, also when boot time comes back from a machine's snapshot.
func TestStoreTimeIsMonotone(t *testing.T) {
	path, m := migrated(t), newMachine()
	var last time.Time
	for range 5 {
		s := openAt(t, path, m)
		for range 3 {
			m.Advance(time.Second)
			r := put(t, s, record(claims.NewClaimID().String()))
			if !r.Updated.Store.After(last) {
				t.Fatalf("store time %s after %s", r.Updated.Store, last)
			}
			last = r.Updated.Store
		}
		s.Close()
		m.reboot(time.Minute)
	}
	s := openAt(t, path, m)
	m.Advance(time.Hour)
	r := put(t, s, record("late"))
	m.Advance(-time.Minute)
	if now := storeNow(t, s); now.Store.Before(r.Updated.Store) {
		t.Errorf("store time fell back by %s", r.Updated.Store.Sub(now.Store))
	}
}

func TestAdoptedStoreStopsTheOldProcess(t *testing.T) {
	path, m := migrated(t), newMachine()
	old := openAt(t, path, m)
	r := put(t, old, record("c"))
	m.boot = "another-time-namespace"
	openAt(t, path, m)
	_, err := old.Swap(t.Context(), claims.Condition{}, claims.Write{Version: r.Version, Next: r})
	if !errors.Is(err, ErrClockChanged) {
		t.Errorf("write by the old process: %v", err)
	}
	if _, err := old.Get(t.Context(), r.Key, claims.Guard{}); !errors.Is(err, ErrClockChanged) {
		t.Errorf("read by the old process: %v", err)
	}
	if got := get(t, openAt(t, path, m), r.Key); got.Version != r.Version {
		t.Errorf("the refused write is there: version %d", got.Version)
	}
}

// TestTimeIsReadUnderTheLock: a write that waited for the lock is judged by the time after the wait (field report R45).
func TestTimeIsReadUnderTheLock(t *testing.T) {
	path, m := migrated(t), newMachine()
	s := openAt(t, path, m)
	g := take(t, s, "shop:a", 30*time.Second)
	unlock := lock(t, path)
	done := make(chan error)
	go func() {
		_, err := s.Swap(t.Context(), claims.Condition{Guard: g}, claims.Write{Next: record("c")})
		done <- err
	}()
	wait(t, func() bool { return s.writer.waits.Load() > 0 })
	m.Advance(30 * time.Second)
	unlock()
	if e, ok := errors.AsType[*claims.FencedError](<-done); !ok || e.Status != claims.LeaseExpired {
		t.Errorf("a swap under a lease that expired while it waited: %v", e)
	}
	if there(t, s, "c") {
		t.Error("it was written")
	}
}

func TestSystemIdentityIsStable(t *testing.T) {
	a, err := systemIdentity()
	if err != nil || a == "" {
		t.Fatalf("identity %q, %v", a, err)
	}
	if b, _ := systemIdentity(); a != b {
		t.Errorf("identity %q, then %q", a, b)
	}
}
