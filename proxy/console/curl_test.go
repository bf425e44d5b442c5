package console

import (
	"bufio"
	"context"
	"encoding/json"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/fence-sidecar/fence-sidecar/claims/memory"
)

const (
	guide   = "../../docs/leases.md"
	control = "127.0.0.1:8182"
)

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

// The commands in the document work as shown, one after the other.
func TestGuide_curl(t *testing.T) {
	if _, err := exec.LookPath("curl"); err != nil {
		t.Fatal("curl is not installed: this test runs the commands of the document (apt-get install curl)")
	}
	text, err := os.ReadFile(guide)
	if err != nil {
		t.Fatal(err)
	}
	store := memory.New(memory.Config{})
	c := New(Config{Leases: store, Lister: store, Confirm: store.Confirm, Log: quiet})
	server := httptest.NewServer(c.Handler())
	defer server.Close()
	defer c.Close()
	cmds := commands(string(text))
	for _, r := range routes() {
		if r.path != "/openapi.yaml" && !strings.Contains(strings.Join(cmds, "\n"), control+r.path) {
			t.Errorf("the document shows no command for %s", r.path)
		}
		if !strings.Contains(string(text), r.method+" "+r.path) {
			t.Errorf("the document does not name %s %s", r.method, r.path)
		}
	}
	watch := ""
	for _, cmd := range cmds {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		sh := exec.CommandContext(ctx, "sh", "-c", "exec "+strings.ReplaceAll(cmd, control, strings.TrimPrefix(server.URL, "http://")))
		sh.Env = append(os.Environ(), "WATCH="+watch)
		if strings.Contains(cmd, "/watch") {
			watch = startWatch(t, sh)
			continue
		}
		if out, err := sh.CombinedOutput(); err != nil || !json.Valid(out) {
			t.Errorf("%s\n%v: %s", cmd, err, out)
		}
	}
}

// startWatch runs a watch until the test ends, and returns its id from the first ping.
func startWatch(t *testing.T, sh *exec.Cmd) string {
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
			var e pingEvent
			if err := json.Unmarshal([]byte(data), &e); err != nil || e.N != 1 {
				t.Fatalf("%s: %v", data, err)
			}
			return e.Watch
		}
	}
	t.Fatal("no ping came")
	return ""
}
