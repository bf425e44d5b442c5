package e2e

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// request is one request of the app, written by hand: nothing between the test and the socket repeats or rewrites it.
type request struct {
	method string // POST
	target string
	lines  []string // header lines; Host, Authorization and Content-Length are added where they are missing
	body   string
}

// charge is a charge as an app makes it.
func charge(key string, lines ...string) request {
	return request{
		target: "/v1/charges", body: "amount=4990&currency=eur&source=tok_visa",
		lines: append([]string{"Fence-Key: " + key, "Content-Type: application/x-www-form-urlencoded"}, lines...),
	}
}

func (r request) with(lines ...string) request {
	r.lines = append(append([]string{}, r.lines...), lines...)
	return r
}

func (r request) has(name string) bool {
	for _, l := range r.lines {
		if len(l) > len(name) && strings.EqualFold(l[:len(name)+1], name+":") {
			return true
		}
	}
	return false
}

// wire is the request's bytes.
func (r request) wire() []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "%s %s HTTP/1.1\r\n", or(r.method, "POST"), r.target)
	if !r.has("Host") {
		b.WriteString("Host: localhost\r\n")
	}
	if !r.has("Authorization") {
		b.WriteString("Authorization: Bearer " + secret + "\r\n")
	}
	for _, l := range r.lines {
		b.WriteString(l + "\r\n")
	}
	if !r.has("Content-Length") && !r.has("Transfer-Encoding") && r.method == "" {
		fmt.Fprintf(&b, "Content-Length: %d\r\n", len(r.body))
	}
	b.WriteString("Connection: close\r\n\r\n" + r.body)
	return b.Bytes()
}

// reply is what the app got: the bytes, and what they say.
type reply struct {
	err    error // the connection ended without a whole answer
	status int
	lines  []string // header lines as they came
	body   []byte
	took   time.Duration
}

func dial(addr string) (net.Conn, error) {
	network := "tcp"
	if strings.HasPrefix(addr, "/") {
		network = "unix"
	}
	c, err := net.DialTimeout(network, addr, 10*time.Second)
	if err == nil {
		c.SetDeadline(time.Now().Add(patience))
	}
	return c, err
}

// send sends a request on a connection of its own and reads the answer.
func send(addr string, r request) reply { return sendRaw(addr, r.wire()) }

func sendRaw(addr string, raw []byte) reply {
	began := time.Now()
	c, err := dial(addr)
	if err != nil {
		return reply{err: err}
	}
	defer c.Close()
	// A sidecar may refuse before it has read everything: the error of writing says less than the answer.
	_, werr := c.Write(raw)
	p := readReply(bufio.NewReader(c))
	if p.err != nil && werr != nil {
		p.err = fmt.Errorf("%w (write: %w)", p.err, werr)
	}
	p.took = time.Since(began)
	return p
}

// readReply reads one answer, keeping its header lines as they are.
func readReply(br *bufio.Reader) (p reply) {
	var head bytes.Buffer
	for {
		line, err := br.ReadString('\n')
		head.WriteString(line)
		if err != nil {
			return reply{err: fmt.Errorf("answer cut in its head: %w", err)}
		}
		if line = strings.TrimSuffix(line, "\r\n"); line == "" {
			break
		}
		p.lines = append(p.lines, line)
	}
	p.lines = p.lines[1:]
	resp, err := http.ReadResponse(bufio.NewReader(io.MultiReader(&head, br)), nil)
	if err != nil {
		return reply{err: err}
	}
	p.status = resp.StatusCode
	if p.body, err = io.ReadAll(resp.Body); err != nil {
		p.err = fmt.Errorf("answer cut in its body: %w", err)
	}
	return p
}

// values are a header's values, in order.
func (p reply) values(name string) (vs []string) {
	for _, l := range p.lines {
		if n, v, ok := strings.Cut(l, ":"); ok && strings.EqualFold(n, name) {
			vs = append(vs, strings.TrimPrefix(v, " "))
		}
	}
	return vs
}

func (p reply) header(name string) string {
	if vs := p.values(name); len(vs) > 0 {
		return vs[0]
	}
	return ""
}

// slug is the refusal's name; "" where the answer is none.
func (p reply) slug() string {
	if p.header("Content-Type") != "application/problem+json" {
		return ""
	}
	var v struct{ Type string }
	json.Unmarshal(p.body, &v)
	return v.Type[strings.LastIndexByte(v.Type, '/')+1:]
}

// id is the JSON member id of the answer.
func (p reply) id() string {
	var v struct{ ID string }
	json.Unmarshal(p.body, &v)
	return v.ID
}

func (p reply) String() string {
	if p.err != nil {
		return "no answer: " + p.err.Error()
	}
	return fmt.Sprintf("%d %s\n%s", p.status, strings.Join(p.lines, " | "), p.body)
}

// want fails the test unless the reply has a status and, for a refusal, a slug.
func (p reply) want(t *testing.T, status int, slug string) {
	t.Helper()
	if p.err != nil || p.status != status || p.slug() != slug {
		t.Errorf("want %d %q, got %s", status, slug, p)
	}
}

// wantResult fails the test unless the reply says this of the call and of the request.
func (p reply) wantResult(t *testing.T, outcome, result string) {
	t.Helper()
	if o, r := p.header("Fence-Outcome"), p.header("Fence-Result"); o != outcome || r != result {
		t.Errorf("want outcome %s, result %s; got %s", outcome, result, p)
	}
}

// definite reports whether the reply settles the matter for the app.
func (p reply) definite() bool {
	o := p.header("Fence-Outcome")
	return p.err == nil && p.slug() == "" && (o == "succeeded" || o == "declined")
}

// mayRepeat reports whether an app should go on asking.
func (p reply) mayRepeat() bool {
	switch p.slug() {
	case "in-flight", "in-doubt", "not-sent", "instance-lease-lost", "store-unavailable", "draining":
		return true
	}
	return p.err != nil || p.status >= 500
}

// insist repeats a request through the sidecars in turn, as a good app does, until the answer is definite.
func insist(t *testing.T, r request, gateway string, through ...*sidecar) reply {
	t.Helper()
	p, err := insistAt(r, addresses(gateway, through)...)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func addresses(gateway string, ss []*sidecar) (as []string) {
	for _, s := range ss {
		as = append(as, s.at(gateway))
	}
	return as
}

// insistAt is insist for goroutines of a test.
func insistAt(r request, addrs ...string) (reply, error) {
	for i, end := 0, time.Now().Add(patience); ; i++ {
		p := send(addrs[i%len(addrs)], r)
		switch {
		case p.definite():
			return p, nil
		case !p.mayRepeat():
			return p, fmt.Errorf("an answer that no repeat changes: %s", p)
		case time.Now().After(end):
			return p, fmt.Errorf("no definite answer in %s; the last one: %s", patience, p)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// later sends in the background.
func later(addr string, r request) <-chan reply {
	c := make(chan reply, 1)
	go func() { c <- send(addr, r) }()
	return c
}

// await takes a reply that must come.
func await(t *testing.T, c <-chan reply) reply {
	t.Helper()
	select {
	case p := <-c:
		return p
	case <-time.After(patience):
		t.Fatal("no reply came")
		return reply{}
	}
}
