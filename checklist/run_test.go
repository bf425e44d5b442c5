package checklist_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fence-sidecar/fence-sidecar/checklist"
	"github.com/fence-sidecar/fence-sidecar/gateways"
	"github.com/fence-sidecar/fence-sidecar/gateways/sandbox"
)

// Nothing is sent with a credential or to a host that moves real money, unless that is forced.
func TestLiveIsRefused(t *testing.T) {
	for _, c := range []struct {
		name string
		set  func(cfg *checklist.Config)
		live bool
	}{
		{"test credential", func(*checklist.Config) {}, false},
		{"live credential", func(cfg *checklist.Config) { cfg.Credential = secret("sk_live_1") }, true},
		{"restricted live credential", func(cfg *checklist.Config) { cfg.Credential = secret("rk_live_1") }, true},
		{"live second credential", func(cfg *checklist.Config) { cfg.OtherCredential = secret("sk_live_1") }, true},
		{"live credential, forced", func(cfg *checklist.Config) { cfg.Credential, cfg.ForceLive = secret("sk_live_1"), true }, false},
		{"live host", func(cfg *checklist.Config) { cfg.Gateway.Checks.LiveHosts = []string{"127.*"} }, true},
		{"nothing tells, on this machine", func(cfg *checklist.Config) { cfg.Gateway.Checks.Live = nil }, false},
		{"nothing tells, elsewhere", func(cfg *checklist.Config) {
			cfg.Gateway.Checks.Live, cfg.BaseURL = nil, "https://gateway.invalid"
		}, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := start(t, "stripe", sandbox.Config{}, nil)
			c.set(&w.cfg)
			_, err := checklist.Run(t.Context(), w.cfg)
			if errors.Is(err, checklist.ErrLive) != c.live || !c.live && err != nil {
				t.Errorf("error %v, want live: %v", err, c.live)
			}
			if n := len(w.s.Sends()); (n > 0) == c.live {
				t.Errorf("%d requests were sent", n)
			}
		})
	}
}

func secret(v string) func() (string, error) { return func() (string, error) { return v, nil } }

// Bad input is told before anything is sent.
func TestBadInput(t *testing.T) {
	for name, c := range map[string]struct {
		set  func(cfg *checklist.Config)
		want string
	}{
		"no checks":       {func(cfg *checklist.Config) { cfg.Gateway.Checks = nil }, "declares no checks"},
		"no credential":   {func(cfg *checklist.Config) { cfg.Credential = nil }, "no credential"},
		"unreadable":      {func(cfg *checklist.Config) { cfg.Credential = func() (string, error) { return "", errors.New("gone") } }, "gone"},
		"path in the URL": {func(cfg *checklist.Config) { cfg.BaseURL += "/v1" }, "scheme and host"},
		"unknown value":   {func(cfg *checklist.Config) { cfg.Vars = map[string]string{"x": "1"} }, "no such name"},
		"missing value":   {func(cfg *checklist.Config) { cfg.Gateway.Checks.Vars["pm"] = "" }, "--var for pm"},
		"no account line": {func(cfg *checklist.Config) { cfg.OtherAccount, cfg.Gateway.AccountHeaders = "a", nil }, "no account header"},
		"no such folder":  {func(cfg *checklist.Config) { cfg.State = "/nonexistent/folder/state" }, "no such file"},
		"no state":        {func(cfg *checklist.Config) { cfg.State = file(t, "hello") }, "no state file"},
		"half a state": {func(cfg *checklist.Config) {
			cfg.State = file(t, fmt.Sprintf(`{"version":1,"seed":"s","gateway":"stripe","host":%q,"evidence":{"steps":[null,{"name":"success","done":true}]}}`,
				strings.TrimPrefix(cfg.BaseURL, "http://")))
		}, "no state file of this version"},
		"another's state": {func(cfg *checklist.Config) {
			cfg.State = file(t, `{"version":1,"seed":"s","gateway":"acme","host":"h"}`)
		}, "of gateway acme"},
		"no webhook known": {func(cfg *checklist.Config) {
			cfg.Gateway.Webhook, cfg.Hook = nil, &checklist.HookConfig{Listen: "127.0.0.1:0"}
		}, "declares no webhook"},
	} {
		t.Run(name, func(t *testing.T) {
			w := start(t, "stripe", sandbox.Config{}, nil)
			c.set(&w.cfg)
			rep, err := checklist.Run(t.Context(), w.cfg)
			if err == nil || !strings.Contains(err.Error(), c.want) || rep != nil {
				t.Errorf("error %v, want %q", err, c.want)
			}
			if n := len(w.s.Sends()); n > 0 {
				t.Errorf("%d requests were sent", n)
			}
		})
	}
}

