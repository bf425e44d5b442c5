//go:build net

package testnet

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

const (
	senderIP    = "10.212.9.1"
	gatewayIP   = "10.212.9.2"
	gatewayAddr = gatewayIP + ":8080"
	prefix      = "fencenet-"
)

var worlds atomic.Int32

// world is a sender's and a gateway's namespace, with the gateway's listener. The gateway never answers.
type world struct {
	t        *testing.T
	sender   string // namespaces
	gateway  string
	accepted chan struct{} // one per connection

	mu       sync.Mutex
	received []byte
}

// needTools fails with what to install.
func needTools(t *testing.T) {
	t.Helper()
	for tool, pkg := range map[string]string{"ip": "iproute2", "ss": "iproute2", "nft": "nftables"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Fatalf("%s is missing: install it, for example by apt-get install iproute2 nftables", pkg)
		}
	}
	if os.Geteuid() != 0 {
		t.Fatal("network namespaces need root: run the test as root")
	}
}

func newWorld(t *testing.T) *world {
	t.Helper()
	needTools(t)
	dropStale(t)
	name := fmt.Sprintf("%s%d-%d", prefix, os.Getpid(), worlds.Add(1))
	w := &world{t: t, sender: name + "-s", gateway: name + "-g", accepted: make(chan struct{}, 16)}
	t.Cleanup(func() {
		for _, ns := range []string{w.sender, w.gateway} {
			exec.Command("ip", "netns", "del", ns).Run()
		}
	})
	for _, args := range []string{
		"netns add " + w.sender, "netns add " + w.gateway,
		"link add vs netns " + w.sender + " type veth peer name vg netns " + w.gateway,
		"-n " + w.sender + " addr add " + senderIP + "/24 dev vs", "-n " + w.gateway + " addr add " + gatewayIP + "/24 dev vg",
		"-n " + w.sender + " link set vs up", "-n " + w.gateway + " link set vg up",
		"-n " + w.sender + " link set lo up", "-n " + w.gateway + " link set lo up",
	} {
		w.run("", "ip", strings.Fields(args)...)
	}
	w.serve()
	return w
}

// dropStale removes the namespaces of test processes that were killed.
func dropStale(t *testing.T) {
	out, err := exec.Command("ip", "netns", "list").Output()
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(out)) {
		name, _, _ := strings.Cut(strings.TrimSpace(line), " ")
		rest, ours := strings.CutPrefix(name, prefix)
		pid, _, _ := strings.Cut(rest, "-")
		if n, err := strconv.Atoi(pid); ours && err == nil && syscall.Kill(n, 0) == syscall.ESRCH {
			exec.Command("ip", "netns", "del", name).Run()
		}
	}
}

func (w *world) run(stdin, name string, args ...string) string {
	w.t.Helper()
	cmd := exec.Command(name, args...)
	cmd.Stdin = strings.NewReader(stdin)
	out, err := cmd.CombinedOutput()
	if err != nil {
		w.t.Fatalf("%s %s: %v: %s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// inside runs f on a thread in a namespace; sockets that it makes belong there. The thread is thrown away.
func inside(ns string, f func() error) error {
	res := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		res <- func() error {
			nsFile, err := os.Open("/run/netns/" + ns)
			if err != nil {
				return err
			}
			defer nsFile.Close()
			if err := unix.Setns(int(nsFile.Fd()), unix.CLONE_NEWNET); err != nil {
				return err
			}
			return f()
		}()
	}()
	return <-res
}

// serve starts the gateway: it takes every connection and keeps what it receives.
func (w *world) serve() {
	w.t.Helper()
	var ln net.Listener
	if err := inside(w.gateway, func() (err error) {
		ln, err = net.Listen("tcp4", gatewayAddr)
		return err
	}); err != nil {
		w.t.Fatal(err)
	}
	var wg sync.WaitGroup
	var conns []net.Conn
	wg.Go(func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			w.mu.Lock()
			conns = append(conns, c)
			w.mu.Unlock()
			w.accepted <- struct{}{}
			wg.Go(func() { w.read(c) })
		}
	})
	w.t.Cleanup(func() {
		ln.Close()
		w.mu.Lock()
		for _, c := range conns {
			c.Close()
		}
		w.mu.Unlock()
		wg.Wait()
	})
}

func (w *world) read(c net.Conn) {
	b := make([]byte, 4096)
	for {
		n, err := c.Read(b)
		w.mu.Lock()
		w.received = append(w.received, b[:n]...)
		w.mu.Unlock()
		if err != nil {
			return
		}
	}
}

func (w *world) got() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return string(w.received)
}

// dig makes the gateway's side swallow every IP packet, in both directions. The drop is there, and not at the sender,
// because a sender's own drop is a local error to its TCP and not a loss.
func (w *world) dig() {
	w.t.Helper()
	w.run(`table inet hole {
		counter swallowed { }
		chain in { type filter hook input priority 0; counter name swallowed; drop; }
		chain out { type filter hook output priority 0; drop; }
	}`, "ip", "netns", "exec", w.gateway, "nft", "-f", "-")
}

