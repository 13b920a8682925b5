#!/usr/bin/env bash
# Sets up .venv-served: the packages of .venv, and beside them those that the formats and the page of
# `python -m convert --formats onnx ctranslate2 --space` need, for their slow test:
#   bash tests/served_env.sh [FOLDER]
# It takes a minute the first time and nothing after that.
set -euo pipefail

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
folder="${1:-$root/.venv-served}"
packages=('onnx==1.23.2' 'onnxscript==0.7.2' 'onnxruntime==1.32.0' 'ctranslate2==4.8.5' 'gradio==6.31.0')
if [[ -f "$folder/ready" && "$(< "$folder/ready")" == "${packages[*]}" ]]; then
  exit 0
fi
python="${PYTHON:-$root/.venv/bin/python}"
site='import sysconfig; print(sysconfig.get_path("purelib"))'
"$python" -m venv "$folder"
"$python" -c "$site" > "$("$folder/bin/python" -c "$site")/shared.pth"
if ! "$folder/bin/python" -m pip install --quiet --retries 1 "${packages[@]}"; then
  echo "served_env.sh: pip could not install ${packages[*]}. They are needed for the proof of the served formats." >&2
  exit 1
fi
echo "${packages[*]}" > "$folder/ready"
