package sandbox

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Fault is one misbehaviour that is switched on.
type Fault struct {
	Name string `json:"fault"`
	Arg  string `json:"arg,omitempty"`
	// Route narrows it: "METHOD /path" with * for one segment and /** at the end for the rest; "": every request that the
	// fault is meant for (POST, or GET for the lags).
	Route string `json:"route,omitempty"`
	// Times is how many requests it hits; 0: once, standing faults always; -1: always.
	Times int `json:"times,omitempty"`
}

// FaultInfo describes a fault.
type FaultInfo struct {
	Name    string
	Arg     string // what the argument is, with its default
	Meaning string
	// Standing faults hold until they are deleted.
	Standing bool
}

// Faults is the table of all faults.
var Faults = []FaultInfo{
	{Name: "lose-fin", Meaning: "executes, then closes the connection without an answer (TCP FIN)"},
	{Name: "lose-rst", Meaning: "executes, then resets the connection without an answer (TCP RST)"},
	{Name: "lose-tls", Meaning: "executes, then closes with TLS close_notify without an answer"},
	{Name: "delay", Arg: "time, 5s", Meaning: "waits, then executes, also if the client has gone, and answers"},
	{Name: "error-after", Arg: "status, 500", Meaning: "executes, answers an error and stores the error under the key"},
	{Name: "error-after-unstored", Arg: "status, 500", Meaning: "executes, answers an error; a repeat of the key gets the real answer"},
	{Name: "error-before", Arg: "status, 500", Meaning: "answers an error, executes nothing, stores nothing"},
	{Name: "balancer", Arg: "status, 503", Meaning: "a load balancer answers an error that has not the gateway's shape; executes nothing"},
	{Name: "error-stored", Arg: "status, 500", Meaning: "answers an error, executes nothing, stores the error under the key"},
	{Name: "hang-before", Meaning: "never answers and never executes; the key is in use until the client goes"},
	{Name: "hang-after", Meaning: "executes and never answers"},
	{Name: "hold-before", Arg: "name, hold", Meaning: "stops before execution until released; the key is in use meanwhile"},
	{Name: "hold-after", Arg: "name, hold", Meaning: "stops after execution, before the answer, until released"},
	{Name: "drop", Meaning: "reads the head only, then closes: the body stays unread, nothing is executed"},
	{Name: "drop-rst", Meaning: "reads the head only, then resets"},
	{Name: "truncate-length", Meaning: "executes, announces the whole Content-Length, sends half the body, closes"},
	{Name: "truncate-chunked", Meaning: "executes, sends half the body in a chunk and no last chunk, closes"},
	{Name: "close-framed", Meaning: "executes, sends half the body without a length, closes"},
	{Name: "close-framed-whole", Meaning: "executes, sends the whole body without a length, closes"},
	{Name: "truncate-head", Meaning: "executes, sends the status line and half a header line, closes"},
	{Name: "trickle", Arg: "time per byte, 1s", Meaning: "executes, sends the answer one byte at a time"},
	{Name: "search-lag", Arg: "time, 30s", Meaning: "search does not show objects younger than this", Standing: true},
	{Name: "list-lag", Arg: "time, 30s", Meaning: "lists do not show objects younger than this", Standing: true},
	{Name: "forget", Arg: "time, 0s", Meaning: "keys are forgotten after this; 0s: always", Standing: true},
	{Name: "ignore-key", Meaning: "keys are ignored: every repeat executes", Standing: true},
	{Name: "accept-other-body", Meaning: "another request under a used key is answered as if it were the same", Standing: true},
	{Name: "not-repeated", Meaning: "a repeat of a key executes nothing and gets an error instead of the first answer", Standing: true},
	{Name: "lookup-blind", Meaning: "reads show nothing that was made", Standing: true},
	{Name: "no-outcome", Meaning: "what is under way never moves on, and no webhook is told anything", Standing: true},
	{Name: "in-use", Meaning: "answers that the key is in use, executes nothing"},
	{Name: "decline", Arg: "decline code, generic_decline", Meaning: "declines whatever card is given"},
	{Name: "action", Meaning: "asks for 3-D Secure whatever card is given (requires_action)"},
	{Name: "processing", Meaning: "leaves the payment or refund under way, whatever it is paid with, until it is moved on"},
	{Name: "rate-limit", Meaning: "answers 429 rate_limit, executes nothing"},
	{Name: "lock-timeout", Meaning: "answers 429 lock_timeout, executes nothing"},
	{Name: "unauthorized", Meaning: "answers 401, executes nothing"},
	{Name: "forbidden", Meaning: "answers 403, executes nothing"},
	{Name: "empty", Meaning: "executes, answers 200 with Content-Length 0"},
	{Name: "no-content", Meaning: "executes, answers 204"},
	{Name: "null", Meaning: "executes, answers 200 with the four bytes null"},
	{Name: "html", Meaning: "executes, answers 200 with a page of HTML"},
	{Name: "redirect", Arg: "status, 307", Meaning: "answers a redirect to the same path, executes nothing"},
	{Name: "gzip", Meaning: "executes, answers gzip-encoded with a Digest header, whatever was asked for"},
	{Name: "cookies", Meaning: "executes, answers with two Set-Cookie lines and a header value in ISO-8859-1"},
	{Name: "early-hints", Meaning: "executes, sends an interim 103 before the answer"},
	{Name: "close-after", Meaning: "executes, answers, then closes the connection without having said so"},
	{Name: "date-skew", Arg: "time, -10m", Meaning: "moves the Date header", Standing: true},
	{Name: "no-date", Meaning: "leaves the Date header out", Standing: true},
}

