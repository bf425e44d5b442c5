package proxy

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"net/textproto"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/fence-sidecar/fence-sidecar/claims"
)

// ErrBadRequest says that an Outbound cannot be written as exactly one HTTP/1.1 request. Nothing was dialled.
var ErrBadRequest = errors.New("not a request that can be sent")

// ErrHeadTooLong says that a head was longer than its limit.
var ErrHeadTooLong = errors.New("the head is over its limit")

// wireRequest is the head of out as it goes over the wire. The app's lines keep their order, case and bytes; the framing
// is ours: always a Content-Length, never a Transfer-Encoding or an Expect (RFC 9112 section 6). Anything that would
// make two requests out of one is refused with ErrBadRequest.
func wireRequest(base *url.URL, out *Outbound) ([]byte, error) {
	if err := checkLine(out); err != nil {
		return nil, err
	}
	host := out.Host
	if host == "" {
		host = base.Host
	}
	if i := badByte(host); i >= 0 {
		return nil, fmt.Errorf("%w: byte %#02x in the host", ErrBadRequest, host[i])
	}
	b := make([]byte, 0, 1024)
	b = append(b, out.Method...)
	b = append(b, ' ')
	if out.Target != "*" {
		b = append(b, strings.TrimSuffix(base.EscapedPath(), "/")...)
	}
	b = append(b, out.Target...)
	b = append(b, " HTTP/1.1\r\nHost: "...)
	b = append(b, host...)
	b = append(b, "\r\n"...)
	drop := hopByHop(out.Header)
	for _, f := range out.Header {
		if err := checkField(f); err != nil {
			return nil, err
		}
		if name := textproto.CanonicalMIMEHeaderKey(f.Name); drop[name] || framing[name] {
			continue
		}
		b = append(b, f.Name...)
		b = append(b, ": "...)
		b = append(b, f.Value...)
		b = append(b, "\r\n"...)
	}
	if n := int64(len(out.Body)) + out.RestLength; n > 0 || out.HadLength || wantsLength(out.Method) {
		b = append(b, "Content-Length: "...)
		b = strconv.AppendInt(b, n, 10)
		b = append(b, "\r\n"...)
	}
	return append(b, "\r\n"...), nil
}

// wantsLength names the methods whose empty body is said aloud: gateways answer 411 to a POST without a length.
func wantsLength(method string) bool {
	return method == http.MethodPost || method == http.MethodPut || method == http.MethodPatch
}

func checkLine(out *Outbound) error {
	if !isToken(out.Method) || out.Method == http.MethodConnect {
		return fmt.Errorf("%w: method %q", ErrBadRequest, out.Method)
	}
	if out.Target != "*" && !strings.HasPrefix(out.Target, "/") {
		return fmt.Errorf("%w: the target does not begin with a slash", ErrBadRequest)
	}
	if i := badByte(out.Target); i >= 0 {
		return fmt.Errorf("%w: byte %#02x in the target", ErrBadRequest, out.Target[i])
	}
	return nil
}

func checkField(f claims.Field) error {
	if !isToken(f.Name) {
		return fmt.Errorf("%w: header name %q", ErrBadRequest, f.Name)
	}
	if strings.ContainsAny(f.Value, "\r\n\x00") {
		return fmt.Errorf("%w: a line break or NUL in header %s", ErrBadRequest, f.Name)
	}
	return nil
}

// badByte is the index of the first space or control character of s, -1 if there is none. Bytes
// over 0x7f pass: the target is the app's, byte for byte.
func badByte(s string) int {
	for i := range len(s) {
		if c := s[i]; c <= ' ' || c == 0x7f {
			return i
		}
	}
	return -1
}

// isToken reports whether s is a token of RFC 9110 section 5.6.2.
func isToken(s string) bool {
	for i := range len(s) {
		c := s[i]
		if c|0x20 >= 'a' && c|0x20 <= 'z' || c >= '0' && c <= '9' || strings.IndexByte("!#$%&'*+-.^_`|~", c) >= 0 {
			continue
		}
		return false
	}
	return s != ""
}

// framing are the headers that whoever writes a message makes anew.
var framing = map[string]bool{"Content-Length": true, "Expect": true, "Host": true}

