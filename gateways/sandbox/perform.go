package sandbox

import (
	"fmt"
	"strings"
	"time"
)

// entry is what is kept of an idempotency key.
type entry struct {
	params string
	at     time.Time
	busy   bool
	answer answer
	object *object // that the first request made or changed; nil: none
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
		a = r.p.serverError(f.status())
		s.finish(r, e, a, nil)
		return echo(r, a), true
	}
	a, x, executed := s.execute(r, fs)
	real := a
	if f, ok := fs.any("error-after", "error-after-unstored"); ok {
		a = r.p.serverError(f.status())
		if f.Name == "error-after" {
			real = a
		}
	}
	if executed && (r.p.keeps == nil || r.p.keeps(real)) {
		s.finish(r, e, real, x.made)
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
	auth := r.header.Get(r.p.credential)
	switch f, bad := fs.any("error-before", "balancer", "redirect"); {
	case bad && f.Name == "error-before":
		return r.p.serverError(f.status()), true
	case bad && f.Name == "balancer":
		return answerJSON(f.status(), map[string]any{"message": "upstream connect error"}), true
	case bad:
		return answerJSON(f.status(), map[string]any{}).with("Location", r.target), true
	case fs.has("rate-limit"):
		return r.p.limited("rate-limit"), true
	case fs.has("lock-timeout"):
		return r.p.limited("lock-timeout"), true
	case fs.has("forbidden"):
		return r.p.forbidden(), true
	case fs.has("in-use"):
		return r.p.inUse(r), true
	case fs.has("unauthorized"), auth == "", strings.EqualFold(auth, "Bearer"):
		return r.p.unauthorized(), true
	}
	return answer{}, false
}

func echo(r *request, a answer) answer {
	if r.p.echo != nil && r.p.takesKey(r) {
		return r.p.echo(r, a)
	}
	return a
}

func (r *request) entryKey() string { return r.account() + "\x00" + r.key() }

// begin looks at the key: ok means that it gives the answer; else the key is in use until finish or drop.
func (s *Server) begin(r *request, fs active) (*entry, answer, bool) {
	if !r.p.takesKey(r) || fs.has("ignore-key") {
		return nil, answer{}, false
	}
	if r.p.badKey != nil {
		if a, bad := r.p.badKey(r); bad {
			return nil, a, true
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	keep := s.cfg.KeyRetention
	if f, ok := fs["forget"]; ok {
		keep = f.time()
	}
	params := ""
	if r.p.params != nil {
		params = r.p.params(r)
	}
	old := s.keys[r.entryKey()]
	switch {
	case old != nil && old.busy:
		return nil, r.p.inUse(r), true
	case old == nil || s.now().Sub(old.at) >= keep:
	case old.params != params && r.p.conflict != nil && !fs.has("accept-other-body"):
		return nil, r.p.conflict(r, old), true
	case fs.has("not-repeated"):
		return nil, r.p.serverError(409), true
	case r.p.repeat != nil:
		return nil, r.p.repeat(&call{s: s, r: r, fs: fs}, old), true
	default:
		return nil, echo(r, old.answer), true
	}
	e := &entry{params: params, at: s.now(), busy: true}
	s.keys[r.entryKey()] = e
	return e, answer{}, false
}

// finish stores the first answer of the key.
func (s *Server) finish(r *request, e *entry, a answer, made *object) {
	if e == nil {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	e.busy, e.answer, e.object = false, a, made
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

// execute runs a request on the objects, all at once. executed is false for what the gateway refuses before it runs
// anything: such an answer is not stored.
func (s *Server) execute(r *request, fs active) (a answer, x *call, executed bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	x = &call{s: s, r: r, fs: fs}
	if r.era != s.era { // it was held while everything was forgotten
		return r.p.serverError(503), x, false
	}
	s.serial++
	defer func() { s.wake() }()
	a, executed = r.p.run(x)
	return a.with("Request-Id", fmt.Sprintf("req_sandbox%06d", s.serial)), x, executed
}
