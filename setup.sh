#!/usr/bin/env bash
# Installs what dtm needs to build and test on Debian 12 (root or sudo). Does nothing when all is there.
set -eu

# ocl-icd-opencl-dev: oneDNN's CMake package looks for OpenCL and fails without it.
packages=(build-essential cmake ninja-build flex bison pkg-config git ca-certificates
  llvm-19-dev mold libdnnl-dev ocl-icd-opencl-dev libopenmpi-dev openmpi-bin libjansson-dev zlib1g-dev check
  dataset-fashion-mnist bible-kjv clang clang-format-14 libclang-rt-14-dev libomp-14-dev)

# NVRTC (the version the tests are run with), where there is no CUDA toolkit: NVIDIA's package of PyPI,
# unpacked where dtmc looks for it. Without it those tests are skipped.
have_nvrtc() {
  local f
  for f in "${CUDA_HOME:-/nowhere}"/lib64/libnvrtc.so.1[23] "${CUDA_PATH:-/nowhere}"/lib64/libnvrtc.so.1[23] \
           /usr/local/cuda/lib64/libnvrtc.so.1[23] /usr/lib/*-linux-gnu/libnvrtc.so.1[23] \
           {/usr/local/lib,"$HOME/.local/lib"}/dtm/nvrtc/nvidia/*/lib/libnvrtc.so.1[23] \
           {/usr/lib,/usr/local/lib,"$HOME/.local/lib"}/python3*/*-packages/nvidia/*/lib/libnvrtc.so.1[23]; do
    [ -r "$f" ] && return 0
  done
  return 1
}
get_nvrtc() {
  local dir place=/usr/local/lib/dtm/nvrtc
  [ "$(id -u)" = 0 ] || place=$HOME/.local/lib/dtm/nvrtc
  dir=$(mktemp -d)
  if python3 -m pip download -q --no-deps --only-binary=:all: --disable-pip-version-check -d "$dir" \
       "nvidia-cuda-nvrtc==13.0.*" >"$dir/log" 2>&1 && mkdir -p "$place" && python3 -m zipfile -e "$dir"/*.whl "$place"; then
    rm -rf "$dir"
  else
    echo "setup.sh: NVRTC could not be had from PyPI ($(tail -n 1 "$dir/log")); tests of --target=cuda will be skipped" >&2
    rm -rf "$dir"
  fi
}
have_nvrtc || packages+=(python3-pip)

missing=()
for p in "${packages[@]}"; do
  [ "$(dpkg-query -W -f='${db:Status-Status}' "$p" 2>/dev/null || true)" = installed ] || missing+=("$p")
done
if [ ${#missing[@]} -eq 0 ]; then
  have_nvrtc || get_nvrtc
  exit 0
fi

if ! command -v apt-get >/dev/null; then
  echo "setup.sh: this machine has no apt-get; install the equivalents of: ${missing[*]}" >&2
  exit 1
fi
as_root=()
if [ "$(id -u)" != 0 ]; then
  command -v sudo >/dev/null || { echo "setup.sh: run as root, or install sudo; needed: ${missing[*]}" >&2; exit 1; }
  as_root=(sudo)
fi
echo "setup.sh: installing ${missing[*]}" >&2
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if ! { "${as_root[@]}" apt-get update && DEBIAN_FRONTEND=noninteractive "${as_root[@]}" \
       apt-get install -y --no-install-recommends "${missing[@]}"; } >"$log" 2>&1; then
  tail -n 20 "$log" >&2
  echo "setup.sh: apt-get failed (above); once it works, run this again" >&2
  exit 1
fi
have_nvrtc || get_nvrtc
