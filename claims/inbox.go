package claims

import (
	"context"
	"errors"
)

// Handles are what a gateway's notice may know of a call. At least one is set.
type Handles struct {
	Reference string // that the gateway was given: of the call's current revision or of an earlier one
	Object    string // the gateway's own id, as Record.Object
}

// Finder finds calls by what a gateway knows of them.
type Finder interface {
	// Find returns the keys of a tenant's calls at a gateway that have one of the handles, compared byte by byte, in the order of
	// their keys, at most limit.
	Find(ctx context.Context, tenant, gateway string, h Handles, limit int) ([]Key, error)
}

// MaxEarly bounds the notices that are kept for one tenant.
const MaxEarly = 10_000

// MaxEarlyBody bounds Early.Body, in bytes.
const MaxEarlyBody = 16 << 10

// ErrInboxFull says that MaxEarly notices of the tenant are kept already: the notice is to be sent again later.
var ErrInboxFull = errors.New("too many notices are kept that no call is known for")

// Early is a notice that came before its call. (Tenant, Gateway, ID) is its name.
type Early struct {
	Tenant  string
	Gateway string
	ID      string
	Body    []byte // as the intake wrote it: no more than it needs to apply the notice later
	At      Now    // by the store, when it was first kept
}

// Inbox keeps notices until their call is there.
type Inbox interface {
	// Keep keeps a notice. One of the same name is kept already: nothing changes. Refusal: ErrInboxFull.
	Keep(ctx context.Context, e Early) error
	// Kept returns at most limit notices of the tenants (none: everybody's), those that nobody was given for the longest time
	// first (new ones before all), and remembers that they were given.
	Kept(ctx context.Context, tenants []string, limit int) ([]Early, error)
	// Drop forgets a notice. One that is gone is no error.
	Drop(ctx context.Context, tenant, gateway, id string) error
}
