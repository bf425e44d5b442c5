package postgres

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/fence-sidecar/fence-sidecar/claims"
)

// blocker is another session that holds a lock.
type blocker struct {
	tx     pgx.Tx
	schema schema
}

func block(t *testing.T, cfg Config, sql string) *blocker {
	t.Helper()
	c, err := pgx.Connect(t.Context(), cfg.URL)
	ok(t, err)
	t.Cleanup(func() { c.Close(context.Background()) })
	tx, err := c.Begin(t.Context())
	ok(t, err)
	b := &blocker{tx, schemaOf(cfg.Schema)}
	for one := range strings.SplitSeq(sql, ";") {
		_, err = tx.Exec(t.Context(), b.schema.sql(one))
		ok(t, err)
	}
	return b
}

// after ends the blocker's transaction later; the returned function waits for that.
func (b *blocker) after(d time.Duration, end func(context.Context) error) (wait func()) {
	done := make(chan error, 1)
	time.AfterFunc(d, func() { done <- end(context.Background()) })
	return func() { <-done }
}

// TestR45ExpiryIsJudgedAfterTheLock: a claim that waited for a row until its lease had run out is fenced, whether the blocker
// changed the row or only held it.
func TestR45ExpiryIsJudgedAfterTheLock(t *testing.T) {
	const ttl = 1500 * time.Millisecond
	for name, sql := range map[string]string{
		"lease row, held":    `SELECT 1 FROM {schema}.leases WHERE scope = 'shop:a' FOR UPDATE`,
		"lease row, changed": `SELECT 1 FROM {schema}.leases WHERE scope = 'shop:a' FOR UPDATE; UPDATE {schema}.leases SET holder = 'x'`,
		"call row, held":     `SELECT 1 FROM {schema}.calls WHERE call_key = 'c' FOR UPDATE`,
		"call row, changed":  `UPDATE {schema}.calls SET checks = 7 WHERE call_key = 'c'`,
		// an insert is waited for in the second round trip, after the judgement
		"call row, inserted": `INSERT INTO {schema}.calls SELECT (jsonb_populate_record(c, '{"call_key": "\\x6e6577"}')).* FROM {schema}.calls c`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := migrated(t)
			s := open(t, cfg)
			r := put(t, s, record("c"))
			l, err := s.Acquire(t.Context(), "shop:a", "a", ttl)
			ok(t, err)
			b := block(t, cfg, sql)
			end := b.tx.Commit
			if name == "call row, inserted" {
				end = b.tx.Rollback // so that the claim's own insert goes on
			}
			defer b.after(ttl+500*time.Millisecond, end)()
			w := claims.Write{Version: r.Version, Next: r}
			if name == "call row, inserted" {
				w = claims.Write{Next: record("new")}
			}
			_, err = s.Swap(t.Context(), claims.Condition{Guard: l.Guard}, w)
			if e, ok := errors.AsType[*claims.FencedError](err); !ok || e.Status != claims.LeaseExpired || e.Guard != l.Guard {
				t.Errorf("swap after the lease ran out: %v", err)
			}
			if got := get(t, s, w.Next.Key).Record; got.Version != w.Version {
				t.Errorf("version %d was written", got.Version)
			}
		})
	}
}

// TestTimeIsReadAfterTheLock: what is stamped is when the row was got, not when it was asked for.
func TestTimeIsReadAfterTheLock(t *testing.T) {
	cfg := migrated(t)
	s := open(t, cfg)
	r := put(t, s, record("c"))
	b := block(t, cfg, `SELECT 1 FROM {schema}.calls FOR UPDATE`)
	asked := get(t, s, r.Key).Now.Store
	defer b.after(time.Second, b.tx.Commit)()
	out, err := s.Swap(t.Context(), claims.Condition{}, claims.Write{Version: r.Version, Next: r})
	ok(t, err)
	if d := out.Now.Store.Sub(asked); d < time.Second {
		t.Errorf("the time is of %s after the question, before the row was free", d)
	}
}

// TestRenewalIsJudgedAfterTheLock: as above, for the lease itself.
func TestRenewalIsJudgedAfterTheLock(t *testing.T) {
	const ttl = 1500 * time.Millisecond
	for name, sql := range map[string]string{
		"held":    `SELECT 1 FROM {schema}.leases WHERE scope = 'shop:a' FOR UPDATE`,
		"changed": `UPDATE {schema}.leases SET holder = holder WHERE scope = 'shop:a'`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := migrated(t)
			s := open(t, cfg)
			l, err := s.Acquire(t.Context(), "shop:a", "a", ttl)
			ok(t, err)
			b := block(t, cfg, sql)
			defer b.after(ttl+500*time.Millisecond, b.tx.Commit)()
			_, err = s.Renew(t.Context(), l.Guard, ttl)
			if e, ok := errors.AsType[*claims.FencedError](err); !ok || e.Status != claims.LeaseExpired {
				t.Errorf("renewal after the lease ran out: %v", err)
			}
		})
	}
}

