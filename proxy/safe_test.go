package proxy

import (
	"net/http"
	"testing"
)

// TestHandler_safeBody: a safe request's body passes as it came; one without a body gets none.
func TestHandler_safeBody(t *testing.T) {
	s := newStand(t, nil, Config{})
	s.do("GET", "/v1/charges/search", "query=a%20b")
	s.do("GET", "/v1/charges/search", "")
	sends := s.gw.Sends(http.MethodGet)
	if len(sends) != 2 || string(sends[0].Body) != "query=a%20b" {
		t.Fatalf("the gateway got %d requests, the first with %q", len(sends), sends[0].Body)
	}
	for _, l := range sends[1].Header {
		if http.CanonicalHeaderKey(l.Name) == "Content-Length" {
			t.Errorf("a request without a body went out with Content-Length %q", l.Value)
		}
	}
}
