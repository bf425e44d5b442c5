package main

import (
	"log/slog"
	"strings"
	"testing"
)

func TestBadEventsConfigurations(t *testing.T) {
	const one = "secrets: [{env: A}]"
	for _, c := range []struct {
		name, events string
		want         []string // field, value, what is allowed
	}{
		{"secrets without a url", one, []string{"events.url", `""`, "where events are delivered"}},
		{"a bundle without a url", "caBundle: /ca.pem", []string{"events.url", `""`, "where events are delivered"}},
		{"plain text to elsewhere", "url: \"http://orders.example/x\", " + one, []string{"events.url", `"http://orders.example/x"`, "https, but for a loopback address"}},
		{"plain text to something like loopback", "url: \"http://127.0.0.1.example/x\", " + one, []string{"events.url", "https, but for"}},
		{"another scheme", "url: \"ftp://orders.example\", " + one, []string{"events.url", `"ftp://orders.example"`, "https://host"}},
		{"no host", "url: \"https:///x\", " + one, []string{"events.url", `"https:///x"`, "https://host"}},
		{"a fragment", "url: \"https://orders.example/#x\", " + one, []string{"events.url", "https://host"}},
		{"no URL at all", "url: \"://\", " + one, []string{"events.url", "cannot be parsed"}},
		{"a user", "url: \"https://me:hunter2@orders.example\", " + one, []string{"events.url", "a user in it is not allowed"}},
		{"no secret", "url: \"https://orders.example\"", []string{"events.secrets", `"0"`, "1 to 4"}},
		{"too many secrets", "url: \"https://orders.example\", secrets: [{env: A}, {env: B}, {env: C}, {env: D}, {env: E}]", []string{"events.secrets", `"5"`, "1 to 4"}},
		{"an empty secret", "url: \"https://orders.example\", secrets: [{env: A}, {}]", []string{"events.secrets[1]", `""`, "either env or file"}},
		{"a secret twice", "url: \"https://orders.example\", secrets: [{env: A, file: /b}]", []string{"events.secrets[0]", `"A /b"`, "not both"}},
		{"a bundle for plain text", "url: \"http://localhost:1\", caBundle: /ca.pem, " + one, []string{"events.caBundle", `"/ca.pem"`, "https"}},
		{"a secret itself", "url: \"https://orders.example\", secrets: [{value: whsec_hunter2}]", []string{"events.secrets[0].value", "no such field"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			file := write(t, okStore+okGateway+"events: {"+c.events+"}\n")
			_, err := loadConfig(file)
			if err == nil {
				t.Fatal("it was taken")
			}
			for _, want := range append([]string{file}, c.want...) {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q does not say %q", err, want)
				}
			}
			if strings.Contains(err.Error(), "\n") || strings.Contains(err.Error(), "hunter2") {
				t.Errorf("more than one line, or a secret: %q", err)
			}
		})
	}
	for _, url := range []string{"http://127.0.0.1:8080/x?y=z", "http://[::1]:8080", "http://localhost", "https://orders.example/x"} {
		if _, err := loadConfig(write(t, okStore+okGateway+"events: {url: \""+url+"\", "+one+"}\n")); err != nil {
			t.Error(err)
		}
	}
}

// A secret that cannot be used is named at the start, and not shown.
func TestEventsSecretsAreChecked(t *testing.T) {
	t.Setenv("WHSEC_GOOD", "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSwMfKQ9r8GKYo=")
	t.Setenv("WHSEC_BAD", "hunter2")
	c, err := loadConfig(write(t, okStore+okGateway+
		"events: {url: \"https://orders.example\", secrets: [{env: WHSEC_GOOD}, {env: WHSEC_BAD}, {file: /nowhere/secret}]}\n"))
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	c.Events.warn(slog.New(slog.NewTextHandler(&out, nil)))
	log := out.String()
	if strings.Count(log, "level=WARN") != 2 || !strings.Contains(log, "WHSEC_BAD") || !strings.Contains(log, "/nowhere/secret") || strings.Contains(log, "hunter2") {
		t.Errorf("log:\n%s", log)
	}
}
