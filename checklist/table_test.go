package checklist_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/fence-sidecar/fence-sidecar/checklist"
	"github.com/fence-sidecar/fence-sidecar/gateways"
	"github.com/fence-sidecar/fence-sidecar/gateways/sandbox"
)

var profiles = []string{"stripe", "adyen", "paypal", "checkout", "gocardless"}

// Each sandbox shows what its gateway documents: supported is PASS, partial PARTIAL, no FAIL. Where nothing is documented the
// sandboxes play the worst: another body under a used key gets the first answer (G5 FAIL). G3 takes time.
func TestChecklistGivesTheTable(t *testing.T) {
	for _, name := range profiles {
		t.Run(name, func(t *testing.T) {
			w := start(t, name, sandbox.Config{}, nil)
			w.listen()
			rep := w.run()
			want := map[string]string{}
			for _, n := range gateways.GuaranteeNames {
				want[n.Name] = checklist.Expected(w.cfg.Gateway.Guarantee(n.Name).Level)
			}
			want["G3"] = checklist.NotChecked
			if want["G5"] == "" {
				want["G5"] = checklist.Fail
			}
			if d := cmp.Diff(want, verdicts(rep)); d != "" {
				t.Errorf("verdicts (-documented +seen):\n%s", d)
			}
		})
	}
}
