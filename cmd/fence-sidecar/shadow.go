package main

import (
	"context"
	"time"
)

// Values of mode.
const (
	modeEnforce = "enforce"
	modeShadow  = "shadow"
)

// shadowReminder is how often the log says that the process protects nothing.
const shadowReminder = 10 * time.Minute

// warnShadow says, at the start and ever again, that nothing is protected.
func (s *sidecar) warnShadow(ctx context.Context) {
	if s.cfg.Mode != modeShadow {
		return
	}
	again := time.NewTicker(shadowReminder)
	defer again.Stop()
	for {
		s.log.Warn("SHADOW MODE: every request passes to the gateway, nothing is refused, nothing is protected", "setting", "mode: "+modeShadow)
		select {
		case <-ctx.Done():
			return
		case <-again.C:
		}
	}
}
