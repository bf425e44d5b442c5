package keys_test

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fence-sidecar/fence-sidecar/claims"
	"github.com/fence-sidecar/fence-sidecar/claims/keys"
)

func newRing(t *testing.T, sets ...*keys.Set) *keys.Ring {
	t.Helper()
	r, err := keys.NewRing(sets[0], sets[1:]...)
	ok(t, err)
	return r
}

func sign(t *testing.T, r *keys.Ring, version int, canonical string) claims.Fingerprint {
	t.Helper()
	f, err := r.Sign(version, []byte(canonical))
	ok(t, err)
	return f
}

func TestFingerprints(t *testing.T) {
	s := newSet(t)
	two := promoted(t, added(t, s))
	old, rotated, another := newRing(t, s), newRing(t, two), newRing(t, newSet(t))
	f, g := sign(t, old, 1, "x"), sign(t, rotated, 1, "x")
	if f.KeyID != primaries(s)[0] || g.KeyID != primaries(two)[0] || f.Canonical != 1 || f.IsZero() {
		t.Fatalf("%+v, %+v", f, g)
	}
	changed := func(f claims.Fingerprint, change func(*claims.Fingerprint)) claims.Fingerprint {
		f.MAC = slices.Clone(f.MAC)
		change(&f)
		return f
	}
	for name, c := range map[string]struct {
		ring       *keys.Ring
		f          claims.Fingerprint
		version    int
		canonical  string
		same       bool
		unreadable bool
	}{
		"its own":                      {old, f, 1, "x", true, false},
		"another request":              {old, f, 1, "y", false, false},
		"made before the rotation":     {rotated, f, 1, "x", true, false},
		"made after it":                {rotated, g, 1, "x", true, false},
		"another, before the rotation": {rotated, f, 1, "y", false, false},
		"newer than the ring":          {old, g, 1, "x", false, true},
		"of another ring":              {another, f, 1, "x", false, true},
		"of another version":           {old, f, 2, "x", false, true},
		"none":                         {old, claims.Fingerprint{}, 0, "", false, true},
		"without a MAC":                {old, claims.Fingerprint{KeyID: f.KeyID, Canonical: 1}, 1, "x", false, true},
		"cut":                          {old, changed(f, func(f *claims.Fingerprint) { f.MAC = f.MAC[:36] }), 1, "x", false, true},
		"longer":                       {old, changed(f, func(f *claims.Fingerprint) { f.MAC = append(f.MAC, 0) }), 1, "x", false, true},
		"another key's under its name": {rotated, changed(g, func(g *claims.Fingerprint) { g.KeyID = f.KeyID }), 1, "x", false, true},
		"a damaged prefix":             {old, changed(f, func(f *claims.Fingerprint) { f.MAC[0]++ }), 1, "x", false, true},
		"a changed tag":                {old, changed(f, func(f *claims.Fingerprint) { f.MAC[36] ^= 1 }), 1, "x", false, false},
		"a changed version":            {old, changed(f, func(f *claims.Fingerprint) { f.Canonical = 2 }), 2, "x", false, false},
	} {
		same, err := c.ring.Match(c.f, c.version, []byte(c.canonical))
		if same != c.same || errors.Is(err, claims.ErrUnreadable) != c.unreadable || (err != nil) != c.unreadable {
			t.Errorf("%s: %v, %v", name, same, err)
		}
	}
}

var answers = map[string]*claims.Answer{
	"full":           {Status: 200, Header: []claims.Field{{Name: "Request-Id", Value: "req_1"}, {Name: "X-Odd", Value: "Ren\xe9\x00"}}, Body: []byte(`{"id":"ch_1"}`)},
	"no body":        {Status: 200, Header: []claims.Field{{Name: "A", Value: ""}}},
	"empty body":     {Status: 204, Header: []claims.Field{}, Body: []byte{}},
	"nothing":        {},
	"sealed already": {Status: 402, Body: []byte("sealed"), Key: "k2"},
	"a large body":   {Status: -1, Body: bytes.Repeat([]byte("x"), 1<<12)},
}

