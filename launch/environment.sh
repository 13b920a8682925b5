# shellcheck shell=bash
# Sourced by the other scripts: where things are, which Python, which device.
# ROOT is the repository. Python: $PYTHON is used as it is where you set it; else .venv, which
# launch/setup.sh makes.

ROOT="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
VENV="$ROOT/.venv"

# One sentence, and out.
fail() {
  echo "$(basename "$0"): $*" >&2
  exit 2
}

# Refuses a name that is no recipe; the second word says what follows a recipe on the command line.
check_recipe() {
  if [[ -z "$1" || ! -f "$ROOT/gin/$1.gin" ]]; then
    local known
    known="$(cd "$ROOT/gin" && printf '%s ' *.gin)"
    fail "'$1' is no recipe of gin/: name one of ${known//.gin/}and $2 after it."
  fi
}

# Refuses a word that is no flag and no flag's value: the trainer would pass it over in silence.
check_flags() {
  local word before="" alone='^--(no)?(dry_run|report)$' # which take no value
  for word in "$@"; do
    if [[ "$word" != -* && ! ("$before" == --* && "$before" != *=* && ! "$before" =~ $alone) ]]; then
      fail "'$word' is no flag: flags begin with --, such as --gin.TRAIN_STEPS=1000."
    fi
    before="$word"
  done
}

# Prints a text as gin writes a string.
gin_string() {
  local quoted="${1//\\/\\\\}"
  printf '"%s"' "${quoted//\"/\\\"}"
}

# Sets PYTHON to an interpreter that has what requirements.txt names.
use_python() {
  if [[ -z "${PYTHON:-}" ]]; then
    bash "$ROOT/launch/setup.sh"
    PYTHON="$VENV/bin/python"
  fi
}

# Prints the first Python that .venv can be made with, the one that has made it before where that is
# still there; requirements.txt was resolved for 3.11.
find_python() {
  local name newest="" before
  before="$(sed -n 's/^executable = //p' "$VENV/pyvenv.cfg" 2> /dev/null || true)"
  for name in ${before:+"$before"} python3.11 python3 python3.12 python3.13; do
    if ! "$name" -c '' 2> /dev/null; then
      continue
    fi
    if ! "$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
      newest="${newest:-$("$name" -c 'import platform; print(platform.python_version())')}"
    elif "$name" -c 'import venv, ensurepip' 2> /dev/null; then
      command -v "$name"
      return
    else
      fail "$name has no venv module: install it (Debian and Ubuntu: apt install $name-venv)."
    fi
  done
  fail "Python 3.11 or newer is needed and ${newest:-none} was found: install python3.11."
}

# True on a TPU machine. Its chips are /dev/accel0… (not /dev/accel/, which other accelerators use)
# or, newer, /dev/vfio/0…, which any passed-through device may have: those must be Google's.
# Takes another root for tests.
has_tpu() {
  local at="${1:-}"
  if compgen -G "$at/dev/accel[0-9]*" > /dev/null; then
    return 0
  fi
  compgen -G "$at/dev/vfio/[0-9]*" > /dev/null \
    && grep -qs 0x1ae0 "$at"/sys/bus/pci/devices/*/vendor
}

# True where jax was installed with CUDA and a GPU answers.
has_gpu() {
  compgen -G "$VENV/lib/python3*/site-packages/jax_cuda*_plugin" > /dev/null \
    && nvidia-smi -L > /dev/null 2>&1
}

# Keeps jax from looking for a TPU, only because libtpu is installed. Your JAX_PLATFORMS stays.
choose_device() {
  if [[ -z "${JAX_PLATFORMS+set}" ]] && ! has_tpu && ! has_gpu; then
    export JAX_PLATFORMS=cpu
  fi
}

# Runs a Python module. Ours keep what their libraries say in a log (t5x/cli/log_capture.py). For upstream's,
# TensorFlow is imported before it, so that the notices of that import (its CPU instructions, CUDA
# drivers that nobody asked for), which TensorFlow prints before it reads any setting, can be held
# back; if the import fails they are shown. TensorFlow reads the data only, and leaves the GPUs to
# jax.
run_module() {
  if [[ -z "${T5X_DIR:-}" ]]; then
    exec "$PYTHON" -m "$@"
  fi
  export TF_CPP_MIN_LOG_LEVEL="${TF_CPP_MIN_LOG_LEVEL:-2}"
  exec "$PYTHON" -c '
import os, runpy, sys, tempfile
terminal, held = os.dup(2), tempfile.TemporaryFile()
os.dup2(held.fileno(), 2)
try:
    import tensorflow
    tensorflow.config.set_visible_devices([], "GPU")
    held.truncate(0)
finally:
    os.dup2(terminal, 2)
    held.seek(0)
    sys.stderr.write(held.read().decode())
    os.close(terminal), held.close()
module = sys.argv.pop(1)
runpy.run_module(module, run_name="__main__", alter_sys=True)
' "$@"
}
