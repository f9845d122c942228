#!/usr/bin/env bash
# The language models as their READMEs show them: the losses of steps 1 and 20 to three digits, and a
# text that begins with its prompt. Then the same sources on other meshes, where two steps, an
# evaluation and the likeliest text must be those of one rank. DTMC names the compiler.
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

# $1: sample, $2: name of the result, the rest: flags of the compiler
run() {
  "$DTMC" "$root/samples/$1/$1.dtm" -D temperature=0.0 "${@:3}" -o program
  {
    ./program train --steps 2 --no-curve --log=json --threads 1 --save "$2.safetensors"
    ./program eval --load one.safetensors --log=json --threads 1 --data text=short.txt
  } >log 2>&1 || { cat log; exit 1; }
  sed -n 's/.*"\(loss\|value\)":\([-0-9.e+]*\).*/\2/p' log >"$2.numbers"
  ./program infer --load one.safetensors --threads 1 >"$2.text"
}
meshes=0
same() {
  run "$1" other "${@:2}"
  [ "$(wc -l <one.numbers)" = 3 ] && paste one.numbers other.numbers |
    awk '{ d = ($1 - $2) / $1; if (!(d * d < 1e-10)) bad = 1 } END { exit bad || NR != 3 }' ||
    { paste one.numbers other.numbers; echo "FAIL: $*: not the losses of one rank"; exit 1; }
  sort -u other.text | cmp - one.text || { cat other.text; echo "FAIL: $*: another text"; exit 1; }
  meshes=$((meshes + 1))
}
head -c 20000 "$root/samples/llama/data/bible.txt" >short.txt
run llama one
same llama --mesh dp=2,tp=2
same llama --mesh pp=2,ring_cp=2
same llama --mesh dp=2,pp=2,ulysses_cp=2,ring_cp=1,tp=2 -D layers=4
same llama --mesh pp=2 -D chunks=2 -D microbatches=4 -D schedule=interleaved
run gpt2 one -D layers=3
same gpt2 -D layers=3 --mesh pp=2,tp=2 -D microbatches=4 -D schedule=zero_bubble

# The drawing in the README; bytes beside it may differ from processor to processor.
drawing() { sed 's/[0-9.]* [KMG]iB//g' "$1"; }
"$DTMC" "$root/samples/llama/llama.dtm" --mesh pp=4 -D microbatches=8 -D schedule=zero_bubble --emit=pipeline >pipeline.svg
cmp <(drawing pipeline.svg) <(drawing "$root/samples/llama/pipeline.svg") ||
  { echo "FAIL: samples/llama/pipeline.svg is not what --emit=pipeline draws"; exit 1; }
echo "$((4 + meshes)) passed, 0 failed"
