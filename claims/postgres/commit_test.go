package postgres

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/fence-sidecar/fence-sidecar/claims"
	"github.com/fence-sidecar/fence-sidecar/claims/postgres/pgtest"
)

func wantPerhaps(t *testing.T, err error) {
	t.Helper()
	if err == nil || claims.Refused(err) || !strings.Contains(err.Error(), "perhaps applied") {
		t.Errorf("%v, want perhaps applied", err)
	}
}

// TestLostAnswers: a commit without an answer is perhaps applied, and Get tells.
func TestLostAnswers(t *testing.T) {
	server := pgtest.Shared(t)
	_, schema := server.Schema(t)
	cfg := migrate(t, server.URL(), schema)
	proxy := pgtest.NewProxy(t, server.Addr())
	cfg.URL = proxy.URL()
	s := open(t, cfg)
	for _, c := range []struct {
		action  pgtest.Action
		applied bool
	}{{pgtest.DropAnswer, true}, {pgtest.DropRequest, false}} {
		r := record("c")
		catch := proxy.OnCommit(1, c.action)
		_, err := s.Swap(t.Context(), claims.Condition{}, claims.Write{Next: r, Version: 0})
		<-catch.Done()
		wantPerhaps(t, err)
		v := get(t, s, r.Key)
		if v.Record.Exists() != c.applied || c.applied && v.Record.Claim != r.Claim {
			t.Errorf("applied: %v, want %v", v.Record.Exists(), c.applied)
		}
		alter(t, Config{URL: server.URL(), Schema: schema}, `DELETE FROM {schema}.calls`)

		scope := "shop:" + map[bool]string{true: "a", false: "b"}[c.applied]
		catch = proxy.OnCommit(1, c.action)
		_, err = s.Acquire(t.Context(), scope, "a", time.Minute)
		<-catch.Done()
		wantPerhaps(t, err)
		l, err := s.State(t.Context(), scope)
		if err != nil || (l.Status == claims.LeaseLive) != c.applied {
			t.Errorf("%+v, %v; want live: %v", l, err, c.applied)
		}
	}
}

// TestErrorsBeforeTheCommit say that nothing was applied, and count as no refusal either.
func TestErrorsBeforeTheCommit(t *testing.T) {
	server := pgtest.Shared(t)
	_, schema := server.Schema(t)
	cfg := migrate(t, server.URL(), schema)
	proxy := pgtest.NewProxy(t, server.Addr())
	cfg.URL = proxy.URL()
	s := open(t, cfg)
	put(t, s, record("c"))
	proxy.Cut()
	_, err := s.Swap(t.Context(), claims.Condition{}, claims.Write{Next: record("d")})
	if err == nil || claims.Refused(err) || !strings.Contains(err.Error(), "not applied") || !Unavailable(err) {
		t.Errorf("without a server: %v", err)
	}
	ok(t, proxy.Heal())
	put(t, s, record("d"))
	block(t, Config{URL: server.URL(), Schema: schema}, `SELECT 1 FROM {schema}.calls FOR UPDATE`)
	_, err = s.Swap(t.Context(), claims.Condition{}, claims.Write{Version: 1, Next: record("d")})
	if err == nil || claims.Refused(err) || !strings.Contains(err.Error(), "not applied") {
		t.Errorf("behind a lock: %v", err)
	}
}

// waitingCommit is a write whose commit waits for a standby that is frozen.
func waitingCommit(t *testing.T) (*pgtest.Pair, *Store, <-chan error) {
	t.Helper()
	pair := pgtest.NewPair(t, pgtest.PairOptions{Synchronous: true, Conf: map[string]string{"wal_sender_timeout": "0"}})
	cfg := migrate(t, pair.A.URL(), "fence")
	cfg.MayLose = false
	s := open(t, cfg)
	ok(t, pair.B.Freeze())
	t.Cleanup(func() { pair.B.Thaw() })
	result := make(chan error, 1)
	go func() {
		_, err := s.Swap(t.Context(), claims.Condition{}, claims.Write{Next: record("c"), Event: eventOf("c")})
		result <- err
	}()
	ok(t, pair.A.Wait(t.Context(), `select count(*) = 1 from pg_stat_activity where wait_event = 'SyncRep'`))
	return pair, s, result
}

