package postgres

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// confirming reads synchronous_standby_names (PostgreSQL's documentation, 20.6.2): the names if every listed standby must
// confirm each commit, nil where the server waits for fewer or for nobody.
func confirming(setting string) ([]string, error) {
	words, err := words(setting)
	if err != nil || len(words) == 0 {
		return nil, err
	}
	need, names := 1, words
	if i := slices.Index(words, "("); i >= 0 {
		head, list := words[:i], words[i+1:]
		if len(list) == 0 || list[len(list)-1] != ")" {
			return nil, fmt.Errorf("no closing parenthesis")
		}
		names = list[:len(list)-1]
		if len(head) == 2 && (strings.EqualFold(head[0], "first") || strings.EqualFold(head[0], "any")) {
			head = head[1:]
		}
		if len(head) != 1 {
			return nil, fmt.Errorf("no number of standbys")
		}
		if need, err = strconv.Atoi(head[0]); err != nil {
			return nil, fmt.Errorf("number of standbys: %w", err)
		}
	}
	return all(names, need)
}

// all takes a list apart at its commas.
func all(list []string, need int) ([]string, error) {
	var names []string
	for i, w := range list {
		switch comma := i%2 == 1; {
		case comma != (w == ","), w == "(", w == ")":
			return nil, fmt.Errorf("not a list of names")
		case comma:
		case strings.TrimPrefix(w, `"`) == "*":
			return nil, nil // anybody, also where it is quoted
		default:
			names = append(names, strings.ToLower(strings.TrimPrefix(w, `"`)))
		}
	}
	if len(list)%2 == 0 || need < len(names) {
		return nil, nil
	}
	slices.Sort(names)
	if names = slices.Compact(names); need > len(names) {
		return nil, nil // a name twice: whoever has it confirms alone
	}
	return names, nil
}

// words splits into names, numbers and punctuation. A quoted name keeps a leading quote, so that it is no punctuation.
func words(s string) (out []string, err error) {
	for s = strings.TrimLeft(s, " \t\n\r\f\v"); s != ""; s = strings.TrimLeft(s, " \t\n\r\f\v") {
		n := strings.IndexAny(s, " \t\n\r\f\v(),\"")
		switch {
		case s[0] == '"':
			name, rest, ok := quoted(s[1:])
			if !ok {
				return nil, fmt.Errorf("no closing quote")
			}
			out, s = append(out, `"`+name), rest
			continue
		case n == 0:
			n = 1
		case n < 0:
			n = len(s)
		}
		out, s = append(out, s[:n]), s[n:]
	}
	return out, nil
}

// quoted reads up to the closing quote; a doubled one stands for itself.
func quoted(s string) (name, rest string, ok bool) {
	for {
		part, after, found := strings.Cut(s, `"`)
		name += part
		if !found {
			return "", "", false
		}
		if !strings.HasPrefix(after, `"`) {
			return name, after, true
		}
		name, s = name+`"`, after[1:]
	}
}

// listed is the store's column of names.
func listed(names []string) string {
	if names == nil {
		return ""
	}
	b, _ := json.Marshal(names) // strings only
	return string(b)
}

func unlisted(column string) (names []string) {
	if json.Unmarshal([]byte(column), &names) != nil {
		return nil
	}
	return names
}

// standbyName is what a promoted server called itself at its old primary; "" where that is not known.
func standbyName(conninfo, cluster string) string {
	if conninfo == "" {
		return "" // no streaming standby
	}
	name, ok := applicationName(conninfo)
	switch {
	case !ok:
		return ""
	case name != "":
		return strings.ToLower(name)
	case cluster != "":
		return strings.ToLower(cluster)
	}
	return "walreceiver"
}

// applicationName reads libpq's keyword = value form; ok is false for anything else.
func applicationName(conninfo string) (name string, ok bool) {
	s := strings.TrimSpace(conninfo)
	for s != "" {
		key, rest, found := strings.Cut(s, "=")
		key = strings.TrimSpace(key)
		if !found || strings.Trim(key, "abcdefghijklmnopqrstuvwxyz_") != "" {
			return "", false
		}
		value, rest, ok := connValue(strings.TrimLeft(rest, " \t\n"))
		if !ok {
			return "", false
		}
		if key == "application_name" {
			name = value
		}
		s = strings.TrimSpace(rest)
	}
	return name, true
}

func connValue(s string) (value, rest string, ok bool) {
	quote := strings.HasPrefix(s, "'")
	if quote {
		s = s[1:]
	}
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '\\' && i+1 < len(s):
			i++
			b.WriteByte(s[i])
		case quote && c == '\'':
			return b.String(), s[i+1:], true
		case !quote && (c == ' ' || c == '\t' || c == '\n'):
			return b.String(), s[i:], true
		default:
			b.WriteByte(c)
		}
	}
	return b.String(), "", !quote
}
