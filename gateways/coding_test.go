package gateways

import (
	"bytes"
	"compress/flate"
	"compress/zlib"
	"io"
	"strings"
	"testing"

	"github.com/andybalholm/brotli"
	"github.com/fence-sidecar/fence-sidecar/claims"
	"github.com/klauspost/compress/zstd"
)

// coders write a body in each coding that is read.
func coders(t testing.TB) map[string]func(string) string {
	through := func(open func(io.Writer) (io.WriteCloser, error)) func(string) string {
		return func(s string) string {
			var b bytes.Buffer
			w, err := open(&b)
			if err != nil {
				t.Fatal(err)
			}
			io.WriteString(w, s)
			w.Close()
			return b.String()
		}
	}
	return map[string]func(string) string{
		"gzip":        zipped,
		"deflate":     through(func(w io.Writer) (io.WriteCloser, error) { return zlib.NewWriter(w), nil }),
		"Deflate ":    through(func(w io.Writer) (io.WriteCloser, error) { return flate.NewWriter(w, flate.BestSpeed) }),
		"br":          through(func(w io.Writer) (io.WriteCloser, error) { return brotli.NewWriterLevel(w, brotli.BestSpeed), nil }),
		"zstd":        through(func(w io.Writer) (io.WriteCloser, error) { return zstd.NewWriter(w) }),
		"identity,br": through(func(w io.Writer) (io.WriteCloser, error) { return brotli.NewWriterLevel(w, brotli.BestSpeed), nil }),
	}
}

func TestCodings(t *testing.T) {
	const ok = `{"id":"pi_1","object":"payment_intent","status":"succeeded"}`
	g := stripe(t)
	for coding, code := range coders(t) {
		whole := code(ok)
		if c := g.Classify("payment_intents_create", reply(200, whole, "Content-Encoding", coding)); c.Outcome != claims.Succeeded {
			t.Errorf("%s: %+v", coding, c)
		}
		if c := g.Classify("payment_intents_create", reply(200, whole[:len(whole)/2], "Content-Encoding", coding)); c.Outcome != claims.Unknown {
			t.Errorf("%s, cut: %+v", coding, c)
		}
		for _, other := range []string{"gzip", "br", "zstd"} {
			if raw, read := plainBody(reply(200, "{}", "Content-Encoding", other)); read {
				t.Errorf("%s read %q", other, raw)
			}
		}
		if coding != "identity,br" { // as br
			bounds(t, coding, code)
		}
		for _, two := range []string{"gzip, " + coding, "compress"} {
			if _, read := plainBody(reply(200, zipped(whole), "Content-Encoding", two)); read {
				t.Errorf("%s was read", two)
			}
		}
		// A lookup reads the same codings.
		s := &script{t: t, pages: []string{list(false, intent("pi_1", "REF", "succeeded", ""))}, date: later, mod: func(a *claims.Answer) {
			a.Body = []byte(code(string(a.Body)))
			a.Header = append(a.Header, claims.Field{Name: "Content-Encoding", Value: coding})
		}}
		if f, err := g.AskAt(t.Context(), facts("payment_intents_create"), begun, asked, s.ask); err != nil || f.Kind != claims.FoundDone {
			t.Errorf("%s: %+v %v", coding, f, err)
		}
	}
}

// bounds checks how far a body is let grow.
func bounds(t *testing.T, coding string, code func(string) string) {
	t.Helper()
	const limit = 64 << 10
	bomb := string(make([]byte, 20*limit))
	name := strings.ToLower(strings.TrimSpace(coding))
	if out, read := inflated(name, []byte(code(bomb)), limit); read || len(out) > limit+1 {
		t.Errorf("%s: grew to %d bytes", coding, len(out))
	}
	if out, read := inflated(name, []byte(code(bomb[:limit])), limit); !read || len(out) != limit {
		t.Errorf("%s: %d bytes, %v", coding, len(out), read)
	}
}

// TestInflatedLimit: the real limit, by the coding that packs zeros fastest.
func TestInflatedLimit(t *testing.T) {
	bomb := zipped(string(make([]byte, maxInflated+1)))
	if _, read := plainBody(reply(200, bomb, "Content-Encoding", "gzip")); read {
		t.Error("an answer over the limit was read")
	}
}

func FuzzCodings(f *testing.F) {
	for coding, code := range coders(f) {
		f.Add(coding, []byte(code(`{"a":1}`)))
	}
	f.Fuzz(func(t *testing.T, coding string, body []byte) {
		out, ok := plainBody(&claims.Answer{Body: body, Header: []claims.Field{{Name: "Content-Encoding", Value: coding}}})
		if ok && len(out) > max(maxInflated, len(body)) {
			t.Errorf("%d bytes", len(out))
		}
	})
}
