#!/usr/bin/env bash
# Turns a run's checkpoints into Hugging Face folders: bash convert/convert.sh [FOLDER] [flags]
# FOLDER is a MODEL_DIR or one checkpoint, by default the newest run under runs/. Needs no
# accelerator. `--help` names the flags.
set -euo pipefail

unset CDPATH  # cd prints the folder that it finds there
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
python="${PYTHON:-python3}" # $PYTHON if you set it, else the repository's .venv, as in launch/
if [[ -z "${PYTHON:-}" && -x "$root/.venv/bin/python" ]]; then
  python="$root/.venv/bin/python"
fi
export JAX_PLATFORMS=cpu
export PYTHONPATH="$root${PYTHONPATH:+:$PYTHONPATH}"
exec "$python" -m convert "$@"
