package gateways

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

func (g *Gateway) validateRoutes(p *problems) {
	p.want(len(g.Routes) > 0, "routes", "", "at least one route")
	seen := map[string]bool{}
	for i, r := range g.Routes {
		path := fmt.Sprintf("routes[%d].", i)
		if r == nil {
			p.add(strings.TrimSuffix(path, "."), "", "a route")
			return
		}
		p.want(namePattern.MatchString(r.Name) && !seen[r.Name], path+"name", r.Name, "a name of its own: lower-case letters, digits, - and _, a letter first")
		seen[r.Name] = true
		if r.Name != "" {
			path = "routes." + r.Name + "."
		}
		g.validateRoute(p, r, path)
	}
}

func (g *Gateway) validateRoute(p *problems, r *Route, path string) {
	p.want(r.Method == "*" || token.MatchString(r.Method) && !Safe(r.Method) && r.Method == strings.ToUpper(r.Method), path+"method", r.Method, "an unsafe method such as POST, or *")
	p.oneOf(path+"effect", &r.Effect, EffectMove, EffectMove, EffectUndo)
	p.oneOf(path+"untagged", &r.Untagged, "", "", UntaggedRefuse, UntaggedPass)
	names := p.paths(path, r)
	p.times(path, r.KeyRetention, r.SettleAfter, r.AttemptTimeout, r.BodyLimit, r.AnswerLimit)
	p.keyPlace(path+"key", r.Key)
	p.want(!r.Keyless || r.Key == nil, path+"keyless", r.Keyless, "false where the route has a key")
	p.refPlace(path+"reference", r.Reference)
	p.callKey(path+"callKey", r.CallKey)
	p.answers(path+"answers", r.Answers)
	p.payment(path+"payment", r.Payment)
	p.kept(path+"keep", r.Keep)
	p.want(pointer.MatchString(r.Object), path+"object", r.Object, "a JSON pointer such as /id")
	key := g.key(r)
	if r.Signed && key != nil {
		p.want(key.Field == "", path+"signed", r.Signed, "false where the key goes into the body: a signed body is never changed")
	}
	if r.Probe {
		p.want(key != nil, path+"probe", r.Probe, "false where the gateway takes no key")
		p.want(g.Family != "", path+"probe", r.Probe, "false where family is not declared")
		p.want(first(r.KeyRetention, g.KeyRetention) > 0, path+"probe", r.Probe, "false where keyRetention is not declared")
	}
	for name, source := range r.Params {
		where, field, _ := strings.Cut(source, ":")
		ok := where == "path" && slices.Contains(names, field) || where == "body" && fieldPattern.MatchString(field)
		p.want(ok, path+"params."+name, source, "path:<name in path> or body:<dotted field>")
		p.want(!cardData.MatchString(field), path+"params."+name, source, "no card or bank account data")
		p.want(name != "reference" && name != "since" && name != "until" && name != "key" && name != appReference && name != objectParam && name != notKept && braces.MatchString("{"+name+"}"), path+"params", name, "another name: letters, digits, - and _")
	}
	g.validateVolatile(p, r, path+"volatile")
	if r.Lookup != nil {
		g.validateLookup(p, r, path+"lookup.")
	}
}

// substance are words of fields that say how much is paid, for what, by whom or to whom: they always count.
var substance = regexp.MustCompile(`(?i)amount|currency|account|(^|[._-])(total|price|quantity|customer|merchant|payee|recipient|destination)([._-]|$)`)

func (g *Gateway) validateVolatile(p *problems, r *Route, path string) {
	p.want(len(r.Volatile) == 0 || !r.Probe, path, strings.Join(r.Volatile, " "), "none where probe is true: a repeat with another value may be refused instead of replayed")
	held := g.heldFields(r)
	for i, field := range r.Volatile {
		path := fmt.Sprintf("%s[%d]", path, i)
		p.want(fieldPattern.MatchString(field), path, field, "a dotted body field such as sent_at")
		p.want(!substance.MatchString(field) && !cardData.MatchString(field), path, field, "no amount, currency, account or card")
		parts := strings.Split(field, ".")
		for _, h := range held {
			other := strings.Split(h, ".")
			p.want(!leads(parts, other) && !leads(other, parts), path, field, "no field of params, key, reference or callKey: "+h+" counts")
		}
		for name := range r.Params {
			p.want(!slices.ContainsFunc(parts, func(s string) bool { return strings.EqualFold(s, name) }), path, field, "nothing that is called like one of params: "+name)
		}
	}
}

