#!/usr/bin/env bash
# Installs what dtm needs to build and test on Debian 12 (root or sudo). Does nothing when all is there.
set -eu

packages=(build-essential cmake ninja-build flex bison pkg-config git ca-certificates
  llvm-19-dev libdnnl-dev libopenmpi-dev openmpi-bin libjansson-dev zlib1g-dev check
  dataset-fashion-mnist bible-kjv clang clang-format-14 libclang-rt-14-dev libomp-14-dev)

missing=()
for p in "${packages[@]}"; do
  [ "$(dpkg-query -W -f='${db:Status-Status}' "$p" 2>/dev/null || true)" = installed ] || missing+=("$p")
done
[ ${#missing[@]} -eq 0 ] && exit 0

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
