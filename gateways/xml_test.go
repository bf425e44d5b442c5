package gateways

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/fence-sidecar/fence-sidecar/claims"
	"github.com/google/go-cmp/cmp"
)

func xmlReply(status int, body string) *claims.Answer {
	return reply(status, body, "Content-Type", "application/xml; charset=utf-8")
}

func TestXMLAnswer(t *testing.T) {
	deep := func(n int) string {
		return strings.Repeat("<a>", n) + strings.Repeat("</a>", n)
	}
	laughs := `<?xml version="1.0"?><!DOCTYPE l [<!ENTITY a "ha"><!ENTITY b "&a;&a;&a;&a;">]><l>&b;</l>`
	tests := []struct {
		name, body, want string // as JSON; "": not read
	}{
		{"members", `<?xml version="1.0" encoding="UTF-8"?><t><id>x</id><n> 1 </n></t>`, `{"t":{"id":"x","n":"1"}}`},
		{"repeated", `<t><e>1</e><e>2</e><e>3</e></t>`, `{"t":{"e":["1","2","3"]}}`},
		{"repeated, with members", `<t><e><c>1</c></e><e><c>2</c></e></t>`, `{"t":{"e":[{"c":"1"},{"c":"2"}]}}`},
		{"repeated after another", `<t><e>1</e><f/><e>2</e></t>`, `{"t":{"e":["1","2"],"f":""}}`},
		{"attributes", `<t a="1"><id type="integer">7</id></t>`, `{"t":{"id":"7"}}`},
		{"namespaces", `<t xmlns="https://a.example/x" xmlns:y="y"><y:id>1</y:id></t>`, `{"t":{"id":"1"}}`},
		{"comments and instructions", "<!-- a --><?b c?><t><!-- <id>2</id> -->x</t>\n", `{"t":"x"}`},
		{"CDATA", `<t><![CDATA[<id>]]></t>`, `{"t":"<id>"}`},
		{"escapes", `<t>&lt;&amp;&#65;</t>`, `{"t":"<&A"}`},
		{"byte order mark", "\xef\xbb\xbf<t>x</t>", `{"t":"x"}`},
		{"as deep as is read", deep(xmlDepth), strings.Repeat(`{"a":`, xmlDepth) + `""` + strings.Repeat("}", xmlDepth)},
		{"too deep", deep(xmlDepth + 1), ""},
		{"far too deep", deep(100_000), ""},
		{"too many", "<t>" + strings.Repeat("<a/>", xmlElements) + "</t>", ""},
		{"too long", "<t>" + strings.Repeat(" ", xmlBytes) + "</t>", ""},
		{"billion laughs", laughs, ""},
		{"document type", `<!DOCTYPE t><t>x</t>`, ""},
		{"document type inside", `<t><!DOCTYPE t>x</t>`, ""},
		{"external entity", `<!DOCTYPE t [<!ENTITY x SYSTEM "file:///etc/hostname">]><t>&x;</t>`, ""},
		{"unknown entity", `<t>&a;</t>`, ""},
		{"truncated", `<t><id>x</id>`, ""},
		{"truncated in a tag", `<t><id>x</i`, ""},
		{"wrong end", `<t><id>x</t></id>`, ""},
		{"two roots", `<t>x</t><u>y</u>`, ""},
		{"two roots of one name", `<t>x</t><t>y</t>`, ""},
		{"text behind the root", `<t>x</t>y`, ""},
		{"text before the root", `y<t>x</t>`, ""},
		{"text beside elements", `<t>x<id>1</id></t>`, ""},
		{"no root", `<?xml version="1.0"?>`, ""},
		{"empty", ``, ""},
		{"JSON", `{"t":"x"}`, ""},
		{"wrong encoding", "<t>\xe4</t>", ""},
		{"another encoding", "<?xml version=\"1.0\" encoding=\"ISO-8859-1\"?><t>\xe4</t>", ""},
		{"UTF-16", "\xfe\xff\x00<\x00t\x00/\x00>", ""},
		{"two marks", "\xef\xbb\xbf\xef\xbb\xbf<t>x</t>", ""},
		{"no character of XML", "<t>\x01</t>", ""},
	}
	g := &Gateway{}
	for _, tt := range tests {
		began := time.Now()
		doc, ok := g.document(xmlReply(200, tt.body))
		got := ""
		if ok {
			b, err := json.Marshal(doc)
			if err != nil {
				t.Fatal(err)
			}
			got = string(b)
		}
		want := tt.want
		if want != "" {
			want = xmlCanon(t, want)
		}
		if ok != (want != "") || ok && xmlCanon(t, got) != want {
			t.Errorf("%s: %v %.200s, want %.200s", tt.name, ok, got, want)
		}
		if d := time.Since(began); d > 5*time.Second {
			t.Errorf("%s took %v", tt.name, d)
		}
	}
}

func xmlCanon(t *testing.T, s string) string {
	t.Helper()
	var v any
	if err := json.Unmarshal([]byte(s), &v); err != nil {
		t.Fatal(s, err)
	}
	b, _ := json.Marshal(v)
	return string(b)
}

