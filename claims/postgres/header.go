package postgres

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"time"

	"github.com/fence-sidecar/fence-sidecar/claims"
	"github.com/fence-sidecar/fence-sidecar/claims/codec"
)

// columns are read in every transaction, after its locks: the time, what the server guarantees, which server it is, the store's
// row, and whether what this process last saw committed is there. {schema}.store is st.
func (m mark) columns() string { return headerColumns + ", " + m.witness.sql() }

const headerColumns = `(extract(epoch FROM clock_timestamp()) * 1000000)::bigint,
	pg_is_in_recovery() OR current_setting('transaction_read_only') = 'on',
	current_setting('fsync'), current_setting('full_page_writes'),
	current_setting('synchronous_commit'), current_setting('synchronous_standby_names'),
	(SELECT system_identifier::text FROM pg_control_system()),
	CASE WHEN pg_is_in_recovery() THEN '0' ELSE left(pg_walfile_name(pg_current_wal_lsn()), 8) END,
	CASE WHEN pg_is_in_recovery() THEN 0 ELSE pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint END,
	st.realm, st.system_id, st.timeline, st.era, coalesce(st.quarantine_until, 0), st.max_lease,
	coalesce(st.standbys, ''), st.unproven,
	CASE WHEN st.era = 0 THEN '[]' ELSE (SELECT coalesce(json_agg(json_build_array(l.era, l.from_store, l.from_wall,
		l.at_store, l.at_wall) ORDER BY l.era)::text, '[]') FROM {schema}.losses l) END`

const headerFrom = ` FROM {schema}.store st`

// identity names a server's history: all copies of one initdb share the system id, every promotion makes a timeline.
type identity struct {
	system   string
	timeline int64
}

func (i identity) String() string { return i.system + "/" + strconv.FormatInt(i.timeline, 10) }

// LogValue implements slog.LogValuer.
func (i identity) LogValue() slog.Value { return slog.StringValue(i.String()) }

// header is what every transaction reads first.
type header struct {
	micros     int64
	now        claims.Now
	readOnly   bool
	settings   [3]string // fsync, full_page_writes, synchronous_commit
	standbys   string    // synchronous_standby_names
	server     identity
	lsn        int64 // where the next WAL record would go
	realm      string
	store      identity
	era        int64
	quarantine int64
	maxLease   int64
	names      string // store's standbys
	unproven   bool
	timeline   string
	losses     string
	witnessed  bool
}

func (h *header) targets() []any {
	return []any{
		&h.micros, &h.readOnly, &h.settings[0], &h.settings[1], &h.settings[2], &h.standbys,
		&h.server.system, &h.timeline, &h.lsn, &h.realm, &h.store.system, &h.store.timeline, &h.era, &h.quarantine, &h.maxLease,
		&h.names, &h.unproven, &h.losses, &h.witnessed,
	}
}

// complete derives what was not scanned.
func (h *header) complete(clock func(time.Time) claims.Now) (err error) {
	h.now = clock(time.UnixMicro(h.micros).UTC())
	h.server.timeline, err = strconv.ParseInt(h.timeline, 16, 64)
	return err
}

// errOutdated says that the server is one of before a promotion that this process has seen: an old primary that came back. It is
// not spoken to; another host of the URL may be the right one. Whoever goes back to it on purpose must say so: DeclareLoss.
var errOutdated = errors.New("the server is of before a promotion that was seen (an old primary?): shut it out; or, if it is to serve " +
	"again, run `fence-sidecar store declare-loss` and start the sidecars anew")

func (m mark) outdates(h *header) bool {
	return h.server.system == m.server.system && h.server.timeline < m.server.timeline
}

// errStale says that the store's row must first be brought up to date: settle does.
var errStale = errors.New("the store's row is not of this server")

// judge looks whether a transaction may go on; before is what was known before the header was asked for.
func (s *Store) judge(h *header, before mark) error {
	switch {
	case h.readOnly:
		return ErrReadOnly
	case h.realm != s.realm:
		return &SchemaError{Schema: s.cfg.Schema, Reason: "it has another realm than at the start"}
	}
	if before.outdates(h) {
		return errOutdated
	}
	if err := safe(h); err != nil {
		return err
	}
	if h.server != h.store || before.ahead(h) || h.maxLease < int64(s.cfg.MaxLease) {
		return errStale
	}
	return s.confirmed(h)
}

// left is the rest of the quarantine.
func (h *header) left() time.Duration {
	if h.quarantine == 0 {
		return 0
	}
	return max(codec.Moment(h.quarantine).Sub(h.now.Store), 0)
}

// open refuses during a quarantine.
func (h *header) open() error {
	if left := h.left(); left > 0 {
		return &claims.QuarantineError{Left: left}
	}
	return nil
}

// loss is what a record of an era, or the want of one, may have missed.
func (h *header) loss(r *claims.Record) (*claims.Loss, error) {
	if h.era == 0 {
		return nil, nil
	}
	var all [][5]int64
	if err := json.Unmarshal([]byte(h.losses), &all); err != nil {
		return nil, fmt.Errorf("losses: %w", err)
	}
	var out *claims.Loss
	for _, l := range all {
		from := claims.Now{Store: codec.Moment(l[1]), Wall: codec.Moment(l[2])}
		at := claims.Now{Store: codec.Moment(l[3]), Wall: codec.Moment(l[4])}
		if r.Exists() && r.Era >= uint64(l[0]) || !r.Exists() && h.now.Store.Sub(at.Store) > claims.LossWatch {
			continue
		}
		switch {
		case out == nil:
			out = &claims.Loss{From: from, At: at}
		case from.Store.Before(out.From.Store):
			out.From = from
		}
		out.At = at
	}
	return out, nil
}
