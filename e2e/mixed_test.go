package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fence-sidecar/fence-sidecar/claims/postgres/pgtest"
	"github.com/fence-sidecar/fence-sidecar/gateways/sandbox"
)

// Two versions of the program on one store: this checkout's, N, and later ones that are built from it with further migrations.
// N+1 has one that only adds, and knows a field of an attempt that it does not write. N+2 has one more, which N cannot live with.

// adds and drops are those migrations' statements.
var adds = map[string]string{
	"postgres": `ALTER TABLE {schema}.calls ADD later text;
		CREATE INDEX calls_later ON {schema}.calls (later) WHERE later IS NOT NULL;
		CREATE TABLE {schema}.later (one integer PRIMARY KEY, note text);`,
	"sqlite": `ALTER TABLE calls ADD COLUMN later TEXT;
		CREATE INDEX calls_later ON calls (later) WHERE later IS NOT NULL;
		CREATE TABLE later (one INTEGER PRIMARY KEY, note TEXT) STRICT;`,
}

const drops = `ALTER TABLE {schema}.later DROP COLUMN note;`

// overlay replaces files of the checkout for a build.
type overlay struct {
	t       *testing.T
	dir     string
	Replace map[string]string
}

func (o *overlay) add(path, text string) {
	o.t.Helper()
	to := filepath.Join(o.dir, fmt.Sprint(len(o.Replace)))
	if err := os.WriteFile(to, []byte(text), 0o600); err != nil {
		o.t.Fatal(err)
	}
	o.Replace[path] = to
}

// change replaces text that stands once in a file.
func (o *overlay) change(path, text, by string) {
	o.t.Helper()
	b, err := os.ReadFile(path)
	if err != nil || strings.Count(string(b), text) != 1 {
		o.t.Fatalf("%s: want %q once: %v", path, text, err)
	}
	o.add(path, strings.Replace(string(b), text, by, 1))
}

// ahead writes the overlay of version N+ahead.
func ahead(t *testing.T, ahead int) *overlay {
	t.Helper()
	root, err := filepath.Abs("..")
	if err != nil {
		t.Fatal(err)
	}
	o := &overlay{t, t.TempDir(), map[string]string{}}
	for _, store := range []string{"postgres", "sqlite"} {
		dir := filepath.Join(root, "claims", store, "migrations")
		have, err := filepath.Glob(filepath.Join(dir, "*.sql"))
		if err != nil || len(have) == 0 {
			t.Fatalf("no migrations in %s: %v", dir, err)
		}
		n := len(have)
		o.add(filepath.Join(dir, fmt.Sprintf("%04d_adds.sql", n+1)), adds[store])
		if store == "postgres" {
			if ahead > 1 {
				o.add(filepath.Join(dir, fmt.Sprintf("%04d_drops.sql", n+2)), drops)
			}
			o.change(filepath.Join(root, "claims", store, "migrate.go"), "var needs = map[int]int{",
				fmt.Sprintf("var needs = map[int]int{%d: %d, %d: %d, ", n+1, n, n+2, n+1))
		}
	}
	o.change(filepath.Join(root, "claims", "codec", "codec.go"), "type jsonAttempt struct {\n",
		"type jsonAttempt struct {\n\tLater text `json:\"later,omitempty\"`\n")
	return o
}

// build makes a version's program.
func (o *overlay) build() (program string, err error) {
	list, err := json.Marshal(o)
	if err != nil {
		return "", err
	}
	file, program := filepath.Join(o.dir, "overlay.json"), filepath.Join(o.dir, "fence-sidecar")
	if err := os.WriteFile(file, list, 0o600); err != nil {
		return "", err
	}
	args := []string{"build", "-overlay", file, "-o", program}
	if raceBuild {
		args = append(args, "-race")
	}
	out, err := exec.Command("go", append(args, "../cmd/fence-sidecar")...).CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%w\n%s", err, out)
	}
	return program, err
}

