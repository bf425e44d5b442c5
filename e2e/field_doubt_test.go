package e2e

import (
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/fence-sidecar/fence-sidecar/claims"
	"github.com/fence-sidecar/fence-sidecar/gateways/sandbox"
)

// Field reports about answers that are none, and how a doubt ends.

// TestField_R04_keyInUse: a repeat meets the first send at work. "Key in use" is no outcome: the call stays in doubt until the
// charge is found.
func TestField_R04_keyInUse(t *testing.T) {
	t.Parallel()
	gateway, u := newSandbox(t, sandbox.Config{})
	w := newWorld(t, settings{gateway: []use{u}})
	a := w.start("A")
	inject(t, gateway, sandbox.Fault{Name: "hold-before", Arg: "k"})
	r := charge("k", "Prefer: wait=0")
	send(a.at("stripe"), r).want(t, 504, "in-doubt")
	eventually(t, "the gateway says that the key is in use", func() bool {
		if p := send(a.at("stripe"), r); p.definite() {
			t.Errorf("taken for an outcome: %s", p)
		}
		rec := w.record("k")
		return len(rec.Attempts) > 1 && rec.Attempts[len(rec.Attempts)-1].InUse
	})
	w.wantState("k", claims.StateUnknown)
	gateway.Release("k")
	got := insist(t, charge("k"), "stripe", a)
	if l := gateway.Ledger(); len(l) != 1 || got.id() != l[0].ID {
		t.Errorf("want the one charge, got %s of %+v", got, l)
	}
}

// TestField_R06_storedServerError: the gateway answers 500, and 500 to every repeat of the key. Whether it charged is for the
// lookup to say; no other key is made up, and nothing is sent again meanwhile. Where the gateway may still carry the operation
// out (Stripe says so), that nothing is found says nothing.
func TestField_R06_storedServerError(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		gateway, fault string
		want           claims.State
	}{
		{"acme", "error-stored", claims.StateOpen}, {"acme", "error-after", claims.StateSucceeded},
		{"stripe", "error-stored", claims.StateUnknown}, {"stripe", "error-after", claims.StateSucceeded},
	} {
		t.Run(tt.gateway+" "+tt.fault, func(t *testing.T) {
			t.Parallel()
			gateway, u := newSandbox(t, sandbox.Config{})
			r := charge("k", "Prefer: wait=0")
			if tt.gateway == "acme" {
				gateway, u = acme(t, sandbox.Config{})
				r = pay("k", "Prefer: wait=0")
			}
			u.settle = "1s"
			w := newWorld(t, settings{gateway: []use{u}})
			a := w.start("A")
			inject(t, gateway, sandbox.Fault{Name: "list-lag", Arg: "2s"})
			inject(t, gateway, sandbox.Fault{Name: tt.fault})
			first := send(a.at(tt.gateway), r)
			if first.status != 500 || first.header("Fence-Outcome") != "unknown" {
				t.Errorf("the app is told %s", first)
			}
			if tt.want != claims.StateSucceeded {
				gateway.ClearFaults()
			}
			if tt.want == claims.StateUnknown {
				looked := len(gateway.Sends("GET"))
				eventually(t, "it was looked up again and again", func() bool { return len(gateway.Sends("GET")) > looked+3 })
				if rec := w.record("k"); rec.State != claims.StateUnknown || rec.Misses != 0 {
					t.Errorf("%s with %d misses", rec.State, rec.Misses)
				}
			} else {
				eventually(t, "the lookup told", func() bool { return w.state("k") == tt.want })
			}
			if n := len(gateway.Sends("POST")); n != 1 {
				t.Errorf("%d sends", n)
			}
		})
	}
}

// TestField_R09_keyOutlived: the gateway forgets its keys. Within their time nothing is sent blindly; after it, never again.
func TestField_R09_keyOutlived(t *testing.T) {
	t.Parallel()
	g := newRaw(t, bookAndHang(nil))
	g.hide(true)
	u := rawUse(g)
	u.retention = "308s" // 5 min of margin and 2 s for an attempt: 6 s in which a repeat would be allowed at all
	w := rawWorld(t, settings{gateway: []use{u}})
	a := w.start("A")
	r := charge("k", "Prefer: wait=0")
	send(a.at("raw"), r).want(t, 504, "in-doubt")
	seen := map[string]int{}
	eventually(t, "the key's time is over", func() bool {
		p := send(a.at("raw"), r)
		seen[p.slug()]++
		return p.slug() == "retention-passed"
	})
	for range 3 {
		send(a.at("raw"), r).want(t, 410, "retention-passed")
	}
	if len(seen) != 2 || seen["in-doubt"] == 0 {
		t.Errorf("told %v", seen)
	}
	g.wantSends(1)
	g.hide(false)
	w.wantState("k", claims.StateSucceeded) // a lookup still tells
	insist(t, r, "raw", a).wantResult(t, "succeeded", "reconciled")
	g.wantSends(1)
}

