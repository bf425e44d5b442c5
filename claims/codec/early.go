package codec

import (
	"fmt"

	"github.com/fence-sidecar/fence-sidecar/claims"
)

// CheckEarly refuses a notice that no store keeps: every Inbox asks it before it writes. That is a caller's mistake, no refusal by
// a store's rules.
func CheckEarly(e claims.Early) error {
	for _, p := range []struct{ name, s string }{{"tenant", e.Tenant}, {"gateway", e.Gateway}, {"id", e.ID}} {
		if n := len(p.s); n < 1 || n > claims.MaxKey {
			return fmt.Errorf("the %s of a notice has %d bytes, want 1 to %d", p.name, n, claims.MaxKey)
		}
	}
	if n := len(e.Body); n > claims.MaxEarlyBody {
		return fmt.Errorf("the body of notice %q has %d bytes, at most %d are kept", e.ID, n, claims.MaxEarlyBody)
	}
	return nil
}
