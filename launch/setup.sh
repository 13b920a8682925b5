#!/usr/bin/env bash
# Creates .venv with pinned packages, or brings it up to date: bash launch/setup.sh [flags]
#   --cpu, --tpu, --cuda   jax for this device, from requirements/cpu.txt, tpu.txt or cuda.txt; default:
#                          what .venv was made for, else what the machine has. --tpu also has the
#                          compiler with which preflight compiles for TPUs on any machine
#   --cache                also Apache Beam, for python -m tasks.cache
#   --clean                also what cleans a corpus: languages, main texts, near-duplicates
#   --dev                  also what tests, checks and the documentation need: requirements.txt
# Does nothing if that is done already. Every other script calls it first. You may set:
#   TORCH_INDEX            where PyTorch's CPU build is looked for; default: PyTorch's own index
# Everything else comes from pip's index, as pip is set up (PIP_INDEX_URL and so on).
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
cd "$ROOT"

# Written when everything is installed: the flags, then the locks. A .venv without it is replaced,
# because it may hold half a package, which pip would take for a complete one.
stamp="$VENV/installed"
log="$VENV/pip.log"
made="$VENV/.made_by_setup"

before=() flavour="" extras=""
if [[ -f "$stamp" ]]; then
  read -ra before < "$stamp"
fi
for argument in "$@"; do
  case "$argument" in
    --cpu | --tpu | --cuda)
      if [[ -n "$flavour" && "$flavour" != "$argument" ]]; then
        fail "$flavour and $argument are for different devices: give one of them."
      fi
      flavour="$argument"
      ;;
    --cache | --clean | --dev) ;;
    *)
      fail "'$argument' is not understood: bash launch/setup.sh takes --cpu, --tpu or --cuda," \
        "--cache, --clean and --dev."
      ;;
  esac
done
flavour="${flavour:-${before[0]:-$(flavour_of_machine)}}"
for extra in --cache --clean --dev; do
  if [[ " $* ${before[*]-} " == *" $extra "* ]]; then
    extras+=" $extra"
  fi
done
locks=("requirements/${flavour#--}.txt")
if [[ "$extras" == *--cache* ]]; then locks+=(requirements/cache.txt); fi
if [[ "$extras" == *--clean* ]]; then locks+=(requirements/clean.txt); fi
if [[ "$extras" == *--dev* ]]; then locks+=(requirements.txt); fi

is_done() {
  { echo "$flavour$extras" && cat "${locks[@]}"; } | cmp -s - "$stamp" \
    && "$VENV/bin/python" -c '' 2> /dev/null
}

# True if no one misses .venv: set-up made it, or `python -m venv .venv` did, by which you choose the
# Python, and it has no package but those that it is made with.
is_replaceable() {
  local info
  if [[ ! -e "$VENV" || -e "$made" || -e "$stamp" || -e "$log" ]]; then return 0; fi
  [[ -f "$VENV/pyvenv.cfg" ]] || return 1
  for info in "$VENV"/lib/python3*/site-packages/*.{dist,egg}-info; do
    case "${info##*/}" in
      pip-* | setuptools-* | wheel-* | '*.'*) ;;
      *) return 1 ;;
    esac
  done
}

# Python compiles a module when it is first imported. Most never are, so compiling all would waste 0.4
# GB; but tests start many processes at once, and PYTHONDONTWRITEBYTECODE keeps nothing.
compiled=(--no-compile)
if [[ "$extras" == *--dev* || -n "${PYTHONDONTWRITEBYTECODE:-}" ]]; then
  compiled=()
fi

# Runs pip install with these arguments.
pip_install() {
  PYTHONUNBUFFERED=1 "$VENV/bin/python" -m pip install --disable-pip-version-check \
    --progress-bar off ${compiled[@]+"${compiled[@]}"} "$@" 2>&1 | follow_pip
}

