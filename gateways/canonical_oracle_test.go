package gateways

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// The oracle says what a request means, slowly and without the code under test or a JSON library: two requests may have one
// canonical form only if their meanings are one text. It knows the media types that the tests draw, no others.

// meaning is what a request asks for.
func meaning(in Inbound) string {
	header := func(name string) (all []string) {
		for _, f := range in.Header {
			if strings.EqualFold(f.Name, name) {
				all = append(all, strings.Trim(f.Value, " \t"))
			}
		}
		return all
	}
	coding, digest := strings.Join(header("content-encoding"), ","), len(header("content-digest")) > 0
	media := strings.Join(header("content-type"), ",")
	plain := (coding == "" || coding == "identity" && !digest) && !digest
	var what string
	switch known := map[string]string{
		"application/json": "json", "application/json; charset=utf-8": "json", "Application/JSON;charset=UTF-8": "json",
		"application/vnd.x+json": "json", "application/json; p=1": "json", mediaForm: "form", mediaForm + "; charset=utf-8": "form",
	}[media]; {
	case known != "":
		media = strings.TrimSuffix(strings.ReplaceAll(strings.ToLower(media), " ", ""), ";charset=utf-8")
		if text, ok := formMeaning(string(in.Body)); plain && ok && known == "form" {
			what = "form " + text
		} else if text, ok := jsonMeaning(string(in.Body)); plain && ok && known == "json" {
			what = "json " + text
		}
	}
	if what == "" {
		what = fmt.Sprintf("bytes %q coded %q", in.Body, coding)
	}
	return fmt.Sprintf("%q %q %q %q %q %s", in.Method, in.Target, header("X-Account"), header("Authorization"), media, what)
}

// formMeaning is every name's list of values; where the order of different names can matter, the whole list.
func formMeaning(raw string) (string, bool) {
	type nv struct{ name, value string }
	var all []nv
	for part := range strings.SplitSeq(raw, "&") {
		if part == "" {
			continue
		}
		halves := [2]string{part, ""}
		if before, after, ok := strings.Cut(part, "="); ok {
			halves = [2]string{before, after}
		}
		for h, text := range halves {
			var b []byte
			for i := 0; i < len(text); i++ {
				switch {
				case text[i] == '+':
					b = append(b, ' ')
				case text[i] == '%':
					if i+2 >= len(text) {
						return "", false
					}
					n, err := strconv.ParseUint(text[i+1:i+3], 16, 8)
					if err != nil {
						return "", false
					}
					b, i = append(b, byte(n)), i+2
				default:
					b = append(b, text[i])
				}
			}
			halves[h] = string(b)
		}
		all = append(all, nv{halves[0], halves[1]})
	}
	for _, a := range all {
		whole := strings.TrimSuffix(a.name, "[]")
		for _, b := range all {
			if strings.Contains(a.name, "[][") || a.name != b.name && (whole == b.name || whole == strings.TrimSuffix(b.name, "[]") || strings.HasPrefix(b.name, whole+"[")) {
				return fmt.Sprintf("in order %q", all), true
			}
		}
	}
	byName := map[string][]string{}
	for _, a := range all {
		byName[a.name] = append(byName[a.name], a.value)
	}
	return fmt.Sprintf("%q", byName), true // fmt sorts maps
}

// jsonMeaning reads one JSON text by the grammar of RFC 8259; false: it is none, or not the same to every reader.
func jsonMeaning(s string) (out string, ok bool) {
	defer func() {
		if e := recover(); e != nil {
			if _, mine := e.(notJSON); !mine {
				panic(e)
			}
			out, ok = "", false
		}
	}()
	r := &slowReader{s: s}
	out = r.value(0)
	r.space()
	r.must(r.at == len(s))
	return out, true
}

type notJSON struct{}

type slowReader struct {
	s  string
	at int
}

func (r *slowReader) must(ok bool) {
	if !ok {
		panic(notJSON{})
	}
}

