#!/usr/bin/env bash
# The command line of dtmc: exit codes and messages. DTMC names the compiler.
set -uo pipefail
: "${DTMC:?set DTMC to the compiler}"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
failed=0
passed=0

# expect CODE REGEX ARGS...: runs dtmc ARGS; the exit code and a line of its output must match.
expect() {
  local code=$1 regex=$2 out got
  shift 2
  out=$("$DTMC" "$@" 2>&1 </dev/null)
  got=$?
  if [ "$got" != "$code" ] || ! grep -Eq -- "$regex" <<<"$out"; then
    printf 'FAIL dtmc %s\n  exit %s, wanted %s; output should match /%s/:\n%s\n' "$*" "$got" "$code" "$regex" "$out"
    failed=$((failed + 1))
  else
    passed=$((passed + 1))
  fi
}

cat >good.dtm <<'EOF'
config { batch = 8  dim = 4 }
mesh world(dp = 1, tp = 1)
module Model() {
  param w: f32[3, dim] = normal(std = 0.1)
  forward(x: f32[B@dp, dim]) -> f32[B@dp, 3] { return linear(x, w) }
}
train {
  data x = npy("x.npy", f32[batch@dp, dim])
  data y = npy("y.npy", i64[batch@dp])
  model m = Model()
  loss cross_entropy(m(x), y)
  optimizer sgd(lr = 0.1)
  steps 3
}
EOF
sed 's/return linear(x, w)/return gelu(w)/' good.dtm >bad.dtm
cat >hidden.dtm <<'EOF'
mesh world(tp = 1)
module Model() {
  param w: f32[8@tp, 4] = zeros()
  param v: f32[8, 8@tp] = zeros()
  forward(x: f32[B, 4]) -> f32[B, 8] { return gelu(linear(linear(x, w), v)) }
}
train {
  data x = npy("x.npy", f32[6, 4])
  model m = Model()
  loss mean(m(x))
  optimizer sgd(lr = 0.1)
  steps 1
}
EOF

# usage
expect 2 'Usage:'
expect 0 'Usage:' --help
expect 0 '^dtmc [0-9]+\.[0-9]+' --version
expect 2 'no program given' -o out
expect 2 'where should the executable go' good.dtm
expect 2 'did you mean --emit' good.dtm --emti=graph
expect 2 'needs an argument' good.dtm -o
expect 2 'does not know the stage' good.dtm --emit=grahp
expect 2 'NAME=VALUE' good.dtm -o out -D dim
expect 2 'takes text, json' check good.dtm --format=xml
expect 2 "one program at a time: good.dtm, and then there is 'bad.dtm'" good.dtm bad.dtm -o out
expect 2 'takes cpu' good.dtm -o out --target=tpu
expect 2 'cannot read the response file' @nowhere
# words of a response file stand where it is named: quotes group, a backslash takes the next character
cp good.dtm 'a good.dtm'
printf '%s\n' '--mesh=dp=2' "  'a good.dtm'" '--print-config -D "dim=1""2"' >words
expect 0 'dim: int = 12' @words
expect 0 'dp 2' @words
expect 0 'dim: int = 7' @words -D dim=7
printf '%s' 'a\ good.dtm --print-config' >words
expect 0 'dim' @words
printf '%s' '--print-config "good.dtm' >words
expect 2 'quote is left open' @words
: >words
expect 2 'no program given' @words
expect 2 'does not belong to' check good.dtm -o out

# files
expect 1 'nowhere.dtm' check nowhere.dtm
expect 1 'nowhere.dtm' nowhere.dtm -o out
mkdir folder.dtm
expect 1 'folder.dtm' check folder.dtm
: >empty.dtm
expect 1 'DTM5003' empty.dtm -o out

# where nothing can be written nothing is compiled, nor read
for place in /nowhere/out good.dtm/out /proc/out; do
  expect 1 "^dtmc: cannot write $place: " nowhere.dtm -o "$place"
  expect 1 "^dtmc: cannot write $place: " nowhere.dtm --emit=graph -o "$place"
  expect 1 "^dtmc: cannot write $place: " nowhere.dtm --target=cuda --emit=cuda -o "$place/"
