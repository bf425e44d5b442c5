# Shared by the run.sh of the examples: a temporary folder, processes that end with the script, and their logs.
# shellcheck shell=bash

need() { echo "run.sh needs $1: install $2" >&2; exit 1; }
command -v go >/dev/null || need go "Go 1.26 or later"
command -v node >/dev/null || need node "nodejs 20 or later"
[ "$(node -p 'process.versions.node.split(".")[0]')" -ge 20 ] || need "node 20" "nodejs 20 or later"

tmp=$(mktemp -d)
pids=()
cleanup() {
  for p in "${pids[@]}"; do kill "$p" 2>/dev/null || true; done
  for p in "${pids[@]}"; do wait "$p" 2>/dev/null || true; done
  rm -rf "$tmp"
}
trap cleanup EXIT
trap 'exit 130' INT
trap 'exit 143' TERM

# start NAME COMMAND… runs a command in the background with its output in $tmp/NAME.log.
start() {
  local name=$1
  shift
  : >"$tmp/$name.log"
  "$@" >>"$tmp/$name.log" 2>&1 &
  pids+=($!)
}

# logged NAME PATTERN waits for a line in a log and prints what the pattern's group matched.
logged() {
  local found pid=${pids[-1]}
  for _ in $(seq 600); do
    found=$(sed -nE "s#$2#\\1#p" "$tmp/$1.log" | head -n 1)
    if [ -n "$found" ]; then
      echo "$found"
      return
    fi
    kill -0 "$pid" 2>/dev/null || break
    sleep 0.1
  done
  { echo "$1 did not start:"; cat "$tmp/$1.log"; } >&2
  return 1
}

# all_bitten NOUN PATTERN judges $tmp/bite, what the checks said of each of the ${broken[@]}: all must have failed, by lines that the
# pattern matches.
all_bitten() {
  if [ "$(grep -cE "$2" "$tmp/bite")" = ${#broken[@]} ] && ! grep -q '^ok ' "$tmp/bite"; then
    echo "ok      bite: each of ${#broken[@]} broken $1 fails the check that is for it"
  else
    echo "FAILED  bite: broken $1 went unnoticed:"
    sed 's/^/          /' "$tmp/bite"
  fi
}
