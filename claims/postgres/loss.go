package postgres

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fence-sidecar/fence-sidecar/claims"
)

// mark is what this process surely saw committed: before lsn of that server's log, and the witness.
type mark struct {
	server  identity
	lsn     int64
	era     int64
	witness witness
}

// witness is the call and the lease that this process saw committed last. Rows are never deleted, versions and tokens only
// grow, and so does a token's expiry, so that a store without them is an older one, however far its log has come since.
type witness struct {
	call  *seenCall
	lease *seenLease
}

type seenCall struct {
	key     claims.Key
	created int64 // tells it from one that was made anew under the key
	version int64
}

type seenLease struct {
	scope  string
	token  uint64
	expiry int64
}

// sql asks for the witness; with values as literals, as every statement has parameters of its own.
func (w witness) sql() string {
	all := []string{"true"}
	if c := w.call; c != nil {
		all = append(all, fmt.Sprintf(`EXISTS (SELECT 1 FROM {schema}.calls w WHERE w.tenant = decode('%x', 'hex')
			AND w.call_key = decode('%x', 'hex') AND w.created_store = %d AND w.version >= %d)`, c.key.Tenant, c.key.Call, c.created, c.version))
	}
	if l := w.lease; l != nil {
		all = append(all, fmt.Sprintf(`EXISTS (SELECT 1 FROM {schema}.leases w WHERE w.scope = decode('%x', 'hex')
			AND (w.token > %d OR w.token = %d AND w.expiry >= %d))`, l.scope, l.token, l.token, l.expiry))
	}
	return strings.Join(all, " AND ")
}

// with adds what a transaction wrote.
func (w witness) with(wrote witness) witness {
	if wrote.call != nil {
		w.call = wrote.call
	}
	if wrote.lease != nil {
		w.lease = wrote.lease
	}
	return w
}

// ahead reports whether the server lacks what the process saw committed: an older copy was put back, or a standby that was
// behind was promoted. Where a new era has begun, somebody has noticed.
func (m mark) ahead(h *header) bool {
	if m.server == (identity{}) || h.era > m.era {
		return false
	}
	return h.era < m.era || h.server.system != m.server.system || h.lsn < m.lsn || !h.witnessed
}

// seen is the latest mark. It counts only after a commit: WAL that is written and not flushed may be gone after a crash,
// and that is no loss; the header's position lies before the commit record.
type seen struct {
	sync.Mutex
	mark
}

func (s *seen) load() mark {
	s.Lock()
	defer s.Unlock()
	return s.mark
}

func (s *seen) saw(h *header, wrote witness) {
	m := mark{h.server, h.lsn, h.era, wrote}
	s.Lock()
	defer s.Unlock()
	if m.era == s.era {
		m.witness = s.witness.with(wrote)
	}
	switch {
	case m.era != s.era:
		if m.era < s.era {
			return
		}
	case m.server.timeline != s.server.timeline:
		if m.server.timeline < s.server.timeline {
			return
		}
	case m.lsn < s.lsn:
		return
	}
	s.mark = m
}

// row is the part of the store's row that settle may change.
type row struct {
	server     identity
	era        int64
	quarantine int64
	maxLease   int64
	names      string
	unproven   bool
}

// settle brings the store's row up to date with the server that answers, in one transaction that only one process runs at
// a time: another server is taken over with proof that nothing is lost, or with a new era and a quarantine.
func (s *Store) settle(ctx context.Context) error { return s.bring(ctx, false) }

// DeclareLoss begins a new era with its quarantine by an operator's word: of a failover back, or of a copy of before a promotion that
// was put back, which sidecars that start anew cannot tell from the server that it was.
func (s *Store) DeclareLoss(ctx context.Context) error { return s.bring(ctx, true) }

