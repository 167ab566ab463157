#!/usr/bin/env bash
# Runs the library's tests with every Python and torch that can be had here, and prints a table of what came of it:
#   tools/matrix.sh                            3.11 to 3.14 with torch 2.9, 2.11 and 2.13
#   tools/matrix.sh 3.11/2.13.0 3.12/2.9.1     these pairs alone
#   PLACE=/folder tools/matrix.sh              where the environments go (default: a temporary folder, removed)
#   TESTS="tests/lib/models tests/lib/tasks" ...       which tests (default: those that need no notebook and no records)
# It takes torch from ENTP_TORCH_INDEX, by default the index of CPU builds, else from pip's own; there Linux wheels want
# CUDA's libraries, which are gigabytes: with CUDA=yes they are installed too, else torch alone is, and it may not start.
set -uo pipefail
CDPATH='' cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."
uv=${UV:-.venv/bin/uv}
[ -x "$uv" ] || { echo "tools/matrix.sh: no uv at $uv; run ./run_all.sh --help once, or name it with UV=" >&2 && exit 2; }
index=${ENTP_TORCH_INDEX:-https://download.pytorch.org/whl/cpu}
place=${PLACE:-$(mktemp -d)}
mkdir -p "$place"
[ -n "${PLACE:-}" ] || trap 'rm -rf "$place"' EXIT
pairs=("$@")
if [ $# -eq 0 ]; then
  for python in 3.11 3.12 3.13 3.14; do for torch in 2.9.1 2.11.0 2.13.0; do pairs+=("$python/$torch"); done; done
fi
export ENTP_RECORDS=read-only TQDM_DISABLE=1 OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}" UV_INDEX_STRATEGY=unsafe-best-match
table=''

row() {
  table+=$(printf '%-8s %-9s %s' "$1" "$2" "$3")$'\n'
  printf '%s/%s: %s\n' "$1" "$2" "$3" >&2
}

for pair in "${pairs[@]}"; do
  python=${pair%/*} torch=${pair#*/} folder=$place/${pair/\//-} log=$place/${pair/\//-}.log
  if ! "$uv" venv -q --clear --python "$python" --no-python-downloads "$folder" >"$log" 2>&1; then
    row "$python" "$torch" "no such Python here" && continue
  fi
  install() { "$uv" pip install -q --python "$folder/bin/python" "$@" >>"$log" 2>&1; }
  if ! install --no-deps --default-index "$index" "torch==$torch"; then
    if [ -n "${CUDA:-}" ]; then install "torch==$torch"; else install --no-deps "torch==$torch"; fi ||
      { row "$python" "$torch" "no such wheel of torch: $(tail -n 1 "$log")" && continue; }
  fi
  # what torch itself needs but CUDA, the library's core, and what its tests need
  install typing-extensions sympy networkx jinja2 fsspec numpy pandas scipy safetensors filelock tqdm pytest hypothesis \
    pillow matplotlib seaborn altair matplotlib-inline ipython nbformat papermill ipykernel scikit-learn transformers pyarrow typer ||
    { row "$python" "$torch" "no packages for it: $(tail -n 1 "$log")" && continue; }
  if ! "$folder/bin/python" -c 'import torch' >>"$log" 2>&1; then
    row "$python" "$torch" "torch does not start: $(tail -n 1 "$log" | cut -c 1-90)" && continue
  fi
  # shellcheck disable=SC2086
  "$folder/bin/python" -m pytest -q -p no:cacheprovider ${TESTS:-tests/lib/models tests/lib/tasks tests/lib/training tests/lab/records tests/lib/test_config.py} \
    >>"$log" 2>&1
  row "$python" "$torch" "$(tail -n 1 "$log")"
done
printf '\n%-8s %-9s %s\n%s' python torch outcome "$table"
