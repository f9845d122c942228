#!/usr/bin/env bash
# Runs libFuzzer targets of a build for some time each, from fresh seeds and from what failed once
# (found/TARGET).
#   tests/fuzz/run.sh BUILD SECONDS [TARGET...]     BUILD made with the asan preset
# Exits 1 at the first input that a target fails on; it stays in BUILD/fuzz/TARGET/crash-*.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
build=$(cd "$1" && pwd)
seconds=$2
shift 2
[ $# -gt 0 ] || set -- parser ir image safetensors data

# Programs in their text form at every stage that has one.
seed_ir() {
  local n=0 program
  for program in "$root"/tests/e2e/programs/*.dtm "$root"/samples/*/*.dtm; do
    n=$((n + 1))
    "$build/bin/dtmc" "$program" --emit="$(echo graph explicit grad local | cut -d' ' -f$((n % 4 + 1)))" \
      >"$1/program$n" 2>/dev/null || rm -f "$1/program$n"
  done
  find "$1" -type f -size +20k -delete # small ones tell more per second
}

seed_parser() {
  local program # two folders may have files of one name
  for program in "$root"/tests/golden/*/*.dtm "$root"/stdlib/*.dtm; do
    cp "$program" "$1/$(basename "$(dirname "$program")")-$(basename "$program")"
  done
}

# bytes FILE TEXT: a text of printf.
bytes() {
  # shellcheck disable=SC2059
  printf "$2" >"$1"
}

# A safetensors file: the length of its header (below 256), the header, data.
safetensors() {
  printf "\\x$(printf %02x ${#2})\\0\\0\\0\\0\\0\\0\\0%s%s" "$2" "$3" >"$1"
}

seed_safetensors() {
  local one='{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}'
  safetensors "$1/one" "$one" 12345678
  local two='{"__metadata__":{"format":"pt"},"a":{"dtype":"BF16","shape":[1,2],"data_offsets":[0,4]},"b":{"dtype":"I64","shape":[],"data_offsets":[4,12]}}    '
  safetensors "$1/two" "$two" 123456789012
  safetensors "$1/none" "{}" ""
}

# The first byte picks the reader: idx, npy, bin, text, raw.
seed_data() {
  bytes "$1/idx" '\x00\0\0\x08\x02\0\0\0\x02\0\0\0\x03abcdef'
  bytes "$1/npy" "\\x01\\x93NUMPY\\x01\\0\\x36\\0{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }\\n12345678"
  { bytes /dev/stdout '\x02'; bytes /dev/stdout '\x88\xd8\x34\x01\x01\0\0\0\x02\0\0\0'; head -c 1012 /dev/zero; printf 'abcd'; } >"$1/bin"
  bytes "$1/text" '\x03some text'
  bytes "$1/raw" '\x0eabcdefgh'
}

seed_image() {
  bytes "$1/one" '\x10\0\x01\x02'
}

for target in "$@"; do
  work=$build/fuzz/$target
  mkdir -p "$work/corpus"
  "seed_$target" "$work/corpus"
  options=(-max_len=4096 -rss_limit_mb=4096 -timeout=20 -print_final_stats=0 -artifact_prefix="$work/")
  [ "$target" != parser ] || options+=(-dict="$root/tests/fuzz/dtm.dict")
  [ "$target" != ir ] || options+=(-max_len=20000)
  corpus=("$work/corpus")
  [ ! -d "$root/tests/fuzz/found/$target" ] || corpus+=("$root/tests/fuzz/found/$target")
  echo "fuzz_$target: $seconds s"
  if ! "$build/bin/fuzz_$target" "${options[@]}" -max_total_time="$seconds" "${corpus[@]}" \
    >"$work/log" 2>&1; then
    tail -n 60 "$work/log"
    exit 1
  fi
  grep -E '^Done|DONE' "$work/log" | tail -n 1
done
