package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"

	driverpkg "modernc.org/sqlite"
)

// conn is one pinned connection with its prepared statements. It belongs to one goroutine at a time.
//
// Statements run without a context: a cancelled statement would leave it open what was written.
type conn struct {
	sql   *sql.Conn
	stmts map[string]*sql.Stmt
}

func (c *conn) stmt(query string) (*sql.Stmt, error) {
	if s, ok := c.stmts[query]; ok {
		return s, nil
	}
	s, err := c.sql.PrepareContext(context.Background(), query)
	if err == nil {
		c.stmts[query] = s
	}
	return s, err
}

func (c *conn) exec(query string, args ...any) (sql.Result, error) {
	s, err := c.stmt(query)
	if err != nil {
		return nil, err
	}
	return s.Exec(args...)
}

// script runs SQL text that is not worth preparing, also several statements.
func (c *conn) script(text string) error {
	_, err := c.sql.ExecContext(context.Background(), text)
	return err
}

func (c *conn) query(query string, args ...any) (*sql.Rows, error) {
	s, err := c.stmt(query)
	if err != nil {
		return nil, err
	}
	return s.Query(args...)
}

// row is a query for at most one row; its error comes from Scan.
func (c *conn) row(query string, args ...any) scanner {
	s, err := c.stmt(query)
	if err != nil {
		return failed{err}
	}
	return s.QueryRow(args...)
}

type scanner interface{ Scan(dest ...any) error }

type failed struct{ err error }

func (f failed) Scan(...any) error { return f.err }

// drop closes the connection for good; an open transaction is rolled back by SQLite.
func (c *conn) drop() {
	for _, s := range c.stmts {
		s.Close()
	}
	c.sql.Raw(func(any) error { return driver.ErrBadConn })
	c.sql.Close()
}

// busy reports whether another process or connection holds a lock.
func busy(err error) bool {
	e, ok := errors.AsType[*driverpkg.Error](err)
	return ok && e.Code()&0xff == 5 // SQLITE_BUSY and its extended codes (sqlite.org/rescode.html)
}

// constraint reports whether a constraint was violated.
func constraint(err error) bool {
	e, ok := errors.AsType[*driverpkg.Error](err)
	return ok && e.Code()&0xff == 19 // SQLITE_CONSTRAINT and its extended codes (sqlite.org/rescode.html)
}

// bare is a connection before any setting: for looking at a file that may be anybody's.
func bare(db *sql.DB) (*conn, error) {
	sc, err := db.Conn(context.Background())
	if err != nil {
		return nil, err
	}
	c := &conn{sql: sc, stmts: map[string]*sql.Stmt{}}
	if err := c.script("PRAGMA busy_timeout = 5000"); err != nil {
		c.drop()
		return nil, err
	}
	return c, nil
}
