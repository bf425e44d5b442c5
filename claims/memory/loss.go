package memory

import (
	"time"

	"github.com/fence-sidecar/fence-sidecar/claims"
)

// Lose tells the store that writes after from, which it had acknowledged, are perhaps gone: a new era begins, with a
// quarantine of the given length. What the loss takes away is the caller's to take away, by Edit.
func (s *Store) Lose(from claims.Now, quarantine time.Duration) {
	s.Edit(func(d *Data, now claims.Now) {
		d.Losses = append(d.Losses, claims.Loss{From: from, At: now})
		d.Quarantine = now.Store.Add(quarantine)
	})
}

func (d *Data) era() uint64 { return uint64(len(d.Losses)) }

// open refuses during a quarantine.
func (d *Data) open(now claims.Now) error {
	if left := d.Quarantine.Sub(now.Store); left > 0 {
		return &claims.QuarantineError{Left: left}
	}
	return nil
}

// loss is what a record of an era, or the want of one, may have missed.
func (d *Data) loss(r *claims.Record, now claims.Now) *claims.Loss {
	var out *claims.Loss
	for i, l := range d.Losses {
		if r.Exists() && r.Era > uint64(i) || !r.Exists() && now.Store.Sub(l.At.Store) > claims.LossWatch {
			continue
		}
		if out == nil {
			out = &claims.Loss{From: l.From}
		}
		out.At = l.At
	}
	return out
}
