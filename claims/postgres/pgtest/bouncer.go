package pgtest

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// ErrNoBouncer says in one line what to install.
var ErrNoBouncer = errors.New(
	"no pgbouncer in PATH, sbin or Homebrew's folders: install pgbouncer (Debian, Ubuntu, Fedora, Alpine, Homebrew)")

// BouncerOptions of a PgBouncer.
type BouncerOptions struct {
	PoolMode string            // session, transaction (if empty) or statement
	Conf     map[string]string // settings of section [pgbouncer] beyond and above ours
}

// Bouncer is a real PgBouncer before a server or a proxy. It has at most three connections to a database, which it uses in
// turn, so that a client in transaction mode meets another one each time as soon as it can. It ignores no startup parameter.
type Bouncer struct {
	home   *home
	dir    string
	binary string
	port   int

	mu   sync.Mutex
	proc *process
}

// NewBouncer starts a PgBouncer before an address (host:port). It ends with the test.
func NewBouncer(tb testing.TB, target string, o BouncerOptions) *Bouncer {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), patience)
	defer cancel()
	b, err := newBouncer()
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if tb.Failed() {
			tb.Logf("the log of PgBouncer at %s:\n%s", b.Addr(), tail(b.log(), 0))
		}
		if err := errors.Join(b.Kill(), os.RemoveAll(b.dir)); err != nil {
			tb.Errorf("remove PgBouncer: %v", err)
		}
	})
	for {
		if b.port, err = freePort(); err == nil {
			err = errors.Join(b.configure(target, o), b.Start(ctx))
		}
		if err == nil {
			return b
		}
		if !errors.Is(err, errPort) {
			tb.Fatal(err)
		}
	}
}

func newBouncer() (*Bouncer, error) {
	binary, err := bouncer()
	if err != nil {
		return nil, err
	}
	h, err := base()
	if err != nil {
		return nil, err
	}
	dir, err := h.folder("bouncer")
	return &Bouncer{home: h, dir: dir, binary: binary}, err
}

// bouncer finds the program, which distributions put where only root's PATH leads.
func bouncer() (string, error) {
	for _, dir := range []string{"", "/usr/sbin/", "/usr/bin/", "/usr/local/sbin/", "/usr/local/bin/", "/opt/homebrew/bin/"} {
		if path, err := exec.LookPath(dir + "pgbouncer"); err == nil {
			return path, nil
		}
	}
	return "", ErrNoBouncer
}

func (b *Bouncer) configure(target string, o BouncerOptions) error {
	host, port := split(target)
	mode := o.PoolMode
	if mode == "" {
		mode = "transaction"
	}
	conf := map[string]string{
		"listen_addr": "127.0.0.1", "listen_port": fmt.Sprint(b.port), "unix_socket_dir": "", "pidfile": "", "logfile": "",
		"auth_type": "any", "admin_users": "postgres", "server_tls_sslmode": "disable",
		"pool_mode": mode, "default_pool_size": "3", "max_db_connections": "3", "max_client_conn": "200",
		"server_round_robin": "1", "ignore_startup_parameters": "",
		"server_login_retry": "1", // else a server that restarts is not asked again for 15 s
	}
	maps.Copy(conf, o.Conf)
	var text strings.Builder
	fmt.Fprintf(&text, "[databases]\n* = host=%s port=%s user=postgres\n[pgbouncer]\n", host, port)
	for _, name := range slices.Sorted(maps.Keys(conf)) {
		fmt.Fprintf(&text, "%s = %s\n", name, conf[name])
	}
	return b.home.write(filepath.Join(b.dir, "pgbouncer.ini"), text.String())
}

func (b *Bouncer) log() string { return filepath.Join(b.dir, "log") }

// Addr is host:port for clients.
func (b *Bouncer) Addr() string { return fmt.Sprintf("127.0.0.1:%d", b.port) }

// URL leads to database postgres as superuser postgres. With pgx in transaction mode no statement may be prepared under a
// name: that is for the client to ask for.
func (b *Bouncer) URL() string { return urlAt(b.Addr(), "postgres") }

// Start starts it, also again after Kill, and waits until it takes connections.
func (b *Bouncer) Start(ctx context.Context) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.proc != nil && !b.proc.over() {
		return errors.New("PgBouncer runs already")
	}
	seen := size(b.log())
	cmd := b.home.command(context.WithoutCancel(ctx), b.dir, b.binary, filepath.Join(b.dir, "pgbouncer.ini"))
	p, err := launch(cmd, b.log())
	if err != nil {
		return err
	}
	b.proc = p
	for {
		// Its log and not the port alone: another's server may listen there.
		up := strings.Contains(tail(b.log(), seen), "process up")
		if conn, err := net.Dial("tcp", b.Addr()); err == nil && up {
			return conn.Close()
		} else if err == nil {
			conn.Close() //nolint:errcheck // not ours
		}
		text := tail(b.log(), seen)
		switch {
		case p.over() && strings.Contains(text, "in use"):
			return fmt.Errorf("%w: %d", errPort, b.port)
		case p.over():
			return fmt.Errorf("PgBouncer does not start: %s", text)
		case ctx.Err() != nil:
			return fmt.Errorf("PgBouncer does not get ready: %w: %s", context.Cause(ctx), text)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// Kill ends it without a word: all connections break.
func (b *Bouncer) Kill() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.proc == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	return slay(ctx, b.proc)
}
