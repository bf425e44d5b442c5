package e2e

import (
	"bytes"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fence-sidecar/fence-sidecar/claims"
	"github.com/fence-sidecar/fence-sidecar/gateways"
)

// hookFile declares how the raw gateway tells of late outcomes.
const hookFile = `payment: {at: /status, values: {done: done}}
webhook:
  signature: {header: Raw-Signature, part: v1, timestampPart: t, signed: "{timestamp}.{body}"}
  id: /id
  references: [/ref]
  object: /object
  amount: /amount
  answer: {at: /payment}
  accept: "[taken]"
  cases:
    - {when: [{at: /type, in: [paid]}], routes: [charge], outcome: succeeded, payment: done}
    - {when: [{at: /type, in: [declined]}], routes: [charge], outcome: declined}
    - {when: [{at: /type, in: [reversed]}], routes: [charge], payment: reversed}
`

const (
	shopHook  = "hook-secret-of-the-shop"
	otherHook = "hook-secret-of-another"
)

// hookWorld is a world whose gateway tells, with the configuration of its workers.
type hookWorld struct {
	*world
	g      *rawGateway
	worker string // its configuration
	decl   *gateways.Gateway
}

// newHookWorld makes a store, a gateway and two configurations: the sidecars' and the workers'.
func newHookWorld(t *testing.T, d database, answer func(*rawCall) verdict, edit func(*settings)) *hookWorld {
	t.Helper()
	dir := t.TempDir()
	file := func(name, text string) string {
		p := filepath.Join(dir, name)
		if err := os.WriteFile(p, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return p
	}
	h := &hookWorld{g: newRaw(t, answer)}
	decl := file("hooked.yaml", rawFile+hookFile)
	s := settings{store: d, gateway: []use{{file: decl, name: "raw", url: h.g.url()}}, tenants: "default, eu"}
	if edit != nil {
		edit(&s)
	}
	h.world = newWorld(t, s)
	yaml := strings.NewReplacer(
		"lookupCredential: {env: E2E_CREDENTIAL}}]",
		fmt.Sprintf("lookupCredential: {env: E2E_CREDENTIAL}, webhookSecrets: [{file: %q}]}, {name: other, webhookSecrets: [{file: %q}]}]",
			file("shop", shopHook), file("other", otherHook)),
		"  control: 127.0.0.1:0\n", "  control: 127.0.0.1:0\n  webhooks: 127.0.0.1:0\n",
	).Replace(s.yaml(h.dir))
	h.worker = h.write("worker.yaml", yaml)
	var err error
	if h.decl, err = gateways.Load([]byte(rawFile+hookFile), decl); err != nil {
		t.Fatal(err)
	}
	return h
}

// startWorker runs a worker and waits until it is ready.
func (h *hookWorld) startWorker(name string) *sidecar {
	h.t.Helper()
	s := h.spawnAs(name, "reconcile", h.worker)
	eventually(h.t, "worker "+name+" is ready", func() bool {
		select {
		case <-s.exited:
			h.t.Fatalf("worker %s ended before it was ready:\n%s", name, s.logs())
		default:
		}
		return s.ready() != ""
	})
	return s
}

// spawnAs runs a serving command of the program.
func (w *world) spawnAs(name, command, config string) *sidecar {
	w.t.Helper()
	s := &sidecar{t: w.t, w: w, name: name, address: map[string]string{}, exited: make(chan struct{})}
	s.cmd = w.command(command, "--config", config)
	stderr, err := s.cmd.StderrPipe()
	if err != nil {
		w.t.Fatal(err)
	}
	s.cmd.Stdout = &s.out
	if err := s.cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	running.add(s.cmd.Process.Pid, command+" "+name+" of "+w.t.Name())
	go func() {
		s.read(stderr)
		s.cmd.Wait()
		running.remove(s.cmd.Process.Pid)
		close(s.exited)
	}()
	w.t.Cleanup(s.end)
	return s
}

// reference is the one that the gateway will be given for a call's first revision.
func (h *hookWorld) reference(key string) string {
	h.t.Helper()
	in := gateways.Inbound{Method: "POST", Target: "/v1/charges", Body: []byte("amount=4990&currency=eur&source=tok_visa"),
		Header: []claims.Field{{Name: "Content-Type", Value: "application/x-www-form-urlencoded"}}}
	m, ok := h.decl.Match(in.Method, in.Target)
	if !ok {
		h.t.Fatal("no route")
	}
	c, err := m.Prepare(in, gateways.Identity{Realm: h.store.Realm(), Tenant: "default", CallKey: key, Revision: 1})
	if err != nil {
		h.t.Fatal(err)
	}
	return c.Facts.Reference
}

// hookNotice is one notice of the raw gateway.
type hookNotice struct {
	id, kind, ref, amount string
	tenant, account       string        // default, shop
	secret                string        // shopHook
	age                   time.Duration // of the signature
}

func (n hookNotice) body() string {
	amount := or(n.amount, "4990")
	return fmt.Sprintf(`{"id":%q,"type":%q,"ref":%q,"amount":%q,"card":"4242424242424242","payment":{"id":"ch_n","status":"done","by":"notice"}}`,
		n.id, or(n.kind, "paid"), n.ref, amount)
}

var hookClient = &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}

