package sqlite

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/fence-sidecar/fence-sidecar/claims"
)

func happen(t *testing.T, s *Store, name string) {
	t.Helper()
	r := record(name)
	w := claims.Write{Next: r, Event: &claims.Event{Key: r.Key, State: r.State}}
	if _, err := s.Swap(t.Context(), claims.Condition{}, w); err != nil {
		t.Fatal(err)
	}
}

// TestEventOfANewerVersion is missed by nobody: who reads on stops at it, and who tells leaves it to those who can.
func TestEventOfANewerVersion(t *testing.T) {
	for column, text := range map[string]string{"outcome": "maybe", "state": "martian", "was": "martian"} {
		s := openAt(t, migrated(t), newMachine())
		for _, name := range []string{"a", "b", "c"} {
			happen(t, s, name)
		}
		spoil(t, s, `UPDATE events SET `+column+` = ? WHERE id = 2`, text)
		if list, err := s.Events(t.Context(), "", 1); err != nil || len(list) != 1 {
			t.Errorf("before it: %v, %v", list, err)
		}
		if list, err := s.Events(t.Context(), "1", 10); !errors.Is(err, claims.ErrUnreadable) || list != nil {
			t.Errorf("%s = %s: %v, %v", column, text, list, err)
		}
		list, err := s.Untold(t.Context(), claims.Sweep{Limit: 10, Base: time.Minute})
		if err != nil || len(list) != 2 || list[0].Key != key("a") || list[1].Key != key("c") {
			t.Errorf("untold with %s = %s: %v, %v", column, text, list, err)
		}
	}
}

// TestEventIDIsNeverGivenAgain: also when all are dropped, and to the next process.
func TestEventIDIsNeverGivenAgain(t *testing.T) {
	path, m := migrated(t), newMachine()
	s := openAt(t, path, m)
	happen(t, s, "a")
	happen(t, s, "b")
	if n, err := s.Prune(t.Context(), m.Wall().Add(time.Hour), 10); err != nil || n != 2 {
		t.Fatalf("pruned %d, %v", n, err)
	}
	s.Close()
	s = openAt(t, path, m)
	if last, err := s.LastEvent(t.Context()); err != nil || last != "2" {
		t.Errorf("last: %q, %v", last, err)
	}
	happen(t, s, "c")
	if list, err := s.Events(t.Context(), "2", 10); err != nil || len(list) != 1 || list[0].ID != "3" {
		t.Errorf("after 2: %v, %v", list, err)
	}
}

// TestDeadMembersAreForgotten: instances come and go; what they said does not pile up.
func TestDeadMembersAreForgotten(t *testing.T) {
	m := newMachine()
	s := openAt(t, migrated(t), m)
	for _, name := range []string{"1", "2", "3"} {
		l, err := s.Acquire(t.Context(), claims.InstancePrefix+name, "holder", time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Announce(t.Context(), claims.Member{Guard: l.Guard}); err != nil {
			t.Fatal(err)
		}
		m.Advance(40 * time.Second)
	}
	var kept string
	err := s.read(t.Context(), func(t *tx) error { return t.row(`SELECT group_concat(scope) FROM members`).Scan(&kept) })
	if want := "@instance:2,@instance:3"; err != nil || kept != want {
		t.Errorf("kept: %s, %v, want %s", kept, err, want)
	}
}

// TestUnreadableMemberHidesNobody: it is not known what it can read, so that nobody may rely on the others alone.
func TestUnreadableMemberHidesNobody(t *testing.T) {
	s := openAt(t, migrated(t), newMachine())
	l, err := s.Acquire(t.Context(), claims.InstancePrefix+"1", "holder", time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Announce(t.Context(), claims.Member{Guard: l.Guard, Keys: []string{"k1"}}); err != nil {
		t.Fatal(err)
	}
	spoil(t, s, `UPDATE members SET keys = '{"later":1}'`)
	if list, err := s.Members(t.Context()); err == nil || list != nil {
		t.Errorf("%v, %v", list, err)
	}
}

// TestSweepsUseTheirIndex: what is due is found among the few that may be, not among all calls and events ever.
func TestSweepsUseTheirIndex(t *testing.T) {
	s := openAt(t, migrated(t), newMachine())
	for index, query := range map[string]string{
		"calls_due":     selectDue + "true" + dueOrder,
		"events_untold": selectEvent + untoldOf + "true" + untoldOrder,
		"events_age":    oldEvents,
	} {
		var plan strings.Builder
		err := s.read(t.Context(), func(t *tx) error {
			rows, err := t.query("EXPLAIN QUERY PLAN "+query, 1, 1)
			if err != nil {
				return err
			}
			defer rows.Close()
			for rows.Next() {
				var a, b, c int
				var line string
				if err := rows.Scan(&a, &b, &c, &line); err != nil {
					return err
				}
				plan.WriteString(line + "\n")
			}
			return rows.Err()
		})
		if err != nil || !strings.Contains(plan.String(), index) {
			t.Errorf("%s: %v\n%s", index, err, plan.String())
		}
	}
}