func (w *world) heal() {
	w.t.Helper()
	w.run("", "ip", "netns", "exec", w.gateway, "nft", "delete", "table", "inet", "hole")
}

// swallowed waits until the hole has taken a packet: the request was written.
func (w *world) swallowed() {
	w.t.Helper()
	w.eventually("a packet falls into the hole", func() bool {
		out := w.run("", "ip", "netns", "exec", w.gateway, "nft", "list", "counter", "inet", "hole", "swallowed")
		return strings.Contains(out, "packets") && !strings.Contains(out, "packets 0 ")
	})
}

// sockets says how many of the sender's connections its kernel still holds.
func (w *world) sockets() int {
	return strings.Count(w.run("", "ip", "netns", "exec", w.sender, "ss", "-Htn"), gatewayAddr)
}

// nothingArrives watches the gateway for d, and then shows that the path works.
func (w *world) nothingArrives(d time.Duration) {
	w.t.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if got := w.got(); got != "" {
			w.t.Fatalf("the gateway received %q after the hole healed", got)
		}
	}
	if err := inside(w.sender, func() error {
		c, err := net.DialTimeout("tcp4", gatewayAddr, 10*time.Second)
		if err != nil {
			return err
		}
		defer c.Close()
		_, err = io.WriteString(c, "healed")
		return err
	}); err != nil {
		w.t.Fatalf("the hole did not heal: %v", err)
	}
	w.eventually("the probe arrives", func() bool { return w.got() != "" })
	if got := w.got(); got != "healed" {
		w.t.Fatalf("the gateway received %q", got)
	}
}

// requestArrives waits until the whole request is at the gateway.
func (w *world) requestArrives() {
	w.t.Helper()
	w.eventually("the request arrives late", func() bool { return strings.HasSuffix(w.got(), "amount=1") })
	if n := strings.Count(w.got(), "POST "); n != 1 {
		w.t.Errorf("%d requests arrived, want 1", n)
	}
}

func (w *world) eventually(what string, cond func() bool) {
	w.t.Helper()
	for end := time.Now().Add(60 * time.Second); !cond(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			w.t.Fatalf("never happened: %s", what)
		}
	}
}

// process is a sender in its namespace.
type process struct {
	w     *world
	cmd   *exec.Cmd
	in    io.WriteCloser
	lines chan string
	ended chan struct{}
}

// order tells a sender what to do.
type order struct {
	Timeout time.Duration
	Linger  bool // SO_LINGER(on, 0) is allowed to work
	Limit   bool // TCP_USER_TIMEOUT is
}

// start runs a sender up to its gate: connected, nothing written.
func (w *world) start(o order) *process {
	w.t.Helper()
	self, err := os.Executable()
	if err != nil {
		w.t.Fatal(err)
	}
	env, err := json.Marshal(o)
	if err != nil {
		w.t.Fatal(err)
	}
	p := &process{w: w, lines: make(chan string, 16), ended: make(chan struct{})}
	p.cmd = exec.Command("ip", "netns", "exec", w.sender, self) // ip replaces itself by the sender: one process
	p.cmd.Env = append(os.Environ(), orderEnv+"="+string(env))
	p.cmd.Stderr = os.Stderr
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		w.t.Fatal(err)
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		w.t.Fatal(err)
	}
	if err := p.cmd.Start(); err != nil {
		w.t.Fatal(err)
	}
	go func() {
		defer close(p.ended)
		for s := bufio.NewScanner(out); s.Scan(); {
			p.lines <- s.Text()
		}
		p.cmd.Wait()
	}()
	w.t.Cleanup(func() {
		p.cmd.Process.Kill()
		<-p.ended
	})
	p.expect("gate")
	<-w.accepted
	return p
}

// write opens the gate.
func (p *process) write() {
	p.w.t.Helper()
	if _, err := io.WriteString(p.in, "go\n"); err != nil {
		p.w.t.Fatal(err)
	}
}

// expect waits for a line of the sender that begins with want.
func (p *process) expect(want string) {
	p.w.t.Helper()
	select {
	case got := <-p.lines:
		if !strings.HasPrefix(got, want) {
			p.w.t.Fatalf("the sender said %q, want %q", got, want)
		}
	case <-p.ended:
		p.w.t.Fatalf("the sender ended, want %q", want)
	case <-time.After(60 * time.Second):
		p.w.t.Fatalf("the sender never said %q", want)
	}
}

func (p *process) signal(s os.Signal) {
	p.w.t.Helper()
	if err := p.cmd.Process.Signal(s); err != nil {
		p.w.t.Fatal(err)
	}
}

func (p *process) alive() bool {
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}
