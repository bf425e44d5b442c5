package gateways

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/fence-sidecar/fence-sidecar/claims"
)

const (
	defaultTolerance = 5 * time.Minute
	defaultRefuse    = 401
)

func (g *Gateway) validateWebhook(p *problems) {
	w := g.Webhook
	if w == nil {
		return
	}
	const at = "a JSON pointer such as /data/object/id"
	for _, f := range [][2]string{
		{"events", w.Events}, {"item", w.Item}, {"id", w.ID}, {"object", w.Object}, {"amount", w.Amount}, {"currency", w.Currency},
	} {
		p.want(pointer.MatchString(f[1]), "webhook."+f[0], f[1], at)
	}
	p.want(!w.Form || w.Events == "" && w.Item == "", "webhook.form", w.Form, "false where there are events or item: a form is one event")
	for i, v := range w.References {
		p.want(v != "" && pointer.MatchString(v), fmt.Sprintf("webhook.references[%d]", i), v, at)
	}
	p.want(len(w.References) > 0 || w.Object != "", "webhook.references", "", "references or object: what finds the call")
	w.Refuse = first(w.Refuse, defaultRefuse)
	p.want(w.Refuse >= 400 && w.Refuse <= 499, "webhook.refuse", w.Refuse, "400 to 499")
	p.want(len(w.Accept) <= 1000, "webhook.accept", len(w.Accept), "a text of at most 1000 bytes")
	if a := w.Answer; a != nil {
		a.Status, a.ContentType = first(a.Status, 200), first(a.ContentType, "application/json")
		p.want(pointer.MatchString(a.At), "webhook.answer.at", a.At, at)
		p.want(a.Status >= 200 && a.Status <= 299, "webhook.answer.status", a.Status, "200 to 299")
		p.want(!strings.ContainsAny(a.ContentType, "\r\n\x00"), "webhook.answer.contentType", a.ContentType, "a media type")
		p.want(!w.Form, "webhook.answer", "", "none where the notice is a form")
		p.want(w.Signature == nil || w.Signature.At == "", "webhook.answer", "", "none where an event carries its own signature, which does not cover it")
		p.want(a.Wrap == "", "webhook.answer.wrap", a.Wrap, "none: a notice's object stands as it is")
	}
	p.signature("webhook.signature", w.Signature)
	g.noticeCases(p)
}

func (g *Gateway) noticeCases(p *problems) {
	w := g.Webhook
	for i := range w.Cases {
		c := &w.Cases[i]
		path := fmt.Sprintf("webhook.cases[%d]", i)
		p.conditions(path+".when", c.When)
		for _, name := range c.Routes {
			known := slices.ContainsFunc(g.Routes, func(r *Route) bool { return r != nil && r.Name == name })
			p.want(known, path+".routes", name, "names of this gateway's routes")
		}
		for name := range c.Call {
			known := slices.ContainsFunc(c.Routes, func(route string) bool {
				r := g.route(route)
				return r != nil && r.Params[name] != ""
			})
			p.want(known, path+".call", name, "names of params of its routes")
		}
		o, ok := outcomes[first(c.Outcome, "unknown")]
		p.want(ok && c.Outcome != "unknown", path+".outcome", c.Outcome, "succeeded, declined, not-executed, or none")
		p.want(paymentWord(c.Payment), path+".payment", c.Payment, "pending, done, failed, reversed")
		p.want(c.Payment == "" || o == claims.Succeeded || o == claims.Unknown, path+".payment", c.Payment, "none where the call did not succeed")
	}
}

// uncovered says why what an event tells is not signed, so that it tells no outcome; "": it is.
func (w *Webhook) uncovered() string {
	s := w.Signature
	if s == nil {
		return "notices are not signed"
	}
	pieces, _ := pieces(s.Signed)
	if s.At == "" {
		if slices.ContainsFunc(pieces, func(c piece) bool { return c.kind == "body" || c.kind == "crc32" }) {
			return ""
		}
		return "the signature does not cover the body"
	}
	read := slices.Concat(w.References, []string{w.Object, w.Amount, w.Currency})
	for _, c := range w.Cases {
		for _, when := range c.When {
			read = append(read, when.At)
		}
	}
	for _, at := range read {
		if at != "" && !slices.Contains(pieces, piece{"pointer", at}) {
			return "the signature does not cover " + at
		}
	}
	return ""
}

