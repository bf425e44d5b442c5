package proxy

import (
	"bytes"
	"context"
	"log"
	"log/slog"
)

// newErrorLog is an http.Server's ErrorLog. What net/http writes there can hold header lines and a panic's value, that is
// card data; only the kind of error is passed on.
func newErrorLog(to *slog.Logger) *log.Logger { return log.New(errorKinds{to}, "", 0) }

type errorKinds struct{ to *slog.Logger }

func (k errorKinds) Write(line []byte) (int, error) {
	kind := "other"
	for _, known := range []string{
		"http: panic serving", "http: Accept error", "http: superfluous response.WriteHeader", "http: TLS handshake error",
		"http: response.Write on hijacked connection", "http: response.WriteHeader on hijacked connection",
	} {
		if bytes.HasPrefix(line, []byte(known)) {
			kind = known
		}
	}
	k.to.LogAttrs(context.Background(), slog.LevelError, "http server error", slog.String("kind", kind))
	return len(line), nil
}
