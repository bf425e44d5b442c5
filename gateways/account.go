package gateways

import (
	"crypto/subtle"
	"encoding/base64"
	"fmt"
	"os"
	"strings"

	"github.com/fence-sidecar/fence-sidecar/claims"
)

// Unmapped is the account of a credential that no configured account has.
const Unmapped = "unmapped"

// Account is one account at a gateway. An app's credential belongs to it by a listed hash or by being equal to Credential.
type Account struct {
	Name string `yaml:"name"`
	// CredentialHash is AccountHash of the app's credential; CredentialHashes lists further ones (a key being rolled).
	CredentialHash   string   `yaml:"credentialHash"`
	CredentialHashes []string `yaml:"credentialHashes"`
	Credential       Secret   `yaml:"credential"`
	// LookupCredential is what lookups of this account use; read-only rights are enough.
	LookupCredential Secret `yaml:"lookupCredential"`
}

// Secret names where a secret is, never the secret: an environment variable or a file, one of them.
type Secret struct {
	Env  string `yaml:"env"`
	File string `yaml:"file"`
}

// IsZero reports whether no place is named.
func (s Secret) IsZero() bool { return s == Secret{} }

// Value reads the secret anew, so that a rotated file counts at once. One closing line break does not.
func (s Secret) Value() (string, error) {
	v := os.Getenv(s.Env)
	if s.File != "" {
		b, err := os.ReadFile(s.File)
		if err != nil {
			return "", fmt.Errorf("secret file %s: %w", s.File, err)
		}
		v = strings.TrimSuffix(strings.TrimSuffix(string(b), "\n"), "\r")
	}
	if v == "" {
		return "", fmt.Errorf("secret %s%s is empty", s.Env, s.File)
	}
	return v, nil
}

// bare takes the scheme off an Authorization value, so that one secret sent as Bearer and as Basic is one credential.
func bare(value string) string {
	scheme, rest, ok := strings.Cut(strings.TrimSpace(value), " ")
	rest = strings.TrimSpace(rest)
	switch {
	case !ok:
		return scheme
	case strings.EqualFold(scheme, "Basic"):
		b, err := base64.StdEncoding.DecodeString(rest)
		if err != nil {
			return rest
		}
		return strings.TrimSuffix(string(b), ":")
	}
	return rest
}

// account names the account of a request: the configured name, and the account header's value. print tells two unmapped
// credentials apart in the fingerprint, so that a repeat under another account's credential is not a resend.
func (g *Gateway) account(in Inbound, realm string) (name, print string, err error) {
	creds, others := values(in.Header, g.CredentialHeader), values(in.Header, g.AccountHeader)
	if len(creds) > 1 {
		return "", "", &BadRequest{Detail: "header " + g.CredentialHeader + " stands more than once"}
	}
	if len(others) > 1 {
		return "", "", &BadRequest{Detail: "header " + g.AccountHeader + " stands more than once"}
	}
	cred := ""
	if len(creds) == 1 {
		cred = bare(creds[0])
	}
	hash := AccountHash(realm, cred)
	name = g.accountOf(cred, hash)
	if name == "" {
		name, print = Unmapped, hash
	}
	if len(others) == 1 && others[0] != "" {
		name += "/" + others[0]
	}
	return name, print, nil
}

// accountOf looks at every account, whichever matches, in constant time.
func (g *Gateway) accountOf(cred, hash string) (name string) {
	if cred == "" {
		return ""
	}
	for _, a := range g.Accounts {
		hit := 0
		for _, h := range append([]string{a.CredentialHash}, a.CredentialHashes...) {
			hit |= subtle.ConstantTimeCompare([]byte(h), []byte(hash))
		}
		if !a.Credential.IsZero() {
			if v, err := a.Credential.Value(); err == nil {
				hit |= subtle.ConstantTimeCompare([]byte(v), []byte(cred))
			}
		}
		if hit == 1 && name == "" {
			name = a.Name
		}
	}
	return name
}

// LookupHeader returns the headers of a lookup for an account as Facts names it. false: no lookup credential serves it.
// The error says which secret could not be read.
func (g *Gateway) LookupHeader(account string) ([]claims.Field, bool, error) {
	name, other, _ := strings.Cut(account, "/")
	for _, a := range g.Accounts {
		if a.Name != name || a.LookupCredential.IsZero() {
			continue
		}
		v, err := a.LookupCredential.Value()
		if err != nil {
			return nil, false, fmt.Errorf("gateway %s: account %s: lookupCredential: %w", g.Name, a.Name, err)
		}
		if g.LookupScheme != "none" {
			v = g.LookupScheme + " " + v
		}
		header := []claims.Field{{Name: g.CredentialHeader, Value: v}}
		if other != "" {
			header = append(header, claims.Field{Name: g.AccountHeader, Value: other})
		}
		for _, h := range g.LookupHeaders {
			header = append(header, claims.Field(h))
		}
		return header, true, nil
	}
	return nil, false, nil
}

// values are all values of a header, by name without case.
func values(header []claims.Field, name string) (vs []string) {
	if name == "" {
		return nil
	}
	for _, f := range header {
		if strings.EqualFold(f.Name, name) {
			vs = append(vs, strings.TrimSpace(f.Value))
		}
	}
	return vs
}
