package postgres

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io/fs"
	"net"
	"net/netip"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// inURL begins the name of what is wrong with the URL.
const inURL = "url"

const (
	wantURL = "postgres://user:password@host:5432/database, with every special character of the password percent-encoded " +
		"(@ is %40, / is %2F, : is %3A, ? is %3F, # is %23, % is %25), or host=… user=… password='…' dbname=…"
	wantFiles      = "files that can be read where it names some (sslrootcert, sslcert, sslkey, servicefile)"
	wantNoSettings = "no session settings: a transaction pooler does not keep them"
)

// parseURL reads the store's URL. No part of a malformed one is in an error, and none of pgx's text about it: a password with
// a special character in it may stand anywhere then, as a port, a database or the name of a parameter.
func parseURL(url string) (*pgxpool.Config, error) {
	unreadable := &SettingError{Setting: inURL, Want: wantURL}
	_, rest, isURL := strings.Cut(url, "://")
	isURL = isURL && (strings.HasPrefix(url, "postgres://") || strings.HasPrefix(url, "postgresql://"))
	if isURL && misplaced(rest) {
		return nil, unreadable
	}
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		if _, ok := errors.AsType[*fs.PathError](err); ok {
			return nil, &SettingError{Setting: inURL, Want: wantFiles}
		}
		return nil, unreadable
	}
	for name := range cfg.ConnConfig.RuntimeParams {
		switch {
		case name == "application_name":
		case isURL && plainWord(name):
			return nil, &SettingError{Setting: inURL + ": " + name, Want: wantNoSettings}
		case isURL:
			return nil, &SettingError{Setting: inURL, Want: wantNoSettings}
		default: // perhaps the end of a password with a space in it
			return nil, &SettingError{Setting: inURL, Want: wantURL + "; and " + wantNoSettings}
		}
	}
	if !plausible(&cfg.ConnConfig.Config) {
		return nil, unreadable
	}
	return cfg, nil
}

// misplaced reports an @ that does not end the password: one of the password's own, or behind a / or ? of it.
func misplaced(rest string) bool {
	if strings.Count(rest, "@") > 1 {
		return true
	}
	i := strings.IndexAny(rest, "@/?")
	return strings.Contains(rest, "@") && rest[i] != '@'
}

func plainWord(name string) bool {
	return name != "" && strings.Trim(name, "abcdefghijklmnopqrstuvwxyz_") == ""
}

// plausible refuses a user, database or host with what separates parts of a URL: it would be in the errors of the network and
// of the server.
func plausible(c *pgconn.Config) bool {
	hosts := []string{c.Host}
	for _, f := range c.Fallbacks {
		hosts = append(hosts, f.Host)
	}
	for _, h := range hosts {
		_, err := netip.ParseAddr(h)
		if strings.ContainsAny(h, "@=?#&; \t\r\n") || strings.Contains(h, ":") && err != nil {
			return false
		}
	}
	return !strings.ContainsAny(c.User, ":/=?&;[] ") && !strings.ContainsAny(c.Database, "@:=?&;")
}

// mistakenTLS reports a failure that waiting does not change: a certificate that is not trusted, or one side that wants TLS and
// another that does not.
func mistakenTLS(err error) bool {
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return true
	}
	if _, ok := errors.AsType[x509.UnknownAuthorityError](err); ok { // sslmode=verify-ca has a check of pgx's own
		return true
	}
	if _, ok := errors.AsType[x509.CertificateInvalidError](err); ok {
		return true
	}
	if _, ok := errors.AsType[x509.HostnameError](err); ok {
		return true
	}
	if _, ok := errors.AsType[tls.RecordHeaderError](err); ok { // no TLS at all
		return true
	}
	if e, ok := errors.AsType[*net.OpError](err); ok && e.Op == "remote error" { // an alert, as for a client's certificate
		return true
	}
	if e, ok := errors.AsType[*pgconn.PgError](err); ok {
		return strings.Contains(e.Message, "SSL required") // PgBouncer's, with the code of a broken protocol
	}
	e, ok := errors.AsType[*pgconn.ConnectError](err)
	return ok && strings.Contains(e.Error(), "server refused TLS connection") && !plainAllowed(e.Config)
}

// plainAllowed reports whether a refused TLS is followed by an attempt without (sslmode=prefer).
func plainAllowed(c *pgconn.Config) bool {
	plain := c.TLSConfig == nil
	for _, f := range c.Fallbacks {
		plain = plain || f.TLSConfig == nil
	}
	return plain
}
