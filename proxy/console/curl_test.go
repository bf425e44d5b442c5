package console

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http/httptest"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/fence-sidecar/fence-sidecar/claims"
	"github.com/fence-sidecar/fence-sidecar/claims/memory"
)

const control = "127.0.0.1:8182"

// commands are the curl commands that a document shows, in order.
func commands(text string) (out []string) {
	lines := strings.Split(text, "\n")
	for i := 0; i < len(lines); i++ {
		if !strings.HasPrefix(lines[i], "    curl ") {
			continue
		}
		cmd := strings.TrimSpace(lines[i])
		for strings.HasSuffix(cmd, "\\") {
			i++
			cmd = strings.TrimSuffix(cmd, "\\") + strings.TrimSpace(lines[i])
		}
		out = append(out, cmd)
	}
	return out
}

// guideServer serves a console on a store that is as the documents have it: one call in review.
func guideServer(t *testing.T) *httptest.Server {
	store := memory.New(memory.Config{})
	c := New(Config{Leases: store, Lister: store, Confirm: store.Confirm, Calls: store, Journal: store, Log: quiet, Operators: []Operator{
		{"ada", func() (string, error) { return adaToken, nil }},
	}})
	r := claims.Record{
		Key: claims.Key{Tenant: "default", Call: "charge:order:42"}, State: claims.StateReview, Review: &claims.Review{Reason: "nobody knows"}, Revision: 1, Attempt: 1,
	}
	for v := range int64(4) {
		if _, err := store.Swap(t.Context(), claims.Condition{}, claims.Write{Version: v, Next: r}); err != nil {
			t.Fatal(err)
		}
	}
	server := httptest.NewServer(c.Handler())
	t.Cleanup(server.Close)
	t.Cleanup(c.Close)
	return server
}

// The commands in the documents work as shown, one after the other, and there is one for every operation.
func TestGuide_curl(t *testing.T) {
	if _, err := exec.LookPath("curl"); err != nil {
		t.Fatal("curl is not installed: this test runs the commands of the document (apt-get install curl)")
	}
	var all, text string
	for _, guide := range []string{"leases.md", "calls.md"} {
		b, err := os.ReadFile("../../docs/" + guide)
		if err != nil {
			t.Fatal(err)
		}
		cmds := commands(string(b))
		all, text = all+strings.Join(cmds, "\n")+"\n", text+string(b)
		t.Run(guide, func(t *testing.T) { runGuide(t, cmds, guideServer(t)) })
	}
	for _, r := range routes() {
		shown := regexp.MustCompile(regexp.QuoteMeta(control+r.path) + `[?' \n]`)
		if r.path != "/openapi.yaml" && !shown.MatchString(all) {
			t.Errorf("no document shows a command for %s", r.path)
		}
		if !strings.Contains(text, r.method+" "+r.path) {
			t.Errorf("no document names %s %s", r.method, r.path)
		}
	}
}

func runGuide(t *testing.T, cmds []string, server *httptest.Server) {
	watch := ""
	for _, cmd := range cmds {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		sh := exec.CommandContext(ctx, "sh", "-c", "exec "+strings.ReplaceAll(cmd, control, strings.TrimPrefix(server.URL, "http://")))
		sh.Env = append(os.Environ(), "WATCH="+watch, "FENCE_OPERATOR_TOKEN="+adaToken)
		switch {
		case strings.Contains(cmd, "/watch"):
			var e pingEvent
			startStream(t, sh, &e)
			if watch = e.Watch; e.N != 1 {
				t.Fatalf("ping %d", e.N)
			}
			continue
		case strings.Contains(cmd, "/events"):
			var e eventData
			if startStream(t, sh, &e); e.Call != "charge:order:42" || e.State != claims.StateSucceeded {
				t.Fatalf("%+v", e)
			}
			continue
		}
		if out, err := sh.CombinedOutput(); err != nil || json.Valid(out) == strings.Contains(cmd, "text/plain") {
			t.Errorf("%s\n%v: %s", cmd, err, out)
		}
	}
}

// startStream runs a stream until the test ends, and reads its first event's data.
func startStream(t *testing.T, sh *exec.Cmd, into any) {
	t.Helper()
	out, err := sh.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := sh.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { sh.Process.Kill(); sh.Wait() })
	for lines := bufio.NewScanner(out); lines.Scan(); {
		if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
			if err := json.Unmarshal([]byte(data), into); err != nil {
				t.Fatalf("%s: %v", data, err)
			}
			return
		}
	}
	t.Fatal("no event came")
}
