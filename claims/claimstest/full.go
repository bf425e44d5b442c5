package claimstest

import (
	"fmt"
	"reflect"
	"time"

	"github.com/fence-sidecar/fence-sidecar/claims"
)

// FullRecord is a record in which no field has its zero value, so that one that a store forgets is missed; its version
// is 0, for a first write.
func FullRecord(key claims.Key) claims.Record {
	at := func(m int) claims.Now {
		t := start.Add(time.Duration(m)*time.Minute + 123456*time.Microsecond - 48*time.Hour) // before any test's clock
		return claims.Now{Store: t, Wall: t.Add(time.Hour)}
	}
	answer := func(status int) *claims.Answer {
		return &claims.Answer{Status: status, Header: []claims.Field{{Name: "Request-Id", Value: "req_1"}}, Body: []byte(`{"id":"ch_1"}`), Key: "k2"}
	}
	sender, guard := claims.Guard{Scope: instance, Token: 3}, claims.Guard{Scope: app, Token: 1<<63 - 1}
	facts := claims.Facts{
		Gateway: "stripe", Account: "acct_1", Endpoint: "https://api.example", Credential: "c0ffee", Route: "POST /v1/charges", GatewayKey: "gk", KeyPlace: "header X-Key", LookupForm: "f00d", Reference: "ref",
		Retention: 24*time.Hour + 1, SettleAfter: 10*time.Minute + 1,
		Lookup: map[string]string{"amount": "10.00", "currency": "EUR", "é": "ü"},
	}
	attempts := []claims.Attempt{{
		Number: 4, Claim: claims.NewClaimID(), Sender: sender, Guard: guard, Started: at(3), Deadline: at(4).Store,
		Outcome: claims.NotExecuted, Proof: "zero-bytes", Wrote: true, Refused: true, InUse: true, Stands: true, Presumed: true, Status: 429, Cause: "cut",
	}}
	return claims.Record{
		Key: key, State: claims.StateReview, Era: 1, Revision: 2, Attempt: 4, Claim: claims.NewClaimID(),
		Sender: sender, Deadline: at(1).Store, Scope: app,
		Fingerprint:  claims.Fingerprint{KeyID: "k1", Canonical: 2, MAC: []byte{0, 1, 2, 0xff}},
		Facts:        facts,
		FirstStarted: at(2),
		Attempts:     attempts,
		Evidence: []claims.Evidence{{
			Revision: 1, Attempt: 2, Claim: claims.NewClaimID(), Outcome: claims.Succeeded, Source: "notice", At: at(5),
			Answer: answer(201), Payment: "pending", Stored: true, By: "ada", Note: "seen", Read: true,
		}},
		Object: "ch_1", Answer: answer(200), Reconciled: true, Payment: "done", Poll: true,
		Misses: 2, LastMiss: at(6).Store, NextCheck: at(7).Store,
		Review: &claims.Review{Reason: "two successes", Alarm: true, Since: at(8)},
		Undos:  []claims.Undo{{Key: "undo:1", Part: "line 2"}}, Undoes: "charge:1", Part: "line 3",
		Past:    []claims.Past{{Revision: 1, State: claims.StateDeclined, Facts: facts, FirstStarted: at(11), Attempts: attempts}},
		Created: at(9), Updated: at(10),
	}
}

// ZeroField is the path of the first field that has its zero value, "" where there is none. Version does not count, as
// the store sets it.
func ZeroField(r claims.Record) string {
	r.Version = 1
	return zeroField("Record", reflect.ValueOf(r))
}

func zeroField(path string, v reflect.Value) string {
	if v.IsZero() {
		return path
	}
	switch v.Kind() {
	case reflect.Pointer:
		return zeroField(path, v.Elem())
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			return ""
		}
		for i := range v.Len() {
			if p := zeroField(fmt.Sprintf("%s[%d]", path, i), v.Index(i)); p != "" {
				return p
			}
		}
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			return ""
		}
		for i := range v.NumField() {
			if p := zeroField(path+"."+v.Type().Field(i).Name, v.Field(i)); p != "" {
				return p
			}
		}
	}
	return ""
}
