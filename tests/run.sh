#!/usr/bin/env bash
# Installs what is missing, builds with the release preset, runs every test.
#   tests/run.sh            all rings
#   tests/run.sh unit e2e   only these rings (CTest labels)
set -euo pipefail
cd "$(dirname "$0")/.."
bash setup.sh
jobs=$(nproc)
cmake --preset release >build-configure.log 2>&1 || { cat build-configure.log; exit 1; }
rm -f build-configure.log
cmake --build --preset release -j "$jobs"
rings=()
[ $# -eq 0 ] || rings=(-L "^($(IFS='|'; echo "$*"))\$")
ctest --test-dir build --output-on-failure -j "$jobs" "${rings[@]}"
