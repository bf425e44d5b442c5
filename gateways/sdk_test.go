package gateways

import (
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	stripesdk "github.com/stripe/stripe-go/v85"
)

// operation is one POST of the official SDK.
type operation struct {
	path     string
	params   string // type
	metadata bool   // the type has it
}

var (
	sdkMethod = regexp.MustCompile(`(?ms)^func \(c \w+\) \w+\([^)]*?\*(\w+Params)\b[^)]*\)[^{]*\{(.*?)^\}`)
	sdkPath   = regexp.MustCompile(`"(/v[12]/[^"]*)"`)
	sdkType   = regexp.MustCompile(`(?ms)^type (\w+Params) struct \{(.*?)^\}`)
	sdkMeta   = regexp.MustCompile(`(?m)^\tMetadata\s`)
)

// sdkOperations reads the SDK's own source.
func sdkOperations(t *testing.T) (ops []operation) {
	t.Helper()
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/stripe/stripe-go/v85").Output()
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(strings.TrimSpace(string(out)), "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	metadata := map[string]bool{}
	for _, file := range files {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range sdkType.FindAllStringSubmatch(string(b), -1) {
			metadata[m[1]] = sdkMeta.MatchString(m[2])
		}
		if !strings.HasSuffix(file, "_service.go") {
			continue
		}
		for _, m := range sdkMethod.FindAllStringSubmatch(string(b), -1) {
			if p := sdkPath.FindStringSubmatch(m[2]); p != nil && strings.Contains(m[2], "MethodPost") {
				ops = append(ops, operation{path: strings.ReplaceAll(p[1], "%s", "x_1"), params: m[1]})
			}
		}
	}
	for i := range ops {
		ops[i].metadata = metadata[ops[i].params]
	}
	if len(ops) < 250 {
		t.Fatalf("only %d operations were found", len(ops))
	}
	return ops
}

// TestMetadataIsTaken: a declared route stamps metadata exactly where the SDK's parameters have it; elsewhere Stripe answers
// parameter_unknown.
func TestMetadataIsTaken(t *testing.T) {
	g, seen := stripe(t), map[string]bool{}
	for _, o := range sdkOperations(t) {
		m, ok := g.Match("POST", o.path)
		if !ok || m.Route.catchAll() {
			continue
		}
		seen[m.Route.Name] = true
		if stamps := g.reference(m.Route) != nil; stamps != o.metadata {
			t.Errorf("%s: stamps %v, %s has metadata %v", m.Route.Name, stamps, o.params, o.metadata)
		}
	}
	// Paths of older SDKs; and v85 has a topup's path in its payouts' Cancel.
	older := []string{"charges_refund", "charges_refunds_create", "application_fee_refund", "payouts_cancel"}
	for _, r := range g.Routes {
		if !r.catchAll() && !seen[r.Name] && !slices.Contains(older, r.Name) {
			t.Errorf("%s is no operation of the SDK", r.Name)
		}
	}
	// The reading of the source agrees with the types.
	for params, want := range map[reflect.Type]bool{reflect.TypeFor[stripesdk.ChargeCaptureParams](): false, reflect.TypeFor[stripesdk.PaymentIntentCaptureParams](): true} {
		f, has := params.FieldByName("Metadata")
		if has = has && len(f.Index) == 1; has != want { // not of the embedded Params
			t.Errorf("%s: %v", params, has)
		}
	}
}

var undoWord = regexp.MustCompile(`(?i)(refund|revers|void|cancel|credit_note|expire|return|withdraw|reject|decline|close|adjust)`)

// noUndo are the operations with such a word that give no money back, and why.
var noUndo = map[string]string{
	"/v1/refunds/x_1/cancel":                                  "takes a refund back: it undoes an undo",
	"/v1/refunds/x_1":                                         "changes metadata",
	"/v1/credit_notes/x_1":                                    "changes metadata",
	"/v1/application_fees/x_1/refunds/x_1":                    "changes metadata",
	"/v1/transfers/x_1/reversals/x_1":                         "changes metadata",
	"/v1/accounts/x_1/reject":                                 "an account",
	"/v2/core/accounts/x_1/close":                             "an account",
	"/v1/treasury/financial_accounts/x_1/close":               "an account",
	"/v1/billing/meter_event_adjustments":                     "counts usage",
	"/v2/billing/meter_event_adjustments":                     "counts usage",
	"/v1/checkout/sessions/x_1/expire":                        "nothing was paid",
	"/v1/setup_intents/x_1/cancel":                            "nothing is paid",
	"/v1/quotes/x_1/cancel":                                   "nothing was paid",
	"/v1/subscription_schedules/x_1/cancel":                   "ends what will be charged, gives nothing back",
	"/v1/identity/verification_sessions/x_1/cancel":           "no money",
	"/v1/terminal/readers/x_1/cancel_action":                  "stops a reader",
	"/v1/issuing/authorizations/x_1/decline":                  "says no to a request",
	"/v1/disputes/x_1/close":                                  "accepts a loss that has happened",
	"/v1/payment_records/x_1/report_payment_attempt_canceled": "reports what happened elsewhere",
	"/v1/payment_records/x_1/report_refund":                   "reports what happened elsewhere",
	"/v1/tax/transactions/create_reversal":                    "reports tax",
}

// TestUndoesAreDeclared: every POST of the SDK that gives money back is an undo route, so that it cannot pass as a plain call.
func TestUndoesAreDeclared(t *testing.T) {
	g, excused := stripe(t), map[string]bool{}
	for _, o := range sdkOperations(t) {
		if !undoWord.MatchString(o.path) || strings.HasPrefix(o.path, "/v1/test_helpers/") {
			continue
		}
		m, _ := g.Match("POST", o.path)
		excused[o.path] = noUndo[o.path] != ""
		if m.Policy().Undo == excused[o.path] {
			t.Errorf("%s (%s): undo %v, and the table says %q", o.path, m.Route.Name, m.Policy().Undo, noUndo[o.path])
		}
	}
	for path := range noUndo {
		if !excused[path] {
			t.Errorf("%s is no operation of the SDK", path)
		}
	}
	// Reversals of payouts and older paths.
	for _, p := range []string{"/v1/payouts/x/reverse", "/v1/charges/x/refund", "/v1/charges/x/refunds", "/v1/application_fees/x/refund"} {
		if m, _ := g.Match("POST", p); !m.Policy().Undo {
			t.Errorf("%s is no undo", p)
		}
	}
}