// TestXMLMediaType: what is read as XML is what says that it is.
func TestXMLMediaType(t *testing.T) {
	g := &Gateway{}
	for media, want := range map[string]bool{
		"application/xml": true, "Text/XML ; charset=utf-8": true, "application/json": false, "text/html": false,
		"application/xhtml+xml": false, "": false,
	} {
		if _, ok := g.document(reply(200, "<t/>", "Content-Type", media)); ok != want {
			t.Errorf("%q: %v", media, ok)
		}
		if _, ok := g.document(reply(200, "{}", "Content-Type", media)); ok == want {
			t.Errorf("JSON as %q: %v", media, ok)
		}
	}
	if _, ok := g.document(reply(200, "<t/>", "Content-Type", "text/xml", "Content-Type", "text/xml")); ok {
		t.Error("two media types")
	}
	a := reply(200, zipped("<t>x</t>"), "Content-Type", "text/xml", "Content-Encoding", "gzip")
	if doc, ok := g.document(a); !ok || text(doc, "/t") != "x" {
		t.Errorf("gzip: %v", doc)
	}
}

// TestByteOrderMark: one before the text is passed over, anything more is not JSON.
func TestByteOrderMark(t *testing.T) {
	const mark = "\xef\xbb\xbf"
	g := &Gateway{}
	for body, want := range map[string]bool{
		`{"a":1}`: true, mark + `{"a":1}`: true, mark + mark + `{"a":1}`: false, " " + mark + `{"a":1}`: false,
		`{"a":1}` + mark: false, mark: false, "\xef\xbb" + `{"a":1}`: false, "\xff\xfe" + `{"a":1}`: false,
	} {
		doc, ok := g.document(reply(200, body))
		if ok != want || ok && text(doc, "/a") != "1" {
			t.Errorf("%q: %v %v", body, ok, doc)
		}
	}
}

// TestXMLIsError: an error of the gateway's own shape is one in XML too.
func TestXMLIsError(t *testing.T) {
	g := &Gateway{Error: ErrorShape{Members: map[string]any{"api-error-response": map[string]any{}}}}
	if !g.IsError(xmlReply(422, `<api-error-response><message>no</message></api-error-response>`)) {
		t.Error("not taken for an error")
	}
	for _, body := range []string{`<transaction><id>1</id></transaction>`, `<api-error-response>`, ``} {
		if g.IsError(xmlReply(422, body)) {
			t.Errorf("%q is taken for an error", body)
		}
	}
}

// FuzzXMLAnswer: no text makes the reader fail or go beyond its bounds, and what it reads has the form of JSON.
func FuzzXMLAnswer(f *testing.F) {
	for _, s := range []string{
		`<t><id>x</id><e>1</e><e>2</e></t>`, `<?xml version="1.0" encoding="UTF-8"?><t a="b"/>`, "\xef\xbb\xbf<t/>",
		`<!DOCTYPE l [<!ENTITY a "ha">]><l>&a;</l>`, `<t><![CDATA[x]]></t>`, `<t><id>`, `<a:b xmlns:a="c"/>`,
	} {
		f.Add([]byte(s))
	}
	g := &Gateway{}
	f.Fuzz(func(t *testing.T, body []byte) {
		doc, ok := g.document(xmlReply(200, string(body)))
		if !ok {
			if doc != nil {
				t.Errorf("%v of what is not read", doc)
			}
			return
		}
		m, isObject := doc.(map[string]any)
		if !isObject || len(m) != 1 {
			t.Fatalf("%v is no document of one root", doc)
		}
		elements := 0
		if err := xmlForm(doc, 0, &elements); err != nil {
			t.Error(err)
		}
		if strings.Contains(strings.ToUpper(string(body)), "<!ENTITY") && !strings.Contains(string(body), "CDATA") && !strings.Contains(string(body), "<!--") {
			// Only as text of an attribute or an instruction can it have been passed over.
			if !strings.ContainsAny(string(body), `"'?`) {
				t.Errorf("an entity was defined: %q", body)
			}
		}
		again, ok := decode(marshalled(t, doc))
		if diff := cmp.Diff(doc, again); !ok || diff != "" {
			t.Error(diff)
		}
	})
}

func marshalled(t *testing.T, v any) []byte {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// xmlForm checks that a value is made of objects, lists of two or more, and texts, within the bounds.
func xmlForm(v any, depth int, elements *int) error {
	if *elements++; *elements > 2*xmlElements {
		return fmt.Errorf("more than %d elements", xmlElements)
	}
	switch v := v.(type) {
	case string:
		return nil
	case []any:
		if len(v) < 2 {
			return fmt.Errorf("a list of %d", len(v))
		}
		for _, x := range v {
			if _, list := x.([]any); list {
				return fmt.Errorf("a list in a list")
			}
			if err := xmlForm(x, depth, elements); err != nil {
				return err
			}
		}
		return nil
	case map[string]any:
		if depth > xmlDepth {
			return fmt.Errorf("deeper than %d", xmlDepth)
		}
		for _, x := range v {
			if err := xmlForm(x, depth+1, elements); err != nil {
				return err
			}
		}
		return nil
	}
	return fmt.Errorf("a %T", v)
}
