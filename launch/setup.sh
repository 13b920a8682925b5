#!/usr/bin/env bash
# Creates .venv with pinned packages, or brings it up to date: bash launch/setup.sh [flags]
#   --cpu, --tpu, --cuda   jax for this device; default: what .venv was made for, else what the machine
#                          has. --tpu also has the compiler with which preflight compiles for TPUs
#   --cache                also Apache Beam, for python -m tasks.cache
#   --s3                   also what reads and writes s3://
#   --dev                  also what tests, checks and the documentation need
# Does nothing if that is done already. Every other script calls it first. It installs by uv, from where
# pip would (PIP_INDEX_URL, pip.conf and so on), the versions of requirements/lock.txt. You may set:
#   UV_PYTHON              the Python to take, such as 3.12; default: the newest from 3.13 to 3.11
#   TORCH_INDEX            where PyTorch's CPU build is looked for; default: PyTorch's own index
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
answer_help "$@"

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

cd "$ROOT"

# Written when everything is installed: the flags, then the lists and the lock.
stamp="$VENV/installed"
before=() device="" extras=""
if [[ -s "$stamp" ]]; then read -ra before < "$stamp"; fi # it is empty if the disk was full
for argument in "$@"; do
  case "$argument" in
    --cpu | --tpu | --cuda)
      if [[ -n "$device" && "$device" != "$argument" ]]; then
        fail "$device and $argument are for different devices: give one of them."
      fi
      device="$argument"
      ;;
    --cache | --s3 | --dev) ;;
    *)
      fail "'$argument' is not understood: bash launch/setup.sh takes --cpu, --tpu or --cuda," \
        "--cache, --s3 and --dev."
      ;;
  esac
done
device="${device:-${before[0]:-}}"
if [[ -z "$device" ]]; then
  device=--cpu
  if has_gpu; then device=--cuda; fi
  if has_tpu; then device=--tpu; fi
fi
for extra in --cache --s3 --dev; do
  if [[ " $* ${before[*]-} " == *" $extra "* ]]; then extras+=" $extra"; fi
done
# Tests compile every recipe for TPUs.
read -ra flags <<< "--extra=${device#--} ${extras//--/--extra=}"
if [[ "$extras" == *--dev* ]]; then flags+=(--extra=tpu --extra=cache); fi

contents() { echo "$device$extras" && cat pyproject.toml requirements/lock.txt; }
# True if .venv has all that, and the Python of a UV_PYTHON such as 3.12.
is_done() {
  local print='import platform; print(platform.python_version())' version
  version="$("$VENV/bin/python" -c "$print" 2> /dev/null)" && contents | cmp -s - "$stamp" \
    && [[ ! "${UV_PYTHON:-}" =~ ^[0-9.]+$ || "$version." == "$UV_PYTHON".* ]]
}

if is_done; then exit 0; fi
if [[ "$device" == --cuda ]]; then # from docs.nvidia.com/deploy/cuda-compatibility
  driver="$(nvidia-smi --query-gpu=driver_version --format=csv,noheader 2> /dev/null | head -n 1 || true)"
  if [[ "$driver" =~ ^[0-9.]+$ && "$(printf '%s\n' "$driver" 525.60.13 | sort -V | head -n 1)" != 525.60.13 ]]; then
    fail "NVIDIA's driver is $driver and jax for CUDA 12 needs 525.60.13 or newer: update the driver," \
      "or use the CPU by bash launch/setup.sh --cpu."
  fi
fi
# Two scripts may start at the same time: the second waits, then finds the work done. NFS locks only
# what is open for writing.
exec 9<> requirements/lock.txt
if command -v flock > /dev/null && ! flock --nonblock 9; then
  echo "Another set-up of .venv is running; waiting for it."
  flock 9
  if is_done; then exit 0; fi
fi
# Made anew, since one that was stopped may hold half a package; but only if set-up made it.
if [[ -e "$VENV" && ! -e "$VENV/.made_by_setup" ]]; then
  fail ".venv exists and was not made by launch/setup.sh: set PYTHON=.venv/bin/python to use it, or" \
    "remove it."
fi
python="$(find_python)"
echo "Setting up .venv for $device$extras ($("$python" --version), once for these versions)."
trap 'fail "stopped before .venv was complete; the same command starts again."' INT
rm -rf "$VENV"
mkdir "$VENV"
: > "$VENV/.made_by_setup"
"$python" -m venv "$VENV"
# pip's settings (index, links, certificates) become uv's, which does not read them itself.
while IFS= read -r setting; do
  export "${setting?}"
done < <("$VENV/bin/python" -m pip config list | "$VENV/bin/python" launch/pip_settings.py)
PATH="$PATH:$HOME/.local/bin:$VENV/bin"
if ! command -v uv > /dev/null; then
  "$VENV/bin/python" -m pip install --quiet --disable-pip-version-check 'uv>=0.9'
fi
# PyTorch only converts and proves weights here. PyPI's build of it for Linux brings CUDA, 4.1 GB more.
index="${TORCH_INDEX:-https://download.pytorch.org/whl/cpu}" ask='
import sys, urllib.request as web
web.urlopen(web.Request(sys.argv[1], method="HEAD"), timeout=5)'
if [[ "$(uname -s)" == Linux ]]; then
  if timeout 8 "$VENV/bin/python" -c "$ask" "$index/torch/" 2> /dev/null; then
    export UV_INDEX="${UV_INDEX:+$UV_INDEX }$index"
  else
    echo "$index does not answer within seconds: PyTorch comes from pip's index, where it usually" \
      "brings CUDA, 4.1 GB more, which is not used."
  fi
fi
# Status 1: another try may succeed, whereas 2 means that the command itself is wrong.
uv pip install --python "$VENV/bin/python" --requirement pyproject.toml "${flags[@]}" --group linux \
  --constraint requirements/lock.txt \
  || (fail "uv could not install the packages: the lines above say why.") || exit 1
contents > "$stamp"
echo "The packages are installed in .venv ($SECONDS s)."
