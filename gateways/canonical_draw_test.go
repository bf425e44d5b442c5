package gateways

import (
	"fmt"
	"slices"
	"strings"

	"github.com/fence-sidecar/fence-sidecar/claims"
	"pgregory.net/rapid"
)

// node is a JSON value to be drawn, changed and written in many spellings.
type node struct {
	kind  byte   // one of n t f 0 " [ {
	text  string // of a number or a text
	names []string
	items []*node
}

// texts are near to each other in every way that must not merge.
var texts = []string{
	"", "a", "A", "b", "a ", " a", "é", "e\u0301", "É", "1", "1.0", "null", "\x00", "\"", "\\", "/", "<&>", "\u2028", "a\u00a0", "ß", "ss", "ı", "i", "K", "\u212a",
	"\U0001d11e", "\uffff", "\ufffd", "ﬁ", "fi", "\ufeff",
}

var numbers = []string{
	"0", "-0", "0.0", "1", "1.0", "1e0", "1E0", "1e+0", "10", "1e1", "9007199254740992", "9007199254740993", "0.1", "0.10",
	"0.1000000000000000055", "1e400", "1e401", "123456789012345678901234567890", "123456789012345678901234567891",
}

func drawNode(t *rapid.T, depth int) *node {
	kinds := "ntf00\"\"[{{"
	if depth == 0 {
		kinds = kinds[:7]
	}
	n := &node{kind: kinds[rapid.IntRange(0, len(kinds)-1).Draw(t, "kind")]}
	switch n.kind {
	case '0':
		n.text = rapid.SampledFrom(numbers).Draw(t, "number")
	case '"':
		n.text = rapid.SampledFrom(texts).Draw(t, "text")
	case '[', '{':
		n.fill(t, depth)
	}
	return n
}

func (n *node) fill(t *rapid.T, depth int) {
	size := rapid.IntRange(0, 4).Draw(t, "size")
	if n.kind == '{' {
		n.names = rapid.SliceOfNDistinct(rapid.SampledFrom(texts), size, size, rapid.ID).Draw(t, "names")
	}
	for range size {
		n.items = append(n.items, drawNode(t, depth-1))
	}
}

func drawObject(t *rapid.T) *node {
	n := &node{kind: '{'}
	n.fill(t, 3)
	return n
}

func (n *node) all() []*node {
	out := []*node{n}
	for _, i := range n.items {
		out = append(out, i.all()...)
	}
	return out
}

// write spells a value: plainly with t nil, else with drawn white space, escapes and order of members.
func (n *node) write(t *rapid.T) string {
	space := func() string {
		if t == nil {
			return ""
		}
		return rapid.SampledFrom([]string{"", "", " ", "\n\t", "\r\n "}).Draw(t, "space")
	}
	order := make([]int, len(n.items))
	for i := range order {
		order[i] = i
	}
	if t != nil && n.kind == '{' && len(order) > 1 {
		order = rapid.Permutation(order).Draw(t, "order")
	}
	var parts []string
	for _, i := range order {
		part := n.items[i].write(t)
		if n.kind == '{' {
			part = space() + quoted(t, n.names[i]) + space() + ":" + part
		}
		parts = append(parts, part)
	}
	switch inner := strings.Join(parts, ","); n.kind {
	case '{':
		return space() + "{" + inner + space() + "}" + space()
	case '[':
		return space() + "[" + inner + space() + "]" + space()
	case '"':
		return space() + quoted(t, n.text) + space()
	case '0':
		return space() + n.text + space()
	}
	return space() + map[byte]string{'n': "null", 't': "true", 'f': "false"}[n.kind] + space()
}

var short = map[rune]string{'"': `\"`, '\\': `\\`, '/': `\/`, '\b': `\b`, '\f': `\f`, '\n': `\n`, '\r': `\r`, '\t': `\t`}

