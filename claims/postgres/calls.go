package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/fence-sidecar/fence-sidecar/claims"
)

// look runs a single statement that reads the header's columns too, and completes it. It begins again after the store's row had to be
// brought up to date; what was found before is overwritten.
func (s *Store) look(ctx context.Context, p *pgxpool.Pool, f func(context.Context, *pgxpool.Conn, *header, string) error) error {
	for range 3 {
		var h header
		err := s.read(ctx, p, func(ctx context.Context, c *pgxpool.Conn) error {
			before := s.seen.load()
			h = header{}
			if err := f(ctx, c, &h, before.columns()); err != nil {
				return err
			}
			switch {
			case h.readOnly:
				return ErrReadOnly
			case h.realm != s.realm:
				return &SchemaError{Schema: s.cfg.Schema, Reason: "it has another realm than at the start"}
			case before.outdates(&h):
				return errOutdated
			case h.server != h.store || before.ahead(&h):
				return errStale
			}
			return nil
		})
		if !errors.Is(err, errStale) {
			return err
		}
		if err := s.settle(ctx); err != nil {
			return err
		}
	}
	return fmt.Errorf("postgres store: the server kept changing")
}

// Get implements claims.Store, in one statement.
func (s *Store) Get(ctx context.Context, key claims.Key, guard claims.Guard) (claims.View, error) {
	var v claims.View
	err := s.look(ctx, s.calls, func(ctx context.Context, c *pgxpool.Conn, h *header, columns string) error {
		var w raw
		var g, sender rawLease
		targets := slices.Concat(h.targets(), w.targets(), g.targets(), sender.targets())
		err := c.QueryRow(ctx, s.schema.sql("SELECT "+columns+", "+callColumns+", "+answerColumns+
			", g."+guardColumns+", s."+senderColumns+headerFrom+`
			LEFT JOIN {schema}.calls c ON c.tenant = $1 AND c.call_key = $2
			LEFT JOIN {schema}.answers a ON c.answered AND a.tenant = c.tenant AND a.call_key = c.call_key
			LEFT JOIN {schema}.leases g ON g.scope = $3
			LEFT JOIN {schema}.leases s ON s.scope = c.sender_scope`),
			[]byte(key.Tenant), []byte(key.Call), []byte(guard.Scope)).Scan(targets...)
		if err != nil {
			return err
		}
		if err := h.complete(s.cfg.Clock); err != nil {
			return err
		}
		v, err = view(h, &w, guard, &g, &sender)
		return err
	})
	if err != nil {
		return claims.View{}, err
	}
	return v, nil
}

// view puts a snapshot together.
func view(h *header, w *raw, guard claims.Guard, g, sender *rawLease) (claims.View, error) {
	v := claims.View{Now: h.now, Era: uint64(h.era), Quarantine: h.left()}
	var err error
	if v.Record, err = w.record(); err != nil {
		return v, err
	}
	if v.Loss, err = h.loss(&v.Record); err != nil {
		return v, err
	}
	for _, l := range []struct {
		guard claims.Guard
		raw   *rawLease
		view  *claims.GuardView
	}{{guard, g, &v.Guard}, {v.Record.Sender, sender, &v.Sender}} {
		if l.guard.IsZero() {
			continue
		}
		row, err := l.raw.lease(l.guard.Scope)
		if err != nil {
			return v, err
		}
		*l.view = row.view(l.guard.Token, h)
	}
	return v, nil
}

// swap is one attempt at a Swap.
type swap struct {
	cond   claims.Condition
	writes []claims.Write
	leases map[string]*rawLease // by scope, locked
	calls  []lockedCall         // as writes, locked
}

// lockedCall is what a Swap must know of a record before it writes it.
type lockedCall struct {
	found    bool
	version  int64
	state    string
	answered bool // there may be an answer in answers
}

// Swap implements claims.Store.
func (s *Store) Swap(ctx context.Context, cond claims.Condition, writes ...claims.Write) (claims.Swapped, error) {
	if err := claims.CheckWrites(writes); err != nil {
		return claims.Swapped{}, err
	}
	sw := &swap{cond: cond, writes: writes, leases: map[string]*rawLease{}, calls: make([]lockedCall, len(writes))}
	var out claims.Swapped
	err := s.write(ctx, s.calls, sw.locks(s), func(t *tx) (err error) {
		out, err = t.swap(sw)
		return err
	})
	if err != nil && !claims.Refused(err) {
		return claims.Swapped{}, err
	}
	return out, err
}

// locks are leases first, each kind in byte order.
func (sw *swap) locks(s *Store) []statement {
	strength := map[string]string{}
	for _, g := range []claims.Guard{sw.cond.Guard, sw.cond.Sender} {
		if !g.IsZero() {
			strength[g.Scope] = forKeyShare
		}
	}
	if d := sw.cond.Dead; !d.IsZero() {
		strength[d.Scope] = forShare // waits for a renewal that would make the sender live
	}
	var all []statement
	scopes := make([]string, 0, len(strength))
	for scope := range strength {
		scopes = append(scopes, scope)
	}
	slices.Sort(scopes)
	for _, scope := range scopes {
		w := &rawLease{}
		sw.leases[scope] = w
		all = append(all, s.lockLease(scope, strength[scope], w))
	}
	for _, i := range sw.order() {
		c, k := &sw.calls[i], sw.writes[i].Next.Key
		row := one(&c.found, &c.version, &c.state, &c.answered)
		all = append(all, statement{
			sql: s.schema.sql(`SELECT version, state, answered FROM {schema}.calls WHERE tenant = $1 AND call_key = $2
				FOR NO KEY UPDATE`),
			args: []any{[]byte(k.Tenant), []byte(k.Call)},
			rows: func(rows pgx.Rows) error {
				*c = lockedCall{}
				return row(rows)
			},
		})
	}
	return all
}

