-- Fenced effects: writes of the application's own rows in this database that happen once per (tenant, name, key), in the
-- application's own transaction and under its lease. The application calls begin_effect and end_effect; it has no right on any
-- table here. Refusals have SQLSTATEs of their own, FS1xx (docs/effects.md).

CREATE TABLE {schema}.effects (
  tenant      bytea   NOT NULL,
  name        bytea   NOT NULL,
  effect_key  bytea   NOT NULL,
  fingerprint bytea   NOT NULL,
  -- the lease that it ran under
  scope       bytea   NOT NULL,
  token       bigint  NOT NULL CHECK (token > 0),
  -- the transaction that began it
  xid         bigint  NOT NULL,
  -- false only within that transaction: the trigger below lets no such row be committed
  ended       boolean NOT NULL,
  result      bytea,
  created     bigint  NOT NULL,
  PRIMARY KEY (tenant, name, effect_key)
);

CREATE INDEX effects_open ON {schema}.effects (xid) WHERE NOT ended;
CREATE INDEX effects_created ON {schema}.effects (created);

-- The highest token of each scope under which an effect came.
CREATE TABLE {schema}.effect_marks (
  scope bytea  PRIMARY KEY,
  token bigint NOT NULL CHECK (token > 0)
) WITH (fillfactor = 50);

-- One row, for the owner to change. max_result: of one effect, in bytes.
CREATE TABLE {schema}.effect_settings (
  one        integer PRIMARY KEY CHECK (one = 1),
  max_result bigint  NOT NULL CHECK (max_result BETWEEN 0 AND 16777216)
);
INSERT INTO {schema}.effect_settings (one, max_result) VALUES (1, 65536);

CREATE FUNCTION {schema}.effect_clock() RETURNS bigint LANGUAGE sql AS $$
  SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint * 1000
$$;

-- A caller's collation applies inside of a function too, also one that takes different texts for the same. So texts are compared
-- as bytes only.
CREATE FUNCTION {schema}.effect_bytes(what text, given text) RETURNS bytea LANGUAGE plpgsql AS $$
BEGIN
  IF given IS NULL OR octet_length(given) NOT BETWEEN 1 AND 255 THEN
    RAISE EXCEPTION 'the % of an effect has 1 to 255 bytes', what USING ERRCODE = 'FS101';
  ELSIF given COLLATE "C" ~ '[\u0001-\u001f\u007f-\u009f]' THEN
    RAISE EXCEPTION 'the % of an effect has a control character', what USING ERRCODE = 'FS101';
  END IF;
  RETURN convert_to(given, 'UTF8');
END $$;

-- encodeURIComponent (ECMA-262)
CREATE FUNCTION {schema}.effect_component(given bytea) RETURNS bytea LANGUAGE plpgsql AS $$
DECLARE
  out bytea := '';
  c   integer;
BEGIN
  FOR i IN 0 .. length(given) - 1 LOOP
    c := get_byte(given, i);
    IF c BETWEEN 48 AND 57 OR c BETWEEN 65 AND 90 OR c BETWEEN 97 AND 122 OR c IN (45, 95, 46, 33, 126, 42, 39, 40, 41) THEN
      out := out || substring(given FROM i + 1 FOR 1);
    ELSE
      out := out || convert_to('%' || upper(lpad(to_hex(c), 2, '0')), 'UTF8');
    END IF;
  END LOOP;
  RETURN out;
END $$;

-- The parts of <scopeKey>#<token>, the scope being one of the tenant's.
CREATE FUNCTION {schema}.effect_token(given text, of_tenant bytea, OUT scope bytea, OUT number bigint) LANGUAGE plpgsql AS $$
DECLARE
  parts text[] COLLATE "C";
