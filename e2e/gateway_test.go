package e2e

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/fence-sidecar/fence-sidecar/gateways/sandbox"
)

// rawGateway is a gateway that counts at its socket: each request head that it read is a send, whatever it answers. It
// honours keys, executes charges, and shows them by reference.
type rawGateway struct {
	t      *testing.T
	ln     net.Listener
	tls    *tls.Config
	answer func(c *rawCall) verdict // asked first; nil: behave
	stop   chan struct{}

	mu     sync.Mutex
	calls  []*rawCall
	conns  int
	open   map[net.Conn]bool
	ledger []booked // executed
	hidden bool     // lookups do not show what is there
	wg     sync.WaitGroup
}

// booked is one executed charge.
type booked struct{ ID, Key, Reference, Target, Amount string }

// verdict is what a misbehaviour did with a request.
type verdict int

const (
	behave verdict = iota // nothing: go on as a good gateway
	keep                  // answered; read the next request
	hangUp                // done with the connection; it is closed
)

// rawCall is one request as it came in.
type rawCall struct {
	g    *rawGateway
	conn net.Conn // above TLS
	tcp  *net.TCPConn
	nth  int // number of the connection, from 1
	br   *bufio.Reader

	line  string
	lines []string
	body  string
}

func (c *rawCall) method() string { m, _, _ := strings.Cut(c.line, " "); return m }

func (c *rawCall) target() string { return strings.Split(c.line, " ")[1] }

func (c *rawCall) header(name string) string {
	for _, l := range c.lines {
		if n, v, ok := strings.Cut(l, ":"); ok && strings.EqualFold(n, name) {
			return strings.TrimSpace(v)
		}
	}
	return ""
}

func (c *rawCall) has(name string) bool {
	for _, l := range c.lines {
		if n, _, ok := strings.Cut(l, ":"); ok && strings.EqualFold(n, name) {
			return true
		}
	}
	return false
}

func (c *rawCall) say(format string, a ...any) { fmt.Fprintf(c.conn, format, a...) }

// reply answers whole, with a Date and a length.
func (c *rawCall) reply(status int, lines string, body string) verdict {
	c.say("HTTP/1.1 %d %s\r\nDate: %s\r\n%sContent-Length: %d\r\n\r\n%s", status, http.StatusText(status),
		time.Now().UTC().Format(http.TimeFormat), lines, len(body), body)
	return keep
}

// reset closes the connection with an RST.
func (c *rawCall) reset() verdict {
	c.tcp.SetLinger(0)
	c.tcp.Close()
	return hangUp
}

// fin closes with a FIN; over TLS without a close_notify.
func (c *rawCall) fin() verdict {
	c.tcp.Close()
	return hangUp
}

// book executes the charge, once for a key.
func (c *rawCall) book() booked {
	c.g.mu.Lock()
	defer c.g.mu.Unlock()
	key := c.header("Idempotency-Key")
	for _, b := range c.g.ledger {
		if b.Key == key {
			return b
		}
	}
	form, _ := url.ParseQuery(c.body)
	b := booked{ID: fmt.Sprintf("ch_%d", len(c.g.ledger)+1), Key: key, Reference: form.Get("reference"), Target: c.target(), Amount: form.Get("amount")}
	c.g.ledger = append(c.g.ledger, b)
	return b
}

func (b booked) json() string {
	return fmt.Sprintf(`{"id":%q,"status":"done","reference":%q,"amount":%q}`, b.ID, b.Reference, b.Amount)
}

// good is what a good gateway does.
func (c *rawCall) good() verdict {
	if c.method() != http.MethodGet {
		return c.reply(200, "Content-Type: application/json\r\n", c.book().json())
	}
	c.g.mu.Lock()
	hidden, all := c.g.hidden, c.g.ledger
	c.g.mu.Unlock()
	ref := c.target()[strings.LastIndexByte(c.target(), '/')+1:]
	found := ""
	for _, b := range all {
		if !hidden && b.Reference == ref {
			found = b.json()
		}
	}
	if strings.HasPrefix(c.target(), "/v1/search/") {
		return c.reply(200, "Content-Type: application/json\r\n", `{"data":[`+found+`]}`)
	}
	if found != "" {
		return c.reply(200, "Content-Type: application/json\r\n", found)
	}
	return c.reply(404, "Content-Type: application/json\r\n", `{"error":{"message":"none"}}`)
}

