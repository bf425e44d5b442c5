package keys_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"github.com/fence-sidecar/fence-sidecar/claims"
	"github.com/fence-sidecar/fence-sidecar/claims/claimstest"
	"github.com/fence-sidecar/fence-sidecar/claims/keys"
	"github.com/fence-sidecar/fence-sidecar/claims/memory"
	"github.com/fence-sidecar/fence-sidecar/claims/postgres"
	"github.com/fence-sidecar/fence-sidecar/claims/postgres/pgtest"
	"github.com/fence-sidecar/fence-sidecar/claims/sqlite"
)

func TestMain(m *testing.M) { os.Exit(pgtest.Run(m)) }

// TestSealedStoreKeepsTheRules: whoever works with a sealed store does not see that it is one.
func TestSealedStoreKeepsTheRules(t *testing.T) {
	ring := newRing(t, newSet(t))
	claimstest.Run(t, func(t *testing.T) claimstest.Harness {
		clock := claimstest.NewClock()
		s := memory.New(memory.Config{Now: clock.Now})
		t.Cleanup(func() { s.Close() })
		return claimstest.Harness{
			Backend: keys.Sealed(s, ring), Advance: clock.Advance, StepWall: clock.StepWall, Spoil: s.Spoil, Fill: s.Fill,
			Lose: func() time.Duration {
				from := clock.Now()
				from.Store, from.Wall = from.Store.Add(-time.Minute), from.Wall.Add(-time.Minute)
				s.Lose(from, time.Minute)
				return time.Minute
			},
		}
	})
}

// secret stands in every part of an answer that is sealed.
const secret = "pm_card_4242-kept-from-readers"

// answered is a call whose answers hold the secret in header and body, of the record and of evidence.
func answered(call string) claims.Record {
	answer := &claims.Answer{Status: 200, Header: []claims.Field{{Name: "X-Card", Value: secret}}, Body: []byte(`{"card":"` + secret + `"}`)}
	return claims.Record{
		Key: claims.Key{Tenant: "shop", Call: call}, State: claims.StateSucceeded, Revision: 1, Attempt: 1, Claim: claims.NewClaimID(),
		Answer: answer, Evidence: []claims.Evidence{{Revision: 1, Attempt: 1, Answer: answer.Clone(), Read: true}},
	}
}

func put(t *testing.T, b claims.Backend, r claims.Record) claims.Record {
	t.Helper()
	s, err := b.Swap(t.Context(), claims.Condition{}, claims.Write{Version: r.Version, Next: r})
	ok(t, err)
	return s.Records[0]
}

func get(t *testing.T, b claims.Backend, key claims.Key) claims.Record {
	t.Helper()
	v, err := b.Get(t.Context(), key, claims.Guard{})
	ok(t, err)
	return v.Record
}

// roundTrip writes twice and wants to read what it wrote.
func roundTrip(t *testing.T, b claims.Backend) {
	t.Helper()
	want := answered("c")
	given := want.Clone()
	r := put(t, b, put(t, b, given))
	if d := cmp.Diff(want.Answer, given.Answer); d != "" {
		t.Errorf("what was given to be written was changed: %s", d)
	}
	for name, got := range map[string]claims.Record{"as written": r, "as read": get(t, b, want.Key)} {
		if d := cmp.Diff([]*claims.Answer{want.Answer, want.Answer}, []*claims.Answer{got.Answer, got.Evidence[0].Answer}); d != "" {
			t.Errorf("%s: %s", name, d)
		}
	}
}