// order is that of the writes' keys, bytewise.
func (sw *swap) order() []int {
	order := make([]int, len(sw.writes))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(i, j int) int {
		a, b := sw.writes[i].Next.Key, sw.writes[j].Next.Key
		return cmp.Or(cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.Call, b.Call))
	})
	return order
}

// swap judges what was locked, and queues the writes if nothing refuses.
func (t *tx) swap(sw *swap) (claims.Swapped, error) {
	out, err := t.hold(sw)
	if err != nil {
		return out, err
	}
	lost := false
	for i, w := range sw.writes {
		c := sw.calls[i]
		if c.found {
			if err := readable(c.state); err != nil {
				return out, fmt.Errorf("%s: %w: %w", w.Next.Key, claims.ErrUnreadable, err)
			}
		}
		lost = lost || c.version != w.Version || w.Claim && w.Next.Era < uint64(t.era)
	}
	if lost {
		if out.Records, err = t.stored(sw); err != nil {
			return out, err
		}
		return out, claims.ErrLost
	}
	out.Records = make([]claims.Record, len(sw.writes))
	for i, w := range sw.writes {
		out.Records[i] = w.Stamp(t.now)
	}
	last := &out.Records[0]
	t.witness.call = &seenCall{last.Key, last.Created.Store.UnixNano(), last.Version}
	for _, i := range sw.order() {
		if err := t.put(&out.Records[i], !sw.calls[i].found, sw.calls[i].answered); err != nil {
			return out, err
		}
	}
	for _, w := range sw.writes {
		t.tell(w.Event)
	}
	return out, nil
}

// hold looks at the leases of the condition; it refuses in the documented order.
func (t *tx) hold(sw *swap) (claims.Swapped, error) {
	out := claims.Swapped{Now: t.now}
	c := sw.cond
	if !c.Guard.IsZero() || !c.Sender.IsZero() {
		if err := t.open(); err != nil {
			return out, err
		}
	}
	var dead claims.GuardView
	for _, l := range []struct {
		guard claims.Guard
		view  *claims.GuardView
	}{{c.Guard, &out.Guard}, {c.Sender, &out.Sender}, {c.Dead, &dead}} {
		if l.guard.IsZero() {
			continue
		}
		row, err := sw.leases[l.guard.Scope].lease(l.guard.Scope)
		if err != nil {
			return out, err
		}
		*l.view = row.view(l.guard.Token, t.header)
	}
	switch {
	case !c.Guard.IsZero() && !out.Guard.Live() && !(c.Finisher && out.Guard.Finisher):
		return out, &claims.FencedError{Guard: c.Guard, Status: out.Guard.Status}
	case !c.Sender.IsZero() && !out.Sender.Live():
		return out, &claims.FencedError{Guard: c.Sender, Status: out.Sender.Status, Sender: true}
	case !c.Dead.IsZero() && dead.Live():
		return out, claims.ErrSenderLives
	}
	for _, v := range []claims.GuardView{out.Guard, out.Sender} {
		if v.Live() {
			t.within(v.Remaining)
		}
	}
	return out, nil
}

// stored are the records of a lost Swap as they stand; those that are there are locked.
func (t *tx) stored(sw *swap) ([]claims.Record, error) {
	out := make([]claims.Record, len(sw.writes))
	where := "(c.tenant = $1 AND c.call_key = $2)"
	args := []any{[]byte(sw.writes[0].Next.Key.Tenant), []byte(sw.writes[0].Next.Key.Call)}
	if len(sw.writes) == 2 { // both of one snapshot
		where += " OR (c.tenant = $3 AND c.call_key = $4)"
		args = append(args, []byte(sw.writes[1].Next.Key.Tenant), []byte(sw.writes[1].Next.Key.Call))
	}
	rows, err := t.conn.Query(t.ctx, t.s.schema.sql("SELECT "+callColumns+", "+answerColumns+" FROM "+callsAnswers+" WHERE "+where), args...)
	if err != nil {
		return nil, fmt.Errorf("postgres store: not applied: %w", err)
	}
	all, err := raws(rows)
	if err != nil {
		return nil, fmt.Errorf("postgres store: not applied: %w", err)
	}
	for _, w := range all {
		r, err := w.record()
		if err != nil {
			return nil, err
		}
		for i := range sw.writes {
			if sw.writes[i].Next.Key == r.Key {
				out[i] = r
			}
		}
	}
	return out, nil
}

// raws reads all rows before anything else is asked of the connection.
func raws(rows pgx.Rows) ([]*raw, error) {
	defer rows.Close()
	var all []*raw
	for rows.Next() {
		w := &raw{}
		if err := rows.Scan(w.targets()...); err != nil {
			return nil, err
		}
		all = append(all, w)
	}
	return all, rows.Err()
}

// guardColumns and senderColumns are leaseColumns of tables g and s, less the first prefix.
const (
	guardColumns  = "token, g.era, g.holder, g.standing, g.expiry, g.cancelled"
	senderColumns = "token, s.era, s.holder, s.standing, s.expiry, s.cancelled"
)
