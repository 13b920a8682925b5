#!/usr/bin/env bash
# Creates .venv with the packages of requirements.txt: bash launch/setup.sh
# Does nothing if that is done already. Every other script calls it first.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
cd "$ROOT"
if [[ $# -gt 0 ]]; then
  fail "'$1' is not understood: bash launch/setup.sh takes no arguments."
fi

# Written when everything is installed; only this file marks a finished set-up.
stamp="$VENV/installed.txt"
# While this file exists, .venv may hold half a package, which pip would take for a complete one.
unfinished="$VENV/unfinished"

is_done() {
  cmp -s requirements.txt "$stamp" && "$VENV/bin/python" -c '' 2> /dev/null
}

# Shows pip's progress, of $1 packages, and its output only where it reports a problem.
follow_pip() {
  local line name seen=0
  while IFS= read -r line; do
    echo "$line" >> "$log"
    case "$line" in
      Collecting\ * | Processing\ * | Requirement\ already\ satisfied:*)
        seen=$((seen + 1))
        name="${line#Requirement already satisfied: }"
        name="${name#Collecting }"
        name="${name##Processing */}"
        say "package $seen of $1: ${name%%[=<>~ ]*}"
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

if is_done; then
  exit 0
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

python="$(find_python)"
count="$(grep -c == requirements.txt)"
echo "Setting up .venv ($("$python" --version), $count packages; takes minutes, once for these versions)."
clear=()
if [[ -e "$unfinished" ]]; then
  clear=(--clear)
fi
"$python" -m venv ${clear[@]+"${clear[@]}"} "$VENV"
touch "$unfinished"
rm -f "$stamp"
trap 'fail "stopped before .venv was complete; the same command starts again."' INT
log="$VENV/pip.log"
if ! PYTHONUNBUFFERED=1 "$VENV/bin/python" -m pip install --disable-pip-version-check \
  --progress-bar off -r requirements.txt 2>&1 | follow_pip "$count"; then
  # Status 1: another try may succeed, whereas 2 means that the command itself is wrong.
  (fail "pip could not install requirements.txt; its output is in $log.") || exit 1
fi
cp requirements.txt "$stamp"
rm "$unfinished"
say "$count packages are installed in .venv ($SECONDS s)."
if [[ -t 1 ]]; then echo; fi
