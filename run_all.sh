#!/usr/bin/env bash
# Makes .venv on first use, then regenerates every table and figure:  ./run_all.sh [options]
#   --only 03,06      these notebooks alone          -p NAME=VALUE   with another value of a parameter
#   --lab             JupyterLab on working copies   --site          a site to read
#   --fresh           compute tier quick again       --list          notebooks, experiments and their records
# After the first use ./run_all.sh --help says more, and --lab --help or --site --help what these take. Variables that
# the first use reads, here and in run_tests.sh:
#   PYTHON=/path/to/python     the interpreter to make .venv with, 3.11 or newer (default: the first of
#                              python3.13, python3.12, python3.11, python3, python that will do)
#   ENTP_TORCH_INDEX=URL       the package index to take torch from (default: the usual one; on Linux without an
#                              NVIDIA GPU https://download.pytorch.org/whl/cpu, the small build, if it answers)
# Packages are installed by uv, which is fetched first, and by pip where that fails. pip's own settings
# (PIP_INDEX_URL, pip.conf ...) count as usual, for both. To start afresh, delete .venv.
set -euo pipefail
CDPATH='' cd -- "$(dirname -- "${BASH_SOURCE[0]}")"
. tools/venv.sh
case " $* " in *' -h '* | *' --help '*) is_ready || { sed -n '2,/^set /s/^# \{0,1\}//p' run_all.sh && exit; } ;; esac
ensure_venv
command=run
options=()
for argument in "$@"; do
  case $argument in
    --lab | --site | --list) command=${argument#--} ;;
    *) options+=("$argument") ;;
  esac
done
exec .venv/bin/python -m entp_lab "$command" ${options[@]+"${options[@]}"}
