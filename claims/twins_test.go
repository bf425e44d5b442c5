package claims_test

import (
	"context"
	"testing"

	"github.com/fence-sidecar/fence-sidecar/claims"
)

// TestTwins: the very same request under another call key is told of while the first one is in doubt, and only then.
func TestTwins(t *testing.T) {
	bubble(t, func(w *world) {
		w.keep(w.p)
		var told []string
		w.p.fence.Twin = func(call, inDoubt claims.Key) { told = append(told, call.Call+" beside "+inDoubt.Call) }
		lost := true
		w.gw.script = func(_ context.Context, _ int, p claims.Pass) claims.Sent {
			if lost {
				return claims.Sent{Cause: "cut"}
			}
			return w.gw.charge(p)
		}
		c := w.call("a")
		c.Policy.Probe = false
		w.do(c)
		w.do(c)
		lost = false
		w.do(w.call("b"))
		w.do(w.call("b"))
		foreign := w.call("c")
		foreign.Key.Tenant = "other"
		w.do(foreign)
		changed := w.call("d")
		changed.Canonical = []byte("amount=101")
		w.do(changed)
		if len(told) != 1 || told[0] != "b beside a" {
			t.Errorf("told %q, want b beside a", told)
		}
		w.gw.blind = false
		w.gw.done["gk:a"] = 1
		w.do(c) // found: no doubt any more
		w.do(w.call("e"))
		if len(told) != 1 {
			t.Errorf("told %q", told)
		}
	})
}
