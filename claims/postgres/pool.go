package postgres

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	dialTimeout = 2 * time.Second  // to one host, where the URL has no connect_timeout
	pingTimeout = time.Second      // of a connection that was idle
	patience    = 6 * time.Second  // for one operation, the wait for a connection included
	longer      = 60 * time.Second // for taking over another server
)

// syncWait marks a connection on which a commit was told not to wait for its standbys any longer.
const syncWait = "commit not confirmed"

// connConfig is how each connection is made.
func connConfig(url string) (*pgxpool.Config, error) {
	cfg, err := parseURL(url)
	if err != nil {
		return nil, err
	}
	cc := cfg.ConnConfig
	if cc.ConnectTimeout == 0 {
		cc.ConnectTimeout = dialTimeout
	}
	dialer := &net.Dialer{
		Timeout:         cc.ConnectTimeout,
		KeepAliveConfig: net.KeepAliveConfig{Enable: true, Idle: 5 * time.Second, Interval: 2 * time.Second, Count: 3},
	}
	cc.DialFunc = dialer.DialContext
	cc.DefaultQueryExecMode = pgx.QueryExecModeExec
	cc.StatementCacheCapacity, cc.DescriptionCacheCapacity = 0, 0
	cc.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsReadWrite
	cc.OnNotice = func(c *pgconn.PgConn, n *pgconn.Notice) {
		if n.Routine == "SyncRepWaitForLSN" { // the message is in the server's language
			c.CustomData()[syncWait] = true
		}
	}
	return cfg, nil
}

func (s *Store) pool(size int) (*pgxpool.Pool, error) {
	cfg, err := connConfig(s.cfg.URL)
	if err != nil {
		return nil, err
	}
	cfg.ConnConfig.ValidateConnect = s.current
	cfg.MaxConns, cfg.MinConns = int32(size), 0
	cfg.MaxConnIdleTime = 5 * time.Minute
	cfg.PingTimeout = pingTimeout
	cfg.BeforeClose = func(c *pgx.Conn) {
		if c.IsClosed() { // not by us: the server or the way there is gone, and so are the other connections
			s.reset()
		}
	}
	p, err := pgxpool.NewWithConfig(context.Background(), cfg)
	if err != nil {
		return nil, fmt.Errorf("postgres store: %w", err)
	}
	return p, nil
}

// current lets only a server pass that takes writes and is not of before a promotion that was seen; else the next host of the
// URL is tried.
func (s *Store) current(ctx context.Context, c *pgconn.PgConn) error {
	if err := pgconn.ValidateConnectTargetSessionAttrsReadWrite(ctx, c); err != nil {
		return err
	}
	seen := s.seen.load()
	if seen.server == (identity{}) {
		return nil
	}
	results, err := c.Exec(ctx, `SELECT system_identifier::text, left(pg_walfile_name(pg_current_wal_lsn()), 8) FROM pg_control_system()`).ReadAll()
	if err != nil || len(results) != 1 || len(results[0].Rows) != 1 {
		return fmt.Errorf("which server it is: %w", errors.Join(err, ErrReadOnly))
	}
	row := results[0].Rows[0]
	var h header
	h.server.system = string(row[0])
	if h.server.timeline, err = strconv.ParseInt(string(row[1]), 16, 64); err != nil {
		return err
	}
	if seen.outdates(&h) {
		return errOutdated
	}
	return nil
}

// acquire waits for a connection; the returned context bounds the whole operation.
func (s *Store) acquire(ctx context.Context, p *pgxpool.Pool, bound time.Duration) (context.Context, *pgxpool.Conn, func(), error) {
	if s.closed.Load() {
		return nil, nil, nil, fmt.Errorf("postgres store: not applied: %w", ErrClosed)
	}
	if err := ctx.Err(); err != nil {
		return nil, nil, nil, fmt.Errorf("postgres store: not applied: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, bound)
	c, err := p.Acquire(ctx)
	if err != nil {
		cancel()
		if s.closed.Load() {
			err = errors.Join(ErrClosed, err)
		}
		return nil, nil, nil, fmt.Errorf("postgres store: not applied: no connection: %w", err)
	}
	return ctx, c, func() {
		c.Release() // one within a transaction is closed by the pool
		cancel()
	}, nil
}

// read runs single statements, once more where the connection turns out to be gone.
func (s *Store) read(ctx context.Context, p *pgxpool.Pool, f func(context.Context, *pgxpool.Conn) error) error {
	gone, err := s.readOnce(ctx, p, f)
	if gone && ctx.Err() == nil {
		_, err = s.readOnce(ctx, p, f)
	}
	return err
}

func (s *Store) readOnce(ctx context.Context, p *pgxpool.Pool, f func(context.Context, *pgxpool.Conn) error) (gone bool, err error) {
	ctx, c, release, err := s.acquire(ctx, p, patience)
	if err != nil {
		return false, err
	}
	defer release()
	if err := f(ctx, c); err != nil {
		s.drop(c, err)
		return c.Conn().IsClosed() && ctx.Err() == nil, fmt.Errorf("postgres store: %w", err)
	}
	return false, nil
}

// Unavailable reports whether an error of Open may go away by waiting: the server does not answer, is starting, read-only
// or full. What only an operator can change (a setting, the schema, a privilege, a password, a certificate) is none of these.
func Unavailable(err error) bool {
	if errors.Is(err, ErrSetting) || errors.Is(err, ErrSchema) || errors.Is(err, ErrClosed) {
		return false
	}
	if mistakenTLS(err) {
		return false
	}
	if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		transient := []string{"53300", "55P03", "57014", "40P01"} // too many connections, timeouts, deadlock
		return broken(err) || slices.Contains(transient, e.Code)
	}
	if _, ok := errors.AsType[*pgconn.ConnectError](err); ok || errors.Is(err, context.DeadlineExceeded) {
		return true
	}
	return broken(err)
}

// ErrReadOnly says that the server does not take writes: it is a standby, or was set read-only.
var ErrReadOnly = errors.New("the server is read-only")

// broken reports whether err speaks of the server or the network rather than of the statement.
func broken(err error) bool {
	if errors.Is(err, ErrReadOnly) || errors.Is(err, errOutdated) {
		return true
	}
	if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		return strings.HasPrefix(e.Code, "08") || slices.Contains([]string{"25006", "57P01", "57P02", "57P03"}, e.Code)
	}
	if errors.Is(err, context.Canceled) {
		return false // the caller's
	}
	_, ok := errors.AsType[net.Error](err)
	return ok || pgconn.SafeToRetry(err) || errors.Is(err, net.ErrClosed)
}

// drop gives up the connection if it is broken, and with it all others: they lead to the same server.
func (s *Store) drop(c *pgxpool.Conn, err error) {
	gone := c.Conn().IsClosed() && !errors.Is(err, context.Canceled)
	if !gone && !broken(err) {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	c.Conn().Close(ctx) //nolint:errcheck // it is given up
	s.reset()
}

// reset lets every connection that is idle, or comes back, be made anew; at most once a second.
func (s *Store) reset() {
	s.resets.Lock()
	defer s.resets.Unlock()
	if time.Since(s.resets.last) < time.Second {
		return
	}
	s.resets.last = time.Now()
	for _, p := range []*pgxpool.Pool{s.leases, s.calls} {
		if p != nil {
			p.Reset()
		}
	}
}
