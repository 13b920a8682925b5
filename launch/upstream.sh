#!/usr/bin/env bash
# Makes a folder in which upstream T5X runs: bash launch/upstream.sh DIR
# DIR gets clones of google-research/t5x and of the three repositories that it imports, at the commits
# that the tests ran with, and DIR/venv: the packages of .venv, with what upstream needs besides. Then
#   T5X_DIR=DIR/t5x bash launch/ro_t5x_tiny.sh
# runs upstream's trainer. A second call completes what the first one left unfinished. You may set:
#   T5X_URL, AIRIO_URL, JESTIMATOR_URL, T5_URL   where to clone from, for instance copies on disk
#   PYTHON         the interpreter that DIR/venv adds to, instead of .venv's
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
answer_help "$@"

if [[ $# -eq 0 ]]; then
  usage >&2
  exit 2
fi
if [[ $# -ne 1 || "$1" == -* ]]; then
  fail "one folder is needed and $# arguments were given: bash launch/upstream.sh DIR."
fi
mkdir -p "$1"
dir="$(cd "$1" && pwd)"
if [[ "$dir" == "$ROOT" || "$dir" == "$ROOT"/* ]] \
  && ! git -C "$ROOT" check-ignore --quiet "$dir"; then
  fail "$dir is in this repository, which holds no source of upstream: name a folder outside of it."
fi

# What requirements.txt does not have. t5x, airio and t5 import these.
packages=(
  babel==2.18.0 cached_property==2.0.1 chex==0.1.92 fiddle==0.3.1 jaxtyping==0.3.11 sacrebleu==2.6.0
  scikit-learn==1.9.1
)

# Puts the Python and gin files of a commit into $dir/NAME: clone NAME URL COMMIT VARIABLE
# Everything else (figures, test data) is neither needed nor, in some mirrors, there.
clone() {
  local to="$dir/$1"
  if [[ "$(git -C "$to" rev-parse --quiet --verify HEAD 2> /dev/null)" == "$3" \
    && -z "$(git -C "$to" status --porcelain --untracked-files=no)" ]]; then
    return
  fi
  if [[ -e "$to" ]]; then # it may be your own
    fail "$to is there and is not $1 at ${3:0:12} as it was published: move it, or name another folder."
  fi
  echo "Cloning $1 at ${3:0:12} from $2."
  local new="$to.unfinished" output filter=(--filter=blob:none)
  rm -rf "$new"
  if [[ -e "$2" ]]; then
    filter=()
  fi
  git clone --quiet --no-checkout ${filter[@]+"${filter[@]}"} "$2" "$new" \
    || fail "$1 cannot be cloned from $2: set $4 to another address or to a copy on disk."
  git -C "$new" sparse-checkout set --no-cone '*.py' '*.gin' /LICENSE
  # A mirror without the large files makes git complain although the checkout is complete.
  if ! output="$(git -C "$new" checkout --quiet --detach "$3" 2>&1)"; then
    echo "$output" >&2
    fail "$2 lacks commit $3 of $1, which the tests ran with: set $4 to a newer copy."
  fi
  mv "$new" "$to"
}

github=https://github.com
clone t5x "${T5X_URL:-$github/google-research/t5x}" \
  cc342d419ec3e3e9c4bf1df33c82330cafdc1e16 T5X_URL
clone airio "${AIRIO_URL:-$github/google/airio}" \
  69897df7d9a427b947a9f7bb4164c7782b43e601 AIRIO_URL
clone jestimator "${JESTIMATOR_URL:-$github/google-research/jestimator}" \
  326824a477feef6d92e6f44175000907a72899ca JESTIMATOR_URL
clone text-to-text-transfer-transformer \
  "${T5_URL:-$github/google-research/text-to-text-transfer-transformer}" \
  e081111ccd51df425aa7124e8e311ed6d403d767 T5_URL

use_python
if [[ ! -x "$dir/venv/bin/python" ]]; then
  "$PYTHON" -m venv "$dir/venv"
fi
# The interpreter's packages come last: pip finds them installed and keeps their versions.
{
  printf '%s\n' "$dir"/{t5x,airio,jestimator,text-to-text-transfer-transformer}
  "$PYTHON" -c 'import os, site; print(*map(os.path.realpath, site.getsitepackages()), sep="\n")'
} > "$("$dir/venv/bin/python" -c 'import site; print(site.getsitepackages()[0])')/upstream.pth"
"$dir/venv/bin/python" -m pip install --quiet --disable-pip-version-check "${packages[@]}" \
  || fail "pip could not install ${packages[*]}: the lines above say why."

# $dir is no checkout of this repository, whose t5x would be imported before upstream's.
if ! missing="$(cd "$dir" && JAX_PLATFORMS=cpu "$dir/venv/bin/python" -c '
import t5x.train, t5x.infer, t5x.eval, t5.data, t5.evaluation' 2>&1)"; then
  echo "$missing" >&2
  fail "upstream T5X cannot be imported in $dir: the lines above say why."
fi
echo "Upstream T5X runs in $dir: T5X_DIR=$dir/t5x before any command that trains."