// TestNothingToReadInAFile looks for an answer's text in the bytes of a SQLite store, and finds it where nothing is sealed.
func TestNothingToReadInAFile(t *testing.T) {
	for name, wrap := range map[string]func(claims.Backend) claims.Backend{
		"sealed": func(b claims.Backend) claims.Backend { return keys.Sealed(b, newRing(t, newSet(t))) },
		"plain":  func(b claims.Backend) claims.Backend { return b },
	} {
		dir := t.TempDir()
		path := filepath.Join(dir, "store.db")
		_, err := sqlite.Migrate(t.Context(), path)
		ok(t, err)
		s, err := sqlite.Open(t.Context(), sqlite.Config{Path: path, AllowTmpfs: true})
		ok(t, err)
		t.Cleanup(func() { s.Close() })
		roundTrip(t, wrap(s))
		var all []byte // with the write-ahead log beside the file
		files, err := filepath.Glob(filepath.Join(dir, "*"))
		ok(t, err)
		for _, f := range files {
			b, err := os.ReadFile(f)
			ok(t, err)
			all = append(all, b...)
		}
		if found := bytes.Contains(all, []byte(secret)); found != (name == "plain") || !bytes.Contains(all, []byte("succeeded")) {
			t.Errorf("%s: found %v in %d files with %d bytes", name, found, len(files), len(all))
		}
	}
}

// TestNothingToReadInARow does the same with all rows of a PostgreSQL schema.
func TestNothingToReadInARow(t *testing.T) {
	url, schema := pgtest.Shared(t).Schema(t)
	_, err := postgres.Migrate(t.Context(), postgres.MigrateConfig{URL: url, Schema: schema})
	ok(t, err)
	s, err := postgres.Open(t.Context(), postgres.Config{URL: url, Schema: schema, MayLose: true})
	ok(t, err)
	t.Cleanup(func() { s.Close() })
	rows := func() string {
		c, err := pgx.Connect(t.Context(), url)
		ok(t, err)
		defer c.Close(context.WithoutCancel(t.Context()))
		var all strings.Builder
		for _, table := range []string{"calls", "answers"} {
			var text string
			// bytea columns as text: in hex, whatever the session says
			sql := `SELECT string_agg(encode(convert_to(t::text, 'UTF8'), 'hex'), ' ') FROM ` + pgx.Identifier{schema, table}.Sanitize() + ` t`
			if table == "answers" {
				sql = `SELECT string_agg(encode(body, 'hex') || encode(convert_to(coalesce(header, ''), 'UTF8'), 'hex'), ' ') FROM ` + pgx.Identifier{schema, table}.Sanitize()
			}
			ok(t, c.QueryRow(t.Context(), sql).Scan(&text))
			all.WriteString(text)
		}
		return all.String()
	}
	const hexSecret = "706d5f636172645f343234322d6b6570742d66726f6d2d72656164657273"
	roundTrip(t, keys.Sealed(s, newRing(t, newSet(t))))
	if strings.Contains(rows(), hexSecret) {
		t.Error("an answer's text is in a row")
	}
	put(t, s, answered("plain"))
	if !strings.Contains(rows(), hexSecret) {
		t.Error("a plain answer is not found: the test looks at nothing")
	}
}

// TestRotatedStore: an answer of before a rotation is read; a later one is not by an older ring.
func TestRotatedStore(t *testing.T) {
	s := newSet(t)
	plain := memory.New(memory.Config{})
	older, newer := keys.Sealed(plain, newRing(t, s)), keys.Sealed(plain, newRing(t, promoted(t, added(t, s))))
	put(t, older, answered("b"))
	put(t, newer, answered("c"))
	for _, call := range []string{"b", "c"} {
		if r := get(t, newer, claims.Key{Tenant: "shop", Call: call}); string(r.Answer.Body) != string(answered(call).Answer.Body) {
			t.Errorf("%s: %+v", call, r.Answer)
		}
	}
	b := get(t, plain, claims.Key{Tenant: "shop", Call: "b"})
	if b.Answer.Header != nil || b.Answer.Status != 200 || b.Evidence[0].Answer.Key == "" {
		t.Errorf("as it lies in the store: %+v", b)
	}
	if _, err := older.Get(t.Context(), claims.Key{Tenant: "shop", Call: "c"}, claims.Guard{}); !errors.Is(err, claims.ErrUnreadable) {
		t.Errorf("a newer answer, by an older ring: %v", err)
	}
	list, err := older.List(t.Context(), "", nil, 10)
	if len(list) != 1 || !errors.Is(err, claims.ErrUnreadable) || !strings.Contains(err.Error(), "shop/c") {
		t.Errorf("list by an older ring: %d records, %v", len(list), err)
	}
	// what is written again is sealed with the writer's primary
	put(t, newer, get(t, newer, b.Key))
	if kept := get(t, plain, b.Key); kept.Answer.Key == "" || kept.Answer.Key == b.Answer.Key {
		t.Errorf("written again, it is sealed with %q, before with %q", kept.Answer.Key, b.Answer.Key)
	}
}

