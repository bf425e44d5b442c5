package e2e

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/fence-sidecar/fence-sidecar/gateways/sandbox"
)

// ways are how an app can address a gateway.
var ways = []struct {
	name, listener string
	change         func(*request)
}{
	{"own port", "stripe", func(*request) {}},
	{"own port, any Host", "stripe", func(r *request) { r.lines = append(r.lines, "Host: payments.internal") }},
	{"prefix", "any gateway", func(r *request) { r.target = "/stripe" + r.target }},
	{"Host", "any gateway", func(r *request) { r.lines = append(r.lines, "Host: api.stripe.com") }},
	{"Host with port", "any gateway", func(r *request) { r.lines = append(r.lines, "Host: API.stripe.com:443") }},
	{"absolute form", "any gateway", func(r *request) { r.target = "http://api.stripe.com" + r.target }},
	{"socket, prefix", "socket", func(r *request) { r.target = "/stripe" + r.target }},
	{"socket, Host", "socket", func(r *request) { r.lines = append(r.lines, "Host: api.stripe.com") }},
}

// TestListen: however a gateway is addressed, it gets the same request, once; and it is the same call.
func TestListen(t *testing.T) {
	gateway, u := newSandbox(t, sandbox.Config{})
	w := newWorld(t, settings{gateway: []use{u}, socket: true})
	a := w.start("A")
	for i, way := range ways {
		t.Run(way.name, func(t *testing.T) {
			r := charge("charge:" + way.name)
			way.change(&r)
			send(a.at(way.listener), r).wantResult(t, "succeeded", "sent")
			sends := gateway.Sends("POST")
			if len(sends) != i+1 || sends[i].Target != "/v1/charges" {
				t.Fatalf("want %d sends to /v1/charges, got %+v", i+1, sends)
			}
			if host := sends[i].Header[0]; host.Name != "Host" || host.Value != "api.stripe.com" {
				t.Errorf("the gateway saw %v", host)
			}
			if slices.ContainsFunc(sends[i].Header, func(l sandbox.Line) bool { return strings.HasPrefix(l.Name, "Fence-") }) {
				t.Errorf("a header of the fence was passed on: %v", sends[i].Header)
			}
			read := request{method: "GET", target: "/v1/charges?limit=1"}
			way.change(&read)
			before := len(gateway.Sends("GET"))
			if p := send(a.at(way.listener), read); p.status != 200 || len(gateway.Sends("GET")) != before+1 {
				t.Errorf("a safe request did not pass once: %s", p)
			}
		})
	}
	t.Run("one call through all", func(t *testing.T) {
		before := len(gateway.Sends("POST"))
		for i, way := range ways {
			r := charge("charge:all")
			way.change(&r)
			p := send(a.at(way.listener), r)
			p.want(t, 200, "")
			if want := map[bool]string{true: "sent", false: "replayed"}[i == 0]; p.header("Fence-Result") != want {
				t.Errorf("%s: want %s, got %s", way.name, want, p)
			}
		}
		if n := len(gateway.Sends("POST")); n != before+1 {
			t.Errorf("%d sends of one call", n-before)
		}
	})
}

// TestListen_socket: a socket that a killed process left is taken over; one that is served is not.
func TestListen_socket(t *testing.T) {
	gateway, u := newSandbox(t, sandbox.Config{})
	w := newWorld(t, settings{gateway: []use{u}, socket: true})
	a := w.start("A")
	out, err := w.command("run", "--config", w.config).CombinedOutput()
	if err == nil || !strings.Contains(string(out), "listen.socket") || !strings.Contains(string(out), filepath.Join(w.dir, "s")) {
		t.Errorf("a second process on the socket: %v: %s", err, out)
	}
	a.kill()
	again := w.start("A again")
	r := charge("k")
	r.target = "/stripe/v1/charges"
	send(again.at("socket"), r).want(t, 200, "")
	if n := len(gateway.Sends("POST")); n != 1 {
		t.Errorf("%d sends", n)
	}
}
