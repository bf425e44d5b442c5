package pgtest

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// Exec runs SQL over a connection of its own: without arguments also several statements at once.
func (s *Server) Exec(ctx context.Context, sql string, args ...any) error {
	conn, err := pgx.Connect(ctx, s.URL())
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx)) //nolint:errcheck // nothing is left to lose
	_, err = conn.Exec(ctx, sql, args...)
	return err
}

// Value reads one value over a connection of its own.
func Value[T any](ctx context.Context, s *Server, sql string, args ...any) (T, error) {
	var v T
	conn, err := pgx.Connect(ctx, s.URL())
	if err != nil {
		return v, err
	}
	defer conn.Close(context.WithoutCancel(ctx)) //nolint:errcheck // nothing is left to lose
	err = conn.QueryRow(ctx, sql, args...).Scan(&v)
	return v, err
}

// Wait asks until the query's one value is true; an error counts as no.
func (s *Server) Wait(ctx context.Context, sql string, args ...any) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		ok, err := Value[bool](ctx, s, sql, args...)
		if err == nil && ok {
			return nil
		}
		if ctx.Err() != nil {
			return fmt.Errorf("still not: %s: %w", sql, err)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// Set changes a setting by ALTER SYSTEM and a reload, and waits until new sessions have it.
func (s *Server) Set(ctx context.Context, name, value string) error {
	before, err := Value[time.Time](ctx, s, "select pg_conf_load_time()")
	if err != nil {
		return err
	}
	// The name is the test's own; it cannot be a parameter.
	if err := s.Exec(ctx, "alter system set "+name+" = '"+strings.ReplaceAll(value, "'", "''")+"'"); err != nil {
		return err
	}
	if err := s.Exec(ctx, "select pg_reload_conf()"); err != nil {
		return err
	}
	return s.Wait(ctx, "select pg_conf_load_time() > $1", before)
}

// SystemID identifies the database cluster: initdb makes it, copies and standbys share it.
func (s *Server) SystemID(ctx context.Context) (string, error) {
	return Value[string](ctx, s, "select system_identifier::text from pg_control_system()")
}

// Timeline of a primary, right after a promotion too, when the control file still has the old one.
func (s *Server) Timeline(ctx context.Context) (int, error) {
	return Value[int](ctx, s, "select ('x' || substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8))::bit(32)::int")
}