func (s *Store) bring(ctx context.Context, declared bool) error {
	var before mark
	judge := func(h *header, m mark) error {
		before = m
		switch {
		case m.outdates(h):
			return errOutdated
		case h.readOnly:
			return ErrReadOnly
		case h.realm != s.realm:
			return &SchemaError{Schema: s.cfg.Schema, Reason: "it has another realm than at the start"}
		}
		return safe(h)
	}
	lock := []statement{
		{sql: `SELECT set_config('statement_timeout', '30s', true), set_config('idle_in_transaction_session_timeout', '30s', true)`},
		{sql: s.schema.sql(`SELECT 1 FROM {schema}.store FOR UPDATE`)},
	}
	var tell func()
	err := s.transact(ctx, s.leases, longer, lock, judge, func(t *tx) (err error) {
		tell, err = t.takeOver(before, declared)
		return err
	})
	if err == nil && tell != nil {
		tell()
	}
	return err
}

// declaredEras is how many eras a declared loss leaves out: as many may have begun, and granted tokens, where nobody knows of.
const declaredEras = 1000

// takeOver queues what changes; tell logs it.
func (t *tx) takeOver(before mark, declared bool) (tell func(), err error) {
	cfg := t.s.cfg
	old := row{t.store, t.era, t.quarantine, t.maxLease, t.names, t.unproven}
	next := old
	next.maxLease = max(old.maxLease, int64(cfg.MaxLease))
	moved := t.server != t.store
	proven := false
	if !declared && (moved || before.ahead(t.header)) {
		if proven, err = t.proven(before); err != nil {
			return nil, err
		}
	}
	if next.names, next.unproven, err = t.promise(proven); err != nil {
		return nil, err
	}
	next.server = t.server
	switch {
	case proven:
		tell = func() {
			cfg.Log.Warn("the store's server was promoted; nothing is lost", "was", old.server, "is", next.server, "unproven", next.unproven)
		}
	case declared || moved || before.ahead(t.header):
		next.era = max(old.era, before.era) + 1
		if declared {
			next.era += declaredEras
		}
		next.quarantine = t.now.Store.Add(time.Duration(next.maxLease) + cfg.Margin).UnixNano()
		l, err := t.lost(next.era, moved && !declared)
		if err != nil {
			return nil, err
		}
		tell = func() {
			cfg.Log.Error("the store perhaps lost what it had acknowledged: quarantine", "was", old.server, "is", next.server,
				"era", next.era, "from", l.From.Store, "at", l.At.Store, "left", time.Duration(next.quarantine-t.now.Store.UnixNano()))
		}
	}
	if next != old {
		t.change(`UPDATE {schema}.store SET system_id = $1, timeline = $2, era = $3, quarantine_until = NULLIF($4::bigint, 0),
			max_lease = $5, standbys = NULLIF($6::text, ''), unproven = $7`,
			next.server.system, next.server.timeline, next.era, next.quarantine, next.maxLease, next.names, next.unproven)
		t.era = next.era // what is seen as committed is of the new era
	}
	return tell, nil
}

// promise is what confirms commits from now on. Without MayLose it refuses a server that is not confirmed, unless it was
// promoted with proof as the one listed standby: nobody else can have been promoted beside it.
func (t *tx) promise(proven bool) (names string, unproven bool, err error) {
	if t.s.cfg.MayLose {
		return "", false, nil
	}
	if err := t.flushed(); err != nil {
		return "", false, err
	}
	list, err := confirming(t.standbys)
	switch {
	case err == nil && list != nil:
		return listed(list), false, nil
	case t.standbys == "" && proven && len(unlisted(t.names)) == 1, t.standbys == "" && t.unproven && t.server == t.store:
		return "", true, nil
	}
	return "", false, unconfirmed(t.standbys)
}

// freshness is how old the newest write of a promoted server may be for a proof. Living sidecars write every few seconds; an
// old copy of a standby that was put back has the standby's name too.
const freshness = 10 * time.Minute

