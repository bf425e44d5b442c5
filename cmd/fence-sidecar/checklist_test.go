package main

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/alecthomas/kong"

	"github.com/fence-sidecar/fence-sidecar/checklist"
	"github.com/fence-sidecar/fence-sidecar/gateways/sandbox"
)

const checklistCredential = "sk_test_commandLineSecret"

// checklistRun parses a command line, runs it, and returns its exit code and what went to standard output.
func checklistRun(t *testing.T, args ...string) (code int, out string, err error) {
	t.Helper()
	var c struct {
		Checklist checklistCmd `cmd:""`
	}
	k, err := kong.New(&c, kong.Exit(func(int) { t.Error("kong ended the process") }))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := k.Parse(append([]string{"checklist"}, args...)); err != nil {
		return 80, "", err // as kong does
	}
	f, err := os.Create(filepath.Join(t.TempDir(), "stdout"))
	if err != nil {
		t.Fatal(err)
	}
	stdout := os.Stdout
	os.Stdout = f
	err = c.Checklist.Run(t.Context())
	os.Stdout = stdout
	f.Close()
	b, _ := os.ReadFile(f.Name())
	if e, ok := errors.AsType[*exitError](err); ok {
		code = e.ExitCode()
	} else if err != nil {
		t.Errorf("an error without an exit code: %v", err)
	}
	return code, string(b), err
}

func checklistSandbox(t *testing.T) (*sandbox.Server, []string) {
	t.Helper()
	s := sandbox.New(sandbox.Config{})
	addr, err := s.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	t.Setenv("CHECKLIST_CREDENTIAL", checklistCredential)
	return s, []string{
		"--gateway", "stripe", "--base-url", s.URL(addr), "--credential-env", "CHECKLIST_CREDENTIAL", "--advance", "POST /_sandbox/payments/{object}/done",
		"--lookup-wait", "300ms", "--outcome-wait", "600ms", "--timeout", "60s",
	}
}

func TestChecklistCommand(t *testing.T) {
	s, args := checklistSandbox(t)
	dir := t.TempDir()
	code, out, err := checklistRun(t, append(args, "--html", filepath.Join(dir, "r.html"), "--junit", filepath.Join(dir, "r.xml"), "--json", filepath.Join(dir, "r.json"),
		"--resume", filepath.Join(dir, "state"), "--listen", "127.0.0.1:0")...)
	if code != 0 || err != nil {
		t.Fatalf("exit %d: %v", code, err)
	}
	for _, want := range []string{"G1 PASS", "G2 PARTIAL", "G3 NOT CHECKED", "G4 PASS", "G5 PASS", "G6 PASS", "egress PASS", "Made at the sandbox", "extends: stripe"} {
		if !strings.Contains(out, want) {
			t.Errorf("the table lacks %q", want)
		}
	}
	names, _ := os.ReadDir(dir)
	if len(names) != 4 {
		t.Errorf("files: %v", names)
	}
	for _, n := range names {
		b, err := os.ReadFile(filepath.Join(dir, n.Name()))
		if err != nil || len(b) < 500 || strings.Contains(string(b), checklistCredential) {
			t.Errorf("%s: %d bytes, %v", n.Name(), len(b), err)
		}
	}
	moved := s.Moved()
	if code, _, err := checklistRun(t, append(args, "--resume", filepath.Join(dir, "state"), "--json", "-")...); code != 0 || err != nil || s.Moved() != moved {
		t.Errorf("resumed: exit %d, %v, money moved %d times", code, err, s.Moved()-moved)
	}
}

func TestChecklistExitCodes(t *testing.T) {
	s, args := checklistSandbox(t)
	t.Setenv("CHECKLIST_LIVE", "sk_live_x")
	for name, c := range map[string]struct {
		args []string
		code int
		says string
	}{
		"no gateway":          {[]string{"--credential-env", "CHECKLIST_CREDENTIAL"}, exitNotRun, "stripe"},
		"no credential":       {[]string{"--gateway", "stripe"}, exitNotRun, "--credential-env"},
		"no such file":        {append(args[:0:0], append(args, "--file", "/nonexistent")...), exitNotRun, "no such file"},
		"live":                {append(args[:0:0], append(args, "--credential-env", "CHECKLIST_LIVE")...), exitNotRun, "real money"},
		"via without listen":  {append(args[:0:0], append(args, "--via", "http://x")...), exitNotRun, "--listen"},
		"secret without hook": {append(args[:0:0], append(args, "--webhook-secret-env", "X")...), exitNotRun, "--webhook-listen"},
		"advance":             {append(args[:0:0], append(args, "--advance", "x")...), exitNotRun, "--advance"},
		"time is over":        {append(args[:0:0], append(args, "--timeout", "1ns")...), exitNotRun, "--timeout"},
		"unknown flag":        {append(args[:0:0], append(args, "--nonsense")...), 80, "nonsense"},
	} {
		code, _, err := checklistRun(t, c.args...)
		if code != c.code || err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: exit %d (%v), want %d and %q", name, code, err, c.code, c.says)
		}
	}
	if n := len(s.Sends()); n > 0 {
		t.Errorf("%d requests were sent", n)
	}
	if err := s.Inject(sandbox.Fault{Name: "ignore-key"}); err != nil {
		t.Fatal(err)
	}
	code, out, err := checklistRun(t, append(args, "--json", "-")...)
	var rep checklist.Report
	if e := json.Unmarshal([]byte(out), &rep); code != exitFailed || err == nil || e != nil || rep.Row("G1").Verdict != checklist.Fail {
		t.Errorf("exit %d (%v), report %v", code, err, e)
	}
}

