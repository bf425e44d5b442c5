package sandbox

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"
)

// Hook is an address that is told of movements of money, as the gateway that is played tells them.
type Hook struct {
	URL    string `json:"url"`
	Secret string `json:"secret"` // signs the notices, in the gateway's own way
	// ID is the gateway's id of the hook, where notices are signed over it (PayPal).
	ID string `json:"id,omitempty"`
	// Delay passes before each notice; Tries is how often one is sent until it is answered 2xx, a second apart; default 5.
	Delay Duration `json:"delay,omitempty"`
	Tries int      `json:"tries,omitempty"`
}

// Duration is a time.Duration that JSON writes as 1s, 5m.
type Duration time.Duration

// UnmarshalText reads 1s, 5m.
func (d *Duration) UnmarshalText(b []byte) error {
	v, err := time.ParseDuration(string(b))
	*d = Duration(v)
	return err
}

// MarshalText writes 1s, 5m.
func (d Duration) MarshalText() ([]byte, error) { return []byte(time.Duration(d).String()), nil }

// notice is one notice to a hook.
type notice struct {
	header []Line
	body   []byte
}

// AddHook has a further address told.
func (s *Server) AddHook(h Hook) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hooks = append(s.hooks, h)
}

// ClearHooks has nobody told any more.
func (s *Server) ClearHooks() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.hooks = nil
}

// Told is how many notices were answered 2xx.
func (s *Server) Told() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.told
}

// Tell sends a notice of an object to every hook now, whatever became of earlier ones: what happened is created, done, failed or
// reversed. secret signs it instead of the hook's own, if it is not "".
func (s *Server) Tell(id, event, secret string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	o := s.objects[id]
	if o == nil {
		return fmt.Errorf("no object %q", id)
	}
	hooks := slices.Clone(s.hooks)
	defer func() { s.hooks = hooks }()
	for i := range s.hooks {
		if secret != "" {
			s.hooks[i].Secret = secret
		}
	}
	if n := s.tell(o, event, 0); n == 0 {
		return fmt.Errorf("%s tells nobody that %s is %s", s.p.title, id, event)
	}
	return nil
}

// tell sends notices of an object in the background, and returns how many. The lock is held.
func (s *Server) tell(o *object, event string, after time.Duration) (n int) {
	if s.p.notice == nil || s.closed || slices.ContainsFunc(s.faults, func(f *Fault) bool { return f.Name == "no-outcome" }) {
		return 0
	}
	for _, h := range s.hooks {
		what, ok := s.p.notice(s, o, event, h)
		if !ok {
			continue
		}
		n++
		s.wg.Go(func() {
			if s.sleep(after + time.Duration(h.Delay)) {
				s.deliver(h, what)
			}
		})
	}
	return n
}

// hookClient posts notices; redirects are not followed.
var hookClient = &http.Client{
	Timeout:       10 * time.Second,
	Transport:     &http.Transport{DisableKeepAlives: true},
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

// deliver sends one notice until it is taken.
func (s *Server) deliver(h Hook, what notice) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	s.wg.Go(func() {
		select {
		case <-s.done:
			cancel()
		case <-ctx.Done():
		}
	})
	for try := range cmp.Or(h.Tries, 5) {
		if try > 0 && !s.sleep(time.Second) {
			return
		}
		if post(ctx, h.URL, what) {
			s.mu.Lock()
			s.told++
			s.wake()
			s.mu.Unlock()
			return
		}
	}
}

func post(ctx context.Context, url string, what notice) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(what.body))
	if err != nil {
		return false
	}
	for _, l := range what.header {
		req.Header.Add(l.Name, l.Value)
	}
	resp, err := hookClient.Do(req)
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	io.CopyN(io.Discard, resp.Body, 64<<10)
	return resp.StatusCode/100 == 2
}
