#!/usr/bin/env bash
# Fenced effects from Python (psycopg) and from psql, with a real PostgreSQL server and a real sidecar that grants the leases. One line
# per check, then a count; the exit code is 1 if a check failed.
#
#   run.sh          everything; ends with broken applications that must fail
#   run.sh --bite   the broken applications only: the checks must notice, so this fails
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
mode=${1:-all}
case $mode in all | --bite) ;; *) echo "usage: run.sh [--bite]" >&2; exit 2 ;; esac

. "$here/../lib.sh"
command -v python3 >/dev/null || need python3 "python3 and python3-venv"
python3 -c 'import ensurepip, venv' 2>/dev/null || need "python3 with venv" python3-venv
PGBIN=$(cd "$here/../.." && go run ./claims/postgres/pgtest/pgbin) || need "PostgreSQL's server programs" "them: make postgres"
PSQL=$PGBIN/psql
[ -x "$PSQL" ] || PSQL=$(command -v psql) || need psql postgresql-client

export PSQL NO_PROXY=127.0.0.1 no_proxy=127.0.0.1 STRIPE_KEY=sk_test_example PYTHONDONTWRITEBYTECODE=1

# The server refuses to run as root.
as_postgres=()
if [ "$(id -u)" = 0 ]; then
  command -v setpriv >/dev/null || need setpriv util-linux
  as_postgres=(setpriv --reuid=postgres --regid=postgres --clear-groups)
  chmod 711 "$tmp"
fi

start_postgres() {
  local port
  port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
  mkdir "$tmp/pg"
  if [ "$(id -u)" = 0 ]; then chown postgres: "$tmp/pg"; fi
  (cd / && "${as_postgres[@]}" "$PGBIN/initdb" -D "$tmp/pg" -U postgres -A trust -E UTF8 --locale=C --no-sync >"$tmp/initdb.log" 2>&1) || { cat "$tmp/initdb.log" >&2; return 1; }
  cd /
  start postgres "${as_postgres[@]}" "$PGBIN/postgres" -D "$tmp/pg" -p "$port" -c listen_addresses=127.0.0.1 -c unix_socket_directories=
  cd - >/dev/null
  logged postgres '.*(ready to accept connections).*' >/dev/null
  export DATABASE_URL=postgres://shop_app@127.0.0.1:$port/postgres
  "$PSQL" -X -q -v ON_ERROR_STOP=1 "postgres://postgres@127.0.0.1:$port/postgres" <<'SQL'
CREATE ROLE fence_owner LOGIN;
CREATE ROLE fence_sidecar LOGIN;
CREATE ROLE shop_app LOGIN;
GRANT CREATE ON DATABASE postgres TO fence_owner;
CREATE TABLE charges (id bigint GENERATED ALWAYS AS IDENTITY, order_id text NOT NULL, amount bigint NOT NULL);
GRANT SELECT, INSERT ON charges TO shop_app;
SQL
  cat >"$tmp/fence.yaml" <<YAML
store:
  kind: postgres
  failover: may-lose
  url: {env: SIDECAR_URL}
  migrateURL: {env: OWNER_URL}
  role: fence_sidecar
  appRole: shop_app
listen: {any: "", control: "127.0.0.1:0", telemetry: ""}
lease: {ttl: 3s, margin: 200ms}
gateways:
  - use: stripe
    listen: 127.0.0.1:0
    baseURL: http://127.0.0.1:9
    accounts:
      - {name: shop, credential: {env: STRIPE_KEY}, lookupCredential: {env: STRIPE_KEY}}
YAML
  export SIDECAR_URL=postgres://fence_sidecar@127.0.0.1:$port/postgres OWNER_URL=postgres://fence_owner@127.0.0.1:$port/postgres
}

start_sidecar() {
  "$tmp/fence-sidecar" store migrate --config "$tmp/fence.yaml" >"$tmp/migrate.log"
  FENCE_REALM=$("$tmp/fence-sidecar" store status --config "$tmp/fence.yaml" | sed -n 's/^realm //p')
  start sidecar "$tmp/fence-sidecar" run --config "$tmp/fence.yaml"
  logged sidecar '.*"msg":"(ready)".*' >/dev/null
  SIDECAR=http://$(logged sidecar '.*"msg":"listening","for":"control","address":"([^"]+)".*')
  export SIDECAR FENCE_REALM
}

# applications DIR puts them there, with the keeper that they use.
applications() {
  mkdir -p "$1/python"
  cp "$here"/python/*.py "$here/../leases/python/keeper.py" "$1/python"
  cp -r "$here/psql" "$1"
}

# Applications that are broken: the check that must notice, file, what is replaced by what (sed; ~ for a blank), and what that is.
broken=(
  'killed-before-the-commit python/app.py s/conn.execute("INSERT/connect().execute("INSERT/ writes outside of the transaction'
  'frozen-before-the-write python/effects.py s/^~~~~~~~~replayed,~result~=~conn.execute(/~~~~~~~~replayed,~result~=~False,~None;~(lambda~*a:~type("",~(),~{"fetchone":~lambda~s:~None})())(/;s/^~~~~~~~~~~~~conn.execute(f"SELECT~{schema}.end.*/~~~~~~~~~~~~pass/ asks nobody'
  'repeats python/app.py s/"order:"~+~order/"order:"~+~lease.token()/ has a key that is never the same'
  'repeats python/app.py s/b"%d"~%~amount/b"all"/ has one fingerprint for all amounts'
  'another-store python/effects.py s/found~!=~realm/False/ does not ask which store it is'
)

bite() {
  local i check file change what jobs=()
  for i in "${!broken[@]}"; do
    read -r check file change what <<<"${broken[i]}"
    applications "$tmp/broken.$i"
    sed -i "${change//\~/ }" "$tmp/broken.$i/$file"
    if cmp -s "$tmp/broken.$i/$file" "$here/$file"; then echo "nothing was broken: ${broken[i]}" >&2; return 1; fi
    ("$tmp/venv/bin/python" "$here/checks.py" "$tmp/broken.$i" "$check" | sed "s/$/ [an application that $what]/" || true) >"$tmp/bitten.$i" 2>&1 &
    jobs+=($!)
  done
  wait "${jobs[@]}"
  for i in "${!broken[@]}"; do cat "$tmp/bitten.$i"; done
}

(cd "$here/../.." && go build -o "$tmp/" ./cmd/fence-sidecar)
python3 -m venv "$tmp/venv"
"$tmp/venv/bin/pip" install --quiet --disable-pip-version-check -r "$here/python/requirements.txt"
start_postgres
start_sidecar
if [ "$mode" = --bite ]; then
  bite | tee "$tmp/results"
else
  applications "$tmp/good"
  ("$tmp/venv/bin/python" "$here/checks.py" "$tmp/good" || true) | tee "$tmp/results"
  bite >"$tmp/bite"
  all_bitten applications '^FAILED .*(rows|want)' | tee -a "$tmp/results"
fi
passed=$(grep -c '^ok ' "$tmp/results" || true)
failed=$(grep -c '^FAILED ' "$tmp/results" || true)
echo "$passed passed, $failed failed"
[ "$failed" = 0 ] && [ "$passed" -gt 0 ]
