-- Times are nanoseconds since 1970 UTC, as Go counts them: the text form of timestamptz depends on the session's DateStyle,
-- and a pooler hands out sessions of any. *_store by the store's clock, *_wall by calendar time; NULL: never.
-- Keys and scopes are bytea, so that no collation can ever merge two of them.

-- One row. (system_id, timeline) is the server that the last writer wrote to; another one has perhaps lost something.
CREATE TABLE {schema}.store (
  one              integer PRIMARY KEY CHECK (one = 1),
  realm            text COLLATE "C" NOT NULL,
  system_id        text COLLATE "C" NOT NULL,
  timeline         bigint  NOT NULL,
  era              bigint  NOT NULL DEFAULT 0 CHECK (era >= 0),
  quarantine_until bigint,
  -- longest lease that a sidecar may grant, in ns
  max_lease        bigint  NOT NULL DEFAULT 0,
  -- JSON list of the standbys of which every one confirms every commit; NULL: there is no such proof
  standbys         text COLLATE "C",
  -- promoted with proof and without a standby of its own since
  unproven         boolean NOT NULL DEFAULT false,
  created          bigint  NOT NULL
);

-- One row: the key set that the migration made, a JSON document. It holds the keys as they are.
CREATE TABLE {schema}.keys (
  one     integer PRIMARY KEY CHECK (one = 1),
  secret  bytea   NOT NULL CHECK (length(secret) > 0),
  created bigint  NOT NULL
);

CREATE TABLE {schema}.calls (
  tenant              bytea   NOT NULL,
  call_key            bytea   NOT NULL,
  version             bigint  NOT NULL CHECK (version > 0),
  state               text COLLATE "C" NOT NULL,
  era                 bigint  NOT NULL CHECK (era >= 0),
  revision            bigint  NOT NULL,
  attempt             bigint  NOT NULL,
  claim_id            bytea   NOT NULL CHECK (length(claim_id) = 16),
  sender_scope        bytea   NOT NULL,
  sender_token        bigint  NOT NULL CHECK (sender_token >= 0),
  deadline            bigint,
  scope               bytea   NOT NULL,
  fingerprint_key     text COLLATE "C" NOT NULL,
  fingerprint_version bigint  NOT NULL,
  fingerprint_mac     bytea,
  gateway             text COLLATE "C" NOT NULL,
  account             text COLLATE "C" NOT NULL,
  endpoint            text COLLATE "C" NOT NULL,
  -- keyed hash of the secret that the call went with
  credential          text COLLATE "C" NOT NULL,
  route               text COLLATE "C" NOT NULL,
  gateway_key         text COLLATE "C" NOT NULL,
  key_place           text COLLATE "C" NOT NULL,
  lookup_form         text COLLATE "C" NOT NULL,
  reference           text COLLATE "C" NOT NULL,
  retention           bigint  NOT NULL,
  settle_after        bigint  NOT NULL,
  lookup              text COLLATE "C",
  first_started_store bigint,
  first_started_wall  bigint,
  attempts            text COLLATE "C",
  evidence            text COLLATE "C",
  -- evidence of success that no decision has taken in
  unread              boolean NOT NULL,
  -- an answer is kept, in answers or beside evidence
  answered            boolean NOT NULL,
  reconciled          boolean NOT NULL,
  payment             text COLLATE "C" NOT NULL,
  -- where its money is has still to be asked for
  poll                boolean NOT NULL,
  misses              bigint  NOT NULL,
  last_miss           bigint,
  next_check          bigint,
  -- times that the sweeper got it since its last write
  checks              bigint  NOT NULL DEFAULT 0,
  review              text COLLATE "C",
  undos               text COLLATE "C",
  undoes              text COLLATE "C" NOT NULL,
  part                text COLLATE "C" NOT NULL,
  -- earlier revisions
  past                text COLLATE "C",
  created_store       bigint,
  created_wall        bigint,
  updated_store       bigint,
  updated_wall        bigint,
  PRIMARY KEY (tenant, call_key)
) WITH (fillfactor = 50);

CREATE INDEX calls_due ON {schema}.calls (next_check NULLS FIRST, tenant, call_key)
  WHERE state IN ('pending', 'unknown') OR unread OR poll;
CREATE INDEX calls_in_doubt ON {schema}.calls (scope) WHERE state IN ('pending', 'unknown');
CREATE INDEX calls_sent ON {schema}.calls (sender_scope, sender_token) WHERE state = 'pending';
CREATE INDEX calls_prunable ON {schema}.calls (updated_store) WHERE answered AND NOT unread;
CREATE INDEX calls_created ON {schema}.calls (created_store);

