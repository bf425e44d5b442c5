-- Times are nanoseconds since 1970 UTC; *_store by the store's clock, *_wall by calendar time; NULL: never.

-- One row. clock_identity and clock_base are set by the first process that opens the store: store time is
-- clock_base + CLOCK_BOOTTIME of the boot and time namespace named by clock_identity.
CREATE TABLE store (
  one            INTEGER PRIMARY KEY CHECK (one = 1),
  realm          TEXT    NOT NULL,
  clock_identity TEXT,
  clock_base     INTEGER,
  last_store     INTEGER,
  last_wall      INTEGER
) STRICT;

-- One row: the key set that the migration made, a JSON document. It holds the keys as they are.
CREATE TABLE keys (
  one          INTEGER PRIMARY KEY CHECK (one = 1),
  secret       BLOB    NOT NULL CHECK (length(secret) > 0),
  created_wall INTEGER NOT NULL
) STRICT;

-- Keys are BLOBs so that no collation can ever merge two of them.
CREATE TABLE calls (
  tenant              BLOB    NOT NULL,
  call_key            BLOB    NOT NULL,
  version             INTEGER NOT NULL CHECK (version > 0),
  era                 INTEGER NOT NULL,
  state               TEXT    NOT NULL,
  revision            INTEGER NOT NULL,
  attempt             INTEGER NOT NULL,
  claim_id            BLOB    NOT NULL CHECK (length(claim_id) = 16),
  sender_scope        TEXT    NOT NULL,
  sender_token        INTEGER NOT NULL,
  deadline            INTEGER,
  scope               TEXT    NOT NULL,
  fingerprint_key     TEXT    NOT NULL,
  fingerprint_version INTEGER NOT NULL,
  fingerprint_mac     BLOB,
  gateway             TEXT    NOT NULL,
  account             TEXT    NOT NULL,
  endpoint            TEXT    NOT NULL,
  -- keyed hash of the secret that the call went with
  credential          TEXT    NOT NULL,
  route               TEXT    NOT NULL,
  gateway_key         TEXT    NOT NULL,
  key_place           TEXT    NOT NULL,
  lookup_form         TEXT    NOT NULL,
  reference           TEXT    NOT NULL,
  retention           INTEGER NOT NULL,
  settle_after        INTEGER NOT NULL,
  lookup              TEXT,
  first_started_store INTEGER,
  first_started_wall  INTEGER,
  attempts            TEXT,
  evidence            TEXT,
  -- evidence of success that no decision has taken in
  unread              INTEGER NOT NULL CHECK (unread IN (0, 1)),
  -- an answer is kept, in answers or beside evidence
  answered            INTEGER NOT NULL CHECK (answered IN (0, 1)),
  reconciled          INTEGER NOT NULL CHECK (reconciled IN (0, 1)),
  payment             TEXT    NOT NULL,
  -- where its money is has still to be asked for
  poll                INTEGER NOT NULL CHECK (poll IN (0, 1)),
  misses              INTEGER NOT NULL,
  last_miss           INTEGER,
  next_check          INTEGER,
  -- times that the sweeper got it since its last write
  checks              INTEGER NOT NULL DEFAULT 0,
  review              TEXT,
  undos               TEXT,
  undoes              TEXT    NOT NULL,
  part                TEXT    NOT NULL,
  -- earlier revisions
  past                TEXT,
  created_store       INTEGER,
  created_wall        INTEGER,
  updated_store       INTEGER,
  updated_wall        INTEGER,
  PRIMARY KEY (tenant, call_key)
) STRICT;

CREATE INDEX calls_due ON calls (next_check) WHERE state IN ('pending', 'unknown') OR unread = 1 OR poll = 1;
CREATE INDEX calls_in_doubt ON calls (scope) WHERE state IN ('pending', 'unknown');
CREATE INDEX calls_sent ON calls (sender_scope, sender_token) WHERE state = 'pending';
CREATE INDEX calls_prunable ON calls (updated_store) WHERE answered = 1 AND unread = 0;
CREATE INDEX calls_created ON calls (created_store);

-- Bodies are large and written once: beside the row that every write copies. body NULL: not kept; x'': no bytes came.
-- key_id names the key under which body is sealed with the header; '': as they came.
CREATE TABLE answers (
  tenant   BLOB    NOT NULL,
  call_key BLOB    NOT NULL,
  status   INTEGER NOT NULL,
  header   TEXT,
  body     BLOB,
  key_id   TEXT    NOT NULL,
  PRIMARY KEY (tenant, call_key)
) STRICT;

-- A row stays when its lease ends: a token is never granted again.
CREATE TABLE leases (
  scope         TEXT    PRIMARY KEY,
  -- 0: never taken, only cancelled
  token         INTEGER NOT NULL CHECK (token >= 0),
  holder        TEXT    NOT NULL,
  -- of an external token neither standing nor expiry counts
  standing      TEXT    NOT NULL CHECK (standing IN ('held', 'released', 'finished')),
  cancelled     INTEGER NOT NULL CHECK (cancelled IN (0, 1)),
  expiry        INTEGER NOT NULL,
  renewed_store INTEGER NOT NULL,
  renewed_wall  INTEGER NOT NULL
) STRICT;

CREATE TABLE lease_log (
  line     INTEGER PRIMARY KEY AUTOINCREMENT,
  scope    TEXT    NOT NULL,
  token    INTEGER NOT NULL,
  event    TEXT    NOT NULL CHECK (event IN ('take', 'takeover', 'release', 'finish', 'cancel')),
  holder   TEXT    NOT NULL,
  at_store INTEGER NOT NULL,
  at_wall  INTEGER NOT NULL
) STRICT;

CREATE INDEX lease_log_scope ON lease_log (scope, line);

CREATE TRIGGER lease_log_keeps_lines BEFORE UPDATE ON lease_log
BEGIN SELECT RAISE(ABORT, 'the lease log is append-only'); END;

CREATE TRIGGER lease_log_loses_none BEFORE DELETE ON lease_log
BEGIN SELECT RAISE(ABORT, 'the lease log is append-only'); END;

-- One writer at a time gives ids in the order of commits; an id is never given again, also when its event is dropped.
CREATE TABLE events (
  id       INTEGER PRIMARY KEY AUTOINCREMENT,
  tenant   BLOB    NOT NULL,
  call_key BLOB    NOT NULL,
  revision INTEGER NOT NULL,
  attempt  INTEGER NOT NULL,
  was      TEXT    NOT NULL,
  state    TEXT    NOT NULL,
  outcome  TEXT    NOT NULL,
  payment  TEXT    NOT NULL,
  at_store INTEGER NOT NULL,
  at_wall  INTEGER NOT NULL,
  told     INTEGER NOT NULL DEFAULT 0 CHECK (told IN (0, 1)),
  -- when it is to be told next, after so many tries
  next_try INTEGER NOT NULL DEFAULT 0,
  tries    INTEGER NOT NULL DEFAULT 0
) STRICT;

CREATE INDEX events_untold ON events (id) WHERE told = 0;
CREATE INDEX events_age ON events (at_store);

-- What a process says of itself under its own lease.
CREATE TABLE members (
  scope   TEXT    PRIMARY KEY,
  token   INTEGER NOT NULL,
  version TEXT    NOT NULL,
  schema  INTEGER NOT NULL,
  keys    TEXT
) STRICT;
