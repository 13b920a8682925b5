#!/usr/bin/env bash
# Prepares a worker for training. `launch/tpu.py setup` runs it there with four arguments: the folder
# of the clone, its origin, its branch or '', and the file in $HOME with git's login for it or ''.
# It installs git, Python, the clone, and .venv with jax and libtpu, skips what is done already, and
# prints the commit and the versions.
set -euo pipefail

folder="$1" repository="$2" branch="$3" login="$4"
export PATH="$HOME/.local/bin:$PATH"
has_python() {
  local version
  for version in 3.13 3.12 3.11; do
    "python$version" -c 'import venv, ensurepip' 2> /dev/null && return
  done
  return 1
}
apt() { sudo DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=600 "$@" >&2; }

need=()
command -v git > /dev/null || need+=(git)
has_python || python3 -m pip --version > /dev/null 2>&1 || need+=(python3-pip)
if [[ ${#need[@]} -gt 0 ]]; then
  for _ in 1 2 3 4 5 6; do apt update && break; sleep 20; done # its own updates run
  apt install "${need[@]}"
fi
if ! has_python; then # Ubuntu 20.04 and 22.04 have none
  PIP_BREAK_SYSTEM_PACKAGES=1 python3 -m pip install --quiet --user uv >&2
  uv python install --quiet 3.13 >&2
fi
lock="$folder/runs/.pod/lock" # launch/tpu_worker.py holds it while a run trains
if [[ -e "$lock" ]] && command -v flock > /dev/null && ! flock --shared --nonblock "$lock" true; then
  echo "tpu_worker_setup.sh: a run is training in ~/$folder, which set-up changes: stop it first." >&2
  exit 2
fi
helper="store --file ~/$login"
if [[ -d "$folder/.git" ]]; then
  git -C "$folder" remote set-url origin "$repository" # without the login of an earlier set-up
  if [[ -n "$login" ]]; then git -C "$folder" config credential.helper "$helper"; fi
  if [[ -f "$folder/runs/.pod/unpacked.json" ]]; then # by `tpu.py run --send`
    "$folder/.venv/bin/python" "$folder/launch/tpu_worker.py" undo
  fi
  git -C "$folder" fetch --quiet
  if [[ -z "$branch" ]]; then # the repository's own, and not that of an earlier set-up
    git -C "$folder" remote set-head origin --auto > /dev/null
    branch="$(git -C "$folder" symbolic-ref --short refs/remotes/origin/HEAD)"
    branch="${branch#origin/}"
  fi
  git -C "$folder" checkout --quiet "$branch"
  git -C "$folder" pull --quiet --ff-only
else
  git clone --quiet ${login:+--config credential.helper="$helper"} \
    ${branch:+--branch "$branch"} "$repository" "$folder"
fi
bash "$folder/launch/setup.sh" --tpu
echo "head $(git -C "$folder" rev-parse --short=12 HEAD)"
echo "has $("$folder/.venv/bin/python" -c '
from importlib.metadata import version
from platform import python_version
print("Python", python_version(), *(f"{p} {version(p)}" for p in ("jax", "libtpu")))')"
