package memory

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/fence-sidecar/fence-sidecar/claims"
)

// record appends an event.
func (d *Data) record(e *claims.Event, now claims.Now) {
	if e == nil {
		return
	}
	next := &Event{Event: *e}
	d.LastEvent++
	next.ID, next.At = strconv.Itoa(d.LastEvent), now
	d.Events = append(d.Events, next)
}

// forget drops at most limit events of before a time.
func (d *Data) forget(before time.Time, limit int) int {
	had := len(d.Events)
	d.Events = slices.DeleteFunc(d.Events, func(e *Event) bool {
		if limit <= 0 || !e.At.Store.Before(before) {
			return false
		}
		limit--
		return true
	})
	return had - len(d.Events)
}

// Events implements claims.Journal.
func (s *Store) Events(ctx context.Context, after string, limit int) ([]claims.Event, error) {
	if _, err := s.enter(ctx); err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	from := 0
	if after != "" {
		n, err := strconv.Atoi(after)
		if err != nil || n < 1 || n > s.data.LastEvent || strconv.Itoa(n) != after {
			return nil, fmt.Errorf("%w: %q", claims.ErrBadEvent, after)
		}
		from = n
	}
	var out []claims.Event
	for _, e := range s.data.Events {
		if n, _ := strconv.Atoi(e.ID); n > from && len(out) < limit {
			out = append(out, e.Event)
		}
	}
	return out, nil
}

// LastEvent implements claims.Journal.
func (s *Store) LastEvent(ctx context.Context) (string, error) {
	if _, err := s.enter(ctx); err != nil {
		return "", err
	}
	defer s.mu.Unlock()
	if s.data.LastEvent == 0 {
		return "", nil
	}
	return strconv.Itoa(s.data.LastEvent), nil
}

// Untold implements claims.Journal.
func (s *Store) Untold(ctx context.Context, sweep claims.Sweep) ([]claims.Event, error) {
	now, err := s.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	var out []claims.Event
	for _, e := range s.data.Events {
		other := len(sweep.Tenants) > 0 && !slices.Contains(sweep.Tenants, e.Key.Tenant)
		if e.Told || other || e.NextTry.After(now.Store) || len(out) >= sweep.Limit {
			continue
		}
		e.NextTry = now.Store.Add(sweep.Backoff(e.Tries))
		e.Tries++
		out = append(out, e.Event)
	}
	return out, nil
}

// Told implements claims.Journal.
func (s *Store) Told(ctx context.Context, id string) error {
	if _, err := s.enter(ctx); err != nil {
		return err
	}
	defer s.mu.Unlock()
	for _, e := range s.data.Events {
		e.Told = e.Told || e.ID == id
	}
	return nil
}

// Announce implements claims.Members.
func (s *Store) Announce(ctx context.Context, m claims.Member) error {
	now, err := s.enter(ctx)
	if err != nil {
		return err
	}
	defer s.mu.Unlock()
	if v := s.data.standing(m.Guard, now); !v.Live() {
		return &claims.FencedError{Guard: m.Guard, Status: v.Status, Sender: true}
	}
	m.Keys = slices.Clone(m.Keys)
	s.data.Members[m.Guard.Scope] = m
	return nil
}

// Members implements claims.Members.
func (s *Store) Members(ctx context.Context) ([]claims.Member, error) {
	now, err := s.enter(ctx)
	if err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	var out []claims.Member
	for scope, l := range s.data.Leases {
		g := claims.Guard{Scope: scope, Token: l.Token}
		if !g.Instance() || !s.data.standing(g, now).Live() {
			continue
		}
		m := claims.Member{Guard: g}
		if said := s.data.Members[scope]; said.Guard == g {
			m = said
			m.Keys = slices.Clone(said.Keys)
		}
		out = append(out, m)
	}
	slices.SortFunc(out, func(a, b claims.Member) int { return cmp.Compare(a.Guard.Scope, b.Guard.Scope) })
	return out, nil
}
