package console

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/fence-sidecar/fence-sidecar/claims"
)

// maxText bounds what a person writes, in bytes.
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

// resolve applies an operator's word to a call in review.
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
		switch {
		case err != nil:
			return err
		case !v.Record.Exists():
			return noSuchCall()
		case v.Record.Version != s.version:
			return x.stale(s, v)
		}
		is, err := Resolve(&v, c, words[s.word], s.who, s.note)
		if err != nil {
			return conflict(claims.NotResolvable, err.Error(), &v.Record)
		}
		r, again, err := x.change(v.Record, is)
		switch {
		case err != nil:
			return err
		case again:
			continue
		}
		c.Metrics.resolved(s.word)
		x.log("call resolved", r, slog.String("operator", s.who), slog.String("word", s.word))
		x.json(resolveAnswer{false, Show(&r)})
		return nil
	}
	return busy()
}