func info(name string) (FaultInfo, bool) {
	i := slices.IndexFunc(Faults, func(f FaultInfo) bool { return f.Name == name })
	if i < 0 {
		return FaultInfo{}, false
	}
	return Faults[i], true
}

// FaultHeader switches faults on for the request that carries it: name[=arg][;times=n], several by commas. With times, the
// first n requests of one idempotency key are hit.
const FaultHeader = "Sandbox-Fault"

// ParseFaults reads the value of a FaultHeader.
func ParseFaults(value string) ([]Fault, error) {
	var out []Fault
	for part := range strings.SplitSeq(value, ",") {
		spec, opts, _ := strings.Cut(strings.TrimSpace(part), ";")
		f := Fault{Times: -1}
		f.Name, f.Arg, _ = strings.Cut(strings.TrimSpace(spec), "=")
		if n, ok := strings.CutPrefix(strings.TrimSpace(opts), "times="); ok {
			var err error
			if f.Times, err = strconv.Atoi(n); err != nil || f.Times < 1 {
				return nil, fmt.Errorf("fault %q: times must be a number from 1", part)
			}
		} else if opts != "" {
			return nil, fmt.Errorf("fault %q: only times=n may follow the semicolon", part)
		}
		if err := f.check(); err != nil {
			return nil, err
		}
		out = append(out, f)
	}
	return out, nil
}

func (f Fault) check() error {
	i, ok := info(f.Name)
	if !ok {
		return fmt.Errorf("fault %q is not known", f.Name)
	}
	if strings.HasPrefix(i.Arg, "time") && f.Arg != "" {
		if _, err := time.ParseDuration(f.Arg); err != nil {
			return fmt.Errorf("fault %s: argument %q must be a time such as 5s", f.Name, f.Arg)
		}
	}
	if strings.HasPrefix(i.Arg, "status") && f.Arg != "" {
		if n, err := strconv.Atoi(f.Arg); err != nil || n < 300 || n > 599 {
			return fmt.Errorf("fault %s: argument %q must be a status from 300 to 599", f.Name, f.Arg)
		}
	}
	return nil
}

// arg is the argument or the table's default.
func (f Fault) arg() string {
	if f.Arg != "" {
		return f.Arg
	}
	i, _ := info(f.Name)
	_, def, _ := strings.Cut(i.Arg, ", ")
	return def
}

func (f Fault) time() time.Duration { d, _ := time.ParseDuration(f.arg()); return d }
func (f Fault) status() int         { n, _ := strconv.Atoi(f.arg()); return n }

// meant reports whether the fault is for such a request.
func (f Fault) meant(method, p string) bool {
	if f.Route == "" {
		switch f.Name {
		case "search-lag", "list-lag", "lookup-blind":
			return method == "GET"
		case "date-skew", "no-date":
			return true
		}
		return method != "GET"
	}
	m, pattern, ok := strings.Cut(f.Route, " ")
	if !ok {
		m, pattern = "*", f.Route
	}
	if m != "*" && m != method {
		return false
	}
	if prefix, ok := strings.CutSuffix(pattern, "/**"); ok {
		return p == prefix || strings.HasPrefix(p, prefix+"/")
	}
	hit, err := path.Match(pattern, p)
	return err == nil && hit
}

// active are the faults of one request, by name.
type active map[string]Fault

func (a active) any(names ...string) (Fault, bool) {
	for _, n := range names {
		if f, ok := a[n]; ok {
			return f, true
		}
	}
	return Fault{}, false
}

func (a active) has(name string) bool { _, ok := a[name]; return ok }

// Inject switches a fault on. An unknown name or a bad argument is an error.
func (s *Server) Inject(f Fault) error {
	if err := f.check(); err != nil {
		return err
	}
	if i, _ := info(f.Name); f.Times == 0 {
		f.Times = 1
		if i.Standing {
			f.Times = -1
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults = append(s.faults, &f)
	return nil
}

// ClearFaults switches all injected faults off. Requests that are held stay held.
func (s *Server) ClearFaults() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.faults, s.headerUses = nil, map[string]int{}
}

// pick takes the faults that hit a request and counts them down. Of one name the first injected counts.
func (s *Server) pick(r *request) (active, error) {
	out := active{}
	var own []Fault
	for _, v := range r.header.Values(FaultHeader) {
		fs, err := ParseFaults(v)
		if err != nil {
			return nil, err
		}
		own = append(own, fs...)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range own {
		use := f.Name + "\x00" + r.key() + "\x00" + r.target
		if f.Times > 0 && s.headerUses[use] >= f.Times {
			continue
		}
		s.headerUses[use]++
		out[f.Name] = f
	}
	for _, f := range s.faults {
		if out.has(f.Name) || f.Times == 0 || !f.meant(r.method, r.path()) {
			continue
		}
		out[f.Name] = *f
		if f.Times > 0 {
			f.Times--
		}
	}
	return out, nil
}