done
expect 1 '^dtmc: cannot write folder.dtm: ' nowhere.dtm -o folder.dtm
expect 1 "^dtmc: cannot write '': " nowhere.dtm -o ''

# new: a program that compiles, trains and is in canonical form, on any mesh
expect 0 '^wrote first.dtm; now: dtmc first.dtm -o train' new first
expect 1 '^dtmc: first.dtm is there already' new first.dtm
expect 2 'takes the name of one program' new
expect 2 'takes the name of one program' new a b
expect 2 'is no name for a program' new 'my model'
expect 2 'is no name for a program' new .dtm
expect 1 'cannot write nowhere/first.dtm' new nowhere/first
expect 0 '' fmt first.dtm
"$DTMC" fmt first.dtm | cmp -s - first.dtm || { echo "FAIL: dtmc new does not write canonical form"; failed=$((failed + 1)); }
expect 0 '^0 errors, 0 warnings|^$' check first.dtm --strict --mesh 'dp=1;dp=2,tp=2;dp=3,tp=4'
for mesh in dp=1 dp=2,tp=2; do
  expect 0 '' first.dtm --mesh $mesh -o first
  ./first --log=json >first.log 2>&1 || { echo "FAIL: the program of dtmc new ends with $?"; failed=$((failed + 1)); }
  awk -F'[:,]' '/"loss"/ { if (!n++) first = $4; last = $4 } END { exit !(last < 0.1 * first) }' first.log || {
    echo "FAIL: the program of dtmc new does not learn on $mesh"; cat first.log; failed=$((failed + 1)); }
  [ -s first.safetensors ] || { echo "FAIL: the program of dtmc new saves nothing"; failed=$((failed + 1)); }
done

# check
expect 0 '' check good.dtm
expect 0 '' check good.dtm --mesh 'dp=2;tp=2;dp=3,tp=2'
expect 2 'empty mesh' check good.dtm --mesh 'dp=2;;tp=2'
expect 1 'error\[DTM' check bad.dtm
expect 0 'would fail when tp > 1' check hidden.dtm
expect 1 'would fail when tp > 1' check hidden.dtm --strict
expect 1 'error\[DTM' check hidden.dtm --mesh tp=2
expect 1 'cp.*|dp.*tp' check good.dtm --mesh cp=2
expect 1 'dp is given twice' check good.dtm --mesh dp=2,dp=3
for dims in , dp=2, ,dp=2 dp=2,,tp=2; do
  expect 1 "takes name=size, not ''" check good.dtm --mesh "$dims"
done
expect 2 'does not take' check good.dtm --mesh ''
expect 2 'mesh is given twice' good.dtm -o out --mesh dp=2 --mesh tp=2
expect 1 'dimm' check good.dtm -D dimm=3
cat >rate.dtm <<'EOF'
config { lr = 0.1 }
mesh world(dp = 1)
EOF
for number in nan inf -inf 1e999; do expect 1 'does not fit' check rate.dtm -D lr=$number; done
expect 1 '"code"|"ruleId"' check bad.dtm --format=sarif
expect 1 '::error file=' check bad.dtm --format=github

# explain
expect 0 'DTM2004' explain DTM2004
expect 2 'no diagnostic' explain DTM9999
expect 0 'linear' explain op linear
expect 0 'i@x.*partial\(x: sum\)' explain op linear
expect 0 '## contraction' explain op
expect 2 'did you mean linear' explain op linaer
expect 0 'softmax' explain op --list
cat >layers.dtm <<'EOF'
import nn
mesh world(dp = 1)
infer {
  model m = nn.MLP(4, 8)
  let y = m(ones(f32[2@dp, 4]))
  print(y)
}
EOF
expect 0 '^  y  +value' explain tensor --list layers.dtm
expect 2 'near it: down.weight, down.bias' explain tensor down layers.dtm
expect 0 'call: dropout\(x, p\?\)' explain op dropout
expect 0 'call: scaled_dot_product_attention\(q, k, v, causal\?' explain op scaled_dot_product_attention
expect 0 'call: transpose\(x, dim0\?, dim1\?\)' explain op transpose
expect 0 'call: redistribute\(x, dim: placement' explain op redistribute

