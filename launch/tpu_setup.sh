#!/usr/bin/env bash
# Prepares every worker of a slice for training: bash launch/tpu_setup.sh NAME ZONE
# Installs Python, tmux, a clone at one commit, .venv with jax and libtpu, and HF_TOKEN in a file if
# it is set. Steps already done are skipped.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/tpu.sh"
USAGE="takes NAME ZONE"

# Runs on each worker, with FOLDER, REPO, BRANCH and TOKEN set.
# shellcheck disable=SC2016
PREPARE='
set -euo pipefail
export PATH="$HOME/.local/bin:$PATH"
has_python() {
  local version
  for version in 3.13 3.12 3.11; do
    "python$version" -c "import venv, ensurepip" 2> /dev/null && return
  done
  return 1
}
apt() { sudo DEBIAN_FRONTEND=noninteractive apt-get -qq -o DPkg::Lock::Timeout=600 "$@" >&2; }
need=""
for tool in git tmux; do command -v "$tool" > /dev/null || need+=" $tool"; done
has_python || python3 -m pip --version > /dev/null 2>&1 || need+=" python3-pip"
if [[ -n "$need" ]]; then
  for try in 1 2 3 4 5 6; do apt update && break; sleep 20; done # a new machine is busy with its own updates
  apt install $need
fi
if ! has_python; then # Ubuntu 20.04 and 22.04 have none
  PIP_BREAK_SYSTEM_PACKAGES=1 python3 -m pip install --quiet --user uv >&2
  uv python install --quiet 3.13 >&2
fi
if [[ -d "$FOLDER/.git" ]]; then
  git -C "$FOLDER" fetch --quiet
  if [[ -n "$BRANCH" ]]; then git -C "$FOLDER" checkout --quiet "$BRANCH"; fi
  git -C "$FOLDER" pull --quiet --ff-only
else
  git clone --quiet ${BRANCH:+--branch "$BRANCH"} "$REPO" "$FOLDER"
fi
if [[ -n "$TOKEN" ]]; then # created empty and private before the token is written to it
  mkdir -p -m 700 "$HOME/.cache/huggingface"
  (umask 077 && touch "$HOME/.cache/huggingface/token")
  chmod 600 "$HOME/.cache/huggingface/token"
fi
bash "$FOLDER/launch/setup.sh" --tpu
echo "head $(git -C "$FOLDER" rev-parse --short=12 HEAD)"
echo "has $("$FOLDER/.venv/bin/python" -c "
from importlib.metadata import version
from platform import python_version
print(\"Python\", python_version(), *(f\"{p} {version(p)}\" for p in (\"jax\", \"libtpu\")))")"
'

# A new slice rejects ssh for a while; the first connection also creates your key.
wait_for_ssh() {
  local tries=0
  until LIMIT="${TPU_SSH_SECONDS:-120}" on_worker 0 true > "$WORK/0" 2> "$WORK/0.err"; do
    echo 255 > "$WORK/0.status"
    if ((++tries == 5)); then
      fail "worker 0 of $NAME rejects ssh: $(why_failed 0)"
    fi
    sleep "${TPU_POLL_SECONDS:-15}"
  done
}

take_slice "NAME ZONE" "$@"
if [[ ${#ARGUMENTS[@]} -gt 0 ]]; then
  reject_argument "$USAGE" "${ARGUMENTS[0]}"
fi
use_repository
need_ready
wait_for_ssh
echo "Setting up $WORKERS workers of $NAME from $TPU_REPO: takes minutes the first time."
on_workers "$(printf 'FOLDER=%q REPO=%q BRANCH=%q TOKEN=%q bash -c %q' \
  "$FOLDER" "$TPU_REPO" "${TPU_BRANCH:-}" "${HF_TOKEN:+given}" "$PREPARE")"
fail_if_any_failed "the set-up has failed"
head="$(common_head)"
# Copied as a file, because every list of processes shows the arguments of commands.
if [[ -n "${HF_TOKEN:-}" ]]; then
  (umask 077 && echo "$HF_TOKEN" > "$WORK/token")
  tpus tpu-vm scp "$WORK/token" "$NAME:.cache/huggingface/token" --zone="$ZONE" --worker=all \
    ${TPU_INTERNAL_IPS:+--internal-ip} > /dev/null 2> "$WORK/gcloud_errors" \
    || fail "HF_TOKEN could not be copied to the workers: $(gcloud_error "$WORK/gcloud_errors")"
fi
for ((worker = 0; worker < WORKERS; worker++)); do
  echo "worker $worker  $head  $(sed -n 's/^has //p' "$WORK/$worker" | head -n 1 | printable)"
done
echo "Set-up is done. Next: bash launch/tpu_run.sh $NAME $ZONE launch/ro_t5x_base.sh"
