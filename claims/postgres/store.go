// Package postgres keeps calls and leases in a schema of a PostgreSQL database (13 or later), for any number of sidecars.
//
// # Connections
//
// Nothing rests on a session: no prepared statements, no SET, no LISTEN, no session locks, no search_path, so that a
// transaction pooler (PgBouncer) may stand between. No connection is held outside of a method. Leases have connections of
// their own, which no load of claims can keep busy, and of which takes and releases use one: they may have to wait for an
// application's transaction, renewals never. A server that turns read-only, or is gone, loses all of its connections;
// several hosts in the URL are tried until one takes writes.
//
// A write is two round trips: begin, locks and the clock; then writes, the check that the leases still hold, commit. An
// error says whether it came before the commit was sent (not applied) or not (perhaps applied).
//
// # Durability
//
// A write is acknowledged after its commit is on the disk and, unless Config.MayLose, on every standby that the server
// waits for: synchronous_standby_names must then be a list of which each member confirms (one name, or as many as are
// listed; no *). Only such a list makes a failover provably lossless: "ANY 1 (a, b)" may promote the one that did not
// confirm. remote_write is refused with it, as the standby has not flushed what it confirms.
//
// The store remembers the server's (system id, timeline). Where another one answers, or one that has less than this
// process saw committed, a loss is noticed: a new era begins with a quarantine of the longest lease and a margin, and
// every token jumps by claims.TokenJump. A failover is no loss if the promoted server was one of the confirming standbys;
// to tell, the sidecar's role needs pg_read_all_settings (its name there is in primary_conninfo). A server that was
// promoted with that proof, as the only listed standby, serves without a standby until it has one again; the next failover
// before that is a loss. Nor is there a proof where the newest write is older than ten minutes: an old copy of a standby has
// its name too. With several listed standbys the new primary must list its own first (HA managers do).
//
// What this cannot see: a copy that is put back under processes that saw nothing committed since it was taken (each remembers the
// last record that it wrote, and looks for it in every transaction, renewals included); a standby that was taken off
// the list and promoted later, or two standbys with one name. Remove such standbys. All sidecars of a store must agree on
// MayLose.
//
// # Schema changes
//
// Migrate only goes forward, and expands before a later version contracts: an older sidecar goes on with a newer schema
// unless a migration marks that it cannot, a newer one refuses an older schema. So: migrate first, then roll.
package postgres

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fence-sidecar/fence-sidecar/claims"
)

// Config says which database a Store uses, and how.
type Config struct {
	// URL of the database, as libpq knows it; several hosts may be listed. Of session settings only application_name may
	// be there: a transaction pooler does not keep others.
	URL string
	// Schema that Migrate made; "": fence.
	Schema string
	// Connections is how many connections are used at most, 2 of them for leases alone; 0: 6, at least 3.
	Connections int
	// MaxLease is the longest lease that may be granted; 0: 1 h.
	MaxLease time.Duration
	// Margin is added to the longest lease for a quarantine (the drift that holders allow for); 0: 1 s.
	Margin time.Duration
	// MayLose accepts that a failover may lose acknowledged claims; every failover is a loss then.
	MayLose bool
	// Log gets what an operator must know: losses, promotions. nil: slog's default.
	Log *slog.Logger
	// Clock makes the store's time of the server's in tests; nil: both clocks are the server's.
	Clock func(server time.Time) claims.Now
}

const (
	minConnections   = 3
	leaseConnections = 2
)

func (c Config) filled() (Config, error) {
	if c.Schema == "" {
		c.Schema = "fence"
	}
	if c.Connections == 0 {
		c.Connections = 6
	}
	if c.Connections < minConnections {
		return c, &SettingError{"connections", fmt.Sprint(c.Connections), fmt.Sprintf("at least %d", minConnections)}
	}
	if c.MaxLease <= 0 {
		c.MaxLease = time.Hour
	}
	if c.Margin <= 0 {
		c.Margin = time.Second
	}
	if c.Log == nil {
		c.Log = slog.Default()
	}
	if c.Clock == nil {
		c.Clock = func(server time.Time) claims.Now { return claims.Now{Store: server, Wall: server} }
	}
	return c, nil
}

// Store is a claims.Backend on one schema.
type Store struct {
	cfg    Config
	schema schema
	realm  string
	keyset []byte
	leases *pgxpool.Pool
	calls  *pgxpool.Pool
	turn   chan struct{} // has one place, for whoever may wait for what is done under a lease: see onLease
	seen   seen
	closed atomic.Bool
	once   sync.Once
	resets struct {
		sync.Mutex
		last time.Time
	}
}

var _ claims.Backend = (*Store)(nil)

// ErrClosed says that the store was closed; nothing was written.
var ErrClosed = errors.New("the store is closed")

// Open opens a schema that Migrate made. Errors: *SchemaError, *SettingError, *GrantError, else those of the server and of
// the network.
func Open(ctx context.Context, cfg Config) (*Store, error) {
	cfg, err := cfg.filled()
	if err != nil {
		return nil, err
	}
	s := &Store{cfg: cfg, schema: schemaOf(cfg.Schema), turn: make(chan struct{}, 1)}
	if s.leases, err = s.pool(leaseConnections); err != nil {
		return nil, err
	}
	if s.calls, err = s.pool(cfg.Connections - leaseConnections); err != nil {
		s.leases.Close()
		return nil, err
	}
	if err := s.start(ctx); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// start checks the server and the schema, takes the server for the store's and reads its realm and key set.
func (s *Store) start(ctx context.Context) error {
	if err := s.inspect(ctx); err != nil {
		return err
	}
	if err := s.readKeys(ctx); err != nil {
		return err
	}
	return s.settle(ctx)
}

func (s *Store) readKeys(ctx context.Context) error {
	return s.read(ctx, s.calls, func(ctx context.Context, c *pgxpool.Conn) error {
		if err := c.QueryRow(ctx, s.schema.sql(`SELECT realm, secret FROM {schema}.store, {schema}.keys`)).Scan(&s.realm, &s.keyset); err != nil {
			return fmt.Errorf("realm and keys: %w", err)
		}
		return nil
	})
}

// Realm implements claims.Backend.
func (s *Store) Realm() string { return s.realm }

// Keyset implements claims.Backend.
func (s *Store) Keyset() []byte { return slices.Clone(s.keyset) }

// Close waits for the operations that run, then makes every later one fail with ErrClosed. It may be called again.
func (s *Store) Close() error {
	s.once.Do(func() {
		s.closed.Store(true)
		s.leases.Close()
		s.calls.Close()
	})
	return nil
}
