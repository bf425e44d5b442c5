package e2e

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/fence-sidecar/fence-sidecar/claims"
)

// sidecar is one process of the program under test.
type sidecar struct {
	t    *testing.T
	w    *world
	name string
	cmd  *exec.Cmd

	mu       sync.Mutex
	lines    []string
	address  map[string]string // by what the listener is for
	instance string            // scope of its own lease; "" until ready
	out      strings.Builder

	exited  chan struct{}
	ended   bool // waited for by the test
	stopped bool
	killed  bool
}

// start runs a sidecar and waits until it can claim.
func (w *world) start(name string) *sidecar {
	w.t.Helper()
	s := w.spawn(name)
	eventually(w.t, "sidecar "+name+" is ready", func() bool {
		select {
		case <-s.exited:
			w.t.Fatalf("sidecar %s ended before it was ready:\n%s", name, s.logs())
		default:
		}
		return s.ready() != ""
	})
	return s
}

// pair starts the sidecars A and B.
func (w *world) pair() (a, b *sidecar) {
	w.t.Helper()
	a, b = w.spawn("A"), w.spawn("B")
	for _, s := range []*sidecar{a, b} {
		eventually(w.t, "sidecar "+s.name+" is ready", func() bool { return s.ready() != "" })
	}
	return a, b
}

// spawn runs a sidecar and does not wait.
func (w *world) spawn(name string) *sidecar {
	w.t.Helper()
	s := &sidecar{t: w.t, w: w, name: name, address: map[string]string{}, exited: make(chan struct{})}
	s.cmd = w.command("run", "--config", w.config)
	stderr, err := s.cmd.StderrPipe()
	if err != nil {
		w.t.Fatal(err)
	}
	s.cmd.Stdout = &s.out
	if err := s.cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	running.add(s.cmd.Process.Pid, "sidecar "+name+" of "+w.t.Name())
	go func() {
		s.read(stderr)
		s.cmd.Wait()
		running.remove(s.cmd.Process.Pid)
		close(s.exited)
	}()
	w.t.Cleanup(s.end)
	return s
}

// read keeps the log and learns addresses from it.
func (s *sidecar) read(r io.Reader) {
	in := bufio.NewScanner(r)
	in.Buffer(nil, 1<<20)
	for in.Scan() {
		var line struct{ Msg, For, Address, Instance string }
		json.Unmarshal(in.Bytes(), &line) // what is no JSON is kept all the same
		s.mu.Lock()
		s.lines = append(s.lines, in.Text())
		switch line.Msg {
		case "listening":
			if strings.HasPrefix(line.Address, "/") {
				line.For = "socket"
			}
			s.address[line.For] = line.Address
		case "ready":
			s.instance = line.Instance
		}
		s.mu.Unlock()
	}
}

func (s *sidecar) ready() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.instance
}

// at is the address of a listener: a gateway's name, "any gateway", "telemetry" or "socket".
func (s *sidecar) at(what string) string {
	s.t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	a := s.address[what]
	if a == "" {
		s.t.Fatalf("sidecar %s has no listener for %s", s.name, what)
	}
	return a
}

func (s *sidecar) logs() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.lines, "\n")
}

func (s *sidecar) signal(sig os.Signal) {
	s.t.Helper()
	if err := s.cmd.Process.Signal(sig); err != nil {
		s.t.Fatalf("signal %v to sidecar %s: %v", sig, s.name, err)
	}
}

// kill is SIGKILL; it returns when the process is gone.
func (s *sidecar) kill() {
	s.t.Helper()
	s.killed = true
	s.signal(syscall.SIGKILL)
	s.wait()
}

// stop freezes the process, at an instant at which it does not hold the store's write lock: whoever freezes with that lock
// stops every writer of the file for as long as it is frozen, which is SQLite's way and not what is tested here.
func (s *sidecar) stop() {
	s.t.Helper()
	for s.freeze(); s.w.db.url == "" && !s.w.locked && !writable(s.t, s.w); s.freeze() {
		s.resume()
	}
}

// freeze returns when the kernel says that the process is stopped.
func (s *sidecar) freeze() {
	s.t.Helper()
	s.signal(syscall.SIGSTOP)
	s.stopped = true
	stat := fmt.Sprintf("/proc/%d/stat", s.cmd.Process.Pid)
	eventually(s.t, "sidecar "+s.name+" is stopped", func() bool {
		b, err := os.ReadFile(stat)
		_, rest, _ := strings.Cut(string(b), ") ")
		return err == nil && strings.HasPrefix(rest, "T")
	})
}

func (s *sidecar) resume() {
	s.t.Helper()
	s.signal(syscall.SIGCONT)
	s.stopped = false
}

// term asks the process to end and returns its exit code.
func (s *sidecar) term() int {
	s.t.Helper()
	s.signal(syscall.SIGTERM)
	return s.wait()
}

func (s *sidecar) wait() int {
	s.t.Helper()
	select {
	case <-s.exited:
	case <-time.After(patience):
		s.cmd.Process.Kill()
		<-s.exited
		s.t.Errorf("sidecar %s did not end by itself", s.name)
	}
	s.ended = true
	return s.cmd.ProcessState.ExitCode()
}

// end stops the process at the end of the test, in order, and prints its log if the test failed.
func (s *sidecar) end() {
	if !s.ended {
		if s.stopped {
			s.cmd.Process.Signal(syscall.SIGCONT)
		}
		s.cmd.Process.Signal(syscall.SIGTERM)
		s.wait()
	}
	code := s.cmd.ProcessState.ExitCode()
	log := s.logs()
	if !s.killed && code != 0 {
		s.t.Errorf("sidecar %s ended with exit code %d", s.name, code)
	}
	for _, bad := range []string{"panic", "DATA RACE", "superfluous response"} {
		if strings.Contains(log, bad) {
			s.t.Errorf("sidecar %s: %q is in its log", s.name, bad)
		}
	}
	if s.t.Failed() {
		s.t.Logf("log of sidecar %s:\n%s", s.name, log)
	}
}

// leaseOver waits until the store no longer sees the process's own lease live.
func (s *sidecar) leaseOver() {
	s.t.Helper()
	eventually(s.t, "the lease of sidecar "+s.name+" has run out", func() bool {
		l, err := s.w.store.State(s.t.Context(), s.ready())
		return err == nil && l.Status != claims.LeaseLive
	})
}

// get asks the telemetry listener.
func (s *sidecar) get(path string) (int, string) {
	s.t.Helper()
	resp, err := (&http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}).Get("http://" + s.at("telemetry") + path)
	if err != nil {
		s.t.Fatalf("GET %s: %v", path, err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		s.t.Fatalf("GET %s: %v", path, err)
	}
	return resp.StatusCode, string(b)
}

// metric is a series' value; "" where there is none.
func (s *sidecar) metric(series string) string {
	s.t.Helper()
	_, text := s.get("/metrics")
	for line := range strings.SplitSeq(text, "\n") {
		if v, ok := strings.CutPrefix(line, series+" "); ok {
			return v
		}
	}
	return ""
}
