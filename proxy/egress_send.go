package proxy

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/fence-sidecar/fence-sidecar/claims"
)

// Send passes out on at most once and reads the whole answer.
//
// The deadline of ctx covers DNS, connect, TLS, head and body; without one nothing is sent (ErrNoDeadline). When ctx ends,
// the socket is closed and unsent bytes are thrown away. gate is called on an established connection immediately before
// the first byte; its error means zero bytes (CauseGate). A nil gate agrees.
//
// An answer that came whole is returned whatever became of the rest of the request. Everything else is a Cause, and with
// Wrote the operation was perhaps carried out.
func (e *Egress) Send(ctx context.Context, out Outbound, gate func() error) (ex Exchange) {
	a := &attempt{e: e, out: &out, start: time.Now()}
	defer func() {
		a.end() // also when gate panics
		ex = a.ex
	}()
	if _, ok := ctx.Deadline(); !ok {
		a.fail(ctx, CauseRequest, ErrNoDeadline)
		return
	}
	if e.begin(ctx, a, gate) && a.readAnswerHead(ctx) {
		a.readAnswer(ctx)
	}
	return
}

// readAnswer reads the body and makes the answer.
func (a *attempt) readAnswer(ctx context.Context) {
	limit := a.e.limitOf(a.out)
	if a.resp.ContentLength > limit && !a.bodiless() {
		a.fail(ctx, CauseOversize, errors.New("the answer's length is over the limit"))
		return
	}
	var body bytes.Buffer
	if _, err := body.ReadFrom(&answerReader{a: a, limit: limit}); err != nil {
		a.failBody(ctx, err)
		return
	}
	kept := body.Bytes()
	if kept == nil {
		kept = []byte{} // empty, which is not the same as not kept
	}
	a.ex.Answer = &claims.Answer{
		Status: a.resp.StatusCode, Header: answerFields(a.fields, a.bodiless()), Body: kept,
	}
}

// Stream is Send for safe methods that are not fenced: the answer goes to the app as it comes, under the same rules. Until
// the answer's head is there, failures are returned as *SendError and nothing was written to w. Later ones end the app's
// connection by panic(http.ErrAbortHandler), so that half an answer never looks whole. The answer has no size limit but
// out.AnswerLimit; ctx needs no deadline.
func (e *Egress) Stream(ctx context.Context, out Outbound, w http.ResponseWriter) error {
	a := &attempt{e: e, out: &out, start: time.Now()}
	defer a.end() // also on a panic
	if !e.begin(ctx, a, nil) || !a.readAnswerHead(ctx) {
		a.end() // whether a byte was passed on is known once the writer has returned
		return &SendError{Cause: a.ex.Cause, Wrote: a.wrote.Load(), Err: a.ex.Err}
	}
	rc := http.NewResponseController(w)
	if end, ok := ctx.Deadline(); ok && rc.SetWriteDeadline(end) == nil { // an app that stops reading holds nothing
		defer rc.SetWriteDeadline(time.Time{})
	}
	h := w.Header()
	SetFields(h, answerFields(a.fields, a.bodiless()))
	if a.resp.ContentLength >= 0 && !a.bodiless() {
		h["Content-Length"] = []string{strconv.FormatInt(a.resp.ContentLength, 10)}
	}
	w.WriteHeader(a.resp.StatusCode)
	body := &answerReader{a: a, limit: out.AnswerLimit}
	if err := copyFlushed(w, rc, body); err != nil {
		panic(http.ErrAbortHandler)
	}
	return nil
}

// copyFlushed copies r to w and sends on what it has before it waits for more.
func copyFlushed(w io.Writer, rc *http.ResponseController, r io.Reader) error {
	buf := make([]byte, 16<<10)
	for {
		n, err := r.Read(buf)
		if n > 0 {
			if _, werr := w.Write(buf[:n]); werr != nil {
				return werr
			}
			if ferr := rc.Flush(); ferr != nil && !errors.Is(ferr, http.ErrNotSupported) {
				return ferr
			}
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// probeWait is how long a probe listens: a gateway with TLS 1.3 turns a client certificate down after the handshake.
const probeWait = time.Second

// Probe connects as a send does, with the proxy and the client certificate, listens a moment and closes. No byte of a request
// is passed. The error is a *SendError.
func (e *Egress) Probe(ctx context.Context) error {
	a := &attempt{e: e, out: &Outbound{Fresh: true}, start: time.Now()}
	defer a.end()
	if cause, err := e.connect(ctx, a); cause != "" {
		a.fail(ctx, cause, err)
		return &SendError{Cause: a.ex.Cause, Err: a.ex.Err}
	}
	if t, ok := a.c.top.(*tls.Conn); !ok || t.ConnectionState().Version < tls.VersionTLS13 {
		return nil // whatever could be turned down was
	}
	a.c.socket.SetReadDeadline(time.Now().Add(probeWait))
	_, err := a.c.top.Read(make([]byte, 1))
	if timeout, ok := errors.AsType[net.Error](err); err != nil && !(ok && timeout.Timeout()) {
		return &SendError{Cause: CauseTLS, Err: err}
	}
	return nil
}
