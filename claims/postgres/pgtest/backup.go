package pgtest

import (
	"context"
	"errors"
	"net"
	"os"
	"path/filepath"
)

// Backup is a copy of a server's data as it was at one time.
type Backup struct{ dir string }

// Backup copies the running server's data; nobody notices.
func (s *Server) Backup(ctx context.Context) (*Backup, error) {
	dir, err := s.home.folder("backup")
	if err != nil {
		return nil, err
	}
	b := &Backup{dir: filepath.Join(dir, "copy")}
	return b, s.copyTo(ctx, b.dir)
}

// Restore kills the server, puts an earlier copy in place of its data and starts it: the same system id and the same
// timeline, the contents of then. Restored into another server, the copy is a clone.
func (s *Server) Restore(ctx context.Context, b *Backup) error {
	if err := s.replace(ctx, b, nil); err != nil {
		return err
	}
	return s.Start(ctx)
}

// RestoreNewTimeline restores as a recovery to a point in time does: the contents of then on a new timeline.
func (s *Server) RestoreNewTimeline(ctx context.Context, b *Backup) error {
	err := s.replace(ctx, b, map[string]string{
		"restore_command":        "false", // there is no archive: all that is needed is in the copy
		"recovery_target":        "immediate",
		"recovery_target_action": "promote",
	})
	if err != nil {
		return err
	}
	if err := errors.Join(s.home.write(filepath.Join(s.Dir(), "recovery.signal"), ""), s.Start(ctx)); err != nil {
		return err
	}
	return s.Wait(ctx, "select not pg_is_in_recovery()")
}

// replace puts a copy in place of the data of the server, which does not run afterwards.
func (s *Server) replace(ctx context.Context, b *Backup, conf map[string]string) error {
	if err := s.Stop(ctx, Immediate); err != nil {
		return err
	}
	if err := os.RemoveAll(s.Dir()); err != nil {
		return err
	}
	out, err := s.home.command(ctx, s.dir, "cp", "-R", "-p", b.dir, s.Dir()).CombinedOutput()
	if err != nil {
		return errors.Join(err, errors.New(string(out)))
	}
	return s.configure(conf)
}

func split(addr string) (host, port string) {
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		panic(err) // the package's own addresses
	}
	return host, port
}
