package e2e

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/fence-sidecar/fence-sidecar/claims"
	"github.com/fence-sidecar/fence-sidecar/gateways/sandbox"
)

// Field reports R65 and R67 through the webhook intake of real workers. What no notice may ever do is counted at the gateway: a
// send.

// TestWebhook_R65_beforeTheCall: the notice comes before the claim is committed. It is acknowledged only once it is kept, outlives
// the worker that took it, and counts once the row exists.
func TestWebhook_R65_beforeTheCall(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, d database) {
		h := newHookWorld(t, d, bookAndCut, nil)
		h.g.hide(true)
		first := h.startWorker("W1")
		n := hookNotice{id: "evt_1", ref: h.reference("r-9")}
		for range 3 {
			n.until(t, first)
		}
		if len(h.all()) != 0 || h.inbox() != 1 || first.notices("kept") != "3" {
			t.Errorf("%d rows, %d kept, counted %s", len(h.all()), h.inbox(), first.notices("kept"))
		}
		first.kill() // between keeping and applying
		h.g.wantSends(0)
		a := h.start("A")
		send(a.at("raw"), mine("r-9", "Prefer: wait=0")).want(t, 504, "in-doubt")
		second := h.startWorker("W2")
		h.wantState("r-9", claims.StateSucceeded)
		eventually(t, "the notice is dropped", func() bool { return h.inbox() == 0 })
		if r := h.record("r-9"); r.Payment != "done" || len(r.Evidence) != 1 {
			t.Errorf("payment %q, %d words", r.Payment, len(r.Evidence))
		}
		h.wantOneEvent("r-9", claims.StateSucceeded)
		n.until(t, second) // once more
		if got := second.notices("known"); got != "1" {
			t.Errorf("known %s", got)
		}
		got := send(a.at("raw"), mine("r-9"))
		got.want(t, 409, "answer-gone")
		got.wantResult(t, "succeeded", "refused")
		h.g.wantSends(1)
		h.g.wantExecuted(1)
	})
}

// TestWebhook_R65_neverSeen: a reference that nobody gave: no row, kept, counted, and no call is made of it.
func TestWebhook_R65_neverSeen(t *testing.T) {
	t.Parallel()
	h := newHookWorld(t, database{}, bookAndCut, nil)
	h.g.hide(true)
	a, w := h.start("A"), h.startWorker("W")
	send(a.at("raw"), mine("other", "Prefer: wait=0")).want(t, 504, "in-doubt")
	was := h.record("other")
	hookNotice{id: "evt_0", ref: "nobody-gave-it"}.until(t, w) // not of the form of ours: somebody else's, and not kept
	for range 2 {
		hookNotice{id: "evt_1", ref: strings.Repeat("0a", 16)}.until(t, w)
	}
	time.Sleep(1500 * time.Millisecond) // three rounds of what is kept
	if h.inbox() != 1 || w.notices("kept") != "2" || len(h.all()) != 1 || len(h.record("other").Evidence) != len(was.Evidence) {
		t.Errorf("%d kept, counted %s, %d rows", h.inbox(), w.notices("kept"), len(h.all()))
	}
	h.g.wantSends(1)
}

// TestWebhook_R65_twice: one notice, 200 times at once through two workers: one change, one event.
func TestWebhook_R65_twice(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, d database) {
		h := newHookWorld(t, d, bookAndCut, nil)
		h.g.hide(true)
		a := h.start("A")
		workers := []*sidecar{h.startWorker("W1"), h.startWorker("W2")}
		send(a.at("raw"), mine("r-9", "Prefer: wait=0")).want(t, 504, "in-doubt")
		n := hookNotice{id: "evt_1", ref: h.record("r-9").Facts.Reference}
		var wg sync.WaitGroup
		for i := range 200 {
			wg.Go(func() { n.until(t, workers[i%2]) })
		}
		wg.Wait()
		r := h.record("r-9")
		if r.State != claims.StateSucceeded || len(r.Evidence) != 1 {
			t.Errorf("%s, %d words", r.State, len(r.Evidence))
		}
		h.wantOneEvent("r-9", claims.StateSucceeded)
		if r.Answer == nil || !strings.Contains(string(r.Answer.Body), `"by":"notice"`) || strings.Contains(string(r.Answer.Body), "4242424242424242") {
			t.Errorf("answer %+v", r.Answer)
		}
		send(a.at("raw"), mine("r-9")).wantResult(t, "succeeded", "reconciled")
		h.g.wantSends(1)
		h.g.wantExecuted(1)
		for _, w := range workers {
			for _, secret := range []string{"4242424242424242", shopHook, "v1="} {
				if strings.Contains(w.logs(), secret) {
					t.Errorf("%q is in the log of %s", secret, w.name)
				}
			}
		}
	})
}

