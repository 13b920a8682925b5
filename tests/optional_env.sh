#!/usr/bin/env bash
# Sets up an environment of packages that only some users install, beside those of .venv:
#   bash tests/optional_env.sh [NAME]
# | NAME | folder | packages for tests of |
# |---|---|---|
# | flax | .venv-flax | published folders in transformers 4, with PyTorch and Flax; tests/run.sh calls it |
# | optional | .venv-optional | corpora under s3:// and the notebook |
# | users | .venv-users | sentence-transformers and Transformers.js |
# | exporters | .venv-exporters | optimum, CTranslate2 and Flair, which need transformers 4 |
# It takes a minute or two the first time and nothing after that.
set -euo pipefail

unset CDPATH  # cd prints the folder that it finds there
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
name="${1:-optional}"
folder="$root/.venv-$name"
node=''
case "$name" in
  flax) # The last releases together: jax 0.10 has no jnp.clip(a_max=...).
    packages=('jax==0.9.2' 'jaxlib==0.9.2' 'flax==0.12.6' 'transformers==4.57.*')
    ;;
  optional) packages=('s3fs==2026.9.0' 'moto[server]==5.2.5' 'nbclient==0.11.0' 'ipykernel==7.4.0') ;;
  users)
    packages=('sentence-transformers==5.7.0')
    node='@huggingface/transformers@4.3.2'
    ;;
  exporters)
    packages=('optimum-onnx[onnxruntime]==0.1.0' 'ctranslate2==4.8.5' 'flair==0.15.1'
      'transformers<5' 'datasets<5')
    ;;
  *)
    echo "optional_env.sh: there is no environment $name, but flax, optional, users and exporters." >&2
    exit 2
    ;;
esac
if [[ -f "$folder/ready" && "$(< "$folder/ready")" == "${packages[*]} $node" ]]; then
  exit 0
fi
python="${PYTHON:-$root/.venv/bin/python}"
site='import sysconfig; print(sysconfig.get_path("purelib"))'
"$python" -m venv "$folder"
"$python" -c "$site" > "$("$folder/bin/python" -c "$site")/shared.pth"
if ! "$folder/bin/python" -m pip install --quiet --no-warn-conflicts --retries 1 "${packages[@]}"; then
  echo "optional_env.sh: pip could not install ${packages[*]}. Tests need them." >&2
  exit 1
fi
if [[ "$node" ]] && ! npm install --silent --ignore-scripts --prefix "$folder/node" "$node"; then
  echo "optional_env.sh: npm could not install $node. Slow tests need it, and Node." >&2
  exit 1
fi
echo "${packages[*]} $node" > "$folder/ready"
