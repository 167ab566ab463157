#!/usr/bin/env bash
# Makes .venv on first use, then runs every check:  ./run_tests.sh
#   format     ruff format --check
#   tests      pytest on tests/, in as many processes as cores, at most 4
#   notebooks  nbval executes the notebooks and compares them with their stored outputs; on x86 without what
#              processors have beyond SSE, since stored outputs must not depend on it
#   lint       ruff check, the import contracts and the types of entp_lib and entp_lab (pyproject.toml), beside the tests
# All of them run, whatever fails; the exit status is 0 if all pass.
# With arguments, which go to the pytest of the tests step, notebooks are left out:
#   ./run_tests.sh -k count3        ./run_tests.sh tests/test_shell.py
# The first use listens to the variables that run_all.sh names at its head (PYTHON, ENTP_TORCH_INDEX ...).
set -euo pipefail
CDPATH='' cd -- "$(dirname -- "${BASH_SOURCE[0]}")"
case ${1:-} in -h | --help) sed -n '2,/^set /s/^# \{0,1\}//p' run_tests.sh && exit ;; esac
. tools/venv.sh
ensure_venv
trap 'exit 130' INT # without it Ctrl-C would end one step and start the next

export ENTP_RECORDS=read-only ENTP_LIVE=short TQDM_DISABLE=1
for name in "${!GIT_@}"; do unset "$name"; done # inside of a hook they are of the repository that is committed to
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}" # the cores are taken by pytest's processes

table='' passed=0 failed=0
step() {
  local name=$1 start=$SECONDS status=passed
  shift
  printf '\n== %s\n' "$name"
  if "$@"; then
    passed=$((passed + 1))
  else
    status="failed ($?)"
    failed=$((failed + 1))
  fi
  table+=$(printf '%-13s %-12s %6d s' "$name" "$status" $((SECONDS - start)))$'\n'
}

python() { .venv/bin/python "$@"; }
lint() {
  local status=0 contract
  python -m ruff check . || status=1
  if ! contract=$(python .venv/bin/lint-imports --no-logo --no-cache 2>&1); then
    printf '%s\n' "$contract"
    status=1
  fi
  python -m mypy --no-error-summary || status=1
  return $status
}

# As many as there are cores, at most 4: each takes a minute of a core to import everything on a fresh clone.
cores=$(getconf _NPROCESSORS_ONLN)
parallel=("-n$((cores < 4 ? cores : 4))" --dist=loadscope)
where=(tests)
files=0
for argument in "$@"; do
  case $argument in tests/* | *.py | *.py::*) where=() ;; esac # the arguments say where
  case $argument in *.py | *.py::*) files=$((files + 1)) ;; tests/*) files=2 ;; esac
done
if [ $files -eq 1 ]; then parallel=(); fi # workers would each take the seconds of torch's import for nothing

findings=$(mktemp)
lint >"$findings" 2>&1 & # takes one core, where many tests wait
lint_process=$!
trap 'kill $lint_process 2>/dev/null || true; rm -f "$findings"' EXIT
lint_outcome() {
  local status=0
  wait $lint_process || status=$?
  cat "$findings"
  return $status
}

step format python -m ruff format --check .
step tests python -m pytest ${parallel[@]+"${parallel[@]}"} ${where[@]+"${where[@]}"} "$@"
if [ $# -eq 0 ]; then
  step notebooks env SETS=SSE PYTHON=.venv/bin/python tools/processors.sh \
    "-n$((cores < 4 ? cores + 1 : 4))" --dist=loadscope notebooks/ # one more: they wait for their kernels
fi
step lint lint_outcome

printf '\n%s\n%d passed, %d failed\n' "$table" "$passed" "$failed"
[ "$failed" -eq 0 ]
