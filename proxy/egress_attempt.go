package proxy

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/fence-sidecar/fence-sidecar/claims"
)

const (
	oneWrite   = 64 << 10              // bytes: up to here head and body leave in one Write
	writerWait = 50 * time.Millisecond // for a writer that is about to return, after an answer
	readGrace  = 2 * time.Second       // for an answer that came although the write failed
	slowGate   = 5 * time.Millisecond  // a gate slower than this has the socket's time limit set again
	noRoom     = 10 * time.Microsecond // time left that is none
)

// attempt is one send under way. It never outlives Send or Stream, and neither do its goroutines.
type attempt struct {
	e     *Egress
	out   *Outbound
	start time.Time
	ex    Exchange

	c     *conn
	stop  func() bool // of the timer that closes the socket
	ended bool        // the connection was given back or closed
	wrote atomic.Bool
	done  chan error // the writer's result

	resp   *http.Response
	fields []claims.Field // header lines of resp
	body   *bufio.Reader  // what resp.Body reads from
	clean  bool           // resp was read to its end, and its framing was beyond doubt
}

// begin connects, asks the gate and starts to write. false: a.ex says why not.
func (e *Egress) begin(ctx context.Context, a *attempt, gate func() error) bool {
	head, err := wireRequest(&e.base, a.out)
	if err != nil {
		return a.fail(ctx, CauseRequest, err)
	}
	if cause, err := e.connect(ctx, a); cause != "" {
		return a.fail(ctx, cause, err)
	}
	if err := a.limit(ctx); err != nil {
		return a.fail(ctx, CauseDial, err)
	}
	asked := time.Now()
	if gate != nil {
		if err := gate(); err != nil {
			a.ex.Cause, a.ex.Err = CauseGate, err
			return false
		}
	}
	if time.Since(asked) > slowGate {
		if err := a.limit(ctx); err != nil {
			return a.fail(ctx, CauseDial, err)
		}
	}
	if err := over(ctx); err != nil {
		return a.fail(ctx, CauseTimeout, err)
	}
	a.ex.Timings.Gated = time.Since(a.start)
	a.done = make(chan error, 1)
	go func() { a.done <- a.write(head) }()
	return true
}

// own ties the connection to the attempt: its timer closes the socket. A deadline on reads and writes alone would leave
// written bytes in the kernel, to be delivered when a broken path heals.
func (a *attempt) own(ctx context.Context, c *conn) {
	a.c = c
	a.stop = context.AfterFunc(ctx, c.close)
}

// limit sets how long the kernel tries to deliver: the attempt's remaining time.
func (a *attempt) limit(ctx context.Context) error {
	if err := over(ctx); err != nil {
		return err
	}
	var left time.Duration // none: the system's own time
	if end, ok := ctx.Deadline(); ok {
		left = max(time.Until(end), noRoom)
	}
	if err := limitDelivery(a.c.socket, left); err != nil {
		return fmt.Errorf("TCP_USER_TIMEOUT: %w", err)
	}
	return nil
}

// write passes the request on, once.
func (a *attempt) write(head []byte) error {
	if n := len(head) + len(a.out.Body); n <= oneWrite && a.out.Rest == nil {
		return a.pass(append(head, a.out.Body...))
	}
	if err := a.pass(head); err != nil {
		return err
	}
	if err := a.pass(a.out.Body); err != nil || a.out.Rest == nil {
		return err
	}
	return a.passRest()
}

// passRest passes on what is still to be read of the body. If that ends early the connection does, so that the gateway does not
// take the next bytes for the rest.
func (a *attempt) passRest() error {
	buf := make([]byte, oneWrite)
	for left := a.out.RestLength; left > 0; {
		n, err := a.out.Rest.Read(buf[:min(left, int64(len(buf)))])
		if n > 0 {
			if err := a.pass(buf[:n]); err != nil {
				return err
			}
			left -= int64(n)
		}
		if err != nil && left > 0 {
			a.c.close()
			return fmt.Errorf("the body ended early: %w", err)
		}
	}
	return nil
}

// pass is the one place where bytes of a request leave. They count as written before Write is called: whatever it
// returns, some may be on their way.
func (a *attempt) pass(b []byte) error {
	a.wrote.Store(true)
	_, err := a.c.top.Write(b)
	if err != nil {
		// The gateway may have answered and closed before it read everything; that answer is worth a moment.
		a.c.socket.SetReadDeadline(time.Now().Add(readGrace))
	}
	return err
}

// fail notes why the attempt has no answer. The attempt's own end explains every other error.
func (a *attempt) fail(ctx context.Context, cause string, err error) bool {
	if why := over(ctx); why != nil {
		cause = CauseTimeout
		if !errors.Is(err, why) {
			err = fmt.Errorf("%w: %w", why, err)
		}
	}
	a.ex.Cause, a.ex.Err = cause, err
	return false
}

// over says why ctx ended. A socket's own deadline, taken from ctx, can come an instant before ctx's.
func over(ctx context.Context) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if end, ok := ctx.Deadline(); ok && time.Until(end) < noRoom {
		return context.DeadlineExceeded
	}
	return nil
}

// failRead is fail for an error that came while reading: a failed write explains it better, and the kernel's own timer
// (ETIMEDOUT) is the attempt's.
func (a *attempt) failRead(ctx context.Context, cause string, err error) bool {
	if cause == CauseCut {
		a.c.close() // there is nothing more to read, so nothing more to write
		werr := <-a.done
		a.done <- werr
		if werr != nil {
			cause, err = CauseWrite, werr
		}
	}
	if errors.Is(err, syscall.ETIMEDOUT) {
		cause = CauseTimeout
	}
	if alerted(err) {
		cause = CauseTLS
	}
	return a.fail(ctx, cause, err)
}