func quoted(t *rapid.T, s string) string {
	var b strings.Builder
	for _, c := range s {
		how := 0
		if t != nil {
			how = rapid.IntRange(0, 3).Draw(t, "escape")
		}
		esc := fmt.Sprintf(`\u%04x`, c)
		if c > 0xffff {
			esc = fmt.Sprintf(`\u%04x\u%04x`, 0xd800+(c-0x10000)>>10, 0xdc00+(c-0x10000)&0x3ff)
		}
		switch {
		case how == 2:
			b.WriteString(`\u` + strings.ToUpper(strings.ReplaceAll(esc[2:], `\u`, "")[:4]))
			if c > 0xffff {
				b.WriteString(esc[6:])
			}
		case short[c] != "" && (c != '/' || how == 1):
			b.WriteString(short[c])
		case how == 3 || c < ' ':
			b.WriteString(esc)
		default:
			b.WriteRune(c)
		}
	}
	return `"` + b.String() + `"`
}

// change makes another value of n, in place.
func (n *node) change(t *rapid.T) {
	other := func(list []string) {
		n.text = rapid.SampledFrom(slices.DeleteFunc(slices.Clone(list), func(s string) bool { return s == n.text })).Draw(t, "other")
	}
	how := rapid.IntRange(0, 5).Draw(t, "how")
	switch {
	case n.kind == '"' && how > 1:
		other(texts)
	case n.kind == '"' && how == 1:
		n.text += " "
	case n.kind == '0' && how > 0:
		other(numbers)
	case n.kind == '0':
		n.kind = '"' // 1 and "1"
	case n.kind == '[' && how > 1 && len(n.items) > 1 && n.items[0].write(nil) != n.items[1].write(nil):
		n.items[0], n.items[1] = n.items[1], n.items[0]
	case n.kind == '[':
		n.items = append(n.items, &node{kind: 'n'})
	case n.kind == '{' && how > 2 && len(n.items) > 0: // a name twice
		n.names, n.items = append(n.names, n.names[0]), append(n.items, n.items[how%len(n.items)])
	case n.kind == '{' && how > 1 && len(n.items) > 0: // absent
		n.names, n.items = n.names[1:], n.items[1:]
	case n.kind == '{':
		n.names, n.items = append(n.names, "one more"), append(n.items, &node{kind: "n\"{"[how%3], items: nil})
	default:
		*n = node{kind: '{'}
	}
}

// formPair is one pair of a form.
type formPair struct{ name, value string }

var formNames = []string{"a", "A", "b", "a[b]", "a[b][]", "a[]", "l[][x]", "l[][y]", "é", "e\u0301", "b ", "m[1]", "m[2]", "m[1]=", "", "\xff"}

func drawForm(t *rapid.T) []formPair {
	names := rapid.SampledFrom(formNames)
	if rapid.Bool().Draw(t, "apart") {
		names = rapid.SampledFrom([]string{"A", "b", "é", "e\u0301", "b ", "m[1]", "m[2]"}) // none that keeps the order
	}
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) formPair {
		return formPair{names.Draw(t, "name"), rapid.SampledFrom(texts).Draw(t, "value")}
	}), 1, 6).Draw(t, "pairs")
}

