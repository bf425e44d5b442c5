package proxy

import (
	"strings"
	"testing"
)

// TestExternalTokens: an application's own tokens are served only where the configuration says so.
func TestExternalTokens(t *testing.T) {
	off := newStand(t, nil, Config{})
	body := "amount=100&currency=eur&source=tok_visa"
	status, _, text := off.do("POST", "/v1/charges", body, HeaderKey, "a", HeaderExternal, "default:run#7")
	if status != 400 || !strings.Contains(text, "externalTokens") {
		t.Errorf("off: %d %s", status, text)
	}
	on := newStand(t, nil, Config{ExternalTokens: true})
	for _, tt := range []struct {
		key, token string
		status     int
		lease      string
	}{
		{"a", "default:run#7", 200, "external"},
		{"a", "default:run#9", 200, "external"}, // a replay raises the mark too
		{"a", "default:run#8", 409, "lost"},
		{"b", "default:run#8", 409, "lost"},
		{"b", "other:run#10", 409, ""},
		{"b", "default:run#9", 200, "external"},
	} {
		status, h, text := on.do("POST", "/v1/charges", body, HeaderKey, tt.key, HeaderExternal, tt.token)
		if status != tt.status || h.Get(HeaderLease) != tt.lease {
			t.Errorf("%s under %s: %d, lease %q, want %d, %q: %s", tt.key, tt.token, status, h.Get(HeaderLease), tt.status, tt.lease, text)
		}
	}
	if n := len(on.gw.Sends("POST")) + len(off.gw.Sends("POST")); n != 2 {
		t.Errorf("%d sends, want 2", n)
	}
	counted := 0.0
	families, err := on.reg.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "fence_calls_external_token_total" {
			counted = f.GetMetric()[0].GetCounter().GetValue()
		}
	}
	if counted != 5 {
		t.Errorf("%v calls under an external token were counted, want the 5 that reached the fence", counted)
	}
}
