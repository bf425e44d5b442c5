package sandbox

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
)

// control serves the API under /_sandbox/:
//
//	GET    /_sandbox/profile                the name of the gateway that is played
//	POST   /_sandbox/faults                 {"fault":…, "arg":…, "route":…, "times":…} switches a fault on
//	GET    /_sandbox/faults                 the table of faults
//	DELETE /_sandbox/faults                 switches all off
//	GET    /_sandbox/ledger                 the executed operations
//	GET    /_sandbox/sends                  the requests, counted at the socket
//	GET    /_sandbox/holds/{name}           waits until a request stands at the hold
//	POST   /_sandbox/holds/{name}/release   lets it go
//	POST   /_sandbox/payments/{id}/{to}     moves a payment that is under way on: done, failed, reversed
//	POST   /_sandbox/webhooks               {"url":…, "secret":…, "delay":…, "tries":…} has an address told of movements of money
//	DELETE /_sandbox/webhooks               has nobody told any more
//	POST   /_sandbox/notices/{id}/{event}   tells them now of an object: created, done, failed, reversed; ?secret=… signs it wrongly
//	POST   /_sandbox/reset                  forgets everything
//	POST   /_sandbox/leases/stall           token=… or scope=…: holds what belongs to it at the lease proxy (see StartLeases)
//	POST   /_sandbox/leases/resume          lets it go; without token and scope: everything
//	GET    /_sandbox/leases                 what is stalled and what waits
func (s *Server) control(r *request) answer {
	what := r.method + " " + strings.TrimPrefix(r.path(), "/_sandbox/")
	switch what {
	case "POST faults":
		return s.controlInject(r)
	case "GET faults":
		return answerJSON(200, Faults)
	case "DELETE faults":
		s.ClearFaults()
		return answer{status: 204}
	case "GET profile":
		return answerJSON(200, map[string]any{"profile": s.p.name})
	case "GET ledger":
		return answerJSON(200, s.Ledger())
	case "GET sends":
		return answerJSON(200, s.Sends())
	case "POST webhooks":
		return s.controlHook(r)
	case "DELETE webhooks":
		s.ClearHooks()
		return answer{status: 204}
	case "POST reset":
		s.Reset()
		return answer{status: 204}
	}
	if what == "GET leases" || strings.HasPrefix(what, "POST leases/") {
		return s.controlLeases(r, what)
	}
	if ids, ok := fits("POST payments/*/*", what); ok {
		return done(s.Move(ids[0], ids[1]))
	}
	if ids, ok := fits("POST notices/*/*", what); ok {
		q, _ := url.ParseQuery(r.query())
		return done(s.Tell(ids[0], ids[1], q.Get("secret")))
	}
	return s.controlHold(what)
}

// done answers a control request that has nothing to tell.
func done(err error) answer {
	if err != nil {
		return answerJSON(400, map[string]any{"error": err.Error()})
	}
	return answer{status: 204}
}

// strictly reads the body of a control request.
func strictly(r *request, v any) error {
	dec := json.NewDecoder(bytes.NewReader(r.body))
	dec.DisallowUnknownFields()
	return dec.Decode(v)
}

func (s *Server) controlInject(r *request) answer {
	var f Fault
	if err := strictly(r, &f); err != nil {
		return done(err)
	}
	return done(s.Inject(f))
}

func (s *Server) controlHook(r *request) answer {
	var h Hook
	if err := strictly(r, &h); err != nil {
		return done(err)
	}
	u, err := url.Parse(h.URL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return done(fmt.Errorf("url %q is no address", h.URL))
	}
	s.AddHook(h)
	return answer{status: 204}
}

func (s *Server) controlHold(what string) answer {
	if ids, ok := fits("GET holds/*", what); ok {
		name, _ := url.PathUnescape(ids[0])
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		s.wg.Go(func() {
			select {
			case <-s.done:
			case <-ctx.Done():
			}
			cancel()
		})
		if s.WaitHold(ctx, name) != nil {
			return answerJSON(503, map[string]any{"error": "the sandbox ends"})
		}
		return answerJSON(200, map[string]any{"hold": name, "reached": true})
	}
	if ids, ok := fits("POST holds/*/release", what); ok {
		name, _ := url.PathUnescape(ids[0])
		return answerJSON(200, map[string]any{"hold": name, "released": s.Release(name)})
	}
	return answerJSON(404, map[string]any{"error": "no such control: " + what})
}
