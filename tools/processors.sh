#!/usr/bin/env bash
# Runs the notebooks step and the statistics' tests as processors of three kinds would, and prints a table:
#   tools/processors.sh                                        all notebooks, tests of statistics, claims and figures
#   tools/processors.sh notebooks/12*.ipynb tests/lab/experiments   these alone; options go to pytest (-x, -n2)
#   SETS=SSE tools/processors.sh notebooks/                    of the sets native, AVX2 and SSE this one alone
#   PYTHON=/path/to/python tools/processors.sh                 another environment than .venv
# native is all that this processor has; AVX2 nothing beyond it; SSE nothing beyond SSE 4.2, without fused
# multiply-adds. torch, oneDNN, MKL, OpenBLAS, NumPy and the C library obey variables; the table says what they took.
set -uo pipefail
CDPATH='' cd -- "$(dirname -- "${BASH_SOURCE[0]}")/.."
python=${PYTHON:-.venv/bin/python}
[ -x "$python" ] || { echo "tools/processors.sh: no Python at $python; run ./run_all.sh --help once" >&2 && exit 2; }

notebooks=() tests=() options=()
for argument in "$@"; do
  case $argument in
    -*) options+=("$argument") ;;
    notebooks | notebooks/*) notebooks+=("$argument") ;;
    *) tests+=("$argument") ;;
  esac
done
if [ ${#notebooks[@]}${#tests[@]} = 00 ]; then notebooks=(notebooks/) tests=(tests/lab/test_statistics.py tests/lab/experiments); fi
case " ${options[*]-} " in *' -n'*) ;; *) options+=(-n logical --maxprocesses 4 --dist loadscope) ;; esac

export ENTP_RECORDS=read-only ENTP_LIVE=short TQDM_DISABLE=1 PYTHONPATH="$PWD" # for kernels, too
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-1}"
unset MPLBACKEND ATEN_CPU_CAPABILITY ONEDNN_MAX_CPU_ISA MKL_ENABLE_INSTRUCTIONS OPENBLAS_CORETYPE NPY_DISABLE_CPU_FEATURES

# A line for each set that this processor has: its name and its variables. NumPy wants the names of what it would use.
sets=$("$python" - <<'EOF'
import platform

import numpy
from numpy._core._multiarray_umath import __cpu_dispatch__ as known, __cpu_features__ as has
from threadpoolctl import threadpool_info

blas = next((found["architecture"] for found in threadpool_info() if "architecture" in found), "")
beyond_avx2 = [name for name in known if has[name] and (name == "X86_V4" or "AVX512" in name)]
beyond_sse = [name for name in known if has[name] and not name.startswith(("SSE", "POPCNT", "X86_V2"))]
best = "AVX512" if has.get("AVX512F") else "AVX2"
names = ("ATEN_CPU_CAPABILITY", "ONEDNN_MAX_CPU_ISA", "MKL_ENABLE_INSTRUCTIONS", "OPENBLAS_CORETYPE",
         "NPY_DISABLE_CPU_FEATURES", "GLIBC_TUNABLES")  # fmt: skip
sets = {
    "native": (best.lower(), "DEFAULT", best, blas, "", ""),
    "AVX2": ("avx2", "AVX2", "AVX2", "Haswell", ",".join(beyond_avx2), ""),
    "SSE": ("default", "SSE41", "SSE4_2", "Nehalem", ",".join(beyond_sse),
            "glibc.cpu.hwcaps=-AVX,-AVX2,-FMA,-FMA4,-AVX512F"),
}  # fmt: skip
if not has.get("AVX2"):  # another make of processor, or an old one: as it is, alone
    print("native")
else:
    for name, values in sets.items():
        print(name, *(f"{variable}={value}" for variable, value in zip(names, values, strict=True)))
EOF
) || exit 2

obeyed='import numpy, scipy.linalg, torch
from numpy._core._multiarray_umath import __cpu_dispatch__ as known, __cpu_features__ as has
from threadpoolctl import threadpool_info
blas = ", ".join(sorted({found["architecture"] for found in threadpool_info() if "architecture" in found}))
best = [name for name in known if has[name]] or ["baseline"]
print(f"torch {torch.backends.cpu.get_cpu_capability()}, numpy {best[-1]}, OpenBLAS {blas}")'

table='' failed=0
log=$(mktemp) && trap 'rm -f "$log"' EXIT
trap 'exit 130' INT

# The set's name, its variables and the pytest arguments of a step; a line of the table.
step() {
  local name=$1 what=$2 start=$SECONDS
  shift 2
  printf '\n== %s, %s\n' "$what" "$name"
  env ${variables[@]+"${variables[@]}"} "$python" -m pytest -q -p no:cacheprovider "${options[@]}" "$@" 2>&1 | tee "$log"
  [ "${PIPESTATUS[0]}" -eq 0 ] || failed=$((failed + 1))
  table+=$(printf '%-8s %-10s %5d s  %-34s %s' "$name" "$what" $((SECONDS - start)) "$(tail -n 1 "$log" | sed 's/ in .*//')" "$took")$'\n'
}

while read -r -a variables; do
  name=${variables[0]} && variables=("${variables[@]:1}")
  case " ${SETS:-native AVX2 SSE} " in *" $name "*) ;; *) continue ;; esac
  took=$(env ${variables[@]+"${variables[@]}"} "$python" -c "$obeyed")
  if [ ${#notebooks[@]} -gt 0 ]; then step "$name" notebooks --nbval --nbval-current-env "${notebooks[@]}"; fi
  if [ ${#tests[@]} -gt 0 ]; then step "$name" tests "${tests[@]}"; fi
done <<<"$sets"

printf '\n%-8s %-10s %7s  %-34s %s\n%s' set step time outcome 'what the libraries took' "$table"
[ "$failed" -eq 0 ]
