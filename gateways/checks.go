package gateways

import (
	"fmt"
	"maps"
	"path"
	"regexp"
	"slices"
	"strings"
)

// Checks are requests that show what a gateway's sandbox keeps of G1 to G6. Texts in braces are filled in: {amount}, {currency},
// {unique} (new in each series of repeats), {object} (the gateway's id of what the charge made; in Empty and Advance) and what
// Vars, Setup and a Variation say. The key and our reference are stamped as for any call.
type Checks struct {
	// Live are patterns (RE2, whole value) of credentials that move real money; LiveHosts are the hosts where every one does, *
	// standing for any text.
	Live      []string `yaml:"live"`
	LiveHosts []string `yaml:"liveHosts"`
	// Header are lines of every request. The credential is added by CredentialHeader and LookupScheme.
	Header []HeaderValue `yaml:"header"`
	// Currency, Amount (the smallest that the sandbox takes, as its bodies spell it) and Other, another amount.
	Currency string `yaml:"currency"`
	Amount   string `yaml:"amount"`
	Other    string `yaml:"other"`
	// Vars are what samples name in braces, by name: a default, or "" for what the tester must supply.
	Vars map[string]string `yaml:"vars"`
	// Setup are requests made before each series of repeats, in order, to have something to charge. They are not repeated.
	Setup []*Sample `yaml:"setup"`
	// Charge is the request that is repeated.
	Charge *Sample `yaml:"charge"`
	// Endpoint is a request to another endpoint, sent under the charge's key.
	Endpoint *Sample `yaml:"endpoint"`
	// Declined makes the charge one that the sandbox declines, Failed one that it answers with a 5xx, Pending one whose outcome
	// comes later. nil: the sandbox has no way to.
	Declined *Variation `yaml:"declined"`
	Failed   *Variation `yaml:"failed"`
	Pending  *Variation `yaml:"pending"`
	// Empty is an operation that takes an empty body, on an object that Charge or its variation Held made; nil: none.
	Empty *Sample    `yaml:"empty"`
	Held  *Variation `yaml:"held"`
	// Advance moves a pending payment on in the sandbox (a scenario simulator); nil: it comes by itself.
	Advance *Sample `yaml:"advance"`
}

// Sample is one request.
type Sample struct {
	Method      string        `yaml:"method"` // default POST
	Target      string        `yaml:"target"`
	ContentType string        `yaml:"contentType"` // of a body; default application/json
	Header      []HeaderValue `yaml:"header"`
	Body        string        `yaml:"body"`
	// Save names what later samples use: a name → a JSON pointer into the answer.
	Save map[string]string `yaml:"save"`
}

// Variation changes a sample.
type Variation struct {
	Header []HeaderValue `yaml:"header"`
	// Vars replaces values, amount and currency among them.
	Vars map[string]string `yaml:"vars"`
}

// TextAt is the text, number, true or false that a JSON pointer (RFC 6901) finds in a body; "": there is none.
func TextAt(body []byte, pointer string) string {
	doc, ok := decode(body)
	if !ok {
		return ""
	}
	return text(doc, pointer)
}

// LiveHost reports whether every credential at a host moves real money; a port and the case do not count.
func (c *Checks) LiveHost(host string) bool {
	host = hostKey(host)
	return slices.ContainsFunc(c.LiveHosts, func(pattern string) bool {
		ok, err := path.Match(strings.ToLower(pattern), host)
		return ok && err == nil
	})
}

// LiveCredential reports whether a credential is one that moves real money, with or without a scheme and white space around it.
func (c *Checks) LiveCredential(credential string) bool {
	plain := strings.TrimSpace(credential)
	forms := append(strings.Fields(plain), credential, plain, bare(plain))
	return slices.ContainsFunc(c.Live, func(pattern string) bool {
		re, err := regexp.Compile(`(?s)^(?:` + pattern + `)$`)
		return err != nil || slices.ContainsFunc(forms, re.MatchString)
	})
}