// hopByHop returns the canonical names of the headers that end at this connection (RFC 9110 section 7.6.1): the
// well-known ones and those that the Connection lines name.
func hopByHop(fields []claims.Field) map[string]bool {
	drop := map[string]bool{
		"Connection": true, "Keep-Alive": true, "Proxy-Connection": true, "Proxy-Authenticate": true,
		"Proxy-Authorization": true, "Proxy-Authentication-Info": true, "Te": true, "Trailer": true,
		"Transfer-Encoding": true, "Upgrade": true,
	}
	for _, f := range fields {
		if strings.EqualFold(f.Name, "Connection") || strings.EqualFold(f.Name, "Proxy-Connection") {
			for name := range strings.SplitSeq(f.Value, ",") {
				if name = strings.TrimSpace(name); name != "" {
					drop[textproto.CanonicalMIMEHeaderKey(name)] = true
				}
			}
		}
	}
	return drop
}

// answerFields are the lines of an answer that belong to the answer and not to the connection it came over.
// Content-Length stays only where there is no body to measure (HEAD, 304).
func answerFields(lines []claims.Field, bodiless bool) []claims.Field {
	drop := hopByHop(lines)
	drop["Content-Length"] = drop["Content-Length"] || !bodiless
	kept := make([]claims.Field, 0, len(lines))
	for _, f := range lines {
		if !drop[textproto.CanonicalMIMEHeaderKey(f.Name)] {
			kept = append(kept, f)
		}
	}
	return kept
}

// SetFields puts answer lines into h for an http.ResponseWriter: names in canonical form, so that the order within a
// name survives the map, values as they are. Content-Type and Date are not made up where the lines have none. A Fence-* line
// is left out: only the fence speaks for itself.
func SetFields(h http.Header, lines []claims.Field) {
	for _, f := range lines {
		name := textproto.CanonicalMIMEHeaderKey(f.Name)
		if strings.HasPrefix(name, "Fence-") {
			continue
		}
		h[name] = append(h[name], f.Value)
	}
	for _, name := range []string{"Content-Type", "Date"} {
		if _, ok := h[name]; !ok {
			h[name] = nil
		}
	}
}

// readHead reads a head with its blank line, byte for byte. The error is ErrHeadTooLong or the reader's: io.EOF where it
// ended before the first byte, io.ErrUnexpectedEOF later.
func readHead(br *bufio.Reader, limit int) ([]byte, error) {
	var head []byte
	for start := 0; ; {
		part, err := br.ReadSlice('\n')
		head = append(head, part...)
		switch {
		case len(head) > limit:
			return head, ErrHeadTooLong
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case err != nil:
			return head, eofInside(err, len(head) > 0)
		}
		if line := head[start:]; start > 0 && len(chomp(line)) == 0 {
			return head, nil
		}
		start = len(head)
	}
}

// chomp cuts the line end: LF, with one CR before it.
func chomp(line []byte) []byte {
	line = bytes.TrimSuffix(line, []byte("\n"))
	return bytes.TrimSuffix(line, []byte("\r"))
}

// splitHead cuts a head into its first line and its header lines. Continued lines (obs-fold, RFC 9112 section 5.2) are
// joined by a space. flaw says what is wrong with the block, "" if nothing is.
func splitHead(head []byte) (first string, fields []claims.Field, flaw string) {
	n := 0
	for line := range bytes.Lines(head) {
		line = chomp(line)
		n++
		switch {
		case n == 1:
			first = string(line)
		case len(line) == 0:
			return first, fields, flaw
		case line[0] == ' ' || line[0] == '\t':
			flaw = firstFlaw(flaw, "a folded header line")
			if len(fields) > 0 {
				last := &fields[len(fields)-1]
				last.Value = string(trimBlank([]byte(last.Value + " " + string(trimBlank(line)))))
			}
		default:
			name, value, ok := bytes.Cut(line, []byte(":"))
			if !ok {
				flaw = firstFlaw(flaw, "a header line without a colon")
			} else if !isToken(string(name)) {
				flaw = firstFlaw(flaw, "a header name that is no token")
			}
			fields = append(fields, claims.Field{Name: string(name), Value: string(trimBlank(value))})
		}
	}
	return first, fields, flaw
}

// firstFlaw keeps the first flaw.
func firstFlaw(have, next string) string {
	if have != "" {
		return have
	}
	return next
}

func trimBlank(b []byte) []byte { return bytes.Trim(b, " \t") }

// valuesOf returns the values of all lines of a name, in order.
func valuesOf(fields []claims.Field, name string) []string {
	var vs []string
	for _, f := range fields {
		if strings.EqualFold(f.Name, name) {
			vs = append(vs, f.Value)
		}
	}
	return vs
}

// hasField reports whether a line of the name is there.
func hasField(fields []claims.Field, name string) bool {
	return slices.ContainsFunc(fields, func(f claims.Field) bool { return strings.EqualFold(f.Name, name) })
}
