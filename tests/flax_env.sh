#!/usr/bin/env bash
# Sets up .venv-flax with the last releases on which the Flax T5 of transformers 4 runs (jax 0.10 has
# no jnp.clip(a_max=...)), for the test that flax_model.msgpack and the slow tokenizer load there:
#   bash tests/flax_env.sh [FOLDER]
# It takes a minute the first time and nothing after that. tests/run.sh calls it.
set -euo pipefail

source "$(dirname "${BASH_SOURCE[0]}")/../launch/environment.sh"
folder="${1:-$ROOT/.venv-flax}"
# Flax models need no torch.
packages=('jax==0.9.2' 'jaxlib==0.9.2' 'flax==0.12.6' 'numpy==2.4.*' 'transformers==4.57.*'
  sentencepiece protobuf)
if [[ -f "$folder/ready" && "$(< "$folder/ready")" == "${packages[*]}" ]]; then
  exit 0
fi
if [[ ! -x "$folder/bin/python" ]]; then
  use_python
  "$PYTHON" -m venv "$folder"
fi
if ! "$folder/bin/python" -m pip install --quiet --disable-pip-version-check "${packages[@]}"; then
  echo "flax_env.sh: pip could not install ${packages[*]}. It is needed for the proof of flax_model.msgpack." >&2
  exit 1
fi
echo "${packages[*]}" > "$folder/ready"