func TestAnswers(t *testing.T) {
	s := newSet(t)
	two := promoted(t, added(t, s))
	old, rotated := newRing(t, s), newRing(t, two)
	key := keys.Place{Key: claims.Key{Tenant: "shop", Call: "charge:1"}, Revision: 1, Slot: "answer"}
	for name, a := range answers {
		sealed, err := old.Seal(key, a)
		ok(t, err)
		if sealed.Key != primaries(s)[1] || sealed.Header != nil || sealed.Status != a.Status || len(a.Body) > 4 && strings.Contains(string(sealed.Body), string(a.Body)) {
			t.Errorf("%s: sealed as %+v", name, sealed)
		}
		for at, ring := range map[string]*keys.Ring{"at once": old, "after the rotation": rotated} {
			back, err := ring.Open(key, sealed)
			if d := cmp.Diff(a, back); d != "" || err != nil {
				t.Errorf("%s, opened %s: %v\n%s", name, at, err, d)
			}
		}
	}
	for _, r := range []*keys.Ring{old, rotated} {
		if none, err := r.Seal(key, nil); none != nil || err != nil {
			t.Errorf("no answer: %v, %v", none, err)
		}
		for name, plain := range answers {
			if plain.Key != "" {
				continue
			}
			if back, err := r.Open(key, plain); back != nil || !errors.Is(err, claims.ErrUnreadable) {
				t.Errorf("%s, never sealed: %v, %v", name, back, err)
			}
		}
		if none, err := r.Open(key, nil); none != nil || err != nil {
			t.Errorf("no answer: %v, %v", none, err)
		}
	}
}

func TestSealedAnswerBelongsToItsRecord(t *testing.T) {
	s := newSet(t)
	r, newer, another := newRing(t, s), newRing(t, promoted(t, added(t, s))), newRing(t, newSet(t))
	at := func(tenant, call string) keys.Place {
		return keys.Place{Key: claims.Key{Tenant: tenant, Call: call}, Revision: 1, Slot: "answer"}
	}
	key := at("ab", "c")
	seal := func(r *keys.Ring) *claims.Answer {
		a, err := r.Seal(key, answers["full"])
		ok(t, err)
		return a
	}
	changed := func(change func(*claims.Answer)) *claims.Answer {
		a := seal(r).Clone()
		change(a)
		return a
	}
	for name, c := range map[string]struct {
		ring *keys.Ring
		at   keys.Place
		a    *claims.Answer
	}{
		"of another call":            {r, at("ab", "d"), seal(r)},
		"of another tenant":          {r, at("AB", "c"), seal(r)},
		"tenant and call run on":     {r, at("a", "bc"), seal(r)},
		"of another revision":        {r, keys.Place{Key: key.Key, Revision: 2, Slot: "answer"}, seal(r)},
		"of another slot":            {r, keys.Place{Key: key.Key, Revision: 1, Slot: "evidence"}, seal(r)},
		"call and slot run on":       {r, keys.Place{Key: claims.Key{Tenant: "ab", Call: "ca"}, Revision: 1, Slot: "nswer"}, seal(r)},
		"with another status":        {r, key, changed(func(a *claims.Answer) { a.Status = 402 })},
		"with a header line":         {r, key, changed(func(a *claims.Answer) { a.Header = []claims.Field{{Name: "A"}} })},
		"cut":                        {r, key, changed(func(a *claims.Answer) { a.Body = a.Body[:len(a.Body)-1] })},
		"cut to its prefix":          {r, key, changed(func(a *claims.Answer) { a.Body = a.Body[:5] })},
		"cut within its prefix":      {r, key, changed(func(a *claims.Answer) { a.Body = a.Body[:4] })},
		"without a body":             {r, key, changed(func(a *claims.Answer) { a.Body = nil })},
		"changed":                    {r, key, changed(func(a *claims.Answer) { a.Body[20] ^= 1 })},
		"of a key that is not there": {r, key, changed(func(a *claims.Answer) { a.Key = "00000000" })},
		"of a fingerprint key":       {r, key, changed(func(a *claims.Answer) { a.Key = r.Primaries()[0] })},
		"of a newer ring":            {r, key, seal(newer)},
		"of another ring":            {another, key, seal(r)},
		"under another key's name":   {newer, key, changed(func(a *claims.Answer) { a.Key = newer.Primaries()[1] })},
	} {
		if a, err := c.ring.Open(c.at, c.a); a != nil || !errors.Is(err, claims.ErrUnreadable) {
			t.Errorf("%s: %+v, %v", name, a, err)
		}
	}
	if a, err := r.Open(key, seal(r)); err != nil || string(a.Body) != string(answers["full"].Body) {
		t.Errorf("untouched: %+v, %v", a, err)
	}
}