// mixed is a gateway, and one store with a world for each version.
type mixed struct {
	t                   *testing.T
	gateway             *sandbox.Server
	now, next, contract *world
	keys                int // that were charged
}

func TestMixedVersions(t *testing.T) {
	t.Parallel()
	next, err := ahead(t, 1).build()
	if err != nil {
		t.Fatal(err)
	}
	contract, err := ahead(t, 2).build() // compiles one package more
	if err != nil {
		t.Fatal(err)
	}
	onBoth(t, func(t *testing.T, d database) {
		t.Parallel()
		m := &mixed{t: t}
		var u use
		m.gateway, u = newSandbox(t, sandbox.Config{})
		m.now = newWorld(t, settings{store: d, lease: "3s", maxTTL: "60s", gateway: []use{{builtin: u.builtin, url: u.url, attempt: "2s"}}})
		of := func(program string) *world {
			w := *m.now
			w.program = program
			return &w
		}
		m.next, m.contract = of(next), of(contract)
		m.test(d)
		if n := m.gateway.Moved(); n != m.keys {
			t.Errorf("the gateway moved money %d times for %d calls", n, m.keys)
		}
		m.now.settled()
	})
}

func (m *mixed) test(d database) {
	a := m.now.start("A")
	m.charged("before", a, a)
	b := m.upgrade(a)
	m.replayed(named("before"), b)
	m.charged("by N", a, b)
	m.charged("by N+1", b, a)
	m.keys++
	crowd(m.t, charge("of both"), 10, a.at("stripe"), b.at("stripe"))
	if d.url != "" {
		m.laterField(a, b)
	}
	left := m.dies(a, b, "under N")
	if d.url == "" { // a file that is open is gone on with; one that a newer version made is not opened
		m.refused("_adds.sql")
		m.replayed(left, b)
		return
	}
	a = m.now.start("A again")
	m.replayed(left, a)
	left = m.dies(b, a, "under N+1")
	b = m.next.start("B again")
	m.replayed(left, b)
	m.contracted(a, b)
}

// upgrade migrates beside a serving sidecar, of which nobody is refused anything, and starts one of the next version.
func (m *mixed) upgrade(a *sidecar) (b *sidecar) {
	m.t.Helper()
	s := newStream(m.t, "meanwhile", a.at("stripe"))
	m.migrate(m.next)
	b = m.next.start("B")
	all, sends := s.end(), sendsOf(m.gateway)
	for _, one := range all {
		if !one.reply.definite() || sends[one.key] != 1 {
			m.t.Errorf("beside the migration, %d sends: %s", sends[one.key], one.reply)
		}
	}
	m.keys += len(all)
	return b
}

func (m *mixed) migrate(w *world) {
	m.t.Helper()
	if _, stderr, ok := w.cli("store", "migrate"); !ok {
		m.t.Fatalf("store migrate: %s", stderr)
	}
}

// charged charges through one sidecar and repeats through another: one answer, one execution.
func (m *mixed) charged(key string, through, again *sidecar) {
	m.t.Helper()
	m.keys++
	got := insist(m.t, named(key), "stripe", through)
	got.wantResult(m.t, "succeeded", "sent")
	if other := m.replayed(named(key), again); !bytes.Equal(got.body, other.body) {
		m.t.Errorf("%s is answered by sidecar %s\n%s\nand by sidecar %s\n%s", key, through.name, got, again.name, other)
	}
	m.now.wantOnce(m.gateway, key, 1)
}

// replayed repeats a call that was charged before.
func (m *mixed) replayed(r request, through *sidecar) reply {
	m.t.Helper()
	sends := len(m.gateway.Sends("POST"))
	got := send(through.at("stripe"), r)
	got.want(m.t, 200, "")
	if n := len(m.gateway.Sends("POST")); n != sends {
		m.t.Errorf("%d sends of a call that has its answer: %s", n-sends, got)
	}
	return got
}

