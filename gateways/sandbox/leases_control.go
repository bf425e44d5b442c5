package sandbox

import (
	"errors"
	"fmt"
	"net/http"
	"net/url"

	"github.com/fence-sidecar/fence-sidecar/claims"
)

// controlLeases serves the stalls of the lease proxy.
func (s *Server) controlLeases(r *request, what string) answer {
	s.mu.Lock()
	none := s.leases.sidecar == nil
	s.mu.Unlock()
	if none {
		return answerJSON(http.StatusNotFound, map[string]any{"error": "this sandbox has no lease proxy: start it with --leases and --sidecar"})
	}
	tokens, err := s.chosen(r)
	switch {
	case what == "GET leases":
	case err != nil:
		return answerJSON(http.StatusBadRequest, map[string]any{"error": err.Error()})
	case what == "POST leases/stall" && len(tokens) == 0:
		return answerJSON(http.StatusBadRequest, map[string]any{"error": "say which: token=<Fence-Token> or scope=<scope key>"})
	case what == "POST leases/stall":
		s.Stall(tokens...)
	case what == "POST leases/resume":
		return answerJSON(http.StatusOK, map[string]any{"released": s.Resume(tokens...)})
	default:
		return answerJSON(http.StatusNotFound, map[string]any{"error": "no such control: " + what})
	}
	stalled, waiting := s.Stalled()
	names := []string{}
	for _, g := range stalled {
		names = append(names, g.String())
	}
	return answerJSON(http.StatusOK, map[string]any{"stalled": names, "waiting": waiting})
}

// chosen are the tokens that a request names by token or scope, in its query or as a form; none where it names neither.
func (s *Server) chosen(r *request) ([]claims.Guard, error) {
	query, err1 := url.ParseQuery(r.query())
	form, err2 := url.ParseQuery(string(r.body))
	if err := errors.Join(err1, err2); err != nil {
		return nil, err
	}
	tokens, scopes := append(query["token"], form["token"]...), append(query["scope"], form["scope"]...)
	var out []claims.Guard
	for _, t := range tokens {
		g, err := claims.ParseGuard(t)
		if err != nil {
			return nil, err
		}
		out = append(out, g)
	}
	for _, scope := range scopes {
		if _, _, err := claims.SplitScope(scope); err != nil {
			return nil, err
		}
		of := s.Tokens(scope)
		if len(of) == 0 {
			return nil, fmt.Errorf("no token of scope %s has passed here yet", scope)
		}
		out = append(out, of...)
	}
	return out, nil
}
