package sqlite

import (
	"bytes"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/fence-sidecar/fence-sidecar/claims"
)

// EffectsConfig says how effects run.
type EffectsConfig struct {
	// Realm of the store that the sidecar has, as `fence-sidecar store status` prints it. A lease of another store would say
	// nothing about this file.
	Realm string
	// MaxResult is how large a result may be, in bytes; 0: claims.EffectResultLimit.
	MaxResult int
}

// Effects runs fenced effects on rows of the application's own tables in the store's file.
//
// One runs at a time, and while its work runs nobody else writes to the file, no renewal of a lease either: a work does its
// statements and nothing else. It has no way to wait for others.
type Effects struct {
	store   *Store
	cfg     EffectsConfig
	flights claims.EffectFlights
	turn    chan *effectConn // of the one connection
}

// Work writes the application's rows and returns what a repeat gets. An error or a panic rolls it back. tx ends with it.
type Work func(ctx context.Context, tx *EffectTx) (result []byte, err error)

// NewEffects runs effects on an open store; they end with it. claims.ErrEffectBackend: it has another realm.
func NewEffects(s *Store, cfg EffectsConfig) (*Effects, error) {
	switch realm := s.Realm(); {
	case cfg.Realm == "":
		return nil, fmt.Errorf("%w: give the realm that `fence-sidecar store status` prints", claims.ErrEffectBackend)
	case cfg.Realm != realm:
		return nil, fmt.Errorf("%w: %s has realm %s, the sidecar's is %s: effects need the very file that the sidecar's store is in",
			claims.ErrEffectBackend, s.cfg.Path, realm, cfg.Realm)
	}
	if cfg.MaxResult == 0 {
		cfg.MaxResult = claims.EffectResultLimit
	}
	f := &Effects{store: s, cfg: cfg, turn: make(chan *effectConn, 1)}
	f.turn <- &effectConn{}
	go func() {
		<-s.closing
		if c := <-f.turn; c.conn != nil { // and no more turns
			c.drop()
		}
	}()
	return f, nil
}

// Check asks whether a lease is live, for a look ahead: the effect itself asks again. Errors: as Do's.
func (f *Effects) Check(ctx context.Context, g claims.Guard, tenant string) error {
	if err := claims.CheckEffectGuard(g, tenant); err != nil {
		return err
	}
	return f.store.read(ctx, func(t *tx) error { return t.live(g) })
}

func (t *tx) live(g claims.Guard) error {
	_, err := t.mine(g)
	return err
}

// Do runs an effect and commits it. replayed: it has happened already, result is that of then, work did not run. Callers of one
// effect in this process wait for the first; each is judged by its own lease. claims.ErrEffectPerhaps: the commit failed half
// way. Any other error: nothing of it is written.
func (f *Effects) Do(ctx context.Context, e claims.Effect, work Work) (result []byte, replayed bool, err error) {
	if claims.InEffect(ctx) {
		return nil, false, fmt.Errorf("effect %s: %w", e, claims.ErrEffectNested)
	}
	if err := e.Check(); err != nil {
		return nil, false, err
	}
	check := func() error { return f.Check(ctx, e.Guard, e.Tenant) }
	err = f.flights.Do(ctx, e, check, func() (err error) {
		result, replayed, err = f.transact(ctx, e, work)
		return err
	})
	if err != nil {
		return nil, false, fmt.Errorf("effect %s: %w", e, err)
	}
	return result, replayed, nil
}

// effectConn is the connection that effects use; no conn: connected anew.
type effectConn struct{ *conn }

// transact waits for its turn, so that no work finds another's transaction open.
func (f *Effects) transact(ctx context.Context, e claims.Effect, work Work) ([]byte, bool, error) {
	var c *effectConn
	patience := time.NewTimer(f.store.cfg.BusyTimeout) // an effect within an effect would wait for itself
	defer patience.Stop()
	select {
	case c = <-f.turn:
	case <-f.store.closing:
		return nil, false, fmt.Errorf("sqlite store: %w", ErrClosed)
	case <-ctx.Done():
		return nil, false, fmt.Errorf("not begun: %w", ctx.Err())
	case <-patience.C:
		return nil, false, fmt.Errorf("%w: effects waited %s for one another", ErrBusy, f.store.cfg.BusyTimeout)
	}
	defer func() { f.turn <- c }()
	clean := false
	defer func() {
		if !clean && c.conn != nil { // also if work panics: SQLite rolls back
			c.drop()
			c.conn = nil
		}
	}()
	if err := f.begin(ctx, c); err != nil {
		return nil, false, err
	}
	result, replayed, err := f.run(ctx, c.conn, e, work)
	if err != nil {
		if _, e := c.exec("ROLLBACK"); e == nil {
			clean = true
		}
		return nil, false, err
	}
	if _, err := c.exec("COMMIT"); constraint(err) { // a deferred one of the application's: the transaction stands as it was
		if _, e := c.exec("ROLLBACK"); e == nil {
			clean = true
		}
		return nil, false, fmt.Errorf("not committed: %w", err)
	} else if err != nil {
		return nil, false, fmt.Errorf("%w: %w", claims.ErrEffectPerhaps, err)
	}
	clean = true
	return result, replayed, nil
}