-- Bodies are large and written once: beside the row that every write copies. body NULL: not kept; '': no bytes came.
CREATE TABLE {schema}.answers (
  tenant   bytea  NOT NULL,
  call_key bytea  NOT NULL,
  status   bigint NOT NULL,
  header   text COLLATE "C",
  body     bytea,
  -- of the key that body holds header and body under; '': as they came
  key_id   text COLLATE "C" NOT NULL,
  PRIMARY KEY (tenant, call_key)
);

-- A row stays when its lease ends: a token is never granted again. Token 0: never taken, only marked as cancelled.
CREATE TABLE {schema}.leases (
  scope         bytea   PRIMARY KEY,
  token         bigint  NOT NULL CHECK (token >= 0),
  era           bigint  NOT NULL CHECK (era >= 0),
  holder        text COLLATE "C" NOT NULL,
  standing      text COLLATE "C" NOT NULL CHECK (standing IN ('held', 'released', 'finished')),
  expiry        bigint  NOT NULL,
  cancelled     boolean NOT NULL,
  renewed_store bigint  NOT NULL,
  renewed_wall  bigint  NOT NULL
) WITH (fillfactor = 50);

CREATE TABLE {schema}.lease_log (
  line     bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  scope    bytea  NOT NULL,
  token    bigint NOT NULL,
  event    text COLLATE "C" NOT NULL,
  holder   text COLLATE "C" NOT NULL,
  at_store bigint NOT NULL,
  at_wall  bigint NOT NULL
);

CREATE INDEX lease_log_scope ON {schema}.lease_log (scope, line);

-- What the store perhaps no longer has: era is the one that began when it was noticed.
CREATE TABLE {schema}.losses (
  era        bigint PRIMARY KEY CHECK (era > 0),
  from_store bigint NOT NULL,
  from_wall  bigint NOT NULL,
  at_store   bigint NOT NULL,
  at_wall    bigint NOT NULL
);

-- What came to rest. Numbers of a sequence become visible out of order, and so do transactions; but once all transactions with a
-- lower id have ended, nothing can come before what is there. Hence read in the order of (era, xid, seq), up to there. xid is
-- pg_current_xact_id(), which goes back on another server: that is another era of the store.
CREATE TABLE {schema}.events (
  era        bigint  NOT NULL,
  xid        bigint  NOT NULL,
  seq        bigint  GENERATED ALWAYS AS IDENTITY,
  tenant     bytea   NOT NULL,
  call_key   bytea   NOT NULL,
  revision   bigint  NOT NULL,
  attempt    bigint  NOT NULL,
  from_state text COLLATE "C" NOT NULL,
  state      text COLLATE "C" NOT NULL,
  outcome    text COLLATE "C" NOT NULL,
  payment    text COLLATE "C" NOT NULL,
  at_store   bigint  NOT NULL,
  at_wall    bigint  NOT NULL,
  told       boolean NOT NULL DEFAULT false,
  next_try   bigint,
  tries      bigint  NOT NULL DEFAULT 0,
  PRIMARY KEY (era, xid, seq)
) WITH (fillfactor = 50);

CREATE INDEX events_untold ON {schema}.events (era, xid, seq) WHERE NOT told;
CREATE INDEX events_old ON {schema}.events (at_store);

-- What a sidecar said of itself under its own lease; it counts while that very lease is live. keys: JSON list of ids.
CREATE TABLE {schema}.members (
  scope   bytea  PRIMARY KEY,
  token   bigint NOT NULL,
  version text COLLATE "C" NOT NULL,
  schema  bigint NOT NULL,
  keys    text COLLATE "C"
);

CREATE FUNCTION {schema}.refuse_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION 'table % is append-only', TG_TABLE_NAME;
END $$;

CREATE TRIGGER lease_log_keeps_lines BEFORE UPDATE OR DELETE OR TRUNCATE ON {schema}.lease_log
  FOR EACH STATEMENT EXECUTE FUNCTION {schema}.refuse_change();
CREATE TRIGGER losses_keep_lines BEFORE UPDATE OR DELETE OR TRUNCATE ON {schema}.losses
  FOR EACH STATEMENT EXECUTE FUNCTION {schema}.refuse_change();

-- Runs right before COMMIT: what was judged by leases must be committed before they run out, however long the statements
-- between waited or the client stood still. Microseconds since 1970.
CREATE FUNCTION {schema}.in_time(until bigint) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
  IF (extract(epoch FROM clock_timestamp()) * 1000000)::bigint >= until THEN
    RAISE EXCEPTION 'the lease ran out before the commit' USING ERRCODE = 'FS001';
  END IF;
END $$;

REVOKE ALL ON FUNCTION {schema}.in_time(bigint), {schema}.refuse_change() FROM PUBLIC;
