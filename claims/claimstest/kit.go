package claimstest

import (
	"errors"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/fence-sidecar/fence-sidecar/claims"
)

const (
	ttl     = 30 * time.Second
	timeout = 2 * time.Minute // of an attempt
	tick    = time.Microsecond
)

// kit is what rules are written with. Its methods end the rule where going on makes no sense.
type kit struct {
	T
	Harness
}

func (k *kit) take(scope string) claims.Guard {
	k.Helper()
	l, err := k.Backend.Acquire(k.Context(), scope, "holder", ttl)
	if err != nil {
		k.Fatalf("acquire %s: %v", scope, err)
	}
	return l.Guard
}

func (k *kit) get(key claims.Key, g claims.Guard) claims.View {
	k.Helper()
	v, err := k.Backend.Get(k.Context(), key, g)
	if err != nil {
		k.Fatalf("get %s: %v", key, err)
	}
	return v
}

func (k *kit) swap(c claims.Condition, writes ...claims.Write) (claims.Swapped, error) {
	return k.Backend.Swap(k.Context(), c, writes...)
}

// put writes a record over the version that it has, and returns it as written.
func (k *kit) put(r claims.Record) claims.Record {
	k.Helper()
	s, err := k.swap(claims.Condition{}, claims.Write{Version: r.Version, Next: r})
	if err != nil {
		k.Fatalf("swap %s: %v", r.Key, err)
	}
	if len(s.Records) != 1 {
		k.Fatalf("swap %s returned %d records", r.Key, len(s.Records))
	}
	return s.Records[0]
}

// claim writes a pending record whose deadline the store stamps.
func (k *kit) claim(key claims.Key, scope string, sender claims.Guard) claims.Record {
	k.Helper()
	s, err := k.swap(claims.Condition{}, claim(key, scope, sender))
	if err != nil {
		k.Fatalf("claim %s: %v", key, err)
	}
	return s.Records[0]
}

func claim(key claims.Key, scope string, sender claims.Guard) claims.Write {
	r := record(key, claims.StatePending)
	r.Scope, r.Sender = scope, sender
	r.Attempts = []claims.Attempt{{Number: 1, Claim: r.Claim, Sender: sender, Wrote: true}}
	return claims.Write{Next: r, Claim: true, Timeout: timeout}
}

func record(key claims.Key, state claims.State) claims.Record {
	return claims.Record{Key: key, State: state, Revision: 1, Attempt: 1, Claim: claims.NewClaimID()}
}

func call(name string) claims.Key { return claims.Key{Tenant: "shop", Call: name} }

// refused wants one of the named refusals, and that claims.Refused knows it.
func (k *kit) refused(what string, err, want error) {
	k.Helper()
	if !errors.Is(err, want) {
		k.Errorf("%s: %v, want %v", what, err, want)
	} else if !claims.Refused(err) {
		k.Errorf("%s: %v does not count as refused", what, err)
	}
}

// fenced wants a *claims.FencedError that says all about the guard.
func (k *kit) fenced(what string, err error, want claims.FencedError) {
	k.Helper()
	e, ok := errors.AsType[*claims.FencedError](err)
	if !ok {
		k.Errorf("%s: %v, want fenced: %s", what, err, want.Status)
		return
	}
	if *e != want {
		k.Errorf("%s: fenced as %+v, want %+v", what, *e, want)
	}
}

func (k *kit) ok(what string, err error) {
	k.Helper()
	if err != nil {
		k.Fatalf("%s: %v", what, err)
	}
}

func (k *kit) equal(what string, got, want any) {
	k.Helper()
	if d := cmp.Diff(want, got); d != "" {
		k.Errorf("%s (-want +got):\n%s", what, d)
	}
}

// standing is a guard's view by Get.
func (k *kit) standing(g claims.Guard) claims.GuardView {
	k.Helper()
	return k.get(call("none"), g).Guard
}

func (k *kit) status(what string, g claims.Guard, want claims.LeaseStatus) {
	k.Helper()
	if got := k.standing(g).Status; got != want {
		k.Errorf("%s: %s is %s, want %s", what, g, got, want)
	}
}
