package postgres

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/fence-sidecar/fence-sidecar/claims/postgres/pgtest"
)

// marker is the secret of the tests; no four bytes of it are part of another word.
const marker = "zQ7xKw9vJ2"

// malformed are URLs that somebody wrote with the password marker in them, for the server at %[1]s. %[2]s is marker.
var malformed = []string{
	"host=%[1]s port=x password = %[2]s", "jdbc:postgresql://%[1]s/db?user=u&password=%[2]s", "postgres://u:%[2]s/e?c#r@%[1]s/shop",
	"postgres://u:a/%[2]s@%[1]s/shop", "postgres://u:12/%[2]s@%[1]s/shop", "postgres://u:12/%[2]s?a=b@%[1]s/shop",
	"postgres://u:12/%[2]s?application_name=b@%[1]s/shop", "postgres://u:12?%[2]s=b@%[1]s/shop", "postgres://u:12?b=%[2]s@%[1]s/shop",
	"postgres://u:p@%[2]s@%[1]s/shop", "postgres://u:%[2]s@x@%[1]s/shop", "postgres://u:p@%[2]s/x@%[1]s/shop",
	"postgres://u:p@%[2]s,x@%[1]s/shop", "postgres://u:p@%[2]s?x=1@%[1]s/shop", "postgres://u:p:%[2]s/x@%[1]s/shop",
	"postgres://u:%%%[2]s@%[1]s/shop", "postgres://u:%[2]s%%@%[1]s/shop", "postgres://u:%[2]s", "postgres://u:%[2]s/db",
	"postgres://u/%[2]s@%[1]s/db", "postgres://u%%3A%[2]s@%[1]s/db", "postgres://u;%[2]s:x:@[%[1]s/db", "postgres://[%[2]s@%[1]s/db",
	"postgres:/u:%[2]s@%[1]s/db?sslmode=disable", "Postgres://u:%[2]s@%[1]s/db?sslmode=disable", "postgresql+pool://u:%[2]s@%[1]s/db",
	" postgres://u:%[2]s@%[1]s/db?sslmode=disable", "\"postgres://u:%[2]s@%[1]s/db?sslmode=disable\"", "%[2]s", "=%[2]s", "%[2]s=",
	"https://u:%[2]s@%[1]s/db?application_name=x", "postgres://u@%[1]s/db?Password=%[2]s", "postgres://u@%[1]s/db?passwort=%[2]s",
	"postgres://u@%[1]s/db?password=%[2]s&sslmode=bogus", "postgres://u@%[1]s/db?password=%[2]s&connect_timeout=x",
	"postgres://u@%[1]s/db?password=x&%[2]s", "postgres://u@%[1]s/db?password=x&%[2]s=y", "postgres://u@%[1]s/db?sslmode=%[2]s",
	"postgres://u@%[1]s/db?target_session_attrs=%[2]s", "postgres://u@%[1]s/db?pool_max_conns=%[2]s",
	"postgres://u@%[1]s/db?default_query_exec_mode=%[2]s", "postgres://u@%[1]s/db?service=%[2]s", "postgres://u@%[1]s/db?search_path=%[2]s",
	"postgres://u@%[1]s/db;password=%[2]s", "postgres://u@%[1]s/db&password=%[2]s", "postgres://%[1]s;password=%[2]s/db",
	"postgres://u:%[2]s\x00@%[1]s/db", "postgres://u@%[1]s/db?sslrootcert=/none/%[2]s&sslmode=verify-full",
	"postgres://u:x@%[1]s/db?sslcert=/none/%[2]s&sslkey=/none/%[2]s&sslmode=require",
	"host=h user=u password=a %[2]s", "host=h user=u password=a %[2]s=b", "host=h user=u password=a b=%[2]s", "host=h password='%[2]s",
	"host=h user=u password=it's %[2]s x=y", "host=u:%[2]s@h dbname=x", "host=h:5432:%[2]s", "host=h user=u&password=%[2]s",
	"host=h dbname=postgres://u:%[2]s@h/db", "host=h dbname=db?password=%[2]s", "host=h user=u;password=%[2]s",
	"Server=h;User Id=u;Password=%[2]s", "host=h,password=%[2]s", "host=h password:%[2]s", "user=u:%[2]s host=h",
}

// without fails if an error shows four bytes of the marker, in what it says or keeps for %+v.
func without(t *testing.T, url string, err error) {
	t.Helper()
	for _, text := range []string{err.Error(), fmt.Sprintf("%+v", err)} {
		for i := range len(marker) - 3 {
			if strings.Contains(strings.ToLower(text), strings.ToLower(marker[i:i+4])) {
				t.Errorf("%q: the error shows a part of the password: %s", url, text)
				return
			}
		}
		if strings.Contains(text, "\n") {
			t.Errorf("%q: more than a line: %q", url, text)
		}
	}
	if e, ok := errors.AsType[*pgconn.ParseConfigError](err); ok {
		t.Errorf("%q: the error carries %v", url, e)
	}
}

func TestMalformedURLsDoNotShowThePassword(t *testing.T) {
	for _, form := range malformed {
		url := fmt.Sprintf(form, "127.0.0.1:1", marker)
		url = strings.TrimSuffix(url, "%!(EXTRA string="+marker+")")
		_, err := Open(t.Context(), Config{URL: url})
		if e, ok := errors.AsType[*SettingError](err); !ok || !strings.HasPrefix(e.Setting, "url") || Unavailable(err) {
			t.Errorf("%q: open: %v, want a refusal of the URL", url, err)
		}
		_, again := Migrate(t.Context(), MigrateConfig{URL: url})
		if err == nil || again == nil {
			t.Errorf("%q: open: %v, migrate: %v", url, err, again)
			continue
		}
		without(t, url, err)
		without(t, url, again)
	}
}

