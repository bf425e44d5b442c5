package gateways

import (
	"bytes"
	"encoding/base64"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/fence-sidecar/fence-sidecar/gateways/tunnel/tunneltest"
)

// held is a certificate in two files, with what was warned of.
type held struct {
	t         *testing.T
	cert, key string
	c         *Certificate
	warned    []string
}

func hold(t *testing.T, client tunneltest.Client) *held {
	t.Helper()
	h := &held{t: t}
	h.cert, h.key = client.Write(t, t.TempDir())
	var err error
	if h.c, err = LoadCertificate(h.cert, h.key, func(err error) { h.warned = append(h.warned, err.Error()) }); err != nil {
		t.Fatal(err)
	}
	return h
}

// gives fails the test unless the certificate handed out is the client's.
func (h *held) gives(client tunneltest.Client, what string) {
	h.t.Helper()
	c, err := h.c.Get(nil)
	if err != nil {
		h.t.Fatal(err)
	}
	if !bytes.Contains(client.Cert, []byte(base64Of(c.Certificate[0])[:60])) {
		h.t.Errorf("%s: another certificate is in use", what)
	}
}

func (h *held) warnings(n int, about string) {
	h.t.Helper()
	if len(h.warned) != n || n > 0 && !strings.Contains(h.warned[n-1], about) {
		h.t.Errorf("%d warnings, want %d, the last about %q: %q", len(h.warned), n, about, h.warned)
	}
}

// A rotated certificate counts at the next handshake; one that cannot be used leaves the one of before in use.
func TestCertificateFollowsItsFiles(t *testing.T) {
	one, two, three := tunneltest.NewClient(t, "one", 24*time.Hour), tunneltest.NewClient(t, "two", 24*time.Hour), tunneltest.NewClient(t, "three", 24*time.Hour)
	h := hold(t, one)
	dir := filepath.Dir(h.cert)
	h.gives(one, "at first")
	put := func(path string, b []byte) {
		t.Helper()
		tmp := path + ".tmp" // a new file in its place, as rotations do
		if err := os.WriteFile(tmp, b, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(tmp, path); err != nil {
			t.Fatal(err)
		}
	}
	put(h.cert, two.Cert)
	for range 3 {
		h.gives(one, "half rotated")
	}
	h.warnings(1, "stays in use")
	put(h.key, two.Key)
	h.gives(two, "rotated")
	h.warnings(1, "stays in use")
	put(h.cert, []byte("no PEM"))
	for range 3 {
		h.gives(two, "broken")
	}
	h.warnings(2, "stays in use")
	if err := os.Remove(h.cert); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		h.gives(two, "gone")
	}
	h.warnings(3, "no such file")
	three.Write(t, dir)
	h.gives(three, "back")
	h.warnings(3, "no such file")
}

func TestCertificateOutOfTime(t *testing.T) {
	old := tunneltest.NewClient(t, "old", time.Minute) // it began an hour ago
	h := hold(t, old)
	for range 3 {
		h.gives(old, "expired")
	}
	h.warnings(1, "expired at")
}

func TestCertificateRefused(t *testing.T) {
	one, two := tunneltest.NewClient(t, "one", time.Hour), tunneltest.NewClient(t, "two", time.Hour)
	cert, _ := one.Write(t, t.TempDir())
	_, other := two.Write(t, t.TempDir())
	for what, files := range map[string][2]string{
		"no such file": {"/nonexistent/c.pem", other}, "does not match": {cert, other}, "rather than a key": {cert, cert},
	} {
		if _, err := LoadCertificate(files[0], files[1], nil); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%v: %v, want %q", files, err, what)
		}
	}
}

func TestEgressSettings(t *testing.T) {
	load := func(fields string) error {
		_, err := Load([]byte("name: acme\nroutes: [{name: pay, method: POST, path: /pay}]\n"+fields), "acme.yaml")
		return err
	}
	for fields, want := range map[string]string{
		"baseURL: https://h\nclientCert: /c.pem\n":                                                                     "clientKey",
		"baseURL: http://h\nclientCert: /c.pem\nclientKey: /k.pem\n":                                                   "clientCert",
		"baseURL: https://h\negressProxy: {url: 'socks5://h:1'}\n":                                                     "egressProxy.url",
		"baseURL: https://h\negressProxy: {url: 'http://corp:s3cret@h:1'}\n":                                           "egressProxy.url",
		"baseURL: https://h\negressProxy: {url: 'http://h:1/x'}\n":                                                     "egressProxy.url",
		"baseURL: https://h\negressProxy: {credential: {env: X}}\n":                                                    "egressProxy.url",
		"baseURL: https://h\negressProxy: {url: 'http://h:1', credential: {env: X, file: /x}}\n":                       "egressProxy.credential",
		"baseURL: https://h\negressProxy: {url: 'http://h:1', caBundle: /x}\n":                                         "egressProxy.caBundle",
		"baseURL: https://h\negressProxy: {url: 'http://h:1', credential: 's3cret'}\n":                                 "egressProxy.credential",
		"baseURL: https://h\nclientCert: /c.pem\nclientKey: /k.pem\negressProxy: {url: 'https://h:1', caBundle: /x}\n": "",
		"baseURL: http://h\negressProxy: {url: 'http://h:1', credential: {env: X}}\n":                                  "",
	} {
		err := load(fields)
		if (err == nil) != (want == "") || err != nil && (!strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "s3cret")) {
			t.Errorf("%s: %v, want %q", fields, err, want)
		}
	}
}

func base64Of(der []byte) string { return base64.StdEncoding.EncodeToString(der) }
