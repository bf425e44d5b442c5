package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/fence-sidecar/fence-sidecar/claims"
	"github.com/fence-sidecar/fence-sidecar/claims/keys"
)

// ring is what a process signs and seals with: the configured key set, and the store's own to read with; without a configured
// one the store's own.
func (c *Config) ring(b claims.Backend) (*keys.Ring, error) {
	own, err := keys.Parse(b.Keyset())
	if err != nil {
		return nil, fmt.Errorf("store: its own keys: %w", err)
	}
	if c.Keys.IsZero() {
		return keys.NewRing(own)
	}
	text, err := c.Keys.Value()
	if err != nil {
		return nil, c.errorf("keys: %w", err)
	}
	set, err := keys.Parse([]byte(text))
	if err != nil {
		return nil, c.errorf("keys: %s%s: %w", c.Keys.Env, c.Keys.File, err)
	}
	r, err := keys.NewRing(set, own)
	if err != nil {
		return nil, c.errorf("keys: %s%s and the store's own: %w", c.Keys.Env, c.Keys.File, err)
	}
	return r, nil
}

func ringWords(r *keys.Ring) string {
	p := r.Primaries()
	return fmt.Sprintf("%s signs, %s seals, %s can be read", p[0], p[1], strings.Join(r.IDs(), " "))
}

// announce tells the others what this process can read, and refuses to start where it would write what one of them cannot
// read. Of two that start at once the one that looks last sees the other: each says its own before it looks. One that has
// served already goes on all the same: else one process with an old file would stop all others at their next lost lease.
func (s *sidecar) announce(ctx context.Context, g claims.Guard) error {
	m := claims.Member{Guard: g, Version: buildVersion(), Schema: s.cfg.schemaKnown(), Keys: s.ring.IDs()}
	if err := s.store.Announce(ctx, m); err != nil {
		return fmt.Errorf("announce: %w", err)
	}
	members, err := s.membersThatSpoke(ctx)
	if err != nil {
		return fmt.Errorf("members: %w", err)
	}
	for _, l := range s.ring.Lacks(members) {
		s.log.Warn("a key that another sidecar writes with cannot be read here: its calls are refused as unreadable", "key", l.Key,
			"sidecar", holder(ctx, s.store, l.Member.Guard))
	}
	err = readByAll(ctx, s.store, s.ring.Primaries(), g.Scope, members)
	if err != nil && s.health.started.Load() {
		s.log.Warn("another sidecar perhaps cannot read what is written here", "error", err)
		return nil
	}
	return err
}

// membersThatSpoke waits a little for those who have just started too: between a lease and its announcement there is one write.
func (s *sidecar) membersThatSpoke(ctx context.Context) ([]claims.Member, error) {
	for began := time.Now(); ; {
		members, err := s.store.Members(ctx)
		silent := slices.ContainsFunc(members, func(m claims.Member) bool { return len(m.Keys) == 0 })
		if err != nil || !silent || s.health.started.Load() || time.Since(began) > 2*time.Second {
			return members, err
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// hopeless reports whether the process must end: another one surely cannot read what it would write, or has said nothing for
// longer than a lease of a dead one lasts.
func (s *sidecar) hopeless(err error, waited time.Duration) bool {
	_, lacks := errors.AsType[*ringError](err)
	return lacks || errors.Is(err, keys.ErrSilent) && waited > s.cfg.Lease.TTL+s.cfg.Lease.Margin
}

// ringError says who cannot read a key that is written with here.
type ringError struct {
	*keys.LacksError
	holder string
}

func (e *ringError) Error() string {
	return fmt.Sprintf("key %s writes here and cannot be read by %s: first give every sidecar a key set that has it (docs/keys.md)", e.Key, e.holder)
}

// readByAll wants every live process to be able to read these keys, and names the one that cannot.
func readByAll(ctx context.Context, b claims.Backend, ids []string, own string, members []claims.Member) error {
	err := keys.ReadByAll(ids, own, members)
	if l, ok := errors.AsType[*keys.LacksError](err); ok {
		return &ringError{l, holder(ctx, b, l.Member.Guard)}
	}
	return err
}

// holder is the host and process of a lease, or its scope where that cannot be read.
func holder(ctx context.Context, b claims.Backend, g claims.Guard) string {
	if l, err := b.State(ctx, g.Scope); err == nil && l.Holder != "" {
		return l.Holder
	}
	return g.Scope
}

// checkRing is for commands that write to the store beside sidecars.
func (c *Config) checkRing(ctx context.Context, b claims.Backend) error {
	r, err := c.ring(b)
	if err != nil {
		return err
	}
	members, err := b.Members(ctx)
	if err != nil {
		return fmt.Errorf("store: %w", err)
	}
	return readByAll(ctx, b, r.Primaries(), "", members)
}
