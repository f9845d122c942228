#!/usr/bin/env bash
# The sample as a user runs it: compiled, trained on real data, its last line at least 0.87 accurate,
# and the saved parameters those that are evaluated again. DTMC names the compiler.
set -euo pipefail
: "${DTMC:?set DTMC to the compiler}"
root=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
bash "$root/samples/data.sh"
"$DTMC" "$root/samples/fashion_mlp/fashion_mlp.dtm" -o "$work/train"
cd "$work"
./train >out 2>&1 || { cat out; exit 1; }
last=$(tail -n 1 out)
awk -v line="$last" 'BEGIN { n = split(line, w, " "); exit !(w[1] == "test" && w[2] == "accuracy" && w[3] >= 0.87) }' ||
  { cat out; echo "FAIL: the last line should be 'test accuracy' of 0.87 or more"; exit 1; }
again=$(./train eval --load model.safetensors 2>&1 | tail -n 1)
[ "$again" = "$last" ] || { echo "FAIL: trained: $last; loaded: $again"; exit 1; }
code=0
./train --steps 3 --no-eval --log=json >/dev/full 2>err || code=$?
[ "$code" = 1 ] && grep -q 'standard output' err || { cat err; echo "FAIL: a log that is lost: exit $code"; exit 1; }
echo "1 passed, 0 failed ($last)"
