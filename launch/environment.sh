# shellcheck shell=bash
# Sourced by the other scripts: finds the interpreter, and exports what it needs.
# ROOT is the repository. $PYTHON is used as it is if you set it, else .venv, which launch/setup.sh
# creates.

unset CDPATH # cd prints the folder that it finds there
ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
VENV="$ROOT/.venv"

# Prints one sentence and exits with status 2.
fail() {
  echo "$(basename "$0"): $*" >&2
  exit 2
}

# Prints the comment at the top of the script.
usage() {
  sed -n '2,/^[^#]/s/^# \{0,1\}//p' "$0"
}

# Prints the usage and exits, if an argument is --help.
answer_help() {
  if [[ " $* " =~ \ (--help|-h)\  ]]; then
    usage
    exit 0
  fi
}

# Sets `recipe` to the name of a recipe, which may be given as NAME.gin or gin/NAME.gin. Without one
# it prints the usage and exits with status 2.
use_recipe() {
  if [[ -z "$1" ]]; then
    usage >&2
    echo "Recipes: $(cd "$ROOT/gin" && echo *.gin)" >&2
    exit 2
  fi
  recipe="${1#gin/}"
  recipe="${recipe%.gin}"
  if [[ "$recipe" == */* || ! -f "$ROOT/gin/$recipe.gin" ]]; then
    local find='import difflib, sys; print(*difflib.get_close_matches(*sys.argv[1:2], sys.argv[2:], 1))' near
    near="$(cd "$ROOT/gin" && "${PYTHON:-python3}" -c "$find" "$recipe.gin" -- *.gin 2> /dev/null)" || near=""
    fail "'$1' is not a recipe of gin/${near:+ (the nearest is $near)}: name one of $(cd "$ROOT/gin" && echo *.gin), then flags."
  fi
}

# Prints a text as a gin string.
gin_string() {
  local quoted="${1//\\/\\\\}"
  printf '"%s"' "${quoted//\"/\\\"}"
}

# Prints a folder or program by its absolute path: a relative one starts from the current directory.
absolute() {
  if [[ "$1" == /* || "$1" == *://* ]]; then
    echo "$1"
  elif [[ "$1" == \~/* ]]; then
    echo "$HOME/${1#\~/}"
  else
    echo "$PWD/$1"
  fi
}

# Sets `flags` to these flags of the trainer, with absolute paths of the gin files that the current
# directory has, since scripts change the folder.
use_flags() {
  local flag
  flags=()
  for flag in "$@"; do
    if [[ "$flag" == --gin_file=* && -f "${flag#*=}" && "$PWD" != "$ROOT" ]]; then
      flag="--gin_file=$(absolute "${flag#*=}")"
    fi
    flags+=("$flag")
  done
}

# Sets PYTHON to an interpreter with the packages of the locks. Scripts call it before they change the
# folder: a relative PYTHON starts from the current directory.
use_python() {
  if [[ -z "${PYTHON:-}" ]]; then
    bash "$ROOT/launch/setup.sh"
    PYTHON="$VENV/bin/python"
    return
  fi
  if [[ "$PYTHON" == */* ]]; then
    PYTHON="$(absolute "$PYTHON")"
  fi
  if ! command -v "$PYTHON" > /dev/null; then
    fail "PYTHON is $PYTHON, which is not a program: name an interpreter, or unset PYTHON to use .venv."
  fi
}

# True on a TPU machine. Its chips are /dev/accel0… (not /dev/accel/, which other accelerators use)
# or, on newer machines, /dev/vfio/0…, which any passed-through device may have: those must have
# Google's vendor number. Tests pass another root directory.
has_tpu() {
  local at="${1:-}"
  compgen -G "$at/dev/accel[0-9]*" > /dev/null \
    || { compgen -G "$at/dev/vfio/[0-9]*" && grep -qs 0x1ae0 "$at"/sys/bus/pci/devices/*/vendor; } > /dev/null
}

# True where an NVIDIA GPU responds.
has_gpu() {
  nvidia-smi > /dev/null 2>&1
}

# Exports what Python and its libraries read. Where there is no TPU or GPU the CPU is chosen: jax would
# look for a TPU because libtpu is installed. A JAX_PLATFORMS and GLIBC_TUNABLES that you set are kept.
export_settings() {
  export PYTHONPATH="$ROOT${PYTHONPATH:+:$PYTHONPATH}"
  if [[ -z "${JAX_PLATFORMS+set}" ]] && ! has_tpu && ! has_gpu; then
    export JAX_PLATFORMS=cpu
  fi
  if [[ "${JAX_PLATFORMS:-}" == cpu ]]; then
    # On a CPU, XLA allocates memory for each step, and the first write to new memory is slow, so
    # glibc keeps what is freed, in few arenas.
    local arenas=$(($(getconf _NPROCESSORS_ONLN) + 1))
    export GLIBC_TUNABLES="${GLIBC_TUNABLES-glibc.malloc.arena_max=$arenas:glibc.malloc.mmap_max=0:glibc.malloc.trim_threshold=1099511627776}"
  fi
}