BEGIN
  parts := regexp_match(given COLLATE "C", '^([^#@:][^#:]*:[^#:]+)#([1-9][0-9]{0,18})$');
  IF parts IS NULL OR octet_length(given) > 1044 OR parts[2]::numeric > 9223372036854775807 THEN
    RAISE EXCEPTION 'a lease''s token is <scopeKey>#<token>, as the sidecar gave it' USING ERRCODE = 'FS101';
  END IF;
  scope := convert_to(parts[1], 'UTF8');
  number := parts[2]::bigint;
  IF convert_to(split_part(parts[1], ':', 1), 'UTF8') <> {schema}.effect_component(of_tenant) THEN
    RAISE EXCEPTION 'the token is one of another tenant' USING ERRCODE = 'FS102';
  END IF;
END $$;

-- How long the lease is still live, in ns; an exception where it is not.
CREATE FUNCTION {schema}.effect_lease(of_scope bytea, given bigint) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
  st   record;
  l    record;
  name text := convert_from(of_scope, 'UTF8') || '#' || given;
  now  bigint;
BEGIN
  SELECT s.era, s.quarantine_until, s.system_id, s.timeline INTO STRICT st FROM {schema}.store s;
  SELECT r.token, r.era, r.standing, r.expiry INTO l FROM {schema}.leases r WHERE r.scope = of_scope;
  now := {schema}.effect_clock();
  IF convert_to(st.system_id, 'UTF8') <> (SELECT convert_to(c.system_identifier::text, 'UTF8') FROM pg_control_system() c)
    OR st.timeline <> ('x' || left(pg_walfile_name(pg_current_wal_lsn()), 8))::bit(32)::bigint THEN
    RAISE EXCEPTION 'the store is on another server than before: a sidecar must look first whether leases were lost'
      USING ERRCODE = 'FS109', HINT = 'Try again once a sidecar is ready.';
  ELSIF st.quarantine_until > now THEN
    RAISE EXCEPTION 'the store perhaps lost leases that it had granted: in quarantine'
      USING ERRCODE = 'FS108', DETAIL = ((st.quarantine_until - now) / 1000000)::text || ' ms left';
  ELSIF l.token IS NULL OR given > l.token THEN
    RAISE EXCEPTION 'lease % is absent: it was not granted by this database''s store', name USING ERRCODE = 'FS103';
  ELSIF given < l.token THEN
    RAISE EXCEPTION 'lease % is superseded: another holder has taken over', name USING ERRCODE = 'FS105';
  ELSIF l.standing = 'released' THEN
    RAISE EXCEPTION 'lease % is released', name USING ERRCODE = 'FS106';
  ELSIF l.standing <> 'held' THEN
    RAISE EXCEPTION 'lease % is finished', name USING ERRCODE = 'FS107';
  ELSIF l.expiry <= now OR l.era < st.era THEN
    RAISE EXCEPTION 'lease % is expired', name USING ERRCODE = 'FS104';
  END IF;
  RETURN l.expiry - now;
END $$;

-- Refuses a token below the highest that came, and takes in a higher one. Where two sessions do that first, one waits.
CREATE FUNCTION {schema}.effect_mark(of_scope bytea, given bigint) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
  mark bigint;
BEGIN
  LOOP
    SELECT m.token INTO mark FROM {schema}.effect_marks m WHERE m.scope = of_scope;
    IF mark > given THEN
      RAISE EXCEPTION 'lease %#% is superseded: an effect came under token %', convert_from(of_scope, 'UTF8'), given, mark
        USING ERRCODE = 'FS105';
    ELSIF mark = given THEN
      RETURN;
    ELSIF mark IS NULL THEN
      INSERT INTO {schema}.effect_marks AS m (scope, token) VALUES (of_scope, given) ON CONFLICT DO NOTHING;
    ELSE
      UPDATE {schema}.effect_marks m SET token = given WHERE m.scope = of_scope AND m.token < given;
    END IF;
  END LOOP;
END $$;

