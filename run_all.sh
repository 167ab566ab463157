#!/usr/bin/env bash
# Makes .venv on first use, then regenerates every table and figure:  ./run_all.sh [options]
# (./run_all.sh --help lists the options). What the first use listens to, and run_tests.sh with it:
#   PYTHON=/path/to/python     the interpreter to make .venv with, 3.11 or newer (default: the first of
#                              python3.13, python3.12, python3.11, python3, python that will do)
#   ENTP_TORCH_INDEX=URL       the package index to take torch from (default: the usual one; on Linux without an
#                              NVIDIA GPU https://download.pytorch.org/whl/cpu, the small build, if it answers)
# Packages are installed by uv, which is fetched first, and by pip where that fails. pip's own settings
# (PIP_INDEX_URL, pip.conf ...) count as usual, for both. To start afresh, delete .venv.
set -euo pipefail
CDPATH='' cd -- "$(dirname -- "${BASH_SOURCE[0]}")"
. tools/venv.sh
case " $* " in *' -h '* | *' --help '*) is_ready || { find_python && exec "$python" -m entp_lab run --help; } ;; esac
ensure_venv
exec .venv/bin/python -m entp_lab run "$@"
