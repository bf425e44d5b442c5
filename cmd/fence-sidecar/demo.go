package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/goccy/go-yaml"

	"github.com/fence-sidecar/fence-sidecar/gateways"
	"github.com/fence-sidecar/fence-sidecar/gateways/sandbox"
)

type demoCmd struct {
	Keep bool `help:"Keep the demo's folder, with its configuration and its SQLite file."`
}

const (
	demoCredential = "sk_test_demo"
	demoCall       = "charge:order:42"
)

// Run tells the story of a charge that survives a crash. It fails if the customer was not charged exactly once.
func (d demoCmd) Run(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 90*time.Second)
	defer cancel()
	dir, err := os.MkdirTemp("", "fence-demo-")
	if err != nil {
		return err
	}
	if !d.Keep {
		defer os.RemoveAll(dir)
	}
	s := &story{dir: dir, began: time.Now(), gateway: sandbox.New(sandbox.Config{})}
	defer s.gateway.Close()
	defer s.stop()
	if err := s.prepare(ctx); err != nil {
		return err
	}
	if err := s.crash(ctx); err != nil {
		return err
	}
	answer, err := s.repeat(ctx)
	if err != nil {
		return err
	}
	return s.check(answer)
}

// story is the demo under way.
type story struct {
	dir, config string
	began       time.Time
	gateway     *sandbox.Server
	a, b        *child
}

func (s *story) say(format string, args ...any) {
	fmt.Printf("%6.2fs  %s\n", time.Since(s.began).Seconds(), fmt.Sprintf(format, args...))
}

// prepare starts the gateway and two sidecars on one SQLite file.
func (s *story) prepare(ctx context.Context) error {
	addr, err := s.gateway.Start(ctx)
	if err != nil {
		return err
	}
	s.say("a payment gateway runs on %s (the sandbox: Stripe-like, misbehaves on request)", s.gateway.URL(addr))
	if err := s.writeConfig(s.gateway.URL(addr)); err != nil {
		return err
	}
	if out, err := command(ctx, "store", "migrate", "--config", s.config).CombinedOutput(); err != nil {
		return fmt.Errorf("store migrate: %w: %s", err, out)
	}
	for name, c := range map[string]**child{"A": &s.a, "B": &s.b} {
		if *c, err = startSidecar(ctx, s.config); err != nil {
			return fmt.Errorf("sidecar %s: %w", name, err)
		}
	}
	s.say("sidecars A (pid %d, port %s) and B (pid %d, port %s) share one SQLite file", s.a.cmd.Process.Pid, s.a.port(), s.b.cmd.Process.Pid, s.b.port())
	return nil
}

func (s *story) writeConfig(gatewayURL string) error {
	c := defaults()
	c.Store.Path = filepath.Join(s.dir, "fence.db")
	c.Store.AllowTmpfs = true // it is thrown away
	c.Listen = ListenConfig{Any: "127.0.0.1:0", Control: "127.0.0.1:0", Telemetry: "127.0.0.1:0"}
	c.Lease = LeaseConfig{TTL: 3 * time.Second, Margin: 200 * time.Millisecond}
	c.Reconcile.Interval = time.Second
	secret := gateways.Secret{Env: "FENCE_DEMO_CREDENTIAL"}
	c.Gateways = []GatewayConfig{{
		Use: "stripe", Listen: "127.0.0.1:0", BaseURL: gatewayURL, AttemptTimeout: 4 * time.Second,
		Accounts: []gateways.Account{{Name: "shop", Credential: secret, LookupCredential: secret}},
	}}
	b, err := yaml.MarshalWithOptions(c, yaml.OmitZero())
	if err != nil {
		return err
	}
	s.config = filepath.Join(s.dir, "fence.yaml")
	return os.WriteFile(s.config, b, 0o600)
}

// crash charges through A and kills it after the gateway took the money and before it answered.
func (s *story) crash(ctx context.Context) error {
	if err := s.gateway.Inject(sandbox.Fault{Name: "hold-after", Route: "POST /v1/payment_intents"}); err != nil {
		return err
	}
	s.say("the app charges 49.90 EUR through A: POST /v1/payment_intents, Fence-Key: %s", demoCall)
	lost := make(chan error, 1)
	go func() {
		_, err := s.charge(ctx, s.a)
		lost <- err
	}()
	if err := s.gateway.WaitHold(ctx, "hold"); err != nil {
		return fmt.Errorf("the charge did not reach the gateway: %w", err)
	}
	s.say("the gateway has taken the money; its answer is not out yet")
	if err := s.a.kill(); err != nil {
		return err
	}
	s.say("A is killed (SIGKILL)")
	if err := <-lost; err == nil {
		return errors.New("sidecar A answered although it was killed")
	}
	s.say("the app's connection breaks: was the customer charged?")
	s.gateway.Release("hold")
	return nil
}

