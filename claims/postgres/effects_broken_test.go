package postgres

import (
	"context"
	"errors"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/fence-sidecar/fence-sidecar/claims"
	"github.com/fence-sidecar/fence-sidecar/claims/claimstest"
)

// brokenSQL are functions with one of their checks taken out or turned around, and the rule that must notice.
var brokenSQL = []struct{ rule, function, old, with string }{
	{"effect/zombie-comes-first", "begin_effect", `left_ns := {schema}.effect_lease(lease.scope, lease.number);`, `left_ns := 1000000000;`},
	{"effect/zombie-gets-no-result", "begin_effect", `  lease := {schema}.effect_token(token, in_tenant);`, `
  SELECT true, o.result INTO replayed, result FROM {schema}.effects o
    WHERE o.tenant = in_tenant AND o.name = of_name AND o.effect_key = under_key;
  IF replayed THEN
    RETURN;
  END IF;
  lease := {schema}.effect_token(token, in_tenant);`},
	{"effect/mark", "begin_effect", `PERFORM {schema}.effect_mark(lease.scope, lease.number);`, ``},
	{"effect/replay-advances-the-mark", "begin_effect", `PERFORM {schema}.effect_mark(lease.scope, lease.number);`, `
  IF NOT EXISTS (SELECT 1 FROM {schema}.effects o WHERE o.effect_key = under_key) THEN
    PERFORM {schema}.effect_mark(lease.scope, lease.number);
  END IF;`},
	{"effect/marks-are-by-scope", "effect_mark", `SELECT m.token INTO mark FROM {schema}.effect_marks m WHERE m.scope = of_scope;`,
		`SELECT max(m.token) INTO mark FROM {schema}.effect_marks m;`},
	{"effect/other-fingerprint", "begin_effect", `e.fingerprint <> given`, `false`},
	{"effect/runs-once", "end_effect", `result = given`, `result = NULL`},
	{"effect/result-limit", "end_effect", `octet_length(given) > most`, `false`},
	{"effect/result-limit", "end_effect", `octet_length(given) > most`, `octet_length(given) >= most`},
	{"effect/keys-are-bytes", "effect_bytes", `convert_to(given, 'UTF8')`, `convert_to(lower(given), 'UTF8')`},
	{"effect/keys-are-bytes", "effect_bytes", `convert_to(given, 'UTF8')`, `convert_to(rtrim(given), 'UTF8')`},
	{"effect/keys-are-bytes", "effect_bytes", `convert_to(given, 'UTF8')`, `convert_to(normalize(given), 'UTF8')`},
	{"effect/lease-must-be-live", "effect_lease", `l.standing = 'released'`, `false`},
	{"effect/lease-must-be-live", "effect_lease", `l.standing <> 'held'`, `false`},
	{"effect/lease-must-be-live", "effect_lease", `l.expiry <= now OR`, ``},
	{"effect/lease-must-be-live", "effect_lease", `l.token IS NULL OR given > l.token`, `l.token IS NULL`},
	{"commit/in-time", "effect_commit", `PERFORM {schema}.effect_lease(NEW.scope, NEW.token);`, ``},
	{"commit/expires-by-itself", "effect_clock", `clock_timestamp()`, `now()`},
	{"commit/renewed-meanwhile", "effect_commit", `PERFORM {schema}.effect_lease(NEW.scope, NEW.token);`,
		`PERFORM 1 / (SELECT (max(e.created) + 1000000000 > {schema}.effect_clock())::integer FROM {schema}.effects e);`},
	{"commit/not-ended", "effect_commit", `IF NOT done`, `IF false`},
	{"commit/immediate-constraints", "begin_effect", `SET CONSTRAINTS {schema}.effects_are_ended DEFERRED;`, ``},
	{"commit/immediate-constraints", "end_effect", `ended = true, result`, `result`},
	{"lease/take-waits", "begin_effect", ` FOR KEY SHARE`, ``},
	{"lease/dead-token-waits-for-nobody", "begin_effect", `left_ns := {schema}.effect_lease(lease.scope, lease.number); -- a dead`, `-- a dead`},
	{"lease/judged-after-the-wait", "begin_effect", `    left_ns := {schema}.effect_lease(lease.scope, lease.number);
    EXIT`, `    EXIT`},
	{"lease/idle-is-ended", "begin_effect", `PERFORM set_config('idle`, `PERFORM format('idle`},
	{"lease/idle-is-ended", "begin_effect", `IF idle_ms = 0 OR idle_ms > left_ms THEN`, `IF true THEN`},
	{"lease/idle-is-ended", "begin_effect", `idle_ms = 0 OR`, ``},
	{"lease/idle-is-ended", "begin_effect", `OR idle_ms > left_ms`, ``},
	{"commit/waits-for-the-disk", "begin_effect", `PERFORM set_config('synchronous`, `PERFORM format('synchronous`},
	{"commit/waits-for-the-disk", "begin_effect", `IN ('off', 'local')`, `IN ('off')`},
	{"commit/waits-for-the-disk", "begin_effect", `AND EXISTS (SELECT 1 FROM {schema}.store s WHERE s.standbys IS NOT NULL)`, ``},
	{"commit/waits-for-the-disk", "begin_effect", `OR current_setting('synchronous_commit') = 'remote_write'`, `OR false`},
	{"lease/quarantine", "effect_lease", `st.quarantine_until > now`, `false`},
	{"lease/earlier-era", "effect_lease", ` OR l.era < st.era`, ``},
	{"lease/other-server", "effect_lease", `OR st.timeline <>`, `AND st.timeline <>`},
	{"nested/refused", "begin_effect", `IF EXISTS (SELECT 1 FROM {schema}.effects o WHERE NOT o.ended`, `IF EXISTS (SELECT 1 FROM {schema}.effects o WHERE false`},
	{"nested/one-after-the-other", "begin_effect", `WHERE NOT o.ended AND o.xid`, `WHERE o.xid`},
	{"nested/one-after-the-other", "end_effect", `AND NOT o.ended AND o.xid = pg_current_xact_id()::text::bigint`, ``},
	{"rollback/frees-the-key", "end_effect", `NOT o.ended AND o.xid = pg_current_xact_id()::text::bigint`, `o.created < 0`},
	{"rollback/to-a-savepoint", "end_effect", `UPDATE {schema}.effects AS o SET ended = true, result = given`,
		`UPDATE {schema}.effects AS o SET ended = true, result = 'first'`},
	{"at-once/second-waits", "begin_effect", `ON CONFLICT DO NOTHING;`, `;`},
	{"at-once/expired-while-waiting", "begin_effect", `PERFORM {schema}.effect_lease(lease.scope, lease.number); -- the wait`, `-- the wait`},
	{"at-once/repeatable-read", "begin_effect", `ON CONFLICT DO NOTHING;`, `;`},
	{"arguments/tokens", "effect_token", `parts[2]::numeric`, `0`},
	{"arguments/tokens", "effect_token", `convert_to(split_part(parts[1], ':', 1), 'UTF8') <> {schema}.effect_component(of_tenant)`, `false`},
	{"arguments/tokens", "effect_token", `^([^#@:]`, `^([^#:]`},
	{"arguments/tokens", "effect_bytes", `COLLATE "C" ~ '[\u0001-\u001f\u007f-\u009f]'`, `COLLATE "C" ~ '[\u0001-\u001f\u007f]'`},
	{"arguments/collation", "effect_token", `convert_to(split_part(parts[1], ':', 1), 'UTF8') <> {schema}.effect_component(of_tenant)`,
		`split_part(given, ':', 1) <> convert_from({schema}.effect_component(of_tenant), 'UTF8')`},
	{"settings/max-result", "end_effect", `SELECT s.max_result INTO STRICT most`, `SELECT 65536 INTO STRICT most`},
}