-- begin_effect begins an effect: lease, then mark, then key. replayed: it has happened already; result is what end_effect stored,
-- and the work must not run. Else the work runs now, and end_effect follows in the same transaction.
--
-- The lease's row stays locked until the transaction ends: renewals pass, a take waits. So whoever gets the lease next comes after
-- this transaction, whatever becomes of it. One that stands still must not keep the lease from others: where the
-- application has set no limit, or one that is longer than the lease, the server ends it.
--
-- The commit waits for what the store's own commits wait for, whatever the application has set.
CREATE FUNCTION {schema}.begin_effect(token text, tenant text, name text, key text, fingerprint bytea,
  OUT replayed boolean, OUT result bytea) LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  in_tenant bytea := {schema}.effect_bytes('tenant', tenant);
  of_name   bytea := {schema}.effect_bytes('name', name);
  under_key bytea := {schema}.effect_bytes('key', key);
  given     bytea := fingerprint;
  lease     record;
  locked    boolean;
  left_ns   bigint;
  left_ms   bigint;
  idle_ms   bigint;
  e         record;
BEGIN
  IF given IS NULL OR octet_length(given) NOT BETWEEN 1 AND 255 THEN
    RAISE EXCEPTION 'the fingerprint of an effect has 1 to 255 bytes' USING ERRCODE = 'FS101';
  END IF;
  lease := {schema}.effect_token(token, in_tenant);

  left_ns := {schema}.effect_lease(lease.scope, lease.number); -- a dead token does not wait for the row, nor lock it
  LOOP
    PERFORM 1 FROM {schema}.leases l WHERE l.scope = lease.scope FOR KEY SHARE;
    locked := FOUND;
    left_ns := {schema}.effect_lease(lease.scope, lease.number);
    EXIT WHEN locked; -- else the row is only just there
  END LOOP;
  left_ms := greatest(left_ns / 1000000, 1000);
  SELECT s.setting::bigint INTO STRICT idle_ms FROM pg_settings s WHERE s.name = 'idle_in_transaction_session_timeout';
  IF idle_ms = 0 OR idle_ms > left_ms THEN
    PERFORM set_config('idle_in_transaction_session_timeout', left_ms::text, true);
  END IF;
  IF current_setting('synchronous_commit') IN ('off', 'local') OR current_setting('synchronous_commit') = 'remote_write'
    AND EXISTS (SELECT 1 FROM {schema}.store s WHERE s.standbys IS NOT NULL) THEN -- those are to have it on their disks
    PERFORM set_config('synchronous_commit', 'on', true);
  END IF;

  PERFORM {schema}.effect_mark(lease.scope, lease.number);

  IF EXISTS (SELECT 1 FROM {schema}.effects o WHERE NOT o.ended AND o.xid = pg_current_xact_id()::text::bigint) THEN
    RAISE EXCEPTION 'an effect was begun in this transaction and is not ended: effects do not nest' USING ERRCODE = 'FS112';
  END IF;
  SET CONSTRAINTS {schema}.effects_are_ended DEFERRED; -- the application may have made all of them immediate
  LOOP
    INSERT INTO {schema}.effects AS o (tenant, name, effect_key, fingerprint, scope, token, xid, ended, created)
      VALUES (in_tenant, of_name, under_key, given, lease.scope, lease.number, pg_current_xact_id()::text::bigint, false,
        {schema}.effect_clock())
      ON CONFLICT DO NOTHING; -- waits for a transaction that has begun the same one
    IF FOUND THEN
      replayed := false;
      RETURN;
    END IF;
    SELECT o.fingerprint, o.ended, o.result INTO e FROM {schema}.effects o
      WHERE o.tenant = in_tenant AND o.name = of_name AND o.effect_key = under_key;
    EXIT WHEN FOUND; -- else it was purged meanwhile
  END LOOP;
  PERFORM {schema}.effect_lease(lease.scope, lease.number); -- the wait may have been long
  IF NOT e.ended THEN
    RAISE EXCEPTION 'the effect was left open' USING ERRCODE = 'FS114';
  ELSIF e.fingerprint <> given THEN
    RAISE EXCEPTION 'the effect has happened already, with another fingerprint' USING ERRCODE = 'FS110';
  END IF;
  replayed := true;
  result := e.result;
END $$;