// repeat makes the same call through B until it has an answer.
func (s *story) repeat(ctx context.Context) (*reply, error) {
	s.say("the app repeats the very same call through B")
	for {
		r, err := s.charge(ctx, s.b)
		if err != nil {
			return nil, fmt.Errorf("repeat through B: %w", err)
		}
		if r.status == http.StatusOK {
			s.say("B: %d, Fence-Outcome: %s, Fence-Result: %s, %s", r.status, r.outcome, r.result, r.ID)
			return r, nil
		}
		s.say("B: %d %s: %s", r.status, strings.TrimPrefix(r.Type, "https://fence-sidecar.dev/problems/"), r.Detail)
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(time.Second):
		}
	}
}

// check reads the gateway's ledger.
func (s *story) check(r *reply) error {
	sends := s.gateway.Sends(http.MethodPost)
	fmt.Printf("\nThe gateway's ledger:\n")
	for _, o := range s.gateway.Ledger() {
		fmt.Printf("  %s  %s  %d.%02d %s  key %s\n", o.ID, o.Kind, o.Amount/100, o.Amount%100, strings.ToUpper(o.Currency), o.Key)
	}
	fmt.Printf("%d POST reached it. The customer was charged %d time, and the app has the answer (%s).\n", len(sends), s.gateway.Moved(), r.ID)
	if l := s.gateway.Ledger(); len(l) != 1 || l[0].ID != r.ID {
		return fmt.Errorf("want one charge in the ledger, the one answered; got %d", len(l))
	}
	return nil
}

func (s *story) stop() {
	for _, c := range []*child{s.a, s.b} {
		if c != nil {
			c.kill()
		}
	}
}

// reply is what the app sees.
type reply struct {
	status          int
	outcome, result string
	ID              string `json:"id"`
	Type            string `json:"type"`
	Detail          string `json:"detail"`
}

func (s *story) charge(ctx context.Context, c *child) (*reply, error) {
	form := "amount=4990&currency=eur&confirm=true&payment_method=pm_card_visa"
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+c.addr+"/v1/payment_intents", strings.NewReader(form))
	if err != nil {
		return nil, err
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set("Authorization", "Bearer "+demoCredential)
	req.Header.Set("Fence-Key", demoCall)
	req.Header.Set("Prefer", "wait=1")
	t := &http.Transport{DisableKeepAlives: true}
	resp, err := t.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return nil, err
	}
	r := &reply{status: resp.StatusCode, outcome: resp.Header.Get("Fence-Outcome"), result: resp.Header.Get("Fence-Result")}
	return r, json.Unmarshal(b, r)
}

// child is a sidecar process of the demo.
type child struct {
	cmd  *exec.Cmd
	addr string
	dead bool
}

func (c *child) port() string { return c.addr[strings.LastIndexByte(c.addr, ':')+1:] }

// kill sends SIGKILL and waits for the end.
func (c *child) kill() error {
	if c.dead {
		return nil
	}
	c.dead = true
	if err := c.cmd.Process.Kill(); err != nil {
		return err
	}
	c.cmd.Wait() // its error is the kill
	return nil
}

// command is this program again.
func command(ctx context.Context, args ...string) *exec.Cmd {
	self, err := os.Executable()
	if err != nil {
		self = os.Args[0]
	}
	cmd := exec.CommandContext(ctx, self, args...)
	cmd.Env = append(os.Environ(), "FENCE_DEMO_CREDENTIAL="+demoCredential)
	return cmd
}

// startSidecar runs a sidecar and waits until it says that it can claim. What it logs tells its port.
func startSidecar(ctx context.Context, config string) (*child, error) {
	cmd := command(ctx, "run", "--config", config)
	logs, err := cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	c := &child{cmd: cmd}
	in := bufio.NewScanner(logs)
	last := ""
	for in.Scan() {
		var line struct{ Msg, For, Address string }
		last = in.Text()
		json.Unmarshal(in.Bytes(), &line) // a line that is no JSON is for people
		if line.Msg == "listening" && line.For == "stripe" {
			c.addr = line.Address
		}
		if line.Msg == "ready" && c.addr != "" {
			go io.Copy(io.Discard, logs)
			return c, nil
		}
	}
	c.kill()
	return nil, fmt.Errorf("ended before it was ready: %s", last)
}
