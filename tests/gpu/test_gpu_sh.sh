#!/usr/bin/env bash
# gpu.sh as on a machine with a GPU, on the simulated one, with tiny sizes: every part says what it found, faults and
# hangs are told and cost no more than their time. The first argument: the build folder; $GPUSIM: the simulator.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d /tmp/dtm-gpu-sh-XXXXXX)
trap 'rm -rf "$work"' EXIT
pack=$work/pack
if ! bash "$here/../gpu.sh" pack --tiny "$1" "$pack" >"$work/log" 2>&1; then
  cat "$work/log"
  if grep -q 'NVRTC, which makes code for GPUs, is not there' "$work/log"; then exit 77; fi
  exit 1
fi
export DTM_CUDA_DRIVER=$GPUSIM DTM_CUBLASLT=$GPUSIM DTM_NCCL=$GPUSIM
mkdir "$work/bin"
printf '#!/bin/sh\nexit 1\n' >"$work/bin/python3" # none with PyTorch
chmod +x "$work/bin/python3"
export PATH=$work/bin:$PATH

status=0
said() { # EXIT PATTERN...: each in a line of the log
  local wanted=$1 pattern
  shift
  [ "$status" = "$wanted" ] || { echo "exit $status, not $wanted:"; cat "$work/log"; exit 1; }
  for pattern in "$@"; do
    grep -qE -- "$pattern" "$work/log" || { echo "no line like: $pattern"; cat "$work/log"; exit 1; }
  done
}
run() { status=0; bash "$pack/gpu.sh" run "$1" >"$work/log" 2>&1 || status=$?; }

run 300
said 0 '^copies within its memory reach [0-9.e+-]+ GB/s, bf16 products [0-9.e+-]+ TFLOP/s' '^pass NCCL with one rank: .* 530 calls' \
  '^pass gpt2: ' '^pass gpt2_bf16: ' '^skipped PyTorch' '^\| gpt2_few +\| dtm +\| +[0-9.]+ \| +[1-9]' '^\| k[0-9]+_sum +\|' \
  '^\| scaled_dot_product_attention' '^\| in all .* 100.0%' '^skipped compute-sanitizer|^pass memcheck'
if grep -qE 'FAIL|nan|inf' "$work/log"; then cat "$work/log"; exit 1; fi

# A loss that is another, a program that fails, one that hangs.
awk '{ $2 *= NR == 3 ? 1.001 : 1; print }' "$pack/gpt2.losses" >"$work/other" && mv "$work/other" "$pack/gpt2.losses"
printf '#!/bin/sh\necho no luck >&2\nexit 4\n' >"$pack/gpu_nccl_one"
printf '#!/bin/sh\nsleep 100\n' >"$pack/gpt2_few"
run 12
said 1 '^FAIL gpt2: largest difference 0.001, allowed 1e-05' '^FAIL NCCL with one rank: no luck' \
  '^FAIL gpt2_few: not done in [0-9]+ s' '^skipped the trace of gpt2_few: no time left' '^done in 1[0-9] s'

# No driver: one message.
export DTM_CUDA_DRIVER=$work/none
run 300
said 1 'the CUDA driver could not be loaded'
