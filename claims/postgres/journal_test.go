package postgres

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fence-sidecar/fence-sidecar/claims"
	"github.com/fence-sidecar/fence-sidecar/claims/postgres/pgtest"
)

// happen writes a record with an event.
func happen(t *testing.T, s *Store, name string) {
	t.Helper()
	_, err := s.Swap(t.Context(), claims.Condition{}, claims.Write{Next: record(name), Event: eventOf(name)})
	ok(t, err)
}

func eventOf(name string) *claims.Event {
	return &claims.Event{Key: key(name), Revision: 1, Attempt: 1, From: claims.StateUnknown, State: claims.StateOpen}
}

// late is another sidecar's transaction that has written an event and not committed yet.
func late(t *testing.T, cfg Config, name string) *blocker {
	t.Helper()
	b := block(t, cfg, `SELECT 1`)
	_, err := b.tx.Exec(t.Context(), b.schema.sql(insertEvent), pgx.QueryExecModeExec,
		[]byte("shop"), []byte(name), 1, 1, "unknown", "open", "unknown", "", int64(1), int64(1))
	ok(t, err)
	return b
}

// wantEvents reads on from after, checks which calls' events come, and returns the last one's id.
func wantEvents(t *testing.T, s *Store, after string, want ...string) string {
	t.Helper()
	list, err := s.Events(t.Context(), after, 100)
	ok(t, err)
	var got []string
	for _, e := range list {
		got, after = append(got, e.Key.Call), e.ID
	}
	if !slices.Equal(got, want) {
		t.Errorf("events: %q, want %q", got, want)
	}
	return after
}

// TestLateCommitIsNotMissed: of two transactions, the one that wrote first commits last, and a reader comes between. The order of
// the numbers is that of the transactions or the other way round.
func TestLateCommitIsNotMissed(t *testing.T) {
	cfg := migrated(t)
	s := open(t, cfg)
	happen(t, s, "first")
	at := wantEvents(t, s, "", "first")
	slow := late(t, cfg, "slow")
	happen(t, s, "quick")
	at = wantEvents(t, s, at)
	if last, err := s.LastEvent(t.Context()); err != nil || last != at {
		t.Errorf("last event %q, %v, want %q", last, err, at)
	}
	list, err := s.Untold(t.Context(), claims.Sweep{Limit: 10, Base: time.Minute})
	if err != nil || len(list) != 2 {
		t.Errorf("to tell: %+v, %v, want both that are committed", list, err)
	}
	ok(t, slow.tx.Commit(t.Context()))
	at = wantEvents(t, s, at, "slow", "quick")

	idle := block(t, cfg, `SELECT pg_current_xact_id()`) // of an earlier transaction, but a later number
	happen(t, s, "quick2")
	at = wantEvents(t, s, at)
	_, err = idle.tx.Exec(t.Context(), idle.schema.sql(insertEvent), pgx.QueryExecModeExec,
		[]byte("shop"), []byte("slow2"), 1, 1, "unknown", "open", "unknown", "", int64(1), int64(1))
	ok(t, err)
	ok(t, idle.tx.Commit(t.Context()))
	at = wantEvents(t, s, at, "slow2", "quick2")

	block(t, cfg, `SELECT count(*) FROM {schema}.events`) // reads alone hold nothing back
	happen(t, s, "beside a reader")
	at = wantEvents(t, s, at, "beside a reader")
	gone := late(t, cfg, "gone")
	happen(t, s, "last")
	ok(t, gone.tx.Rollback(t.Context()))
	wantEvents(t, s, at, "last")
}

