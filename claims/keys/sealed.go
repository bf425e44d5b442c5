package keys

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/fence-sidecar/fence-sidecar/claims"
)

// Sealed is a store in which answers lie sealed: they are sealed on their way in and opened on their way out. A record with an
// answer that cannot be opened is claims.ErrUnreadable, whatever else of it could be read: without the answer it would say that
// none was kept.
func Sealed(b claims.Backend, r *Ring) claims.Backend { return &sealed{b, r} }

type sealed struct {
	claims.Backend
	ring *Ring
}

// Get implements claims.Store.
func (s *sealed) Get(ctx context.Context, key claims.Key, guard claims.Guard) (claims.View, error) {
	v, err := s.Backend.Get(ctx, key, guard)
	if err != nil {
		return v, err
	}
	if v.Record, err = s.open(v.Record); err != nil {
		return claims.View{}, err
	}
	return v, nil
}

// Swap implements claims.Store. Where it wrote something that it cannot read back, its error is none that claims.Refused
// knows: that would say that nothing was written.
func (s *sealed) Swap(ctx context.Context, cond claims.Condition, writes ...claims.Write) (claims.Swapped, error) {
	in := slices.Clone(writes)
	for i := range in {
		var err error
		if in[i].Next, err = s.seal(in[i].Next); err != nil {
			return claims.Swapped{}, err
		}
	}
	out, err := s.Backend.Swap(ctx, cond, in...)
	if err != nil && !errors.Is(err, claims.ErrLost) {
		out.Records = nil
		return out, err
	}
	for i, r := range out.Records {
		opened, oerr := s.open(r)
		if oerr != nil {
			out.Records = nil
			if err == nil {
				oerr = fmt.Errorf("written, and cannot be read back: %v", oerr) // not wrapped: perhaps applied
			}
			return out, oerr
		}
		out.Records[i] = opened
	}
	return out, err
}

// List implements claims.Lister: as of the stores, records that cannot be read are named by an error beside the others.
func (s *sealed) List(ctx context.Context, tenant string, states []claims.State, limit int) ([]claims.Record, error) {
	all, err := s.Backend.List(ctx, tenant, states, limit)
	errs := []error{err}
	var out []claims.Record
	for _, r := range all {
		opened, err := s.open(r)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		out = append(out, opened)
	}
	return out, errors.Join(errs...)
}

func (s *sealed) seal(r claims.Record) (claims.Record, error) { return each(r, s.ring.Seal) }
func (s *sealed) open(r claims.Record) (claims.Record, error) { return each(r, s.ring.Open) }

// each is the record with every answer replaced; the given one keeps its own.
func each(r claims.Record, f func(Place, *claims.Answer) (*claims.Answer, error)) (_ claims.Record, err error) {
	if r.Answer, err = f(placeOf(&r), r.Answer); err != nil {
		return claims.Record{}, err
	}
	r.Evidence = slices.Clone(r.Evidence)
	for i := range r.Evidence {
		e := &r.Evidence[i]
		if e.Answer, err = f(placeBeside(r.Key, e), e.Answer); err != nil {
			return claims.Record{}, err
		}
	}
	return r, nil
}
