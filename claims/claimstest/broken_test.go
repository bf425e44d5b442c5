package claimstest

import (
	"slices"
	"strings"
	"testing"
)

// TestEveryBrokenStoreIsCaught runs the one rule that a broken store breaks against it, and wants it to fail.
func TestEveryBrokenStoreIsCaught(t *testing.T) {
	rules := Rules()
	caught := map[string]bool{}
	for _, b := range BrokenStores() {
		t.Run(b.Rule+"/"+strings.ReplaceAll(b.Name, " ", "-"), func(t *testing.T) {
			i := slices.IndexFunc(rules, func(r Rule) bool { return r.Name == b.Rule })
			if i < 0 {
				t.Fatalf("no rule %s", b.Rule)
			}
			if len(Failures(t.Context(), rules[i], b.Open())) == 0 {
				t.Fatalf("a store where %q passes %s", b.Name, b.Rule)
			}
			caught[b.Rule] = true
		})
	}
	for _, r := range rules {
		if !caught[r.Name] {
			t.Errorf("no broken store shows that %s bites", r.Name)
		}
	}
	t.Logf("%d rules, %d broken stores", len(rules), len(BrokenStores()))
}

// TestSoundStorePasses: the recorder that catches broken stores complains about none that is sound.
func TestSoundStorePasses(t *testing.T) {
	for _, r := range Rules() {
		h := Broken{wrap: func(*double) {}}.Open()
		if f := Failures(t.Context(), r, h); len(f) > 0 {
			t.Errorf("%s: %s", r.Name, strings.Join(f, "\n"))
		}
	}
}

// TestExceptedRuleIsNotRun: an exception is a word in the harness, not a rule that passes.
func TestExceptedRuleIsNotRun(t *testing.T) {
	b := BrokenStores()[0]
	ran := 0
	Run(t, func(t *testing.T) Harness {
		h := Broken{wrap: func(*double) {}}.Open()
		if strings.HasSuffix(t.Name(), b.Rule) {
			ran++
			h = b.Open()
			h.Except = map[string]string{b.Rule: "for this test"}
		}
		return h
	})
	if ran != 1 {
		t.Errorf("%s was opened %d times", b.Rule, ran)
	}
}

func TestZeroFieldFindsOne(t *testing.T) {
	r := FullRecord(call("c"))
	r.Evidence[0].Answer.Header[0].Value = ""
	if got, want := ZeroField(r), "Record.Evidence[0].Answer.Header[0].Value"; got != want {
		t.Errorf("found %q, want %q", got, want)
	}
}
