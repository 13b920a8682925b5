#!/usr/bin/env bash
# Pins every version that pyproject.toml leads to, for Linux and macOS and for Python 3.11 to 3.13:
#   bash launch/lock.sh            after a change to a list; keeps what is pinned and still fits
#   bash launch/lock.sh --upgrade  the newest versions that the lists allow
# It writes requirements/lock.txt, which launch/setup.sh obeys, and from it requirements.txt, for those
# who use pip: what trains and converts, on a TPU or a CPU. It installs nothing.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
answer_help "$@"
cd "$ROOT"
if [[ $# -gt 1 || ! "${1:-}" =~ ^(--upgrade)?$ ]]; then
  fail "'$*' is not understood: bash launch/lock.sh takes --upgrade or nothing."
fi
command -v uv > /dev/null || fail "uv is not on the PATH: install it (pip install uv)."
export UV_INDEX_STRATEGY="${UV_INDEX_STRATEGY:-unsafe-best-match}"

# Resolves some extras into a file: resolve FILE FLAG…
resolve() {
  uv pip compile --quiet --universal --python-version 3.11 --no-annotate \
    --custom-compile-command "bash launch/lock.sh" --output-file "$@" pyproject.toml > /dev/null
}

resolve requirements/lock.txt --all-extras --group linux "$@"
# pip knows none of the overrides of [tool.uv]. It finds itself what PyTorch's build needs, which with
# CUDA is 3 GB.
rm -f requirements.txt
resolve requirements.txt --no-config --extra tpu --constraint requirements/lock.txt
sed -i.bak -E '/^(cuda-|nvidia-|triton=)/d' requirements.txt
rm requirements.txt.bak