func file(t *testing.T, text string) string {
	name := filepath.Join(t.TempDir(), "state.json")
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// A first charge that does not succeed ends the run: there is nothing to repeat.
func TestNoCharge(t *testing.T) {
	w := start(t, "stripe", sandbox.Config{}, nil)
	w.inject(sandbox.Fault{Name: "unauthorized", Times: -1})
	rep, err := checklist.Run(t.Context(), w.cfg)
	if !errors.Is(err, checklist.ErrNoCharge) || rep.Complete || rep.Failed() || w.s.Moved() > 0 || len(w.s.Sends()) != 1 {
		t.Errorf("error %v, complete %v, fails %v, %d requests", err, rep.Complete, fails(rep), len(w.s.Sends()))
	}
}

// Nothing is left running, whatever was listened for, and also after a cancelled run.
func TestNothingLeaks(t *testing.T) {
	w := start(t, "stripe", sandbox.Config{}, nil)
	before := runtime.NumGoroutine()
	w.listen()
	w.cfg.Egress = &checklist.EgressConfig{Listen: "127.0.0.1:0", Patience: 200 * time.Millisecond, Linger: 10 * time.Millisecond}
	w.run()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Millisecond)
	defer cancel()
	checklist.Run(ctx, w.cfg)
	w.s.Close()
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		if runtime.NumGoroutine() <= before {
			return
		}
		if time.Now().After(end) {
			buf := make([]byte, 1<<20)
			t.Fatalf("%d goroutines, %d before:\n%s", runtime.NumGoroutine(), before, buf[:runtime.Stack(buf, true)])
		}
	}
}

// The plan says what is sent, and bounds what is made; a plan sends nothing and writes nothing.
func TestPlan(t *testing.T) {
	for _, name := range profiles {
		w := start(t, name, sandbox.Config{}, nil)
		w.listen()
		w.cfg.State = filepath.Join(t.TempDir(), "state.json")
		w.cfg.OtherCredential = secret("sk_test_second")
		steps, all, err := checklist.Plan(w.cfg)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(w.cfg.State); len(w.s.Sends()) > 0 || err == nil {
			t.Errorf("%s: a plan sent or wrote something", name)
		}
		w.inject(sandbox.Fault{Name: "ignore-key"})
		rep := w.run()
		sent := 0
		for _, s := range rep.Evidence.Steps {
			if i := slices.IndexFunc(steps, func(p checklist.Planned) bool { return p.Step == s.Name }); steps[i].Why != "" && len(s.Exchanges) > 0 {
				t.Errorf("%s: step %s was not planned", name, s.Name)
			}
			for _, x := range s.Exchanges {
				if x.Role != checklist.RoleAdvance {
					sent++
				}
			}
		}
		if moved := w.s.Moved(); sent > all.Requests || moved > all.Most {
			t.Errorf("%s: %d requests and %d movements, planned %s", name, sent, moved, all)
		}
		w.listed(rep)
	}
}

// Each request has a connection of its own, also those at once, and is sent once.
func TestOneConnectionEach(t *testing.T) {
	w := start(t, "stripe", sandbox.Config{}, nil)
	rep := w.run()
	conns, sends := map[int]int{}, w.s.Sends()
	burst := 0
	for _, s := range sends {
		conns[s.Conn]++
		if n := conns[s.Conn]; n > 1 {
			t.Errorf("connection %d carried %d requests", s.Conn, n)
		}
	}
	counted := 0
	for _, s := range rep.Evidence.Steps {
		counted += len(s.Exchanges)
		if s.Name == checklist.StepBurst {
			burst = len(s.Exchanges)
		}
	}
	posts := 0
	for _, s := range sends {
		posts += b2i(s.Method == "POST")
	}
	if burst != 20 || counted != posts+1 { // the simulator's is no call
		t.Errorf("%d at once, %d exchanges, %d POSTs arrived", burst, counted, posts)
	}
}

// A second account has keys of its own at Stripe; the request goes out under the same key.
func TestOtherAccount(t *testing.T) {
	w := start(t, "stripe", sandbox.Config{}, nil)
	w.cfg.OtherAccount = "acct_2"
	rep := w.run()
	i := slices.IndexFunc(rep.Evidence.Steps, func(s *checklist.Step) bool { return s.Name == checklist.StepAccount })
	s := rep.Evidence.Steps[i]
	if len(s.Exchanges) != 1 || s.Exchanges[0].Account != "other" || s.Exchanges[0].Key != rep.Evidence.Steps[0].Exchanges[0].Key {
		t.Errorf("account: %+v", s)
	}
	if r := rep.Row("G5"); r.Verdict != checklist.Pass || !strings.Contains(r.Reason, "per account") {
		t.Errorf("G5 %s: %s", r.Verdict, r.Reason)
	}
	accounts := map[string]bool{}
	for _, o := range w.s.Ledger() {
		accounts[o.Account] = true
	}
	if !accounts["acct_2"] {
		t.Error("nothing was made under the second account")
	}
}

