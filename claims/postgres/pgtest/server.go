package pgtest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// patience bounds the wait for a server to come up, go down or catch up. A slow machine needs seconds.
const patience = 2 * time.Minute

// Mode is how a server is stopped.
type Mode int

// The modes of pg_ctl stop.
const (
	Fast      Mode = iota // ends the sessions, writes a checkpoint
	Smart                 // waits for the sessions to end
	Immediate             // like a crash: recovers at the next start
)

// Options of a server of its own.
type Options struct {
	Conf map[string]string // settings beyond and above the defaults, unquoted
}

// defaults are small and quick, but as safe as the server's own: a store may refuse others.
var defaults = map[string]string{
	"listen_addresses":            "127.0.0.1",
	"max_connections":             "200",
	"shared_buffers":              "16MB",
	"wal_level":                   "replica",
	"wal_log_hints":               "on",   // for pg_rewind
	"wal_keep_size":               "64MB", // as there are no replication slots
	"wal_receiver_timeout":        "10s",
	"wal_sender_timeout":          "10s",
	"wal_retrieve_retry_interval": "100ms",
	"autovacuum":                  "off",  // its transactions would hold events back for a moment
	"dynamic_shared_memory_type":  "mmap", // in the data folder, so that a killed server leaves nothing elsewhere
	"log_line_prefix":             "%m [%p] %q%a ",
}

// Server is one PostgreSQL server: superuser postgres, no passwords, on 127.0.0.1.
type Server struct {
	home *home
	dir  string // holds data and log
	port int
	conf map[string]string // as asked for

	mu     sync.Mutex
	proc   *process
	frozen bool
}

// New starts a server of the test's own, with its own system id, and removes it after the test. It takes about a second.
func New(tb testing.TB, o Options) *Server {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), patience)
	defer cancel()
	s, err := create(ctx, o)
	if err != nil {
		tb.Fatal(err)
	}
	s.keep(tb)
	return s
}

// keep removes the server at the end of the test, and shows its log if that failed.
func (s *Server) keep(tb testing.TB) {
	tb.Cleanup(func() {
		if err := s.remove(); err != nil {
			tb.Errorf("remove server: %v", err)
		}
	})
	s.show(tb)
}

func create(ctx context.Context, o Options) (*Server, error) {
	h, err := base()
	if err != nil {
		return nil, err
	}
	s := &Server{home: h, conf: o.Conf}
	if s.dir, err = h.folder("server"); err != nil {
		return nil, err
	}
	err = h.run(ctx, s.dir, "initdb", "-D", s.Dir(), "-U", "postgres", "-A", "trust", "--locale=C", "-E", "UTF8",
		"--no-sync", "--no-instructions", "--wal-segsize=1")
	if err == nil {
		err = s.configure(nil)
	}
	if err == nil {
		err = s.startAnywhere(ctx)
	}
	if err != nil {
		return nil, errors.Join(err, s.remove())
	}
	return s, nil
}

// configure appends the server's settings and more to those in its data folder, which may be another server's; the last
// one counts.
func (s *Server) configure(more map[string]string) error {
	all := maps.Clone(defaults)
	all["unix_socket_directories"] = s.dir
	maps.Copy(all, s.conf)
	maps.Copy(all, more)
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(all)) {
		fmt.Fprintf(&b, "%s = '%s'\n", name, strings.ReplaceAll(all[name], "'", "''"))
	}
	f, err := os.OpenFile(filepath.Join(s.Dir(), "postgresql.conf"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(b.String())
	return errors.Join(err, f.Close())
}

// Dir is the data folder.
func (s *Server) Dir() string { return filepath.Join(s.dir, "data") }

// LogFile is the path of the server's log.
func (s *Server) LogFile() string { return filepath.Join(s.dir, "log") }

// Port is the same after a restart.
func (s *Server) Port() int { return s.port }

// Addr is host:port.
func (s *Server) Addr() string { return fmt.Sprintf("127.0.0.1:%d", s.port) }

// URL leads to database postgres as superuser postgres.
func (s *Server) URL() string { return urlAt(s.Addr(), "postgres") }

func urlAt(addr, database string) string {
	return fmt.Sprintf("postgres://postgres@%s/%s?sslmode=disable&connect_timeout=10", addr, database)
}

// PID is the postmaster's, 0 if the server does not run.
func (s *Server) PID() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proc == nil || s.proc.over() {
		return 0
	}
	return s.proc.pid()
}

var errPort = errors.New("the port is taken")

