#!/usr/bin/env bash
# The language models as their READMEs show them: the losses of steps 1 and 20 to three digits, and a
# text that begins with its prompt. DTMC names the compiler.
set -euo pipefail
: "${DTMC:?set DTMC to the compiler}"
root=$(cd "$(dirname "$0")/../.." && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
bash "$root/samples/data.sh"
cd "$work"
for sample in llama gpt2 mixtral; do
  "$DTMC" "$root/samples/$sample/$sample.dtm" -o "$sample"
  ./"$sample" train --steps 20 --no-curve --save m.safetensors >out 2>&1 || { cat out; exit 1; }
  for step in 1 20; do
    want=$(sed -n "s|^ *step $step/20  loss \([0-9.]*\).*|\1|p" "$root/samples/$sample/README.md")
    got=$(sed -n "s|^step $step/20  loss \([0-9.]*\).*|\1|p" out)
    awk -v w="$want" -v g="$got" 'BEGIN { exit !(w > 0 && g / w > 0.999 && g / w < 1.001) }' ||
      { cat out; echo "FAIL: $sample, step $step: loss $got, the README says $want"; exit 1; }
  done
  ./"$sample" infer --load m.safetensors --data prompt="In the" >text
  head -c 6 text | grep -q '^In the$' || { cat text; echo "FAIL: $sample wrote something else"; exit 1; }
done
echo "3 passed, 0 failed"