var functions = regexp.MustCompile(`(?s)CREATE FUNCTION \{schema\}\.(\w+)\(.*?\$\$;`)

// TestBrokenEffectFunctionsAreCaught installs each in turn.
func TestBrokenEffectFunctionsAreCaught(t *testing.T) {
	all, err := migrations()
	ok(t, err)
	texts := map[string]string{}
	for _, m := range functions.FindAllStringSubmatch(all[1].sql, -1) {
		texts[m[1]] = "CREATE OR REPLACE" + strings.TrimPrefix(m[0], "CREATE")
	}
	s := newShop(t)
	caught := map[string]bool{}
	for _, b := range brokenSQL {
		t.Run(b.rule, func(t *testing.T) {
			text := texts[b.function]
			broken := strings.ReplaceAll(text, b.old, b.with)
			if broken == text {
				t.Fatalf("%s has no %q", b.function, b.old)
			}
			s.change(t, broken)
			defer s.change(t, text)
			if len(s.failures(t, b.rule)) == 0 {
				t.Errorf("%s with %q instead of %q passes", b.function, b.with, b.old)
			}
			caught[b.rule] = true
		})
	}
	for _, r := range sqlRules {
		if !caught[r.name] {
			t.Errorf("no broken function shows that %s bites", r.name)
		}
	}
}

// failures runs one rule, of either kind.
func (s *shop) failures(t *testing.T, rule string) []string {
	t.Helper()
	if i := slices.IndexFunc(sqlRules, func(r sqlRule) bool { return r.name == rule }); i >= 0 {
		return sqlRules[i].problems(t, s)
	}
	s.empty(t)
	return claimstest.EffectFailures(t.Context(), effectRule(t, rule), s.harness(t))
}

func effectRule(t *testing.T, name string) claimstest.EffectRule {
	t.Helper()
	all := claimstest.EffectRules()
	i := slices.IndexFunc(all, func(r claimstest.EffectRule) bool { return r.Name == name })
	if i < 0 {
		t.Fatalf("no rule %s", name)
	}
	return all[i]
}

