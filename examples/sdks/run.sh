#!/usr/bin/env bash
# Runs the official Node and Python SDKs against the sidecar with the sandbox gateway behind it, and against a server that
# answers every refusal. One line per check, then a count; the exit code is 1 if a check failed.
#
#   run.sh          everything; ends with a run of --bite that must fail
#   run.sh --bite   the refusals only, without the gateway's own error shape, then without its headers: the checks must notice,
#                   so this fails
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
mode=${1:-all}
case $mode in all | --bite) ;; *) echo "usage: run.sh [--bite]" >&2; exit 2 ;; esac

. "$here/../lib.sh"
command -v npm >/dev/null || need npm npm
command -v python3 >/dev/null || need python3 "python3 and python3-venv"
python3 -c 'import ensurepip, venv' 2>/dev/null || need "python3 with venv" python3-venv

# Everything is on loopback; some SDKs would ask a proxy of the environment for it.
export NO_PROXY=127.0.0.1 no_proxy=127.0.0.1
export STRIPE_KEY=sk_test_example SIDECAR='' SANDBOX='' REFUSALS=''

install() {
  (cd "$here/../.." && go build -o "$tmp/" ./cmd/fence-sidecar ./examples/sdks/refusals)
  cp -r "$here/node" "$here/python" "$tmp/"
  (cd "$tmp/node" && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error >"$tmp/npm.log" 2>&1) || { cat "$tmp/npm.log" >&2; return 1; }
  python3 -m venv "$tmp/venv"
  "$tmp/venv/bin/pip" install --quiet --disable-pip-version-check -r "$tmp/python/requirements.txt"
  echo "Node SDK $(node -p "require('$tmp/node/node_modules/stripe/package.json').version"), Python SDK $("$tmp/venv/bin/python" -c 'import stripe; print(stripe.VERSION)')"
}

start_sidecar() {
  local bin=$tmp/fence-sidecar
  start sandbox "$bin" sandbox --listen 127.0.0.1:0
  SANDBOX=$(logged sandbox '.*sandbox gateway on (http://[0-9.:]+);.*')
  cat >"$tmp/fence.yaml" <<EOF
store: {kind: sqlite, path: $tmp/fence.db, allowTmpfs: true}
listen: {any: "", telemetry: ""}
gateways:
  - use: stripe
    listen: 127.0.0.1:0
    baseURL: $SANDBOX
    attemptTimeout: 20s
    accounts:
      - {name: shop, credential: {env: STRIPE_KEY}, lookupCredential: {env: STRIPE_KEY}}
EOF
  "$bin" store migrate --config "$tmp/fence.yaml" >/dev/null
  start sidecar "$bin" run --config "$tmp/fence.yaml"
  SIDECAR=http://$(logged sidecar '.*"msg":"listening","for":"stripe","address":"([^"]+)".*')
  logged sidecar '.*"msg":"(ready)".*' >/dev/null
}

# refusals NAME [FAULT] starts a server of its own for each run, so that its counts are of that run.
refusals() {
  start "$1" "$tmp/refusals" -fault="${2:-}"
  REFUSALS=http://$(logged "$1" '^(127\.0\.0\.1:[0-9]+)$')
}

# checks SDK WHAT runs one script. A script that ends otherwise than its lines say is a failed check.
checks() {
  local rc=0 out=$tmp/out.$1.$2 script
  case $1 in
    node) script=(node "$tmp/node/checks.mjs") ;;
    python) script=("$tmp/venv/bin/python" "$tmp/python/checks.py") ;;
  esac
  "${script[@]}" "$2" 2>"$tmp/err" | tee "$out" || rc=$?
  local bad=0
  grep -q '^FAILED ' "$out" && bad=1
  if [ "$rc" != "$bad" ] || ! grep -qE '^(ok|FAILED) ' "$out"; then
    echo "FAILED  $1 $2: the script ended with $rc: $(tr '\n' ' ' <"$tmp/err")"
  fi
}

bite() {
  local fault sdk
  for fault in no-shape no-header; do
    for sdk in node python; do
      refusals "$fault-$sdk" "$fault"
      checks "$sdk" refusals | sed "s/^/$fault: /"
    done
  done
}

# count PATTERN counts lines of a run of bite.
count() { grep -cE "$1" "$tmp/bite" || true; }

# bitten judges a run of bite. Without the shape Node takes every refusal for a payment, and Python cannot tell what it is or
# sends it again; without the headers both send again what they must not.
bitten() {
  local total
  total=$(count '^no-shape: (ok|FAILED) +node rejects ')
  if [ "$total" -ge 25 ] && [ "$(count '^no-shape: FAILED  node rejects .*taken for a success')" = "$total" ] &&
    [ "$(count '^no-shape: FAILED  python rejects ')" = "$total" ] &&
    [ "$(count '^no-header: FAILED  node rejects fenced: .* [0-9]+ requests')" = 1 ] &&
    [ "$(count '^no-header: FAILED  python rejects fenced: .* [0-9]+ requests')" = 1 ]; then
    echo "ok      bite: without the gateway's error shape all $total refusals fail the checks of both SDKs (Node takes them for payments)"
    echo "ok      bite: without the gateway's headers $(count '^no-header: FAILED .* [0-9]+ requests') refusals are sent again, which the checks of both SDKs notice"
  else
    echo "FAILED  bite: broken refusals went unnoticed:"
    sed 's/^/          /' "$tmp/bite"
  fi
}

everything() {
  local sdk
  start_sidecar
  for sdk in node python; do
    checks "$sdk" sidecar
    refusals "refusals-$sdk"
    checks "$sdk" refusals
  done
  bite >"$tmp/bite"
  bitten
}

install
if [ "$mode" = --bite ]; then bite >"$tmp/results"; else everything >"$tmp/results"; fi
cat "$tmp/results"
passed=$(grep -cE '^([a-z-]+: )?ok ' "$tmp/results" || true)
failed=$(grep -cE '^([a-z-]+: )?FAILED ' "$tmp/results" || true)
echo "$passed passed, $failed failed"
[ "$failed" = 0 ] && [ "$passed" -gt 0 ]
