package postgres

import (
	"database/sql"
	"encoding/base64"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/fence-sidecar/fence-sidecar/claims"
	"github.com/fence-sidecar/fence-sidecar/claims/codec"
)

// columns of calls, in the order of values and raw.targets.
var columns = []string{
	"tenant", "call_key", "version", "state", "era", "revision", "attempt", "claim_id", "sender_scope", "sender_token", "deadline",
	"scope", "fingerprint_key", "fingerprint_version", "fingerprint_mac",
	"gateway", "account", "endpoint", "credential", "route", "gateway_key", "key_place", "lookup_form", "reference",
	"retention", "settle_after", "lookup",
	"first_started_store", "first_started_wall", "attempts", "evidence", "unread", "answered", "reconciled", "payment",
	"poll", "misses", "last_miss", "next_check", "review", "undos", "undoes", "part", "past",
	"created_store", "created_wall", "updated_store", "updated_wall", "object",
}

var (
	callColumns   = "c." + strings.Join(columns, ", c.")
	answerColumns = "a.status, a.header, a.body, a.key_id"
	callsAnswers  = "{schema}.calls c LEFT JOIN {schema}.answers a ON c.answered AND a.tenant = c.tenant AND a.call_key = c.call_key"
	insertCall    = insert()
	updateCall    = update()
)

func insert() string {
	var places []string
	for i := range columns {
		places = append(places, fmt.Sprintf("$%d", i+1))
	}
	return "INSERT INTO {schema}.calls (" + strings.Join(columns, ", ") + ") VALUES (" + strings.Join(places, ", ") + ")"
}

func update() string {
	var set []string
	for i, c := range columns[2:] {
		set = append(set, fmt.Sprintf("%s = $%d", c, i+3))
	}
	return "UPDATE {schema}.calls SET " + strings.Join(set, ", ") + ", checks = 0 WHERE tenant = $1 AND call_key = $2"
}

// ns is a time's column; NULL for never.
func ns(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return t.UnixNano()
}

// plain is any string as PostgreSQL's text can hold it: itself, or base64 where it is not UTF-8 or has a NUL.
func plain(s string) string {
	if utf8.ValidString(s) && !strings.ContainsRune(s, 0) && !strings.HasPrefix(s, coded) {
		return s
	}
	return coded + base64.StdEncoding.EncodeToString([]byte(s))
}

const coded = "base64:"

// unplain is the inverse of plain.
func unplain(s string) (string, error) {
	rest, ok := strings.CutPrefix(s, coded)
	if !ok {
		return s, nil
	}
	b, err := base64.StdEncoding.DecodeString(rest)
	return string(b), err
}

// values are a record's columns.
func values(r *claims.Record) ([]any, error) {
	lookup, err1 := codec.Map(r.Facts.Lookup)
	attempts, err2 := codec.Attempts(r.Attempts)
	evidence, err3 := codec.Evidence(r.Evidence)
	review, err4 := codec.Review(r.Review)
	undos, err5 := codec.Undos(r.Undos)
	past, err6 := codec.Past(r.Past)
	if err := errors.Join(err1, err2, err3, err4, err5, err6); err != nil {
		return nil, fmt.Errorf("postgres store: %s: %w", r.Key, err)
	}
	f := r.Facts
	return []any{
		[]byte(r.Key.Tenant), []byte(r.Key.Call), r.Version, string(r.State), int64(r.Era), r.Revision, r.Attempt, r.Claim[:],
		[]byte(r.Sender.Scope), int64(r.Sender.Token), ns(r.Deadline),
		[]byte(r.Scope), plain(r.Fingerprint.KeyID), r.Fingerprint.Canonical, bytesOrNull(r.Fingerprint.MAC),
		plain(f.Gateway), plain(f.Account), plain(f.Endpoint), plain(f.Credential), plain(f.Route), plain(f.GatewayKey),
		plain(f.KeyPlace), plain(f.LookupForm), plain(f.Reference), int64(f.Retention), int64(f.SettleAfter), lookup,
		ns(r.FirstStarted.Store), ns(r.FirstStarted.Wall), attempts, evidence, r.Unread(), answered(r), r.Reconciled, plain(r.Payment),
		r.Poll, r.Misses, ns(r.LastMiss), ns(r.NextCheck), review, undos, plain(r.Undoes), plain(r.Part), past,
		ns(r.Created.Store), ns(r.Created.Wall), ns(r.Updated.Store), ns(r.Updated.Wall), plain(r.Object),
	}, nil
}

