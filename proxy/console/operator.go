package console

import (
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
	"log/slog"
	"net/http"
	"strings"

	"github.com/fence-sidecar/fence-sidecar/claims"
)

// MinToken is the least length of an operator's token, in bytes: a shorter one could be guessed, and opens nothing.
const MinToken = 16

// Operator is somebody who may change calls. The audit trail names whose token a request carried, never whom it claims to be.
type Operator struct {
	Name string
	// Token reads the secret anew, so that a rotated one counts at once.
	Token func() (string, error)
}

// operator says whose token a request carries. Every operator's is compared, by hashes and in constant time, so that neither the
// token's length nor how much of it was right shows.
func (x *exchange) operator() (string, error) {
	if len(x.c.Operators) == 0 {
		return "", refusal(claims.NoOperators, "the configuration names no operators: nobody may change calls here")
	}
	given, has := bearer(x.r.Header)
	sum := sha256.Sum256([]byte(given))
	who, matches := "", 0
	for _, o := range x.c.Operators {
		token, err := o.Token()
		if err == nil && len(token) < MinToken {
			err = fmt.Errorf("it has less than %d bytes", MinToken)
		}
		if err != nil {
			x.c.Log.LogAttrs(x.r.Context(), slog.LevelWarn, "an operator's token cannot be used", slog.String("operator", o.Name), slog.Any("error", err))
		}
		want := sha256.Sum256([]byte(token))
		if subtle.ConstantTimeCompare(sum[:], want[:]) == 1 && err == nil && has {
			who, matches = o.Name, matches+1
		}
	}
	if matches > 1 {
		x.c.Log.LogAttrs(x.r.Context(), slog.LevelError, "several operators have the same token: it says of nobody who it is, and opens nothing")
	}
	if matches == 1 {
		return who, nil
	}
	x.c.Log.LogAttrs(x.r.Context(), slog.LevelWarn, "a change was refused: no operator's token", slog.String("path", x.r.URL.Path), slog.Bool("token", has))
	challenge := `Bearer realm="fence-sidecar"`
	if has {
		challenge += `, error="invalid_token"`
	}
	x.w.Header().Set("WWW-Authenticate", challenge)
	return "", refusal(claims.Unauthorized, "want Authorization: Bearer with an operator's token")
}

// bearer reads the one token of a request (RFC 6750 section 2.1).
func bearer(h http.Header) (string, bool) {
	values := h.Values("Authorization")
	if len(values) != 1 {
		return "", false
	}
	scheme, token, _ := strings.Cut(values[0], " ")
	token = strings.Trim(token, " ")
	return token, strings.EqualFold(scheme, "Bearer") && token != ""
}