// TestDeadWaitsForARenewal: one that is under way could make the sender live.
func TestDeadWaitsForARenewal(t *testing.T) {
	cfg := migrated(t)
	s := open(t, cfg)
	l, err := s.Acquire(t.Context(), "@instance:a", "a", time.Second)
	ok(t, err)
	r := put(t, s, record("c"))
	b := block(t, cfg, `SELECT 1 FROM {schema}.leases WHERE scope = '@instance:a' FOR NO KEY UPDATE`)
	time.Sleep(1100 * time.Millisecond) // judged live, not yet written
	_, err = b.tx.Exec(t.Context(), b.schema.sql(`UPDATE {schema}.leases SET expiry = expiry + 60000000000 WHERE scope = '@instance:a'`))
	ok(t, err)
	defer b.after(500*time.Millisecond, b.tx.Commit)()
	_, err = s.Swap(t.Context(), claims.Condition{Dead: l.Guard}, claims.Write{Version: r.Version, Next: r})
	if !errors.Is(err, claims.ErrSenderLives) {
		t.Errorf("swap over a sender that is being renewed: %v", err)
	}
}

// TestClaimsLetRenewalsPass, and renewals claims: neither waits for the other's lock.
func TestClaimsLetRenewalsPass(t *testing.T) {
	cfg := migrated(t)
	s := open(t, cfg)
	l, err := s.Acquire(t.Context(), "shop:a", "a", time.Minute)
	ok(t, err)
	block(t, cfg, `SELECT 1 FROM {schema}.leases FOR KEY SHARE`) // as a claim under way
	_, err = s.Renew(t.Context(), l.Guard, time.Minute)
	ok(t, err)
	block(t, cfg, `SELECT 1 FROM {schema}.leases FOR NO KEY UPDATE`) // as a renewal under way
	_, err = s.Swap(t.Context(), claims.Condition{Guard: l.Guard}, claims.Write{Next: record("c")})
	ok(t, err)
	if err := s.Release(t.Context(), l.Guard); err == nil || claims.Refused(err) { // waits for both, and gives up
		t.Errorf("release beside a claim under way: %v", err)
	}
}

// TestNoDeadlock: two records in both orders, beside leases that are taken, renewed and given back.
func TestNoDeadlock(t *testing.T) {
	cfg := migrated(t)
	cfg.Connections = 20
	s := open(t, cfg)
	keys := []string{"a", "b", "c", "d"}
	var wg sync.WaitGroup
	var swaps, ends atomic.Int64
	for w := range 16 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(w), 1))
			for range 40 {
				scopes := []string{fmt.Sprintf("shop:%d", rng.IntN(3)), fmt.Sprintf("@instance:%d", rng.IntN(3))}
				var err error
				if w%4 == 0 {
					var l claims.Lease
					if l, err = s.Acquire(t.Context(), scopes[w/4%2], "a", time.Minute); err == nil || errors.Is(err, claims.ErrHeld) {
						s.Renew(t.Context(), l.Guard, time.Minute)
						err = s.Release(t.Context(), l.Guard)
						ends.Add(1)
					}
				} else {
					err = swapTwo(t.Context(), s, rng, keys, scopes, &swaps)
				}
				if err != nil && !claims.Refused(err) {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	if swaps.Load() < 20 || ends.Load() < 20 { // of 480 and 160 tries
		t.Errorf("only %d swaps and %d ends", swaps.Load(), ends.Load())
	}
}

func swapTwo(ctx context.Context, s *Store, rng *rand.Rand, keys, scopes []string, swaps *atomic.Int64) error {
	var writes []claims.Write
	for _, i := range rng.Perm(len(keys))[:2] {
		v, err := s.Get(ctx, key(keys[i]), claims.Guard{})
		if err != nil {
			return err
		}
		next := v.Record
		if !next.Exists() {
			next = record(keys[i])
		}
		writes = append(writes, claims.Write{Version: v.Record.Version, Next: next})
	}
	var c claims.Condition
	for _, scope := range scopes {
		l, err := s.State(ctx, scope)
		if err != nil {
			return err
		}
		switch {
		case l.Status != claims.LeaseLive:
			c.Dead = l.Guard
		case c.Guard.IsZero():
			c.Guard = l.Guard
		default:
			c.Sender = l.Guard
		}
	}
	_, err := s.Swap(ctx, c, writes...)
	if err == nil {
		swaps.Add(1)
	}
	return err
}

// TestRenewalsBesideBusyClaimers: however many claims run under a lease, each renewal is done long before its time is up.
func TestRenewalsBesideBusyClaimers(t *testing.T) {
	const ttl = 10 * time.Second
	s := open(t, migrated(t))
	l, err := s.Acquire(t.Context(), "shop:a", "a", ttl)
	ok(t, err)
	ctx, stop := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	var claimed atomic.Int64
	for w := range 32 {
		wg.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				r := record(fmt.Sprintf("%d-%d", w, i))
				if _, err := s.Swap(ctx, claims.Condition{Guard: l.Guard}, claims.Write{Next: r}); err == nil {
					claimed.Add(1)
				}
			}
		})
	}
	var longest time.Duration
	renewals := 0
	for start := time.Now(); time.Since(start) < 5*time.Second; renewals++ {
		asked := time.Now()
		_, err := s.Renew(t.Context(), l.Guard, ttl)
		ok(t, err)
		longest = max(longest, time.Since(asked))
	}
	stop()
	wg.Wait()
	t.Logf("%d renewals, the longest %s, beside %d claims", renewals, longest, claimed.Load())
	if longest > ttl/3 || claimed.Load() < 100 {
		t.Errorf("the longest renewal took %s of a lease of %s", longest, ttl)
	}
}