func bytesOrNull(b []byte) any {
	if b == nil {
		return nil
	}
	return b
}

func answered(r *claims.Record) bool {
	for _, e := range r.Evidence {
		if e.Answer != nil {
			return true
		}
	}
	return r.Answer != nil
}

// raw is a row of calls with its answer, before its content is understood. All is nullable, as an outer join may find none.
type raw struct {
	tenant, call, claim, sender, scope, mac []byte
	version, era, revision, attempt         sql.Null[int64]
	token, canonical, misses                sql.Null[int64]
	retention, settle                       sql.Null[int64]
	deadline, lastMiss, nextCheck           sql.Null[int64]
	firstStore, firstWall                   sql.Null[int64]
	createdStore, createdWall               sql.Null[int64]
	updatedStore, updatedWall               sql.Null[int64]
	state                                   sql.Null[string]
	texts                                   [14]sql.Null[string] // as the record's fields in texts()
	lookup, attempts, evidence, review      sql.Null[string]
	undos, past                             sql.Null[string]
	unread, answered, reconciled, poll      sql.Null[bool]
	status                                  sql.Null[int64]
	header, key                             sql.Null[string]
	body                                    []byte
}

// targets of callColumns and answerColumns.
func (w *raw) targets() []any {
	t := &w.texts
	return []any{
		&w.tenant, &w.call, &w.version, &w.state, &w.era, &w.revision, &w.attempt, &w.claim, &w.sender, &w.token, &w.deadline,
		&w.scope, &t[0], &w.canonical, &w.mac,
		&t[1], &t[2], &t[3], &t[4], &t[5], &t[6], &t[7], &t[8], &t[9], &w.retention, &w.settle, &w.lookup,
		&w.firstStore, &w.firstWall, &w.attempts, &w.evidence, &w.unread, &w.answered, &w.reconciled, &t[10],
		&w.poll, &w.misses, &w.lastMiss, &w.nextCheck, &w.review, &w.undos, &t[11], &t[12], &w.past,
		&w.createdStore, &w.createdWall, &w.updatedStore, &w.updatedWall, &t[13],
		&w.status, &w.header, &w.body, &w.key,
	}
}

// record understands the row; zero where there is none. What it does not understand is claims.ErrUnreadable.
func (w *raw) record() (claims.Record, error) {
	if !w.version.Valid {
		return claims.Record{}, nil
	}
	r := claims.Record{
		Key:     claims.Key{Tenant: string(w.tenant), Call: string(w.call)},
		Version: w.version.V, State: claims.State(w.state.V), Era: uint64(w.era.V),
		Revision: int(w.revision.V), Attempt: int(w.attempt.V),
		Sender:   claims.Guard{Scope: string(w.sender), Token: uint64(w.token.V)},
		Deadline: when(w.deadline), Scope: string(w.scope),
		Fingerprint:  claims.Fingerprint{Canonical: int(w.canonical.V), MAC: w.mac},
		Facts:        claims.Facts{Retention: time.Duration(w.retention.V), SettleAfter: time.Duration(w.settle.V)},
		FirstStarted: claims.Now{Store: when(w.firstStore), Wall: when(w.firstWall)},
		Reconciled:   w.reconciled.V, Poll: w.poll.V,
		Misses: int(w.misses.V), LastMiss: when(w.lastMiss), NextCheck: when(w.nextCheck),
		Created: claims.Now{Store: when(w.createdStore), Wall: when(w.createdWall)},
		Updated: claims.Now{Store: when(w.updatedStore), Wall: when(w.updatedWall)},
	}
	if err := w.contents(&r); err != nil {
		return claims.Record{}, fmt.Errorf("%s: %w: %w", r.Key, claims.ErrUnreadable, err)
	}
	return r, nil
}

