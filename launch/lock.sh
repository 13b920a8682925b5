#!/usr/bin/env bash
# Resolves requirements.in and requirements-dev.in into requirements.txt, every version pinned:
#   bash launch/lock.sh
# Run it on Linux with Python 3.11 after a change to either file. It installs nothing.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
cd "$ROOT"
if [[ $# -gt 0 ]]; then
  fail "'$1' is not understood: bash launch/lock.sh takes no arguments."
fi

work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
python="$(find_python)"
"$python" -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --dry-run --report "$work/report.json" \
  -r requirements.in -r requirements-dev.in

# A build tag such as +cpu belongs to this machine. CUDA's own packages follow torch's CUDA build,
# wherever pip chooses that.
"$work/venv/bin/python" - "$work/report.json" > "$work/lock" <<'PYTHON'
import json, sys
found = [item["metadata"] for item in json.load(open(sys.argv[1]))["install"]]
pins = {f"{item['name'].lower()}=={item['version'].partition('+')[0]}" for item in found}
print("# requirements.in and requirements-dev.in, resolved for Linux and Python 3.11: bash launch/lock.sh")
print(*sorted(pin for pin in pins if not pin.startswith(("nvidia-", "cuda-", "triton="))), sep="\n")
PYTHON
cp "$work/lock" requirements.txt
echo "requirements.txt pins $(grep -c == requirements.txt) packages; bash launch/setup.sh installs them."
