package gateways

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"io"
	"strings"

	"github.com/andybalholm/brotli"
	"github.com/fence-sidecar/fence-sidecar/claims"
	"github.com/klauspost/compress/zstd"
)

// maxInflated bounds what a compressed answer may grow to, in bytes.
const maxInflated = 16 << 20

// document decodes an answer's JSON, or its XML in the same form; false: it is neither, or in a coding that we do not read.
func (g *Gateway) document(a *claims.Answer) (any, bool) {
	raw, ok := plainBody(a)
	switch {
	case !ok:
		return nil, false
	case isXML(a):
		return decodeXML(raw)
	}
	return decode(bytes.TrimPrefix(raw, byteOrderMark))
}

// plainBody undoes an answer's content coding (RFC 9110, section 8.4.1), at most one; false: it cannot be read.
func plainBody(a *claims.Answer) ([]byte, bool) {
	var codings []string
	for _, v := range values(a.Header, "Content-Encoding") {
		for c := range strings.SplitSeq(v, ",") {
			if c = strings.ToLower(strings.TrimSpace(c)); c != "" && c != "identity" {
				codings = append(codings, c)
			}
		}
	}
	switch len(codings) {
	case 0:
		return a.Body, true
	case 1:
		return inflated(codings[0], a.Body, maxInflated)
	}
	return nil, false
}

// inflated undoes a coding, if what comes of it has at most limit bytes.
func inflated(coding string, body []byte, limit int64) ([]byte, bool) {
	switch coding {
	case "gzip", "x-gzip":
		z, err := gzip.NewReader(bytes.NewReader(body))
		if err != nil {
			return nil, false
		}
		return bounded(z, limit)
	case "deflate":
		// zlib by the letter; some servers send bare deflate.
		if z, err := zlib.NewReader(bytes.NewReader(body)); err == nil {
			if out, ok := bounded(z, limit); ok {
				return out, true
			}
		}
		return bounded(flate.NewReader(bytes.NewReader(body)), limit)
	case "br":
		return bounded(brotli.NewReader(bytes.NewReader(body)), limit)
	case "zstd":
		z, err := zstd.NewReader(bytes.NewReader(body), zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(maxInflated+1),
			zstd.WithDecoderMaxWindow(8<<20)) // RFC 9659
		if err != nil {
			return nil, false
		}
		defer z.Close()
		return bounded(z, limit)
	}
	return nil, false
}

func bounded(r io.Reader, limit int64) ([]byte, bool) {
	out, err := io.ReadAll(io.LimitReader(r, limit+1))
	return out, err == nil && int64(len(out)) <= limit
}