// writeForm spells pairs: plainly with t nil, else with drawn escapes, empty parts and, where it does not matter, order.
func writeForm(t *rapid.T, ps []formPair) string {
	if t != nil {
		text, _ := formMeaning(writeForm(nil, ps))
		if !strings.HasPrefix(text, "in order") {
			ps = shuffled(rapid.Permutation(ps).Draw(t, "order"), ps)
		}
	}
	var parts []string
	for _, p := range ps {
		part := formText(t, p.name) + "=" + formText(t, p.value)
		if t != nil && p.value == "" && p.name != "" && rapid.Bool().Draw(t, "bare") {
			part = strings.TrimSuffix(part, "=")
		}
		if t != nil && rapid.IntRange(0, 5).Draw(t, "empty") == 0 {
			part += "&"
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, "&")
}

// shuffled has the names in the order of other, and each name's values in their own.
func shuffled(other, ps []formPair) (out []formPair) {
	byName := map[string][]formPair{}
	for _, p := range ps {
		byName[p.name] = append(byName[p.name], p)
	}
	for _, o := range other {
		out = append(out, byName[o.name][0])
		byName[o.name] = byName[o.name][1:]
	}
	return out
}

func formText(t *rapid.T, s string) string {
	var b strings.Builder
	for i := range len(s) {
		c := s[i]
		must := !alnum(c) && c != '[' && c != ']'
		how := 0
		if t != nil {
			how = rapid.IntRange(0, 3).Draw(t, "escape")
		}
		switch {
		case c == ' ' && how < 2:
			b.WriteByte('+')
		case how == 3:
			fmt.Fprintf(&b, "%%%02x", c)
		case must || how == 2:
			fmt.Fprintf(&b, "%%%02X", c)
		default:
			b.WriteByte(c)
		}
	}
	return b.String()
}

// drawn is a request with the means to write it in another spelling and to change it.
type drawn struct {
	Inbound
	rewrite func(t *rapid.T) string // the body; nil: any other bytes are another body
	change  func(t *rapid.T) string
	loose   bool // a change of the body may be none: what was drawn as bytes may be JSON or a form after all
}

func drawRequest(t *rapid.T) drawn {
	a := drawn{Inbound: Inbound{
		Method: rapid.SampledFrom([]string{"POST", "PUT"}).Draw(t, "method"),
		Target: rapid.SampledFrom([]string{"/a", "/A", "/a/", "/a?b", "/%61", "/a%20"}).Draw(t, "target"),
	}}
	a.Header = []claims.Field{{Name: "X-Account", Value: rapid.SampledFrom([]string{"x", "X", "x/y", "é"}).Draw(t, "account")}}
	var media []string
	switch rapid.SampledFrom([]int{0, 1, 2, 3, 4}).Draw(t, "body") {
	case 0, 1:
		n := drawNode(t, 3)
		if rapid.IntRange(0, 3).Draw(t, "any") > 0 {
			n = drawObject(t)
		}
		a.Body = []byte(n.write(nil))
		a.rewrite = n.write
		a.change = func(t *rapid.T) string {
			rapid.SampledFrom(n.all()).Draw(t, "where").change(t)
			return n.write(nil)
		}
		media = []string{"application/json", "application/json; charset=utf-8", "Application/JSON;charset=UTF-8", "application/vnd.x+json"}
	case 2:
		ps := drawForm(t)
		a.Body = []byte(writeForm(nil, ps))
		a.rewrite = func(t *rapid.T) string { return writeForm(t, ps) }
		a.change = func(t *rapid.T) string { return writeForm(nil, changeForm(t, ps)) }
		media = []string{mediaForm, mediaForm + "; charset=utf-8"}
	case 3:
		near := rapid.SampledFrom(neighbours).Draw(t, "near")
		a.Body = []byte(rapid.SampledFrom(near).Draw(t, "text"))
		a.change = func(t *rapid.T) string {
			return rapid.SampledFrom(slices.DeleteFunc(slices.Clone(near), func(s string) bool { return s == string(a.Body) })).Draw(t, "other")
		}
		media = []string{"application/json", "application/vnd.x+json"}
	default:
		a.Body, a.loose = []byte(drawOpaque(t)), true
		a.change = func(t *rapid.T) string { return changeBytes(t, a.Body) }
		media = []string{"text/plain", "text/plain; charset=utf-8", "multipart/form-data; boundary=x", "multipart/form-data; boundary=y", "application/json", mediaForm}
	}
	a.set("Content-Type", rapid.SampledFrom(media).Draw(t, "media"))
	switch rapid.IntRange(0, 11).Draw(t, "coding") {
	case 0:
		a.set("Content-Encoding", rapid.SampledFrom([]string{"gzip", "br"}).Draw(t, "coded"))
		a.rewrite = nil
	case 1:
		a.set("Content-Digest", "sha-256=:x:")
		if respell := a.rewrite; respell != nil {
			a.change = func(t *rapid.T) string { // what a digest covers is another text in another spelling
				if text := respell(t); text != string(a.Body) {
					return text
				}
				return string(a.Body) + "&"
			}
		}
		a.rewrite = nil
	}
	return a
}

// another is another target, media type or account.
var another = map[string]string{
	"/a": "/%61", "/%61": "/a", "/A": "/a", "/a/": "/a", "/a?b": "/a", "/a%20": "/a",
	"application/json": "application/json; p=1", "Application/JSON;charset=UTF-8": "text/plain", mediaForm: "text/plain",
	"multipart/form-data; boundary=x": "multipart/form-data; boundary=y", "multipart/form-data; boundary=y": "multipart/form-data; boundary=x",
}

// respelled is another spelling of the same media type.
var respelled = map[string]string{"application/json": "Application/JSON;charset=UTF-8", "Application/JSON;charset=UTF-8": "application/json; charset=utf-8", mediaForm: mediaForm + "; charset=utf-8"}

// neighbours are texts that readers take for one another, and that are not the same.
var neighbours = [][]string{
	{`{"a":"\ud800"}`, `{"a":"\udfff"}`, `{"a":"\ufffd"}`, "{\"a\":\"\ufffd\ufffd\"}"},
	{"{\"a\":\"\xff\"}", "{\"a\":\"\xfe\"}", "{\"a\":\"\ufffd\"}"},
	{`{"\ud800":1}`, `{"\udfff":1}`, `{"\ufffd":1}`},
	{`{"a":1,"a":2}`, `{"a":2,"a":1}`, `{"a":2}`, `{"a":1}`, `{"a":1,"\u0061":2}`},
	{`{"b":{"a":1,"a":1}}`, `{"b":{"a":1}}`, `[{"b":{"a":1}}]`},
	{`1`, `1.0`, `"1"`, `[1]`, `{"1":1}`, `true`},
	{`1`, `1.0`, `1e0`, `1E0`, `10e-1`, `9007199254740993`, `9007199254740992`, `-0`, `0`},
	{`["fi"]`, "[\"ﬁ\"]", `["\u212a"]`, `["K"]`, `["k"]`},
	{`{"a":{}}`, `{"a":null}`, `{}`, `{"a":[]}`, `{"a":""}`, `{"a":0}`, `{"a":false}`, `null`},
	{`["\u00e9"]`, `["e\u0301"]`, `["\u00c9"]`, `["e"]`, `["\u00e9 "]`, `["\u00e9\u00a0"]`},
}

// set is the header with one value of a name, in a slice of its own.
func (a *drawn) set(name, value string) { a.Header = setHeader(a.Header, name, value) }

func drawOpaque(t *rapid.T) string {
	inner := drawNode(t, 2).write(nil)
	return rapid.SampledFrom([]string{
		inner, " " + inner, inner + " x", "{" + inner, "a=%zz", "\xff", "\ufeff" + inner, "",
	}).Draw(t, "opaque")
}

func changeForm(t *rapid.T, ps []formPair) []formPair {
	ps = slices.Clone(ps)
	i := rapid.IntRange(0, len(ps)-1).Draw(t, "at")
	switch j := slices.IndexFunc(ps, func(p formPair) bool { return p.name == ps[i].name && p.value != ps[i].value }); rapid.IntRange(0, 4).Draw(t, "how") {
	case 0:
		return append(ps, ps[i])
	case 1:
		return slices.Delete(ps, i, i+1)
	case 2:
		ps[i].name += " "
	case 3:
		if j >= 0 {
			ps[i].value, ps[j].value = ps[j].value, ps[i].value
			return ps
		}
		fallthrough
	default:
		ps[i].value = rapid.SampledFrom(slices.DeleteFunc(slices.Clone(texts), func(s string) bool { return s == ps[i].value })).Draw(t, "other")
	}
	return ps
}

func changeBytes(t *rapid.T, b []byte) string {
	if len(b) == 0 || rapid.IntRange(0, 3).Draw(t, "more") == 0 {
		return string(b) + rapid.SampledFrom([]string{" ", "\n", "x"}).Draw(t, "byte")
	}
	b = slices.Clone(b)
	b[rapid.IntRange(0, len(b)-1).Draw(t, "at")] ^= rapid.SampledFrom([]byte{1, 0x20, 0x80}).Draw(t, "bits")
	return string(b)
}
