package sqlite

import (
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fence-sidecar/fence-sidecar/claims"
	"github.com/fence-sidecar/fence-sidecar/claims/claimstest"
)

func put(t *testing.T, s *Store, r claims.Record) claims.Record {
	t.Helper()
	out, err := s.Swap(t.Context(), claims.Condition{}, claims.Write{Version: r.Version, Next: r})
	if err != nil {
		t.Fatal(err)
	}
	return out.Records[0]
}

func get(t *testing.T, s *Store, k claims.Key) claims.Record {
	t.Helper()
	v, err := s.Get(t.Context(), k, claims.Guard{})
	if err != nil {
		t.Fatal(err)
	}
	return v.Record
}

func there(t *testing.T, s *Store, name string) bool {
	t.Helper()
	r := get(t, s, key(name))
	return r.Exists()
}

// TestEveryFieldSurvivesTheProcess: also with bytes in every string that are no text, as some come from outside.
func TestEveryFieldSurvivesTheProcess(t *testing.T) {
	path, m := migrated(t), newMachine()
	for _, odd := range []string{"", "\xff\x00\xfe é\ufffd<&>\u2028"} {
		r := claimstest.FullRecord(key("full" + odd))
		strange(reflect.ValueOf(&r).Elem(), odd)
		if p := claimstest.ZeroField(r); p != "" {
			t.Fatalf("%s is empty", p)
		}
		s := openAt(t, path, m)
		want := put(t, s, r)
		s.Close()
		s = openAt(t, path, m)
		if d := cmp.Diff(want, get(t, s, r.Key)); d != "" {
			t.Errorf("-want +got:\n%s", d)
		}
		s.Close()
	}
}

// strange appends odd to every string below v but the state.
func strange(v reflect.Value, odd string) {
	switch {
	case v.Type() == reflect.TypeFor[claims.State](), v.Type().PkgPath() == "time":
	case v.Kind() == reflect.String:
		v.SetString(v.String() + odd)
	case v.Kind() == reflect.Pointer:
		strange(v.Elem(), odd)
	case v.Kind() == reflect.Slice:
		for i := range v.Len() {
			strange(v.Index(i), odd)
		}
	case v.Kind() == reflect.Map:
		v.SetMapIndex(reflect.ValueOf("k"+odd), reflect.ValueOf("v"+odd))
	case v.Kind() == reflect.Struct && v.Type() != reflect.TypeFor[claims.Key]():
		for _, field := range v.Fields() {
			strange(field, odd)
		}
	}
}

func TestUndecodableIsUnreadable(t *testing.T) {
	s := openAt(t, migrated(t), newMachine())
	for column, text := range map[string]string{
		"attempts": `[{"number":"one"}]`,
		"evidence": `[{"outcome":"maybe"}]`,
		"lookup":   `[["a"`,
		"review":   `[{"reason":"x","since":{},"severity":3}]`, // a field of a later version
		"undos":    `[{"key":"u","amount":"3.00"}]`,            // this too
		"past":     `[{"revision":1,"state":"martian"}]`,
		"state":    "martian",
	} {
		r := put(t, s, claimstest.FullRecord(key(column)))
		spoil(t, s, `UPDATE calls SET `+column+` = ? WHERE call_key = ?`, text, []byte(column))
		if _, err := s.Get(t.Context(), r.Key, claims.Guard{}); !errors.Is(err, claims.ErrUnreadable) {
			t.Errorf("%s = %s: %v, want unreadable", column, text, err)
		}
	}
	r := put(t, s, claimstest.FullRecord(key("header")))
	spoil(t, s, `UPDATE answers SET header = '{}' WHERE call_key = ?`, []byte("header"))
	if _, err := s.Get(t.Context(), r.Key, claims.Guard{}); !errors.Is(err, claims.ErrUnreadable) {
		t.Errorf("header = {}: %v, want unreadable", err)
	}
}

func TestUnknownStateIsNoLastingState(t *testing.T) {
	s := openAt(t, migrated(t), newMachine())
	for _, st := range []claims.State{claims.None, "martian"} {
		r := record("c")
		r.State = st
		if _, err := s.Swap(t.Context(), claims.Condition{}, claims.Write{Next: r}); err == nil {
			t.Errorf("state %q was written", st)
		}
	}
}

func TestSwapOfWrongNumbers(t *testing.T) {
	s := openAt(t, migrated(t), newMachine())
	w := claims.Write{Next: record("c")}
	for _, writes := range [][]claims.Write{nil, {w, w}, {w, w, w}} {
		if _, err := s.Swap(t.Context(), claims.Condition{}, writes...); err == nil || claims.Refused(err) {
			t.Errorf("%d writes: %v", len(writes), err)
		}
	}
}

func TestLeaseLogIsAppendOnly(t *testing.T) {
	s := openAt(t, migrated(t), newMachine())
	if _, err := s.Acquire(t.Context(), "shop:a", "holder", 1); err != nil {
		t.Fatal(err)
	}
	for _, q := range []string{`DELETE FROM lease_log`, `UPDATE lease_log SET token = 7`} {
		err := s.writer.do(t.Context(), false, func(t *tx) error { return t.change(q) })
		if err == nil || !strings.Contains(err.Error(), "append-only") {
			t.Errorf("%s: %v", q, err)
		}
	}
	if log, err := s.Log(t.Context(), "shop:a"); err != nil || len(log) != 1 || log[0].Token != 1 {
		t.Errorf("log: %+v, %v", log, err)
	}
}