// heldFields are the body fields that we read or write on a route.
func (g *Gateway) heldFields(r *Route) (fields []string) {
	fields = g.owned()
	for _, ref := range []*RefPlace{g.Reference, r.Reference} {
		if ref != nil {
			fields = append(fields, ref.Field)
		}
	}
	for _, key := range []*KeyPlace{g.Key, r.Key} {
		if key != nil {
			fields = append(fields, key.Field)
		}
	}
	for _, src := range []*CallKey{g.CallKey, r.CallKey} {
		if src != nil {
			fields = append(fields, src.Field)
		}
	}
	for _, source := range r.Params {
		if where, field, _ := strings.Cut(source, ":"); where == "body" {
			fields = append(fields, field)
		}
	}
	return slices.DeleteFunc(fields, func(f string) bool { return f == "" })
}

// paths splits a route's paths and returns the names in their braces.
func (p *problems) paths(path string, r *Route) (names []string) {
	r.paths = nil
	names = p.path(path+"path", r, r.Path)
	for i, also := range r.Also {
		path := fmt.Sprintf("%salso[%d]", path, i)
		others := p.path(path, r, also)
		p.want(slices.Equal(slices.Sorted(slices.Values(names)), slices.Sorted(slices.Values(others))), path, also, "the same names in braces as path")
	}
	all := len(slices.DeleteFunc(slices.Clone(r.paths), func(path []string) bool { return path[len(path)-1] != "**" }))
	p.want(all == 0 || all == len(r.paths), path+"also", r.Also, "paths that all end with **, or none: what a prefix takes is held to other rules")
	return names
}

func (p *problems) path(path string, r *Route, text string) (names []string) {
	if !strings.HasPrefix(text, "/") || !plainTarget(text) || strings.Contains(text, "?") {
		p.add(path, text, "a path such as /v1/charges/{id} or /v1/**")
		return nil
	}
	segments := strings.Split(text[1:], "/")
	r.paths = append(r.paths, segments)
	for i, s := range segments {
		name, ok := template(s)
		switch {
		case ok:
			p.want(braces.FindString(s) == s && !slices.Contains(names, name), path, text, "each {name} once, of letters, digits, - and _")
			names = append(names, name)
		case s == "**":
			p.want(i == len(segments)-1, path, text, "** as the last segment only")
		default:
			p.want(!strings.ContainsAny(s, "{}*"), path, text, "{name} and ** as whole segments only")
		}
	}
	return names
}

func (g *Gateway) validateLookup(p *problems, r *Route, path string) {
	l := r.Lookup
	p.oneOf(path+"kind", &l.Kind, "", KindList, KindGet, KindSearch, KindObject)
	p.oneOf(path+"sinceFormat", &l.SinceFormat, "unix", "unix", "rfc3339")
	p.oneOf(path+"notFound", &l.NotFound, "", "", CaseMissed)
	l.Window, l.Misses, l.MissGap = first(l.Window, defaultWindow), first(l.Misses, defaultMisses), first(l.MissGap, defaultMissGap)
	p.want(l.Window >= defaultWindow, path+"window", l.Window, "10m or more: a clock offset of 5m and 5m to spare")
	p.want(l.Misses > 0, path+"misses", l.Misses, "1 or more")
	p.want(l.MissGap > 0, path+"missGap", l.MissGap, "a length of time above 0s")
	p.want(!l.Proves || l.Kind == KindList || l.Kind == KindGet, path+"proves", l.Proves, "false for kind search (an index lags) and object")
	byID := l.Kind == KindObject
	p.want(plainTarget(l.Target) != byID && (!byID || l.Target == "" && l.Object != ""), path+"target", l.Target, "a request target such as /v1/charges?reference={reference}; for kind object none, but object")
	for _, m := range braces.FindAllString(l.Target, -1) {
		name := m[1 : len(m)-1]
		_, isParam := r.Params[name]
		p.want(name == "since" || name == "until" || name == "reference" || name == "key" || isParam, path+"target", m, "{since}, {until}, {reference}, {key} or a name of params")
	}
	for _, f := range [][2]string{
		{"items", l.Items}, {"id", l.ID}, {"reference", l.Reference}, {"key", l.Key}, {"amount", l.Amount}, {"currency", l.Currency}, {"whole", l.Whole},
	} {
		p.want(pointer.MatchString(f[1]), path+f[0], f[1], "a JSON pointer such as /data")
	}
	p.want(pointer.MatchString(l.ObjectAt) && (l.ObjectAt == "" || l.Object != ""), path+"objectAt", l.ObjectAt, "a JSON pointer, with object")
	p.want(l.Object == "" || l.ID != "" && plainTarget(l.Object) && strings.Contains(l.Object, "{"+objectParam+"}"), path+"object", l.Object, "a request target with {object}, and id to compare")
	for _, m := range braces.FindAllString(l.Object, -1) {
		_, isParam := r.Params[m[1:len(m)-1]]
		p.want(m == "{"+objectParam+"}" || isParam, path+"object", m, "{object} or a name of params")
	}
	for name, s := range l.Same {
		_, isParam := r.Params[name]
		p.want(isParam && s != "" && pointer.MatchString(s), path+"same."+plainName(name), s, "a name of params and a JSON pointer")
	}
	p.conditions(path+"is", l.Is)
	p.conditions(path+"each", l.Each)
	g.validateMatch(p, r, path)
	p.cases(path+"cases", l)
	p.want(l.Whole == "" || l.Amount != "", path+"whole", l.Whole, "none without amount")
	for i, c := range l.Cases {
		for name := range c.Call {
			_, isParam := r.Params[name]
			p.want(isParam, fmt.Sprintf("%scases[%d].call", path, i), name, "a name of params")
		}
	}
	if l.Pages != nil {
		l.Pages.Max = first(l.Pages.Max, defaultPages)
		p.want(l.Pages.Max > 0 && l.Pages.Max <= 1000, path+"pages.max", l.Pages.Max, "1 to 1000")
		p.want((l.Pages.More == "") != (l.Pages.Next == ""), path+"pages.more", l.Pages.More, "more or next, one of them")
		p.want(pointer.MatchString(l.Pages.More), path+"pages.more", l.Pages.More, "a JSON pointer to a boolean")
		p.want(pointer.MatchString(l.Pages.Next), path+"pages.next", l.Pages.Next, "a JSON pointer to a cursor")
		p.want(l.Pages.Param != "" && l.ID != "", path+"pages.param", l.Pages.Param, "a query parameter, and id to fill it")
		p.want(l.Kind != KindGet, path+"pages", "", "none for kind get")
	}
	if a := l.Answer; a != nil {
		a.Status, a.ContentType = first(a.Status, 200), first(a.ContentType, "application/json")
		p.want(a.Status >= 200 && a.Status <= 299, path+"answer.status", a.Status, "200 to 299")
		p.want(pointer.MatchString(a.At), path+"answer.at", a.At, "a JSON pointer")
		p.want(!strings.ContainsAny(a.ContentType, "\r\n\x00"), path+"answer.contentType", a.ContentType, "a media type")
	}
}

