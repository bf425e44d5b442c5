package sqlite

import (
	"iter"
	"strings"
)

// verbs are the first words of the statements in a text, in capitals: what stands in quotes or comments begins none.
func verbs(text string) iter.Seq[string] {
	return func(yield func(string) bool) {
		first := true
		for text != "" {
			n := token(text)
			word := text[:n]
			text = text[n:]
			switch {
			case word == ";":
				first = true
			case first && word[0] > ' ' && word != mark && !comment(word):
				if first = false; !yield(strings.ToUpper(word)) {
					return
				}
			}
		}
	}
}

// mark is a byte order mark, which SQLite takes for a blank.
const mark = "\ufeff"

func comment(s string) bool { return strings.HasPrefix(s, "--") || strings.HasPrefix(s, "/*") }

// token is the length of the first piece of a text: a word, something quoted, a comment or one byte.
func token(s string) int {
	upTo := func(end string, from int) int {
		if i := strings.Index(s[from:], end); i >= 0 {
			return from + i + len(end)
		}
		return len(s)
	}
	letter := func(c byte) bool { return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '_' || c >= 0x80 }
	switch c := s[0]; {
	case c == '\'', c == '"', c == '`':
		return upTo(string(c), 1) // a doubled quote begins another piece, which changes nothing
	case c == '[':
		return upTo("]", 1)
	case strings.HasPrefix(s, "--"):
		return upTo("\n", 2)
	case strings.HasPrefix(s, "/*"):
		return upTo("*/", 2)
	case strings.HasPrefix(s, mark):
		return len(mark)
	case letter(c):
		n := 1
		for n < len(s) && letter(s[n]) {
			n++
		}
		return n
	}
	return 1
}
