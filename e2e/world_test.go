package e2e

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/fence-sidecar/fence-sidecar/claims"
	"github.com/fence-sidecar/fence-sidecar/claims/keys"
	"github.com/fence-sidecar/fence-sidecar/claims/postgres"
	"github.com/fence-sidecar/fence-sidecar/claims/postgres/pgtest"
	"github.com/fence-sidecar/fence-sidecar/claims/sqlite"
)

// secret is the credential of the app and of the lookups.
const secret = "sk_test_e2e_secret"

// patience bounds every wait: the machine is noisy.
const patience = 60 * time.Second

// eventually polls until cond holds. It ends at once when cond itself fails the test.
func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	failed := t.Failed()
	for end := time.Now().Add(patience); !cond(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) || t.Failed() && !failed {
			t.Fatalf("never happened: %s", what)
		}
	}
}

// settings are a configuration's fields that tests change. Zero values are the tests' defaults.
type settings struct {
	lease   string // 10s; shorter where a test waits for its end
	wait    string // 1s
	drain   string
	level   string // info
	tenants string // default
	socket  bool
	limit   string // reconcile.lookupTimeout, 2s
	gateway []use

	store  database
	maxTTL string // 10s, or what lease says
	extra  string // further lines of YAML
}

// database is where a world's store is. The zero value is a SQLite file of its own.
type database struct {
	url, schema string
	failover    string // may-lose
	connections int    // 6
}

// onPostgres is a schema of its own on the test binary's server.
func onPostgres(t *testing.T) database {
	t.Helper()
	url, schema := pgtest.Shared(t).Schema(t)
	return database{url: url, schema: schema}
}

// onBoth runs a test on either store.
func onBoth(t *testing.T, test func(t *testing.T, d database)) {
	t.Run("sqlite", func(t *testing.T) { test(t, database{}) })
	t.Run("postgres", func(t *testing.T) { test(t, onPostgres(t)) })
}

func (d database) yaml(dir string) string {
	if d.url == "" {
		return fmt.Sprintf("{kind: sqlite, path: %q, allowTmpfs: true}", filepath.Join(dir, "fence.db"))
	}
	connections := d.connections
	if connections == 0 {
		connections = 6
	}
	return fmt.Sprintf("{kind: postgres, url: {env: E2E_STORE_URL}, schema: %s, connections: %d, failover: %s}",
		d.schema, connections, or(d.failover, "may-lose"))
}

// open is this process's own view of the store, with the keys that lie in it.
func (d database) open(ctx context.Context, dir string) (claims.Backend, error) {
	b, err := d.plain(ctx, dir)
	if err != nil {
		return nil, err
	}
	return opened(b)
}

// opened is a store whose answers can be read by the store's own keys.
func opened(b claims.Backend, more ...*keys.Set) (claims.Backend, error) {
	own, err := keys.Parse(b.Keyset())
	if err != nil {
		return nil, err
	}
	r, err := keys.NewRing(own, more...)
	if err != nil {
		return nil, err
	}
	return keys.Sealed(b, r), nil
}

func (d database) plain(ctx context.Context, dir string) (claims.Backend, error) {
	if d.url == "" {
		return sqlite.Open(ctx, sqlite.Config{Path: filepath.Join(dir, "fence.db"), AllowTmpfs: true, Margin: 200 * time.Millisecond})
	}
	return postgres.Open(ctx, postgres.Config{
		URL: d.url, Schema: d.schema, MayLose: true, Margin: 200 * time.Millisecond, MaxLease: 10 * time.Second, Log: slog.New(slog.DiscardHandler),
	})
}

// use is one gateway of a configuration.
type use struct {
	builtin, file    string
	name, url, ca    string
	attempt, settle  string // 2s, 10m
	retention        string
	tokens, untagged string
	body             int
	hosts            []string
	routes           string // YAML
	callKey          string // YAML
	more             string // further lines of YAML
}

func or(s, other string) string {
	if s == "" {
		return other
	}
	return s
}

func (u use) String() string {
	var b strings.Builder
	line := func(name, value string) {
		if value != "" {
			fmt.Fprintf(&b, "    %s: %s\n", name, value)
		}
	}
	line("use", u.builtin)
	if u.file != "" {
		line("file", strconv.Quote(u.file))
	}
	line("name", u.name)
	line("listen", "127.0.0.1:0")
	line("baseURL", u.url)
	if u.ca != "" {
		line("caBundle", strconv.Quote(u.ca))
	}
	line("attemptTimeout", or(u.attempt, "2s"))
	line("settleAfter", or(u.settle, "10m"))
	line("keyRetention", u.retention)
	line("tokens", u.tokens)
	line("untagged", u.untagged)
	if u.body > 0 {
		line("bodyLimit", fmt.Sprint(u.body))
	}
	if len(u.hosts) > 0 {
		line("hosts", "["+strings.Join(u.hosts, ", ")+"]")
	}
	line("routes", u.routes)
	line("callKey", u.callKey)
	line("accounts", "[{name: shop, credential: {env: E2E_CREDENTIAL}, lookupCredential: {env: E2E_CREDENTIAL}}]")
	b.WriteString(u.more)
	return "  -" + b.String()[3:]
}

