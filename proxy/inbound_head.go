package proxy

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
)

// maxQueued bounds the heads that wait for their requests. net/http reads 4 KiB ahead, which has room for fewer.
const maxQueued = 512

// tracker finds the heads in the bytes of one connection. The same bytes give the same heads however they are split. It
// follows net/http's rules for where a head and a body end; where it cannot, it stops for good, and later requests have no
// head and are refused.
type tracker struct {
	maxHead int

	state   trackState
	buf     []byte // of the head under way
	line    int    // where buf's last line starts
	body    int64  // bytes of a body still to skip
	queue   []*Head
	stopped string // why it stopped; "" while it works
}

type trackState uint8

const (
	inHead trackState = iota
	inBody
	atEnd // nothing is followed any more
)

// feed takes the next bytes.
func (t *tracker) feed(b []byte) {
	for len(b) > 0 {
		switch t.state {
		case inHead:
			b = t.feedHead(b)
		case inBody:
			n := min(t.body, int64(len(b)))
			b = b[n:]
			if t.body -= n; t.body == 0 {
				t.state = inHead
			}
		default:
			return
		}
	}
}

// feedHead takes bytes up to the end of a line and returns the rest.
func (t *tracker) feedHead(b []byte) []byte {
	if len(t.buf) == 0 {
		// net/http forgives line ends that old clients send after a body. Where it does not, it ends the connection.
		if b = bytes.TrimLeft(b, "\r\n"); len(b) == 0 {
			return nil
		}
	}
	n := bytes.IndexByte(b, '\n') + 1
	whole := n > 0
	if !whole {
		n = len(b)
	}
	if len(t.buf)+n > t.maxHead {
		t.stop("a head is over the limit")
		return nil
	}
	t.buf = append(t.buf, b[:n]...)
	if whole {
		if len(chomp(t.buf[t.line:])) == 0 {
			t.endHead()
		} else {
			t.line = len(t.buf)
		}
	}
	return b[n:]
}

// endHead queues the head and decides what follows it.
func (t *tracker) endHead() {
	h, body := parseRequestHead(t.buf)
	t.buf, t.line = nil, 0
	if len(t.queue) >= maxQueued {
		t.stop("too many requests at once")
		return
	}
	t.queue = append(t.queue, h)
	switch {
	case h.HasTE:
		t.stop("a request with Transfer-Encoding came before")
	case body < 0:
		t.stop("a body's length cannot be read")
	case body > 0:
		t.state, t.body = inBody, body
	}
}

func (t *tracker) stop(why string) {
	t.state, t.stopped, t.buf, t.line = atEnd, why, nil, 0
}

// next takes the head of the next request.
func (t *tracker) next() (*Head, error) {
	if len(t.queue) == 0 {
		if t.stopped != "" {
			return nil, fmt.Errorf("%w: %s", ErrNoHead, t.stopped)
		}
		return nil, ErrNoHead
	}
	h := t.queue[0]
	t.queue[0] = nil
	if t.queue = t.queue[1:]; len(t.queue) == 0 {
		t.queue = nil
	}
	return h, nil
}

// parseRequestHead reads a head. body is the length of what follows it, -1 if that cannot be told.
func parseRequestHead(raw []byte) (h *Head, body int64) {
	h = &Head{}
	h.Line, h.Fields, h.Flaw = splitHead(raw)
	h.Method, h.Target, h.Proto = cutLine(h.Line)
	lengths := valuesOf(h.Fields, "Content-Length")
	h.HasCL, h.HasTE = len(lengths) > 0, hasField(h.Fields, "Transfer-Encoding")
	switch {
	case h.Proto != "HTTP/1.1" && h.Proto != "HTTP/1.0":
		h.Flaw = firstFlaw(h.Flaw, "not HTTP/1.0 or HTTP/1.1")
	case h.HasTE && h.HasCL:
		h.Flaw = firstFlaw(h.Flaw, "both Transfer-Encoding and Content-Length")
	case h.HasTE && h.Proto == "HTTP/1.0":
		h.Flaw = firstFlaw(h.Flaw, "Transfer-Encoding in HTTP/1.0")
	case len(lengths) > 1:
		h.Flaw = firstFlaw(h.Flaw, "more than one Content-Length")
	}
	if !h.HasCL {
		return h, 0
	}
	n, err := strconv.ParseUint(lengths[0], 10, 63)
	if err != nil {
		h.Flaw = firstFlaw(h.Flaw, "a Content-Length that is no number")
		return h, -1
	}
	return h, int64(n)
}

// cutLine cuts a request line at its first and its second space, as net/http does.
func cutLine(line string) (method, target, proto string) {
	method, rest, _ := strings.Cut(line, " ")
	target, proto, _ = strings.Cut(rest, " ")
	return method, target, proto
}