// begin gets the write lock, as writer.begin does.
func (f *Effects) begin(ctx context.Context, c *effectConn) error {
	select {
	case <-f.store.closing:
		return fmt.Errorf("sqlite store: %w", ErrClosed)
	default:
	}
	if c.conn == nil {
		fresh, err := connect(f.store.db, 0, f.store.cfg.Pragmas, false)
		if err != nil {
			return err
		}
		c.conn = fresh
		if err := fresh.script("PRAGMA foreign_keys = ON"); err != nil { // what keeps an open effect from being committed
			return err
		}
	}
	for start := time.Now(); ; {
		_, err := c.exec("BEGIN IMMEDIATE")
		switch {
		case err == nil:
			return nil
		case !busy(err):
			return fmt.Errorf("begin: %w", err)
		case ctx.Err() != nil:
			return fmt.Errorf("not begun: %w", ctx.Err())
		case time.Since(start) > f.store.cfg.BusyTimeout:
			return fmt.Errorf("%w for %s", ErrBusy, f.store.cfg.BusyTimeout)
		}
		time.Sleep(500*time.Microsecond + rand.N(500*time.Microsecond))
	}
}

// run is the whole of an effect within its transaction: lease, mark, key, work, lease.
func (f *Effects) run(ctx context.Context, c *conn, e claims.Effect, work Work) (result []byte, replayed bool, err error) {
	now, err := f.store.clock.now(c)
	if err != nil {
		return nil, false, err
	}
	t := &tx{conn: c, now: now}
	if err := t.live(e.Guard); err != nil {
		return nil, false, err
	}
	if err := t.mark(e.Guard); err != nil {
		return nil, false, err
	}
	if result, replayed, err = t.find(e); err != nil || replayed {
		return result, replayed, errors.Join(err, f.store.clock.seen(c, now))
	}
	err = t.change(`INSERT INTO effects (tenant, name, effect_key, fingerprint, scope, token, created_store, open)
		VALUES (?, ?, ?, ?, ?, ?, ?, 1)`, []byte(e.Tenant), []byte(e.Name), []byte(e.Key), e.Fingerprint, e.Guard.Scope,
		int64(e.Guard.Token), now.Store.UnixNano())
	if err != nil {
		return nil, false, err
	}
	if result, err = f.work(ctx, c, work); err != nil {
		return nil, false, err
	}
	if len(result) > f.cfg.MaxResult {
		return nil, false, fmt.Errorf("%w: %d bytes, at most %d are kept", claims.ErrEffectOversize, len(result), f.cfg.MaxResult)
	}
	if t.now, err = f.store.clock.now(c); err != nil {
		return nil, false, err
	}
	if err := t.live(e.Guard); err != nil {
		return nil, false, err
	}
	err = t.change(`UPDATE effects SET result = ?, open = NULL WHERE tenant = ? AND name = ? AND effect_key = ?`,
		blob(result), []byte(e.Tenant), []byte(e.Name), []byte(e.Key))
	return result, false, errors.Join(err, f.store.clock.seen(c, t.now))
}

// blob keeps nil and empty apart: the driver makes both NULL.
func blob(b []byte) any {
	if b == nil {
		return nil
	}
	return b
}

// mark refuses a token below the highest that came, and takes in a higher one.
func (t *tx) mark(g claims.Guard) error {
	var mark int64
	err := t.row(`SELECT token FROM effect_marks WHERE scope = ?`, g.Scope).Scan(&mark)
	switch {
	case err != nil && !errors.Is(err, sql.ErrNoRows):
		return err
	case uint64(mark) > g.Token:
		return &claims.FencedError{Guard: g, Status: claims.LeaseSuperseded}
	case uint64(mark) == g.Token:
		return nil
	}
	return t.change(`INSERT INTO effect_marks (scope, token) VALUES (?, ?)
		ON CONFLICT (scope) DO UPDATE SET token = excluded.token`, g.Scope, int64(g.Token))
}

// find is the result of an effect that has happened.
func (t *tx) find(e claims.Effect) (result []byte, found bool, err error) {
	var fingerprint []byte
	var none bool
	err = t.row(`SELECT fingerprint, result, result IS NULL FROM effects WHERE tenant = ? AND name = ? AND effect_key = ?`,
		[]byte(e.Tenant), []byte(e.Name), []byte(e.Key)).Scan(&fingerprint, &result, &none)
	switch {
	case errors.Is(err, sql.ErrNoRows):
		return nil, false, nil
	case err != nil:
		return nil, false, err
	case !bytes.Equal(fingerprint, e.Fingerprint):
		return nil, false, claims.ErrEffectConflict
	case !none && result == nil:
		result = []byte{}
	}
	return result, true, nil
}

// errEndedByWork says that the transaction ended within the work, which a failed statement can do.
var errEndedByWork = errors.New("a statement of the work ended the effect's transaction: nothing of it is written")

// work runs the application's part.
func (f *Effects) work(ctx context.Context, c *conn, work Work) ([]byte, error) {
	if err := c.script("SAVEPOINT effect"); err != nil {
		return nil, err
	}
	tx := &EffectTx{c: c}
	defer tx.end()
	result, err := work(claims.WithinEffect(ctx), tx)
	if err != nil {
		return nil, err
	}
	tx.end()
	if err := c.script("RELEASE effect"); err != nil {
		return nil, errors.Join(errEndedByWork, err)
	}
	return result, nil
}

// PruneEffects forgets at most limit effects that happened before a store time, the oldest first; a repeat of such a one runs its
// work again. It returns how many.
func (s *Store) PruneEffects(ctx context.Context, before time.Time, limit int) (int, error) {
	n := int64(0)
	err := s.writer.do(ctx, false, func(t *tx) error {
		t.wrote = true
		gone, err := t.exec(`DELETE FROM effects WHERE rowid IN (SELECT rowid FROM effects WHERE created_store < ?
			ORDER BY created_store LIMIT ?)`, before.UnixNano(), limit)
		if err != nil {
			return fmt.Errorf("sqlite store: prune: effects: %w", err)
		}
		n, err = gone.RowsAffected()
		return err
	})
	if err != nil {
		return 0, err
	}
	return int(n), nil
}
