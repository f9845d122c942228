#!/usr/bin/env bash
# Random programs (e2e/test_random.c, the first argument) on simulated GPUs: what ranks on a mesh compute there
# is compared with one rank on the processor, in f64. $DTMC: the compiler, $GPUSIM: the simulator.
set -euo pipefail
work=$(mktemp -d /tmp/dtm-random-gpu-XXXXXX)
trap 'rm -rf "$work"' EXIT
said=$("$DTMC" "$(dirname "$0")/../e2e/programs/mlp_relu.dtm" --target=cuda:compute_80 -o "$work/one" 2>&1 || true)
if [[ $said == *NVRTC* ]]; then
  echo "skipped: $said"
  exit 77
fi
export DTM_CUDA_DRIVER=$GPUSIM DTM_CUBLASLT=$GPUSIM DTM_NCCL=$GPUSIM GPUSIM_DEVICES=64
export RANDOM_FLAGS=--target=cuda:compute_80 GPUSIM_REPORT=$work/report
"$1" 11 1 1 | tee "$work/log"
if [ -s "$work/report" ]; then
  cat "$work/report"
  exit 1
fi
grep -q '(0 not usable), [1-9][0-9]* other runs (0 rejected)' "$work/log"
