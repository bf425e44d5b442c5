package sqlite

import (
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/fence-sidecar/fence-sidecar/claims"
	"github.com/fence-sidecar/fence-sidecar/claims/codec"
)

// columns of calls, in the order of values and scan.
var columns = []string{
	"tenant", "call_key", "version", "era", "state", "revision", "attempt", "claim_id", "sender_scope", "sender_token", "deadline",
	"scope", "fingerprint_key", "fingerprint_version", "fingerprint_mac",
	"gateway", "account", "endpoint", "credential", "route", "gateway_key", "key_place", "lookup_form", "reference", "retention", "settle_after", "lookup",
	"first_started_store", "first_started_wall", "attempts", "evidence", "unread", "answered", "reconciled", "payment",
	"poll", "misses", "last_miss", "next_check", "review", "undos", "undoes", "part", "past",
	"created_store", "created_wall", "updated_store", "updated_wall", "object",
}

var (
	selectCall = "SELECT " + strings.Join(columns, ", ") + " FROM calls"
	putCall    = upsert()
)

func upsert() string {
	var set []string
	for _, c := range columns[2:] {
		set = append(set, c+" = excluded."+c)
	}
	return "INSERT INTO calls (" + strings.Join(columns, ", ") + ", checks) VALUES (" +
		strings.Repeat("?, ", len(columns)) + "0) ON CONFLICT (tenant, call_key) DO UPDATE SET " +
		strings.Join(set, ", ") + ", checks = 0"
}

// ns is a time's column; NULL for never.
func ns(t time.Time) any {
	if t.IsZero() {
		return nil
	}
	return t.UnixNano()
}

func bit(b bool) int {
	if b {
		return 1
	}
	return 0
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
		return nil, fmt.Errorf("sqlite store: %s: %w", r.Key, err)
	}
	f := r.Facts
	return []any{
		[]byte(r.Key.Tenant), []byte(r.Key.Call), r.Version, int64(r.Era), string(r.State), r.Revision, r.Attempt, r.Claim[:],
		r.Sender.Scope, int64(r.Sender.Token), ns(r.Deadline),
		r.Scope, r.Fingerprint.KeyID, r.Fingerprint.Canonical, r.Fingerprint.MAC,
		f.Gateway, f.Account, f.Endpoint, f.Credential, f.Route, f.GatewayKey, f.KeyPlace, f.LookupForm, f.Reference, int64(f.Retention), int64(f.SettleAfter), lookup,
		ns(r.FirstStarted.Store), ns(r.FirstStarted.Wall), attempts, evidence, bit(r.Unread()), bit(answered(r)),
		bit(r.Reconciled), r.Payment,
		bit(r.Poll), r.Misses, ns(r.LastMiss), ns(r.NextCheck), review, undos, r.Undoes, r.Part, past,
		ns(r.Created.Store), ns(r.Created.Wall), ns(r.Updated.Store), ns(r.Updated.Wall), r.Object,
	}, nil
}

func answered(r *claims.Record) bool {
	for _, e := range r.Evidence {
		if e.Answer != nil {
			return true
		}
	}
	return r.Answer != nil
}

// raw is a row of calls before its content is understood.
type raw struct {
	rec                                claims.Record
	tenant, call, claim                []byte
	token, era                         int64
	retention, settle                  int64
	state                              string
	unread, answered                   bool
	deadline, lastMiss, nextCheck      sql.Null[int64]
	firstStore, firstWall              sql.Null[int64]
	createdStore, createdWall          sql.Null[int64]
	updatedStore, updatedWall          sql.Null[int64]
	lookup, attempts, evidence, review sql.Null[string]
	undos, past                        sql.Null[string]
}

func (w *raw) scan(row scanner) error {
	r := &w.rec
	f := &r.Facts
	return row.Scan(&w.tenant, &w.call, &r.Version, &w.era, &w.state, &r.Revision, &r.Attempt, &w.claim,
		&r.Sender.Scope, &w.token, &w.deadline,
		&r.Scope, &r.Fingerprint.KeyID, &r.Fingerprint.Canonical, &r.Fingerprint.MAC,
		&f.Gateway, &f.Account, &f.Endpoint, &f.Credential, &f.Route, &f.GatewayKey, &f.KeyPlace, &f.LookupForm, &f.Reference, &w.retention, &w.settle, &w.lookup,
		&w.firstStore, &w.firstWall, &w.attempts, &w.evidence, &w.unread, &w.answered, &r.Reconciled, &r.Payment,
		&r.Poll, &r.Misses, &w.lastMiss, &w.nextCheck, &w.review, &w.undos, &r.Undoes, &r.Part, &w.past,
		&w.createdStore, &w.createdWall, &w.updatedStore, &w.updatedWall, &r.Object)
}

