#!/usr/bin/env bash
# Drives payment gateways through the sidecar by their official SDKs, with the sandbox playing the gateway: eight scenarios each,
# counted at the sandbox, and every refusal of the sidecar. One line per check, then a count; the exit code is 1 if a check failed.
#
#   run.sh          everything; ends with a run of --bite that must fail
#   run.sh --bite   refusals without the gateway's error shape or with another's, charges that pass the sidecar by, a gateway that
#                   ignores keys: the checks must notice, so this fails
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
mode=${1:-all}
case $mode in all | --bite) ;; *) echo "usage: run.sh [--bite]" >&2; exit 2 ;; esac

. "$here/../../lib.sh"
command -v npm >/dev/null || need npm npm
command -v python3 >/dev/null || need python3 "python3 and python3-venv"
python3 -c 'import ensurepip, venv' 2>/dev/null || need "python3 with venv" python3-venv

# Everything is on loopback; some SDKs would ask a proxy of the environment for it.
export NO_PROXY=127.0.0.1 no_proxy=127.0.0.1

apps=(adyen-node adyen-python checkout-node checkout-python gocardless-node gocardless-python paypal-node paypal-python stripe-python)
refused=("${apps[@]:0:8}") # what Stripe's SDKs make of refusals ../run.sh shows
broken=(adyen-node adyen-python) # where the sidecar finds out by a repeat, and by nothing else
declare -A sidecar sandbox hook refusals job
export HOOK_SECRET=44782DEF547AAA06C910C43932B1EB0C71FC68D9D0C057550C48EC2ACF6BA056 CLIENT=shop

credential() {
  case $1 in
    adyen) echo AQEexample ;;
    checkout) echo sk_sbox_abcdefghijklmnopqrstuvwxyz2 ;;
    gocardless | paypal) echo sandbox_example ;;
    stripe) echo sk_test_example ;;
  esac
}

install() {
  local npm
  cp -r "$here/node" "$here/python" "$tmp/"
  (cd "$tmp/node" && npm ci --ignore-scripts --no-audit --no-fund --loglevel=error >"$tmp/npm.log" 2>&1) &
  npm=$!
  python3 -m venv "$tmp/venv"
  "$tmp/venv/bin/pip" install --quiet --disable-pip-version-check -r "$tmp/python/requirements.txt"
  (cd "$here/../../.." && go build -o "$tmp/" ./cmd/fence-sidecar ./examples/sdks/refusals)
  wait "$npm" || { cat "$tmp/npm.log" >&2; return 1; }
  grep -hoE '"(@adyen/api-library|@paypal/paypal-server-sdk|checkout-sdk-node|gocardless-nodejs)": "[^"]+"' "$tmp/node/package.json" | tr -d '"' | sed 's/^/Node   /'
  grep -E '^(Adyen|checkout_sdk|gocardless_pro|paypal-server-sdk|stripe)==' "$tmp/python/requirements.txt" | sed 's/==/: /; s/^/Python /'
}

# begin is start with a log that is there, and empty, before the command is.
begin() {
  : >"$tmp/$1.log"
  start "$@"
}

# play APP TAG starts a gateway. Whatever is started under another tag is another one.
play() {
  begin "sandbox-$1-$2" "$tmp/fence-sidecar" sandbox --profile "${1%-*}" --listen 127.0.0.1:0
  sandbox[$1]=$(logged "sandbox-$1-$2" '.*sandbox gateway on (http://[0-9.:]+);.*')
}

# stage APP TAG starts a gateway with a sidecar before it; where the gateway tells, a worker that takes its notices.
stage() {
  local app=$1 tag=$1-$2 gateway=${1%-*} bin=$tmp/fence-sidecar account webhooks=''
  play "$app" "$2"
  CREDENTIAL=$(credential "$gateway")
  export CREDENTIAL
  account='credential: {env: CREDENTIAL}, lookupCredential: {env: CREDENTIAL}'
  case $gateway in
    paypal) account='oauth2: {tokenPath: /v1/oauth2/token, clientID: {env: CLIENT}, clientSecret: {env: CREDENTIAL}}' ;;
    adyen) account+=', webhookSecrets: [{env: HOOK_SECRET}]' webhooks=', webhooks: "127.0.0.1:0"' ;;
  esac
  cat >"$tmp/$tag.yaml" <<EOF
store: {kind: sqlite, path: $tmp/$tag.db, allowTmpfs: true}
listen: {any: "", control: "", telemetry: ""$webhooks}
wait: 1s
reconcile: {interval: 200ms}
gateways:
  - use: $gateway
    listen: 127.0.0.1:0
    baseURL: ${sandbox[$app]}
    attemptTimeout: 3s
    accounts: [{name: shop, $account}]
EOF
  "$bin" store migrate --config "$tmp/$tag.yaml" >/dev/null
  begin "sidecar-$tag" "$bin" run --config "$tmp/$tag.yaml"
  sidecar[$app]=http://$(logged "sidecar-$tag" '.*"msg":"listening","for":"'"$gateway"'","address":"([^"]+)".*')
  logged "sidecar-$tag" '.*"msg":"(ready)".*' >/dev/null
  if [ "$webhooks" ]; then
    begin "worker-$tag" "$bin" reconcile --config "$tmp/$tag.yaml"
    hook[$app]=http://$(logged "worker-$tag" '.*"msg":"listening","for":"webhooks","address":"([^"]+)".*')/webhooks/default/$gateway/shop
  fi
}

