package pgtest

import (
	"context"
	"errors"
	"testing"
	"time"
)

func timeline(t *testing.T, s *Server) int {
	t.Helper()
	n, err := s.Timeline(t.Context())
	must(t, err)
	return n
}

func systemID(t *testing.T, s *Server) string {
	t.Helper()
	id, err := s.SystemID(t.Context())
	must(t, err)
	return id
}

// TestSynchronousPairKeepsWhatItAcknowledged over two failovers, there and back.
func TestSynchronousPairKeepsWhatItAcknowledged(t *testing.T) {
	t.Parallel()
	p := NewPair(t, PairOptions{Synchronous: true})
	ctx := t.Context()
	id := systemID(t, p.A)
	must(t, p.A.Exec(ctx, "create table t (k int)"))
	p.StopReplication()
	short, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
	defer cancel()
	if err := p.A.Exec(short, "insert into t values (0)"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a commit without its standby: %v", err)
	}
	must(t, p.ResumeReplication(ctx))
	must(t, p.A.Exec(ctx, "truncate t"))
	for i := range 2 {
		must(t, p.A.Exec(ctx, "insert into t values ($1)", i))
		must(t, p.A.Kill())
		must(t, p.Promote(ctx))
		if n, tli := rows(t, p.B, "t"), timeline(t, p.B); n != i+1 || tli != i+2 || systemID(t, p.B) != id {
			t.Errorf("%d rows on timeline %d of %s, want %d, %d of %s", n, tli, systemID(t, p.B), i+1, i+2, id)
		}
		if i == 0 {
			must(t, p.Rejoin(ctx))
		}
	}
}

// TestAsynchronousPairLosesWhatItAcknowledged, and a primary that came back alone still has it.
func TestAsynchronousPairLosesWhatItAcknowledged(t *testing.T) {
	t.Parallel()
	p := NewPair(t, PairOptions{})
	ctx := t.Context()
	must(t, p.A.Exec(ctx, "create table t (k int); insert into t values (1)"))
	must(t, p.CatchUp(ctx))
	p.StopReplication()
	must(t, p.A.Exec(ctx, "insert into t values (2)"))
	must(t, p.A.Kill())
	must(t, p.Promote(ctx))
	if n, tli := rows(t, p.B, "t"), timeline(t, p.B); n != 1 || tli != 2 {
		t.Errorf("%d rows on timeline %d", n, tli)
	}
	must(t, p.A.Start(ctx))
	if n, tli := rows(t, p.A, "t"), timeline(t, p.A); n != 2 || tli != 1 {
		t.Errorf("the old primary: %d rows on timeline %d", n, tli)
	}
	must(t, p.Rejoin(ctx))
	must(t, p.CatchUp(ctx))
	if n := rows(t, p.B, "t"); n != 1 {
		t.Errorf("%d rows on the former primary", n)
	}
}

func TestRestoreGoesBack(t *testing.T) {
	t.Parallel()
	s := New(t, Options{})
	ctx := t.Context()
	id := systemID(t, s)
	must(t, s.Exec(ctx, "create table t (k int); insert into t values (1)"))
	b, err := s.Backup(ctx)
	must(t, err)
	for want, restore := range map[int]func(context.Context, *Backup) error{1: s.Restore, 2: s.RestoreNewTimeline} {
		must(t, s.Exec(ctx, "insert into t values (2)"))
		must(t, restore(ctx, b))
		if n, tli := rows(t, s, "t"), timeline(t, s); n != 1 || tli != want || systemID(t, s) != id {
			t.Errorf("%d rows on timeline %d of %s, want 1, %d of %s", n, tli, systemID(t, s), want, id)
		}
		must(t, s.Stop(ctx, Fast))
		must(t, s.Start(ctx))
	}
}
