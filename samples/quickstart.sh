#!/usr/bin/env bash
# From a fresh machine to a trained model: installs what is missing, builds dtmc, prepares the data of
# every sample, compiles samples/fashion_mlp for a mesh of dp = 2 x tp = 2 and trains it.
set -euo pipefail
cd "$(dirname "$0")/.."
bash setup.sh
if [ ! -x build/bin/dtmc ] || [ -n "$(find compiler runtime grammar stdlib CMakeLists.txt -newer build/bin/dtmc -print -quit)" ]; then
  echo "building dtmc ..." >&2
  log=$(mktemp)
  trap 'rm -f "$log"' EXIT
  { cmake --preset release -DDTM_TESTS=OFF && cmake --build --preset release -j "$(nproc)"; } >"$log" 2>&1 ||
    { tail -n 40 "$log" >&2; exit 1; }
fi
bash samples/data.sh
build/bin/dtmc samples/fashion_mlp/fashion_mlp.dtm -o samples/fashion_mlp/train
cd samples/fashion_mlp
exec ./train