// TestCancelledSynchronousWait: the server answers such a commit with success and a warning, though no standby has it. Its event is not
// returned before one has it: a promotion that is proved lossless may lose it, and give out its place again.
func TestCancelledSynchronousWait(t *testing.T) {
	pair, s, result := waitingCommit(t)
	ok(t, pair.A.Exec(t.Context(), `select pg_cancel_backend(pid) from pg_stat_activity where wait_event = 'SyncRep'`))
	wantPerhaps(t, <-result)
	if v := get(t, s, key("c")); !v.Record.Exists() {
		t.Error("the commit is not there at all")
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if list, err := s.Events(ctx, "", 10); err == nil {
		t.Errorf("returned without a standby: %+v", list)
	}
	if id, err := s.LastEvent(ctx); err == nil {
		t.Errorf("returned without a standby: %s", id)
	}
	ok(t, pair.B.Thaw())
	wantEvents(t, s, "", "c")
}

// TestNamesRemovedDuringACommit: the wait ends as if the standby had confirmed.
func TestNamesRemovedDuringACommit(t *testing.T) {
	pair, s, result := waitingCommit(t)
	ok(t, pair.A.Set(t.Context(), "synchronous_standby_names", ""))
	if err := <-result; err == nil {
		t.Error("acknowledged though nobody confirmed")
	}
	_, err := s.Swap(t.Context(), claims.Condition{}, claims.Write{Next: record("d")})
	if e, ok := errors.AsType[*SettingError](err); !ok || e.Setting != "synchronous_standby_names" {
		t.Errorf("a write without a standby: %v", err)
	}
}

// TestReadOnlyServer: its connections are thrown away, and service returns by itself.
func TestReadOnlyServer(t *testing.T) {
	server := pgtest.New(t, pgtest.Options{})
	cfg := migrate(t, server.URL(), "fence")
	s := open(t, cfg)
	put(t, s, record("before"))
	ok(t, server.Set(t.Context(), "default_transaction_read_only", "on"))
	var err error
	eventually(t, func() bool { // over a connection of before
		_, err = s.Get(t.Context(), key("before"), claims.Guard{})
		return err != nil
	})
	eventually(t, func() bool {
		_, err = s.Swap(t.Context(), claims.Condition{}, claims.Write{Next: record(time.Now().String())})
		return err != nil
	})
	if claims.Refused(err) || !strings.Contains(err.Error(), "not applied") {
		t.Errorf("on a read-only server: %v", err)
	}
	ok(t, server.Exec(t.Context(), "alter system reset default_transaction_read_only"))
	ok(t, server.Exec(t.Context(), "select pg_reload_conf()"))
	start := time.Now()
	eventually(t, func() bool {
		_, err := s.Swap(t.Context(), claims.Condition{}, claims.Write{Next: record("after")})
		return err == nil
	})
	if d := time.Since(start); d > 5*time.Second {
		t.Errorf("service returned after %s", d)
	}
}

// TestRestart: a server that ends all sessions comes back to a store that was not restarted.
func TestRestart(t *testing.T) {
	server := pgtest.New(t, pgtest.Options{})
	s := open(t, migrate(t, server.URL(), "fence"))
	put(t, s, record("before"))
	for _, mode := range []pgtest.Mode{pgtest.Fast, pgtest.Immediate} {
		ok(t, server.Stop(t.Context(), mode))
		if _, err := s.Get(t.Context(), key("before"), claims.Guard{}); err == nil || !Unavailable(err) {
			t.Errorf("of a stopped server: %v", err)
		}
		ok(t, server.Start(t.Context()))
		start := time.Now()
		back(t, s)
		if d := time.Since(start); d > 5*time.Second {
			t.Errorf("service returned after %s", d)
		}
		if v := get(t, s, key("before")); !v.Record.Exists() || v.Era != 0 {
			t.Errorf("after a restart: %+v", v)
		}
	}
}

// TestTransactionsDoNotOutliveTheirSidecar: one that stands still between its round trips loses its locks.
func TestTransactionsDoNotOutliveTheirSidecar(t *testing.T) {
	server := pgtest.Shared(t)
	_, schema := server.Schema(t)
	cfg := migrate(t, server.URL(), schema)
	s := open(t, cfg)
	other := open(t, cfg)
	l, err := s.Acquire(t.Context(), "shop:a", "a", time.Second)
	ok(t, err)
	proxy := pgtest.NewProxy(t, server.Addr())
	frozen := cfg
	frozen.URL = proxy.URL()
	f := open(t, frozen)
	proxy.OnCommit(1, pgtest.HoldRequest)
	result := make(chan error, 1)
	go func() {
		_, err := f.Swap(t.Context(), claims.Condition{Guard: l.Guard}, claims.Write{Next: record("c")})
		result <- err
	}()
	eventually(t, func() bool {
		_, err := other.Acquire(t.Context(), "shop:a", "b", time.Second)
		return err == nil
	})
	if err := <-result; err == nil || claims.Refused(err) {
		t.Errorf("the frozen one's write: %v", err)
	}
	if v := get(t, s, key("c")); v.Record.Exists() {
		t.Error("a claim was committed after the lease was taken over")
	}
}