// transient is a gateway that says in a header whether the same key may be asked again.
const transient = `name: raw
baseURL: http://127.0.0.1:1
keyRetention: 24h
family: a
key: {header: Idempotency-Key}
error: {members: {errorCode: "{slug}", message: "{detail}"}}
answers:
  - {status: ["2xx"], outcome: succeeded, stored: "yes"}
  - {status: ["503"], header: {name: Transient-Error, value: "true"}, outcome: unknown, transient: true, stored: "no"}
routes: [{name: pay, method: POST, path: /pay, noReference: true, probe: true}]
`

// TestField_R17_transientError: whether a 503 may be followed by another attempt with the same key is for the gateway to say, in a
// header that reaches the app.
func TestField_R17_transientError(t *testing.T) {
	t.Parallel()
	for value, sends := range map[string]int{"true": 2, "false": 1, "": 1} {
		name, line := "none", ""
		if value != "" {
			name, line = value, "Transient-Error: "+value+"\r\n"
		}
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			failed := false
			g := newRaw(t, func(call *rawCall) verdict {
				if failed {
					return behave
				}
				failed = true
				return call.reply(503, line+"Content-Type: application/json\r\n", `{"status":503,"errorCode":"905","message":"later","errorType":"internal"}`)
			})
			file := filepath.Join(t.TempDir(), "transient.yaml")
			if err := os.WriteFile(file, []byte(transient), 0o600); err != nil {
				t.Fatal(err)
			}
			w := newWorld(t, settings{gateway: []use{{file: file, name: "raw", url: g.url()}}})
			a := w.start("A")
			r := request{target: "/pay", lines: []string{"Fence-Key: k", "Content-Type: application/json", "Prefer: wait=0"}, body: "{}"}
			first := send(a.at("raw"), r)
			if sends == 1 && (first.status != 503 || first.header("Transient-Error") != value || first.header("Fence-Outcome") != "unknown") {
				t.Errorf("the app is told %s", first)
			}
			for range 3 {
				send(a.at("raw"), r)
			}
			g.wantSends(sends)
			if sends == 2 {
				w.wantState("k", claims.StateSucceeded)
			} else {
				w.wantState("k", claims.StateUnknown)
			}
		})
	}
}

// sorted declares a gateway that shows declined charges too, and takes no repeat for a question.
var sorted = strings.Replace(rawFile, "reference: ours, is: done}]", "reference: ours, is: done}, {when: [{at: /status, in: [declined]}], reference: ours, is: failed}]", 1)

// TestField_R63_threeOutcomes: three calls fail alike, and each is something else at the gateway: booked, declined, never had. All are
// in doubt first; the lookup sorts them; the fence refunds nothing by itself.
func TestField_R63_threeOutcomes(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	shown, objects := false, map[string]string{} // by reference
	g := newRaw(t, func(c *rawCall) verdict {
		mu.Lock()
		defer mu.Unlock()
		if c.method() == http.MethodGet {
			o, ok := objects[c.target()[strings.LastIndexByte(c.target(), '/')+1:]]
			switch {
			case !shown:
				return c.reply(503, "", "")
			case !ok:
				return c.reply(404, "Content-Type: application/json\r\n", `{"error":{"message":"none"}}`)
			}
			return c.reply(200, "Content-Type: application/json\r\n", o)
		}
		form, _ := url.ParseQuery(c.body)
		object := func(status string) string {
			return fmt.Sprintf(`{"id":"ch_1","status":%q,"reference":%q,"amount":%q}`, status, form.Get("reference"), form.Get("amount"))
		}
		switch form.Get("amount") {
		case "1":
			objects[form.Get("reference")] = object("done")
			return c.reply(503, "", "")
		case "2":
			objects[form.Get("reference")] = object("declined")
		}
		return c.fin()
	})
	file := filepath.Join(t.TempDir(), "sorted.yaml")
	if err := os.WriteFile(file, []byte(sorted), 0o600); err != nil {
		t.Fatal(err)
	}
	w := newWorld(t, settings{gateway: []use{{file: file, name: "raw", url: g.url(), settle: "1s"}}})
	a := w.start("A")
	want := map[string]claims.State{"1": claims.StateSucceeded, "2": claims.StateDeclined, "3": claims.StateOpen}
	for amount := range want {
		r := charge(amount, "Prefer: wait=0")
		r.body = "amount=" + amount
		send(a.at("raw"), r).want(t, 504, "in-doubt")
		w.wantState(amount, claims.StateUnknown)
	}
	g.wantSends(3)
	mu.Lock()
	shown = true
	mu.Unlock()
	for key, state := range want {
		eventually(t, fmt.Sprintf("%s is %s", key, state), func() bool { return w.state(key) == state })
		if out, _, ok := w.cli("calls", "show", key); !ok || !strings.Contains(out, `"`+string(state)+`"`) {
			t.Errorf("calls show %s: %s", key, out)
		}
	}
	g.wantSends(3)
}