func (g *Gateway) validateChecks(p *problems) {
	c := g.Checks
	if c == nil {
		return
	}
	for _, s := range c.Live {
		_, err := regexp.Compile(`^(?:` + s + `)$`)
		p.want(err == nil, "checks.live", s, "patterns (RE2)")
	}
	for _, s := range c.LiveHosts {
		_, err := path.Match(s, "")
		p.want(err == nil && hostPattern.MatchString(strings.ReplaceAll(s, "*", "x")), "checks.liveHosts", s, "host names, * for any text in them")
	}
	if c.Charge == nil {
		p.add("checks.charge", "", "the request that is repeated")
		return
	}
	known := map[string]bool{"amount": true, "currency": true, "unique": true}
	for name := range c.Vars {
		p.want(braces.MatchString("{"+name+"}"), "checks.vars", name, "names of letters, digits, - and _")
		known[name] = true
	}
	p.sampleHeaders("checks.header", c.Header, known)
	for i, s := range c.Setup {
		p.sample(fmt.Sprintf("checks.setup[%d]", i), s, known)
	}
	p.sample("checks.charge", c.Charge, known)
	p.sample("checks.endpoint", c.Endpoint, known)
	known["object"] = true
	p.sample("checks.empty", c.Empty, known)
	p.sample("checks.advance", c.Advance, known)
	for name, v := range map[string]*Variation{"declined": c.Declined, "failed": c.Failed, "pending": c.Pending, "held": c.Held} {
		if v == nil {
			continue
		}
		p.sampleHeaders("checks."+name+".header", v.Header, known)
		for _, k := range slices.Sorted(maps.Keys(v.Vars)) {
			_, own := c.Vars[k]
			p.want(own || k == "amount" || k == "currency", "checks."+name+".vars", k, "amount, currency and the names of vars")
		}
	}
}

// sample checks one request, and takes what it saves into the known names.
func (p *problems) sample(at string, s *Sample, known map[string]bool) {
	if s == nil {
		return
	}
	s.Method, s.ContentType = first(s.Method, "POST"), first(s.ContentType, "application/json")
	p.want(token.MatchString(s.Method) && s.Method == strings.ToUpper(s.Method), at+".method", s.Method, "a method in capitals")
	p.want(plainTarget(s.Target), at+".target", s.Target, "a path such as /v1/payments")
	p.sampleHeaders(at+".header", s.Header, known)
	p.named(at+".target", s.Target, known)
	p.named(at+".body", s.Body, known)
	for _, name := range slices.Sorted(maps.Keys(s.Save)) {
		p.want(braces.MatchString("{"+name+"}"), at+".save", name, "names of letters, digits, - and _")
		p.want(pointer.MatchString(s.Save[name]), at+".save."+plainName(name), s.Save[name], "a JSON pointer")
		known[name] = true
	}
}

func (p *problems) sampleHeaders(at string, hs []HeaderValue, known map[string]bool) {
	for _, h := range hs {
		p.want(token.MatchString(h.Name) && !strings.ContainsAny(h.Value, "\r\n"), at, h.Name, "a header's name and value")
		p.named(at, h.Value, known)
	}
}

// named checks that every name in braces is known.
func (p *problems) named(at, text string, known map[string]bool) {
	for _, m := range braces.FindAllString(text, -1) {
		p.want(known[m[1:len(m)-1]], at, m, "in braces: "+strings.Join(slices.Sorted(maps.Keys(known)), ", "))
	}
}

// Fill writes values where a sample's text names them in braces. escape makes a value fit the text (as a form's or a path's);
// names without a value stay as they are, and are returned.
func Fill(text string, values map[string]string, escape func(string) string) (filled string, missing []string) {
	filled = braces.ReplaceAllStringFunc(text, func(m string) string {
		v, ok := values[m[1:len(m)-1]]
		if !ok || v == "" {
			missing = append(missing, m[1:len(m)-1])
			return m
		}
		return escape(v)
	})
	return filled, missing
}