type (
	putWork = func(claimstest.Put) ([]byte, error)
	doing   = func(ctx context.Context, e claims.Effect, work putWork) ([]byte, bool, error)
)

// changed is a Do that runs another effect than it was asked for.
func changed(change func(e *claims.Effect)) func(*shop, doing) doing {
	return func(_ *shop, do doing) doing {
		return func(ctx context.Context, e claims.Effect, work putWork) ([]byte, bool, error) {
			change(&e)
			return do(ctx, e, work)
		}
	}
}

// brokenCallers are what an application, or another implementation, might do around the functions.
var brokenCallers = []struct {
	name  string
	rules []string
	wrap  func(*shop, doing) doing
}{
	{"rows outside of the transaction", []string{"effect/failed-work-leaves-nothing", "effect/panic-leaves-nothing", "effect/expires-while-working"},
		func(s *shop, do doing) doing {
			return func(ctx context.Context, e claims.Effect, work putWork) ([]byte, bool, error) {
				return do(ctx, e, func(claimstest.Put) ([]byte, error) {
					return work(func(row string) error {
						_, err := s.pool.Exec(ctx, s.schema.sql(`INSERT INTO {schema}.charges (what) VALUES ($1)`), row)
						return err
					})
				})
			}
		}},
	{"the work first", []string{"effect/at-once", "effect/runs-once"}, func(_ *shop, do doing) doing {
		return func(ctx context.Context, e claims.Effect, work putWork) ([]byte, bool, error) {
			result, err := work(func(string) error { return nil })
			if err != nil {
				return nil, false, err
			}
			return do(ctx, e, func(claimstest.Put) ([]byte, error) { return result, nil })
		}
	}},
	{"a key per token", []string{"effect/replays-under-a-later-token"}, changed(func(e *claims.Effect) { e.Key = e.Guard.String() + e.Key })},
	{"one key for all", []string{"effect/other-keys-in-turn"}, changed(func(e *claims.Effect) { e.Key = "same" })},
	{"the tenant of the token", []string{"effect/tenants"}, changed(func(e *claims.Effect) { e.Tenant, _, _ = claims.SplitScope(e.Guard.Scope) })},
	{"a key for those without", []string{"effect/bad"}, changed(func(e *claims.Effect) {
		if e.Key == "" {
			e.Key = "none"
		}
	})},
	{"no nil", []string{"effect/nil-and-empty-results"}, func(_ *shop, do doing) doing {
		return func(ctx context.Context, e claims.Effect, work putWork) ([]byte, bool, error) {
			result, replayed, err := do(ctx, e, work)
			return append([]byte{}, result...), replayed, err
		}
	}},
	{"joining without a fence", []string{"effect/stale-caller-beside-a-run", "effect/caller-who-gives-up"}, func(_ *shop, do doing) doing {
		var running sync.Map
		return func(ctx context.Context, e claims.Effect, work putWork) ([]byte, bool, error) {
			if _, there := running.LoadOrStore(e.Key, true); there {
				return nil, true, nil
			}
			return do(ctx, e, work)
		}
	}},
	{"joining without a fence after the wait", []string{"effect/lease-ends-while-waiting"}, func(_ *shop, do doing) doing {
		var ran sync.Map
		return func(ctx context.Context, e claims.Effect, work putWork) ([]byte, bool, error) {
			done := make(chan struct{})
			if other, there := ran.LoadOrStore(e.Key, done); there {
				<-other.(chan struct{})
				return nil, true, nil
			}
			defer close(done)
			return do(ctx, e, work)
		}
	}},
	{"failures shared", []string{"effect/failures-are-not-shared"}, func(_ *shop, do doing) doing {
		var once sync.Once
		var err error
		return func(ctx context.Context, e claims.Effect, work putWork) (result []byte, replayed bool, _ error) {
			once.Do(func() {
				err = errors.New("of another")
				result, replayed, err = do(ctx, e, work)
			})
			return result, replayed, err
		}
	}},
}

// TestBrokenEffectCallersAreCaught also looks that every rule of the contract is broken by something.
func TestBrokenEffectCallersAreCaught(t *testing.T) {
	s := newShop(t)
	caught := map[string]bool{}
	for _, b := range brokenSQL {
		caught[b.rule] = true
	}
	for _, b := range brokenCallers {
		for _, rule := range b.rules {
			t.Run(rule, func(t *testing.T) {
				s.empty(t)
				h := s.harness(t)
				h.Do = b.wrap(s, h.Do)
				if len(claimstest.EffectFailures(t.Context(), effectRule(t, rule), h)) == 0 {
					t.Errorf("with %s it passes", b.name)
				}
				caught[rule] = true
			})
		}
	}
	for _, r := range claimstest.EffectRules() {
		if !caught[r.Name] {
			t.Errorf("nothing broken shows that %s bites", r.Name)
		}
	}
}
