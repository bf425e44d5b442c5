package pgtest

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"testing"
)

// PairOptions of a pair.
type PairOptions struct {
	// Synchronous: A acknowledges a commit once B has it on its disk. Else B gets it whenever it may.
	Synchronous bool
	Conf        map[string]string // of both, as in Options
}

// Pair is a primary A and its streaming standby B.
type Pair struct {
	A, B *Server
	// Link carries the replication between them. Cut, it keeps the standby behind; a cut or stalled one keeps synchronous
	// commits waiting.
	Link *Proxy

	synchronous bool
}

// NewPair starts a pair in 2 to 5 seconds and removes it after the test.
func NewPair(tb testing.TB, o PairOptions) *Pair {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), patience)
	defer cancel()
	p := &Pair{A: New(tb, Options{Conf: o.Conf}), synchronous: o.Synchronous}
	p.Link = NewProxy(tb, p.A.Addr())
	dir, err := p.A.home.folder("server")
	if err != nil {
		tb.Fatal(err)
	}
	p.B = &Server{home: p.A.home, dir: dir, conf: o.Conf}
	p.B.keep(tb)
	if err := p.A.copyTo(ctx, p.B.Dir()); err != nil {
		tb.Fatal(err)
	}
	if err := errors.Join(p.B.follow("b", p.Link.Addr()), p.B.startAnywhere(ctx), p.replicate(ctx, p.A, "b")); err != nil {
		tb.Fatal(err)
	}
	return p
}

// copyTo takes a copy of the running server's data.
func (s *Server) copyTo(ctx context.Context, dir string) error {
	return s.home.run(ctx, s.dir, "pg_basebackup", "-h", "127.0.0.1", "-p", fmt.Sprint(s.port), "-U", "postgres", "-D", dir,
		"-X", "stream", "--checkpoint=fast", "--no-sync")
}

// follow makes a standby of the data folder of a server that does not run.
func (s *Server) follow(name, primary string) error {
	host, port := split(primary)
	return errors.Join(
		s.configure(map[string]string{
			"primary_conninfo": fmt.Sprintf("host=%s port=%s user=postgres application_name=%s sslmode=disable", host, port, name),
		}),
		s.home.write(filepath.Join(s.Dir(), "standby.signal"), ""))
}

// replicate waits until the standby streams, and is synchronous if the pair is.
func (p *Pair) replicate(ctx context.Context, primary *Server, standby string) error {
	state := "async"
	if p.synchronous {
		if err := primary.Set(ctx, "synchronous_standby_names", standby); err != nil {
			return err
		}
		state = "sync"
	}
	return primary.Wait(ctx, "select count(*) = 1 from pg_stat_replication "+
		"where state = 'streaming' and application_name = $1 and sync_state = $2", standby, state)
}

// StopReplication cuts the standby off: it gets nothing of what the primary commits from now on.
func (p *Pair) StopReplication() { p.Link.Cut() }

// ResumeReplication undoes StopReplication, and waits until the standby streams again.
func (p *Pair) ResumeReplication(ctx context.Context) error {
	if err := p.Link.Heal(); err != nil {
		return err
	}
	return p.replicate(ctx, p.A, "b")
}

// CatchUp waits until the standby B shows all that A has committed.
func (p *Pair) CatchUp(ctx context.Context) error {
	at, err := Value[string](ctx, p.A, "select pg_current_wal_lsn()::text")
	if err != nil {
		return err
	}
	return p.B.Wait(ctx, "select pg_last_wal_replay_lsn() >= $1::text::pg_lsn", at)
}

// Promote makes the standby B a primary, on a new timeline, whatever A does. It commits alone: that A waited for a standby
// is not handed on.
func (p *Pair) Promote(ctx context.Context) error { return p.B.Promote(ctx) }

// Promote makes a standby a primary.
func (s *Server) Promote(ctx context.Context) error {
	ok, err := Value[bool](ctx, s, "select pg_promote(true, 60)")
	if err == nil && !ok {
		err = errors.New("the standby is not promoted within a minute")
	}
	return err
}

// Rejoin makes A, killed if it runs, a standby of the promoted B: its commits that B lacks are lost. A and B then change names.
func (p *Pair) Rejoin(ctx context.Context) error {
	if err := p.A.Kill(); err != nil {
		return err
	}
	// Without a checkpoint on B pg_rewind may still see the old timeline there.
	if err := p.B.Exec(ctx, "checkpoint"); err != nil {
		return err
	}
	err := p.A.home.run(ctx, p.A.dir, "pg_rewind", "-D", p.A.Dir(), "--no-sync", "--source-server",
		fmt.Sprintf("host=127.0.0.1 port=%d user=postgres dbname=postgres", p.B.port))
	if err != nil {
		return err
	}
	p.A, p.B = p.B, p.A
	p.Link.Target(p.A.Addr())
	if err := errors.Join(p.B.follow("b", p.Link.Addr()), p.Link.Heal(), p.B.Start(ctx)); err != nil {
		return err
	}
	return p.replicate(ctx, p.A, "b")
}
