# shellcheck shell=bash
# Sourced by the other scripts: paths, the Python interpreter, the device.
# ROOT is the repository. $PYTHON is used as it is if you set it, else .venv, which launch/setup.sh
# creates.

unset CDPATH  # cd prints the folder that it finds there
ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
VENV="$ROOT/.venv"

# Prints one sentence and exits with status 2.
fail() {
  echo "$(basename "$0"): $*" >&2
  exit 2
}

# True for an integer without a sign. Text from another machine or from a file must pass this
# before it is compared or computed with: bash evaluates the text of an arithmetic expression, and
# a[$(command)] there runs the command.
is_number() {
  [[ "$1" =~ ^(0|[1-9][0-9]{0,17})$ ]]
}

# Copies text without control characters other than line ends and tabs: what another machine has
# written must not move the cursor or write to the clipboard of this terminal.
printable() {
  LC_ALL=C sed -u -e $'s/\302[\200-\237]//g' -e $'s/[\001-\010\013-\037\177]//g'
}

# Prints the name of a recipe, which may be given as NAME.gin or gin/NAME.gin.
recipe_name() {
  local name="${1#gin/}"
  echo "${name%.gin}"
}

# Rejects an unknown recipe; the second argument says what follows a recipe on the command line.
check_recipe() {
  if [[ -z "$1" || "$1" == */* || ! -f "$ROOT/gin/$1.gin" ]]; then
    local known near find='import difflib, sys; print(*difflib.get_close_matches(sys.argv[1], sys.argv[2:], 1))'
    known="$(cd "$ROOT/gin" && printf '%s ' *.gin)"
    known="${known//.gin/}"
    # shellcheck disable=SC2086 # one word each
    near="$(python3 -c "$find" "$1" $known 2> /dev/null || true)"
    fail "'$1' is not a recipe of gin/${near:+ (the nearest is $near)}: name one of ${known}and $2 after it."
  fi
}

# Rejects an argument that is neither a flag nor a flag's value: the trainer would ignore it silently.
check_flags() {
  local argument before="" switch='^--(no)?(dry[-_]run|print[-_]config|report|take[-_]over)$' # which take no value
  for argument in "$@"; do
    if [[ "$argument" != -* && ! ("$before" == --* && "$before" != *=* && ! "$before" =~ $switch) ]]; then
      fail "'$argument' is not a flag: flags begin with --, such as --gin.TRAIN_STEPS=1000."
    fi
    before="$argument"
  done
}

# Prints a text as a gin string.
gin_string() {
  local quoted="${1//\\/\\\\}"
  printf '"%s"' "${quoted//\"/\\\"}"
}

# Sets PYTHON to an interpreter with the packages of the locks. Scripts call it before they change the
# folder: a relative PYTHON starts from the current directory.
use_python() {
  if [[ -z "${PYTHON:-}" ]]; then
    bash "$ROOT/launch/setup.sh"
    PYTHON="$VENV/bin/python"
    return
  fi
  if [[ "$PYTHON" == */* && "$PYTHON" != /* ]]; then
    PYTHON="$PWD/$PYTHON"
  fi
  if ! command -v "$PYTHON" > /dev/null; then
    fail "PYTHON is $PYTHON, which is not a program: name an interpreter, or unset PYTHON to use .venv."
  fi
}

# Prints the newest Python from 3.13 down that is on the PATH, in pyenv's folder or known to uv; or the
# one that UV_PYTHON names.
find_python() {
  local version name
  for version in ${UV_PYTHON:-3.13 3.12 3.11}; do
    for name in "python$version" "${PYENV_ROOT:-$HOME/.pyenv}/versions/$version".*/bin/python \
      "$(PATH="$PATH:$HOME/.local/bin" uv python find --no-python-downloads "$version" 2> /dev/null || true)"; do
      if "$name" -c 'import sys, venv, ensurepip
sys.exit(not (3, 11) <= sys.version_info < (3, 14))' 2> /dev/null; then
        command -v "$name"
        return
      fi
    done
  done
  fail "no Python ${UV_PYTHON:-3.13, 3.12 or 3.11} with its venv module was found: install one, for" \
    "instance by 'uv python install 3.13' or 'apt install python3-venv'."
}

# Puts uv on the PATH, by pip where it is missing, and gives it pip's settings (index, links,
# certificates), which it does not read itself. The argument is an environment that has pip.
use_uv() {
  local setting
  while IFS= read -r setting; do
    export "${setting?}"
  done < <("$1/bin/python" -m pip config list | "$1/bin/python" "$ROOT/launch/pip_settings.py")
  PATH="$PATH:$HOME/.local/bin:$1/bin"
  if ! command -v uv > /dev/null; then
    "$1/bin/python" -m pip install --quiet --disable-pip-version-check 'uv>=0.9'
  fi
}

# True on a TPU machine. Its chips are /dev/accel0… (not /dev/accel/, which other accelerators use)
# or, on newer machines, /dev/vfio/0…, which any passed-through device may have: those must have
# Google's vendor number. Tests pass another root directory.
has_tpu() {
  local at="${1:-}"
  if compgen -G "$at/dev/accel[0-9]*" > /dev/null; then
    return 0
  fi
  compgen -G "$at/dev/vfio/[0-9]*" > /dev/null \
    && grep -qs 0x1ae0 "$at"/sys/bus/pci/devices/*/vendor
}

# Prints the version of NVIDIA's driver; fails where no GPU responds.
gpu_driver() {
  local driver
  driver="$(nvidia-smi --query-gpu=driver_version --format=csv,noheader 2> /dev/null)" || return
  [[ "$driver" =~ ^[0-9.]+ ]] && echo "${BASH_REMATCH[0]}"
}

has_gpu() {
  gpu_driver > /dev/null
}

# Fails with a sentence if the driver is older than CUDA 12 needs; $1, or nothing, says what happens
# instead. From docs.nvidia.com/deploy/cuda-compatibility.
check_driver() {
  local driver least=525.60.13
  if driver="$(gpu_driver)" && [[ "$(printf '%s\n' "$driver" "$least" | sort -V | head -n 1)" != "$least" ]]; then
    fail "NVIDIA's driver is $driver and jax for CUDA 12 needs $least or newer: update the driver," \
      "${1:-or use the CPU by bash launch/setup.sh --cpu.}"
  fi
}

# Prints the flag of launch/setup.sh for this machine. An old driver is reported, not an error.
flavour_of_machine() {
  if has_tpu; then
    echo --tpu
  elif has_gpu && (check_driver "then run bash launch/setup.sh --cuda; until then this is the CPU."); then
    echo --cuda
  else
    echo --cpu
  fi
}

# True if PYTHON can import one of the packages.
has_package() {
  "$PYTHON" -c '
import sys
from importlib.util import find_spec
sys.exit(not any(map(find_spec, sys.argv[1:])))' "$@"
}

# Selects the CPU where there is no TPU or GPU: jax would look for a TPU because libtpu is installed.
# Where there is one that the installed jax cannot use, a sentence says so. A JAX_PLATFORMS and
# GLIBC_TUNABLES that you set are kept.
choose_device() {
  local device flavour
  if [[ -z "${JAX_PLATFORMS+set}" ]]; then
    if has_tpu; then
      device=TPU flavour=--tpu
      if has_package libtpu; then return; fi
    elif has_gpu; then
      device=GPU flavour=--cuda
      if has_package jax_cuda12_plugin jax_cuda13_plugin; then return; fi
    fi
    if [[ -n "${device:-}" ]]; then
      echo "$(basename "$0"): this machine has a $device, but the jax of $PYTHON cannot use it, so this" \
        "runs on the CPU: bash launch/setup.sh $flavour installs what it needs." >&2
    fi
    export JAX_PLATFORMS=cpu
  fi
  if [[ "$JAX_PLATFORMS" == cpu ]]; then
    # On a CPU, XLA allocates memory for each step, and the first write to new memory is slow, so
    # glibc keeps what is freed, in few arenas.
    export GLIBC_TUNABLES="${GLIBC_TUNABLES-glibc.malloc.arena_max=$(($(getconf _NPROCESSORS_ONLN) + 1)):glibc.malloc.mmap_max=0:glibc.malloc.trim_threshold=1099511627776}"
  fi
}

# Makes T5X_DIR absolute, and takes the interpreter that launch/upstream.sh made beside it.
use_upstream() {
  if [[ ! -f "$T5X_DIR/t5x/train.py" ]]; then
    fail "T5X_DIR is $T5X_DIR, which has no t5x/train.py: name a checkout of upstream T5X, such as" \
      "bash launch/upstream.sh DIR makes in DIR/t5x."
  fi
  T5X_DIR="$(cd "$T5X_DIR" && pwd)"
  if [[ -z "${PYTHON:-}" && -x "$T5X_DIR/../venv/bin/python" ]]; then
    PYTHON="$T5X_DIR/../venv/bin/python"
  fi
}

# Names the settings of a recipe that upstream's trainer does not read. None changes the training.
say_what_upstream_lacks() {
  local name found=""
  for name in KEEP_BEST EXPECTED_LOSS INFILL_SENTENCES WRITERS; do
    if grep -q "^$name = " "$ROOT/gin/$1.gin"; then
      found+="${found:+, }$name"
    fi
  done
  if [[ -n "$found" ]]; then
    echo "$(basename "$0"): upstream T5X has no $found of gin/$1.gin: it trains the same without." >&2
  fi
}

# Runs a Python module; of upstream T5X where T5X_DIR is set.
run_module() {
  if [[ -z "${T5X_DIR:-}" ]]; then
    exec "$PYTHON" -m "$@"
  fi
  export T5X_DIR TF_CPP_MIN_LOG_LEVEL="${TF_CPP_MIN_LOG_LEVEL:-2}"
  exec "$PYTHON" -P "$ROOT/launch/run_upstream.py" "$@"
}

# Answers --help with the comment at the top of the script, and --version, before anything else is
# done. A sourced file sees the arguments of the script that sources it.
for argument in "$@"; do
  case "$argument" in
    --help | -h)
      sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"
      exit 0
      ;;
    --version)
      echo "$(sed -n 's/^name = "\(.*\)"/\1/p; s/^version = "\(.*\)"/\1/p' "$ROOT/pyproject.toml" | xargs)" \
        "($(git -C "$ROOT" describe --always --dirty --exclude='*' 2> /dev/null || echo "no clone"))"
      exit 0
      ;;
  esac
done