# stages
for stage in ast graph explicit grad local fused kernel plan memory schedule pipeline llvm asm; do
  expect 0 '.' good.dtm "--emit=$stage"
done
for stage in $("$DTMC" good.dtm --emit=nothing 2>&1 | sed -n 's/.*there are: //p'); do
  expect 0 " $stage( |\$)" --help # names all there are
done
expect 0 '<title>[a-z_]+  good.dtm:[0-9]+:[0-9]+$' good.dtm --emit=memory
expect 0 '</svg>' good.dtm --emit=memory
expect 0 'no pipeline: .*</text>' good.dtm --emit=pipeline
expect 0 'mesh\(dp 1, tp 1\)' good.dtm --print-config
expect 0 'dim.*7' good.dtm --print-config -D dim=7

# metrics behind per-rank code: where the rows stop being one sample each
cat >rows.dtm <<'EOF'
mesh world(dp = 2)
module Net() {
  param w: f32[8, 16] = zeros()
  forward(x: f32[B@dp, 16]) -> f32[B@dp, 8] {
    return local(x, v = w) -> f32[B@dp, 8] { return linear(x, v) }
  }
}
eval {
  data x = npy("x.npy", f32[8@dp, 16])
  model m = Net()
  metric size = mean(square(m(x)))
}
EOF
expect 1 '^note: rows.dtm:5:18: from here on a row is not of one sample' check rows.dtm

# topology: what links cost decides which collectives are taken
cat >move.dtm <<'EOF'
mesh world(x = 4, y = 2)
infer {
  print(full(arange(f32[64]).reshape([8, 8]).redistribute(x: Shard(0)).redistribute([8@y, 8])))
}
EOF
printf '# slow\nx alpha=1ns bandwidth=1TB/s\ny alpha=10s bandwidth=1KB/s\n' >slow_y
printf '* alpha=3us bandwidth=400GB/s\nz alpha=1s\n' >fast
printf 'x alpha=3us\ny alpha=3 seconds\n' >wrong
printf 'x alpha=3us\n\nx alpha=4us\n' >twice
expect 0 '' move.dtm --emit=local --topology fast
expect 2 'wrong: line 2: "alpha=3" is not understood' check move.dtm --topology wrong
expect 2 'twice: line 3: x has a line already, line 1' check move.dtm --topology twice
expect 2 'cannot read nowhere' check move.dtm --topology nowhere
expect 2 'does not belong to' explain op linear --topology fast
"$DTMC" move.dtm --emit=local >even && "$DTMC" move.dtm --emit=local --topology slow_y >uneven
cmp -s even uneven && { echo "FAIL: --topology changes nothing"; failed=$((failed + 1)); }
expect 0 '' move.dtm -o out --topology fast -MD -MF deps
grep -q 'fast' deps || { echo "FAIL: -MD does not name the topology"; failed=$((failed + 1)); }
expect 1 'is a source' move.dtm -o fast --topology fast

# gradients added up over batches are reduced by one collective
cat >accumulate.dtm <<'EOF'
mesh world(dp = 2)
module Model() {
  param w: f32[3, 4] = normal()
  param b: f32[3] = zeros()
  param v: f32[3, 3] = normal()
  forward(x) { return linear(tanh(linear(x, w, b)), v) }
}
train {
  data x = npy("x.npy", f32[8@dp, 4])
  model m = Model()
  loss mean(square(m(x)))
  optimizer sgd(lr = 0.1)
  accumulate 2
}
EOF
reductions=$("$DTMC" accumulate.dtm --emit=plan | grep -c 'reduce *all_reduce')
[ "$reductions" = 2 ] || { echo "FAIL: $reductions reductions, not loss and gradients"; failed=$((failed + 1)); }

