package sandbox

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"strconv"
	"strings"
)

// document reads a JSON body; numbers keep their spelling. An empty one is an empty object.
func document(body []byte) (map[string]any, bool) {
	doc := map[string]any{}
	if len(bytes.TrimSpace(body)) == 0 {
		return doc, true
	}
	dec := json.NewDecoder(bytes.NewReader(body))
	dec.UseNumber()
	if dec.Decode(&doc) != nil || doc == nil {
		return nil, false
	}
	_, err := dec.Token()
	return doc, errors.Is(err, io.EOF)
}

// in follows dotted names and indexes through a document; nil: there is nothing.
func in(doc any, path string) any {
	for name := range strings.SplitSeq(path, ".") {
		switch x := doc.(type) {
		case map[string]any:
			doc = x[name]
		case []any:
			i, err := strconv.Atoi(name)
			if err != nil || i < 0 || i >= len(x) {
				return nil
			}
			doc = x[i]
		default:
			return nil
		}
	}
	return doc
}

// textIn is the text, number or boolean at a dotted path as it was spelt; "": there is none.
func textIn(doc any, path string) string {
	switch x := in(doc, path).(type) {
	case string:
		return x
	case json.Number:
		return x.String()
	case bool:
		return strconv.FormatBool(x)
	}
	return ""
}

// wholeIn is a positive whole number at a dotted path; false: there is none.
func wholeIn(doc any, path string) (int64, bool) {
	n, err := strconv.ParseInt(textIn(doc, path), 10, 64)
	return n, err == nil && n > 0
}

// minorIn is an amount of two decimals at a dotted path, such as 10.00, in minor units; false: there is none.
func minorIn(doc any, path string) (int64, bool) {
	whole, cents, dot := strings.Cut(textIn(doc, path), ".")
	if dot && len(cents) != 2 {
		return 0, false
	}
	n, err := strconv.ParseInt(whole+(cents + "00")[:2], 10, 64)
	return n, err == nil && n > 0
}
