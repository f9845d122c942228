#!/usr/bin/env bash
# Runs the programs of this folder, one after the other, and writes their tables to one Markdown file.
#   tests/bench/run.sh [BUILD] [-o FILE] [NAME ...]
# BUILD is the build folder (build), FILE figures.md beside this script (- is standard output), NAMEs
# are some of: step memory arena compile_time nvrtc collectives planner kernels attention gpt2 (all).
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
build=$here/../../build out=$here/figures.md names=()
if [ $# -gt 0 ] && [ -d "$1" ]; then build=$1; shift; fi
while [ $# -gt 0 ]; do
  case $1 in
    -o) [ $# -gt 1 ] || { echo "run.sh: -o needs a file" >&2; exit 2; }; out=$2; shift 2 ;;
    -*) echo "run.sh: unknown option $1" >&2; exit 2 ;;
    *) names+=("$1"); shift ;;
  esac
done
[ ${#names[@]} -gt 0 ] || names=(step memory arena compile_time nvrtc collectives planner kernels attention gpt2)
declare -A title=([step]="A training step beside its matrix products" [memory]="Memory of a training step"
  [arena]="Height of the arena over the live set" [compile_time]="Compile time"
  [nvrtc]="Compile time for GPUs"
  [collectives]="Collectives of local ranks beside OpenMPI" [planner]="Redistribute plans" [kernels]="Fused kernels"
  [attention]="Attention beside its matrix products" [gpt2]="A training step of GPT-2 beside PyTorch")
for name in "${names[@]}"; do
  [ -n "${title[$name]:-}" ] || { echo "run.sh: no such bench: $name; there are ${!title[*]}" >&2; exit 2; }
  [ -x "$build/bin/bench_$name" ] || {
    echo "run.sh: $build/bin/bench_$name is missing: cmake --preset release && cmake --build build" >&2; exit 1; }
done
field() { sed -n "s/^$1[^:]*: *//p" "$2" | head -1; }
version() { "$@" 2>/dev/null | head -1 || true; }
tmp=$(mktemp)
trap 'rm -f "$tmp"' EXIT
{
  echo "# Figures"
  echo
  echo "Written by \`tests/bench/run.sh\`; what they mean: [README.md](README.md)."
  echo
  echo "| | |"
  echo "|---|---|"
  echo "| date | $(date +%F) |"
  echo "| processor | $(field 'model name' /proc/cpuinfo), $(nproc) processors, L3 $(lscpu | field 'L3 cache' /dev/stdin) |"
  echo "| memory | $(awk '/^MemTotal/ {printf "%.1f GiB", $2 / 1048576}' /proc/meminfo) |"
  echo "| system | $(. /etc/os-release; echo "$PRETTY_NAME"), Linux $(uname -r) |"
  echo "| built with | $(version cc --version) |"
  echo "| OpenMPI | $(version mpirun --version) |"
  echo "| load before | $(cut -d' ' -f1 /proc/loadavg); should be below 0.2 |"
} >"$tmp"
for name in "${names[@]}"; do
  echo "bench_$name ..." >&2
  { echo; echo "## ${title[$name]}"; echo; "$build/bin/bench_$name"; } >>"$tmp"
done
if [ "$out" = - ]; then cat "$tmp"; else cp "$tmp" "$out"; fi