// TestReadersMissNothing: beside writers, and transactions that stay open for a while, each reader gets each event once.
func TestReadersMissNothing(t *testing.T) {
	cfg := migrated(t)
	s := open(t, cfg)
	var writers, readers sync.WaitGroup
	for w := range 4 {
		writers.Go(func() {
			for i := range 30 {
				name := fmt.Sprintf("%d:%d", w, i)
				if _, err := s.Swap(t.Context(), claims.Condition{}, claims.Write{Next: record(name), Event: eventOf(name)}); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for l := range 10 {
		b := late(t, cfg, fmt.Sprintf("late %d", l))
		wait := b.after(time.Duration(l)*20*time.Millisecond, b.tx.Commit)
		writers.Go(wait)
	}
	written := make(chan struct{})
	seen := make([][]string, 3)
	for r := range seen {
		readers.Go(func() {
			at, last := "", false
			for !last {
				select {
				case <-written:
					last = true
				default:
				}
				list, err := s.Events(t.Context(), at, 7)
				if err != nil {
					t.Error(err)
					return
				}
				for _, e := range list {
					seen[r], at = append(seen[r], e.Key.Call), e.ID
				}
				last = last && len(list) == 0
			}
		})
	}
	writers.Wait()
	close(written)
	readers.Wait()
	for r, names := range seen {
		slices.Sort(names)
		if n := len(slices.Compact(slices.Clone(names))); len(names) != 130 || n != 130 {
			t.Errorf("reader %d got %d events, %d different, want 130", r, len(names), n)
		}
	}
}

// TestPlacesAcrossALoss: on another server, ids of transactions begin anew, below those of the place that a reader stands at.
func TestPlacesAcrossALoss(t *testing.T) {
	cfg := migrated(t)
	s := open(t, cfg)
	happen(t, s, "before")
	p, err := parsePlace(wantEvents(t, s, "", "before"))
	ok(t, err)
	p.xid += 1000000 // as the server before gave it out
	alter(t, cfg, `UPDATE {schema}.events SET xid = $1`, p.xid)
	at := p.String()
	alter(t, cfg, `UPDATE {schema}.store SET system_id = 'another'`)
	if v := get(t, s, key("before")); v.Era != 1 {
		t.Fatalf("era %d", v.Era)
	}
	happen(t, s, "after")
	wantEvents(t, s, at, "after")
	if last, err := s.LastEvent(t.Context()); err != nil || !strings.HasPrefix(last, "1.") {
		t.Errorf("last event %q, %v", last, err)
	}
}

// TestEventsOfARestoredDump: ids of transactions of the server before mean nothing on one that has not come as far.
func TestEventsOfARestoredDump(t *testing.T) {
	cfg := migrated(t)
	s := open(t, cfg)
	happen(t, s, "before")
	alter(t, cfg, `UPDATE {schema}.events SET xid = 1::bigint << 60`)
	alter(t, cfg, `UPDATE {schema}.store SET system_id = 'another'`)
	last := func(call, at string) {
		t.Helper()
		if last, err := s.LastEvent(t.Context()); err != nil || last != at || at == "" {
			t.Errorf("last event %q, %v, want that of %s, %q", last, err, call, at)
		}
	}
	at := wantEvents(t, s, "", "before")
	last("before", at)
	slow := late(t, cfg, "slow") // holds back what is of the present era
	happen(t, s, "after")
	last("before", wantEvents(t, s, "", "before"))
	ok(t, slow.tx.Commit(t.Context()))
	wantEvents(t, s, at, "slow", "after")
	last("after", wantEvents(t, s, "", "before", "slow", "after"))
}

// TestPlacesAheadAreRefused: a reader that would wait until the ids have come as far is told instead.
func TestPlacesAheadAreRefused(t *testing.T) {
	cfg := migrated(t)
	s := open(t, cfg)
	happen(t, s, "c")
	at := wantEvents(t, s, "", "c")
	p, err := parsePlace(at)
	ok(t, err)
	for _, ahead := range []place{{p.era, p.xid + 1000000, p.seq}, {p.era + 1, 1, 1}} {
		if _, err := s.Events(t.Context(), ahead.String(), 1); !errors.Is(err, claims.ErrBadEvent) || !claims.Refused(err) {
			t.Errorf("after %s: %v", ahead, err)
		}
	}
	wantEvents(t, s, place{p.era, p.xid, p.seq + 1}.String())
}

// TestErasOfEvents: no event of an era is written after one of the next, whoever waits for whom.
func TestErasOfEvents(t *testing.T) {
	cfg := migrated(t)
	s := open(t, cfg)
	eras := func(want ...int64) {
		t.Helper()
		c, err := pgx.Connect(t.Context(), cfg.URL)
		ok(t, err)
		defer c.Close(t.Context())
		rows, err := c.Query(t.Context(), s.schema.sql(`SELECT era FROM {schema}.events ORDER BY seq`))
		ok(t, err)
		got, err := pgx.CollectRows(rows, pgx.RowTo[int64])
		if err != nil || !slices.Equal(got, want) {
			t.Errorf("eras %v, %v, want %v", got, err, want)
		}
	}
	waiting := func(n int) {
		t.Helper()
		ok(t, pgtest.Shared(t).Wait(t.Context(), `select count(*) = $1 from pg_locks where not granted`, n))
	}
	slow := late(t, cfg, "of the era before")
	declared := make(chan error, 1)
	go func() { declared <- s.DeclareLoss(t.Context()) }()
	waiting(1)
	ok(t, slow.tx.Commit(t.Context()))
	ok(t, <-declared)
	eras(0)

	next := block(t, cfg, `SELECT 1 FROM {schema}.store FOR UPDATE; UPDATE {schema}.store SET era = era + 1`)
	written := make(chan error, 1)
	go func() {
		_, err := s.Swap(context.WithoutCancel(t.Context()), claims.Condition{}, claims.Write{Next: record("c"), Event: eventOf("c")})
		written <- err
	}()
	waiting(1)
	ok(t, next.tx.Commit(t.Context()))
	ok(t, <-written)
	eras(0, declaredEras+2)
}

// TestTellersSkipWhatOthersTell: a row that another one has locked is left to it.
func TestTellersSkipWhatOthersTell(t *testing.T) {
	cfg := migrated(t)
	s := open(t, cfg)
	happen(t, s, "a")
	happen(t, s, "b")
	b := block(t, cfg, `SELECT 1 FROM {schema}.events WHERE call_key = 'a' FOR UPDATE`)
	sweep := claims.Sweep{Limit: 10, Base: time.Minute}
	list, err := s.Untold(t.Context(), sweep)
	if err != nil || len(list) != 1 || list[0].Key != key("b") {
		t.Errorf("beside another: %+v, %v", list, err)
	}
	ok(t, b.tx.Rollback(t.Context()))
	list, err = s.Untold(t.Context(), sweep)
	if err != nil || len(list) != 1 || list[0].Key != key("a") {
		t.Errorf("after it: %+v, %v", list, err)
	}
}

// TestUnreadableEvents: whoever reads on is stopped, as what is skipped would be missed; whoever tells leaves it to a newer version.
func TestUnreadableEvents(t *testing.T) {
	cfg := migrated(t)
	s := open(t, cfg)
	for i, column := range []string{"outcome", "state", "from_state"} {
		name := fmt.Sprint(i)
		happen(t, s, name)
		alter(t, cfg, `UPDATE {schema}.events SET `+column+` = 'martian' WHERE call_key = $1`, []byte(name))
		if _, err := s.Events(t.Context(), "", 10); !errors.Is(err, claims.ErrUnreadable) {
			t.Errorf("%s: %v", column, err)
		}
		if list, err := s.Untold(t.Context(), claims.Sweep{Limit: 10, Base: time.Minute}); err != nil || len(list) > 0 {
			t.Errorf("%s: to tell: %+v, %v", column, list, err)
		}
		alter(t, cfg, `DELETE FROM {schema}.events`)
	}
}
