package pgtest

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
)

// Codes of the first message, which has no type (PostgreSQL manual, "Message Formats").
const (
	cancelRequest = 80877102
	sslRequest    = 80877103
	gssRequest    = 80877104
)

// maxMessage bounds a message; the server's own limit is 1 GiB.
const maxMessage = 1 << 30

// link is one client's connection and ours to the server for it.
type link struct {
	proxy  *Proxy
	client net.Conn
	gone   chan struct{}

	// Guarded by the proxy's mutex.
	server  net.Conn
	ended   bool
	lost    bool   // bytes
	open    int    // ReadyForQuery messages that are still to come
	caught  *Catch // whose answer comes next
	replies []string

	statements, portals map[string]string // of the client's side only
}

// cut closes both sides. The proxy's mutex is held.
func (l *link) cut() {
	if l.ended {
		return
	}
	l.ended = true
	close(l.gone)
	l.client.Close() //nolint:errcheck // it is gone either way
	if l.server != nil {
		l.server.Close() //nolint:errcheck // it is gone either way
	}
	if l.caught != nil {
		l.caught.happened("")
	}
	delete(l.proxy.links, l)
	l.proxy.changed.Broadcast()
}

func (l *link) end() {
	l.proxy.mu.Lock()
	defer l.proxy.mu.Unlock()
	l.cut()
}

// serve carries one connection to its end.
func (l *link) serve() {
	defer l.end()
	in := bufio.NewReader(l.client)
	first, err := l.startup(in)
	if err != nil {
		return
	}
	cancel := binary.BigEndian.Uint32(first[4:]) == cancelRequest
	l.proxy.count(cancel)
	if !l.proxy.admit(l) {
		io.Copy(io.Discard, in) //nolint:errcheck // the black hole, until Heal cuts it
		return
	}
	server, err := l.proxy.dial()
	if err != nil {
		return
	}
	l.proxy.mu.Lock()
	l.server, l.open = server, 1
	ended := l.ended
	l.proxy.mu.Unlock()
	if ended {
		server.Close() //nolint:errcheck // cut while we dialled
		return
	}
	var back sync.WaitGroup
	defer back.Wait()
	back.Go(func() {
		defer l.end()
		l.backward(bufio.NewReader(server))
	})
	defer l.end()
	if _, err := server.Write(first); err != nil {
		return
	}
	if cancel {
		<-l.gone // the server closes when it has seen to it
		return
	}
	l.forward(in)
}

// startup reads the message that opens a connection, and refuses encryption.
func (l *link) startup(in io.Reader) ([]byte, error) {
	for {
		m := make([]byte, 8)
		if _, err := io.ReadFull(in, m); err != nil {
			return nil, err
		}
		switch binary.BigEndian.Uint32(m[4:]) {
		case sslRequest, gssRequest:
			if _, err := l.client.Write([]byte("N")); err != nil {
				return nil, err
			}
			continue
		}
		size := binary.BigEndian.Uint32(m)
		if size < 8 || size > 1<<20 {
			return nil, errors.New("not PostgreSQL's protocol")
		}
		m = append(m, make([]byte, size-8)...)
		_, err := io.ReadFull(in, m[8:])
		return m, err
	}
}

// message reads one: type, length and contents.
func message(in io.Reader) ([]byte, error) {
	var head [5]byte
	if _, err := io.ReadFull(in, head[:]); err != nil {
		return nil, err
	}
	size := binary.BigEndian.Uint32(head[1:])
	if size < 4 || size > maxMessage {
		return nil, errors.New("not PostgreSQL's protocol")
	}
	m := append(head[:], make([]byte, size-4)...)
	_, err := io.ReadFull(in, m[5:])
	return m, err
}

// forward carries the client's messages. Those of the extended protocol wait for the Sync or Flush behind them, before which the
// server need not answer.
func (l *link) forward(in io.Reader) {
	l.statements, l.portals = map[string]string{}, map[string]string{}
	var group []byte
	var statements []string
	for {
		m, err := message(in)
		if err != nil {
			return
		}
		if sql, ok := l.read(m); ok {
			statements = append(statements, sql)
		}
		group = append(group, m...)
		if strings.IndexByte("PBDEC", m[0]) >= 0 {
			continue
		}
		if !l.send(group, statements, m[0]) {
			return
		}
		group, statements = nil, nil
	}
}

