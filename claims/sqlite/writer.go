package sqlite

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/fence-sidecar/fence-sidecar/claims"
)

// ErrBusy says that other processes kept the write lock for longer than Config.BusyTimeout; nothing was written.
var ErrBusy = errors.New("the store's file is locked by another process")

// ErrClosed says that the store was closed; nothing was written.
var ErrClosed = errors.New("the store is closed")

// maxBatch bounds how many requests share a commit, and so how long a renewal waits for the claims before it.
const maxBatch = 256

// tx is one transaction at one instant of the store's time.
type tx struct {
	*conn
	now   claims.Now
	wrote bool
}

// change runs a statement that writes.
func (t *tx) change(query string, args ...any) error {
	t.wrote = true
	_, err := t.exec(query, args...)
	return err
}

// request is one caller's part of a batch.
type request struct {
	run   func(*tx) error
	taken atomic.Bool // by the writer, or by a caller who gave up
	done  chan error
}

// writer is the one goroutine of this process that writes. What queued while the last commit ran shares the next one;
// nothing waits for company. Leases go first, so that no load of claims can let them expire.
type writer struct {
	clock    *timekeeper
	connect  func() (*conn, error)
	patience time.Duration

	mu     sync.Mutex
	leases []*request
	calls  []*request
	closed bool
	wake   chan struct{}
	ended  chan struct{}

	c       *conn // nil after a failure: connected anew
	commit  func(*conn) error
	commits atomic.Int64
	waits   atomic.Int64 // times that another process had the lock
}

func newWriter(c *conn, clock *timekeeper, patience time.Duration, connect func() (*conn, error)) *writer {
	w := &writer{
		clock: clock, connect: connect, patience: patience, c: c,
		wake: make(chan struct{}, 1), ended: make(chan struct{}),
	}
	w.commit = func(c *conn) error { _, err := c.exec("COMMIT"); return err }
	go w.loop()
	return w
}

// do queues a request and waits for its commit. If ctx ends first, the error is no named refusal: perhaps applied.
func (w *writer) do(ctx context.Context, lease bool, run func(*tx) error) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("sqlite store: %w", err)
	}
	r := &request{run: run, done: make(chan error, 1)}
	if err := w.enqueue(r, lease); err != nil {
		return err
	}
	select {
	case err := <-r.done:
		return err
	case <-ctx.Done():
		if r.taken.CompareAndSwap(false, true) {
			return fmt.Errorf("sqlite store: not written: %w", ctx.Err())
		}
		return fmt.Errorf("sqlite store: perhaps written: %w", ctx.Err())
	}
}

func (w *writer) enqueue(r *request, lease bool) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return fmt.Errorf("sqlite store: %w", ErrClosed)
	}
	if lease {
		w.leases = append(w.leases, r)
	} else {
		w.calls = append(w.calls, r)
	}
	select {
	case w.wake <- struct{}{}:
	default:
	}
	return nil
}

// close lets what is queued be written, then ends the goroutine and its connection.
func (w *writer) close() {
	w.mu.Lock()
	w.closed = true
	w.mu.Unlock()
	select {
	case w.wake <- struct{}{}:
	default:
	}
	<-w.ended
}

func (w *writer) loop() {
	defer close(w.ended)
	for range w.wake {
		for {
			batch, closed := w.next()
			if len(batch) > 0 {
				w.run(batch)
				continue
			}
			if !closed {
				break
			}
			if w.c != nil {
				w.c.drop()
			}
			return
		}
	}
}

// next takes what has queued, leases first, and leaves out whose caller gave up.
func (w *writer) next() (batch []*request, closed bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, q := range []*[]*request{&w.leases, &w.calls} {
		n := min(len(*q), maxBatch-len(batch))
		for _, r := range (*q)[:n] {
			if r.taken.CompareAndSwap(false, true) {
				batch = append(batch, r)
			}
		}
		*q = append([]*request(nil), (*q)[n:]...)
	}
	return batch, w.closed && len(w.leases)+len(w.calls) == 0
}

// run writes a batch in one transaction. Refusals are told only after the commit: what they saw was perhaps written in
// the same batch.
func (w *writer) run(batch []*request) {
	results := make([]error, len(batch))
	if err := w.transact(batch, results); err != nil {
		for i := range results {
			results[i] = err
		}
	}
	for i, r := range batch {
		r.done <- results[i]
	}
}

// transact returns an error if it holds for the whole batch.
func (w *writer) transact(batch []*request, results []error) error {
	t, err := w.begin()
	if err != nil {
		w.rollback()
		return err
	}
	wrote := false
	for i, r := range batch {
		t.wrote = false
		err := r.run1(t, len(batch) > 1)
		if e, ok := errors.AsType[*brokenError](err); ok {
			w.rollback()
			return e
		}
		results[i] = err
		wrote = wrote || t.wrote && err == nil
	}
	if !wrote {
		w.rollback()
		return nil
	}
	if err := w.clock.seen(t.conn, t.now); err != nil {
		w.rollback()
		return fmt.Errorf("sqlite store: %w", err)
	}
	w.commits.Add(1)
	if err := w.commit(t.conn); err != nil {
		w.discard() // whether it was written, only the file knows
		return fmt.Errorf("sqlite store: commit, perhaps written: %w", err)
	}
	return nil
}

// begin gets the write lock of the file. It asks again every millisecond rather than through SQLite's own waiting, whose
// pauses grow to 100 ms: beside a busy process such a waiter would hardly ever meet a free moment.
func (w *writer) begin() (*tx, error) {
	if w.c == nil {
		c, err := w.connect()
		if err != nil {
			return nil, err
		}
		w.c = c
	}
	for start := time.Now(); ; {
		_, err := w.c.exec("BEGIN IMMEDIATE")
		if err == nil {
			break
		}
		if !busy(err) {
			return nil, fmt.Errorf("sqlite store: begin: %w", err)
		}
		if time.Since(start) > w.patience {
			return nil, fmt.Errorf("sqlite store: %w for %s", ErrBusy, w.patience)
		}
		w.waits.Add(1)
		time.Sleep(500*time.Microsecond + rand.N(500*time.Microsecond))
	}
	now, err := w.clock.now(w.c)
	if err != nil {
		return nil, err
	}
	return &tx{conn: w.c, now: now}, nil
}

// rollback undoes what is open. A connection that cannot even do that is given up, which undoes it too.
func (w *writer) rollback() {
	if w.c == nil {
		return
	}
	if _, err := w.c.exec("ROLLBACK"); err != nil {
		w.discard()
	}
}

func (w *writer) discard() {
	w.c.drop()
	w.c = nil
}

// brokenError says that the whole transaction is gone.
type brokenError struct{ err error }

func (e *brokenError) Error() string { return "sqlite store: transaction: " + e.err.Error() }

// run1 runs one request so that its failure undoes nothing of the others.
func (r *request) run1(t *tx, shared bool) error {
	if !shared {
		return r.run(t) // the whole transaction is rolled back
	}
	if _, err := t.exec("SAVEPOINT request"); err != nil {
		return &brokenError{err}
	}
	err := r.run(t)
	if err != nil {
		if _, err := t.exec("ROLLBACK TO request"); err != nil {
			return &brokenError{err} // SQLite has rolled back all (disk full, I/O error)
		}
	}
	if _, err := t.exec("RELEASE request"); err != nil {
		return &brokenError{err}
	}
	return err
}