# Shows pip's progress, and its output only where it reports a problem.
follow_pip() {
  local line name seen=0
  while IFS= read -r line; do
    echo "$line" >> "$log"
    case "$line" in
      Collecting\ * | Processing\ * | Requirement\ already\ satisfied:*)
        seen=$((seen + 1))
        name="${line%% (from *}"
        name="${name#Requirement already satisfied: }"
        name="${name#Collecting }"
        name="${name##Processing */}"
        say "package $seen of $count: ${name%%[=<>~ ]*}"
        ;;
      Installing\ collected*) say "installing the packages: a minute or two" ;;
      ERROR:* | *Retrying*) say "$line" && echo ;;
    esac
  done
}

# Redraws one line on a terminal; elsewhere prints a line for every 25th package.
say() {
  if [[ -t 1 ]]; then
    printf '\r\033[K  %s' "$1"
  elif [[ ! "$1" =~ ^package || "$1" =~ ^package\ [0-9]*(00|25|50|75)\  ]]; then
    echo "  $1"
  fi
}

# Installs PyTorch's CPU build from its own index if that answers within seconds. The build for Linux
# in pip's index brings CUDA, 4.1 GB more.
install_torch() {
  local index="${TORCH_INDEX:-https://download.pytorch.org/whl/cpu}" ask='
import sys, urllib.request as web
web.urlopen(web.Request(sys.argv[1], method="HEAD"), timeout=5)'
  if timeout 8 "$VENV/bin/python" -c "$ask" "$index/torch/" 2> /dev/null \
    && pip_install --no-deps --retries 1 --index-url "$index" "$torch"; then
    return
  fi
  echo "  $index gave no $torch within seconds: it comes from pip's index, where PyTorch for Linux" \
    "usually brings CUDA, 4.1 GB more, which is not used."
}

# Installs the locks. They are complete, so pip resolves nothing; and on Linux they have tensorflow-cpu,
# where tensorflow-text asks for tensorflow.
install() {
  local torch="" found="$VENV/lib/python3*/site-packages/torch-"
  if [[ "$(uname -s)" == Linux ]]; then
    torch="$(sed -n 's/^\(torch==[^ ;]*\).*/\1/p' "${locks[0]}")"
  fi
  if [[ -n "$torch" ]] && ! compgen -G "$found${torch#*==}*" > /dev/null; then
    install_torch
  fi
  pip_install --no-deps "${locks[@]/#/--requirement=}" || return
  if [[ -n "$torch" ]] && ! compgen -G "$found${torch#*==}+cpu*" > /dev/null; then
    pip_install "$torch" || return # with the packages that only this build needs
  fi
  # Headers, 0.4 GB, with which one would compile operations of TensorFlow.
  rm -rf "$VENV"/lib/python3*/site-packages/tensorflow/include
}

if is_done; then
  exit 0
fi
if [[ "$flavour" == --cuda ]]; then
  check_driver
fi
# Two scripts may start at the same time: the second waits, then finds the work done.
exec 9< requirements.txt
if command -v flock > /dev/null && ! flock --nonblock 9; then
  echo "Another set-up of .venv is running; waiting for it."
  flock 9
fi
if is_done; then
  exit 0
fi

if ! is_replaceable; then
  fail ".venv exists and was not made by launch/setup.sh: set PYTHON=.venv/bin/python to use it, or" \
    "remove it."
fi
python="$(find_python)"
count="$(sed -n 's/==.*//p' "${locks[@]}" | sort -u | grep -c .)"
echo "Setting up .venv for $flavour$extras ($("$python" --version), $count packages; takes minutes, once for these versions)."
clear=()
# A change of device from the CPU adds packages; any other would leave the old device's behind.
if [[ -e "$VENV" && ! ("${before[0]-}" == "$flavour" || "${before[0]-}" == --cpu) ]]; then
  clear=(--clear)
fi
"$python" -m venv ${clear[@]+"${clear[@]}"} "$VENV"
: > "$made"
rm -f "$stamp" "$log"
trap 'fail "stopped before .venv was complete; the same command starts again."' INT
if ! install; then
  # Status 1: another try may succeed, whereas 2 means that the command itself is wrong.
  (fail "pip could not install ${locks[*]}; its output is in $log.") || exit 1
fi
{ echo "$flavour$extras" && cat "${locks[@]}"; } > "$stamp"
say "$count packages are installed in .venv ($SECONDS s)."
if [[ -t 1 ]]; then echo; fi
