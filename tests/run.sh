#!/usr/bin/env bash
# Installs what is missing, builds with the release preset, runs every test; then what clang has to
# say: a build without warnings, the fast tests under sanitizers, a short look by the fuzzers.
#   tests/run.sh                       everything
#   tests/run.sh unit e2e              only these rings (CTest labels)
#   tests/run.sh clang san fuzz        only these builds of clang
set -euo pipefail
cd "$(dirname "$0")/.."
bash setup.sh
jobs=$(nproc)

# build PRESET FOLDER [TARGET...]
build() {
  local preset=$1 folder=$2
  shift 2
  mkdir -p "$folder"
  cmake --preset "$preset" >"$folder/configure.log" 2>&1 || { cat "$folder/configure.log"; exit 1; }
  cmake --build --preset "$preset" -j "$jobs" ${1+--target "$@"}
}

run_rings() {
  local rings=()
  [ $# -eq 0 ] || rings=(-L "^($(IFS='|'; echo "$*"))\$")
  build release build
  ctest --test-dir build --no-tests=error --output-on-failure -j "$jobs" "${rings[@]}"
}

# clang sees other faults than gcc, and evaluates arguments in another order. The tests are compiled
# by it in `san`.
run_clang() {
  build clang build-clang dtmc dtm_rt dtm_llvm dtm_rt_mpi
  build release build dtmc dtm_llvm e2e_test_cases e2e_test_random
  bash tests/compilers/same_text.sh build build-clang
}

# Without the tests that search long; they run in the release build.
run_san() {
  build asan build-asan dtmc ring_unit ring_golden
  ctest --test-dir build-asan --no-tests=error --output-on-failure -j "$jobs" -L '^(unit|golden)$' \
    -E 'unit/test_(pack|math|comm|fuse|sema_mutants|checkpoint)$'
}

run_fuzz() {
  build asan build-asan dtmc fuzz_parser fuzz_ir fuzz_image fuzz_safetensors fuzz_data
  bash tests/fuzz/run.sh build-asan 4
}

rings=() builds=()
for word in "$@"; do
  case $word in
  clang | san | fuzz) builds+=("$word") ;;
  *) rings+=("$word") ;;
  esac
done
[ $# -gt 0 ] || builds=(clang san fuzz)
if [ $# -eq 0 ] || [ ${#rings[@]} -gt 0 ]; then run_rings "${rings[@]}"; fi
for b in "${builds[@]}"; do "run_$b"; done