func (s settings) yaml(dir string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "store: %s\n", s.store.yaml(dir))
	fmt.Fprintf(&b, "listen:\n  any: 127.0.0.1:0\n  control: 127.0.0.1:0\n  telemetry: 127.0.0.1:0\n")
	if s.socket {
		fmt.Fprintf(&b, "  socket: %q\n", filepath.Join(dir, "s"))
	}
	fmt.Fprintf(&b, "tenants: [%s]\n", or(s.tenants, "default"))
	fmt.Fprintf(&b, "lease: {ttl: %s, margin: 200ms, maxTTL: %s}\n%s", or(s.lease, "10s"), or(s.maxTTL, or(s.lease, "10s")), s.extra)
	fmt.Fprintf(&b, "wait: %s\nattempts: 10\n", or(s.wait, "1s"))
	if s.drain != "" {
		fmt.Fprintf(&b, "drain: %s\n", s.drain)
	}
	fmt.Fprintf(&b, "breaker: {failures: 1000}\n")
	fmt.Fprintf(&b, "reconcile: {interval: 500ms, lookupTimeout: %s}\n", or(s.limit, "2s"))
	fmt.Fprintf(&b, "log: {level: %s, format: json}\n", or(s.level, "info"))
	fmt.Fprintf(&b, "gateways:\n")
	for _, u := range s.gateway {
		b.WriteString(u.String())
	}
	return b.String()
}

// world is one store with its configuration.
type world struct {
	t           *testing.T
	dir, config string
	db          database
	program     string         // another version of the program than the checkout's
	store       claims.Backend // this process's own view
	locked      bool           // the test has the SQLite file's write lock
}

// newWorld writes the configuration and migrates the store.
func newWorld(t *testing.T, s settings) *world {
	t.Helper()
	w := &world{t: t, dir: t.TempDir(), db: s.store}
	w.config = w.write("fence.yaml", s.yaml(w.dir))
	if out, err := w.command("store", "migrate", "--config", w.config).CombinedOutput(); err != nil {
		t.Fatalf("store migrate: %v\n%s\n%s", err, out, s.yaml(w.dir))
	}
	b, err := s.store.open(t.Context(), w.dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	w.store = b
	return w
}

func (w *world) write(name, text string) string {
	w.t.Helper()
	path := filepath.Join(w.dir, name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		w.t.Fatal(err)
	}
	return path
}

// command is the program under test.
func (w *world) command(args ...string) *exec.Cmd {
	cmd := exec.Command(or(w.program, binary), args...)
	cmd.Env = append(os.Environ(), "E2E_CREDENTIAL="+secret, "E2E_STORE_URL="+w.db.url, fmt.Sprintf("GORACE=exitcode=%d halt_on_error=1", raceExit))
	cmd.Dir = w.dir
	return cmd
}

// cli runs a command with the world's configuration and returns its standard output, its standard error and whether it
// succeeded.
func (w *world) cli(args ...string) (stdout, stderr string, ok bool) {
	w.t.Helper()
	cmd := w.command(append(args, "--config", w.config)...)
	var out, errs strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	if cmd.ProcessState == nil || cmd.ProcessState.ExitCode() == raceExit {
		w.t.Fatalf("%v: %v\n%s", args, err, errs.String())
	}
	return out.String(), errs.String(), err == nil
}

// record reads a call of the default tenant from the store.
func (w *world) record(key string) claims.Record {
	w.t.Helper()
	v, err := w.store.Get(w.t.Context(), claims.Key{Tenant: "default", Call: key}, claims.Guard{})
	if err != nil {
		w.t.Fatalf("read %s: %v", key, err)
	}
	return v.Record
}

func (w *world) state(key string) claims.State { return w.record(key).State }

// wantState polls until the call has come to a state.
func (w *world) wantState(key string, want claims.State) {
	w.t.Helper()
	failed := w.t.Failed() // then it need not be waited for
	for end := time.Now().Add(patience); ; time.Sleep(5 * time.Millisecond) {
		got := w.state(key)
		if got == want {
			return
		}
		if failed || time.Now().After(end) {
			w.t.Fatalf("call %s is %q, want %q: %+v", key, got, want, w.record(key))
		}
	}
}

// all lists every record.
func (w *world) all() []claims.Record {
	w.t.Helper()
	rs, err := w.store.List(w.t.Context(), "", nil, 100000)
	if err != nil {
		w.t.Fatal(err)
	}
	return rs
}

// settled fails if a call is left that only time or a person could end.
func (w *world) settled() {
	w.t.Helper()
	for _, r := range w.all() {
		if r.State == claims.StatePending || r.State == claims.StateUnknown {
			w.t.Errorf("call %s is left %s", r.Key, r.State)
		}
	}
}
