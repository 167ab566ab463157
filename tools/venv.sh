# shellcheck shell=bash
# Sourced by run_all.sh and run_tests.sh in the project's root: ensure_venv makes, updates or repairs .venv.
#
# .venv/installed says what the environment was made for. It is written last, so an interrupted install leaves
# none and the next run installs again. The lock and the log lie in .venv too, nothing lies anywhere else.

log=.venv/install.log # what uv and pip said
cpu_torch=https://download.pytorch.org/whl/cpu # where torch is without CUDA

# A user's own settings for Python, pip, IPython and matplotlib would break the installation or change what
# notebooks show.
unset PYTHONPATH PYTHONHOME PYTHONSTARTUP PYTHONOPTIMIZE PYTHONWARNINGS JUPYTER_PATH MPLBACKEND
unset PYTHONDONTWRITEBYTECODE # set, it has every process compile torch anew, which takes seconds of each
unset PIP_USER PIP_TARGET PIP_PREFIX PIP_ROOT UV_TARGET UV_PREFIX UV_SYSTEM_PYTHON
export MATPLOTLIBRC=/dev/null IPYTHONDIR="$PWD/.venv/ipython"

fail() {
  printf '%s: %s\n' "${0##*/}" "$*" >&2
  exit 1
}

# What the environment depends on: Python's version, the place (.venv/bin/* hold its path), the requirements.
wanted() {
  .venv/bin/python -ISc 'import sys; print("python %d.%d" % sys.version_info[:2])' 2>/dev/null
  printf 'in %s\n' "$(pwd -P)"
  cksum requirements.txt pyproject.toml 2>/dev/null || true
}

is_ready() { [ -x .venv/bin/python ] && [ "$(wanted)" = "$(cat .venv/installed 2>/dev/null)" ]; }

# Sets `python` to the first interpreter that is new enough and able to make environments.
find_python() {
  local candidate version whole old='' bare=''
  local candidates=(python3.13 python3.12 python3.11 python3 python)
  if [ -n "${PYTHON:-}" ]; then candidates=("$PYTHON"); fi
  for candidate in "${candidates[@]}"; do
    # Run it: a name on the PATH may be a version manager's stub, and Debian ships Python without ensurepip.
    whole=yes
    version=$("$candidate" -c 'import sys; print("%d.%d.%d" % sys.version_info[:3]); import ensurepip, venv' \
      2>/dev/null) || whole=no
    case $version/$whole in
      3.1[1-9]*/yes | 3.[2-9][0-9]*/yes) python=$candidate && return ;;
      3.1[1-9]*/no | 3.[2-9][0-9]*/no) bare=${bare:-$version} ;;
      ?*/*) old=${old:-$version ($candidate)} ;;
    esac
  done
  if [ -n "$bare" ]; then
    fail "Python $bare cannot make environments (no ensurepip); on Debian, Ubuntu: apt install python${bare%.*}-venv"
  elif [ -n "$old" ]; then
    fail "Python 3.11 or newer is needed, found only Python $old; PYTHON=/path/to/python names another one"
  elif [ -n "${PYTHON:-}" ]; then
    fail "PYTHON=$PYTHON does not run; it must name Python 3.11 or newer"
  fi
  fail "no Python found; install Python 3.11 or newer, or name one with PYTHON=/path/to/python"
}

# Takes an exclusive lock on descriptor 9, held until that is closed. The kernel drops it when its holder dies,
# so no lock is ever stale. macOS has no command for it, Python has. A file system without locks goes without.
lock() {
  "$python" -c 'if True:
    import fcntl, signal
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        fcntl.flock(9, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        print("Waiting for another run that is installing .venv ...", flush=True)
        fcntl.flock(9, fcntl.LOCK_EX)
    except OSError:
        pass'
}

# Runs a command whose output goes to the log; a terminal shows its latest line, other outputs one now and then.
logged() {
  local line='' said=-5
  "$@" 2>&1 </dev/null | while IFS= read -r line; do
    printf '%s\n' "$line" >>"$log" || true # a full disk must not stop the reading
    if [ -t 1 ]; then
      printf '\r\033[K%4d s  %.70s' "$SECONDS" "$line"
    elif [ $((SECONDS - said)) -ge 5 ]; then
      printf '%4d s  %.70s\n' "$SECONDS" "$line" && said=$SECONDS
    fi
  done 2>/dev/null && line=done
  if [ -t 1 ]; then printf '\r\033[K'; fi
  [ "$line" = done ]
}

explain_failure() {
  if grep -qi 'no space left' "$log"; then
    fail "no space left on the disk of .venv (about 2 GB, with CUDA 8), of the caches or of /tmp; see $PWD/$log"
  elif grep -qsE '[Cc]onnection (broken by|error)|(NewConnection|NameResolution|Timeout|Proxy|SSL)Error' "$log"; then
    fail "no network: pip cannot reach its package index, which the first run needs; see $PWD/$log"
  fi
  # the last error that says more than that a process of pip's own ended in one
  fail "making .venv failed: $(grep -iE '^ *error: ' "$log" | grep -v 'subprocess-exited-with-error' | tail -n 1 |
    grep . || tail -n 1 "$log"); see $PWD/$log"
}

with_pip() { logged .venv/bin/python -m pip install --no-input --disable-pip-version-check "$@"; }

# uv takes a tenth of pip's time; where it cannot be had, or fails, pip does the work and says what is wrong.
install() {
  if [ -x .venv/bin/uv ] &&
    logged .venv/bin/uv pip install --python .venv/bin/python --index-strategy unsafe-best-match "$@"; then return; fi
  with_pip "$@"
}

# Installs torch alone from the index $1; the rest then finds it installed.
torch_from() { UV_DEFAULT_INDEX=$1 PIP_INDEX_URL=$1 install --no-deps "$(pinned torch)"; }

# On Linux the default build of torch brings 6 GB of CUDA, which a machine without an NVIDIA GPU has no use for.
wants_cpu_torch() {
  [ "$(uname -s)" = Linux ] && [ -n "$(pinned torch)" ] && [ -z "${UV_NO_INDEX:-}" ] &&
    ! command -v nvidia-smi >/dev/null && [ ! -e /proc/driver/nvidia ]
}

# Whether an index answers within seconds; uv and pip would try for minutes.
answers() {
  timeout 5 .venv/bin/python -c 'import sys, urllib.request as r; r.urlopen(sys.argv[1] + "/torch/")' "$1" 2>/dev/null
}

pinned() { sed -n "s/^\($1==[^ ;#]*\).*/\1/p" requirements.txt; }