// record understands the row, all but its answer. What it does not understand is claims.ErrUnreadable.
func (w *raw) record() (claims.Record, error) {
	r := w.rec
	r.Key = claims.Key{Tenant: string(w.tenant), Call: string(w.call)}
	r.State = claims.State(w.state)
	r.Sender.Token, r.Era = uint64(w.token), uint64(w.era)
	r.Facts.Retention, r.Facts.SettleAfter = time.Duration(w.retention), time.Duration(w.settle)
	r.Deadline, r.LastMiss, r.NextCheck = when(w.deadline), when(w.lastMiss), when(w.nextCheck)
	r.FirstStarted = claims.Now{Store: when(w.firstStore), Wall: when(w.firstWall)}
	r.Created = claims.Now{Store: when(w.createdStore), Wall: when(w.createdWall)}
	r.Updated = claims.Now{Store: when(w.updatedStore), Wall: when(w.updatedWall)}
	if err := w.lists(&r); err != nil {
		return claims.Record{}, fmt.Errorf("%s: %w: %w", r.Key, claims.ErrUnreadable, err)
	}
	return r, nil
}

func (w *raw) lists(r *claims.Record) error {
	if err := readable(w.state); err != nil {
		return err
	}
	if copy(r.Claim[:], w.claim) != len(r.Claim) {
		return errors.New("claim id is too short")
	}
	var err1, err2, err3, err4, err5, err6 error
	r.Facts.Lookup, err1 = codec.ParseMap(w.lookup)
	r.Attempts, err2 = codec.ParseAttempts(w.attempts)
	r.Evidence, err3 = codec.ParseEvidence(w.evidence)
	r.Review, err4 = codec.ParseReview(w.review)
	r.Undos, err5 = codec.ParseUndos(w.undos)
	r.Past, err6 = codec.ParsePast(w.past)
	return errors.Join(err1, err2, err3, err4, err5, err6)
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

// call reads a record with its answer; zero where there is none.
func (t *tx) call(key claims.Key) (claims.Record, error) {
	var w raw
	err := w.scan(t.row(selectCall+" WHERE tenant = ? AND call_key = ?", []byte(key.Tenant), []byte(key.Call)))
	if errors.Is(err, sql.ErrNoRows) {
		return claims.Record{}, nil
	}
	if err != nil {
		return claims.Record{}, fmt.Errorf("sqlite store: %s: %w", key, err)
	}
	return t.complete(&w)
}

// complete adds the answer, for which answers is asked only where there may be one.
func (t *tx) complete(w *raw) (claims.Record, error) {
	r, err := w.record()
	if err != nil || !w.answered {
		return r, err
	}
	var a claims.Answer
	var header sql.Null[string]
	var kept bool
	err = t.row(`SELECT status, header, body, body IS NOT NULL, key_id FROM answers WHERE tenant = ? AND call_key = ?`,
		w.tenant, w.call).Scan(&a.Status, &header, &a.Body, &kept, &a.Key)
	if errors.Is(err, sql.ErrNoRows) {
		return r, nil // answered by evidence only
	}
	if err != nil {
		return claims.Record{}, fmt.Errorf("sqlite store: %s: %w", r.Key, err)
	}
	if a.Header, err = codec.ParseHeader(header); err != nil {
		return claims.Record{}, fmt.Errorf("%s: %w: answer: %w", r.Key, claims.ErrUnreadable, err)
	}
	if kept && a.Body == nil { // the driver reads x'' as nil
		a.Body = []byte{}
	}
	r.Answer = &a
	return r, nil
}

// put writes a record; had says that its answer may be in the file.
func (t *tx) put(r *claims.Record, had bool) error {
	v, err := values(r)
	if err != nil {
		return err
	}
	if err := t.change(putCall, v...); err != nil {
		return fmt.Errorf("sqlite store: %s: %w", r.Key, err)
	}
	switch {
	case r.Answer != nil:
		err = t.putAnswer(r)
	case had:
		err = t.change(`DELETE FROM answers WHERE tenant = ? AND call_key = ?`, v[0], v[1])
	}
	if err != nil {
		return fmt.Errorf("sqlite store: answer of %s: %w", r.Key, err)
	}
	return t.putEarlier(r)
}

func (t *tx) putAnswer(r *claims.Record) error {
	header, err := codec.Header(r.Answer.Header)
	if err != nil {
		return err
	}
	// whatever the driver makes of no bytes, they are x''
	return t.change(`INSERT INTO answers (tenant, call_key, status, header, body, key_id)
		VALUES (?, ?, ?, ?, CASE WHEN ? THEN coalesce(?, x'') END, ?) ON CONFLICT (tenant, call_key)
		DO UPDATE SET status = excluded.status, header = excluded.header, body = excluded.body, key_id = excluded.key_id`,
		[]byte(r.Key.Tenant), []byte(r.Key.Call), r.Answer.Status, header, r.Answer.Body != nil, r.Answer.Body, r.Answer.Key)
}
