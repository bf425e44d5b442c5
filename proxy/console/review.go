package console

import (
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/fence-sidecar/fence-sidecar/claims"
)

// maxText bounds each text that a person writes, in bytes.
const maxText = 1000

// words are what a person may say of a call in review.
var words = map[string]claims.Word{
	"executed": claims.WasExecuted, "not-executed": claims.WasNotExecuted, "look-again": claims.LookAgain,
}

// said is an operator's word about the call as it was at one version.
type said struct {
	who, word, note string
	version         int64
}

type resolveAnswer struct {
	// Repeated says that the same operator's same word about the same version had been applied before.
	Repeated bool `json:"repeated"`
	Call     Call `json:"call"`
}

// resolve applies an operator's word to a call in review. Only the version that the operator saw is resolved, so that nobody
// decides on an old screen.
func (c *Console) resolve(x *exchange) error {
	who, err := x.operator()
	if err != nil {
		return err
	}
	k, err := x.queryCall()
	if err != nil {
		return err
	}
	s, err := x.word(who)
	if err != nil {
		return err
	}
	for range maxDecisions {
		v, err := x.get(k)
		r, repeated, again := v.Record, false, false
		switch {
		case err != nil:
			return err
		case !r.Exists():
			return noSuchCall()
		case r.Version == s.version:
			r, again, err = x.apply(s, v)
		case s.stands(&r):
			repeated = true
			again, err = x.passing(&r)
		default:
			return conflict(claims.RecordChanged, fmt.Sprintf("the call is at version %d: look at it again, then decide", r.Version), &r)
		}
		switch {
		case err != nil:
			return err
		case again:
			continue
		}
		x.json(resolveAnswer{repeated, Show(&r)})
		return nil
	}
	return busy()
}

// apply writes a word.
func (x *exchange) apply(s said, v claims.View) (r claims.Record, again bool, err error) {
	Strict(&v.Record, x.c.Gateways)
	is, err := claims.Resolve(v.Record, words[s.word], s.who, s.note, v.Now)
	if err != nil {
		return r, false, conflict(claims.NotResolvable, err.Error(), &v.Record)
	}
	r, again, err = x.change(v.Record, is)
	if err == nil && !again {
		x.c.Metrics.resolved(s.word)
		x.note("call resolved", &r, slog.String("operator", s.who), slog.String("word", s.word))
	}
	return r, again, err
}

// word reads what an operator says.
func (x *exchange) word(who string) (said, error) {
	b, err := x.object("version", "word", "why", "evidence")
	if err != nil {
		return said{}, err
	}
	if b.Word == nil || b.Version == nil || b.Why == nil {
		return said{}, bad("version, word and why are wanted")
	}
	if _, ok := words[*b.Word]; !ok || *b.Version < 1 {
		return said{}, bad("word: want executed, not-executed or look-again; version: that of the call as you saw it")
	}
	note := *b.Why
	if err := checkText("why", note, 1); err != nil {
		return said{}, err
	}
	if b.Evidence != nil {
		if err := checkText("evidence", *b.Evidence, 1); err != nil {
			return said{}, err
		}
		note += "; evidence: " + *b.Evidence
	}
	return said{who, *b.Word, fmt.Sprintf("%s [of version %d]", note, *b.Version), *b.Version}, nil
}

// checkText refuses what would not come through every store and screen as it is.
func checkText(what, s string, least int) error {
	switch {
	case len(s) < least || len(s) > maxText:
		return bad(fmt.Sprintf("%s: want %d to %d bytes", what, least, maxText))
	case strings.ContainsRune(s, utf8.RuneError) || strings.ContainsFunc(s, unicode.IsControl):
		return bad(what + ": want text without control characters and U+FFFD")
	}
	return nil
}

// stands reports whether a record holds this very word. The note names the version, so that the same words of another time are
// told apart.
func (s said) stands(r *claims.Record) bool {
	return slices.ContainsFunc(r.Evidence, func(e claims.Evidence) bool {
		return e.Source == "operator" && e.By == s.who && e.Note == s.note && e.Outcome == outcomes[words[s.word]]
	})
}

var outcomes = map[claims.Word]claims.Outcome{
	claims.WasExecuted: claims.Succeeded, claims.WasNotExecuted: claims.NotExecuted, claims.LookAgain: claims.Unknown,
}

// passing makes sure that a record which was read, and is to be told without a write of ours, is as lasting as one that was
// acknowledged: it may be the work of a write that nobody acknowledged. true: it is another one by now.
func (x *exchange) passing(r *claims.Record) (again bool, err error) {
	if err := x.confirmed(); err != nil {
		return false, err
	}
	v, err := x.get(r.Key)
	return v.Record.Version != r.Version, err
}

// note logs what somebody did to a call.
func (x *exchange) note(what string, r *claims.Record, attrs ...slog.Attr) {
	x.c.Log.LogAttrs(x.r.Context(), slog.LevelInfo, what, append([]slog.Attr{
		slog.String("tenant", r.Key.Tenant), slog.String("call", r.Key.Call), slog.String("state", string(r.State)), slog.Int64("version", r.Version),
	}, attrs...)...)
}