// read follows the names of the extended protocol and gives the text that a message executes.
func (l *link) read(m []byte) (sql string, ok bool) {
	words := bytes.SplitN(m[5:], []byte{0}, 3)
	first := string(words[0])
	if len(words) < 2 {
		return "", false
	}
	switch m[0] {
	case 'Q':
		return first, true
	case 'P':
		l.statements[first] = string(words[1])
	case 'B':
		l.portals[first] = l.statements[string(words[1])]
	case 'E':
		return l.portals[first], true
	}
	return "", false
}

// send passes a group on, or does what was asked for it. False: the connection is over.
func (l *link) send(group []byte, statements []string, last byte) bool {
	p := l.proxy
	c := p.seen(statements)
	if c != nil && !l.idle() {
		c.happened("")
		return false
	}
	if c != nil && c.action == DropRequest {
		l.end()
		c.happened("")
		return false
	}
	if c != nil && c.action == HoldRequest {
		c.happened("")
		select {
		case <-c.release:
		case <-l.gone:
			return false
		}
	}
	if !p.admit(l) {
		p.mu.Lock()
		defer p.mu.Unlock()
		return !l.ended
	}
	p.mu.Lock()
	if last == 'Q' || last == 'S' || last == 'F' {
		l.open++
	}
	if c != nil && (c.action == DropAnswer || c.action == HoldAnswer) {
		l.caught = c
	}
	p.mu.Unlock()
	if _, err := l.server.Write(group); err != nil {
		return false
	}
	return c == nil || l.idle() // what the client sent behind it must not get through before the cut
}

// idle waits until all that was sent before is answered; false: the connection is over.
func (l *link) idle() bool {
	p := l.proxy
	p.mu.Lock()
	defer p.mu.Unlock()
	for l.open > 0 && !l.ended {
		p.changed.Wait()
	}
	return !l.ended
}

// backward carries the server's messages.
func (l *link) backward(in io.Reader) {
	var held []byte
	for {
		m, err := message(in)
		if err != nil {
			return
		}
		c, over := l.note(m)
		if c != nil {
			held = append(held, m...)
			if !over {
				continue
			}
			if !l.settle(c) {
				return
			}
			m, held = held, nil
		}
		if l.proxy.admit(l) {
			if _, err := l.client.Write(m); err != nil {
				return
			}
		}
		if over {
			l.passed()
		}
	}
}

// note gives the catch that a message belongs to, and whether the message ends an answer.
func (l *link) note(m []byte) (c *Catch, over bool) {
	l.proxy.mu.Lock()
	defer l.proxy.mu.Unlock()
	if l.caught != nil {
		switch m[0] {
		case 'C':
			l.replies = append(l.replies, string(bytes.TrimRight(m[5:], "\x00")))
		case 'E':
			l.replies = append(l.replies, errorText(m[5:]))
		}
	}
	return l.caught, m[0] == 'Z'
}

// passed counts an answer that the client has got, or the black hole.
func (l *link) passed() {
	l.proxy.mu.Lock()
	defer l.proxy.mu.Unlock()
	l.open--
	l.proxy.changed.Broadcast()
}

// settle does with a whole answer what was asked; false: the connection is over.
func (l *link) settle(c *Catch) bool {
	l.proxy.mu.Lock()
	text := strings.Join(l.replies, " ")
	l.caught, l.replies = nil, nil
	if c.action == DropAnswer {
		l.cut()
	}
	l.proxy.mu.Unlock()
	c.happened(text)
	if c.action == DropAnswer {
		return false
	}
	select {
	case <-c.release:
		return true
	case <-l.gone:
		return false
	}
}

// errorText is the message in an ErrorResponse.
func errorText(fields []byte) string {
	for f := range bytes.SplitSeq(fields, []byte{0}) {
		if len(f) > 0 && f[0] == 'M' {
			return string(f[1:])
		}
	}
	return "ERROR"
}