// TestWebhook_R65_otherOutcome: a notice that contradicts what was settled: a person decides, the first answer stays.
func TestWebhook_R65_otherOutcome(t *testing.T) {
	t.Parallel()
	h := newHookWorld(t, database{}, nil, nil)
	a, w := h.start("A"), h.startWorker("W")
	send(a.at("raw"), mine("r-9")).want(t, 200, "")
	was := h.record("r-9")
	n := hookNotice{id: "evt_1", kind: "declined", ref: was.Facts.Reference}
	for range 3 {
		n.until(t, w)
	}
	r := h.record("r-9")
	if r.State != claims.StateReview || r.Review == nil || !r.Review.Alarm || r.Version != was.Version+1 || string(r.Answer.Body) != string(was.Answer.Body) {
		t.Errorf("%s, version %d after %d, review %+v", r.State, r.Version, was.Version, r.Review)
	}
	h.wantOneEvent("r-9", claims.StateReview)
	if got := w.notices("conflict"); got != "3" {
		t.Errorf("%s conflicts", got)
	}
	send(a.at("raw"), mine("r-9")).want(t, 409, "needs-review")
	h.g.wantSends(1)
}

// TestWebhook_apart: forged, old, for another tenant, of another account, of another amount: none counts, none makes a send.
func TestWebhook_apart(t *testing.T) {
	t.Parallel()
	h := newHookWorld(t, database{}, bookAndCut, nil)
	h.g.hide(true)
	a, w := h.start("A"), h.startWorker("W")
	send(a.at("raw"), mine("r-9", "Prefer: wait=0")).want(t, 504, "in-doubt")
	good := hookNotice{id: "evt_1", ref: h.record("r-9").Facts.Reference}
	with := func(change func(*hookNotice)) hookNotice { n := good; change(&n); return n }
	with(func(n *hookNotice) { n.secret = "wrong" }).want(t, w, 401)
	with(func(n *hookNotice) { n.secret = otherHook }).want(t, w, 401)
	with(func(n *hookNotice) { n.age = 10 * time.Minute }).want(t, w, 401)
	with(func(n *hookNotice) { n.age = -10 * time.Minute }).want(t, w, 401)
	with(func(n *hookNotice) { n.tenant = "us" }).want(t, w, 404)
	with(func(n *hookNotice) { n.account = "nobody" }).want(t, w, 404)
	with(func(n *hookNotice) { n.tenant = "eu" }).want(t, w, 200)
	with(func(n *hookNotice) { n.account, n.secret = "other", otherHook }).want(t, w, 200)
	with(func(n *hookNotice) { n.amount = "1" }).want(t, w, 200)
	for result, want := range map[string]string{"forged": "4", "kept": "1", "mismatch": "2", "taken": "0"} {
		if got := w.notices(result); got != want {
			t.Errorf("%s %s, want %s", got, result, want)
		}
	}
	if r := h.record("r-9"); r.State != claims.StateUnknown || len(r.Evidence) != 0 {
		t.Errorf("%s, %+v", r.State, r.Evidence)
	}
	good.until(t, w)
	h.wantState("r-9", claims.StateSucceeded)
	h.g.wantSends(1)
	h.g.wantExecuted(1)
}