// texts are the record's strings in the order of raw.texts.
func texts(r *claims.Record) [14]*string {
	f := &r.Facts
	return [14]*string{
		&r.Fingerprint.KeyID, &f.Gateway, &f.Account, &f.Endpoint, &f.Credential, &f.Route, &f.GatewayKey, &f.KeyPlace,
		&f.LookupForm, &f.Reference, &r.Payment, &r.Undoes, &r.Part, &r.Object,
	}
}

func (w *raw) contents(r *claims.Record) (err error) {
	if err := readable(w.state.V); err != nil {
		return err
	}
	if copy(r.Claim[:], w.claim) != len(r.Claim) {
		return errors.New("claim id is too short")
	}
	for i, s := range texts(r) {
		if *s, err = unplain(w.texts[i].V); err != nil {
			return err
		}
	}
	if r.Facts.Lookup, err = codec.ParseMap(w.lookup); err != nil {
		return fmt.Errorf("lookup: %w", err)
	}
	if r.Attempts, err = codec.ParseAttempts(w.attempts); err != nil {
		return fmt.Errorf("attempts: %w", err)
	}
	if r.Evidence, err = codec.ParseEvidence(w.evidence); err != nil {
		return fmt.Errorf("evidence: %w", err)
	}
	if r.Review, err = codec.ParseReview(w.review); err != nil {
		return fmt.Errorf("review: %w", err)
	}
	if r.Undos, err = codec.ParseUndos(w.undos); err != nil {
		return fmt.Errorf("undos: %w", err)
	}
	if r.Past, err = codec.ParsePast(w.past); err != nil {
		return fmt.Errorf("past: %w", err)
	}
	if !w.status.Valid {
		return nil
	}
	r.Answer = &claims.Answer{Status: int(w.status.V), Body: w.body}
	if r.Answer.Key, err = unplain(w.key.V); err != nil {
		return fmt.Errorf("answer: %w", err)
	}
	if r.Answer.Header, err = codec.ParseHeader(w.header); err != nil {
		return fmt.Errorf("answer: %w", err)
	}
	return nil
}

func readable(state string) error {
	if s := claims.State(state); s == claims.None || !s.Readable() {
		return fmt.Errorf("state %q", state)
	}
	return nil
}

func when(col sql.Null[int64]) time.Time {
	if !col.Valid {
		return time.Time{}
	}
	return codec.Moment(col.V)
}

// put queues a record; had says that its answer may be stored.
func (t *tx) put(r *claims.Record, fresh, had bool) error {
	v, err := values(r)
	if err != nil {
		return err
	}
	if fresh {
		t.change(insertCall, v...) // one that another transaction inserts meanwhile is errRaced
	} else {
		t.change(updateCall, v...)
	}
	switch {
	case r.Answer != nil:
		header, err := codec.Header(r.Answer.Header)
		if err != nil {
			return fmt.Errorf("postgres store: answer of %s: %w", r.Key, err)
		}
		t.change(`INSERT INTO {schema}.answers (tenant, call_key, status, header, body, key_id) VALUES ($1, $2, $3, $4, $5, $6)
			ON CONFLICT (tenant, call_key) DO UPDATE SET status = excluded.status, header = excluded.header, body = excluded.body,
			key_id = excluded.key_id`, v[0], v[1], r.Answer.Status, header, bytesOrNull(r.Answer.Body), plain(r.Answer.Key))
	case had:
		t.change(`DELETE FROM {schema}.answers WHERE tenant = $1 AND call_key = $2`, v[0], v[1])
	}
	t.putEarlier(r)
	return nil
}
