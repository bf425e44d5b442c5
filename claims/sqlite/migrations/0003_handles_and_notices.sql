-- What a gateway knows of a call: its own id of the object, and our reference.
ALTER TABLE calls ADD COLUMN object TEXT NOT NULL DEFAULT '';

-- In the order of keys: an application may give many calls one reference of its own.
CREATE INDEX calls_reference ON calls (tenant, gateway, reference, call_key) WHERE reference <> '';
CREATE INDEX calls_object ON calls (tenant, gateway, object, call_key) WHERE object <> '';

-- The references of earlier revisions, each with its own gateway; calls.past, where they stand, cannot be searched.
CREATE TABLE earlier (
  tenant    BLOB NOT NULL,
  gateway   TEXT NOT NULL,
  reference TEXT NOT NULL CHECK (reference <> ''),
  call_key  BLOB NOT NULL,
  PRIMARY KEY (tenant, gateway, reference, call_key)
) STRICT, WITHOUT ROWID;

-- A name or a reference that is not UTF-8 stands in past as an object with its base64: no gateway's notice can hold it.
INSERT INTO earlier (tenant, gateway, reference, call_key)
  SELECT c.tenant, p.value ->> '$.facts.gateway', p.value ->> '$.facts.reference', c.call_key
  FROM calls c, json_each(c.past) p
  WHERE json_type(p.value, '$.facts.gateway') = 'text' AND json_type(p.value, '$.facts.reference') = 'text'
    AND p.value ->> '$.facts.reference' <> ''
  ON CONFLICT DO NOTHING;

-- Notices that came before their call.
CREATE TABLE notices (
  tenant   BLOB    NOT NULL,
  gateway  BLOB    NOT NULL,
  id       BLOB    NOT NULL,
  body     BLOB    NOT NULL,
  at_store INTEGER NOT NULL,
  at_wall  INTEGER NOT NULL,
  -- a number that grows each time that some are given; 0: never given
  given    INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY (tenant, gateway, id)
) STRICT;

CREATE INDEX notices_given ON notices (given, at_store, tenant, gateway, id);
