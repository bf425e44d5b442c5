package sandbox

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"time"
)

// answer is a complete answer before it meets the wire.
type answer struct {
	status int
	header []Line
	body   []byte
}

func answerJSON(status int, v any) answer {
	b, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		panic("sandbox: " + err.Error()) // only maps of plain values are marshalled
	}
	return answer{status: status, header: []Line{{"Content-Type", "application/json"}}, body: append(b, '\n')}
}

// answerError has Stripe's error shape.
func answerError(status int, kind, code, message string, extra ...any) answer {
	e := map[string]any{"type": kind, "message": message}
	if code != "" {
		e["code"] = code
	}
	for i := 0; i+1 < len(extra); i += 2 {
		e[extra[i].(string)] = extra[i+1]
	}
	return answerJSON(status, map[string]any{"error": e})
}

func (a answer) with(name, value string) answer {
	a.header = append(slices.Clone(a.header), Line{name, value})
	return a
}

// date fills the Date line in.
func (a *answer) date(now time.Time, fs active) {
	if f, ok := fs["date-skew"]; ok {
		now = now.Add(f.time())
	}
	a.header[0].Value = now.UTC().Format(http.TimeFormat)
	if fs.has("no-date") {
		a.header = a.header[1:]
	}
}

// dressed replaces an executed answer by what a fault makes of it.
func (a answer) dressed(fs active) answer {
	switch {
	case fs.has("empty"):
		a.status, a.body = 200, nil
	case fs.has("no-content"):
		a.status, a.body = 204, nil
	case fs.has("null"):
		a.status, a.body = 200, []byte("null")
	case fs.has("html"):
		a.status, a.body = 200, []byte("<!doctype html><title>maintenance</title>")
		a.header = []Line{{"Content-Type", "text/html"}}
	}
	if fs.has("gzip") {
		var b bytes.Buffer
		z := gzip.NewWriter(&b)
		z.Write(a.body)
		z.Close()
		a.body = b.Bytes()
		sum := sha256.Sum256(a.body)
		a = a.with("Content-Encoding", "gzip").with("Digest", "SHA-256="+base64.StdEncoding.EncodeToString(sum[:]))
	}
	if fs.has("cookies") {
		a = a.with("Set-Cookie", "a=1; Path=/").with("Set-Cookie", "b=2; Path=/").with("X-Note", "caf\xe9")
	}
	return a
}

// wire spells the answer; whole is false where a fault cuts it off.
func (a answer) wire(fs active, keep bool) (raw []byte, whole bool) {
	var b bytes.Buffer
	b.WriteString(statusLine(a.status))
	if fs.has("truncate-head") {
		b.WriteString("Content-Ty")
		return b.Bytes(), false
	}
	for _, l := range a.header {
		fmt.Fprintf(&b, "%s: %s\r\n", l.Name, l.Value)
	}
	half := a.body[:len(a.body)/2]
	switch {
	case fs.has("truncate-length"):
		fmt.Fprintf(&b, "Content-Length: %d\r\n\r\n%s", len(a.body), half)
		return b.Bytes(), false
	case fs.has("truncate-chunked"):
		fmt.Fprintf(&b, "Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n", len(half), half)
		return b.Bytes(), false
	case fs.has("close-framed"), fs.has("close-framed-whole"):
		if fs.has("close-framed-whole") {
			half = a.body
		}
		fmt.Fprintf(&b, "Connection: close\r\n\r\n%s", half)
		return b.Bytes(), false
	}
	if !keep {
		b.WriteString("Connection: close\r\n")
	}
	if a.status != 204 {
		fmt.Fprintf(&b, "Content-Length: %d\r\n", len(a.body))
	}
	b.WriteString("\r\n")
	b.Write(a.body)
	return b.Bytes(), true
}