// validateMatch: a list matches on the reference; a get on the object that the request named.
func (g *Gateway) validateMatch(p *problems, r *Route, path string) {
	l := r.Lookup
	p.want(l.Key == "" || l.Reference == "" && g.key(r) != nil, path+"key", l.Key, "none with reference, or where the route has no key")
	p.want(!strings.Contains(l.Target, "{key}") || g.key(r) != nil, path+"target", l.Target, "no {key} where the route has none")
	if l.Reference != "" {
		p.want(g.reference(r) != nil, path+"reference", l.Reference, "none where the route writes no reference")
	}
	if l.Kind == KindObject {
		p.want(l.SameAs == "" && l.Items == "" && l.Pages == nil, path+"kind", l.Kind, "list where there are sameAs, items or pages")
		return
	}
	if l.Kind == KindGet {
		_, isParam := r.Params[l.SameAs]
		p.want(l.SameAs == "" || isParam && l.ID != "", path+"sameAs", l.SameAs, "a name of params, with id")
		p.want(l.SameAs != "" || l.Reference != "" || l.Key != "", path+"sameAs", l.SameAs, "sameAs, reference or key: a get must know its object")
		p.want(l.Items == "", path+"items", l.Items, "none for kind get")
		p.want(len(l.Each) == 0, path+"each", "", "none for kind get: is holds for the object")
		return
	}
	p.want(l.Reference != "" || l.Key != "", path+"reference", l.Reference, "a JSON pointer into an item: lists are matched by reference or key")
	p.want(l.SameAs == "", path+"sameAs", l.SameAs, "none for a list")
	if ref := g.reference(r); ref != nil && l.Proves && l.Key == "" {
		p.want(ref.Required, path+"proves", l.Proves, "false where the reference is not required: without one nothing can be found")
	}
}

func (p *problems) cases(path string, l *Lookup) {
	p.want(len(l.Cases) > 0, path, "", "at least one case")
	for i, c := range l.Cases {
		path := fmt.Sprintf("%s[%d]", path, i)
		p.conditions(path+".when", c.When)
		p.want(slices.Contains([]string{CaseDone, CaseFailed, CaseMissed, CaseBusy}, c.Is), path+".is", c.Is, "done, failed, missed, busy")
		p.want(slices.Contains([]string{"", "ours", "none"}, c.Reference), path+".reference", c.Reference, "ours, none")
		p.want(c.Reference == "" || l.Reference != "", path+".reference", c.Reference, "none where the lookup has no reference")
		p.want(c.Is != CaseMissed || l.Kind == KindGet, path+".is", c.Is, "missed for kind get only: a listed object is there")
		p.want(paymentWord(c.Payment), path+".payment", c.Payment, "pending, done, failed, reversed")
	}
}
