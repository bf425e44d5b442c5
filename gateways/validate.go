package gateways

import (
	"fmt"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fence-sidecar/fence-sidecar/claims"
)

const (
	defaultSettle  = 10 * time.Minute
	defaultAttempt = 2 * time.Minute
	defaultLimit   = 1 << 20
	defaultUnknown = 504

	// shortest is the least that a time may be: below it, it is a slip of the unit.
	shortest = 10 * time.Millisecond
)

var (
	namePattern  = regexp.MustCompile(`^[a-z][a-z0-9_-]{0,62}$`)
	token        = regexp.MustCompile("^[A-Za-z0-9!#$%&'*+.^_`|~-]+$") // RFC 9110, section 5.6.2
	fieldPattern = regexp.MustCompile(`^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*$`)
	pointer      = regexp.MustCompile(`^(/([^~/]|~[01])+)*$`)
	statuses     = regexp.MustCompile(`^([1-5]xx|[1-5][0-9][0-9])$`)
	braces       = regexp.MustCompile(`\{[A-Za-z0-9_-]+\}`)
	hostPattern  = regexp.MustCompile(`^[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?$`)
	// cardData are words that no lookup parameter may be read from.
	cardData = regexp.MustCompile(`(?i)(^|[._-])(card|number|pan|cvc|cvv|iban|account_number|exp_month|exp_year|track)([._-]|$)`)
)

// problems collects the errors of a gateway, each with the field it is in.
type problems struct {
	gateway string
	err     error // the first
	all     []Problem
}

func (p *problems) add(path string, value any, allowed string) {
	err := wrong(path, value, allowed)
	if p.err == nil {
		p.err = fmt.Errorf("gateway %s: %w", first(p.gateway, "without a name"), err)
	}
	what, _, _ := strings.Cut(strings.TrimPrefix(err.Error(), first(path, "the file")+": "), "; allowed: ")
	p.all = append(p.all, Problem{Field: path, What: what, Remedy: "allowed: " + allowed})
}

func (p *problems) want(ok bool, path string, value any, allowed string) {
	if !ok {
		p.add(path, value, allowed)
	}
}

func (p *problems) oneOf(path string, value *string, fallback string, allowed ...string) {
	*value = first(*value, fallback)
	p.want(slices.Contains(allowed, *value), path, *value, strings.TrimPrefix(strings.Join(allowed, ", "), ", "))
}

// Validate fills the defaults and checks the gateway. The error is one line: field, value, what is allowed. It may be
// called again.
func (g *Gateway) Validate() error { return g.validate().err }

func (g *Gateway) validate() *problems {
	p := &problems{gateway: g.Name}
	p.want(namePattern.MatchString(g.Name), "name", g.Name, "lower-case letters, digits, - and _, a letter first, at most 63")
	g.validateAddress(p)
	p.oneOf("tokens", &g.Tokens, TokensOptional, TokensRequired, TokensOptional, TokensNone)
	p.oneOf("untagged", &g.Untagged, UntaggedRefuse, UntaggedRefuse, UntaggedPass)
	p.oneOf("family", &g.Family, "", "", FamilyA, FamilyB, FamilyC)
	g.SettleAfter, g.AttemptTimeout = first(g.SettleAfter, defaultSettle), first(g.AttemptTimeout, defaultAttempt)
	g.BodyLimit, g.AnswerLimit = first(g.BodyLimit, defaultLimit), first(g.AnswerLimit, defaultLimit)
	g.UnknownStatus = first(g.UnknownStatus, defaultUnknown)
	p.times("", g.KeyRetention, g.SettleAfter, g.AttemptTimeout, g.BodyLimit, g.AnswerLimit)
	p.want(g.UnknownStatus >= 400 && g.UnknownStatus <= 599, "unknownStatus", g.UnknownStatus, "400 to 599")
	if g.Replayed != nil {
		p.want(token.MatchString(g.Replayed.Name), "replayed.name", g.Replayed.Name, "a header name")
	}
	p.keyPlace("key", g.Key)
	p.refPlace("reference", g.Reference)
	p.callKey("callKey", g.CallKey)
	p.answers("answers", g.Answers)
	p.payment("payment", g.Payment)
	g.Title = first(g.Title, g.Name)
	g.validateGuarantees(p)
	g.validateWebhook(p)
	g.validateChecks(p)
	p.kept("keep", g.Keep)
	g.validateAccounts(p)
	for k := range g.Error.Members {
		p.want(!slices.Contains([]string{"type", "title", "status", "detail", "instance"}, k), "error.members", k, "names other than the problem's own (RFC 9457)")
	}
	p.headers("error.header", g.Error.Header)
	g.validateRoutes(p)
	return p
}

