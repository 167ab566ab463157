#!/usr/bin/env bash
# Writes requirements.txt: one version of everything that pyproject.toml asks for and of what that needs in turn.
#   tools/pin.sh              keeps the versions that are pinned, as far as they still fit
#   tools/pin.sh --upgrade    takes the newest ones (any option of uv pip compile)
# torch's CUDA libraries are left out: a Linux wheel of torch names the versions it was built with, a CPU build has
# none, and a pin would bring gigabytes of them to both.
set -euo pipefail
CDPATH='' cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."
pinned=$(mktemp)
trap 'rm -f "$pinned"' EXIT
grep -E '^[a-z]' requirements.txt >"$pinned" || true
echo '-e .[notebooks,development]' | .venv/bin/uv pip compile - --output-file "$pinned" --quiet \
  --universal --python-version 3.11 --no-annotate --no-header "$@"
{
  echo '# Made by tools/pin.sh from pyproject.toml. ./run_all.sh and ./run_tests.sh install it into .venv; by hand, in'
  echo '# this folder: pip install -r requirements.txt. On Linux the default build of torch brings CUDA; run_all.sh'
  echo '# tells how to get the small CPU build.'
  grep -Ev '^(cuda-|nvidia-|triton==)' "$pinned"
} >requirements.txt
