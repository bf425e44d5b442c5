package sandbox

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"
)

// profile is a gateway that the sandbox plays: its paths, fields and errors, and what it does with keys. What a nil function
// means is said beside it.
type profile struct {
	name  string
	title string
	// header carries the idempotency key; key reads it where it stands elsewhere. keyed says whether an operation takes one; nil:
	// every POST does.
	header string
	key    func(r *request) string
	keyed  func(r *request) bool
	// credential is the header that must be there; account reads what scopes keys and objects besides; nil: nothing.
	credential string
	account    func(r *request) string
	// unauthorized, forbidden, limited, serverError and inUse are the gateway's own errors.
	unauthorized func() answer
	forbidden    func() answer
	limited      func(fault string) answer // rate-limit, lock-timeout
	serverError  func(status int) answer
	inUse        func(r *request) answer
	malformed    func(message string) answer
	// badKey refuses a key before anything else; nil: any key is taken.
	badKey func(r *request) (answer, bool)
	// params is what two requests under one key are compared by; nil: they are not compared.
	params func(r *request) string
	// conflict answers another request under a used key; nil: as if it were the same.
	conflict func(r *request, e *entry) answer
	// repeat answers a repeat of a key under which something was kept; nil: with the stored answer.
	repeat func(x *call, e *entry) answer
	// retention is how long keys are kept where Config says nothing; 0: 24h.
	retention time.Duration
	// keeps says whether an answer is kept under its key, so that a repeat does not execute; nil: every answer to what ran.
	keeps func(a answer) bool
	// echo dresses an answer to a request with a key; nil: as it is.
	echo func(r *request, a answer) answer
	// run executes a request. false: refused before anything ran, and nothing is kept under the key.
	run func(x *call) (answer, bool)
	// reference reads our reference for the ledger; nil: none is shown.
	reference func(x *call, kind string, o *object) string
	// move moves an object that is under way on: done, failed, reversed. The lock is held. nil: nothing is ever under way.
	move func(s *Server, o *object, to string) error
	// notice writes and signs what the gateway tells a webhook of an object; false: nothing. event is what happened: created,
	// done, failed, reversed. The lock is held. nil: nothing is ever told.
	notice func(s *Server, o *object, event string, h Hook) (notice, bool)
}

// profiles are the gateways that can be played, by name.
var profiles = map[string]*profile{}

// Profiles are the names of the gateways that the sandbox plays.
func Profiles() []string { return slices.Sorted(maps.Keys(profiles)) }

func (cfg *Config) profile() (*profile, error) {
	name := cfg.Profile
	if name == "" {
		name = "stripe"
	}
	p := profiles[name]
	if p == nil {
		return nil, fmt.Errorf("sandbox: no profile %q; there are %s", name, strings.Join(Profiles(), ", "))
	}
	return p, nil
}

// takesKey reports whether a request's key means anything.
func (p *profile) takesKey(r *request) bool {
	if p.keyOf(r) == "" {
		return false
	}
	if p.keyed == nil {
		return r.method == "POST"
	}
	return p.keyed(r)
}

func (p *profile) keyOf(r *request) string {
	if p.key != nil {
		return p.key(r)
	}
	return r.header.Get(p.header)
}

func (p *profile) accountOf(r *request) string {
	if p.account == nil {
		return ""
	}
	return p.account(r)
}
