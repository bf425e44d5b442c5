package sqlite

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/fence-sidecar/fence-sidecar/claims"
)

// EffectTx is what a work has of the effect's transaction. Statements that begin or end one are refused, and so are settings
// and other files. It may be used only until the work returns. Where a statement fails in a way that ends the transaction (OR
// ROLLBACK, RAISE(ROLLBACK), a full disk), everything after it is refused and the effect fails, whatever the work returns.
type EffectTx struct {
	mu   sync.Mutex
	c    *conn // nil: over
	dead error // that the transaction has ended before the work
	open []*sql.Rows
}

// ErrEffectOver says that an EffectTx was used after its work had returned, or after its transaction had ended; nothing was
// done.
var ErrEffectOver = errors.New("the effect's work has returned, or its transaction has ended")

// end also closes what the work left open: the connection cannot be closed before.
func (t *EffectTx) end() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, rows := range t.open {
		rows.Close()
	}
	t.c, t.open = nil, nil
}

// Exec runs a statement without rows.
func (t *EffectTx) Exec(query string, args ...any) (sql.Result, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.allows(query); err != nil {
		return nil, err
	}
	result, err := t.c.sql.ExecContext(context.Background(), query, args...)
	if err != nil {
		t.lives()
	}
	return result, err
}

// Query runs a statement with rows.
func (t *EffectTx) Query(query string, args ...any) (*sql.Rows, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.allows(query); err != nil {
		return nil, err
	}
	rows, err := t.c.sql.QueryContext(context.Background(), query, args...)
	if err != nil {
		t.lives()
		return nil, err
	}
	t.open = append(t.open, rows)
	return rows, nil
}

// EffectRow is the answer of QueryRow.
type EffectRow struct {
	rows *sql.Rows
	err  error
}

// QueryRow runs a statement for at most one row; its error comes from Scan.
func (t *EffectTx) QueryRow(query string, args ...any) EffectRow {
	rows, err := t.Query(query, args...)
	return EffectRow{rows, err}
}

// Scan reads the row, as sql.Row does: sql.ErrNoRows where there is none.
func (r EffectRow) Scan(dest ...any) error {
	if r.err != nil {
		return r.err
	}
	defer r.rows.Close()
	if !r.rows.Next() {
		if err := r.rows.Err(); err != nil {
			return err
		}
		return sql.ErrNoRows
	}
	if err := r.rows.Scan(dest...); err != nil {
		return err
	}
	return r.rows.Close()
}

// forbidden are first words of statements that would end the transaction, or reach beyond it.
var forbidden = []string{"BEGIN", "COMMIT", "END", "ROLLBACK", "SAVEPOINT", "RELEASE", "PRAGMA", "ATTACH", "DETACH", "VACUUM"}

func (t *EffectTx) allows(query string) error {
	if t.c == nil {
		return ErrEffectOver
	}
	for verb := range verbs(query) {
		if slices.Contains(forbidden, verb) {
			return fmt.Errorf("%w: %s is not for an effect's work", claims.ErrBadEffect, verb)
		}
	}
	return t.lives() // also what rows failed of ends a transaction, and their errors are not seen here
}

// lives asks whether the transaction still stands: after it each statement would commit by itself, without the write lock. Within
// one SQLite refuses a BEGIN, and changes nothing; unlike a RELEASE it does so beside open rows of a writing statement too.
func (t *EffectTx) lives() error {
	if t.dead != nil {
		return t.dead
	}
	_, err := t.c.exec("BEGIN")
	if err != nil && strings.Contains(err.Error(), "within a transaction") {
		return nil
	}
	if err == nil {
		_, err = t.c.exec("ROLLBACK")
	}
	t.dead = errors.Join(ErrEffectOver, err)
	return t.dead
}
