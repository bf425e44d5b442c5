package main

import (
	"fmt"
	"strings"

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
