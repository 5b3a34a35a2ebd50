# Sourced by the other scripts: makes .venv and keeps it equal to the pins in requirements/.
# The caller has set `root`, the folder of the checkout, and stands in it.
#
# Stamps, .venv/installed-*, say what was installed and are written last. An environment without one
# was interrupted or made by something else, and is made again from nothing.
# shellcheck shell=sh disable=SC2154

export UV_PYTHON_DOWNLOADS=never # a missing Python is to be told, not downloaded
unset PYTHONPATH PYTHONHOME      # packages of another project would shadow the pinned ones

say() {
  printf '%s: %s\n' "$(basename -- "$0")" "$*" >&2
}

fail() {
  say "$@"
  exit 1
}

# Prints e.g. "3.11 new complete". Runs on any Python, so that an old one can be named. Debian
# ships Python without ensurepip, and such a one can't make an environment.
python_probe='
import sys
try:
    import ensurepip, venv
    parts = "complete"
except ImportError:
    parts = "bare"
age = "new" if sys.version_info >= (3, 11) else "old"
print("%d.%d %s %s" % (sys.version_info[0], sys.version_info[1], age, parts))
'

# Sets `python` to the first that will do: $PYTHON alone if given, else the tested versions first.
find_python() {
  if [ -n "${PYTHON:-}" ]; then
    set -- "$PYTHON"
  else
    set -- python3.13 python3.12 python3.11 python3 python
  fi
  seen=
  for candidate in "$@"; do
    # A version manager leaves commands that only say the version is not active: they fail here.
    answer=$("$candidate" -c "$python_probe" 2>/dev/null </dev/null) || continue
    case $answer in
      *' new complete')
        python=$candidate
        return
        ;;
      *' new bare') seen="${seen:-$candidate is Python ${answer%% *} without its venv and ensurepip modules (on Debian: apt install python3-venv)}" ;;
      *' old '*) seen="${seen:-$candidate is Python ${answer%% *}}" ;;
    esac
  done
  if [ -n "${PYTHON:-}" ] && [ -z "$seen" ]; then
    seen="PYTHON=$PYTHON does not run"
  fi
  fail "Python 3.11 or newer is needed: ${seen:-none was found}. Install one, or name one with PYTHON=/path/to/python3."
}

# What must be unchanged for an environment to be kept: scripts in it hold the checkout's path, and
# its packages belong to one minor version of Python. Prints nothing when its Python is gone.
identity() {
  .venv/bin/python -c 'import sys; print("Python %d.%d in" % sys.version_info[:2], sys.argv[1])' \
    "$root" 2>/dev/null || :
}

# What the packages are installed from.
pins() {
  identity
  cat requirements/bootstrap.txt "requirements/$kind.txt"
}

# Whether the packages can be brought up to date in place.
finished() {
  for stamp in .venv/installed-runtime .venv/installed-development; do
    if [ -f "$stamp" ] && [ "$(head -n 1 "$stamp")" = "$(identity)" ]; then
      return 0
    fi
  done
  return 1
}

# A step with its output in the log. A failure is told in one line.
step() {
  "$@" >>.venv/install.log 2>&1 </dev/null && return
  log="$root/.venv/install.log"
  if grep -Eiq 'error sending request|failed to fetch|dns error|name resolution|connection (refused|reset|broken|error)|timed out|network is unreachable|proxy|from versions: none' "$log"; then
    # Everything is fetched before anything is installed, so a finished environment still is one.
    if [ -d .venv/before ]; then
      mv .venv/before/* .venv/
      rmdir .venv/before
    fi
    fail "the network is needed to install what requirements/ pins, and the package index can't be reached (log: $log)."
  fi
  fail "installing what requirements/ pins failed: $(grep . "$log" | tail -n 1) (log: $log)"
}

install_packages() {
  if finished; then
    say "updating .venv to the pinned packages"
    mkdir -p .venv/before
    mv .venv/installed-* .venv/before/
    : >.venv/install.log
  else
    find_python
    say "making .venv with $python and installing the pinned packages (once)"
    rm -rf .venv
    mkdir .venv
    step "$python" -m venv .venv
  fi
  # uv installs the rest, ten times quicker than pip. It is pinned by hash like everything else.
  step .venv/bin/python -m pip install --quiet --no-input --disable-pip-version-check --retries 2 \
    --require-hashes --requirement requirements/bootstrap.txt
  step .venv/bin/uv pip sync --quiet --python .venv/bin/python --require-hashes \
    "requirements/$kind.txt"
  # The sync has taken the project itself away, since no pin names it.
  rm -rf .venv/before
  pins >.venv/unfinished
  mv .venv/unfinished ".venv/installed-$kind"
}

# Needs no network: the build backend is pinned among the packages.
install_project() {
  step .venv/bin/uv pip install --quiet --python .venv/bin/python --no-deps --no-build-isolation \
    --editable .
  cp pyproject.toml .venv/unfinished
  mv .venv/unfinished .venv/installed-project
}

# prepare_environment runtime|development
prepare_environment() {
  kind=$1
  # A development environment also serves. Going back and forth would reinstall for nothing.
  if [ "$kind" = runtime ] && [ -f .venv/installed-development ]; then
    kind=development
  fi
  if ! { [ -f ".venv/installed-$kind" ] && pins | cmp -s - ".venv/installed-$kind"; }; then
    install_packages
  fi
  if ! cmp -s pyproject.toml .venv/installed-project; then
    install_project
  fi
}
