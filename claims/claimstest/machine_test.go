package claimstest

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/fence-sidecar/fence-sidecar/claims"
	"github.com/fence-sidecar/fence-sidecar/claims/memory"
)

// brokenWorld is a store, or a rule, that breaks one promise on purpose.
type brokenWorld struct {
	name  string
	want  string // begins the name of what must be found; "": whatever it is
	store func(d *double)
	rules func(r *rules)
}

var _ = []any{context.Background, fmt.Sprint, maps.Keys[map[int]int], slices.Sort[[]int], time.Second, claims.Decide, memory.New}

// harness is a memory store, broken or sound.
func (b brokenWorld) harness() Harness {
	if b.store == nil {
		b.store = func(*double) {}
	}
	return Broken{wrap: b.store}.Open()
}

func TestMachineReachesEverything(t *testing.T) {
	seen := map[string]int{}
	setFlag(t, "rapid.seed", 1)
	rapid.Check(t, func(rt *rapid.T) {
		trace, v := playCalls(t.Context(), brokenWorld{}.harness(), scripts.Draw(rt, "script"), sound)
		if v != nil {
			rt.Fatal(v.rule)
		}
		for _, l := range trace {
			for _, w := range []string{"EXECUTED", "late by", "is replayed", "already-undone", "nothing-to-undo", "revision-blocked", "fenced", "in-flight", "needs-review", "decides: claim", "decides: amend", "decides: reconcile", "decides: replay", "sends nothing", " sends", "loss", "told already", "[verdict: ok]", "[recheck: ok]", "[operator: ok]", "[evidence: ok]", "[settle: ok]", "another write", "sender is still live", "fenced (", "quarantine,", "call-cancelled", "superseded-revision", "retention-passed", "in-doubt", "attempts-used", "answer-gone", "scope-finished", "key-conflict", "unread", "undoes", "pending→", "unknown→pending", "open→pending", "declined→pending", "rev 2", "rev 3", "review→", "found-done", "missed", "found-failed", "is pruned", "ends as finished: ok", "ends as released: ok", "is killed", "gives up", " gives \"", "cancelled"} {
				if strings.Contains(l, w) {
					seen[w]++
				}
			}
		}
	})
	for _, w := range slices.Sorted(maps.Keys(seen)) {
		t.Logf("%6d %s", seen[w], w)
	}
}
