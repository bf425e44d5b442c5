// Package codec is how stores write the lists of a record: JSON with names of its own, so that renaming a Go field never
// loses what is stored. A field that this version does not know makes the record unreadable: it might be the one that
// matters.
package codec

import (
	"bytes"
	"database/sql"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/fence-sidecar/fence-sidecar/claims"
)

// text is any string: JSON's own where it is UTF-8, else {"base64": …}, as header lines may hold any byte.
type text string

type rawText struct {
	Base64 []byte `json:"base64"`
}

func (t text) MarshalJSON() ([]byte, error) {
	if utf8.ValidString(string(t)) {
		return json.Marshal(string(t))
	}
	return json.Marshal(rawText{[]byte(t)})
}

func (t *text) UnmarshalJSON(b []byte) error {
	if len(b) > 0 && b[0] == '{' {
		var raw rawText
		if err := decode(b, &raw); err != nil {
			return err
		}
		*t = text(raw.Base64)
		return nil
	}
	return json.Unmarshal(b, (*string)(t))
}

// instant is nanoseconds since 1970; null: never.
type instant struct{ time.Time }

func (i instant) MarshalJSON() ([]byte, error) {
	if i.IsZero() {
		return []byte("null"), nil
	}
	return json.Marshal(i.UnixNano())
}

func (i *instant) UnmarshalJSON(b []byte) error {
	var ns *int64
	if err := json.Unmarshal(b, &ns); err != nil || ns == nil {
		return err
	}
	i.Time = Moment(*ns)
	return nil
}

type jsonNow struct {
	Store instant `json:"store"`
	Wall  instant `json:"wall"`
}

func nowOf(n claims.Now) jsonNow         { return jsonNow{instant{n.Store}, instant{n.Wall}} }
func (n jsonNow) claims() claims.Now     { return claims.Now{Store: n.Store.Time, Wall: n.Wall.Time} }
func guardOf(g claims.Guard) jsonGuard   { return jsonGuard{text(g.Scope), g.Token} }
func (g jsonGuard) claims() claims.Guard { return claims.Guard{Scope: string(g.Scope), Token: g.Token} }

type jsonGuard struct {
	Scope text   `json:"scope"`
	Token uint64 `json:"token"`
}

// outcome is stored as its word; another word is unreadable, never a default.
type outcome claims.Outcome

func (o outcome) MarshalJSON() ([]byte, error) { return json.Marshal(claims.Outcome(o).String()) }

func (o *outcome) UnmarshalJSON(b []byte) error {
	var word string
	if err := json.Unmarshal(b, &word); err != nil {
		return err
	}
	known, err := ParseOutcome(word)
	*o = outcome(known)
	return err
}

// ParseOutcome is the inverse of an outcome's String.
func ParseOutcome(word string) (claims.Outcome, error) {
	for _, known := range []claims.Outcome{claims.Unknown, claims.Succeeded, claims.Declined, claims.NotExecuted} {
		if known.String() == word {
			return known, nil
		}
	}
	return claims.Unknown, errors.New("outcome " + word)
}

// state is stored as its word, as outcome is.
type state claims.State

func (s state) MarshalJSON() ([]byte, error) { return json.Marshal(string(s)) }

func (s *state) UnmarshalJSON(b []byte) error {
	var word string
	if err := json.Unmarshal(b, &word); err != nil {
		return err
	}
	if !claims.State(word).Readable() {
		return errors.New("state " + word)
	}
	*s = state(word)
	return nil
}

type jsonAttempt struct {
	Number   int            `json:"number"`
	Claim    claims.ClaimID `json:"claim"`
	Sender   jsonGuard      `json:"sender"`
	Guard    jsonGuard      `json:"guard"`
	Started  jsonNow        `json:"started"`
	Deadline instant        `json:"deadline"`
	Outcome  outcome        `json:"outcome"`
	Proof    text           `json:"proof,omitempty"`
	Wrote    bool           `json:"wrote"`
	Refused  bool           `json:"refused,omitempty"`
	InUse    bool           `json:"in_use,omitempty"`
	Stands   bool           `json:"stands,omitempty"`
	Presumed bool           `json:"presumed,omitempty"`
	Status   int            `json:"status,omitempty"`
	Cause    text           `json:"cause,omitempty"`
}

func attemptOf(a claims.Attempt) jsonAttempt {
	return jsonAttempt{
		Number: a.Number, Claim: a.Claim, Sender: guardOf(a.Sender), Guard: guardOf(a.Guard), Started: nowOf(a.Started),
		Deadline: instant{a.Deadline}, Outcome: outcome(a.Outcome), Proof: text(a.Proof), Wrote: a.Wrote,
		Refused: a.Refused, InUse: a.InUse, Stands: a.Stands, Presumed: a.Presumed, Status: a.Status, Cause: text(a.Cause),
	}
}

func (a jsonAttempt) claims() claims.Attempt {
	return claims.Attempt{
		Number: a.Number, Claim: a.Claim, Sender: a.Sender.claims(), Guard: a.Guard.claims(), Started: a.Started.claims(),
		Deadline: a.Deadline.Time, Outcome: claims.Outcome(a.Outcome), Proof: string(a.Proof), Wrote: a.Wrote,
		Refused: a.Refused, InUse: a.InUse, Stands: a.Stands, Presumed: a.Presumed, Status: a.Status, Cause: string(a.Cause),
	}
}

type jsonEvidence struct {
	Revision int            `json:"revision"`
	Attempt  int            `json:"attempt"`
	Claim    claims.ClaimID `json:"claim"`
	Outcome  outcome        `json:"outcome"`
	Source   text           `json:"source"`
	At       jsonNow        `json:"at"`
	Answer   *jsonAnswer    `json:"answer,omitempty"`
	Payment  text           `json:"payment,omitempty"`
	Stored   bool           `json:"stored,omitempty"`
	By       text           `json:"by,omitempty"`
	Note     text           `json:"note,omitempty"`
	Read     bool           `json:"read,omitempty"`
}

