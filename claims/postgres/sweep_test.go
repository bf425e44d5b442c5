package postgres

import (
	"testing"
	"time"

	"github.com/fence-sidecar/fence-sidecar/claims"
)

// TestSweepsBeyondOneTransaction: as many as are asked for, each once.
func TestSweepsBeyondOneTransaction(t *testing.T) {
	const calls = 2*maxSweep + 100
	cfg := migrated(t)
	s := open(t, cfg)
	r := record("first")
	r.State = claims.StateUnknown
	put(t, s, r)
	alter(t, cfg, `INSERT INTO {schema}.calls SELECT (jsonb_populate_record(c, jsonb_build_object('call_key', '\\x' || lpad(to_hex(n), 8, '0')))).*
		FROM {schema}.calls c, generate_series(2, $1) n`, calls)
	for _, n := range []struct{ limit, want int }{{maxSweep + 1, maxSweep + 1}, {10000, calls - maxSweep - 1}, {10000, 0}, {0, 0}, {-1, 0}} {
		keys, err := s.Unsettled(t.Context(), claims.Sweep{Limit: n.limit, Base: time.Hour})
		ok(t, err)
		once := map[claims.Key]bool{}
		for _, k := range keys {
			once[k] = true
		}
		if len(keys) != n.want || len(once) != n.want {
			t.Errorf("of a limit of %d: %d calls, %d different, want %d", n.limit, len(keys), len(once), n.want)
		}
	}
}
