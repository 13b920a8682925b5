#!/usr/bin/env bash
# Makes .venv with what requirements.txt pins: bash launch/setup.sh
# Does nothing where that is done already. Every other script calls it first.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
cd "$ROOT"
if [[ $# -gt 0 ]]; then
  fail "'$1' is not understood: bash launch/setup.sh takes no words and no flags."
fi

# Written when all is installed, and nothing but this file says so.
stamp="$VENV/installed.txt"
# While it is there, .venv may hold half a package, which pip would take for a whole one.
unfinished="$VENV/unfinished"

is_done() {
  cmp -s requirements.txt "$stamp" && "$VENV/bin/python" -c '' 2> /dev/null
}

# Tells how far pip is, of $1 packages, and shows what pip says only where it complains.
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
      Installing\ collected*) say "putting the packages in place: a minute or two" ;;
      ERROR:* | *Retrying*) say "$line" && echo ;;
    esac
  done
}

# One line, redrawn on a terminal; elsewhere every 25th package has one.
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
# Two scripts may start at once: the second waits, then finds it done.
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
echo "Setting up .venv ($("$python" --version), $count packages, minutes; once for these versions)."
clear=()
if [[ -e "$unfinished" ]]; then
  clear=(--clear)
fi
"$python" -m venv ${clear[@]+"${clear[@]}"} "$VENV"
touch "$unfinished"
rm -f "$stamp"
trap 'fail "stopped before .venv was whole; the same command begins it anew."' INT
log="$VENV/pip.log"
if ! PYTHONUNBUFFERED=1 "$VENV/bin/python" -m pip install --disable-pip-version-check \
  --progress-bar off -r requirements.txt 2>&1 | follow_pip "$count"; then
  # Status 1: it may go better the next time, whereas 2 says that what was asked for is wrong.
  (fail "pip could not install requirements.txt; what it said is in $log.") || exit 1
fi
cp requirements.txt "$stamp"
rm "$unfinished"
say "$count packages are installed in .venv ($SECONDS s)."
if [[ -t 1 ]]; then echo; fi