func (g *Gateway) validateAddress(p *problems) {
	u, err := url.Parse(g.BaseURL)
	ok := err == nil && (u.Scheme == "https" || u.Scheme == "http") && u.Hostname() != "" && u.User == nil &&
		(u.Path == "" || u.Path == "/") && u.RawQuery == "" && !u.ForceQuery && u.Fragment == ""
	p.want(ok, "baseURL", g.BaseURL, "https://host or https://host:port, without a path")
	if ok && u.Port() != "" {
		n, err := strconv.ParseUint(u.Port(), 10, 16)
		p.want(err == nil && n > 0, "baseURL", g.BaseURL, "a port of 1 to 65535")
	}
	for i, h := range g.Hosts {
		p.want(hostPattern.MatchString(h), fmt.Sprintf("hosts[%d]", i), h, "a host name without a port")
	}
	p.want((g.ClientCert == "") == (g.ClientKey == ""), "clientKey", g.ClientKey, "clientCert and clientKey together, or none")
	p.want(g.ClientCert == "" || !ok || u.Scheme == "https", "clientCert", g.ClientCert, "a baseURL with https, as only TLS asks for a certificate")
	p.egressProxy("egressProxy", g.EgressProxy)
}

func (p *problems) times(path string, retention, settle, attempt time.Duration, body, answer int64) {
	p.want(retention >= 0 && retention <= 10*365*24*time.Hour, path+"keyRetention", retention, "0s to 87600h")
	p.want(settle == 0 || settle >= shortest && settle <= 30*24*time.Hour, path+"settleAfter", settle, "0s to 720h; below 10ms only 0s, for the default")
	p.want(attempt == 0 || attempt >= shortest && attempt <= time.Hour, path+"attemptTimeout", attempt, "0s to 1h; below 10ms only 0s, for the default")
	p.want(body >= 0 && body <= 64<<20, path+"bodyLimit", body, "1 to 67108864 bytes")
	p.want(answer >= 0 && answer <= 64<<20, path+"answerLimit", answer, "1 to 67108864 bytes")
}

func (g *Gateway) validateAccounts(p *problems) {
	g.CredentialHeader = first(g.CredentialHeader, "Authorization")
	g.LookupScheme = first(g.LookupScheme, "Bearer")
	p.want(token.MatchString(g.CredentialHeader), "credentialHeader", g.CredentialHeader, "a header name")
	for i, h := range g.AccountHeaders {
		twice := slices.ContainsFunc(append([]string{g.CredentialHeader}, g.AccountHeaders[:i]...), func(o string) bool { return strings.EqualFold(o, h) })
		p.want(token.MatchString(h) && !twice, fmt.Sprintf("accountHeaders[%d]", i), h, "a header name of its own")
	}
	p.oneOf("credentials", &g.Credentials, CredentialsApp, CredentialsApp, CredentialsSidecar)
	p.want(!g.Rotating || len(g.Accounts) <= 1, "accounts", len(g.Accounts), "one account where rotating is true: a token that changes does not tell which; take the gateway into service once more, under another name, for another account")
	p.want(token.MatchString(g.LookupScheme), "lookupScheme", g.LookupScheme, "a scheme such as Bearer, or none")
	p.headers("lookupHeaders", g.LookupHeaders)
	seen := map[string]bool{Unmapped: true}
	owner := map[string]int{}
	for i, a := range g.Accounts {
		path := fmt.Sprintf("accounts[%d].", i)
		p.want(namePattern.MatchString(a.Name) && !seen[a.Name], path+"name", a.Name, "a name of its own: lower-case letters, digits, - and _; not unmapped")
		seen[a.Name] = true
		for _, h := range append([]string{a.CredentialHash}, a.CredentialHashes...) {
			p.want(h == "" || validHash(h), path+"credentialHash", h, "64 lower-case hexadecimal digits, as store account-hash prints them")
			o, listed := owner[h]
			p.want(h == "" || !listed || o == i, path+"credentialHash", h, "a hash that no other account lists")
			owner[h] = i
		}
		for _, o := range g.Accounts[:i] {
			p.want(a.Credential.IsZero() || o.Credential != a.Credential, path+"credential", "", "a secret that is no other account's")
		}
		p.want(a.Credential.Env == "" || a.Credential.File == "", path+"credential", "", "env or file, not both")
		p.want(a.LookupCredential.Env == "" || a.LookupCredential.File == "", path+"lookupCredential", "", "env or file, not both")
		for j, s := range a.WebhookSecrets {
			p.want((s.Env == "") != (s.File == ""), fmt.Sprintf("%swebhookSecrets[%d]", path, j), s.Env, "env or file, one of them")
		}
		p.oauth2(path+"oauth2", a.OAuth2)
		p.want(g.Credentials != CredentialsSidecar || !a.Credential.IsZero() || a.OAuth2 != nil, path+"credential", "", "a secret, or oauth2, where credentials is sidecar")
	}
}

func (p *problems) headers(path string, hs []HeaderValue) {
	for i, h := range hs {
		p.want(token.MatchString(h.Name), fmt.Sprintf("%s[%d].name", path, i), h.Name, "a header name")
		p.want(!strings.ContainsAny(h.Value, "\r\n\x00"), fmt.Sprintf("%s[%d].value", path, i), h.Value, "a text without line breaks")
	}
}

