package codec

import (
	"database/sql"
	"time"

	"github.com/fence-sidecar/fence-sidecar/claims"
)

type jsonFacts struct {
	Gateway     text      `json:"gateway"`
	Account     text      `json:"account,omitempty"`
	Endpoint    text      `json:"endpoint,omitempty"`
	Credential  text      `json:"credential,omitempty"`
	Route       text      `json:"route"`
	GatewayKey  text      `json:"gateway_key"`
	KeyPlace    text      `json:"key_place,omitempty"`
	LookupForm  text      `json:"lookup_form,omitempty"`
	Reference   text      `json:"reference,omitempty"`
	Retention   int64     `json:"retention_ns"`
	SettleAfter int64     `json:"settle_after_ns"`
	Lookup      [][2]text `json:"lookup"`
}

func factsOf(f claims.Facts) jsonFacts {
	return jsonFacts{
		Gateway: text(f.Gateway), Account: text(f.Account), Endpoint: text(f.Endpoint), Credential: text(f.Credential),
		Route: text(f.Route), GatewayKey: text(f.GatewayKey), KeyPlace: text(f.KeyPlace), LookupForm: text(f.LookupForm),
		Reference: text(f.Reference), Retention: int64(f.Retention), SettleAfter: int64(f.SettleAfter), Lookup: pairsOf(f.Lookup),
	}
}

func (j jsonFacts) claims() claims.Facts {
	return claims.Facts{
		Gateway: string(j.Gateway), Account: string(j.Account), Endpoint: string(j.Endpoint), Credential: string(j.Credential),
		Route: string(j.Route), GatewayKey: string(j.GatewayKey), KeyPlace: string(j.KeyPlace), LookupForm: string(j.LookupForm),
		Reference: string(j.Reference), Retention: time.Duration(j.Retention), SettleAfter: time.Duration(j.SettleAfter),
		Lookup: mapOf(j.Lookup),
	}
}

type jsonPast struct {
	Revision     int           `json:"revision"`
	State        state         `json:"state"`
	Facts        jsonFacts     `json:"facts"`
	FirstStarted jsonNow       `json:"first_started"`
	Attempts     []jsonAttempt `json:"attempts"`
}

func pastOf(p claims.Past) jsonPast {
	return jsonPast{p.Revision, state(p.State), factsOf(p.Facts), nowOf(p.FirstStarted), each(p.Attempts, attemptOf)}
}

func (j jsonPast) claims() claims.Past {
	return claims.Past{
		Revision: j.Revision, State: claims.State(j.State), Facts: j.Facts.claims(), FirstStarted: j.FirstStarted.claims(),
		Attempts: each(j.Attempts, jsonAttempt.claims),
	}
}

type jsonUndo struct {
	Key  text `json:"key"`
	Part text `json:"part,omitempty"`
}

// Undos is the column of the calls that undo one, nil where there is no list.
func Undos(list []claims.Undo) (any, error) {
	return column(each(list, func(u claims.Undo) jsonUndo { return jsonUndo{text(u.Key), text(u.Part)} }))
}

// ParseUndos is the inverse of Undos.
func ParseUndos(col sql.Null[string]) ([]claims.Undo, error) {
	list, err := parse[[]jsonUndo](col)
	return each(list, func(j jsonUndo) claims.Undo { return claims.Undo{Key: string(j.Key), Part: string(j.Part)} }), err
}

// Past is the column of a list of earlier revisions, nil where there is none.
func Past(list []claims.Past) (any, error) { return column(each(list, pastOf)) }

// ParsePast is the inverse of Past.
func ParsePast(col sql.Null[string]) ([]claims.Past, error) {
	list, err := parse[[]jsonPast](col)
	return each(list, jsonPast.claims), err
}

// Texts is the column of a list of strings, nil where there is none.
func Texts(list []string) (any, error) {
	return column(each(list, func(s string) text { return text(s) }))
}

// ParseTexts is the inverse of Texts.
func ParseTexts(col sql.Null[string]) ([]string, error) {
	list, err := parse[[]text](col)
	return each(list, func(t text) string { return string(t) }), err
}
