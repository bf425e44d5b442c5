package postgres

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fence-sidecar/fence-sidecar/claims"
)

// EffectsConfig says which store an application's effects belong to.
type EffectsConfig struct {
	// Schema that Migrate made; "": fence.
	Schema string
	// Realm of the store that the sidecar has, as `fence-sidecar store status` prints it. A lease of another store would say
	// nothing about this database.
	Realm string
}

// Database is the application's own: a *pgxpool.Pool, or a *pgx.Conn that one goroutine uses.
type Database interface {
	Begin(ctx context.Context) (pgx.Tx, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// Effects runs fenced effects over the application's own connections, with its own role: it needs no more than the functions of
// the schema, which any other language may call as well.
type Effects struct {
	db      Database
	schema  schema
	flights claims.EffectFlights
}

// Work writes the application's rows in tx and returns what a repeat gets. An error or a panic rolls it back.
type Work func(ctx context.Context, tx pgx.Tx) (result []byte, err error)

// OpenEffects looks whether the database is the sidecar's store. claims.ErrEffectBackend: it is another one, is not migrated, or
// lets this role call no function; ErrReadOnly: it is a standby; else the error of the server or of the network.
func OpenEffects(ctx context.Context, db Database, cfg EffectsConfig) (*Effects, error) {
	if cfg.Schema == "" {
		cfg.Schema = "fence"
	}
	f := &Effects{db: db, schema: schemaOf(cfg.Schema)}
	if cfg.Realm == "" {
		return nil, fmt.Errorf("%w: give the realm that `fence-sidecar store status` prints", claims.ErrEffectBackend)
	}
	var realm string
	var most int64
	var readOnly bool
	err := db.QueryRow(ctx, f.schema.sql(`SELECT realm, max_result, read_only FROM {schema}.effects_store()`)).Scan(&realm, &most, &readOnly)
	e, _ := errors.AsType[*pgconn.PgError](err)
	switch {
	case e != nil && (e.Code == "3F000" || e.Code == "42883"): // no such schema, no such function
		return nil, fmt.Errorf("%w: %w", claims.ErrEffectBackend, &SchemaError{Schema: cfg.Schema, Reason: "it has no fenced effects"})
	case e != nil && e.Code == "42501":
		return nil, fmt.Errorf("%w: this role may not use schema %s: name it as store.appRole and run `fence-sidecar store migrate` (%s)",
			claims.ErrEffectBackend, cfg.Schema, e.Message)
	case errors.Is(err, pgx.ErrNoRows):
		return nil, fmt.Errorf("%w: %w", claims.ErrEffectBackend, &SchemaError{Schema: cfg.Schema, Reason: "it has no realm"})
	case err != nil:
		return nil, fmt.Errorf("effects: %w", err)
	case realm != cfg.Realm:
		return nil, fmt.Errorf("%w: schema %s has realm %s, the sidecar's is %s: effects need the very database that the sidecar's store is in",
			claims.ErrEffectBackend, cfg.Schema, realm, cfg.Realm)
	case readOnly:
		return nil, fmt.Errorf("effects: %w", ErrReadOnly)
	}
	return f, nil
}

// Check asks whether a lease is live, for a look ahead: the effect itself asks again. Errors: as Do's.
func (f *Effects) Check(ctx context.Context, g claims.Guard, tenant string) error {
	if err := claims.CheckEffectGuard(g, tenant); err != nil {
		return err
	}
	var left int64
	err := f.db.QueryRow(ctx, f.schema.sql(`SELECT {schema}.check_token($1, $2)`), g.String(), tenant).Scan(&left)
	return refusal(claims.Effect{Guard: g, Tenant: tenant}, err)
}

// Once runs an effect within the application's transaction: its rows and the result are committed by the application, or not.
// replayed: it has happened already, result is that of then, work did not run. After an error, and after a panic of work, the
// transaction is as it was before. Other sessions that want the effect meanwhile wait until the transaction ends. The commit is
// refused if the lease has run out by then: Explain says so.
//
// It should be the first thing that the transaction does: one that holds rows and then waits for an effect invites a deadlock.
func (f *Effects) Once(ctx context.Context, tx pgx.Tx, e claims.Effect, work Work) (result []byte, replayed bool, err error) {
	if err := begins(ctx, e); err != nil {
		return nil, false, err
	}
	inner, err := tx.Begin(ctx)
	if err != nil {
		return nil, false, refusal(e, err)
	}
	defer rollback(ctx, inner)
	if result, replayed, err = f.run(ctx, inner, e, work); err != nil {
		return nil, false, err
	}
	if err := inner.Commit(ctx); err != nil {
		return nil, false, refusal(e, err)
	}
	return result, replayed, nil
}

// Do runs an effect in a transaction of its own, and commits it. Callers of one effect in this process wait for the first; each is
// judged by its own lease. claims.ErrEffectPerhaps: the commit's answer was lost. Any other error: nothing of it is written.
func (f *Effects) Do(ctx context.Context, e claims.Effect, work Work) (result []byte, replayed bool, err error) {
	if err := begins(ctx, e); err != nil {
		return nil, false, err
	}
	check := func() error { return f.Check(ctx, e.Guard, e.Tenant) }
	err = f.flights.Do(ctx, e, check, func() (err error) {
		result, replayed, err = f.transact(ctx, e, work)
		return err
	})
	return result, replayed, err
}

func begins(ctx context.Context, e claims.Effect) error {
	if claims.InEffect(ctx) {
		return fmt.Errorf("effect %s: %w", e, claims.ErrEffectNested)
	}
	return e.Check()
}

func (f *Effects) transact(ctx context.Context, e claims.Effect, work Work) ([]byte, bool, error) {
	tx, err := f.db.Begin(ctx)
	if err != nil {
		return nil, false, refusal(e, err)
	}
	defer rollback(ctx, tx)
	result, replayed, err := f.run(ctx, tx, e, work)
	if err != nil {
		return nil, false, err
	}
	if err := f.Explain(e, tx.Commit(ctx)); err != nil {
		return nil, false, err
	}
	return result, replayed, nil
}

// run begins, works and ends. It neither commits nor rolls back.
func (f *Effects) run(ctx context.Context, tx pgx.Tx, e claims.Effect, work Work) (result []byte, replayed bool, err error) {
	err = tx.QueryRow(ctx, f.schema.sql(`SELECT replayed, result FROM {schema}.begin_effect($1, $2, $3, $4, $5)`),
		e.Guard.String(), e.Tenant, e.Name, e.Key, e.Fingerprint).Scan(&replayed, &result)
	if err != nil || replayed {
		return result, replayed, refusal(e, err)
	}
	if result, err = work(claims.WithinEffect(ctx), tx); err != nil {
		return nil, false, err
	}
	_, err = tx.Exec(ctx, f.schema.sql(`SELECT {schema}.end_effect($1, $2, $3, $4)`), e.Tenant, e.Name, e.Key, result)
	return result, false, refusal(e, err)
}

// rollback is one that may come after a commit, which it does nothing to.
func rollback(ctx context.Context, tx pgx.Tx) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	tx.Rollback(ctx) //nolint:errcheck // a connection on which it fails is closed, and the server rolls back
}

// Explain says what the error of the COMMIT of a transaction with an effect means: a refusal, or claims.ErrEffectPerhaps;
// the latter also where it had ended before, as nobody knows how.
func (f *Effects) Explain(e claims.Effect, err error) error {
	if err == nil || errors.Is(err, pgx.ErrTxCommitRollback) {
		return refusal(e, err)
	}
	if pe, ok := errors.AsType[*pgconn.PgError](err); ok {
		for _, class := range []string{"FS", "40", "23"} { // refused, serialization, constraints: rolled back
			if strings.HasPrefix(pe.Code, class) {
				return refusal(e, err)
			}
		}
	}
	return fmt.Errorf("effect %s: %w: %w", e, claims.ErrEffectPerhaps, err)
}

// refusals are the SQLSTATEs of the functions.
var refusals = map[string]error{
	"FS101": claims.ErrBadEffect, "FS102": claims.ErrBadEffect, "FS109": claims.ErrEffectServer, "FS110": claims.ErrEffectConflict,
	"FS111": claims.ErrEffectOversize, "FS112": claims.ErrEffectNested, "FS113": claims.ErrEffectOpen, "FS114": claims.ErrEffectOpen,
}

var fencedBy = map[string]claims.LeaseStatus{
	"FS103": claims.LeaseAbsent, "FS104": claims.LeaseExpired, "FS105": claims.LeaseSuperseded, "FS106": claims.LeaseReleased,
	"FS107": claims.LeaseFinished,
}

// refusal is err in this package's words.
func refusal(e claims.Effect, err error) error {
	if err == nil {
		return nil
	}
	pe, ok := errors.AsType[*pgconn.PgError](err)
	if !ok {
		return fmt.Errorf("effect %s: not applied: %w", e, err)
	}
	if status, ok := fencedBy[pe.Code]; ok {
		return fmt.Errorf("effect %s: %w", e, &claims.FencedError{Guard: e.Guard, Status: status})
	}
	if pe.Code == "FS108" {
		var ms int64
		fmt.Sscanf(pe.Detail, "%d ms left", &ms) //nolint:errcheck // 0: the time is not known
		return fmt.Errorf("effect %s: %w", e, &claims.QuarantineError{Left: time.Duration(ms) * time.Millisecond})
	}
	if pe.Code == "25006" {
		return fmt.Errorf("effect %s: not applied: %w (%s)", e, ErrReadOnly, pe.Message)
	}
	if known := refusals[pe.Code]; known != nil {
		return fmt.Errorf("effect %s: %w (%s)", e, known, pe.Message)
	}
	return fmt.Errorf("effect %s: not applied: %w", e, err)
}

// PruneEffects forgets at most limit effects that happened before a time of the server's clock, the oldest first; a repeat of
// such a one runs its work again. It returns how many.
func (s *Store) PruneEffects(ctx context.Context, before time.Time, limit int) (int, error) {
	return s.batches(ctx, limit, func(t *tx, n int) (int, error) {
		// by ctid: rows are deleted in the order in which they lie, so that two sweepers do not deadlock
		tag, err := t.conn.Exec(t.ctx, s.schema.sql(`DELETE FROM {schema}.effects WHERE ended AND created < $1 AND ctid = ANY (ARRAY(
			SELECT ctid FROM {schema}.effects WHERE ended AND created < $1 ORDER BY created LIMIT $2))`), before.UnixNano(), n)
		if err != nil {
			return 0, fmt.Errorf("postgres store: prune: effects: %w", err)
		}
		if tag.RowsAffected() > 0 {
			t.change(message)
		}
		return int(tag.RowsAffected()), nil
	})
}
