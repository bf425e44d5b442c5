package claims

import (
	"errors"
	"fmt"
	"time"
)

// Effect names one write of an application's own rows, in the database that holds the leases, that happens once per (Tenant,
// Name, Key).
type Effect struct {
	// Guard is the application's lease. Its scope is one of Tenant; instance scopes and external tokens are refused.
	Guard Guard
	// Tenant, Name and Key have 1 to MaxKey bytes of UTF-8 without control characters; they are compared as bytes.
	Tenant, Name, Key string
	// Fingerprint of what the effect does, 1 to MaxKey bytes: another one under the same key is a conflict.
	Fingerprint []byte
}

const (
	// EffectResultLimit is how large a result may be, in bytes, where nothing else is set.
	EffectResultLimit = 64 << 10
	// EffectRetention is how long a result is kept, so that a repeat gets it, where nothing else is set. A repeat after that
	// runs its work again.
	EffectRetention = 24 * time.Hour
)

// Refusals of an effect besides *FencedError and *QuarantineError: nothing of it is written.
var (
	ErrBadEffect      = errors.New("not an effect")
	ErrEffectConflict = errors.New("the effect has happened already, with another fingerprint")
	ErrEffectOversize = errors.New("the effect's result is too large")
	ErrEffectNested   = errors.New("an effect is under way in this transaction: effects do not nest")
	ErrEffectOpen     = errors.New("the effect was begun and not ended in its transaction")
	// ErrEffectServer says that the database went to another server, and that no sidecar has looked yet what was lost.
	ErrEffectServer = errors.New("the store is on another server than before")
	// ErrEffectBackend says that a database is not the store of the sidecar that grants the leases.
	ErrEffectBackend = errors.New("the database is not the sidecar's store")
)

// ErrEffectPerhaps says that the commit's answer was lost. A repeat under the same key and fingerprint tells: it gets the result,
// or runs the work.
var ErrEffectPerhaps = errors.New("the effect is perhaps applied")

func (e Effect) String() string { return e.Tenant + "/" + e.Name + "/" + e.Key }

// Check refuses what cannot be an effect: ErrBadEffect.
func (e Effect) Check() error {
	for _, call := range []string{e.Name, e.Key} {
		if err := (Key{Tenant: e.Tenant, Call: call}).Check(); err != nil {
			return fmt.Errorf("%w: %w (of the tenant, the name and the key)", ErrBadEffect, err)
		}
	}
	if n := len(e.Fingerprint); n == 0 || n > MaxKey {
		return fmt.Errorf("%w: its fingerprint has %d bytes, want 1 to %d", ErrBadEffect, n, MaxKey)
	}
	return CheckEffectGuard(e.Guard, e.Tenant)
}

// CheckEffectGuard refuses a guard that no effect of a tenant may run under: ErrBadEffect.
func CheckEffectGuard(g Guard, tenant string) error {
	if _, err := ParseGuard(g.String()); err != nil {
		return fmt.Errorf("%w: %w", ErrBadEffect, err)
	}
	if of, _, _ := SplitScope(g.Scope); of != tenant {
		return fmt.Errorf("%w: the token is of tenant %q, not %q", ErrBadEffect, of, tenant)
	}
	return nil
}

// EffectRefused reports whether err is a named refusal of an effect, so that surely nothing of it was written.
func EffectRefused(err error) bool {
	if errors.Is(err, ErrEffectPerhaps) {
		return false
	}
	for _, r := range []error{ErrBadEffect, ErrEffectConflict, ErrEffectOversize, ErrEffectNested, ErrEffectOpen, ErrEffectServer, ErrEffectBackend} {
		if errors.Is(err, r) {
			return true
		}
	}
	return Refused(err)
}
