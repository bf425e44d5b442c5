package reconcile

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"syscall"

	"github.com/fence-sidecar/fence-sidecar/gateways/tunnel"
)

// What went wrong with a request, in words of our own. The text of net/http's errors may hold bytes of the answer, and the URL: a
// record, a log and the API must show neither.
var (
	errTimeout   = errors.New("no answer in time")
	errGivenUp   = errors.New("given up")
	errName      = errors.New("the host's name was not resolved")
	errRefused   = errors.New("the connection was refused")
	errDial      = errors.New("no connection could be made")
	errVerify    = errors.New("the certificate could not be verified")
	errTLS       = errors.New("TLS failed")
	errCut       = errors.New("the connection was cut")
	errMalformed = errors.New("the answer is malformed")
)

// plain says in fixed words what a client's error is.
func plain(err error) error {
	if e, ok := errors.AsType[*tunnel.Error](err); ok {
		return proxyFault(e)
	}
	switch {
	case errors.Is(err, context.Canceled):
		return errGivenUp
	case timedOut(err):
		return errTimeout
	case is[*net.DNSError](err):
		return errName
	case errors.Is(err, syscall.ECONNREFUSED):
		return errRefused
	case dialed(err):
		return errDial
	case unverified(err):
		return errVerify
	case is[tls.RecordHeaderError](err), is[tls.AlertError](err), errors.Is(err, http.ErrSchemeMismatch), remoteTLS(err):
		return errTLS
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), is[*net.OpError](err), errors.Is(err, net.ErrClosed):
		return errCut
	}
	return errMalformed
}

// proxyFault keeps of a proxy's answer its status alone.
func proxyFault(e *tunnel.Error) error {
	switch {
	case e.Status != 0:
		return fmt.Errorf("proxy %s opened no tunnel, status %d", e.Proxy, e.Status)
	case timedOut(e.Err):
		return fmt.Errorf("proxy %s opened no tunnel: %w", e.Proxy, errTimeout)
	case errors.Is(e.Err, syscall.ECONNREFUSED):
		return fmt.Errorf("proxy %s opened no tunnel: %w", e.Proxy, errRefused)
	}
	return fmt.Errorf("proxy %s opened no tunnel", e.Proxy)
}

func timedOut(err error) bool {
	e, ok := errors.AsType[net.Error](err)
	return errors.Is(err, context.DeadlineExceeded) || ok && e.Timeout()
}

func dialed(err error) bool {
	e, ok := errors.AsType[*net.OpError](err)
	return ok && e.Op == "dial"
}

// remoteTLS: the other side's alert comes as an error of no exported type, of an operation of its own.
func remoteTLS(err error) bool {
	e, ok := errors.AsType[*net.OpError](err)
	return ok && (e.Op == "remote error" || e.Op == "local error")
}

func unverified(err error) bool {
	return is[*tls.CertificateVerificationError](err) || is[x509.UnknownAuthorityError](err) || is[x509.HostnameError](err) ||
		is[x509.CertificateInvalidError](err)
}

func is[E error](err error) bool {
	_, ok := errors.AsType[E](err)
	return ok
}