func (r *slowReader) peek() byte {
	r.must(r.at < len(r.s))
	return r.s[r.at]
}

func (r *slowReader) space() {
	for r.at < len(r.s) && strings.Contains(" \t\r\n", r.s[r.at:r.at+1]) {
		r.at++
	}
}

func (r *slowReader) take(text string) bool {
	r.space()
	if !strings.HasPrefix(r.s[r.at:], text) {
		return false
	}
	r.at += len(text)
	return true
}

func (r *slowReader) value(depth int) string {
	r.space()
	switch c := r.peek(); {
	case c == '{' || c == '[':
		r.must(depth < deepestJSON)
		return r.list(depth, c == '{')
	case c == '"':
		return "text " + strconv.QuoteToASCII(r.text())
	case r.take("null"), r.take("true"), r.take("false"):
		return string(c)
	}
	return "number " + r.number()
}

func (r *slowReader) list(depth int, object bool) string {
	r.at++
	closing, names := "]", map[string]string{}
	if object {
		closing = "}"
	}
	var items []string
	for first := true; !r.take(closing); first = false {
		r.must(first || r.take(","))
		if !object {
			items = append(items, r.value(depth+1))
			continue
		}
		r.space()
		r.must(r.peek() == '"')
		name := r.text()
		_, twice := names[name]
		r.must(!twice && r.take(":"))
		names[name] = r.value(depth + 1)
		items = append(items, strconv.QuoteToASCII(name)+": "+names[name])
	}
	if object {
		slices.Sort(items)
		return "object (" + strings.Join(items, ", ") + ")"
	}
	return "list (" + strings.Join(items, ", ") + ")"
}

func (r *slowReader) number() string {
	from := r.at
	digits := func() {
		start := r.at
		for r.at < len(r.s) && r.s[r.at] >= '0' && r.s[r.at] <= '9' {
			r.at++
		}
		r.must(r.at > start)
	}
	oneOf := func(set string) bool {
		if r.at < len(r.s) && strings.Contains(set, r.s[r.at:r.at+1]) {
			r.at++
			return true
		}
		return false
	}
	oneOf("-")
	if !oneOf("0") {
		digits()
	}
	if oneOf(".") {
		digits()
	}
	if oneOf("eE") {
		oneOf("+-")
		digits()
	}
	return r.s[from:r.at]
}

func (r *slowReader) text() string {
	r.at++
	var out []rune
	for {
		c, n := utf8.DecodeRuneInString(r.s[r.at:])
		r.must(n > 0 && c >= ' ' && !(c == utf8.RuneError && n == 1))
		r.at += n
		switch c {
		case '"':
			return string(out)
		case '\\':
			e := r.peek()
			r.at++
			if e == 'u' {
				out = append(out, r.escape())
				continue
			}
			i := strings.IndexByte(`"\/bfnrt`, e)
			r.must(i >= 0)
			out = append(out, rune("\"\\/\b\f\n\r\t"[i]))
		default:
			out = append(out, c)
		}
	}
}

// escape reads what follows \u; half of a surrogate pair is no character.
func (r *slowReader) escape() rune {
	unit := func() rune {
		r.must(r.at+4 <= len(r.s) && !strings.ContainsAny(r.s[r.at:r.at+4], "+-_"))
		n, err := strconv.ParseUint(r.s[r.at:r.at+4], 16, 16)
		r.must(err == nil)
		r.at += 4
		return rune(n)
	}
	hi := unit()
	if hi < 0xd800 || hi > 0xdfff {
		return hi
	}
	r.must(hi < 0xdc00 && strings.HasPrefix(r.s[r.at:], `\u`))
	r.at += 2
	lo := unit()
	r.must(lo >= 0xdc00 && lo <= 0xdfff)
	return 0x10000 + (hi-0xd800)<<10 + (lo - 0xdc00)
}
