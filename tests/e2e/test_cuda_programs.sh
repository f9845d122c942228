#!/usr/bin/env bash
# Every kernel of the programs under tests/e2e and samples/ goes through NVRTC, and the same program twice
# is the same text. Equal kernels are compiled once: programs share a cache. DTMC names the compiler;
# exit code 77 where there is no NVRTC.
set -uo pipefail
: "${DTMC:?set DTMC to the compiler}"
root=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export DTM_CACHE=$work/cache
failed=0
for program in "$root"/tests/e2e/programs/*.dtm "$root"/samples/*/*.dtm; do
  name=$(basename "$program" .dtm)
  if ! "$DTMC" "$program" --target=cuda:compute_80 --emit=cuda,ptx -o "$work/$name/" 2>"$work/log"; then
    if grep -q 'NVRTC, which makes code for GPUs, is not there' "$work/log"; then
      printf 'skipped: '
      cat "$work/log"
      exit 77
    fi
    printf 'FAIL %s\n' "$program"
    head -n 40 "$work/log"
    failed=1
    continue
  fi
  texts=$(find "$work/$name" -name '*.cu' | wc -l)
  [ "$texts" -gt 0 ] && [ "$texts" = "$(find "$work/$name" -name '*.ptx' -size +0 | wc -l)" ] ||
    { printf 'FAIL %s: %s texts\n' "$program" "$texts"; failed=1; }
  "$DTMC" "$program" --target=cuda:compute_80 --emit=cuda -o "$work/again/" &&
    for f in "$work/again"/*.cu; do
      cmp -s "$f" "$work/$name/$(basename "$f")" || { printf 'FAIL %s: %s differs\n' "$program" "$f"; failed=1; }
    done
  rm -rf "$work/again"
  printf '%-14s %4s kernels\n' "$name" "$texts"
done
# An executable holds nothing of the folder it was made in, nor of what the cache had.
program=$root/tests/e2e/programs/mlp_smooth.dtm
mkdir "$work/here" "$work/there"
(cd "$work/here" && "$DTMC" "$program" --target=cuda:compute_80 -o out) &&
  (cd "$work/there" && DTM_CACHE='' "$DTMC" "$program" --target=cuda:compute_80 -o out) &&
  cmp "$work/here/out" "$work/there/out" || { printf 'FAIL: executables differ\n'; failed=1; }
printf '%s distinct\n' "$(find "$work/cache" -type f | wc -l)"
exit $failed