func evidenceOf(e claims.Evidence) jsonEvidence {
	j := jsonEvidence{
		Revision: e.Revision, Attempt: e.Attempt, Claim: e.Claim, Outcome: outcome(e.Outcome), Source: text(e.Source),
		At: nowOf(e.At), Payment: text(e.Payment), Stored: e.Stored, By: text(e.By), Note: text(e.Note), Read: e.Read,
	}
	if a := e.Answer; a != nil {
		j.Answer = &jsonAnswer{a.Status, linesOf(a.Header), a.Body, text(a.Key)}
	}
	return j
}

func (j jsonEvidence) claims() claims.Evidence {
	e := claims.Evidence{
		Revision: j.Revision, Attempt: j.Attempt, Claim: j.Claim, Outcome: claims.Outcome(j.Outcome),
		Source: string(j.Source), At: j.At.claims(), Payment: string(j.Payment), Stored: j.Stored, By: string(j.By),
		Note: string(j.Note), Read: j.Read,
	}
	if a := j.Answer; a != nil {
		e.Answer = &claims.Answer{Status: a.Status, Header: fields(a.Header), Body: a.Body, Key: string(a.Key)}
	}
	return e
}

// jsonAnswer is an answer beside evidence: body null: not kept; "": no bytes came.
type jsonAnswer struct {
	Status int       `json:"status"`
	Header [][2]text `json:"header"`
	Body   []byte    `json:"body"`
	Key    text      `json:"key,omitempty"`
}

func linesOf(header []claims.Field) [][2]text {
	return each(header, func(f claims.Field) [2]text { return [2]text{text(f.Name), text(f.Value)} })
}

func fields(lines [][2]text) []claims.Field {
	return each(lines, func(l [2]text) claims.Field { return claims.Field{Name: string(l[0]), Value: string(l[1])} })
}

type jsonReview struct {
	Reason text    `json:"reason"`
	Alarm  bool    `json:"alarm,omitempty"`
	Since  jsonNow `json:"since"`
}

// Attempts is the column of a list of attempts: JSON text, nil where there is no list.
func Attempts(list []claims.Attempt) (any, error) { return column(each(list, attemptOf)) }

// ParseAttempts is the inverse of Attempts.
func ParseAttempts(col sql.Null[string]) ([]claims.Attempt, error) {
	list, err := parse[[]jsonAttempt](col)
	return each(list, jsonAttempt.claims), err
}

// Evidence is the column of a list of evidence.
func Evidence(list []claims.Evidence) (any, error) { return column(each(list, evidenceOf)) }

// ParseEvidence is the inverse of Evidence.
func ParseEvidence(col sql.Null[string]) ([]claims.Evidence, error) {
	list, err := parse[[]jsonEvidence](col)
	return each(list, jsonEvidence.claims), err
}

// Header is the column of an answer's header lines.
func Header(lines []claims.Field) (any, error) { return column(linesOf(lines)) }

// ParseHeader is the inverse of Header.
func ParseHeader(col sql.Null[string]) ([]claims.Field, error) {
	lines, err := parse[[][2]text](col)
	return fields(lines), err
}

// Review is the column of a review, nil where there is none.
func Review(v *claims.Review) (any, error) {
	if v == nil {
		return nil, nil
	}
	return column([]jsonReview{{text(v.Reason), v.Alarm, nowOf(v.Since)}})
}

// ParseReview is the inverse of Review.
func ParseReview(col sql.Null[string]) (*claims.Review, error) {
	list, err := parse[[]jsonReview](col)
	if err != nil || len(list) == 0 {
		return nil, err
	}
	v := list[0]
	return &claims.Review{Reason: string(v.Reason), Alarm: v.Alarm, Since: v.Since.claims()}, nil
}

// Map is the column of a map, nil where there is none.
func Map(m map[string]string) (any, error) { return column(pairsOf(m)) }

// ParseMap is the inverse of Map.
func ParseMap(col sql.Null[string]) (map[string]string, error) {
	pairs, err := parse[[][2]text](col)
	return mapOf(pairs), err
}

func pairsOf(m map[string]string) [][2]text {
	if m == nil {
		return nil
	}
	pairs := make([][2]text, 0, len(m))
	for _, k := range slices.Sorted(maps.Keys(m)) {
		pairs = append(pairs, [2]text{text(k), text(m[k])})
	}
	return pairs
}

func mapOf(pairs [][2]text) map[string]string {
	if pairs == nil {
		return nil
	}
	m := make(map[string]string, len(pairs))
	for _, p := range pairs {
		m[string(p[0])] = string(p[1])
	}
	return m
}

// Moment is the time of nanoseconds since 1970, as stores keep times.
func Moment(ns int64) time.Time { return time.Unix(0, ns).UTC() }

// each maps a list; no list stays no list.
func each[A, B any](list []A, f func(A) B) []B {
	if list == nil {
		return nil
	}
	out := make([]B, len(list))
	for i, a := range list {
		out[i] = f(a)
	}
	return out
}

// column is the JSON of a list; NULL where there is none.
func column[T any](list []T) (any, error) {
	if list == nil {
		return nil, nil
	}
	b, err := json.Marshal(list)
	return string(b), err
}

// parse is the inverse of column.
func parse[T any](col sql.Null[string]) (v T, err error) {
	if col.Valid {
		err = decode([]byte(col.V), &v)
	}
	return v, err
}

func decode(b []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return err
	}
	if _, err := d.Token(); err != io.EOF {
		return errors.New("more than one JSON value")
	}
	return nil
}
