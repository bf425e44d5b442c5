package codec

import (
	"database/sql"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fence-sidecar/fence-sidecar/claims"
)

func col(t *testing.T, v any, err error) sql.Null[string] {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	s, ok := v.(string)
	return sql.Null[string]{V: s, Valid: ok}
}

func back[T any](t *testing.T, what string, want T, column any, err error, parse func(sql.Null[string]) (T, error)) {
	t.Helper()
	got, err := parse(col(t, column, err))
	if err != nil {
		t.Errorf("%s: %v", what, err)
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("%s (-want +got):\n%s", what, d)
	}
}

// TestNothingAndEmpty: no list, an empty one and one with odd bytes come back as they were.
func TestNothingAndEmpty(t *testing.T) {
	const odd = "\xff\x00 é\ufffd\u2028<&>"
	for _, list := range [][]claims.Attempt{nil, {}, {{Number: 1, Cause: odd, Presumed: true, Outcome: claims.Declined}}} {
		c, err := Attempts(list)
		back(t, "attempts", list, c, err, ParseAttempts)
	}
	for _, list := range [][]claims.Evidence{nil, {}, {{Note: odd}, {Answer: &claims.Answer{Body: []byte{}, Key: odd}}, {Answer: &claims.Answer{}, By: odd}}} {
		c, err := Evidence(list)
		back(t, "evidence", list, c, err, ParseEvidence)
	}
	for _, list := range [][]claims.Undo{nil, {}, {{}, {Key: odd, Part: odd}}} {
		c, err := Undos(list)
		back(t, "undos", list, c, err, ParseUndos)
	}
	facts := claims.Facts{Reference: odd, Retention: -1, Lookup: map[string]string{}}
	for _, list := range [][]claims.Past{nil, {}, {{}, {State: claims.StateDeclined, Facts: facts, Attempts: []claims.Attempt{}}}} {
		c, err := Past(list)
		back(t, "past", list, c, err, ParsePast)
	}
	for _, list := range [][]string{nil, {}, {"", odd}} {
		c, err := Texts(list)
		back(t, "texts", list, c, err, ParseTexts)
	}
	for _, lines := range [][]claims.Field{nil, {}, {{Name: odd, Value: ""}, {Name: "a", Value: odd}}} {
		c, err := Header(lines)
		back(t, "header", lines, c, err, ParseHeader)
	}
	for _, m := range []map[string]string{nil, {}, {odd: odd, "": "x"}} {
		c, err := Map(m)
		back(t, "map", m, c, err, ParseMap)
	}
	for _, v := range []*claims.Review{nil, {}, {Reason: odd, Alarm: true, Since: claims.Now{Store: Moment(1), Wall: Moment(2)}}} {
		c, err := Review(v)
		back(t, "review", v, c, err, ParseReview)
	}
}

// TestUnknownIsAnError: what a later version wrote is never half understood.
func TestUnknownIsAnError(t *testing.T) {
	text := func(s string) sql.Null[string] { return sql.Null[string]{V: s, Valid: true} }
	_, err1 := ParseAttempts(text(`[{"number":1,"later":true}]`))
	_, err2 := ParseAttempts(text(`[{"outcome":"maybe"}]`))
	_, err3 := ParseEvidence(text(`[{"outcome":"unknown"}] []`))
	_, err4 := ParseMap(text(`[["a"`))
	_, err5 := ParseHeader(text(`{}`))
	_, err6 := ParseReview(text(`[{"severity":3}]`))
	_, err7 := ParseUndos(text(`[{"key":"u","part":"line 1","amount":"3.00"}]`))
	_, err8 := ParsePast(text(`[{"state":"martian"}]`))
	_, err9 := ParsePast(text(`[{"facts":{"gateway":"g","later":1}}]`))
	_, err10 := ParsePast(text(`[{"attempts":[{"outcome":"maybe"}]}]`))
	_, err11 := ParseEvidence(text(`[{"answer":{"status":200,"sealed":"yes"}}]`))
	_, err12 := ParseTexts(text(`[1]`))
	_, err13 := ParseOutcome("maybe")
	for i, err := range []error{err1, err2, err3, err4, err5, err6, err7, err8, err9, err10, err11, err12, err13} {
		if err == nil {
			t.Errorf("%d was understood", i+1)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(`[{"number":1,"outcome":"unknown"}]`)
	f.Fuzz(func(t *testing.T, s string) {
		c := sql.Null[string]{V: s, Valid: true}
		if list, err := ParseAttempts(c); err == nil {
			column, err := Attempts(list)
			back(t, "attempts", list, column, err, ParseAttempts)
		}
		if list, err := ParseEvidence(c); err == nil {
			column, err := Evidence(list)
			back(t, "evidence", list, column, err, ParseEvidence)
		}
		if list, err := ParsePast(c); err == nil {
			column, err := Past(list)
			back(t, "past", list, column, err, ParsePast)
		}
	})
}