// newRaw starts a gateway over plain TCP.
func newRaw(t *testing.T, answer func(*rawCall) verdict) *rawGateway {
	t.Helper()
	return startRaw(t, answer, nil)
}

func startRaw(t *testing.T, answer func(*rawCall) verdict, cfg *tls.Config) *rawGateway {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	g := &rawGateway{t: t, ln: ln, tls: cfg, answer: answer, stop: make(chan struct{}), open: map[net.Conn]bool{}}
	g.wg.Go(g.accept)
	t.Cleanup(g.close)
	return g
}

// newRawTLS starts a gateway over TLS that offers the given protocols by ALPN, and returns the file of its authority.
func newRawTLS(t *testing.T, answer func(*rawCall) verdict, protos ...string) (*rawGateway, string) {
	t.Helper()
	cert, ca := certificate(t)
	cfg := cert.TLS()
	cfg.NextProtos = protos
	return startRaw(t, answer, cfg), ca
}

// certificate makes a certificate for loopback and the file of its authority.
func certificate(t *testing.T) (*sandbox.Certificate, string) {
	t.Helper()
	cert, err := sandbox.NewCertificate(time.Now(), "127.0.0.1", "localhost")
	if err != nil {
		t.Fatal(err)
	}
	ca := filepath.Join(t.TempDir(), "ca.pem")
	if err := os.WriteFile(ca, cert.CA, 0o600); err != nil {
		t.Fatal(err)
	}
	return cert, ca
}

func (g *rawGateway) accept() {
	for {
		c, err := g.ln.Accept()
		if err != nil {
			return
		}
		g.mu.Lock()
		g.conns++
		n := g.conns
		g.open[c] = true
		g.mu.Unlock()
		g.wg.Go(func() { g.serve(c.(*net.TCPConn), n) })
	}
}

func (g *rawGateway) serve(tcp *net.TCPConn, nth int) {
	defer tcp.Close()
	top := net.Conn(tcp)
	if g.tls != nil {
		t := tls.Server(tcp, g.tls)
		if t.Handshake() != nil {
			return
		}
		top = t
	}
	br := bufio.NewReader(top)
	for {
		c := &rawCall{g: g, conn: top, tcp: tcp, nth: nth, br: br}
		if !c.read() {
			return
		}
		v := behave
		if g.answer != nil {
			v = g.answer(c)
		}
		if v == behave {
			v = c.good()
		}
		if v == hangUp {
			return
		}
	}
}

// read reads one request; it is counted as soon as its head is whole.
func (c *rawCall) read() bool {
	for {
		line, err := c.br.ReadString('\n')
		if err != nil {
			return false
		}
		if line = strings.TrimRight(line, "\r\n"); c.line == "" {
			c.line = line
			continue
		}
		if line == "" {
			break
		}
		c.lines = append(c.lines, line)
	}
	c.g.mu.Lock()
	c.g.calls = append(c.g.calls, c)
	c.g.mu.Unlock()
	if c.has("Transfer-Encoding") {
		b, err := io.ReadAll(httputil.NewChunkedReader(c.br))
		c.body = string(b)
		return err == nil
	}
	n, _ := strconv.Atoi(c.header("Content-Length"))
	b := make([]byte, n)
	_, err := io.ReadFull(c.br, b)
	c.body = string(b)
	return err == nil
}

// sends are the requests of a method ("": all but GET) that arrived.
func (g *rawGateway) sends(method string) (cs []*rawCall) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, c := range g.calls {
		if m := c.method(); m == method || method == "" && m != http.MethodGet {
			cs = append(cs, c)
		}
	}
	return cs
}

// wantSends fails the test unless exactly n unsafe requests arrived.
func (g *rawGateway) wantSends(n int) {
	g.t.Helper()
	if got := g.sends(""); len(got) != n {
		var lines strings.Builder
		for _, c := range got {
			lines.WriteString("\n" + c.line + " on connection " + strconv.Itoa(c.nth))
		}
		g.t.Errorf("the gateway got %d sends, want %d:%s", len(got), n, lines.String())
	}
}