-- end_effect stores what a repeat gets. It comes after the work, in the transaction that began the effect.
CREATE FUNCTION {schema}.end_effect(tenant text, name text, key text, result bytea) RETURNS void
  LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  in_tenant bytea := {schema}.effect_bytes('tenant', tenant);
  of_name   bytea := {schema}.effect_bytes('name', name);
  under_key bytea := {schema}.effect_bytes('key', key);
  given     bytea := result;
  most      bigint;
  e         record;
BEGIN
  SELECT s.max_result INTO STRICT most FROM {schema}.effect_settings s;
  IF octet_length(given) > most THEN
    RAISE EXCEPTION 'the result of the effect has % bytes, at most % are kept', octet_length(given), most USING ERRCODE = 'FS111';
  END IF;
  SELECT o.scope, o.token INTO e FROM {schema}.effects o
    WHERE o.tenant = in_tenant AND o.name = of_name AND o.effect_key = under_key
      AND NOT o.ended AND o.xid = pg_current_xact_id()::text::bigint;
  IF NOT FOUND THEN
    RAISE EXCEPTION 'the effect was not begun in this transaction, or has ended' USING ERRCODE = 'FS113';
  END IF;
  PERFORM {schema}.effect_lease(e.scope, e.token);
  SET CONSTRAINTS {schema}.effects_are_ended DEFERRED;
  UPDATE {schema}.effects AS o SET ended = true, result = given
    WHERE o.tenant = in_tenant AND o.name = of_name AND o.effect_key = under_key;
END $$;

-- Runs at COMMIT: an effect is committed with its result, and while its lease is live.
CREATE FUNCTION {schema}.effect_commit() RETURNS trigger
  LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  done boolean;
BEGIN
  SELECT e.ended INTO done FROM {schema}.effects e
    WHERE e.tenant = NEW.tenant AND e.name = NEW.name AND e.effect_key = NEW.effect_key;
  IF NOT done THEN
    RAISE EXCEPTION 'the effect % of key % was begun and not ended', convert_from(NEW.name, 'UTF8'),
      convert_from(NEW.effect_key, 'UTF8') USING ERRCODE = 'FS114', HINT = 'Call end_effect, or roll back.';
  END IF;
  PERFORM {schema}.effect_lease(NEW.scope, NEW.token);
  RETURN NULL;
END $$;

CREATE CONSTRAINT TRIGGER effects_are_ended AFTER INSERT ON {schema}.effects
  DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION {schema}.effect_commit();

-- How long a token's lease is still live, in ms; an exception as begin_effect's. It locks nothing: the answer is old at once.
CREATE FUNCTION {schema}.check_token(token text, tenant text) RETURNS bigint
  LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
DECLARE
  lease record;
BEGIN
  IF pg_is_in_recovery() THEN
    RAISE EXCEPTION 'a standby does not know the leases' USING ERRCODE = '25006';
  END IF;
  lease := {schema}.effect_token(token, {schema}.effect_bytes('tenant', tenant));
  RETURN {schema}.effect_lease(lease.scope, lease.number) / 1000000;
END $$;

-- Which store this is: an application compares the realm with that of its sidecar when it starts.
CREATE FUNCTION {schema}.effects_store(OUT realm text, OUT max_result bigint, OUT read_only boolean)
  LANGUAGE sql STABLE SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
  SELECT s.realm, e.max_result, pg_is_in_recovery() OR current_setting('transaction_read_only') = 'on'
  FROM {schema}.store s, {schema}.effect_settings e
$$;

REVOKE ALL ON FUNCTION {schema}.effect_clock(), {schema}.effect_bytes(text, text), {schema}.effect_component(bytea),
  {schema}.effect_token(text, bytea), {schema}.effect_lease(bytea, bigint), {schema}.effect_mark(bytea, bigint),
  {schema}.begin_effect(text, text, text, text, bytea), {schema}.end_effect(text, text, text, bytea), {schema}.effect_commit(),
  {schema}.check_token(text, text), {schema}.effects_store() FROM PUBLIC;
