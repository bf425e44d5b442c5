package gateways

import (
	"context"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"net/url"
	"os"
	"slices"
	"strings"
	"unicode"

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
	// OAuth2 fetches the token that lookups use, and the calls where the sidecar supplies the credential. nil: none.
	OAuth2 *OAuth2 `yaml:"oauth2"`
	// WebhookSecrets verify the account's notices; several while one is being rolled.
	WebhookSecrets []Secret `yaml:"webhookSecrets"`
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

// party is the account that a request speaks for.
type party struct {
	name string // as Facts name it: the configured name, then the account headers' values
	// print tells two unmapped credentials apart in the fingerprint, so that a repeat under another account's credential is
	// not a resend. "" where the account is configured.
	print string
	hash  string // AccountHash of the credential; "" without one
	rest  string // what name has behind the configured name
}

// unmapped is the party as it would be if no account were configured.
func (p party) unmapped() party {
	return party{name: Unmapped + p.rest, print: p.hash, hash: p.hash, rest: p.rest}
}

// account finds the party of a request.
func (g *Gateway) account(in Inbound, realm string) (party, error) {
	cred, err := single(in.Header, g.CredentialHeader)
	if err != nil {
		return party{}, err
	}
	cred = bare(cred)
	var p party
	if p.rest, err = g.accountRest(in); err != nil {
		return party{}, err
	}
	if g.Rotating || g.Credentials == CredentialsSidecar {
		return g.named(p, cred, realm)
	}
	hash := AccountHash(realm, cred)
	name, unread := g.accountOf(cred, hash)
	switch {
	case name != "":
		p.name = name
	case unread != nil:
		return party{}, &Unavailable{Detail: "whose credential this is cannot be told: " + unread.Error()}
	default:
		p.name, p.print = Unmapped, hash
	}
	if cred != "" {
		p.hash = hash
	}
	p.name += p.rest
	return p, nil
}

// named is the party where the app's credential is no lasting name of its account: the only account that is configured, or the
// one whose hash or credential the app presented as a name.
func (g *Gateway) named(p party, cred, realm string) (party, error) {
	name := ""
	if len(g.Accounts) == 1 {
		name = g.Accounts[0].Name
	} else if !g.Rotating {
		var unread error
		if name, unread = g.accountOf(cred, AccountHash(realm, cred)); name == "" && unread != nil {
			return party{}, &Unavailable{Detail: "whose credential this is cannot be told: " + unread.Error()}
		}
	}
	if name == "" {
		return party{}, &BadRequest{Detail: "which account of the gateway is meant cannot be told: header " + g.CredentialHeader + " names none that is configured"}
	}
	print, err := g.accountPrint(realm, name)
	if err != nil {
		return party{}, &Unavailable{Detail: "whose credential is supplied cannot be told: " + err.Error()}
	}
	p.name, p.hash = name+p.rest, print
	return p, nil
}

// accountPrint is a hash of what lasts of the account's credential: of the secret that the sidecar supplies, or of the client that it
// fetches tokens for; of the account's name where the app brings tokens that change.
func (g *Gateway) accountPrint(realm, account string) (string, error) {
	i := slices.IndexFunc(g.Accounts, func(a Account) bool { return a.Name == account })
	switch {
	case i < 0 || g.Credentials != CredentialsSidecar:
		return AccountHash(realm, "account "+account), nil
	case !g.Accounts[i].Credential.IsZero():
		v, err := g.Accounts[i].Credential.Value()
		return AccountHash(realm, v), err
	}
	id, err := g.Accounts[i].OAuth2.ClientID.Value()
	return AccountHash(realm, "client "+id), err
}

// accountRest joins the values of the account headers, each escaped, so that LookupHeader can split them again.
func (g *Gateway) accountRest(in Inbound) (string, error) {
	var rest strings.Builder
	for _, h := range g.AccountHeaders {
		v, err := single(in.Header, h)
		if err != nil {
			return "", err
		}
		if strings.ContainsFunc(v, unicode.IsControl) {
			return "", &BadRequest{Detail: "header " + h + " has a control character"}
		}
		rest.WriteString("/" + url.PathEscape(v))
	}
	return strings.TrimRight(rest.String(), "/"), nil
}

// single is the value of a header that may stand once; "" without one.
func single(header []claims.Field, name string) (string, error) {
	switch vs := values(header, name); len(vs) {
	case 0:
		return "", nil
	case 1:
		return vs[0], nil
	}
	return "", &BadRequest{Detail: "header " + name + " stands more than once"}
}

// accountOf looks at every account, whichever matches, in constant time. The error names a secret that could not be read:
// without a match it may have been the one.
func (g *Gateway) accountOf(cred, hash string) (name string, unread error) {
	if cred == "" {
		return "", nil
	}
	for _, a := range g.Accounts {
		hit := 0
		for _, h := range append([]string{a.CredentialHash}, a.CredentialHashes...) {
			hit |= subtle.ConstantTimeCompare([]byte(h), []byte(hash))
		}
		if !a.Credential.IsZero() {
			v, err := a.Credential.Value()
			if err == nil {
				hit |= subtle.ConstantTimeCompare([]byte(v), []byte(cred))
			} else {
				unread = fmt.Errorf("account %s: credential: %w", a.Name, err)
			}
		}
		if hit == 1 && name == "" {
			name = a.Name
		}
	}
	return name, unread
}

// Owns reports whether an account, as Facts name it (what the account headers add does not count), is configured to have the
// credential with this AccountHash: listed, or equal to its Credential's. The error says which secret could not be read: it
// may have been the one.
func (g *Gateway) Owns(account, credential, realm string) (bool, error) {
	name, _, _ := strings.Cut(account, "/")
	hit, unread := 0, error(nil)
	for _, a := range g.Accounts {
		if a.Name != name || credential == "" {
			continue
		}
		hashes := append([]string{a.CredentialHash}, a.CredentialHashes...)
		if g.Rotating || g.Credentials == CredentialsSidecar {
			print, err := g.accountPrint(realm, name)
			if err != nil {
				unread = fmt.Errorf("gateway %s: account %s: %w", g.Name, a.Name, err)
			} else {
				hashes = append(hashes, print)
			}
		}
		if !a.Credential.IsZero() {
			v, err := a.Credential.Value()
			if err != nil {
				unread = fmt.Errorf("gateway %s: account %s: credential: %w", g.Name, a.Name, err)
			} else {
				hashes = append(hashes, AccountHash(realm, v))
			}
		}
		for _, h := range hashes {
			hit |= subtle.ConstantTimeCompare([]byte(h), []byte(credential))
		}
	}
	if hit == 1 {
		return true, nil
	}
	return false, unread
}

// LookupHeader returns the headers of a lookup for an account as Facts names it. false: no lookup credential serves it.
// The error says which secret could not be read, or why no token was given.
func (g *Gateway) LookupHeader(ctx context.Context, account string) ([]claims.Field, bool, error) {
	name, rest, _ := strings.Cut(account, "/")
	others, ok := g.accountFields(rest)
	if !ok {
		return nil, false, nil
	}
	for i := range g.Accounts {
		a := &g.Accounts[i]
		if a.Name != name || !a.looksUp() {
			continue
		}
		v, err := g.value(ctx, a, a.LookupCredential)
		if err != nil {
			return nil, false, fmt.Errorf("gateway %s: account %s: lookupCredential: %w", g.Name, a.Name, err)
		}
		header := append([]claims.Field{{Name: g.CredentialHeader, Value: v}}, others...)
		for _, h := range g.LookupHeaders {
			header = append(header, claims.Field(h))
		}
		return header, true, nil
	}
	return nil, false, nil
}

// LooksUp reports whether an account, as Facts name it, has a lookup credential.
func (g *Gateway) LooksUp(account string) bool {
	name, rest, _ := strings.Cut(account, "/")
	_, ok := g.accountFields(rest)
	return ok && slices.ContainsFunc(g.Accounts, func(a Account) bool { return a.Name == name && a.looksUp() })
}

func (a *Account) looksUp() bool { return !a.LookupCredential.IsZero() || a.OAuth2 != nil }

// value is the value of CredentialHeader that a secret, or the account's token, makes.
func (g *Gateway) value(ctx context.Context, a *Account, s Secret) (string, error) {
	if s.IsZero() && a.OAuth2 != nil {
		if g.Mint == nil {
			return "", errors.New("nothing here fetches tokens")
		}
		t, err := g.Mint(ctx, a)
		return "Bearer " + t, err
	}
	v, err := s.Value()
	if err == nil && g.LookupScheme != "none" {
		v = g.LookupScheme + " " + v
	}
	return v, err
}

// Supply returns the header lines that a request goes out with: the app's own, or where the sidecar supplies the credential,
// with the account's in place of what the app sent there. *BadRequest, *Unavailable: nothing may be sent.
func (g *Gateway) Supply(ctx context.Context, in Inbound, realm string) ([]claims.Field, error) {
	if g.Credentials != CredentialsSidecar {
		return in.Header, nil
	}
	p, err := g.account(in, realm)
	if err != nil {
		return nil, err
	}
	name, _, _ := strings.Cut(p.name, "/")
	for i := range g.Accounts {
		if a := &g.Accounts[i]; a.Name == name {
			v, err := g.value(ctx, a, a.Credential)
			if err != nil {
				return nil, &Unavailable{Detail: fmt.Sprintf("the credential of account %s is not there: %s", a.Name, err)}
			}
			return setHeader(in.Header, g.CredentialHeader, v), nil
		}
	}
	return nil, &BadRequest{Detail: "account " + name + " is not configured"}
}

// accountFields splits what accountRest joined; false: it was joined by other settings.
func (g *Gateway) accountFields(rest string) (fields []claims.Field, ok bool) {
	if rest == "" {
		return nil, true
	}
	parts := strings.Split(rest, "/")
	if len(parts) > len(g.AccountHeaders) {
		return nil, false
	}
	for i, part := range parts {
		v, err := url.PathUnescape(part)
		if err != nil || strings.ContainsFunc(v, unicode.IsControl) {
			return nil, false
		}
		if v != "" {
			fields = append(fields, claims.Field{Name: g.AccountHeaders[i], Value: v})
		}
	}
	return fields, true
}

// values are all values of a header, by name without case.
func values(header []claims.Field, name string) (vs []string) {
	if name == "" {
		return nil
	}
	for _, f := range header {
		if strings.EqualFold(f.Name, name) {
			vs = append(vs, strings.Trim(f.Value, " \t")) // RFC 9110, section 5.5; other spaces belong to a value
		}
	}
	return vs
}