// TestRingOfSeveralSets: a ring writes with its first set and reads with all.
func TestRingOfSeveralSets(t *testing.T) {
	own, stores := newSet(t), newSet(t)
	r := newRing(t, own, stores, stores, promoted(t, added(t, own)))
	if d := cmp.Diff(primaries(own), r.Primaries()); d != "" {
		t.Error(d)
	}
	ids := r.IDs()
	if len(ids) != 6 || ids[0] != r.Primaries()[0] || ids[1] != r.Primaries()[1] || !slices.Contains(ids, primaries(stores)[0]) {
		t.Errorf("ids %v of primaries %v", ids, r.Primaries())
	}
	if same, err := r.Match(sign(t, newRing(t, stores), 1, "x"), 1, []byte("x")); !same || err != nil {
		t.Errorf("a fingerprint of the store's own set: %v, %v", same, err)
	}
	// another key under an id of the ring's: whoever announces that id would promise too much
	b := strings.ReplaceAll(string(text(t, stores)), answerID(text(t, stores)), answerID(text(t, own)))
	clash, err := keys.Parse([]byte(b))
	ok(t, err)
	if _, err := keys.NewRing(own, clash); err == nil || !strings.Contains(err.Error(), "two keys have the id "+primaries(own)[1]) {
		t.Errorf("two keys of one id: %v", err)
	}
}

func TestReadByAll(t *testing.T) {
	member := func(scope string, ids ...string) claims.Member {
		return claims.Member{Guard: claims.Guard{Scope: scope, Token: 1}, Keys: ids}
	}
	for name, c := range map[string]struct {
		members []claims.Member
		lacks   string // scope of the member that is named
		silent  string
	}{
		"nobody":              {},
		"oneself":             {members: []claims.Member{member("own", "z")}},
		"all can":             {members: []claims.Member{member("own"), member("1", "x", "a", "b"), member("2", "b", "a")}},
		"one lacks the other": {members: []claims.Member{member("1", "a", "b"), member("2", "a", "c")}, lacks: "2"},
		"one is silent":       {members: []claims.Member{member("1"), member("2", "a", "b")}, silent: "1"},
		"lacking goes first":  {members: []claims.Member{member("1"), member("2", "a")}, lacks: "2"},
	} {
		err := keys.ReadByAll([]string{"a", "b"}, "own", c.members)
		l, lacks := errors.AsType[*keys.LacksError](err)
		s, silent := errors.AsType[*keys.SilentError](err)
		switch {
		case lacks != (c.lacks != "") || silent != (c.silent != "") || errors.Is(err, keys.ErrSilent) != silent || (err != nil) != (lacks || silent):
			t.Errorf("%s: %v", name, err)
		case lacks && (l.Member.Guard.Scope != c.lacks || l.Key != "b"), silent && s.Member.Guard.Scope != c.silent:
			t.Errorf("%s: %v", name, err)
		}
	}
	r := newRing(t, newSet(t))
	own := r.IDs()
	if l := r.Lacks([]claims.Member{member("1", own...), member("2"), member("3", own[0]), member("4", own[0], "new", "newer")}); len(l) != 1 || l[0].Key != "new" || l[0].Member.Guard.Scope != "4" {
		t.Errorf("lacks %v", l)
	}
}