// A gateway file of one's own is asked as a built-in one is.
func TestOwnFile(t *testing.T) {
	g, err := gateways.Load([]byte("extends: stripe\nname: mine\n"), "mine.yaml")
	if err != nil {
		t.Fatal(err)
	}
	w := start(t, "stripe", sandbox.Config{}, nil)
	w.cfg.Gateway = g
	rep := w.run()
	if rep.Gateway != "mine" || strings.Contains(rep.Suggestion, "extends") || verdicts(rep)["G1"] != checklist.Pass {
		t.Errorf("%s: %v\n%s", rep.Gateway, verdicts(rep), rep.Suggestion)
	}
}

// A notice with a wrong signature tells nothing, and is refused.
func TestForgedNotice(t *testing.T) {
	w := start(t, "stripe", sandbox.Config{}, nil)
	w.listen()
	ready := w.cfg.Hook.Ready
	w.cfg.Hook.Ready = func(a net.Addr) { // the sandbox signs by another secret
		ready(a)
		w.s.ClearHooks()
		w.s.AddHook(sandbox.Hook{URL: "http://" + a.String() + "/", Secret: "another", Tries: 1})
	}
	r := w.run().Row("G6")
	if r.Verdict != checklist.Partial || !strings.Contains(r.Reason, "signature") || w.s.Told() != 0 {
		t.Errorf("G6 %s: %s; %d notices were taken", r.Verdict, r.Reason, w.s.Told())
	}
}

// What Setup made is used by the charge, also when it is repeated by a later run, and is listed.
func TestSetup(t *testing.T) {
	clock := &clock{}
	w := start(t, "stripe", sandbox.Config{Clock: clock.now}, func(g *gateways.Gateway) {
		c := g.Checks
		c.Setup = []*gateways.Sample{{Target: "/v1/customers", ContentType: c.Charge.ContentType, Body: "email={unique}%40example.com", Save: map[string]string{"customer": "/id"}}}
		c.Charge.Body += "&description={customer}"
	})
	w.cfg.State = filepath.Join(t.TempDir(), "state.json")
	rep := w.run()
	if got := fails(rep); got != nil || !slices.ContainsFunc(rep.Created, func(c checklist.Created) bool { return strings.HasPrefix(c.Object, "cus_") }) {
		t.Errorf("FAIL: %v; created: %v", got, rep.Created)
	}
	clock.pass(20 * time.Hour)
	moved := w.s.Moved()
	if r := w.run().Row("G3"); r.Verdict != checklist.Pass || w.s.Moved() != moved {
		t.Errorf("G3 %s: %s", r.Verdict, r.Reason)
	}
	w.cfg.Gateway.Checks.Charge.Body += "&x=1" // other bytes are no repeat
	if _, err := checklist.Run(t.Context(), w.cfg); err == nil || !strings.Contains(err.Error(), "same bytes") || w.s.Moved() != moved {
		t.Errorf("error %v", err)
	}
}

// A step whose setup fails, or whose samples cannot be filled in, is left out with the reason; the others go on.
func TestStepsLeftOut(t *testing.T) {
	w := start(t, "stripe", sandbox.Config{}, func(g *gateways.Gateway) {
		g.Checks.Charge.Save["later"], g.Checks.Charge.Save["ever"] = "/nothing", "/nothing"
		g.Checks.Empty.Target = "/v1/payment_intents/{later}/capture?a={ever}&b={later}"
		g.Checks.Advance = &gateways.Sample{Target: "/_sandbox/payments/none/done"}
	})
	rep := w.run()
	whys := map[string]string{}
	for _, s := range rep.Evidence.Steps {
		whys[s.Name] = s.Why
	}
	if !rep.Complete || !strings.Contains(whys[checklist.StepEmpty], "no value for ever, later:") || !strings.Contains(whys[checklist.StepPending], "simulator") {
		t.Errorf("complete %v, left out: %v", rep.Complete, whys)
	}
	if v := verdicts(rep); v["G6"] != checklist.NotChecked || v["G4"] != checklist.Pass {
		t.Errorf("verdicts %v", v)
	}
}
