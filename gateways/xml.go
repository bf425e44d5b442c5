package gateways

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"strings"

	"github.com/fence-sidecar/fence-sidecar/claims"
)

// Bounds of an XML answer: no gateway's is as large, and a reader that follows any size or depth can be made to fail.
const (
	xmlDepth    = 32
	xmlElements = 10_000
	xmlBytes    = 1 << 20
)

// byteOrderMark is UTF-8's, which some servers write before their JSON (RFC 8259, section 8.1: a reader may pass over it).
var byteOrderMark = []byte("\xef\xbb\xbf")

// isXML reports whether the answer's one media type is XML's (RFC 7303, sections 9.1 and 9.2).
func isXML(a *claims.Answer) bool {
	types := values(a.Header, "Content-Type")
	if len(types) != 1 {
		return false
	}
	media, _, _ := strings.Cut(types[0], ";")
	switch strings.ToLower(strings.TrimSpace(media)) {
	case "application/xml", "text/xml":
		return true
	}
	return false
}

// decodeXML reads an XML document into the form of a JSON one, so that pointers look into both: an element is a member by
// its local name, one that stands several times a list, and one that holds text only is that text without the white space
// around it. Attributes, comments and processing instructions do not count.
//
// false: it is no whole document of one root in UTF-8, it is beyond the bounds, an element holds text beside elements, or it
// has a document type, which could define entities.
func decodeXML(raw []byte) (any, bool) {
	raw = bytes.TrimPrefix(raw, byteOrderMark)
	if len(raw) > xmlBytes {
		return nil, false
	}
	// A charset other than UTF-8 in the declaration is an error of the decoder, which has no CharsetReader.
	r := xmlReader{dec: xml.NewDecoder(bytes.NewReader(raw))}
	root, err := r.element(0)
	if err != nil || len(root.members) != 1 || root.text != "" {
		return nil, false
	}
	for _, v := range root.members {
		if _, several := v.([]any); several {
			return nil, false
		}
	}
	return root.members, true
}

// xmlReader counts what it has read.
type xmlReader struct {
	dec      *xml.Decoder
	elements int
}

// xmlValue is what stands between two tags.
type xmlValue struct {
	text    string
	members map[string]any
}

var errXML = errors.New("not an XML answer that is read")

// element reads to its end tag; at depth 0, to the end of the document.
func (r *xmlReader) element(depth int) (v xmlValue, err error) {
	var text strings.Builder
	for {
		t, err := r.dec.Token()
		switch {
		case err == io.EOF && depth == 0:
			v.text = strings.TrimSpace(text.String())
			return v, nil
		case err != nil:
			return v, err
		}
		switch t := t.(type) {
		case xml.StartElement:
			if r.elements++; r.elements > xmlElements || depth == xmlDepth {
				return v, errXML
			}
			child, err := r.element(depth + 1)
			if err != nil {
				return v, err
			}
			v.add(t.Name.Local, child)
		case xml.EndElement:
			v.text = strings.TrimSpace(text.String())
			if v.members != nil && v.text != "" {
				return v, errXML
			}
			return v, nil
		case xml.CharData:
			text.Write(t)
		case xml.Directive:
			return v, errXML
		}
	}
}

// add puts an element beside those of its name: the second makes a list.
func (v *xmlValue) add(name string, child xmlValue) {
	var value any = child.text
	if child.members != nil {
		value = child.members
	}
	if v.members == nil {
		v.members = map[string]any{}
	}
	switch old := v.members[name].(type) {
	case nil:
		v.members[name] = value
	case []any:
		v.members[name] = append(old, value)
	default:
		v.members[name] = []any{old, value}
	}
}