// wantExecuted fails the test unless exactly n charges were executed.
func (g *rawGateway) wantExecuted(n int) {
	g.t.Helper()
	if got := g.executed(); len(got) != n {
		g.t.Errorf("the gateway executed %d, want %d: %+v", len(got), n, got)
	}
}

func (g *rawGateway) executed() []booked {
	g.mu.Lock()
	defer g.mu.Unlock()
	return append([]booked(nil), g.ledger...)
}

func (g *rawGateway) hide(on bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.hidden = on
}

func (g *rawGateway) url() string {
	if g.tls != nil {
		return "https://" + g.ln.Addr().String()
	}
	return "http://" + g.ln.Addr().String()
}

func (g *rawGateway) close() {
	select {
	case <-g.stop:
		return
	default:
	}
	close(g.stop)
	g.ln.Close()
	g.mu.Lock()
	for c := range g.open {
		c.Close()
	}
	g.mu.Unlock()
	g.wg.Wait()
}

// rawFile declares the raw gateway: a key, a reference in the form, a lookup by reference that proves absence, and no
// probe, so that the number of sends is exact.
const rawFile = `name: raw
baseURL: http://127.0.0.1:1
keyRetention: 24h
family: a
key: {header: Idempotency-Key}
reference: {field: reference, owned: true, required: true}
answers:
  - {status: ["2xx"], when: [{at: /id}], outcome: succeeded, stored: "yes"}
  - {status: ["402"], outcome: declined, stored: "yes"}
routes:
  - name: charge
    method: POST
    path: /v1/charges
    params: {amount: body:amount}
    lookup: &lookup
      kind: get
      target: /v1/by-reference/{reference}
      reference: /reference
      amount: /amount
      cases: [{when: [{at: /status, in: [done]}], reference: ours, is: done}]
      notFound: missed
      proves: true
      misses: 2
      missGap: 200ms
      answer: {status: 200}
  - name: refund
    method: POST
    path: /v1/refunds
    effect: undo
    lookup: *lookup
  - name: searched
    method: POST
    path: /v1/searched
    lookup:
      kind: search
      target: /v1/search/{reference}
      items: /data
      reference: /reference
      cases: [{when: [{at: /status, in: [done]}], is: done}]
      misses: 1
      missGap: 1ms
      answer: {status: 200}
  - {name: framed, method: POST, path: /framed, noReference: true, allowCloseFramed: true, answers: [{status: ["2xx"], outcome: succeeded, stored: "yes"}]}
  - {name: plain, method: POST, path: /plain/**, noReference: true, answers: [{status: ["2xx"], outcome: succeeded, stored: "yes"}]}
  - {name: moved, method: POST, path: /moved, noReference: true, answers: [{status: ["307", "308"], outcome: not-executed, stored: "no"}]}
  - {name: signed, method: "*", path: /**, signed: true}
`

// rawUse takes a raw gateway into a world's configuration. The file is written by rawWorld.
func rawUse(g *rawGateway) use { return use{file: "raw.yaml", name: "raw", url: g.url()} }

// rawWorld is a world with gateways of rawFile.
func rawWorld(t *testing.T, s settings) *world {
	t.Helper()
	path := filepath.Join(t.TempDir(), "raw.yaml")
	if err := os.WriteFile(path, []byte(rawFile), 0o600); err != nil {
		t.Fatal(err)
	}
	for i := range s.gateway {
		if s.gateway[i].file == "raw.yaml" {
			s.gateway[i].file = path
		}
	}
	return newWorld(t, s)
}

// newSandbox starts a Stripe-like gateway in this process and returns how a configuration uses it.
func newSandbox(t *testing.T, cfg sandbox.Config) (*sandbox.Server, use) {
	t.Helper()
	s := sandbox.New(cfg)
	addr, err := s.Start(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s, use{builtin: "stripe", url: s.URL(addr)}
}

// inject switches a fault on.
func inject(t *testing.T, s *sandbox.Server, f sandbox.Fault) {
	t.Helper()
	if err := s.Inject(f); err != nil {
		t.Fatal(err)
	}
}
