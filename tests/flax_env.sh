#!/usr/bin/env bash
# Sets up .venv-flax, the last releases together on which transformers 4's Flax T5 runs (jax 0.10 has
# no jnp.clip(a_max=...) any more), for the proof that flax_model.msgpack loads there:
#   bash tests/flax_env.sh && .venv/bin/python -m pytest -m slow tests/test_convert_flax.py
set -euo pipefail

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
folder="$root/.venv-flax"
python="$root/.venv/bin/python"
if [[ ! -x "$python" ]]; then
  python=python3
fi
if [[ ! -x "$folder/bin/python" ]]; then
  "$python" -m venv "$folder"
fi
# torch stays away: Flax models need none.
"$folder/bin/python" -m pip install --quiet \
  'jax==0.9.2' 'jaxlib==0.9.2' 'flax==0.12.6' 'numpy==2.4.*' 'transformers==4.57.*' \
  sentencepiece protobuf
touch "$folder/ready"
