package proxy

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/fence-sidecar/fence-sidecar/claims"
)

// Request headers of the fence. They are never forwarded.
const (
	HeaderKey      = "Fence-Key"
	HeaderToken    = "Fence-Token"
	HeaderExternal = "Fence-External-Token"
	HeaderTenant   = "Fence-Tenant"
	HeaderRevision = "Fence-Revision"
	HeaderUndo     = "Fence-Undo"
	HeaderTimeout  = "Fence-Timeout"
)

// Answer headers of the fence.
const (
	HeaderOutcome = "Fence-Outcome"
	HeaderResult  = "Fence-Result"
	HeaderAttempt = "Fence-Attempt"
	HeaderCall    = "Fence-Call"
	HeaderLease   = "Fence-Lease"
	HeaderShadow  = "Fence-Shadow" // in shadow mode, instead of all others
)

// Tags are what an app says to the fence.
type Tags struct {
	Key      string
	Token    claims.Guard
	Tenant   string
	Revision int
	Undo     bool          // Fence-Undo was there
	Undoes   string        // call key of the call that this one undoes; "": none
	Part     string        // what of it; "": all
	Timeout  time.Duration // the app's patience; 0: not said
	Wait     time.Duration // how long to look into a doubt; negative: not said
	Any      bool          // a fence header was there
}

// maxWait bounds Fence-Timeout and Prefer: wait.
const maxWait = 10 * time.Minute

// ParseTags reads the fence headers of a request's head. A header that stands twice, or a Fence-* header that is not
// known, is an error: something that guards money is not guessed.
func ParseTags(fields []claims.Field) (Tags, error) {
	t := Tags{Revision: 1, Wait: -1}
	seen := map[string]bool{}
	for _, f := range fields {
		name := strings.ToLower(f.Name)
		if name == "prefer" {
			t.preferWait(f.Value)
			continue
		}
		if !strings.HasPrefix(name, "fence-") {
			continue
		}
		t.Any = true
		if seen[name] {
			return t, fmt.Errorf("header %s stands more than once", f.Name)
		}
		seen[name] = true
		if err := t.set(name, f); err != nil {
			return t, err
		}
	}
	return t, nil
}

func (t *Tags) set(name string, f claims.Field) (err error) {
	switch name {
	case "fence-key":
		t.Key, err = f.Value, filled(f)
	case "fence-tenant":
		t.Tenant, err = f.Value, filled(f)
	case "fence-token":
		err = t.token(f, "")
	case "fence-external-token":
		err = t.token(f, claims.ExternalPrefix)
	case "fence-revision":
		t.Revision, err = strconv.Atoi(f.Value)
		if err != nil || t.Revision < 1 || t.Revision > claims.MaxRevision || strconv.Itoa(t.Revision) != f.Value {
			err = fmt.Errorf("header Fence-Revision: want a decimal number from 1 to %d", claims.MaxRevision)
		}
	case "fence-undo":
		t.Undo = true
		t.Undoes, t.Part, err = parseUndo(f)
	case "fence-timeout":
		t.Timeout, err = seconds(f)
	default:
		err = fmt.Errorf("header %s is not known", clipped(f.Name))
	}
	return err
}

// parseUndo reads <key>, <key>; part=<id>, or none. A key or a part that has a semicolon, or is the word none, is written as a
// string in double quotes, as RFC 9651 writes one.
func parseUndo(f claims.Field) (key, part string, err error) {
	if err := filled(f); err != nil || f.Value == "none" {
		return "", "", err
	}
	wrong := fmt.Errorf("header %s: want <key>, <key>; part=<id>, or none; quote what has a semicolon", f.Name)
	key, rest, ok := undoItem(f.Value)
	if !ok {
		return "", "", wrong
	}
	if key == "none" && !strings.HasPrefix(f.Value, `"`) {
		return "", "", wrong
	}
	if rest != "" {
		name, value, found := strings.Cut(strings.TrimLeft(rest[1:], " "), "=")
		part, rest, ok = undoItem(value)
		if !found || name != "part" || !ok || rest != "" {
			return "", "", wrong
		}
		if err := (claims.Key{Tenant: "-", Call: part}).Check(); err != nil {
			return "", "", fmt.Errorf("header %s: the part, as a %w", f.Name, err)
		}
	}
	return key, part, nil
}

// undoItem takes a bare or quoted text up to a semicolon or the end.
func undoItem(s string) (item, rest string, ok bool) {
	if !strings.HasPrefix(s, `"`) {
		item, _, _ = strings.Cut(s, ";")
		rest = s[len(item):]
		item = strings.TrimRight(item, " ")
		return item, rest, item != "" && !strings.Contains(item, `"`)
	}
	var b strings.Builder
	for i := 1; i < len(s); i++ {
		switch s[i] {
		case '\\':
			if i++; i == len(s) || s[i] != '"' && s[i] != '\\' {
				return "", "", false
			}
			b.WriteByte(s[i])
		case '"':
			rest = strings.TrimLeft(s[i+1:], " ")
			return b.String(), rest, b.Len() > 0 && (rest == "" || rest[0] == ';')
		default:
			b.WriteByte(s[i])
		}
	}
	return "", "", false
}

// token takes a lease's token, or one that the application counts itself; never both, as they guard different things.
func (t *Tags) token(f claims.Field, prefix string) error {
	g, err := claims.ParseGuard(f.Value)
	if err != nil {
		return err
	}
	if !t.Token.IsZero() {
		return fmt.Errorf("headers %s and %s exclude each other", HeaderToken, HeaderExternal)
	}
	g.Scope = prefix + g.Scope
	t.Token = g
	return nil
}

func filled(f claims.Field) error {
	if f.Value == "" {
		return fmt.Errorf("header %s is empty", f.Name)
	}
	return nil
}

func seconds(f claims.Field) (time.Duration, error) {
	n, err := strconv.Atoi(f.Value)
	if err != nil || n < 1 || n > int(maxWait.Seconds()) {
		return 0, fmt.Errorf("header %s: want whole seconds from 1 to %d", f.Name, int(maxWait.Seconds()))
	}
	return time.Duration(n) * time.Second, nil
}

// preferWait takes wait=<s> out of a Prefer header (RFC 7240 section 4.3); a value that makes no sense is ignored, as that
// RFC wants.
func (t *Tags) preferWait(value string) {
	for p := range strings.SplitSeq(value, ",") {
		name, v, _ := strings.Cut(strings.TrimSpace(p), "=")
		if n, err := strconv.Atoi(v); strings.EqualFold(name, "wait") && err == nil && n >= 0 {
			t.Wait = time.Duration(min(n, int(maxWait.Seconds()))) * time.Second
		}
	}
}

func clipped(s string) string {
	if len(s) > 40 {
		return s[:40] + "…"
	}
	return s
}
