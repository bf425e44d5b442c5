package e2e

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// appEnv makes this test binary an application: it names the control listener, the gateway's listener and the scope.
const appEnv = "E2E_APP"

// An application in a process of its own must not wait for TestMain, which builds the program.
func init() {
	if to := os.Getenv(appEnv); to != "" {
		serveApp(strings.SplitN(to, " ", 3))
		os.Exit(0)
	}
}

// appTTL is the lease of an application that is taken over.
const appTTL = 3 * time.Second

// told is what an application tells of one request, in one line.
type told struct {
	Token  string // of its lease, in its first line
	Err    string // no answer came
	Status int
	Lines  []string
	Body   []byte
}

func (r told) reply() reply {
	p := reply{status: r.Status, lines: r.Lines, body: r.Body}
	if r.Err != "" {
		p.err = fmt.Errorf("%s", r.Err)
	}
	return p
}

// serveApp takes a lease, renews it every third, and makes a charge for every line that it reads: a call key. It is as
// careless as an application can be: it goes on charging under a lease that it was told is lost.
func serveApp(to []string) {
	control, gateway, id := to[0], to[1], to[2]
	out := json.NewEncoder(os.Stdout)
	p := ask(control, "/v1/leases/acquire", "", wanted(id, "app", appTTL))
	var l lease
	json.Unmarshal(p.body, &l)
	out.Encode(told{Token: l.FenceToken, Body: p.body})
	go func() {
		for p := (reply{}); p.slug() != "fenced"; time.Sleep(appTTL / 3) {
			p = ask(control, "/v1/leases/confirm", l.FenceToken, fmt.Sprintf(`{"ttl_ms":%d}`, appTTL.Milliseconds()))
		}
	}()
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		p := send(gateway, charge(in.Text()).under(l.FenceToken))
		r := told{Status: p.status, Lines: p.lines, Body: p.body}
		if p.err != nil {
			r.Err = p.err.Error()
		}
		out.Encode(r)
	}
}

// app is an application's process as the test sees it.
type app struct {
	t       *testing.T
	id      string // of its scope
	token   string
	cmd     *exec.Cmd
	in      io.WriteCloser
	replies chan reply
	wg      sync.WaitGroup
}

// startApp starts an application beside a sidecar and waits until it holds its lease.
func startApp(t *testing.T, s *sidecar, gateway, id string) *app {
	t.Helper()
	a := &app{t: t, id: id, cmd: exec.Command(os.Args[0]), replies: make(chan reply, 10)}
	a.cmd.Env = append(os.Environ(), appEnv+"="+s.at("control")+" "+s.at(gateway)+" "+id)
	a.cmd.Stderr = os.Stderr
	out, err := a.cmd.StdoutPipe()
	if err == nil {
		a.in, err = a.cmd.StdinPipe()
	}
	if err == nil {
		err = a.cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	running.add(a.cmd.Process.Pid, "application "+id+" of "+t.Name())
	t.Cleanup(a.end)
	lines := json.NewDecoder(out)
	var first told
	if err := lines.Decode(&first); err != nil || first.Token == "" {
		t.Fatalf("application %s has no lease: %v %s", id, err, first.Body)
	}
	a.token = first.Token
	a.wg.Go(func() {
		for r := (told{}); lines.Decode(&r) == nil; r = (told{}) {
			a.replies <- r.reply()
		}
	})
	return a
}

// charge makes the application charge; its answer comes by replies.
func (a *app) charge(key string) {
	a.t.Helper()
	if _, err := io.WriteString(a.in, key+"\n"); err != nil {
		a.t.Fatal(err)
	}
}

// freeze returns when the kernel says that the process is stopped.
func (a *app) freeze() {
	a.t.Helper()
	a.signal(syscall.SIGSTOP)
	eventually(a.t, "application "+a.id+" is stopped", func() bool { return processState(a.cmd.Process.Pid) == "T" })
}

func (a *app) resume() { a.t.Helper(); a.signal(syscall.SIGCONT) }

func (a *app) signal(sig syscall.Signal) {
	a.t.Helper()
	if err := a.cmd.Process.Signal(sig); err != nil {
		a.t.Fatalf("signal %v to application %s: %v", sig, a.id, err)
	}
}

// end kills the process, frozen or not.
func (a *app) end() {
	a.cmd.Process.Kill()
	a.in.Close()
	a.wg.Wait()
	a.cmd.Wait()
	running.remove(a.cmd.Process.Pid)
}

// processState is the letter that the kernel gives a process's state; "" where it cannot be read.
func processState(pid int) string {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, rest, _ := strings.Cut(string(b), ") ")
	if err != nil || rest == "" {
		return ""
	}
	return rest[:1]
}
