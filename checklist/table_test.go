package checklist_test

import (
	"maps"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fence-sidecar/fence-sidecar/checklist"
	"github.com/fence-sidecar/fence-sidecar/gateways/sandbox"
)

var profiles = []string{"stripe", "adyen", "paypal", "checkout", "gocardless"}

// table is the summary table of the five gateways, as verdicts: supported PASS, partial PARTIAL, no FAIL. Where nothing is documented
// the sandboxes play the worst: another body under a used key gets the first answer (G5). Of G3, GoCardless publishes nothing that
// could be relied on, so that a key that survives is PARTIAL.
var table = map[string]map[string]string{
	"stripe":     {"G1": "PASS", "G2": "PARTIAL", "G3": "PASS", "G4": "PASS", "G5": "PASS", "G6": "PASS"},
	"adyen":      {"G1": "PASS", "G2": "PARTIAL", "G3": "PASS", "G4": "PASS", "G5": "FAIL", "G6": "PASS"},
	"paypal":     {"G1": "PASS", "G2": "PARTIAL", "G3": "PASS", "G4": "PARTIAL", "G5": "FAIL", "G6": "PASS"},
	"checkout":   {"G1": "PASS", "G2": "PASS", "G3": "PASS", "G4": "PARTIAL", "G5": "FAIL", "G6": "PASS"},
	"gocardless": {"G1": "PASS", "G2": "PASS", "G3": "PARTIAL", "G4": "PARTIAL", "G5": "PARTIAL", "G6": "PASS"},
}

// Each sandbox shows what its gateway documents, in a first run and one when its keys are nearly out.
func TestChecklistGivesTheTable(t *testing.T) {
	for _, name := range profiles {
		t.Run(name, func(t *testing.T) {
			clock := &clock{}
			w := start(t, name, sandbox.Config{Clock: clock.now}, nil)
			w.listen()
			w.cfg.State = filepath.Join(t.TempDir(), "state.json")
			want := maps.Clone(table[name])
			want["G3"] = checklist.NotChecked
			rep := w.run()
			if d := cmp.Diff(want, verdicts(rep)); d != "" {
				t.Errorf("verdicts (-documented +seen):\n%s", d)
			}
			clock.pass(rep.Declared.Retention * 95 / 100)
			rep = w.run()
			if d := cmp.Diff(table[name], verdicts(rep)); d != "" {
				t.Errorf("later verdicts (-documented +seen):\n%s", d)
			}
			for _, r := range rep.Rows {
				if want := checklist.Expected(w.cfg.Gateway.Guarantee(r.Name).Level); want != "" && (want != r.Verdict || r.Agrees != "as documented") {
					t.Errorf("%s is %s (%s), declared %s", r.Name, r.Verdict, r.Agrees, r.Documented.Level)
				}
			}
		})
	}
}