// alerted reports whether the gateway ended the connection by a TLS alert. In TLS 1.3 that is how it turns a client certificate
// down, after our side of the handshake is done and the request may have been written: it proves nothing (RFC 8446, 4.4.2.4).
func alerted(err error) bool {
	op, ok := errors.AsType[*net.OpError](err)
	return ok && op.Op == "remote error"
}

// readAnswerHead reads up to the final answer's head.
func (a *attempt) readAnswerHead(ctx context.Context) bool {
	for range maxInformational + 1 {
		head, err := readHead(a.c.br, maxAnswerHead)
		switch {
		case errors.Is(err, ErrHeadTooLong):
			return a.failRead(ctx, CauseOversize, err)
		case err != nil:
			return a.failRead(ctx, CauseCut, err)
		}
		// The head is read twice: raw for its lines, and by net/http for what follows it.
		a.body = bufio.NewReader(io.MultiReader(bytes.NewReader(head), a.c.br))
		a.resp, err = http.ReadResponse(a.body, &http.Request{Method: a.out.Method})
		if err == nil && a.resp.ProtoMajor != 1 {
			err = fmt.Errorf("answer in %s", a.resp.Proto)
		}
		if err != nil {
			return a.failRead(ctx, CauseMalformed, err)
		}
		if a.resp.StatusCode == http.StatusSwitchingProtocols {
			return a.failRead(ctx, CauseUpgrade, errors.New("the gateway switched protocols"))
		}
		if a.resp.StatusCode >= 200 {
			_, a.fields, _ = splitHead(head)
			a.ex.Timings.Head = time.Since(a.start)
			return a.checkFraming(ctx)
		}
	}
	return a.failRead(ctx, CauseMalformed, errors.New("too many informational answers"))
}

// checkFraming refuses a body whose end nobody can tell from a cut.
func (a *attempt) checkFraming(ctx context.Context) bool {
	if a.closeFramed() && !a.out.AllowCloseFramed {
		return a.failRead(ctx, CauseCloseFramed, errors.New("the answer has no length"))
	}
	return true
}

func (a *attempt) closeFramed() bool {
	return a.resp.ContentLength < 0 && len(a.resp.TransferEncoding) == 0 && !a.bodiless()
}

// bodiless reports whether the answer has no body, whatever its head says (RFC 9112 section 6.3).
func (a *attempt) bodiless() bool {
	s := a.resp.StatusCode
	return a.out.Method == http.MethodHead || s == http.StatusNoContent || s == http.StatusNotModified
}

// answerReader reads the body and turns its errors into causes.
type answerReader struct {
	a     *attempt
	limit int64 // 0: none
	n     int64
}

func (r *answerReader) Read(b []byte) (int, error) {
	n, err := r.a.resp.Body.Read(b)
	r.n += int64(n)
	switch {
	case r.limit > 0 && r.n > r.limit:
		return n, &SendError{Cause: CauseOversize, Err: fmt.Errorf("the answer has more than %d bytes", r.limit)}
	case err == io.EOF:
		return n, r.a.bodyEnd()
	case err != nil:
		return n, &SendError{Cause: bodyCause(err), Err: err}
	}
	return n, nil
}

// bodyEnd judges the end of a body: io.EOF if it is one.
func (a *attempt) bodyEnd() error {
	if a.closeFramed() && a.c.cutShort() {
		return &SendError{Cause: CauseTruncated, Err: errors.New("the connection ended without a TLS close_notify")}
	}
	// Both framings at once is how answers are smuggled: the answer counts, the connection does not.
	twice := len(a.resp.TransferEncoding) > 0 && hasField(a.fields, "Content-Length")
	a.clean = !a.closeFramed() && !a.resp.Close && a.resp.ProtoAtLeast(1, 1) && !twice &&
		a.body.Buffered() == 0 && a.c.drained()
	return io.EOF
}

// bodyCause tells a cut from bytes that are no body.
func bodyCause(err error) string {
	if _, ok := errors.AsType[net.Error](err); ok || errors.Is(err, io.ErrUnexpectedEOF) {
		return CauseTruncated
	}
	return CauseMalformed
}

// failBody is fail for an error of answerReader.
func (a *attempt) failBody(ctx context.Context, err error) bool {
	cause := CauseTruncated
	if se, ok := errors.AsType[*SendError](err); ok {
		cause, err = se.Cause, se.Err
	}
	return a.fail(ctx, cause, err)
}

// end gives the connection back or closes it, and waits for the writer.
func (a *attempt) end() {
	defer func() {
		a.ex.Wrote = a.wrote.Load()
		a.ex.Timings.Total = time.Since(a.start)
	}()
	if a.c == nil || a.ended {
		return
	}
	a.ended = true
	keep := a.clean && a.written()
	if !a.stop() {
		keep = false // the timer ran: the socket is closed, or about to be
	}
	if keep {
		a.c.br.Reset(a.c.top)
		a.e.pool.put(a.c)
		return
	}
	a.c.close()
	if a.done != nil {
		<-a.done
	}
}

// written reports whether the whole request left without an error. An answer can come before its writer has returned.
func (a *attempt) written() bool {
	select {
	case err := <-a.done:
		a.done <- err
		return err == nil
	case <-time.After(writerWait):
		return false
	}
}

// eofInside makes the end of a stream inside something an error of its own.
func eofInside(err error, inside bool) error {
	if err == io.EOF && inside {
		return io.ErrUnexpectedEOF
	}
	return err
}
