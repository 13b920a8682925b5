#!/usr/bin/env bash
# Sets up .venv-optional: the packages of .venv, and beside them those that only some users install, for
# slow tests of corpora under s3:// and of the notebook:
#   bash tests/optional_env.sh [FOLDER]
# It takes a minute the first time and nothing after that.
set -euo pipefail

unset CDPATH  # cd prints the folder that it finds there
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
folder="${1:-$root/.venv-optional}"
packages=('s3fs==2026.9.0' 'moto[server]==5.2.5' 'nbclient==0.11.0' 'ipykernel==7.4.0')
if [[ -f "$folder/ready" && "$(< "$folder/ready")" == "${packages[*]}" ]]; then
  exit 0
fi
python="${PYTHON:-$root/.venv/bin/python}"
site='import sysconfig; print(sysconfig.get_path("purelib"))'
"$python" -m venv "$folder"
"$python" -c "$site" > "$("$folder/bin/python" -c "$site")/shared.pth"
if ! "$folder/bin/python" -m pip install --quiet --retries 1 "${packages[@]}"; then
  echo "optional_env.sh: pip could not install ${packages[*]}. Slow tests need them." >&2
  exit 1
fi
echo "${packages[*]}" > "$folder/ready"