# Has pip's own configuration count as variables from here on, and its files no more: what they say of another place
# for packages (target, prefix, root, user) is left out, and has no option that takes it back.
read_settings() {
  local settings section name value
  settings=$(.venv/bin/python -m pip config list 2>/dev/null) || true
  for section in install global; do
    while IFS== read -r name value; do
      case $name in target | prefix | root | user) continue ;; esac
      name=PIP_$(tr 'a-z-' 'A-Z_' <<<"$name")
      value=$(sed "s/^'\(.*\)'\$/\1/; s/\\\\n/ /g; s/^ *//; s/  */ /g" <<<"$value")
      if [ -n "$value" ] && [ -z "${!name:-}" ]; then export "$name=$value"; fi
    done < <(sed -n "s/^$section\.\([a-z0-9-]*=\)/\1/p" <<<"$settings")
  done
  export PIP_CONFIG_FILE=/dev/null
}

# uv reads none of pip's settings: passes one on as uv's variable, unless the user has set that.
pass_on() {
  local value=${!1:-}
  if [ -n "$value" ] && [ -z "${!2:-}" ]; then export "$2=${value//' '/$3}"; fi
}

make_venv() {
  local usual=''
  lock
  if is_ready; then return; fi # the run that held the lock has done it
  trap 'printf "\n%s: interrupted; the next run installs again\n" "${0##*/}" >&2 && exit 130' INT
  if ! .venv/bin/python -c 'import pip' 2>/dev/null ||
    { [ -f .venv/installed ] && [ "$(head -n 2 .venv/installed)" != "$(wanted | head -n 2)" ]; }; then
    echo "Creating .venv (first run here, about a minute) ..."
    # python goes first: what an interruption leaves of the old environment must not look like a whole one.
    rm -f .venv/bin/python
    find .venv -mindepth 1 -maxdepth 1 ! -name lock -exec rm -rf {} +
    logged "$python" -m venv .venv || explain_failure
  else
    echo "Updating .venv (requirements.txt or pyproject.toml changed, or an install was interrupted) ..."
  fi
  rm -f .venv/installed "$log"
  read_settings
  if [ ! -x .venv/bin/uv ] && [ -n "$(pinned uv)" ]; then with_pip "$(pinned uv)" || true; fi
  pass_on PIP_INDEX_URL UV_DEFAULT_INDEX ' ' && pass_on PIP_EXTRA_INDEX_URL UV_INDEX ' '
  pass_on PIP_FIND_LINKS UV_FIND_LINKS , && pass_on PIP_NO_INDEX UV_NO_INDEX ' ' && pass_on PIP_CERT SSL_CERT_FILE ' '
  if [ -n "${ENTP_TORCH_INDEX:-}" ]; then
    torch_from "$ENTP_TORCH_INDEX" || explain_failure
  elif wants_cpu_torch && ! { answers "$cpu_torch" && torch_from "$cpu_torch"; }; then
    usual=yes
  fi
  install -r requirements.txt || explain_failure
  if [ -n "$usual" ]; then echo "torch came from the usual index, not from $cpu_torch, and may have brought CUDA"; fi
  wanted >.venv/installed.new
  mv -f .venv/installed.new .venv/installed
  trap - INT
  echo "Made .venv in $SECONDS s."
}

ensure_venv() {
  if is_ready; then return; fi
  if [ -L .venv ]; then fail "$PWD/.venv is a link to an environment made for another place; remove the link"; fi
  find_python
  if ! mkdir -p .venv 2>/dev/null || ! [ -w .venv ]; then fail "cannot write to $PWD/.venv"; fi
  make_venv 9>>.venv/lock
}