# what is printed must arrive
for words in "--help" "--version" "explain op" "explain --list" "fmt good.dtm" "good.dtm --emit=plan" \
  "good.dtm --emit=ast -o -" "good.dtm --print-config" "check good.dtm --print-config" \
  "check good.dtm --format=json"; do
  "$DTMC" $words >/dev/full 2>err
  [ $? = 1 ] && grep -q 'cannot write standard output' err ||
    { echo "FAIL: dtmc $words > /dev/full"; failed=$((failed + 1)); }
done
"$DTMC" good.dtm -o out
for words in --help --version; do
  ./out $words >/dev/full 2>err
  [ $? = 1 ] && grep -q 'standard output could not be written' err ||
    { echo "FAIL: binary $words > /dev/full"; failed=$((failed + 1)); }
done

# faults of the installation
expect 1 'DTM5001' good.dtm -o out --march=abacus
CC=/nowhere/cc expect 1 'DTM5002' good.dtm -o out
expect 1 'DTM5002' good.dtm -o /dev/null

# a failed compile leaves the old file alone; a good one replaces it
echo old >out
expect 1 'error' bad.dtm -o out
[ "$(cat out)" = old ] || { echo "FAIL: a failed compile touched the output"; failed=$((failed + 1)); }
# a limit on file sizes is a message too
(
  ulimit -f 8
  "$DTMC" good.dtm -o out 2>err
  [ $? = 1 ] && grep -q 'error' err || exit 1
) || { echo "FAIL: a limit on file sizes: $(cat err)"; failed=$((failed + 1)); }
[ "$(cat out)" = old ] || { echo "FAIL: a compile over a limit touched the output"; failed=$((failed + 1)); }
# a source is never an output
cp good.dtm mine.dtm
expect 1 'is a source' mine.dtm -o mine.dtm
expect 1 'is a source' mine.dtm --emit=graph -o ./mine.dtm
expect 1 'is a source' mine.dtm -o out -MD -MF mine.dtm
cmp -s good.dtm mine.dtm || { echo "FAIL: a source was overwritten"; failed=$((failed + 1)); }

# what is not a file is not replaced by one
mkfifo pipe
expect 1 'not a file' good.dtm -o pipe
cat pipe >stage &
expect 0 '' good.dtm --emit=graph -o pipe
wait
grep -q 'mesh' stage || { echo "FAIL: the pipe did not receive the stage"; failed=$((failed + 1)); }
[ -p pipe ] || { echo "FAIL: a file was put in the place of a pipe"; failed=$((failed + 1)); }
expect 0 '' good.dtm -o out -MD -MF deps
grep -q 'good.dtm' deps || { echo "FAIL: -MD does not name good.dtm"; failed=$((failed + 1)); }
"$DTMC" good.dtm -o out2 && cmp -s out out2 || { echo "FAIL: two compiles differ"; failed=$((failed + 1)); }

# names that a linker driver would take for options
expect 2 'cannot go to standard output' good.dtm -o -
expect 0 '' good.dtm --output=-x
[ -x ./-x ] || { echo "FAIL: no executable named -x"; failed=$((failed + 1)); }
expect 2 'ranks needs a mesh dim' good.dtm -o out --ranks 4
expect 0 '' check good.dtm --ranks 4 --mesh 'dp=2;dp=auto'
expect 0 '' check good.dtm --ranks 4 --mesh dp=auto,tp=2

# programs that ask the compiler for too much
echo 'fn f(n) { return if n < 2 then n else f(n - 1) + f(n - 2) }
let a = f(60)' >much.dtm
expect 1 'DTM3014.*too long' check much.dtm
echo 'let a = [[i for i in range(20000)] for j in range(20000)]' >much.dtm
expect 1 'DTM3014.*too long' check much.dtm
echo 'fn f() {
  let s = "abcdefgh"
  for i in range(60) { s = s + s }
  return s
}
let a = f()' >much.dtm
expect 1 'DTM3014.*at most 1048576 bytes' check much.dtm

# closed standard output and error: nothing goes into files of the compiler
"$DTMC" good.dtm -o out3 <&- >&- 2>&- && cmp -s out out3 || { echo "FAIL: closed standard files"; failed=$((failed + 1)); }

echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
