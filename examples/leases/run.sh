#!/usr/bin/env bash
# Drives the lease keepers (Go, Python, Python by the watch stream, Node, Java) through hand-overs with the real binary: the
# sandbox gateway with its lease proxy, and sidecars on one SQLite file with leases of 3 s. One line per check, then a count; the
# exit code is 1 if a check failed.
#
#   run.sh          everything; ends with broken keepers that must fail
#   run.sh --bite   the broken keepers only: the checks must notice, so this fails
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
mode=${1:-all}
case $mode in all | --bite) ;; *) echo "usage: run.sh [--bite]" >&2; exit 2 ;; esac

. "$here/../lib.sh"
command -v python3 >/dev/null || need python3 python3
command -v javac >/dev/null || need javac "default-jdk-headless 17 or later"

export NO_PROXY=127.0.0.1 no_proxy=127.0.0.1 STRIPE_KEY=sk_test_example PYTHONDONTWRITEBYTECODE=1

# sidecar NAME TTL starts one; all share the SQLite file.
sidecar() {
  cat >"$tmp/$1.yaml" <<YAML
store: {kind: sqlite, path: $tmp/fence.db, allowTmpfs: true}
listen: {any: "", control: "127.0.0.1:0", telemetry: ""}
lease: {ttl: $2, margin: 200ms}
gateways:
  - use: stripe
    listen: 127.0.0.1:0
    baseURL: $SANDBOX
    attemptTimeout: 30s
    accounts:
      - {name: shop, credential: {env: STRIPE_KEY}, lookupCredential: {env: STRIPE_KEY}}
YAML
  "$tmp/fence-sidecar" store migrate --config "$tmp/$1.yaml" >/dev/null
  start "$1" "$tmp/fence-sidecar" run --config "$tmp/$1.yaml"
  logged "$1" '.*"msg":"(ready)".*' >/dev/null
}

# address NAME LISTENER
address() { echo "http://$(logged "$1" ".*\"msg\":\"listening\",\"for\":\"$2\",\"address\":\"([^\"]+)\".*")"; }