// TestForgedAnswers: whoever can write a store, and has no key, cannot put an answer there that is read, nor move one.
func TestForgedAnswers(t *testing.T) {
	for name, forge := range map[string]func(r *claims.Record){
		"untouched":                     nil,
		"plain":                         func(r *claims.Record) { r.Answer = answered("c").Answer },
		"a status alone":                func(r *claims.Record) { r.Answer = &claims.Answer{Status: 200} },
		"sealed, less its key's name":   func(r *claims.Record) { r.Answer.Key = "" },
		"plain, beside evidence":        func(r *claims.Record) { r.Evidence[0].Answer = answered("c").Answer },
		"evidence's as the record's":    func(r *claims.Record) { r.Answer = r.Evidence[0].Answer },
		"the record's as evidence's":    func(r *claims.Record) { r.Evidence[0].Answer = r.Answer },
		"one evidence's as another's":   func(r *claims.Record) { r.Evidence[0].Answer = r.Evidence[1].Answer },
		"in the next revision":          func(r *claims.Record) { r.Revision++ },
		"evidence in the next revision": func(r *claims.Record) { r.Evidence[0].Revision++ },
	} {
		plain := memory.New(memory.Config{})
		b := keys.Sealed(plain, newRing(t, newSet(t)))
		r := answered("c")
		second := r.Evidence[0]
		second.Claim = claims.NewClaimID()
		r.Evidence = append(r.Evidence, second)
		put(t, b, r)
		if forge != nil {
			r = get(t, plain, r.Key)
			forge(&r)
			put(t, plain, r)
		}
		v, err := b.Get(t.Context(), r.Key, claims.Guard{})
		if forged := forge != nil; errors.Is(err, claims.ErrUnreadable) != forged || (v.Record.Answer == nil) != forged {
			t.Errorf("%s: %v, %+v", name, err, v.Record.Answer)
		}
		if list, err := b.List(t.Context(), "", nil, 10); (len(list) == 0) != (forge != nil) {
			t.Errorf("%s: list %d, %v", name, len(list), err)
		}
	}
}

// damaging is a store whose Swap returns answers that nobody can open.
type damaging struct{ claims.Backend }

func (d damaging) Swap(ctx context.Context, c claims.Condition, w ...claims.Write) (claims.Swapped, error) {
	s, err := d.Backend.Swap(ctx, c, w...)
	for i := range s.Records {
		if a := s.Records[i].Answer; a != nil {
			a.Body[len(a.Body)-1] ^= 1
		}
	}
	return s, err
}

// TestSwapThatCannotBeReadBack: what was written is never told as refused, what was not is.
func TestSwapThatCannotBeReadBack(t *testing.T) {
	plain := memory.New(memory.Config{})
	b := keys.Sealed(damaging{plain}, newRing(t, newSet(t)))
	s, err := b.Swap(t.Context(), claims.Condition{}, claims.Write{Next: answered("c")})
	if err == nil || claims.Refused(err) || len(s.Records) != 0 {
		t.Errorf("written: %v, %d records: whoever believes it thinks that nothing was written", err, len(s.Records))
	}
	if r := get(t, plain, claims.Key{Tenant: "shop", Call: "c"}); r.Version != 1 {
		t.Errorf("it was not written: %+v", r)
	}
	s, err = b.Swap(t.Context(), claims.Condition{}, claims.Write{Next: answered("c")})
	if !claims.Refused(err) || errors.Is(err, claims.ErrLost) || len(s.Records) != 0 {
		t.Errorf("lost to a record that cannot be read: %v, %d records", err, len(s.Records))
	}
	none := answered("d")
	none.Answer, none.Evidence = nil, nil
	if _, err := b.Swap(t.Context(), claims.Condition{}, claims.Write{Next: none}); err != nil {
		t.Errorf("without an answer: %v", err)
	}
}