// startAnywhere starts a new server on a port that is free.
func (s *Server) startAnywhere(ctx context.Context) error {
	for {
		port, err := freePort()
		if err != nil {
			return err
		}
		s.port = port
		if err := s.Start(ctx); !errors.Is(err, errPort) {
			return err
		}
	}
}

// freePort lies below the ports that systems give to outgoing connections, so that a stopped server's is still free later.
func freePort() (int, error) {
	for range 1000 {
		port := 15000 + rand.IntN(15000)
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err == nil {
			return port, l.Close()
		}
	}
	return 0, errors.New("no free port between 15000 and 30000")
}

// Start starts a stopped or killed server again, on the same port, and waits until it takes connections.
func (s *Server) Start(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proc != nil && !s.proc.over() {
		return errors.New("the server runs already")
	}
	seen := size(s.LogFile())
	program := filepath.Join(s.home.bin, "postgres")
	cmd := s.home.command(context.WithoutCancel(ctx), s.dir, program, "-D", s.Dir(), "-p", strconv.Itoa(s.port))
	p, err := launch(cmd, s.LogFile())
	if err != nil {
		return err
	}
	s.proc, s.frozen = p, false
	for !s.ready() {
		switch {
		case p.over():
			text := tail(s.LogFile(), seen)
			if strings.Contains(text, "could not bind") || strings.Contains(text, "could not create any TCP/IP sockets") {
				return fmt.Errorf("%w: %d", errPort, s.port)
			}
			return fmt.Errorf("the server does not start: %s", text)
		case ctx.Err() != nil:
			return fmt.Errorf("the server does not get ready: %w: %s", context.Cause(ctx), tail(s.LogFile(), seen))
		}
		time.Sleep(5 * time.Millisecond)
	}
	return nil
}

// lock is the lines of the lock file, as pg_ctl reads them: the first is the postmaster's pid, the seventh key and id of its
// segment of shared memory, the eighth its state.
func (s *Server) lock() []string {
	text, err := os.ReadFile(filepath.Join(s.Dir(), "postmaster.pid"))
	if lines := strings.Split(string(text), "\n"); err == nil && len(lines) >= 8 {
		return lines
	}
	return make([]string, 8)
}

func (s *Server) ready() bool {
	lines := s.lock()
	state := strings.TrimSpace(lines[7])
	return lines[0] == strconv.Itoa(s.proc.pid()) && (state == "ready" || state == "standby")
}

// segment is the id of the shared memory of a server that runs or was killed.
func (s *Server) segment() string {
	if f := strings.Fields(s.lock()[6]); len(f) == 2 {
		return f[1]
	}
	return ""
}

// Stop stops the server; a frozen one is thawed first.
func (s *Server) Stop(ctx context.Context, mode Mode) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proc == nil || s.proc.over() {
		return nil
	}
	if s.frozen {
		if err := resume(s.proc.pid()); err != nil {
			return err
		}
		s.frozen = false
	}
	if err := s.proc.cmd.Process.Signal(signals[mode]); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return s.proc.wait(ctx)
}

// Kill kills the server without a word, frozen or not; all of its processes are gone when it returns.
func (s *Server) Kill() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proc == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	s.frozen = false
	return slay(ctx, s.proc)
}

// Freeze stops all processes of the server where they stand: connections stay open and nobody answers.
func (s *Server) Freeze() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proc == nil || s.proc.over() {
		return errors.New("the server does not run")
	}
	s.frozen = true
	return suspend(s.proc.pid())
}

// Thaw undoes Freeze.
func (s *Server) Thaw() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.proc == nil || s.proc.over() {
		return errors.New("the server does not run")
	}
	s.frozen = false
	return resume(s.proc.pid())
}

// remove stops the server and deletes its folder. A server that was killed and not started again has left a segment of
// shared memory, which only its next start or we can remove.
func (s *Server) remove() error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	err := s.Stop(ctx, Immediate)
	if err != nil {
		err = errors.Join(err, s.Kill())
	}
	if id := s.segment(); id != "" {
		s.home.command(ctx, s.dir, "ipcrm", "-m", id).Run() //nolint:errcheck // as well as the system can
	}
	return errors.Join(err, os.RemoveAll(s.dir))
}

// show prints what the server logs from now on if the test fails.
func (s *Server) show(tb testing.TB) {
	from := size(s.LogFile())
	tb.Cleanup(func() {
		if tb.Failed() {
			tb.Logf("the server's log at %s:\n%s", s.Addr(), tail(s.LogFile(), from))
		}
	})
}