// TestWebhook_R67: the gateway's answer, lookups of a sidecar and of two workers, and the notice, twice, all at once. One settles the
// call, one event tells of it at most, and the app gets the gateway's own answer where that came.
func TestWebhook_R67(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, d database) {
		const rounds = 60
		var h *hookWorld
		var workers []*sidecar
		var posts sync.WaitGroup
		h = newHookWorld(t, d, func(c *rawCall) verdict {
			if c.method() == http.MethodGet {
				return behave
			}
			b := c.book()
			n := hookNotice{id: "evt_" + b.ID, ref: b.Reference}
			for i := range 2 {
				posts.Go(func() {
					time.Sleep(rand.N(5 * time.Millisecond))
					n.until(t, workers[i])
				})
			}
			time.Sleep(rand.N(5 * time.Millisecond))
			if len(b.ID)%2 == 0 { // no answer: a doubt, which everybody looks up
				return c.fin()
			}
			return c.reply(200, "Content-Type: application/json\r\n", b.json())
		}, nil)
		workers = []*sidecar{h.startWorker("W1"), h.startWorker("W2")}
		a := h.start("A")
		var answered, settled atomic.Int64
		var wg sync.WaitGroup
		next := make(chan int)
		for range 6 {
			wg.Go(func() {
				for i := range next {
					key := fmt.Sprint("r-", i)
					p := send(a.at("raw"), mine(key, "Prefer: wait=20"))
					if p.status != 200 || p.header("Fence-Outcome") != "succeeded" {
						t.Errorf("%s: %s", key, p)
					}
					if p.header("Fence-Result") == "sent" {
						answered.Add(1)
						if strings.Contains(string(p.body), `"by":"notice"`) {
							t.Errorf("%s: the app got the notice's answer for the gateway's own", key)
						}
					} else {
						settled.Add(1)
					}
				}
			})
		}
		for i := range rounds {
			next <- i
		}
		close(next)
		wg.Wait()
		posts.Wait()
		for i := range rounds {
			key := fmt.Sprint("r-", i)
			r, es := h.record(key), h.happened(key)
			if r.State != claims.StateSucceeded || len(es) > 1 || r.Attempt != 1 {
				t.Errorf("%s: %s, attempt %d, events %+v", key, r.State, r.Attempt, es)
			}
		}
		if answered.Load() == 0 || settled.Load() == 0 {
			t.Errorf("%d answered, %d found out: the race was not run", answered.Load(), settled.Load())
		}
		h.g.wantSends(rounds)
		h.g.wantExecuted(rounds)
	})
}

// TestWorker: it holds a lease of its own, serves no data, sweeps for sidecars that do not, and ends in order.
func TestWorker(t *testing.T) {
	t.Parallel()
	onBoth(t, func(t *testing.T, d database) {
		h := newHookWorld(t, d, bookAndCut, nil)
		still := h.write("still.yaml", strings.Replace(mustRead(t, h.config), "reconcile: {", "reconcile: {sweeper: \"off\", ", 1))
		a := h.spawnAs("A", "run", still)
		eventually(t, "A is ready", func() bool { return a.ready() != "" })
		h.g.hide(true)
		send(a.at("raw"), mine("r-9", "Prefer: wait=0")).want(t, 504, "in-doubt")
		time.Sleep(300 * time.Millisecond) // what it began to look up while the app waited
		was := h.g.lookups()
		h.g.hide(false)
		time.Sleep(2 * time.Second)
		if n := h.g.lookups(); n != was || h.state("r-9") != claims.StateUnknown {
			t.Errorf("%d lookups by a sidecar that does not sweep; the call is %s", n-was, h.state("r-9"))
		}
		w := h.startWorker("W")
		h.wantState("r-9", claims.StateSucceeded)
		ms, err := h.store.Members(t.Context())
		if err != nil || len(ms) != 2 {
			t.Errorf("members %+v, %v", ms, err)
		}
		w.mu.Lock()
		for name := range w.address {
			if name != "webhooks" && name != "telemetry" {
				t.Errorf("it listens for %s", name)
			}
		}
		w.mu.Unlock()
		if status, _ := w.get("/readyz"); status != 200 {
			t.Errorf("readyz %d", status)
		}
		if code := w.term(); code != 0 {
			t.Errorf("exit code %d", code)
		}
		h.g.wantSends(1)
	})
}

