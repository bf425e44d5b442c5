package console

import (
	"errors"
	"log/slog"
	"net/http"
	"strings"
	"testing"

	"github.com/fence-sidecar/fence-sidecar/claims"
)

const lookAgain = `{"version":1,"word":"look-again","why":"w"}`

// Nothing is changed without the token of exactly one operator, and nothing of a token is told or logged.
func TestOperator_refused(t *testing.T) {
	var logged strings.Builder
	k := newKit(t, operated, func(c *Config) {
		c.Log = slog.New(slog.NewTextHandler(&logged, nil))
		c.Operators = append(c.Operators,
			Operator{"short", func() (string, error) { return "short-token", nil }},
			Operator{"broken", func() (string, error) { return "", errors.New("no such file") }},
			Operator{"twin", func() (string, error) { return "twin-token-0123456789", nil }},
			Operator{"other twin", func() (string, error) { return "twin-token-0123456789", nil }})
	})
	k.call("a", claims.StateReview)
	for name, lines := range map[string][]string{
		"none": nil, "wrong": {"Bearer ada-token-0123456788"}, "empty": {"Bearer "}, "longer": {"Bearer " + adaToken + "0"}, "cut": {"Bearer " + adaToken[:19]},
		"another case": {"Bearer " + strings.ToUpper(adaToken)}, "basic": {"Basic " + adaToken}, "bare": {adaToken}, "two": {"Bearer " + adaToken, "Bearer " + adaToken},
		"too short to count": {"Bearer short-token"}, "of nobody": {"Bearer"}, "of two": {"Bearer twin-token-0123456789"}, "name": {"Bearer ada"},
	} {
		for _, op := range []string{"resolve", "evidence"} {
			body := map[string]string{"resolve": lookAgain, "evidence": `{"id":"1","outcome":"succeeded"}`}[op]
			r := request("POST", "/v1/calls/"+op+"?key=a", "", body)
			r.Header["Authorization"] = lines
			got := k.do(r)
			if got.status != 401 || got.slug() != "unauthorized" || !strings.HasPrefix(got.header.Get("WWW-Authenticate"), "Bearer realm=") {
				t.Errorf("%s, %s: %d %q %s", op, name, got.status, got.header.Get("WWW-Authenticate"), got.raw)
			}
			for _, secret := range []string{adaToken, "ada-token", "short-token", "twin-token"} {
				if strings.Contains(string(got.raw)+logged.String()+got.header.Get("WWW-Authenticate"), secret) {
					t.Errorf("%s: the token is told", name)
				}
			}
		}
	}
	if r := k.record("a"); r.Version != 1 || r.State != claims.StateReview {
		t.Errorf("changed: %+v", r)
	}
	if n := metric(t, k.reg, `fence_calls_api_refusals_total{reason="unauthorized"}`); n != "26" {
		t.Errorf("%s refusals are counted, want 26", n)
	}
	if n := strings.Count(logged.String(), "a change was refused"); n != 26 {
		t.Errorf("%d are logged", n)
	}
	for _, why := range []string{`operator=short error="it has less than 16 bytes"`, `operator=broken error="no such file"`} {
		if !strings.Contains(logged.String(), why) {
			t.Errorf("not logged: %s", why)
		}
	}
	k.wants(k.tell("resolve", adaToken, lookAgain, "key", "a"), 200, "")
}

func TestOperator_none(t *testing.T) {
	k := newKit(t)
	k.call("a", claims.StateReview)
	for _, op := range []string{"resolve", "evidence"} {
		k.wants(k.tell(op, adaToken, lookAgain, "key", "a"), 403, "no-operators")
		k.wants(k.tell(op, "", lookAgain, "key", "a"), 403, "no-operators")
	}
	if r := k.record("a"); r.Version != 1 {
		t.Errorf("changed: %+v", r)
	}
}

// A token that was rotated counts at once, and the old one no more.
func TestOperator_rotated(t *testing.T) {
	token := adaToken
	k := newKit(t, func(c *Config) {
		c.Operators = []Operator{{"ada", func() (string, error) { return token, nil }}}
	})
	k.call("a", claims.StateReview)
	token = bobToken
	k.wants(k.tell("resolve", adaToken, lookAgain, "key", "a"), 401, "unauthorized")
	k.wants(k.tell("resolve", bobToken, lookAgain, "key", "a"), 200, "")
}

// A page in a browser changes nothing, whatever it knows.
func TestOperator_otherOrigin(t *testing.T) {
	k := newKit(t, operated)
	k.call("a", claims.StateReview)
	for header, value := range map[string]string{"Origin": "https://evil.example", "Sec-Fetch-Site": "cross-site"} {
		r := request(http.MethodPost, "/v1/calls/resolve?key=a", "", lookAgain)
		r.Header.Set("Authorization", "Bearer "+adaToken)
		r.Header.Set(header, value)
		k.wants(k.do(r), 403, "about:blank")
	}
}
