package postgres

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fence-sidecar/fence-sidecar/claims"
)

// Status is what an operator wants to know of a store.
type Status struct {
	Server     string // version
	SystemID   string // of the server that answers
	Timeline   int64
	Schema     string
	Realm      string
	Era        uint64 // how often something was perhaps lost
	Quarantine time.Duration
	MaxLease   time.Duration // longest lease that any sidecar may grant
	MayLose    bool          // this process's Config
	// Confirming are the standbys that confirm every commit; Unproven: the server was promoted with proof and has no
	// standby since, so that another failover would be a loss.
	Confirming []string
	Unproven   bool
	Loss       *claims.Loss // all of them in one
}

// Status reads the store's standing in one statement.
func (s *Store) Status(ctx context.Context) (Status, error) {
	var out Status
	err := s.look(ctx, s.calls, func(ctx context.Context, c *pgxpool.Conn, h *header, columns string) error {
		var version string
		err := c.QueryRow(ctx, s.schema.sql("SELECT "+columns+", current_setting('server_version')"+headerFrom)).
			Scan(append(h.targets(), &version)...)
		if err != nil {
			return err
		}
		if err := h.complete(s.cfg.Clock); err != nil {
			return err
		}
		loss, err := h.loss(&claims.Record{Version: 1})
		out = Status{
			Server: version, SystemID: h.server.system, Timeline: h.server.timeline, Schema: s.cfg.Schema, Realm: h.realm,
			Era: uint64(h.era), Quarantine: h.left(), MaxLease: time.Duration(h.maxLease), MayLose: s.cfg.MayLose,
			Confirming: unlisted(h.names), Unproven: h.unproven, Loss: loss,
		}
		return err
	})
	if err != nil {
		return Status{}, err
	}
	return out, nil
}