func mustRead(t *testing.T, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// TestWorkerSettings: what a worker cannot be is refused by name; a public listener has TLS or says that it has none.
func TestWorkerSettings(t *testing.T) {
	t.Parallel()
	h := newHookWorld(t, database{}, nil, nil)
	text := mustRead(t, h.worker)
	for old, bad := range map[string][2]string{
		"reconcile: {":          {"reconcile: {sweeper: \"off\", ", "reconcile.sweeper"},
		"webhooks: 127.0.0.1:0": {"webhooks: nowhere", "listen.webhooks"},
		"tenants: ":             {"listen: {any: \"\"}\nwebhooks: {publicURL: \"https://hooks.example\"}\ntenants: ", "listen.webhooks"},
		"wait: 1s\n":            {"wait: 1s\nwebhooks: {cert: /nowhere}\n", "webhooks.key"},
		"wait: ":                {"webhooks: {publicURL: \"https://me:hunter2@hooks.example\"}\nwait: ", "webhooks.publicURL"},
	} {
		from := text
		if old == "tenants: " { // no listener at all
			from = text[:strings.Index(text, "listen:")] + text[strings.Index(text, "tenants: "):]
		}
		cmd := h.command("reconcile", "--config", h.write("bad.yaml", strings.Replace(from, old, bad[0], 1)))
		out, err := cmd.CombinedOutput()
		if err == nil || !strings.Contains(string(out), bad[1]) || strings.Contains(string(out), "hunter2") {
			t.Errorf("%s: %v\n%s", bad[1], err, out)
		}
	}
	open := h.spawnAs("open", "reconcile", h.write("open.yaml", strings.Replace(text, "webhooks: 127.0.0.1:0", "webhooks: \":0\"", 1)))
	eventually(t, "it says that it has no TLS", func() bool { return open.ready() != "" && strings.Contains(open.logs(), "without TLS") })
	cert, ca := certificate(t)
	pem := func(name string, b []byte) string {
		p := filepath.Join(h.dir, name)
		if err := os.WriteFile(p, b, 0o600); err != nil {
			t.Fatal(err)
		}
		return p
	}
	yaml := strings.Replace(text, "wait: ", fmt.Sprintf("webhooks: {cert: %q, key: %q}\nwait: ", pem("c.pem", cert.Cert), pem("k.pem", cert.Key)), 1)
	s := h.spawnAs("secure", "reconcile", h.write("tls.yaml", yaml))
	eventually(t, "it is ready", func() bool { return s.ready() != "" })
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM([]byte(mustRead(t, ca)))
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: pool}}}
	resp, err := client.Post("https://"+s.at("webhooks")+"/webhooks/default/raw/shop", "application/json", strings.NewReader("{}"))
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != 401 || resp.TLS == nil {
		t.Errorf("answered %d", resp.StatusCode)
	}
}

// TestWebhook_stripe: Stripe's own events, signed as Stripe signs them, from the sandbox's hooks. The gateway can be asked nothing: only
// the notice tells.
func TestWebhook_stripe(t *testing.T) {
	t.Parallel()
	gw, u := newSandbox(t, sandbox.Config{})
	w := newWorld(t, settings{gateway: []use{u}})
	secretFile := w.write("hook", "whsec_test")
	worker := w.write("worker.yaml", strings.NewReplacer(
		"lookupCredential: {env: E2E_CREDENTIAL}", fmt.Sprintf("webhookSecrets: [{file: %q}]", secretFile),
		"  control: 127.0.0.1:0\n", "  control: 127.0.0.1:0\n  webhooks: 127.0.0.1:0\n",
	).Replace(mustRead(t, w.config)))
	blind := w.write("blind.yaml", strings.Replace(mustRead(t, w.config), ", lookupCredential: {env: E2E_CREDENTIAL}", "", 1))
	k, a := w.spawnAs("W", "reconcile", worker), w.spawnAs("A", "run", blind)
	eventually(t, "both are ready", func() bool { return k.ready() != "" && a.ready() != "" })
	gw.AddHook(sandbox.Hook{URL: "http://" + k.at("webhooks") + "/webhooks/default/stripe/shop", Secret: "whsec_test", Delay: sandbox.Duration(500 * time.Millisecond)})
	inject(t, gw, sandbox.Fault{Name: "hold-after", Route: "POST /v1/charges"})
	later(a.at("stripe"), charge("order:1"))
	waitHold(t, gw)
	w.wantState("order:1", claims.StateSucceeded) // while its sender still waits
	a.kill()
	gw.Release("hold")
	r := w.record("order:1")
	if len(r.Evidence) != 1 || r.Payment != "done" || r.Answer == nil || !strings.Contains(string(r.Answer.Body), `"charge"`) {
		t.Errorf("payment %q, %d words, answer %+v", r.Payment, len(r.Evidence), r.Answer)
	}
	b := w.spawnAs("B", "run", blind)
	eventually(t, "B is ready", func() bool { return b.ready() != "" })
	send(b.at("stripe"), charge("order:1")).wantResult(t, "succeeded", "reconciled")
	if n := len(gw.Sends(http.MethodPost)); n != 1 {
		t.Errorf("%d sends", n)
	}
}
