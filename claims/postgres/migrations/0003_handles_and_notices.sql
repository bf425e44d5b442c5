-- What a gateway knows of a call: its own id of the object, and our reference.
ALTER TABLE {schema}.calls ADD object text COLLATE "C" NOT NULL DEFAULT '';

-- An index on a column that an update changes keeps it from being heap-only (HOT). Tenant, gateway and reference never change within
-- a revision and object changes once, with the answer: neither index takes that from an update which had it before. What each
-- write that is not heap-only adds is one entry per index that the row is in; rows with no reference or object are in none.
-- In the order of keys: an application may give many calls one reference of its own.
CREATE INDEX calls_reference ON {schema}.calls (tenant, gateway, reference, call_key) WHERE reference <> '';
CREATE INDEX calls_object ON {schema}.calls (tenant, gateway, object, call_key) WHERE object <> '';

-- The references of earlier revisions, each with its own gateway; calls.past, where they stand, cannot be searched.
CREATE TABLE {schema}.earlier (
  tenant    bytea NOT NULL,
  gateway   text COLLATE "C" NOT NULL,
  reference text COLLATE "C" NOT NULL CHECK (reference <> ''),
  call_key  bytea NOT NULL,
  PRIMARY KEY (tenant, gateway, reference, call_key)
);

-- What is in past is a JSON string, or an object with the base64 of what is not UTF-8; a column holds itself, or 'base64:' and
-- that. jsonb takes no \u0000: what has one is left out, as no reference that is kept has a control character.
INSERT INTO {schema}.earlier (tenant, gateway, reference, call_key)
  SELECT c.tenant, f.gateway, f.reference, c.call_key
  FROM {schema}.calls c, jsonb_array_elements(
    -- an escaped backslash before u0000 is none
    regexp_replace(c.past, E'(?<!\\\\)((?:\\\\\\\\)*)\\\\u0000', E'\\1\\\\u0001', 'g')::jsonb) AS p (revision),
    LATERAL (SELECT
      CASE WHEN v.gateway ->> 'base64' IS NOT NULL THEN 'base64:' || (v.gateway ->> 'base64')
        WHEN v.gateway #>> '{}' LIKE 'base64:%'
        THEN 'base64:' || replace(encode(convert_to(v.gateway #>> '{}', 'UTF8'), 'base64'), E'\n', '')
        ELSE v.gateway #>> '{}' END,
      CASE WHEN v.reference ->> 'base64' IS NOT NULL THEN 'base64:' || (v.reference ->> 'base64')
        WHEN v.reference #>> '{}' LIKE 'base64:%'
        THEN 'base64:' || replace(encode(convert_to(v.reference #>> '{}', 'UTF8'), 'base64'), E'\n', '')
        ELSE v.reference #>> '{}' END
      FROM (SELECT p.revision #> '{facts,gateway}', p.revision #> '{facts,reference}') AS v (gateway, reference)) AS f (gateway, reference)
  WHERE c.past IS NOT NULL AND f.gateway IS NOT NULL AND f.reference <> ''
    AND NOT (strpos(c.past, E'\\u0000') > 0 AND strpos(f.gateway || f.reference, chr(1)) > 0)
  ON CONFLICT DO NOTHING;

-- Notices that came before their call. body: as the intake wrote it.
CREATE TABLE {schema}.notices (
  tenant   bytea  NOT NULL,
  gateway  bytea  NOT NULL,
  id       bytea  NOT NULL,
  body     bytea  NOT NULL,
  at_store bigint NOT NULL,
  at_wall  bigint NOT NULL,
  -- a number that grows each time that some are given, not a time: that can go back. 0: never given
  given    bigint NOT NULL DEFAULT 0,
  PRIMARY KEY (tenant, gateway, id)
);

CREATE INDEX notices_given ON {schema}.notices (given, at_store, tenant, gateway, id);
