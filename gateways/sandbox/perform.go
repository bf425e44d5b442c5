package sandbox

import (
	"fmt"
	"net/url"
	"strings"
	"time"
)

// entry is what is kept of an idempotency key.
type entry struct {
	params string
	at     time.Time
	busy   bool
	answer answer
}

// perform runs a request with the faults before, in and after its execution; false: no answer is given.
func (s *Server) perform(c *conn, r *request, fs active) (answer, bool) {
	if a, ok := refusal(r, fs); ok {
		return a, true
	}
	e, a, ok := s.begin(r, fs)
	if ok {
		return a.dressed(fs), true
	}
	if !s.before(c, fs) {
		s.drop(r, e)
		return answer{}, false
	}
	if f, ok := fs["error-stored"]; ok {
		a = serverError(f.status())
		s.finish(r, e, a)
		return echo(r, a), true
	}
	a, executed := s.execute(r, fs)
	real := a
	if f, ok := fs.any("error-after", "error-after-unstored"); ok {
		a = serverError(f.status())
		if f.Name == "error-after" {
			real = a
		}
	}
	if executed {
		s.finish(r, e, real)
	} else {
		s.drop(r, e)
	}
	if !s.after(c, fs) {
		return answer{}, false
	}
	return echo(r, a).dressed(fs), true
}

// refusal answers what is refused before the key is looked at.
func refusal(r *request, fs active) (answer, bool) {
	auth := r.header.Get("Authorization")
	switch f, bad := fs.any("error-before", "balancer", "redirect"); {
	case bad && f.Name == "error-before":
		return serverError(f.status()), true
	case bad && f.Name == "balancer":
		return answerJSON(f.status(), map[string]any{"message": "upstream connect error"}), true
	case bad:
		return answerJSON(f.status(), map[string]any{}).with("Location", r.target), true
	case fs.has("rate-limit"):
		return answerError(429, "invalid_request_error", "rate_limit", "Too many requests"), true
	case fs.has("lock-timeout"):
		return answerError(429, "invalid_request_error", "lock_timeout", "This object cannot be accessed right now"), true
	case fs.has("forbidden"):
		return answerError(403, "invalid_request_error", "", "The provided key does not have access"), true
	case fs.has("in-use"):
		return inUse(r), true
	case fs.has("unauthorized"), auth == "", strings.EqualFold(auth, "Bearer"):
		return answerError(401, "invalid_request_error", "", "You did not provide an API key"), true
	}
	return answer{}, false
}

func serverError(status int) answer {
	return answerError(status, "api_error", "", "An error occurred on our end")
}

func inUse(r *request) answer {
	return answerError(409, "invalid_request_error", "idempotency_key_in_use", "There is currently another in-progress request using this Idempotent Key: "+r.key())
}

func echo(r *request, a answer) answer {
	if r.method == "POST" && r.key() != "" {
		a = a.with("Idempotency-Key", r.key())
	}
	return a
}

func (r *request) entryKey() string { return r.account() + "\x00" + r.key() }

// params is what makes two requests under a key the same.
func (r *request) params() string {
	v, err := url.ParseQuery(string(r.body))
	if err != nil {
		return r.method + " " + r.target + " " + string(r.body)
	}
	return r.method + " " + r.target + " " + v.Encode()
}

// begin looks at the key: ok means that it gives the answer; else the key is in use until finish or drop.
func (s *Server) begin(r *request, fs active) (*entry, answer, bool) {
	if r.method != "POST" || r.key() == "" || fs.has("ignore-key") {
		return nil, answer{}, false
	}
	if len(r.key()) > 255 {
		return nil, answerError(400, "idempotency_error", "", "The key is longer than 255 characters"), true
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	keep := s.cfg.KeyRetention
	if f, ok := fs["forget"]; ok {
		keep = f.time()
	}
	old := s.keys[r.entryKey()]
	switch {
	case old != nil && old.busy:
		return nil, inUse(r), true
	case old != nil && s.now().Sub(old.at) < keep && old.params != r.params():
		return nil, answerError(400, "idempotency_error", "", "Keys for idempotent requests can only be used with the same parameters they were first used with"), true
	case old != nil && s.now().Sub(old.at) < keep:
		return nil, echo(r, old.answer).with("Idempotent-Replayed", "true"), true
	}
	e := &entry{params: r.params(), at: s.now(), busy: true}
	s.keys[r.entryKey()] = e
	return e, answer{}, false
}

// finish stores the first answer of the key.
func (s *Server) finish(r *request, e *entry, a answer) {
	if e == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	e.busy, e.answer = false, a
	s.wake()
}

// drop forgets a key under which nothing ran.
func (s *Server) drop(r *request, e *entry) {
	if e == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.keys[r.entryKey()] == e {
		delete(s.keys, r.entryKey())
	}
	s.wake()
}

// before runs the faults that come before execution; false: nothing is executed.
func (s *Server) before(c *conn, fs active) bool {
	if f, ok := fs["hold-before"]; ok && !s.stop(f.arg()) {
		return false
	}
	if fs.has("hang-before") {
		c.gone()
		return false
	}
	if f, ok := fs["delay"]; ok {
		return s.sleep(f.time())
	}
	return true
}

// after runs the faults that come between execution and answer; false: no answer.
func (s *Server) after(c *conn, fs active) bool {
	if f, ok := fs["hold-after"]; ok && !s.stop(f.arg()) {
		return false
	}
	if fs.has("hang-after") {
		c.gone()
		return false
	}
	return true
}

// execute runs a request on the objects, all at once. executed is false for what Stripe refuses before it runs
// anything: such an answer is not stored.
func (s *Server) execute(r *request, fs active) (a answer, executed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.serial++
	x := &call{s: s, r: r, fs: fs}
	defer func() { s.wake() }()
	a, executed = x.run()
	return a.with("Request-Id", fmt.Sprintf("req_sandbox%06d", s.serial)), executed
}
