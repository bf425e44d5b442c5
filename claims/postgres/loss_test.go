package postgres

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/fence-sidecar/fence-sidecar/claims"
	"github.com/fence-sidecar/fence-sidecar/claims/postgres/pgtest"
)

// hosts is a URL that leads to whichever of the servers takes writes.
func hosts(servers ...*pgtest.Server) string {
	list := ""
	for _, s := range servers {
		if list != "" {
			list += ","
		}
		list += s.Addr()
	}
	return "postgres://postgres@" + list + "/postgres?sslmode=disable"
}

const shortLease = 2 * time.Second

func failing(t *testing.T, cfg Config) Config {
	cfg.MaxLease, cfg.Margin, cfg.Log = shortLease, 100*time.Millisecond, slog.New(slog.DiscardHandler)
	return cfg
}

func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func put(t *testing.T, s *Store, r claims.Record) claims.Record {
	t.Helper()
	out, err := s.Swap(t.Context(), claims.Condition{}, claims.Write{Version: r.Version, Next: r})
	if err != nil {
		t.Fatal(err)
	}
	return out.Records[0]
}

func get(t *testing.T, s *Store, k claims.Key) claims.View {
	t.Helper()
	v, err := s.Get(t.Context(), k, claims.Guard{})
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// back waits until the store serves again, and says how long that took.
func back(t *testing.T, s *Store) time.Duration {
	t.Helper()
	start := time.Now()
	for {
		_, err := s.Get(t.Context(), key("any"), claims.Guard{})
		if err == nil {
			return time.Since(start)
		}
		if time.Since(start) > time.Minute {
			t.Fatalf("not back after a minute: %v", err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// TestLossyFailover: a standby that was behind is promoted. What it lacks is told of, nothing is granted before the lost
// leases have run out, and no lost token is granted again.
func TestLossyFailover(t *testing.T) {
	pair := pgtest.NewPair(t, pgtest.PairOptions{})
	cfg := failing(t, migrate(t, hosts(pair.A, pair.B), "fence"))
	s := open(t, cfg)
	other := open(t, cfg)
	kept, err := s.Acquire(t.Context(), "shop:kept", "a", shortLease)
	ok(t, err)
	r := put(t, s, record("kept"))
	ok(t, pair.CatchUp(t.Context()))
	pair.StopReplication()
	lost, err := s.Acquire(t.Context(), "shop:lost", "a", shortLease)
	ok(t, err)
	put(t, s, record("lost"))
	put(t, other, record("lost too"))
	ok(t, pair.A.Kill())
	ok(t, pair.Promote(t.Context()))

	t.Logf("reads again %s after the promotion", back(t, s))
	v := get(t, s, key("lost"))
	if v.Era != 1 || v.Loss == nil || v.Record.Exists() || v.Quarantine <= 0 || v.Quarantine > shortLease+time.Second {
		t.Fatalf("the lost record's view: %+v", v)
	}
	if got := get(t, s, r.Key); got.Loss == nil || got.Loss.At != v.Loss.At || !got.Loss.From.Store.Before(got.Record.Created.Store) {
		t.Errorf("the kept record's view: %+v", got)
	}
	for _, s := range []*Store{s, other} {
		_, err = s.Acquire(t.Context(), "shop:lost", "b", shortLease)
		if _, ok := errors.AsType[*claims.QuarantineError](err); !ok {
			t.Errorf("acquire in the quarantine: %v", err)
		}
	}
	if _, err := s.Renew(t.Context(), kept.Guard, shortLease); err == nil {
		t.Error("renewed in the quarantine")
	}
	if v := get(t, other, key("lost")); v.Era != 1 {
		t.Errorf("one loss was noticed %d times", v.Era)
	}
	for {
		l, err := s.Acquire(t.Context(), "shop:lost", "b", shortLease)
		if _, waits := errors.AsType[*claims.QuarantineError](err); waits {
			time.Sleep(50 * time.Millisecond)
			continue
		}
		ok(t, err)
		if l.Token != lost.Token+claims.TokenJump {
			t.Errorf("after the lost token %d comes %d", lost.Token, l.Token)
		}
		break
	}
}

// TestProvenFailover: the promoted standby confirmed every commit. Nothing is lost, nobody waits.
func TestProvenFailover(t *testing.T) {
	pair := pgtest.NewPair(t, pgtest.PairOptions{Synchronous: true})
	cfg := failing(t, migrate(t, hosts(pair.A, pair.B), "fence"))
	cfg.MayLose, cfg.MaxLease = false, time.Hour
	s := open(t, cfg)
	l, err := s.Acquire(t.Context(), "shop:kept", "a", time.Hour)
	ok(t, err)
	written := load(t, s, 8)
	time.Sleep(500 * time.Millisecond)
	ok(t, pair.A.Kill())
	ok(t, pair.Promote(t.Context()))
	start := time.Now()
	acknowledged := written(func() bool {
		_, err := s.Renew(t.Context(), l.Guard, time.Hour)
		return err == nil || time.Since(start) > time.Minute
	})
	t.Logf("%d writes acknowledged; writes again %s after the promotion", len(acknowledged), time.Since(start))
	if took := time.Since(start); took > 5*time.Second {
		t.Errorf("service came back after %s", took)
	}
	for _, k := range acknowledged {
		if v := get(t, s, k); !v.Record.Exists() {
			t.Fatalf("%s was acknowledged and is gone", k)
		}
	}
	v := get(t, s, key("any"))
	if v.Era != 0 || v.Loss != nil || v.Quarantine != 0 {
		t.Errorf("a proven failover is taken for a loss: %+v", v)
	}
	st, err := s.Status(t.Context())
	ok(t, err)
	if !st.Unproven || len(st.Confirming) != 0 || st.Timeline != 2 {
		t.Errorf("status: %+v", st)
	}
	// with a standby again, the next one is proved too
	ok(t, pair.B.Set(t.Context(), "synchronous_standby_names", "ANY 2 (x, y)"))
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	if _, err := s.Swap(ctx, claims.Condition{}, claims.Write{Next: record("waits")}); err == nil {
		t.Error("a write was acknowledged without the standbys that are listed now")
	}
}

// TestStaleProof: an old copy of the standby has its name, and is promoted like it. What is missing there, nobody can tell.
func TestStaleProof(t *testing.T) {
	pair := pgtest.NewPair(t, pgtest.PairOptions{Synchronous: true})
	cfg := failing(t, migrate(t, hosts(pair.A, pair.B), "fence"))
	cfg.MayLose = false
	s := open(t, cfg)
	put(t, s, record("kept"))
	ok(t, pair.A.Kill())
	ok(t, pair.Promote(t.Context()))
	s.Close()
	cfg.Clock = func(server time.Time) claims.Now {
		later := server.Add(freshness)
		return claims.Now{Store: later, Wall: later}
	}
	_, err := Open(t.Context(), cfg)
	wantSetting(t, err, "synchronous_standby_names")
	cfg.Clock = nil
	open(t, cfg) // of the very same server, met in time
}

// TestUnprovenFailover: the promoted server is none of those that confirmed. Without MayLose nothing is written until it has
// a standby of its own, and then the loss is.
func TestUnprovenFailover(t *testing.T) {
	pair := pgtest.NewPair(t, pgtest.PairOptions{Synchronous: true})
	cfg := failing(t, migrate(t, hosts(pair.A, pair.B), "fence"))
	cfg.MayLose = false
	s := open(t, cfg)
	put(t, s, record("kept"))
	alter(t, Config{URL: pair.A.URL(), Schema: "fence"}, `UPDATE {schema}.store SET standbys = '["c"]'`)
	ok(t, pair.A.Kill())
	ok(t, pair.Promote(t.Context()))
	_, err := s.Get(t.Context(), key("kept"), claims.Guard{})
	wantSetting(t, err, "synchronous_standby_names")
	_, err = Open(t.Context(), cfg)
	wantSetting(t, err, "synchronous_standby_names")
	ok(t, pair.Rejoin(t.Context()))
	back(t, s)
	if v := get(t, s, key("kept")); v.Era != 1 || v.Loss == nil || v.Quarantine == 0 {
		t.Errorf("after the rejoin: %+v", v)
	}
	put(t, s, record("later"))
}

// load writes until the function that it returns is called, which first waits for done, and returns what was acknowledged.
func load(t *testing.T, s *Store, writers int) func(done func() bool) []claims.Key {
	ctx, stop := context.WithCancel(t.Context())
	results := make(chan []claims.Key)
	for w := range writers {
		go func() {
			var acknowledged []claims.Key
			for i := 0; ctx.Err() == nil; i++ {
				r := record("load " + string(rune('a'+w)) + time.Now().String())
				if _, err := s.Swap(ctx, claims.Condition{}, claims.Write{Next: r}); err == nil {
					acknowledged = append(acknowledged, r.Key)
				}
			}
			results <- acknowledged
		}()
	}
	return func(done func() bool) (all []claims.Key) {
		for !done() {
			time.Sleep(10 * time.Millisecond)
		}
		stop()
		for range writers {
			all = append(all, <-results...)
		}
		return all
	}
}

// TestOlderCopy: the server is the same by name, but older than what this process saw committed.
func TestOlderCopy(t *testing.T) {
	server := pgtest.New(t, pgtest.Options{})
	cfg := failing(t, migrate(t, server.URL(), "fence"))
	s := open(t, cfg)
	other := open(t, cfg)
	put(t, s, record("kept"))
	put(t, other, record("kept too"))
	backup, err := server.Backup(t.Context())
	ok(t, err)
	put(t, s, record("lost"))
	ok(t, server.Kill())
	ok(t, server.Start(t.Context()))
	back(t, s)
	if v := get(t, s, key("lost")); v.Era != 0 || !v.Record.Exists() {
		t.Fatalf("a crash is taken for a loss: %+v", v)
	}
	put(t, s, record("lost, too"))
	ok(t, server.Restore(t.Context(), backup))
	back(t, s)
	v := get(t, s, key("lost"))
	if v.Era != 1 || v.Loss == nil || v.Quarantine == 0 {
		t.Errorf("an older copy is not noticed: %+v", v)
	}
	put(t, other, record("later"))
	if v := get(t, other, key("lost")); v.Era != 1 {
		t.Errorf("one loss was noticed %d times", v.Era)
	}
	ok(t, server.Restore(t.Context(), backup)) // of era 0: what was granted in era 1 must not be granted again
	back(t, s)
	if v := get(t, s, key("lost")); v.Era != 2 {
		t.Errorf("the older copy again makes era %d", v.Era)
	}
}

// TestClone: another system id is another server's data.
func TestClone(t *testing.T) {
	server := pgtest.New(t, pgtest.Options{})
	cfg := failing(t, migrate(t, server.URL(), "fence"))
	s := open(t, cfg)
	put(t, s, record("kept"))
	backup, err := server.Backup(t.Context())
	ok(t, err)
	put(t, s, record("lost"))
	s.Close()
	ok(t, server.RestoreNewTimeline(t.Context(), backup))
	s = open(t, cfg) // one that knows only the store's row
	if v := get(t, s, key("lost")); v.Era != 1 || v.Loss == nil {
		t.Errorf("a new timeline is not noticed: %+v", v)
	}
}

// TestOlderCopyOfLeases: a put-back copy is noticed by what a process knows of leases alone, a grant or a renewal that is missing,
// before it grants the same token again. How old the copy is nobody knows.
func TestOlderCopyOfLeases(t *testing.T) {
	server := pgtest.New(t, pgtest.Options{})
	cfg := failing(t, migrate(t, server.URL(), "fence"))
	cfg.MaxLease = time.Hour
	s := open(t, cfg)
	kept, err := s.Acquire(t.Context(), "shop:kept", "a", time.Minute)
	ok(t, err)
	backup, err := server.Backup(t.Context())
	ok(t, err)
	for name, write := range map[string]func() error{
		"grant":   func() error { _, err := s.Acquire(t.Context(), "shop:lost", "a", time.Minute); return err },
		"renewal": func() error { _, err := s.Renew(t.Context(), kept.Guard, 30*time.Minute); return err },
	} {
		t.Run(name, func(t *testing.T) {
			s = open(t, cfg) // knows nothing of what came before
			ok(t, server.Restore(t.Context(), backup))
			back(t, s)
			ok(t, write())
			ok(t, server.Restore(t.Context(), backup))
			back(t, s)
			_, err := s.Acquire(t.Context(), "shop:lost", "b", time.Minute)
			if _, waits := errors.AsType[*claims.QuarantineError](err); !waits {
				t.Fatalf("acquire after the copy was put back: %v", err)
			}
			v := get(t, s, key("any"))
			if v.Loss == nil || v.Loss.At.Store.Sub(v.Loss.From.Store) < claims.LossWatch {
				t.Errorf("the loss is dated %+v", v.Loss)
			}
		})
	}
}

// TestOldPrimaryComesBack: a process that has seen the promotion does not speak to the old primary, which takes writes and is the
// first host of its URL; it finds no loss there either.
func TestOldPrimaryComesBack(t *testing.T) {
	pair := pgtest.NewPair(t, pgtest.PairOptions{})
	cfg := failing(t, migrate(t, hosts(pair.A, pair.B), "fence"))
	s := open(t, cfg)
	put(t, s, record("kept"))
	ok(t, pair.A.Kill())
	ok(t, pair.Promote(t.Context()))
	back(t, s)
	if v := get(t, s, key("kept")); v.Era != 1 {
		t.Fatalf("the failover is era %d", v.Era)
	}
	put(t, s, record("new"))
	ok(t, pair.A.Start(t.Context()))
	for range 20 {
		s.calls.Reset() // every connection anew: the first host takes writes again
		if v := get(t, s, key("new")); !v.Record.Exists() || v.Era != 1 {
			t.Fatalf("the old primary was asked: %+v", v)
		}
	}
}

// TestDeclareLoss: whoever goes back to an old primary on purpose says so. Tokens do not meet those of the eras that nobody here knows
// of.
func TestDeclareLoss(t *testing.T) {
	pair := pgtest.NewPair(t, pgtest.PairOptions{})
	cfg := failing(t, migrate(t, hosts(pair.A, pair.B), "fence"))
	s := open(t, cfg)
	first, err := s.Acquire(t.Context(), "shop:a", "a", shortLease)
	ok(t, err)
	ok(t, pair.CatchUp(t.Context()))
	ok(t, pair.A.Kill())
	ok(t, pair.Promote(t.Context()))
	back(t, s)
	there := acquire(t, s, "shop:a")
	s.Close()
	ok(t, pair.B.Kill())
	ok(t, pair.A.Start(t.Context()))
	s = open(t, cfg) // knows of nothing
	if v := get(t, s, key("any")); v.Era != 0 {
		t.Fatalf("era %d", v.Era)
	}
	ok(t, s.DeclareLoss(t.Context()))
	v := get(t, s, key("any"))
	if v.Loss == nil || v.Quarantine <= 0 || v.Loss.At.Store.Sub(v.Loss.From.Store) < claims.LossWatch {
		t.Errorf("after the word: %+v", v)
	}
	if again := acquire(t, s, "shop:a"); again.Token <= there.Token || again.Token <= first.Token {
		t.Errorf("token %d after %d there and %d before", again.Token, there.Token, first.Token)
	}
}

// acquire waits for the end of a quarantine.
func acquire(t *testing.T, s *Store, scope string) claims.Lease {
	t.Helper()
	for {
		l, err := s.Acquire(t.Context(), scope, "b", shortLease)
		if _, waits := errors.AsType[*claims.QuarantineError](err); waits {
			time.Sleep(50 * time.Millisecond)
			continue
		}
		ok(t, err)
		return l
	}
}