# keepers DIR puts the applications with their keepers there, sources only.
keepers() {
  mkdir -p "$1"
  cp "$here"/python/*.py "$here"/node/*.mjs "$here"/java/Keeper.java "$here"/gokeeper/keeper.go "$here"/check/app.{py,mjs} "$here/check/App.java" "$1"
  cp "$here/check/goapp/main.go" "$1/app.go"
}

# compile DIR APP. Go's keeper gets a module of its own, so that a broken one can be compiled too.
compile() {
  case $2 in
    java) javac -d "$1/classes" "$1/Keeper.java" "$1/App.java" ;;
    go)
      mkdir -p "$1/go/examples/leases/gokeeper"
      cp "$1/app.go" "$1/go/"
      cp "$1/keeper.go" "$1/go/examples/leases/gokeeper/"
      printf 'module github.com/fence-sidecar/fence-sidecar\n\ngo 1.26\n' >"$1/go/go.mod"
      (cd "$1/go" && go build -o "$1/goapp" .)
      ;;
  esac
}

# check NAME DIR BASE APP [FLAG…] runs the checks of one application.
check() {
  local name=$1 dir=$2 base=$3 app=$4 command=()
  shift 4
  case $app in
    go) command=("$dir/goapp") ;;
    python) command=("$python" "$dir/app.py" keeper.Keeper) ;;
    watcher) command=("$python" "$dir/app.py" watcher.Watcher) ;;
    node) command=(node "$dir/app.mjs") ;;
    java) command=(java -XX:TieredStopAtLevel=1 -cp "$dir/classes" App) ;;
  esac
  "$tmp/check" -sandbox "$SANDBOX" -pay "$PAY" -sidecar "$SIDECAR" -leases "$LEASES" -stalls "$STALLS" -slow "$SLOW" -base "$base" "$@" "$name" "${command[@]}" || true
}

# all runs every application's checks, side by side.
all() {
  local app base=0 jobs=()
  keepers "$tmp/good"
  for app in go python watcher node java; do
    compile "$tmp/good" "$app"
    base=$((base + 1000))
    check "$app" "$tmp/good" "$base" "$app" >"$tmp/out.$app" &
    jobs+=($!)
  done
  wait "${jobs[@]}"
  cat "$tmp"/out.{go,python,watcher,node,java}
  if [ "$(java "$here/java/Keeper.java" "$SIDECAR" java-alone </dev/null)" = 'default:java-alone#1' ]; then
    echo "ok      java runs from one source file"
  else
    echo "FAILED  java runs from one source file"
  fi
}

# Keepers that are broken: application, file, what is replaced by what (sed), and the check that must notice (a word of its name).
broken=(
  'go keeper.go s/max(0,~time.Until/max(time.Second,~time.Until/ frozen its own clock does not end its trust'
  'go keeper.go s/max(0,~time.Until/max(time.Second,~time.Until/ cut its own clock does not end its trust'
  'python keeper.py s/max(0,~self._until/max(1,~self._until/ cut its own clock does not end its trust'
  'python keeper.py s/"confirm"/"fenced"/ renews it does not renew'
  'watcher watcher.py s/"ping"/"pong"/ renews it does not answer pings'
  'watcher watcher.py s/min(self._granted~[/]~2,~self.trusted_for())/600/ cut it takes a silent stream for a live one'
  'node keeper.mjs s/Math.max(0,~this/Math.max(1,~this/ cut its own clock does not end its trust'
  "node keeper.mjs s/slug~===~'fenced'/false/ told it does not understand a refusal"
  "node keeper.mjs s/===~'true'/===~'yes'/ cancelled it does not see the mark"
  'java Keeper.java s/token~!=~null)~request/false)~request/ renews it sends no token'
  'java Keeper.java s/ask("release"/ended=true;ask("release"/ flight it stops before its release was granted'
  'java Keeper.java s/ask("finish"/ask("release"/ finishes it releases instead of finishing'
)

# bite runs them; each must fail.
bite() {
  local i app file change word what dir jobs=()
  for i in "${!broken[@]}"; do
    read -r app file change word what <<<"${broken[i]}"
    dir=$tmp/broken.$i
    keepers "$dir"
    sed -i "${change//\~/ }" "$dir/$file"
    if cmp -s "$dir/$file" "$tmp/good/$file"; then echo "nothing was broken: ${broken[i]}" >&2; return 1; fi
    compile "$dir" "$app"
    (check "broken-$i-$app" "$dir" $((100000 + 1000 * i)) "$app" -only "$word" | sed "s/$/ [$what]/") >"$tmp/bitten.$i" &
    jobs+=($!)
  done
  wait "${jobs[@]}"
  for i in "${!broken[@]}"; do cat "$tmp/bitten.$i"; done
}

python=$(python3 -c 'import sys; print(sys.executable)') # not a launcher: a signal must reach the interpreter itself
(cd "$here/../.." && go build -o "$tmp/" ./cmd/fence-sidecar ./examples/leases/check)
start sandbox "$tmp/fence-sidecar" sandbox --listen 127.0.0.1:0
SANDBOX=$(logged sandbox '.*sandbox gateway on (http://[0-9.:]+);.*')
sidecar sidecar 3s
SIDECAR=$(address sidecar control) PAY=$(address sidecar stripe)
sidecar slow 12s
SLOW=$(address slow control)
# One of its own, since it needs the sidecar's address, which needs the gateway's.
start leases "$tmp/fence-sidecar" sandbox --listen 127.0.0.1:0 --leases 127.0.0.1:0 --sidecar "$SIDECAR"
STALLS=$(logged leases '.*sandbox gateway on (http://[0-9.:]+);.*')
LEASES=$(logged leases '.*leases of .* on (http://[0-9.:]+);.*')

if [ "$mode" = --bite ]; then
  keepers "$tmp/good"
  bite | tee "$tmp/results"
else
  all | tee "$tmp/results"
  bite >"$tmp/bite"
  all_bitten keepers '^FAILED ' | tee -a "$tmp/results"
fi
passed=$(grep -c '^ok ' "$tmp/results" || true)
failed=$(grep -c '^FAILED ' "$tmp/results" || true)
echo "$passed passed, $failed failed"
[ "$failed" = 0 ] && [ "$passed" -gt 0 ]