# refuse APP [FAULT] starts a server of its own for each run, so that its counts are of that run.
refuse() {
  begin "refusals-$1-${2:-}" "$tmp/refusals" -gateway="${1%-*}" -fault="${2:-}"
  refusals[$1]=http://$(logged "refusals-$1-${2:-}" '^(127\.0\.0\.1:[0-9]+)$')
}

# run WHAT APP starts one script in the background.
run() {
  local what=$1 app=$2 script
  case $app in
    *-node) script=(node "$tmp/node/${app%-*}.mjs") ;;
    *-python) script=("$tmp/venv/bin/python" "$tmp/python/${app%-*}_app.py") ;;
  esac
  SIDECAR=${sidecar[$app]:-} SANDBOX=${sandbox[$app]:-} REFUSALS=${refusals[$app]:-} HOOK=${hook[$app]:-} \
    CREDENTIAL=$(credential "${app%-*}") "${script[@]}" "$what" >"$tmp/out.$app" 2>"$tmp/err.$app" &
  job[$app]=$!
}

# ended WHAT APP waits for a script and prints its lines. One that ends otherwise than they say is a failed check.
ended() {
  local app=$2 rc=0 bad=0
  wait "${job[$app]}" || rc=$?
  cat "$tmp/out.$app"
  grep -q '^FAILED ' "$tmp/out.$app" && bad=1
  if [ "$rc" != "$bad" ] || ! grep -qE '^(ok|FAILED) ' "$tmp/out.$app"; then
    echo "FAILED  $app $1: the script ended with $rc: $(tr '\n' ' ' <"$tmp/err.$app")"
  fi
}

# each WHAT APP… runs scripts at the same time.
each() {
  local what=$1 app
  shift
  for app in "$@"; do run "$what" "$app"; done
  for app in "$@"; do ended "$what" "$app"; done
}

bite() {
  local fault app with
  for fault in no-shape wrong-shape no-header; do
    with=("${refused[@]}")
    [ "$fault" = no-header ] && with=(adyen-node) # the only one of these gateways whose refusals have a header of its own
    for app in "${with[@]}"; do refuse "$app" "$fault"; done
    each refusals "${with[@]}" >"$tmp/bitten"
    sed "s/^/$fault: /" "$tmp/bitten"
  done
  for app in "${apps[@]}"; do play "$app" unfenced; done
  each unfenced "${apps[@]}" >"$tmp/bitten"
  sed 's/^/unfenced: /' "$tmp/bitten"
  for app in "${broken[@]}"; do stage "$app" broken; done
  each broken "${broken[@]}" >"$tmp/bitten"
  sed 's/^/broken: /' "$tmp/bitten"
}

# count PATTERN counts lines of a run of bite.
count() { grep -cE "$1" "$tmp/bite" || true; }

# bitten judges a run of bite.
bitten() {
  local fault total all=${#refused[@]}
  total=$(($(count '^no-shape: (ok|FAILED) .* rejects ') / all))
  for fault in no-shape wrong-shape; do
    # Of a 502 Checkout.com's Node SDK keeps the status only: it cannot see what the body lacks.
    if [ "$total" -ge 25 ] && [ "$(count "^$fault: FAILED  .* rejects ")" = $((total * all - 1)) ] &&
      [ "$(count "^$fault: ok +checkout node rejects not-sent\$")" = 1 ]; then
      echo "ok      bite: $fault: the checks of $all SDKs fail on all $total refusals, but for not-sent in Checkout.com's Node SDK"
    else
      unnoticed "^$fault: "
    fi
  done
  if [ "$(count '^no-header: FAILED  adyen node rejects ')" = $((total - 4)) ]; then
    echo "ok      bite: no-header: the checks fail on all refusals that may not be repeated"
  else
    unnoticed '^no-header: '
  fi
  twice unfenced ${#apps[@]} "without the sidecar a lost answer makes two charges"
  twice broken ${#broken[@]} "at a gateway that ignores keys a lost answer makes two charges"
}

# twice WHAT HOW-MANY SAYS judges charges that were executed twice.
twice() {
  if [ "$(count "^$1: FAILED  .* executed 2 times, under [12] keys\$")" = "$2" ] && [ "$(count "^$1: ")" = "$2" ]; then
    echo "ok      bite: $1: $3, which the count shows for each of $2 SDKs"
  else
    unnoticed "^$1: "
  fi
}

unnoticed() {
  echo "FAILED  bite: broken refusals or charges went unnoticed:"
  grep -E "$1" "$tmp/bite" | sed 's/^/          /'
}

everything() {
  local app
  for app in "${apps[@]}"; do stage "$app" scenes; done
  each scenes "${apps[@]}"
  for app in "${refused[@]}"; do refuse "$app"; done
  each refusals "${refused[@]}"
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