func TestChecklistPlan(t *testing.T) {
	s, args := checklistSandbox(t)
	code, out, err := checklistRun(t, append(args, "--plan")...)
	if code != 0 || err != nil || !strings.Contains(out, "burst") || !strings.Contains(out, "of 50 eur each") || len(s.Sends()) > 0 {
		t.Errorf("exit %d (%v), %d requests:\n%s", code, err, len(s.Sends()), out)
	}
}

// An OAuth2 client's token is fetched at the sandbox, and its secret goes nowhere else.
func TestChecklistToken(t *testing.T) {
	_, args := checklistSandbox(t)
	asked := 0
	tokens := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if id, secret, _ := r.BasicAuth(); id != "client" || secret != checklistCredential {
			t.Errorf("asked by %q", id)
		}
		asked++
		w.Header().Set("Content-Type", "application/json")
		w.Write([]byte(`{"access_token":"token-1","token_type":"Bearer","expires_in":3600}`))
	}))
	defer tokens.Close()
	t.Setenv("CHECKLIST_CLIENT", "client")
	token := []string{"--client-id-env", "CHECKLIST_CLIENT", "--token-path", tokens.URL + "/token"}
	if code, _, err := checklistRun(t, append(append(args[:0:0], args...), append(token, "--plan")...)...); code != 0 || asked != 0 {
		t.Errorf("plan: exit %d (%v), %d tokens", code, err, asked)
	}
	code, out, err := checklistRun(t, append(append(args[:0:0], args...), token...)...)
	if code != 0 || err != nil || asked != 1 || strings.Contains(out, "token-1") {
		t.Errorf("exit %d (%v), %d tokens", code, err, asked)
	}
}

func TestChecklistStops(t *testing.T) {
	s, args := checklistSandbox(t)
	if err := s.Inject(sandbox.Fault{Name: "hang-before", Times: -1}); err != nil {
		t.Fatal(err)
	}
	code, out, err := checklistRun(t, append(args, "--timeout", "300ms")...)
	if code != exitNotRun || !strings.Contains(err.Error(), "--timeout") || errors.Is(err, context.DeadlineExceeded) || !strings.Contains(out, "NOT COMPLETE") {
		t.Errorf("exit %d (%v):\n%s", code, err, out)
	}
}

// A row that was accepted is left out of the exit code, and stands in the report.
func TestChecklistAllow(t *testing.T) {
	s, args := checklistSandbox(t)
	if err := s.Inject(sandbox.Fault{Name: "accept-other-body"}); err != nil {
		t.Fatal(err)
	}
	for allow, want := range map[string]int{"": exitFailed, "G1": exitFailed, "G5": 0} {
		more := args[:len(args):len(args)]
		if allow != "" {
			more = append(more, "--allow", allow)
		}
		if code, out, err := checklistRun(t, more...); code != want || !strings.Contains(out, "FAIL") {
			t.Errorf("allow %q: exit %d (%v)\n%s", allow, code, err, out)
		}
	}
}

// Tokens of a live address are live credentials.
func TestChecklistLiveTokens(t *testing.T) {
	t.Setenv("CHECKLIST_CLIENT", "client")
	t.Setenv("CHECKLIST_KEY", "secret")
	code, _, err := checklistRun(t, "--gateway", "paypal", "--base-url", "http://127.0.0.1:1", "--credential-env", "CHECKLIST_KEY",
		"--client-id-env", "CHECKLIST_CLIENT", "--token-path", "https://api-m.paypal.com/v1/oauth2/token")
	if code != exitNotRun || err == nil || !strings.Contains(err.Error(), "real money") {
		t.Errorf("exit %d: %v", code, err)
	}
}