// dies kills a sidecar under its call, and lets another version's take the scope and the call over, which then is repeated as r.
func (m *mixed) dies(from, to *sidecar, key string) (r request) {
	m.t.Helper()
	token := from.acquire(key, 3*time.Second)
	inject(m.t, m.gateway, sandbox.Fault{Name: "hold-after", Arg: key, Route: "POST /v1/**"})
	first := later(from.at("stripe"), named(key).under(token))
	if err := m.gateway.WaitHold(m.t.Context(), key); err != nil {
		m.t.Fatal(err)
	}
	from.kill()
	await(m.t, first)
	m.gateway.Release(key)
	m.exec(`UPDATE {schema}.calls SET later = 'kept' WHERE call_key = $1`, key)
	m.keys++
	r = named(key).under(to.acquire(key, 60*time.Second))
	got := insist(m.t, r, "stripe", to)
	got.want(m.t, 200, "")
	m.now.wantOnce(m.gateway, key, 1)
	if m.now.db.url == "" {
		return r
	}
	later, err := pgtest.Value[string](m.t.Context(), pgtest.Shared(m.t), m.sql(`SELECT later FROM {schema}.calls WHERE call_key = $1`), []byte(key))
	if err != nil || later != "kept" {
		m.t.Errorf("what only the later version knows of %s: %q, %v", key, later, err)
	}
	return r
}

// laterField: a version that does not know a field of a record must not decide on it. So a version that writes one comes after
// one that reads it.
func (m *mixed) laterField(a, b *sidecar) {
	m.t.Helper()
	m.exec(`UPDATE {schema}.calls SET attempts = replace(attempts, '{"number":', '{"later":"x","number":') WHERE call_key = $1`, "before")
	sends := len(m.gateway.Sends("POST"))
	send(a.at("stripe"), named("before")).want(m.t, 503, "unreadable")
	if n := len(m.gateway.Sends("POST")); n != sends {
		m.t.Errorf("%d sends of a call that cannot be read", n-sends)
	}
	m.replayed(named("before"), b)
	m.charged("beside it", a, b)
	m.exec(`UPDATE {schema}.calls SET attempts = replace(attempts, '{"later":"x",', '{') WHERE call_key = $1`, "before")
}

// contracted: N is refused by the name of the migration that it cannot live with, N+1 is not.
func (m *mixed) contracted(a, b *sidecar) {
	m.t.Helper()
	a.term()
	m.migrate(m.contract)
	m.refused("_drops.sql")
	m.charged("after the contraction", b, m.next.start("B at last"))
	m.charged("by N+2", m.contract.start("C"), b)
}

// refused starts N and wants it to name the migration.
func (m *mixed) refused(migration string) {
	m.t.Helper()
	cmd := m.now.command("run", "--config", m.now.config)
	var log strings.Builder
	cmd.Stderr = &log
	if err := cmd.Start(); err != nil {
		m.t.Fatal(err)
	}
	stop := time.AfterFunc(patience/4, func() { cmd.Process.Signal(syscall.SIGTERM) }) // it serves
	err := cmd.Wait()
	stop.Stop()
	if err == nil || !strings.Contains(log.String(), migration) || !strings.Contains(log.String(), "newer version") {
		m.t.Errorf("version N on the schema of %s: %v: %s", migration, err, log.String())
	}
}

func (m *mixed) sql(text string) string {
	return strings.ReplaceAll(text, "{schema}", pgx.Identifier{m.now.db.schema}.Sanitize())
}

// exec changes a call in the database itself, where that is PostgreSQL.
func (m *mixed) exec(sql, key string) {
	m.t.Helper()
	if m.now.db.url == "" {
		return
	}
	if err := pgtest.Shared(m.t).Exec(m.t.Context(), m.sql(sql), []byte(key)); err != nil {
		m.t.Fatal(err)
	}
}