func (p *problems) keyPlace(path string, k *KeyPlace) {
	if k == nil {
		return
	}
	p.want((k.Header == "") != (k.Field == ""), path, k.Header+k.Field, "header or field, one of them")
	p.want(k.Header == "" || token.MatchString(k.Header), path+".header", k.Header, "a header name")
	p.want(k.Field == "" || fieldPattern.MatchString(k.Field), path+".field", k.Field, "a dotted field such as metadata.key")
	p.shape(path+".shape", &k.Shape, 64)
}

func (p *problems) refPlace(path string, r *RefPlace) {
	if r == nil {
		return
	}
	p.want(fieldPattern.MatchString(r.Field), path+".field", r.Field, "a dotted field such as metadata.fence_ref")
	p.want(!r.Owned || !r.Unique, path+".unique", r.Unique, "false where owned is true: the app's value is replaced")
	p.oneOf(path+".body", &r.Body, "", "", "form", "json")
	p.shape(path+".shape", &r.Shape, 32)
}

func (p *problems) shape(path string, s *Shape, length int) {
	s.Alphabet = first(s.Alphabet, "hex")
	full, ok := fullLength[s.Alphabet]
	p.want(ok, path+".alphabet", s.Alphabet, "hex, base32, base62, digits, uuid")
	s.Length = first(s.Length, min(full, max(length, minLength[s.Alphabet])))
	least := minLength[s.Alphabet]
	p.want(!ok || s.Length >= least, path+".length", s.Length, fmt.Sprintf("at least %d for alphabet %s (%d bits)", least, s.Alphabet, minBits))
}

// madeUp are UUIDs, which most SDKs draw anew for each request.
const madeUp = `[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}`

func (p *problems) callKey(path string, c *CallKey) {
	if c == nil {
		return
	}
	p.want((c.Header == "") != (c.Field == ""), path, c.Header+c.Field, "header or field, one of them")
	p.want(c.Header == "" || token.MatchString(c.Header), path+".header", c.Header, "a header name")
	p.want(c.Field == "" || fieldPattern.MatchString(c.Field), path+".field", c.Field, "a dotted field such as metadata.order")
	if len(c.Refuse) == 0 {
		c.Refuse = []string{madeUp}
	}
	c.refuse = nil
	for i, s := range c.Refuse {
		re, err := regexp.Compile(`^(?:` + s + `)$`)
		p.want(err == nil, fmt.Sprintf("%s.refuse[%d]", path, i), s, "a regular expression (RE2)")
		if err == nil {
			c.refuse = append(c.refuse, re)
		}
	}
}

func (p *problems) payment(path string, m *Payment) {
	if m == nil {
		return
	}
	p.want(pointer.MatchString(m.At), path+".at", m.At, "a JSON pointer such as /status")
	for k, v := range m.Values {
		p.want(paymentWord(v) && v != "", path+".values."+k, v, "pending, done, failed, reversed")
	}
}

func paymentWord(s string) bool {
	return slices.Contains([]string{"", "pending", "done", "failed", "reversed"}, s)
}

var outcomes = map[string]claims.Outcome{
	"succeeded": claims.Succeeded, "declined": claims.Declined, "not-executed": claims.NotExecuted, "unknown": claims.Unknown,
}

func (p *problems) answers(path string, rules []*AnswerRule) {
	for i, r := range rules {
		path := fmt.Sprintf("%s[%d]", path, i)
		if r == nil {
			p.add(path, "", "a rule")
			return
		}
		o, ok := outcomes[r.Outcome]
		r.outcome = o
		p.want(ok, path+".outcome", r.Outcome, "succeeded, declined, not-executed, unknown")
		p.want(len(r.Status) > 0, path+".status", "", "a list such as [402] or [2xx]")
		for _, s := range r.Status {
			p.want(statuses.MatchString(s), path+".status", s, "100 to 599, or 2xx, 4xx …")
			p.want(o != claims.Succeeded || strings.HasPrefix(s, "2"), path+".status", s, "200 to 299 for succeeded")
		}
		p.want(!r.InUse || o == claims.Unknown, path+".inUse", r.InUse, "false, or outcome unknown")
		p.want(!r.Transient || o == claims.Unknown && r.Stored != "yes", path+".transient", r.Transient, "false, or outcome unknown and not stored")
		p.want(r.Points == "" || pointer.MatchString(r.Points) && o == claims.Unknown, path+".points", r.Points, "a JSON pointer, with outcome unknown")
		p.want(r.Header == nil || r.Header.Name != "" && r.Header.Value != "", path+".header", "", "a name and a value")
		p.oneOf(path+".stored", &r.Stored, "", "", "yes", "no")
		p.want(paymentWord(r.Payment), path+".payment", r.Payment, "pending, done, failed, reversed")
		p.conditions(path+".when", r.When)
	}
}

func (p *problems) conditions(path string, cs []Condition) {
	for i, c := range cs {
		path := fmt.Sprintf("%s[%d]", path, i)
		p.want(pointer.MatchString(c.At), path+".at", c.At, "a JSON pointer such as /error/code")
		p.want(!c.Absent || len(c.In) == 0, path+".absent", c.Absent, "absent or in, not both")
	}
}