func (p *problems) signature(path string, s *Signature) {
	if s == nil {
		return
	}
	p.oneOf(path+".scheme", &s.Scheme, SchemeHMAC, SchemeHMAC, SchemeCertificate)
	p.oneOf(path+".hash", &s.Hash, "sha256", "sha256", "sha512")
	p.oneOf(path+".encoding", &s.Encoding, "hex", "hex", "base64")
	p.oneOf(path+".secret", &s.Secret, "raw", "raw", "hex", "base64", "whsec")
	s.Signed, s.Tolerance = first(s.Signed, "{body}"), first(s.Tolerance, defaultTolerance)
	p.want((s.Header == "") != (s.At == ""), path, s.Header+s.At, "header or at, one of them")
	for _, f := range [][2]string{{"header", s.Header}, {"timestampHeader", s.TimestampHeader}, {"certHeader", s.CertHeader}} {
		name, h := f[0], f[1]
		p.want(h == "" || token.MatchString(h), path+"."+name, h, "a header name")
	}
	p.want(pointer.MatchString(s.At), path+".at", s.At, "a JSON pointer such as /additionalData/hmacSignature")
	p.want(s.At == "" || s.Part+s.Separator+s.TimestampPart == "", path+".part", s.Part, "no part, separator or timestampPart with at")
	p.want(s.Tolerance >= time.Second && s.Tolerance <= 168*time.Hour, path+".tolerance", s.Tolerance, "1s to 168h")
	p.signedTemplate(path, s)
	p.signedTimes(path, s)
	cert := s.Scheme == SchemeCertificate
	p.want(!cert || s.Header != "", path+".header", s.Header, "a header name with scheme certificate")
	p.want(cert == (s.CertHeader != ""), path+".certHeader", s.CertHeader, "a header name with scheme certificate, else none")
	p.want(cert == (len(s.CertHosts) > 0), path+".certHosts", len(s.CertHosts), "hosts with scheme certificate, else none")
	for i, h := range s.CertHosts {
		p.want(certHost.MatchString(h), fmt.Sprintf("%s.certHosts[%d]", path, i), h, "a host name in lower case; with a port only where it is not 443")
	}
}

// signedTemplate checks what the signature is over.
func (p *problems) signedTemplate(path string, s *Signature) {
	const allowed = "{body}, {timestamp}, {url}, {header:Name}, {query:name}, {query-lower:name}, {crc32}, {webhook-id}, {/pointer}"
	ps, ok := pieces(s.Signed)
	p.want(ok, path+".signed", s.Signed, allowed)
	values := 0
	for i, c := range ps {
		switch c.kind {
		case "":
			p.want(s.At == "" || c.arg == ":", path+".signed", c.arg, "a colon between two values, where at is set: nothing else is escaped in them")
			continue
		case "pointer":
			p.want(s.At != "" && pointer.MatchString(c.arg), path+".signed", c.arg, "a JSON pointer in braces, with at")
			p.want(i == 0 || ps[i-1].kind == "", path+".signed", c.arg, "a text between two values: else nobody can tell where one ends")
		case "webhook-id":
			p.want(s.Scheme == SchemeCertificate, path+".signed", s.Signed, "{webhook-id} with scheme certificate")
		case "header":
			p.want(token.MatchString(c.arg), path+".signed", c.arg, "a header name behind {header:")
		}
		p.want(s.At == "" || c.kind == "pointer", path+".signed", c.kind, "pointers in braces only, where at is set")
		values++
	}
	p.want(!ok || values > 0, path+".signed", s.Signed, allowed)
	p.want(s.Scheme != SchemeCertificate || slices.Contains(ps, piece{"webhook-id", ""}), path+".signed", s.Signed,
		"a text with {webhook-id}, as the certificate signs everybody's notices")
}

// signedTimes checks that the time of signing is signed too: else whoever repeats an old notice writes a new time beside it.
func (p *problems) signedTimes(path string, s *Signature) {
	ps, _ := pieces(s.Signed)
	timed := s.TimestampHeader != "" || s.TimestampPart != ""
	p.want(s.TimestampHeader == "" || s.TimestampPart == "", path+".timestampPart", s.TimestampPart, "timestampHeader or timestampPart, not both")
	in := slices.ContainsFunc(ps, func(c piece) bool {
		return c.kind == "timestamp" || c.kind == "header" && strings.EqualFold(c.arg, s.TimestampHeader)
	})
	p.want(!timed || in, path+".signed", s.Signed, "a text with {timestamp}, as an unsigned time proves nothing")
	p.want(timed || !slices.Contains(ps, piece{"timestamp", ""}), path+".signed", s.Signed, "{timestamp} with timestampHeader or timestampPart")
}

// piece is one part of what a signature is over: a text, or something of the delivery.
type piece struct{ kind, arg string }

var certHost = regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]*[a-z0-9])?(:[1-9][0-9]{0,4})?$`)

var bracePattern = regexp.MustCompile(`\{([^{}]*)\}`)

// pieces splits a template; false: something in braces is unknown.
func pieces(s string) (ps []piece, ok bool) {
	last := 0
	for _, m := range bracePattern.FindAllStringSubmatchIndex(s, -1) {
		if m[0] > last {
			ps = append(ps, piece{"", s[last:m[0]]})
		}
		last = m[1]
		name := s[m[2]:m[3]]
		kind, arg, _ := strings.Cut(name, ":")
		switch {
		case slices.Contains([]string{"body", "timestamp", "url", "crc32", "webhook-id"}, name):
			ps = append(ps, piece{name, ""})
		case slices.Contains([]string{"header", "query", "query-lower"}, kind) && arg != "":
			ps = append(ps, piece{kind, arg})
		case strings.HasPrefix(name, "/"):
			ps = append(ps, piece{"pointer", name})
		default:
			return nil, false
		}
	}
	if last < len(s) {
		ps = append(ps, piece{"", s[last:]})
	}
	return ps, !slices.ContainsFunc(ps, func(c piece) bool { return c.kind == "" && strings.ContainsAny(c.arg, "{}") })
}
