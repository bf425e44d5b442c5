-- Books a charge once: psql -v ON_ERROR_STOP=1 -v token=… -v realm=… -v order_id=… -v amount=… -f charge.sql
-- The token is what the sidecar gave as fence_token.
\set QUIET on
\pset format unaligned
\pset tuples_only on

-- the sidecar's store must be in this very database
SELECT realm <> :'realm' AS elsewhere FROM fence.effects_store() \gset
\if :elsewhere
  \warn another store
  \quit
\endif

BEGIN;
SELECT replayed, convert_from(result, 'UTF8') AS result
  FROM fence.begin_effect(:'token', 'default', 'charge', 'order:' || :'order_id', sha256(convert_to(:'amount', 'UTF8'))) \gset
\if :replayed
  \echo replayed :result
\else
  INSERT INTO charges (order_id, amount) VALUES (:'order_id', :amount) RETURNING 'charge ' || id AS result \gset
  SELECT fence.end_effect('default', 'charge', 'order:' || :'order_id', convert_to(:'result', 'UTF8')) \gset
\endif
COMMIT;
\if :replayed
\else
  \echo booked :result
\endif
