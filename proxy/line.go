package proxy

import (
	"context"
	"log/slog"
	"time"

	"github.com/fence-sidecar/fence-sidecar/claims"
)

// log writes the request's one canonical line and counts it. It holds no body, header, query or key material: the call
// key, which the app chose as a name, and what was decided.
func (x *exchange) log() {
	x.p.Metrics.done(x)
	level := slog.LevelInfo
	if x.kind == "passed" || x.would == claims.WouldPass {
		level = slog.LevelDebug
	}
	attrs := []slog.Attr{
		slog.String("kind", x.kind), slog.Int("status", x.status),
		slog.Duration("took", time.Since(x.began).Round(time.Microsecond)),
	}
	if x.gateway != nil {
		attrs = append(attrs, slog.String("gateway", x.gateway.Name))
	}
	if x.match.Route != nil {
		attrs = append(attrs, slog.String("route", x.match.Route.Name))
	}
	r := &x.result
	if x.p.Shadow {
		attrs = append(attrs, slog.String("would", x.would), slog.String("repeat", x.repeat))
		if x.callKey != "" {
			attrs = append(attrs, slog.String("tenant", x.tenant), slog.String("call", x.callKey))
		}
	} else if x.callKey != "" {
		attrs = append(attrs, slog.String("tenant", x.tenant), slog.String("call", x.callKey), slog.Int("revision", x.tags.Revision),
			slog.Int("attempt", r.Attempt), slog.Int("sends", r.Sends), slog.String("state", string(r.State)),
			slog.String("outcome", r.Outcome.String()), slog.String("result", string(r.Source)), slog.String("lease", r.Lease))
	}
	if r.Cause != "" {
		attrs = append(attrs, slog.String("cause", r.Cause))
	}
	if r.Refusal != nil {
		attrs = append(attrs, slog.String("refused", string(r.Refusal.Reason)))
	}
	x.p.Log.LogAttrs(context.Background(), level, "call", attrs...)
}