// post tells a worker and returns its answer; 0: none came.
func (n hookNotice) post(s *sidecar) (status int, body string) {
	raw := n.body()
	at := fmt.Sprint(time.Now().Add(-n.age).Unix())
	m := hmac.New(sha256.New, []byte(or(n.secret, shopHook)))
	m.Write([]byte(at + "." + raw))
	req, err := http.NewRequest(http.MethodPost, "http://"+s.at("webhooks")+"/webhooks/"+or(n.tenant, "default")+"/raw/"+or(n.account, "shop"), bytes.NewReader([]byte(raw)))
	if err != nil {
		return 0, err.Error()
	}
	req.Header.Set("Raw-Signature", "t="+at+",v1="+hex.EncodeToString(m.Sum(nil)))
	resp, err := hookClient.Do(req)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	b, _ := io.ReadAll(resp.Body)
	return resp.StatusCode, string(b)
}

// until tells until it is taken, as a gateway does.
func (n hookNotice) until(t *testing.T, s *sidecar) {
	t.Helper()
	for end := time.Now().Add(patience); ; time.Sleep(20 * time.Millisecond) {
		status, body := n.post(s)
		if status == 200 {
			if body != "[taken]" {
				t.Errorf("answered %q", body)
			}
			return
		}
		if status != 503 || time.Now().After(end) {
			t.Errorf("answered %d %s", status, body)
			return
		}
	}
}

func (n hookNotice) want(t *testing.T, s *sidecar, status int) {
	t.Helper()
	if got, body := n.post(s); got != status {
		t.Errorf("answered %d %q, want %d", got, body, status)
	}
}

func (s *sidecar) notices(result string) string {
	return s.metric(fmt.Sprintf("fence_webhook_notices_total{gateway=%q,result=%q}", "raw", result))
}

// inbox is how many notices are kept; it counts as giving them out, which changes their order only.
func (h *hookWorld) inbox() int {
	h.t.Helper()
	es, err := h.store.Kept(h.t.Context(), nil, 10_000)
	if err != nil {
		h.t.Fatal(err)
	}
	return len(es)
}

// happened are the events of a call.
func (h *hookWorld) happened(key string) (es []claims.Event) {
	h.t.Helper()
	all, err := h.store.Events(h.t.Context(), "", 100_000)
	if err != nil {
		h.t.Fatal(err)
	}
	for _, e := range all {
		if e.Key.Call == key {
			es = append(es, e)
		}
	}
	return es
}

// wantOneEvent waits for a call's event, which shows once all earlier writes of events have ended, and wants no other.
func (h *hookWorld) wantOneEvent(key string, state claims.State) {
	h.t.Helper()
	eventually(h.t, "an event of "+key, func() bool { return len(h.happened(key)) > 0 })
	if es := h.happened(key); len(es) != 1 || es[0].State != state {
		h.t.Errorf("events %+v, want one of %s", es, state)
	}
}

// mine is a charge of the default tenant.
func mine(key string, lines ...string) request {
	return charge(key, append([]string{"Fence-Tenant: default"}, lines...)...)
}

// bookAndCut executes every charge and answers none.
func bookAndCut(c *rawCall) verdict {
	if c.method() == http.MethodGet {
		return behave
	}
	c.book()
	return c.fin()
}
