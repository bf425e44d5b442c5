// Package sqlite keeps calls and leases in one SQLite file on a local disk, for one machine: any number of processes may
// share the file.
//
// Every write is acknowledged only after its commit is on the disk (write-ahead log, synchronous=FULL). Writes of a
// process queue in it and share commits; between processes SQLite's own write lock decides.
//
// The store's time counts CLOCK_BOOTTIME, which no step of the wall clock moves. It stands still between boots: the first
// process after a reboot goes on where the file stopped, and waits until the leases of before have surely run out.
//
// The file must be on a local file system (ext2/3/4, xfs, btrfs, zfs, overlayfs). On other systems than Linux the file
// system is not checked, only one process at a time can use the file, and each start waits for the leases of the one
// before. The file holds the store's own key set: it is made readable for its owner only.
package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/fence-sidecar/fence-sidecar/claims"
)

// Config says which file a Store uses, and how.
type Config struct {
	// Path of the database file; Migrate makes it.
	Path string
	// BusyTimeout is how long a write waits for other processes; 0: 5 s.
	BusyTimeout time.Duration
	// Margin is added to a lease's time before a store of another boot is adopted (the drift that holders allow for);
	// 0: 1 s.
	Margin time.Duration
	// Readers is how many reads run at once; 0: 4.
	Readers int
	// Pragmas are further settings of SQLite for each connection, such as cache_size. One that breaks a guarantee is a
	// *SettingError.
	Pragmas map[string]string
	// AllowTmpfs lets the file be on a tmpfs, for tests: a reboot loses it, and with it what was charged.
	AllowTmpfs bool
	// Clock replaces the machine's clocks in tests.
	Clock Clock

	magic func(path string) (int64, error) // of the file system; nil: statfs(2)
}

func (c Config) filled() Config {
	if c.BusyTimeout <= 0 {
		c.BusyTimeout = 5 * time.Second
	}
	if c.Margin <= 0 {
		c.Margin = time.Second
	}
	if c.Readers <= 0 {
		c.Readers = 4
	}
	c.Clock = c.Clock.filled()
	return c
}

// Store is a claims.Backend on one file.
type Store struct {
	cfg     Config
	db      *sql.DB
	clock   *timekeeper
	realm   string
	keyset  []byte
	writer  *writer
	readers chan *conn // nil where one has to be connected
	closing chan struct{}
	once    sync.Once
}

var _ claims.Backend = (*Store)(nil)

// Open opens a file that Migrate made. Errors: *SchemaError, *SettingError, *LeasesYoungError (try again after its
// Wait), else those of the file and of SQLite.
func Open(ctx context.Context, cfg Config) (*Store, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	cfg = cfg.filled()
	path, err := resolve(cfg.Path)
	if err != nil {
		return nil, err
	}
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
		return nil, &SchemaError{Path: path, Reason: "there is no such file"}
	}
	if err := checkFS(path, cfg.magic, cfg.AllowTmpfs); err != nil {
		return nil, err
	}
	cfg.Path = path
	identity, err := cfg.Clock.Identity()
	if err != nil {
		return nil, err
	}
	s := &Store{cfg: cfg, clock: &timekeeper{Clock: cfg.Clock, identity: identity}, closing: make(chan struct{})}
	if s.db, err = pool(path); err != nil {
		return nil, err
	}
	if err := s.start(); err != nil {
		s.db.Close()
		return nil, err
	}
	return s, nil
}

// start checks the file and takes it into use.
func (s *Store) start() error {
	if err := checkSchema(s.db, s.cfg.Path); err != nil {
		return err
	}
	c, err := s.connectWriter()
	if err != nil {
		return err
	}
	if err := s.prepare(c); err != nil {
		c.drop()
		return err
	}
	s.writer = newWriter(c, s.clock, s.cfg.BusyTimeout, s.connectWriter)
	s.readers = make(chan *conn, s.cfg.Readers)
	for range s.cfg.Readers {
		s.readers <- nil
	}
	return nil
}

// connectWriter does not let SQLite wait for locks: writer.begin does.
func (s *Store) connectWriter() (*conn, error) { return connect(s.db, 0, s.cfg.Pragmas, false) }

// prepare makes the store's clock this process's, and reads its realm and key set.
func (s *Store) prepare(c *conn) error {
	err := locked(c, s.cfg.BusyTimeout, func() error { return s.clock.adopt(c, s.cfg.Margin) })
	if err != nil {
		return err
	}
	return s.readKeys(c)
}

func (s *Store) readKeys(c *conn) error {
	if err := c.row(`SELECT realm, secret FROM store, keys`).Scan(&s.realm, &s.keyset); err != nil {
		return fmt.Errorf("sqlite store: realm and keys: %w", err)
	}
	return nil
}

// Realm implements claims.Backend.
func (s *Store) Realm() string { return s.realm }

// Keyset implements claims.Backend.
func (s *Store) Keyset() []byte { return slices.Clone(s.keyset) }

// read runs f in a read transaction: one snapshot, at the store's time.
func (s *Store) read(ctx context.Context, f func(*tx) error) error {
	if err := ctx.Err(); err != nil {
		return fmt.Errorf("sqlite store: %w", err)
	}
	var c *conn
	select {
	case <-s.closing:
		return fmt.Errorf("sqlite store: %w", ErrClosed)
	default:
	}
	select {
	case c = <-s.readers:
	case <-ctx.Done():
		return fmt.Errorf("sqlite store: %w", ctx.Err())
	case <-s.closing:
		return fmt.Errorf("sqlite store: %w", ErrClosed)
	}
	c, err := s.snapshot(c, f)
	s.readers <- c
	return err
}

// snapshot returns the connection if it can be used again.
func (s *Store) snapshot(c *conn, f func(*tx) error) (*conn, error) {
	if c == nil {
		fresh, err := connect(s.db, s.cfg.BusyTimeout, s.cfg.Pragmas, true)
		if err != nil {
			return nil, err
		}
		c = fresh
	}
	_, err := c.exec("BEGIN")
	if err == nil {
		var now claims.Now
		if now, err = s.clock.now(c); err == nil { // this first read fixes the snapshot
			err = f(&tx{conn: c, now: now})
		}
	}
	if _, e := c.exec("ROLLBACK"); e != nil {
		c.drop()
		return nil, errors.Join(err, e)
	}
	return c, err
}

// Close lets queued writes end, then makes every later operation fail with ErrClosed. It may be called again.
func (s *Store) Close() error {
	var err error
	s.once.Do(func() {
		close(s.closing)
		s.writer.close()
		for range s.cfg.Readers {
			if c := <-s.readers; c != nil {
				c.drop()
			}
		}
		err = s.db.Close()
	})
	return err
}
