package pgtest

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

// orphan makes this binary start a server, tell its folder and pid, and wait for a death that it cannot clean up after.
const orphan = "PGTEST_ORPHAN"

func TestMain(m *testing.M) { os.Exit(Run(m)) }

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func value[T any](t *testing.T, s *Server, sql string, args ...any) T {
	t.Helper()
	v, err := Value[T](t.Context(), s, sql, args...)
	must(t, err)
	return v
}

func gone(pid int) bool { return dead(state(pid)) }

func eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for !ok() {
		if ctx.Err() != nil {
			t.Fatal("never: " + what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func TestServerLeavesNothing(t *testing.T) {
	t.Parallel()
	var s *Server
	var kin []int
	var memory string
	for name, down := range map[string]func(*Server) error{"frozen": (*Server).Freeze, "killed": (*Server).Kill} {
		t.Run(name, func(t *testing.T) {
			s = New(t, Options{Conf: map[string]string{"synchronous_commit": "off", "fsync": "off"}})
			for name, want := range map[string]string{"fsync": "off", "synchronous_commit": "off", "max_connections": "200"} {
				if got := value[string](t, s, "select current_setting($1)", name); got != want {
					t.Errorf("%s = %s, want %s", name, got, want)
				}
			}
			kin, _ = descendants(s.PID())
			if kin = append(kin, s.PID()); len(kin) < 4 {
				t.Fatalf("a server of %d processes", len(kin))
			}
			if memory = s.segment(); memory == "" {
				t.Fatal("a server without a segment of shared memory")
			}
			must(t, down(s))
		})
		if left := slices.DeleteFunc(kin, gone); len(left) > 0 {
			t.Errorf("%s: processes %v are left", name, left)
		}
		if _, err := os.Stat(s.dir); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("%s: the folder is left: %v", name, err)
		}
		segments, _ := os.ReadFile("/proc/sysvipc/shm") //nolint:errcheck // Linux only
		for line := range strings.Lines(string(segments)) {
			if f := strings.Fields(line); f[1] == memory {
				t.Errorf("%s: shared memory is left: %s", name, line)
			}
		}
	}
}

func TestKillStopAndStart(t *testing.T) {
	t.Parallel()
	s := New(t, Options{})
	ctx := t.Context()
	must(t, s.Exec(ctx, "create table f (k int)"))
	port, id := s.Port(), value[string](t, s, "select system_identifier::text from pg_control_system()")
	for i, down := range []func() error{
		s.Kill,
		func() error { return s.Stop(ctx, Immediate) },
		func() error { return s.Stop(ctx, Fast) },
		func() error { return s.Stop(ctx, Smart) },
		func() error { return errors.Join(s.Freeze(), s.Kill()) },
		func() error { return errors.Join(s.Freeze(), s.Stop(ctx, Fast)) },
	} {
		must(t, s.Exec(ctx, "insert into f values ($1)", i))
		kin, err := descendants(s.PID())
		must(t, err)
		must(t, down())
		if left := slices.DeleteFunc(kin, gone); len(left) > 0 || s.PID() != 0 {
			t.Errorf("%d: processes %v are left", i, left)
		}
		if err := s.Exec(ctx, "select"); err == nil {
			t.Errorf("%d: it answers", i)
		}
		must(t, s.Start(ctx))
		if n := value[int](t, s, "select count(*) from f"); n != i+1 || s.Port() != port {
			t.Errorf("%d: %d rows on port %d", i, n, s.Port())
		}
	}
	if got, err := s.SystemID(ctx); got != id || err != nil {
		t.Errorf("system id %s, was %s (%v)", got, id, err)
	}
	must(t, s.Kill()) // left dead: its shared memory goes too
}

func TestFreezeThawAndSet(t *testing.T) {
	t.Parallel()
	s := New(t, Options{})
	conn, err := pgx.Connect(t.Context(), s.URL())
	must(t, err)
	defer conn.Close(context.Background())
	must(t, s.Freeze())
	answered := make(chan error, 1)
	go func() {
		_, err := conn.Exec(context.Background(), "select")
		answered <- err
	}()
	select {
	case err := <-answered:
		t.Errorf("a frozen server answered: %v", err)
	case <-time.After(300 * time.Millisecond):
	}
	must(t, s.Thaw())
	must(t, <-answered)
	for _, v := range []string{"1500ms", "2000ms", "0"} {
		must(t, s.Set(t.Context(), "lock_timeout", v))
		same := "select current_setting('lock_timeout')::interval = $1::text::interval"
		if !value[bool](t, s, same, strings.TrimSuffix(v, "ms")+" ms") {
			t.Errorf("lock_timeout is not %s", v)
		}
	}
}

func TestSchemasAreDropped(t *testing.T) {
	s := Shared(t)
	var names []string
	for range 2 {
		t.Run("uses one", func(t *testing.T) {
			url, name := s.Schema(t)
			names = append(names, name)
			conn, err := pgx.Connect(t.Context(), url)
			must(t, err)
			defer conn.Close(context.Background())
			_, err = conn.Exec(t.Context(), "create schema "+name+" create table f (k int)")
			must(t, err)
		})
	}
	if names[0] == names[1] {
		t.Errorf("both got %s", names[0])
	}
	if n := value[int](t, s, "select count(*) from pg_namespace where nspname = any($1)", names); n != 0 {
		t.Errorf("%d schemas are left", n)
	}
}

func TestDatabasesAreDropped(t *testing.T) {
	s := Shared(t)
	var names []string
	for range 2 {
		t.Run("uses one", func(t *testing.T) {
			conn, err := pgx.Connect(t.Context(), s.Database(t))
			must(t, err) // and left open
			names = append(names, conn.Config().Database)
			_, err = conn.Exec(t.Context(), "create table f (k int)")
			must(t, err)
		})
	}
	if n := value[int](t, s, "select count(*) from pg_database where datname = any($1)", names); n != 0 || names[0] == names[1] {
		t.Errorf("%d of databases %v are left", n, names)
	}
}

// TestKilledBinaryLeavesNothing: a test binary that dies with one frozen and one running server; the watchdog ends both.
func TestKilledBinaryLeavesNothing(t *testing.T) {
	t.Parallel()
	if os.Getenv(orphan) != "" {
		a, b := New(t, Options{}), Shared(t)
		must(t, a.Freeze())
		text := fmt.Sprint(filepath.Dir(a.dir), " ", a.PID(), " ", b.PID())
		must(t, os.WriteFile(os.Getenv(orphan)+".new", []byte(text), 0o600))
		must(t, os.Rename(os.Getenv(orphan)+".new", os.Getenv(orphan)))
		<-t.Context().Done()
		return
	}
	file := filepath.Join(t.TempDir(), "told")
	cmd := exec.Command(os.Args[0], "-test.run=^TestKilledBinaryLeavesNothing$")
	cmd.Env = append(os.Environ(), orphan+"="+file)
	must(t, cmd.Start())
	var told []string
	eventually(t, "the child's servers run", func() bool {
		text, err := os.ReadFile(file)
		told = strings.Fields(string(text))
		return err == nil
	})
	kin := []int{}
	for _, f := range told[1:] {
		pid, _ := strconv.Atoi(f)
		below, err := descendants(pid)
		must(t, err)
		kin = append(kin, append(below, pid)...)
	}
	must(t, cmd.Process.Kill())
	cmd.Wait() //nolint:errcheck // killed
	for _, pid := range kin {
		eventually(t, "process "+strconv.Itoa(pid)+" is gone", func() bool { return gone(pid) })
	}
	eventually(t, "the folder is gone", func() bool {
		_, err := os.Stat(told[0])
		return errors.Is(err, os.ErrNotExist)
	})
}