func TestURLsThatAreRead(t *testing.T) {
	for url, password := range map[string]string{
		"postgres://u:p%40%2F%3F%25@a,b:5433/shop?application_name=x&sslmode=disable": "p@/?%",
		"postgresql://u:p#:p@[::1]:5433/shop":                                         "p#:p",
		"postgres://u%40azure@/shop?host=/run/postgresql&password=p%40":               "p@",
		"host=a port=5432 user=u password='p @=/' dbname=shop":                        "p @=/",
		"postgres:///shop": "",
	} {
		if cfg, err := connConfig(url); err != nil || cfg.ConnConfig.Password != password {
			t.Errorf("%s: %v", url, err)
		}
	}
}

// TestConnectionErrors: what waiting may change, and what not; none shows the password.
func TestConnectionErrors(t *testing.T) {
	plain := pgtest.New(t, pgtest.Options{})
	ok(t, plain.Exec(t.Context(), "create role u login password '"+marker+"x'"))
	ok(t, plain.Exec(t.Context(), "create database shop"))
	ok(t, hba(plain, "host all postgres 127.0.0.1/32 trust\nhost shop u 127.0.0.1/32 scram-sha-256\nhost other u 127.0.0.1/32 trust\n"))
	for _, c := range []struct {
		name, at, options string
		wait              bool
	}{
		{"wrong password", plain.Addr() + "/shop", "sslmode=disable", false},
		{"wrong password, TLS preferred", plain.Addr() + "/shop", "sslmode=prefer", false},
		{"no such database", plain.Addr() + "/other", "sslmode=disable", false},
		{"not in pg_hba.conf", plain.Addr() + "/postgres", "sslmode=disable", false},
		{"no TLS there", plain.Addr() + "/shop", "sslmode=require", false},
		{"refused", "127.0.0.1:1/shop", "sslmode=disable", true},
		{"refused, TLS", "127.0.0.1:1/shop", "sslmode=verify-full", true},
		{"unknown host", "no-such-host.invalid/shop", "sslmode=disable", true},
		{"not PostgreSQL", speak(t, 'X', nil, "") + "/shop", "sslmode=require", false},
		{"unknown authority", speak(t, 'S', certificate(t, "127.0.0.1"), "") + "/shop", "sslmode=verify-full&sslrootcert=system", false},
		{"starts up, no TLS", speak(t, 'N', nil, starting) + "/shop", "sslmode=prefer", true},
		{"goes down, no TLS", speak(t, 'N', nil, "") + "/shop", "sslmode=prefer", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			url := "postgres://u:" + marker + "@" + c.at + "?" + c.options
			_, err := Open(ctx, Config{URL: url, MayLose: true})
			if err == nil || Unavailable(err) != c.wait {
				t.Fatalf("unavailable is not %v: %v", c.wait, err)
			}
			without(t, url, errors.New(strings.ReplaceAll(err.Error(), "\n", " ")))
			if _, err = Migrate(ctx, MigrateConfig{URL: url}); err == nil {
				t.Fatal("migrated")
			}
			without(t, url, errors.New(strings.ReplaceAll(err.Error(), "\n", " ")))
		})
	}
}

// TestTLSMistakesInErrors: those that no server of these tests makes.
func TestTLSMistakesInErrors(t *testing.T) {
	for _, err := range []error{
		&tls.CertificateVerificationError{Err: x509.HostnameError{Host: "b", Certificate: &x509.Certificate{}}},
		x509.HostnameError{Host: "b", Certificate: &x509.Certificate{}}, x509.UnknownAuthorityError{},
		x509.CertificateInvalidError{Reason: x509.Expired}, tls.RecordHeaderError{Msg: "x"},
		&net.OpError{Op: "remote error", Err: errors.New("tls: bad certificate")},
		&pgconn.PgError{Code: "08P01", Message: "SSL required"},
	} {
		if Unavailable(fmt.Errorf("postgres store: %w", err)) {
			t.Errorf("%T %v is taken for what goes away by waiting", err, err)
		}
	}
	for _, err := range []error{&pgconn.PgError{Code: "08006"}, &net.OpError{Op: "dial", Err: errors.New("x")}, context.DeadlineExceeded} {
		if !Unavailable(fmt.Errorf("postgres store: %w", err)) {
			t.Errorf("%T %v is not taken for what goes away by waiting", err, err)
		}
	}
}

// starting is a server's message that it is.
const starting = "E\x00\x00\x00\x24SFATAL\x00VFATAL\x00C57P03\x00Mstarting\x00\x00"

// speak is the address of something that answers a request for TLS so, and a startup message in clear, and then hangs up.
func speak(t *testing.T, answer byte, cert *tls.Certificate, clear string) (addr string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	ok(t, err)
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				c.SetDeadline(time.Now().Add(time.Minute)) //nolint:errcheck // a test's
				head := make([]byte, 8)
				if _, err := io.ReadFull(c, head); err != nil {
					return
				}
				if head[6] == 0 { // a startup message
					io.WriteString(c, clear) //nolint:errcheck // a test's
					return
				}
				c.Write([]byte{answer}) //nolint:errcheck // a test's
				if cert != nil {
					tls.Server(c, &tls.Config{Certificates: []tls.Certificate{*cert}}).Handshake() //nolint:errcheck // it fails
				}
			}()
		}
	}()
	return l.Addr().String()
}

// certificate is one that nobody knows.
func certificate(t *testing.T, ip string) *tls.Certificate {
	t.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	ok(t, err)
	c := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "test"}, IPAddresses: []net.IP{net.ParseIP(ip)},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	der, err := x509.CreateCertificate(rand.Reader, c, c, k.Public(), k)
	ok(t, err)
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: k}
}