// proven reports whether the server is one of the standbys that confirmed every commit.
func (t *tx) proven(before mark) (bool, error) {
	names := unlisted(t.names)
	if t.s.cfg.MayLose || len(names) == 0 || before.ahead(t.header) ||
		t.server.system != t.store.system || t.server.timeline <= t.store.timeline {
		return false, nil
	}
	var conninfo, cluster string
	var targeted bool
	// primary_conninfo stays set after a promotion. One that recovered to a target stopped where somebody told it to.
	err := t.conn.QueryRow(t.ctx, `SELECT
		CASE WHEN pg_has_role(current_user, 'pg_read_all_settings', 'USAGE') THEN current_setting('primary_conninfo') ELSE '' END,
		current_setting('cluster_name'),
		EXISTS (SELECT 1 FROM pg_settings WHERE name IN ('recovery_target', 'recovery_target_lsn', 'recovery_target_name',
			'recovery_target_time', 'recovery_target_xid') AND setting <> '')`).Scan(&conninfo, &cluster, &targeted)
	if err != nil {
		return false, fmt.Errorf("postgres store: not applied: %w", err)
	}
	name := standbyName(conninfo, cluster)
	if targeted || name == "" || !slices.Contains(names, name) {
		return false, nil
	}
	newest, err := t.newest()
	return err == nil && t.now.Store.Sub(newest) <= freshness, err
}

// newest is the time of the newest write that is there. Of the leases, which are many, it asks the sidecars' own, which are renewed all
// the time.
func (t *tx) newest() (time.Time, error) {
	var ns int64
	err := t.conn.QueryRow(t.ctx, t.s.schema.sql(`SELECT greatest(st.created,
		(SELECT max(renewed_store) FROM {schema}.leases WHERE scope >= '@instance:'::bytea AND scope < '@instance;'::bytea), (SELECT max(created_store) FROM {schema}.calls),
		(SELECT at_store FROM {schema}.lease_log ORDER BY line DESC LIMIT 1)) FROM {schema}.store st`)).Scan(&ns)
	if err != nil {
		return time.Time{}, fmt.Errorf("postgres store: not applied: %w", err)
	}
	return time.Unix(0, ns), nil
}

// slack is taken off the time of the newest write that is there: several servers' and sidecars' writes overlap.
const slack = time.Minute

// lost queues the loss. Of a server that is met for the first time, the newest write that is there was written before
// anything that is missing, as the log is replayed in order. Where an older copy was put back under the same name, others have perhaps
// written to it before it was noticed: how old it is, nobody knows, and no key of before may be taken for young.
func (t *tx) lost(era int64, moved bool) (claims.Loss, error) {
	back := claims.LossWatch
	if moved {
		newest, err := t.newest()
		if err != nil {
			return claims.Loss{}, err
		}
		back = max(t.now.Store.Sub(newest), 0) + slack
	}
	l := claims.Loss{From: claims.Now{Store: t.now.Store.Add(-back), Wall: t.now.Wall.Add(-back)}, At: t.now}
	t.change(`INSERT INTO {schema}.losses (era, from_store, from_wall, at_store, at_wall) VALUES ($1, $2, $3, $4, $5)`,
		era, l.From.Store.UnixNano(), l.From.Wall.UnixNano(), l.At.Store.UnixNano(), l.At.Wall.UnixNano())
	return l, nil
}

// confirmed looks whether a write that commits now can be proved not to be lost, as the store's row says.
func (s *Store) confirmed(h *header) error {
	if s.cfg.MayLose {
		if h.names != "" || h.unproven {
			return errStale
		}
		return nil
	}
	if err := h.flushed(); err != nil {
		return err
	}
	list, err := confirming(h.standbys)
	switch {
	case err == nil && list != nil && listed(list) == h.names && !h.unproven:
		return nil
	case err == nil && list != nil:
		return errStale
	case h.standbys == "" && h.unproven:
		return nil
	}
	return unconfirmed(h.standbys)
}
