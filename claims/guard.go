package claims

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// Guard is the (scope, token) under which a caller acts. The zero Guard stands for none.
type Guard struct {
	Scope string // scope key: encodeURIComponent(tenant):encodeURIComponent(id), or @instance:<uuid>
	Token uint64 // fencing token: 1 for the first holder of the scope, +1 with every take
}

// InstancePrefix starts the scope of a process's own lease. '@' never comes out of encodeURIComponent, so that no
// application scope can be mistaken for one.
const InstancePrefix = "@instance:"

// ExternalPrefix starts the scope of a token that the application counts itself (a workflow engine's epoch, the transitions
// of a Kubernetes Lease): @external:<scope key>. The store knows only the highest one that it was shown. It cannot know
// whether a higher one was granted elsewhere and not shown yet, so that such a token does not keep an earlier holder from
// charging (assumption A2).
const ExternalPrefix = "@external:"

// ExternalTrust stands in for the remaining time of an external token, which has no expiry that the store knows.
const ExternalTrust = time.Hour

// IsZero reports whether there is no guard.
func (g Guard) IsZero() bool { return g == Guard{} }

// Instance reports whether the scope is a process's own.
func (g Guard) Instance() bool { return strings.HasPrefix(g.Scope, InstancePrefix) }

// External reports whether the application counts the scope's tokens itself.
func (g Guard) External() bool { return strings.HasPrefix(g.Scope, ExternalPrefix) }

// String is the wire form of a fencing token: <scopeKey>#<token>.
func (g Guard) String() string { return g.Scope + "#" + strconv.FormatUint(g.Token, 10) }

// maxScope bounds a scope key's length in bytes.
const maxScope = 1024

// ParseGuard reads the wire form <scopeKey>#<token> of an application's fencing token. Instance scopes are refused: no
// application may act as a sidecar.
func ParseGuard(s string) (Guard, error) {
	scope, tok, ok := strings.Cut(s, "#")
	if !ok {
		return Guard{}, fmt.Errorf("fence token %q: want <scopeKey>#<token>", clip(s))
	}
	if _, _, err := SplitScope(scope); err != nil {
		return Guard{}, err
	}
	n, err := strconv.ParseUint(tok, 10, 63)
	if err != nil || n == 0 || strconv.FormatUint(n, 10) != tok {
		return Guard{}, fmt.Errorf("fence token %q: the part after # must be a decimal number from 1", clip(s))
	}
	return Guard{Scope: scope, Token: n}, nil
}

// ScopeKey joins tenant and id, each encoded as by encodeURIComponent (ECMA-262), so that no two pairs collide.
func ScopeKey(tenant, id string) string {
	return encodeURIComponent(tenant) + ":" + encodeURIComponent(id)
}

// CheckScope lets scopes that can be acquired pass, the applications' and the instances' own; anything else is ErrBadScope.
func CheckScope(scope string) error {
	if id, ok := strings.CutPrefix(scope, InstancePrefix); ok && id != "" {
		return nil
	}
	return CheckApp(scope)
}

// CheckApp lets the scopes of applications pass; anything else is ErrBadScope.
func CheckApp(scope string) error {
	if _, _, err := SplitScope(scope); err != nil {
		return fmt.Errorf("%w: %w", ErrBadScope, err)
	}
	return nil
}

// CheckExternal lets external guards of an application's scope pass; anything else is ErrBadScope.
func CheckExternal(g Guard) error {
	scope, ok := strings.CutPrefix(g.Scope, ExternalPrefix)
	if !ok || g.Token == 0 {
		return fmt.Errorf("%w: %s is no external token", ErrBadScope, g)
	}
	return CheckApp(scope)
}

// SplitScope is the inverse of ScopeKey; it refuses text that ScopeKey would not have made.
func SplitScope(scope string) (tenant, id string, err error) {
	t, i, ok := strings.Cut(scope, ":")
	if ok && len(scope) <= maxScope {
		tenant, err1 := url.PathUnescape(t)
		id, err2 := url.PathUnescape(i)
		if err1 == nil && err2 == nil && id != "" && tenant != "" && utf8.ValidString(tenant) && utf8.ValidString(id) && ScopeKey(tenant, id) == scope {
			return tenant, id, nil
		}
	}
	return "", "", fmt.Errorf("scope key %q: want encodeURIComponent(tenant):encodeURIComponent(id)", clip(scope))
}

func encodeURIComponent(s string) string {
	const plain = "-_.!~*'()"
	var b strings.Builder
	for i := range len(s) {
		c := s[i]
		if c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || strings.IndexByte(plain, c) >= 0 {
			b.WriteByte(c)
		} else {
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}

// clip shortens outside text for an error message.
func clip(s string) string {
	if len(s) > 60 {
		return s[:60] + "…"
	}
	return s
}

// LeaseStatus says what the store knows of a lease, seen by one guard.
type LeaseStatus uint8

const (
	LeaseAbsent     LeaseStatus = iota // the scope or the token was never granted
	LeaseLive                          // held under this very token and not expired
	LeaseExpired                       // this token was the last one granted, its time has run out
	LeaseSuperseded                    // a newer token was granted
	LeaseReleased                      // given back under this token
	LeaseFinished                      // the scope is finished: it is never granted again
)

func (s LeaseStatus) String() string {
	return [...]string{"absent", "live", "expired", "superseded", "released", "finished"}[s]
}

// GuardView is a guard's standing in one snapshot of the store.
type GuardView struct {
	Status    LeaseStatus
	Remaining time.Duration // until expiry, at the snapshot's store time; only where live
	// Finisher: the scope is finished, and by this very token.
	Finisher bool
}

// Live reports whether the guard was live in the snapshot.
func (v GuardView) Live() bool { return v.Status == LeaseLive }
