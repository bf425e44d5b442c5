package gateways

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json/jsontext"
)

// member is one member of a JSON object, by its place in the text.
type member struct {
	name       string
	start      int // of the name's quote
	value, end int // of the value
}

// members lists the members of the JSON object that text is, also where a name stands twice or half of a surrogate pair
// stands somewhere; false: it is something else, or not JSON. What canonicalJSON takes for an object, members takes too.
func members(text []byte) ([]member, bool) {
	if !utf8.Valid(text) {
		return nil, false
	}
	d := jsontext.NewDecoder(bytes.NewBuffer(text), jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	if t, err := d.ReadToken(); err != nil || t.Kind() != '{' {
		return nil, false
	}
	var out []member
	for d.PeekKind() == '"' {
		m := member{start: skip(text, int(d.InputOffset()), " \t\r\n,")}
		t, err := d.ReadToken()
		if err != nil {
			return nil, false
		}
		m.name = t.String()
		m.value = skip(text, int(d.InputOffset()), " \t\r\n:")
		if d.SkipValue() != nil {
			return nil, false
		}
		m.end = int(d.InputOffset())
		out = append(out, m)
	}
	if _, err := d.ReadToken(); err != nil { // the closing brace
		return nil, false
	}
	_, err := d.ReadToken()
	return out, err == io.EOF
}

func skip(text []byte, at int, what string) int {
	for at < len(text) && strings.IndexByte(what, text[at]) >= 0 {
		at++
	}
	return at
}

func named(ms []member, name string) (hits []int) {
	for i, m := range ms {
		if m.name == name {
			hits = append(hits, i)
		}
	}
	return hits
}

// jsonValues returns the texts at a path; numbers keep their spelling. See body.values.
func jsonValues(text []byte, path []string) (vs []string, ok bool) {
	ms, ok := members(text)
	if !ok {
		return nil, false
	}
	for _, i := range named(ms, path[0]) {
		value := text[ms[i].value:ms[i].end]
		if len(path) > 1 {
			if string(value) == "null" {
				continue
			}
			inner, ok := jsonValues(value, path[1:])
			if !ok {
				return nil, false
			}
			vs = append(vs, inner...)
			continue
		}
		switch s, kind := scalar(value); kind {
		case scalarText:
			vs = append(vs, s)
		case notScalar:
			return nil, false
		}
	}
	return vs, true
}

const (
	notScalar = iota
	scalarNull
	scalarText
)

// scalar reads a text, number or boolean.
func scalar(value []byte) (string, int) {
	switch value[0] {
	case '{', '[':
		return "", notScalar
	case 'n':
		return "", scalarNull
	case '"':
		// Not by encoding/json, which reads every half of a surrogate pair as one and the same character.
		s, err := jsontext.AppendUnquote(nil, value)
		if err != nil {
			return "", notScalar
		}
		return string(s), scalarText
	}
	return string(value), scalarText
}

// jsonWithout takes every member at a path out of the text; the others stay as they stand.
func jsonWithout(text []byte, path []string) []byte {
	ms, ok := members(text)
	if !ok || len(named(ms, path[0])) == 0 {
		return text
	}
	out := slices.Clone(text[:ms[0].start])
	kept := -1
	for i, m := range ms {
		if m.name == path[0] && len(path) == 1 {
			continue
		}
		if kept >= 0 {
			out = append(out, text[ms[kept].end:ms[kept+1].start]...)
		}
		kept = i
		if m.name == path[0] {
			out = append(append(out, text[m.start:m.value]...), jsonWithout(text[m.value:m.end], path[1:])...)
			continue
		}
		out = append(out, text[m.start:m.end]...)
	}
	return append(out, text[ms[len(ms)-1].end:]...)
}

// jsonWith writes a text at a path, as the first member of its object; objects on the way are made where there are none.
// false: something else stands on the way, or something stands twice.
func jsonWith(text []byte, path []string, value string) ([]byte, bool) {
	ms, ok := members(text)
	if !ok {
		return nil, false
	}
	hits := named(ms, path[0])
	switch {
	case len(hits) > 1, len(hits) == 1 && len(path) == 1:
		return nil, false
	case len(hits) == 1:
		m := ms[hits[0]]
		inner, ok := jsonWith(text[m.value:m.end], path[1:], value)
		if !ok {
			return nil, false
		}
		return slices.Concat(text[:m.value], inner, text[m.end:]), true
	}
	added := strconv.Quote(path[len(path)-1]) + ":" + quoteJSON(value)
	for _, name := range slices.Backward(path[:len(path)-1]) {
		added = strconv.Quote(name) + ":{" + added + "}"
	}
	if len(ms) > 0 {
		added += ","
	}
	open := bytes.IndexByte(text, '{') + 1
	return slices.Concat(text[:open], []byte(added), text[open:]), true
}

func quoteJSON(s string) string {
	b, _ := json.Marshal(s) // a string always marshals
	return string(b)
}

// value is a decoded JSON value; numbers keep their spelling.
func decode(text []byte) (any, bool) {
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	var v any
	if dec.Decode(&v) != nil {
		return nil, false
	}
	_, err := dec.Token()
	return v, errors.Is(err, io.EOF)
}

// at follows a JSON pointer (RFC 6901); false: there is nothing.
func at(v any, pointer string) (any, bool) {
	if pointer == "" {
		return v, true
	}
	for part := range strings.SplitSeq(pointer[1:], "/") {
		part = strings.NewReplacer("~1", "/", "~0", "~").Replace(part)
		switch x := v.(type) {
		case map[string]any:
			var ok bool
			if v, ok = x[part]; !ok {
				return nil, false
			}
		case []any:
			i, err := strconv.Atoi(part)
			if err != nil || i < 0 || i >= len(x) || strconv.Itoa(i) != part {
				return nil, false
			}
			v = x[i]
		default:
			return nil, false
		}
	}
	return v, true
}

// text is the spelling of a scalar at a pointer; "" where there is none.
func text(v any, pointer string) string {
	x, ok := at(v, pointer)
	if !ok {
		return ""
	}
	switch x := x.(type) {
	case string:
		return x
	case json.Number:
		return x.String()
	case bool:
		return strconv.FormatBool(x)
	}
	return ""
}

// holds reports whether a condition is met.
func (c Condition) holds(v any) bool {
	x, ok := at(v, c.At)
	switch {
	case c.Absent:
		return !ok || x == nil
	case len(c.In) > 0:
		return ok && slices.Contains(c.In, text(v, c.At)) && x != nil
	}
	return ok && x != nil && x != ""
}

func allHold(cs []Condition, v any) bool {
	for _, c := range cs {
		if !c.holds(v) {
			return false
		}
	}
	return true
}
