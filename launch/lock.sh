#!/usr/bin/env bash
# Pins every version that the lists requirements/*.in lead to, for Linux and macOS and for Python 3.11
# to 3.13: bash launch/lock.sh
#   bash launch/lock.sh            after a change to a list; keeps what is pinned and still fits
#   bash launch/lock.sh --newest   the newest versions, also of what the lists pin by == or >=
# It writes requirements/cpu.txt, tpu.txt, cuda.txt, cache.txt and clean.txt, and for development
# requirements.txt, which is everything but CUDA. It installs nothing.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/environment.sh"
cd "$ROOT"
newest="${1:-}"
if [[ $# -gt 1 || ! "$newest" =~ ^(--newest)?$ ]]; then
  fail "'$*' is not understood: bash launch/lock.sh takes --newest or nothing."
fi

work="$(mktemp -d)"
trap 'rm -rf "$work"' EXIT
"$(find_python)" -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet --disable-pip-version-check uv
cp pyproject.toml "$work" # whose [tool.uv] uv obeys
cp -r requirements "$work/lists"
# TensorFlow only reads data, so on Linux its CPU build does, which is 0.6 GB smaller and takes no
# memory of a GPU; libclang, which it asks for, is for building it.
echo 'tensorflow-cpu==2.21.*; sys_platform == "linux"' > "$work/lists/linux.in"
printf '%s\n' 'tensorflow; sys_platform != "linux"' 'libclang; sys_platform == "none"' > "$work/replaced"
if [[ -n "$newest" ]]; then
  sed -i.pinned -E 's/[=<>~]=[^;]*//' "$work"/lists/*.in
else
  sort -u requirements.txt requirements/*.txt > "$work/all.txt" # which uv keeps where it can
fi

# Resolves some lists into $work/NAME.txt, in agreement with all.txt, which the first call makes:
# resolve NAME LIST…
resolve() {
  local name="$1" agree=()
  shift
  if [[ "$name" != all ]]; then
    agree=(--constraints all.txt)
  fi
  (cd "$work" && "$work/venv/bin/uv" pip compile --quiet --universal --python-version 3.11 \
    --no-annotate --no-header --overrides replaced ${agree[@]+"${agree[@]}"} \
    --output-file "$name.txt" "${@/#/lists/}" > "$name.log" 2>&1) \
    || { cat "$work/$name.log" >&2 && fail "uv could not resolve $*; the lines above say why."; }
}

# Writes $work/NAME.txt to a file, without the packages of CUDA that follow PyTorch's own build of it.
write() {
  {
    echo "# Made by launch/lock.sh from requirements/*.in, for Python 3.11 to 3.13."
    grep -Ev "^(cuda-|triton=|nvidia-[^=]*[^=2]=)|== '(win32|emscripten|none)'" "$work/$1.txt"
  } > "$work/lock"
  cp "$work/lock" "$2"
  echo "$2 pins $(grep -c == "$2") packages."
}

lists=("$work"/lists/*.in)
resolve all "${lists[@]##*/}"
for flavour in cpu tpu cuda; do
  resolve "$flavour" base.in "$flavour.in" convert.in linux.in
  write "$flavour" "requirements/$flavour.txt"
done
resolve cache cache.in
write cache requirements/cache.txt
resolve clean clean.in
write clean requirements/clean.txt
resolve dev {base,tpu,convert,cache,clean,docs,dev,linux}.in
write dev requirements.txt
echo "bash launch/setup.sh installs them."
