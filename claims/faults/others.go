package faults

import (
	"context"

	"github.com/fence-sidecar/fence-sidecar/claims"
)

// List implements claims.Lister.
func (s *store) List(ctx context.Context, tenant string, states []claims.State, limit int) ([]claims.Record, error) {
	return do(ctx, s, Op{Name: "List"}, func() ([]claims.Record, error) { return s.Backend.List(ctx, tenant, states, limit) })
}

// Log implements claims.Lister.
func (s *store) Log(ctx context.Context, scope string) ([]claims.LeaseEvent, error) {
	return do(ctx, s, Op{Name: "Log", Scope: scope}, func() ([]claims.LeaseEvent, error) { return s.Backend.Log(ctx, scope) })
}

// Events implements claims.Journal.
func (s *store) Events(ctx context.Context, after string, limit int) ([]claims.Event, error) {
	return do(ctx, s, Op{Name: "Events"}, func() ([]claims.Event, error) { return s.Backend.Events(ctx, after, limit) })
}

// LastEvent implements claims.Journal.
func (s *store) LastEvent(ctx context.Context) (string, error) {
	return do(ctx, s, Op{Name: "LastEvent"}, func() (string, error) { return s.Backend.LastEvent(ctx) })
}

// Untold implements claims.Journal.
func (s *store) Untold(ctx context.Context, w claims.Sweep) ([]claims.Event, error) {
	return do(ctx, s, Op{Name: "Untold"}, func() ([]claims.Event, error) { return s.Backend.Untold(ctx, w) })
}

// Told implements claims.Journal.
func (s *store) Told(ctx context.Context, id string) error {
	return only(ctx, s, Op{Name: "Told"}, func() error { return s.Backend.Told(ctx, id) })
}

// Announce implements claims.Members.
func (s *store) Announce(ctx context.Context, m claims.Member) error {
	return only(ctx, s, Op{Name: "Announce", Scope: m.Guard.Scope}, func() error { return s.Backend.Announce(ctx, m) })
}

// Members implements claims.Members.
func (s *store) Members(ctx context.Context) ([]claims.Member, error) {
	return do(ctx, s, Op{Name: "Members"}, func() ([]claims.Member, error) { return s.Backend.Members(ctx) })
}

// Find implements claims.Finder.
func (s *store) Find(ctx context.Context, tenant, gateway string, h claims.Handles, limit int) ([]claims.Key, error) {
	return do(ctx, s, Op{Name: "Find"}, func() ([]claims.Key, error) { return s.Backend.Find(ctx, tenant, gateway, h, limit) })
}

// Keep implements claims.Inbox.
func (s *store) Keep(ctx context.Context, e claims.Early) error {
	return only(ctx, s, Op{Name: "Keep"}, func() error { return s.Backend.Keep(ctx, e) })
}

// Kept implements claims.Inbox.
func (s *store) Kept(ctx context.Context, tenants []string, limit int) ([]claims.Early, error) {
	return do(ctx, s, Op{Name: "Kept"}, func() ([]claims.Early, error) { return s.Backend.Kept(ctx, tenants, limit) })
}

// Drop implements claims.Inbox.
func (s *store) Drop(ctx context.Context, tenant, gateway, id string) error {
	return only(ctx, s, Op{Name: "Drop"}, func() error { return s.Backend.Drop(ctx, tenant, gateway, id) })
}
