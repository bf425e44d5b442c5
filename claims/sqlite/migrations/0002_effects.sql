-- Writes of an application's own rows in this file that happen once per (tenant, name, key).
CREATE TABLE effects (
  tenant        BLOB    NOT NULL,
  name          BLOB    NOT NULL,
  effect_key    BLOB    NOT NULL,
  fingerprint   BLOB    NOT NULL,
  -- the lease that it ran under
  scope         TEXT    NOT NULL,
  token         INTEGER NOT NULL CHECK (token > 0),
  result        BLOB,
  created_store INTEGER NOT NULL,
  -- 1 while the work runs. Nothing is in effects_never, and the reference is looked at at COMMIT: no such row can be committed.
  open          INTEGER REFERENCES effects_never (one) DEFERRABLE INITIALLY DEFERRED,
  PRIMARY KEY (tenant, name, effect_key)
) STRICT;

CREATE TABLE effects_never (one INTEGER PRIMARY KEY CHECK (one = 0)) STRICT;

CREATE INDEX effects_created ON effects (created_store);

-- The highest token of each scope under which an effect came.
CREATE TABLE effect_marks (
  scope TEXT    PRIMARY KEY,
  token INTEGER NOT NULL CHECK (token > 0)
) STRICT;
