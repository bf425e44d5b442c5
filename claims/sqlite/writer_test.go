package sqlite

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/fence-sidecar/fence-sidecar/claims"
)

// lock takes the file's write lock as another process would; unlock gives it back.
func lock(t *testing.T, path string) (unlock func()) {
	t.Helper()
	db, err := pool(path)
	if err != nil {
		t.Fatal(err)
	}
	c, err := bare(db)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.script("BEGIN IMMEDIATE"); err != nil {
		t.Fatal(err)
	}
	unlock = sync.OnceFunc(func() { c.drop(); db.Close() })
	t.Cleanup(unlock)
	return unlock
}

// queued is how many requests the writer has not taken yet.
func queued(s *Store) int {
	s.writer.mu.Lock()
	defer s.writer.mu.Unlock()
	return len(s.writer.leases) + len(s.writer.calls)
}

func wait(t *testing.T, until func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !until(); {
		if time.Now().After(end) {
			t.Fatal("it did not happen in 30 s")
		}
		time.Sleep(time.Millisecond)
	}
}

// stall keeps the writer busy with a first request until the returned function is called, so that what is queued
// meanwhile shares the next commit.
func stall(t *testing.T, s *Store) (resume func()) {
	t.Helper()
	started, gate := make(chan bool), make(chan bool)
	done := make(chan error, 1)
	go func() {
		done <- s.writer.do(context.Background(), false, func(*tx) error { close(started); <-gate; return nil })
	}()
	<-started
	return func() {
		close(gate)
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

func TestSwapsShareCommits(t *testing.T) {
	s := openAt(t, migrated(t), newMachine())
	const n = 400
	resume := stall(t, s)
	before := s.writer.commits.Load()
	var wg sync.WaitGroup
	for i := range n {
		wg.Go(func() {
			if _, err := s.Swap(t.Context(), claims.Condition{}, claims.Write{Next: record(fmt.Sprint(i))}); err != nil {
				t.Error(err)
			}
		})
	}
	wait(t, func() bool { return queued(s) == n })
	resume()
	wg.Wait()
	if commits := s.writer.commits.Load() - before; commits != 2 { // 256 and the rest
		t.Errorf("%d swaps took %d commits, want 2", n, commits)
	}
	list, err := s.List(t.Context(), "", nil, n+1)
	if err != nil || len(list) != n {
		t.Errorf("%d records are there, %v", len(list), err)
	}
}

// TestOneRefusalHarmsNoOther of its batch, nor does one that fails after it wrote.
func TestOneRefusalHarmsNoOther(t *testing.T) {
	s := openAt(t, migrated(t), newMachine())
	resume := stall(t, s)
	var wg sync.WaitGroup
	results := make([]error, 5)
	submit := func(i int, f func() error) {
		wg.Go(func() { results[i] = f() })
		wait(t, func() bool { return queued(s) == i+1 })
	}
	swap := func(name string, version int64) func() error {
		return func() error {
			_, err := s.Swap(t.Context(), claims.Condition{}, claims.Write{Version: version, Next: record(name)})
			return err
		}
	}
	submit(0, swap("a", 0))
	submit(1, swap("a", 0)) // lost to the one before
	submit(2, func() error {
		return s.writer.do(t.Context(), false, func(t *tx) error {
			r := record("half")
			r.Version = 1
			return errors.Join(t.put(&r, false), errors.New("failed after its write"))
		})
	})
	submit(3, swap("a", 1))
	submit(4, swap("b", 0))
	resume()
	wg.Wait()
	for i, want := range []func(error) bool{
		func(err error) bool { return err == nil },
		func(err error) bool { return errors.Is(err, claims.ErrLost) },
		func(err error) bool { return err != nil && !claims.Refused(err) },
		func(err error) bool { return err == nil },
		func(err error) bool { return err == nil },
	} {
		if !want(results[i]) {
			t.Errorf("request %d: %v", i, results[i])
		}
	}
	if v := get(t, s, key("a")).Version; v != 2 {
		t.Errorf("a is at version %d, want 2", v)
	}
	if !there(t, s, "b") || there(t, s, "half") {
		t.Error("b is not there, or half of a failed request is")
	}
}

func TestFailureAfterAWriteAloneInItsBatch(t *testing.T) {
	s := openAt(t, migrated(t), newMachine())
	err := s.writer.do(t.Context(), false, func(t *tx) error {
		r := record("half")
		r.Version = 1
		return errors.Join(t.put(&r, false), errors.New("failed after its write"))
	})
	if err == nil || claims.Refused(err) || there(t, s, "half") {
		t.Errorf("%v, or it is there", err)
	}
	put(t, s, record("next"))
}

// TestCommitErrorIsPerhapsApplied for all of its batch, also for one that was refused: what refused it may not last.
func TestCommitErrorIsPerhapsApplied(t *testing.T) {
	for _, applied := range []bool{true, false} {
		s := openAt(t, migrated(t), newMachine())
		commit := s.writer.commit
		resume := stall(t, s)
		var wg sync.WaitGroup
		results := make([]error, 2)
		for i := range results {
			wg.Go(func() {
				_, results[i] = s.Swap(t.Context(), claims.Condition{}, claims.Write{Next: record("c")})
			})
		}
		wait(t, func() bool { return queued(s) == 2 })
		s.writer.commit = func(c *conn) error { // the writer is stalled: nobody reads it now
			if applied {
				if err := commit(c); err != nil {
					return err
				}
			}
			s.writer.commit = commit
			return errors.New("disk I/O error")
		}
		resume()
		wg.Wait()
		for _, err := range results {
			if err == nil || claims.Refused(err) {
				t.Errorf("after a failed commit: %v, want an error that is no refusal", err)
			}
		}
		if got := there(t, s, "c"); got != applied {
			t.Errorf("record there: %v, want %v", got, applied)
		}
		put(t, s, record("next")) // the store goes on with a new connection
	}
}

func TestLeasesGoFirst(t *testing.T) {
	s := openAt(t, migrated(t), newMachine())
	g := take(t, s, "shop:a", time.Hour)
	resume := stall(t, s)
	var mu sync.Mutex
	var order []string
	var wg sync.WaitGroup
	note := func(name string) func(*tx) error {
		return func(*tx) error { mu.Lock(); defer mu.Unlock(); order = append(order, name); return nil }
	}
	for range 2 * maxBatch {
		wg.Go(func() { s.writer.do(t.Context(), false, note("call")) })
	}
	wait(t, func() bool { return queued(s) == 2*maxBatch })
	wg.Go(func() { s.writer.do(t.Context(), true, note("lease")) })
	wg.Go(func() {
		if _, err := s.Renew(t.Context(), g, time.Hour); err != nil {
			t.Error(err)
		}
	})
	wait(t, func() bool { return queued(s) == 2*maxBatch+2 })
	resume()
	wg.Wait()
	if order[0] != "lease" {
		t.Errorf("a lease's write waited for calls")
	}
}

func TestCallerWhoGivesUp(t *testing.T) {
	s := openAt(t, migrated(t), newMachine())
	resume := stall(t, s)
	ctx, cancel := context.WithCancel(t.Context())
	waiting := make(chan error)
	go func() {
		_, err := s.Swap(ctx, claims.Condition{}, claims.Write{Next: record("queued")})
		waiting <- err
	}()
	wait(t, func() bool { return queued(s) == 1 })
	cancel()
	if err := <-waiting; !errors.Is(err, context.Canceled) || claims.Refused(err) {
		t.Errorf("cancelled in the queue: %v", err)
	}
	resume()
	put(t, s, record("next")) // what was queued before it has run
	if there(t, s, "queued") {
		t.Error("a request that was taken back was written")
	}

	ctx, cancel = context.WithCancel(t.Context())
	err := s.writer.do(ctx, false, func(t *tx) error { // while it runs: too late to take back
		cancel()
		r := record("running")
		r.Version = 1
		return t.put(&r, false)
	})
	if err != nil && (!errors.Is(err, context.Canceled) || claims.Refused(err)) {
		t.Errorf("cancelled while it ran: %v", err)
	}
	put(t, s, record("after"))
	if !there(t, s, "running") {
		t.Error("what ran was not written")
	}
}

func TestBusyFile(t *testing.T) {
	path, m := migrated(t), newMachine()
	s := open(t, Config{Path: path, Clock: m.clock(), BusyTimeout: 50 * time.Millisecond})
	unlock := lock(t, path)
	_, err := s.Swap(t.Context(), claims.Condition{}, claims.Write{Next: record("c")})
	if !errors.Is(err, ErrBusy) || claims.Refused(err) {
		t.Errorf("a file that stays locked: %v", err)
	}
	if there(t, s, "c") { // readers do not wait for the writer
		t.Error("it was written")
	}
	unlock()
	put(t, s, record("c"))
}

// TestRenewalBesideABusyProcess: the other process commits without a pause, this one renews.
func TestRenewalBesideABusyProcess(t *testing.T) {
	path, m := migrated(t), newMachine()
	busy, s := openAt(t, path, m), openAt(t, path, m)
	g := take(t, s, "shop:a", time.Hour)
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for i := range 32 {
		wg.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				busy.Swap(ctx, claims.Condition{}, claims.Write{Next: record(fmt.Sprint(i, "/", n))})
			}
		})
	}
	wait(t, func() bool { return busy.writer.commits.Load() > 10 })
	var worst time.Duration
	for range 30 {
		start := time.Now()
		if _, err := s.Renew(t.Context(), g, time.Hour); err != nil {
			t.Errorf("renewal: %v", err)
		}
		worst = max(worst, time.Since(start))
	}
	stop()
	wg.Wait()
	if worst > 3*time.Second {
		t.Errorf("a renewal took %s", worst)
	}
	t.Logf("slowest of 30 renewals: %s", worst)
}

func TestCloseWaitsForQueuedWrites(t *testing.T) {
	path, m := migrated(t), newMachine()
	s := openAt(t, path, m)
	resume := stall(t, s)
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			if _, err := s.Swap(t.Context(), claims.Condition{}, claims.Write{Next: record(fmt.Sprint(i))}); err != nil {
				t.Errorf("queued before the close: %v", err)
			}
		})
	}
	wait(t, func() bool { return queued(s) == 20 })
	wg.Go(func() { s.Close() })
	wait(t, func() bool { s.writer.mu.Lock(); defer s.writer.mu.Unlock(); return s.writer.closed })
	_, err := s.Swap(t.Context(), claims.Condition{}, claims.Write{Next: record("late")})
	if !errors.Is(err, ErrClosed) || claims.Refused(err) {
		t.Errorf("after the close: %v", err)
	}
	resume()
	wg.Wait()
	list, err := openAt(t, path, m).List(t.Context(), "", nil, 100)
	if err != nil || len(list) != 20 {
		t.Errorf("%d records are there, %v", len(list), err)
	}
}
