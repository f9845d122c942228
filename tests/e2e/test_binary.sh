#!/usr/bin/env bash
# What a compiled program does with short batches, with checkpoints at the ends of the data and of the
# disk, and with labels that are no class. DTMC names the compiler.
set -uo pipefail
: "${DTMC:?set DTMC to the compiler}"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work" || exit 1
export OMP_NUM_THREADS=1
failed=0
fail() {
  echo "FAIL: $*"
  failed=$((failed + 1))
}
# says CODE REGEX COMMAND...: exit code, and a line of what it prints.
says() {
  local code=$1 regex=$2 out got
  shift 2
  out=$("$@" 2>&1 </dev/null)
  got=$?
  [ "$got" = "$code" ] && grep -Eq -- "$regex" <<<"$out" ||
    fail "'$*' ends with $got, wanted $code and /$regex/: $out"
}
# numbers FILE: all of them, one a line.
numbers() { grep -oE -- '-?[0-9]+(\.[0-9]+)?(e[-+]?[0-9]+)?' "$1"; }
# alike A B WHAT: the same numbers, to rounding.
alike() {
  paste <(numbers "$1") <(numbers "$2") |
    awk 'NF != 2 || ($1 - $2)^2 > 1e-9 * (1 + $2 * $2) { bad = 1 } END { exit bad || NR == 0 }' ||
    fail "$3: $(cat "$1") is not $(cat "$2")"
}
compile() { "$DTMC" "$1.dtm" -o "$2" "${@:3}" || fail "$1 ${*:3} does not compile"; }

# 11 samples of 4 numbers, 11 labels below 3; then the last 3 of them.
printf 'the quick brown fox jumps over the lazy dog.' >x11
printf '\0\1\2\1\0\2\2\1\0\0\1' >y11
tail -c 12 x11 >x3
tail -c 3 y11 >y3

cat >short.dtm <<'EOT'
config { n = 11  batch = 4  acc = 1  drop = false  weighted = false }
mesh world(dp = 1)
module Model() {
  param w: f32[3, 4] = normal(std = 0.5)
  param b: f32[3] = zeros()
  buffer weights: f32[3] = 1
  forward(x: f32[B@dp, 2, 2]) -> f32[B@dp, 3] { return linear(x.reshape([B, 4]), w, b) }
}
fn loss_of(m, x, y) {
  if weighted {
    return cross_entropy(m(x), y, arange(f32[3]) + 1.0).redistribute(dp: Replicate)
  }
  return cross_entropy(m(x), y).redistribute(dp: Replicate)
}
train {
  data x = raw("x", f32[batch@dp, 2, 2], dtype = u8, scale = 0.01)
  data y = raw("y", i64[batch@dp], dtype = u8)
  model m = Model()
  let other = mean(square(m(x))).redistribute(dp: Replicate)
  loss loss_of(m, x, y) * 2.0 + other * 0.1 - 0.01 * sum(square(m.w))
  metric accuracy = mean(argmax(m(x), -1) == y)
  optimizer sgd(lr = 0.1)
  epochs 1
  shuffle false
  drop_last drop
  accumulate acc
}
eval {
  data x = raw("x", f32[batch@dp, 2, 2], dtype = u8, scale = 0.01)
  data y = raw("y", i64[batch@dp], dtype = u8)
  loss loss_of(m, x, y)
}
infer {
  model m = Model()
  print(m.w)
  print(m.b)
}
EOT
# train NAME FILES OPTIONS...: parameters after one epoch in NAME.w, log in NAME.log
train() {
  local name=$1 files=$2
  shift 2
  compile short "$name" "$@"
  "./$name" --data x="x$files" --data y="y$files" --save "$name.st" --log json --no-curve >"$name.log" ||
    fail "$name does not train"
  "./$name" infer --load "$name.st" >"$name.w" || fail "$name does not infer"
  grep -o '"loss":[^,]*' "$name.log" | tail -1 >"$name.loss"
  grep -o '"accuracy":[^,]*' "$name.log" | tail -1 >"$name.accuracy"
  grep '"eval"\|"test"' "$name.log" | grep -o '"value":[^,}]*\|"loss":[^,}]*' | tail -1 >"$name.eval"
}
for weighted in false true; do
  # a batch of 3 of 4 is a batch of 3; three batches of 4 added up are one of 11
  train three 3 -D batch=3 -D drop=true -D weighted=$weighted
  train eleven 11 -D batch=11 -D drop=true -D weighted=$weighted
  for ranks in 1 2 3 4; do
    train "one$ranks" 3 --mesh dp=$ranks -D weighted=$weighted
    alike "one$ranks.w" three.w "a short batch on $ranks ranks, weighted $weighted"
    alike "one$ranks.loss" three.loss "its loss"
    alike "one$ranks.accuracy" three.accuracy "its metric"
    alike "one$ranks.eval" three.eval "evaluation of a short batch on $ranks ranks"
    train "sum$ranks" 11 --mesh dp=$ranks -D acc=3 -D weighted=$weighted
    "./sum$ranks" eval --data x=x11 --data y=y11 --load eleven.st >"sum$ranks.eval"
    ./eleven eval --data x=x11 --data y=y11 --load eleven.st >eleven.eval
    alike "sum$ranks.eval" eleven.eval "evaluation on $ranks ranks, weighted $weighted"
    [ $weighted = true ] && continue # weights of batches are not known beforehand
    alike "sum$ranks.w" eleven.w "a short batch among three on $ranks ranks"
    alike "sum$ranks.loss" eleven.loss "its loss"
    alike "sum$ranks.accuracy" eleven.accuracy "its metric"
  done
done
train all 11 -D batch=4
[ "$(grep -c '"step"' all.log)" -ge 3 ] || fail "11 samples in batches of 4 are not 3 steps"

# --- labels that are no class ---
labels() { says "$1" "$2" ./one1 "${@:4}" --no-curve --data x=x3 --data y="$3"; }
compile short one1
printf '\1\7\0' >y_high
labels 1 'y_high: value 7 at element 1 .*outside \[0, 2\]' y_high
labels 1 'data y is declared at' y_high
cat >compare.dtm <<'EOT'
module Model() {
  param w: f32[3, 2] = normal()
  forward(x) { return linear(x, w) }
}
eval {
  data x = raw("x", f32[2, 1, 2], dtype = u8, scale = 0.01)
  data y = idx("y", i64[2])
  model m = Model()
  metric accuracy = mean(argmax(m(x.reshape([2, 2])), -1) == y)
}
EOT
compile compare compare
printf 'abcdefgh' >x4
printf '\0\0\10\1\0\0\0\4\0\1\2\1' >y_right
printf '\0\0\10\1\0\0\0\4\0\1\2\3' >y_wrong
says 0 'accuracy' ./compare eval --data x=x4 --data y=y_right
says 1 'y_wrong: value 3 at element 3 .*outside \[0, 2\]' ./compare eval --data x=x4 --data y=y_wrong
# what an embedding looks up are rows of its table, also where nothing is learned
cat >lookup.dtm <<'EOT'
infer {
  data ids = npy("ids.npy", i64[2@dp, 2])
  print(embedding(ids.to(i32).T, ones(f32[3@tp, 1])).redistribute(tp: Replicate))
}
EOT
sed 's/npy("ids.npy"/text("ids"/; s/ids.to(i32).T/ids[:, 0:1]/' lookup.dtm >bytes.dtm
sed -i '1i mesh world(dp = 1, tp = 1)' lookup.dtm bytes.dtm
compile lookup lookup
compile lookup lookup4 --mesh dp=2,tp=2
compile bytes bytes
header="{'descr': '|u1', 'fortran_order': False, 'shape': (2, 2)}"
npy() { printf '\223NUMPY\1\0\166\0%-117s\n%b' "$header" "$1" >"$2"; }
npy '\0\2\1\0' ids_right.npy
npy '\0\2\3\0' ids_wrong.npy
for p in lookup lookup4; do
  says 0 '\[\[\[1\], \[1\]\], \[\[1\], \[1\]\]\]' "./$p" --data ids=ids_right.npy
  says 1 'ids_wrong.npy: value 3 at element 2 .*outside \[0, 2\]' "./$p" --data ids=ids_wrong.npy
done
printf '\0\2\1\0\1' >ids_right
printf '\0\2\1\0\3' >ids_wrong
says 0 '\[\[\[1\]\], \[\[1\]\]\]' ./bytes --data ids=ids_right
says 1 'ids_wrong: value 3 at element 4 .*outside \[0, 2\]' ./bytes --data ids=ids_wrong
# -100 is ignored, another number is no label
cat >signed.dtm <<'EOT'
module Model() {
  param w: f32[3, 2] = normal()
  param v: f32[300] = zeros()
  forward(x) { return linear(x, w) + sum(v) }
}
config { cut = false  hidden = false }
train {
  data x = raw("x", f32[2, 1, 2], dtype = u8, scale = 0.01)
  data y = raw("y", i32[2, 1, 1], dtype = i32)
  model m = Model()
  let labels = if hidden then y.reshape([2]) + 0 else y.reshape([2])
  loss cross_entropy(m(x.reshape([2, 2])), labels)
  optimizer adamw(lr = 0.1)
  shuffle false
}
EOT
compile signed signed
compile signed hidden -D hidden=true
printf '\1\0\0\0\234\377\377\377\2\0\0\0\0\0\0\0' >y_ignored
printf '\1\0\0\0\235\377\377\377\2\0\0\0\0\0\0\0' >y_negative
run() { says "$1" "$2" "./$3" --no-curve --data x=x4 --data y="$4" "${@:5}"; }
run 0 'loss' signed y_ignored
run 1 'y_negative: value -99 at element 1' signed y_negative
run 1 'not finite at step 1: .*`[a-z]+ cross_entropy` at signed.dtm:12' hidden y_negative

# --- where a run goes on, and where it cannot ---
run 0 '2 steps|step 2' signed y_ignored --save s.st
run 0 'is at step 2 and training ends at step 2: nothing is left' signed y_ignored --resume s.st
run 0 'step 4/4' signed y_ignored --resume s.st --steps 4
run 0 '' signed y_ignored --steps 3 --save odd.st --seed 5
run 1 'trained with --seed 5, not 6' signed y_ignored --resume odd.st --steps 4 --seed 6
run 0 '' signed y_ignored --resume odd.st --steps 4 --seed 5
printf 'abcd' >x_two
printf '\1\0\0\0\2\0\0\0' >y_two
says 1 'was saved after batch 1 of an epoch, but the data now has 1' \
  ./signed --resume odd.st --steps 9 --data x=x_two --data y=y_two
# each by its number
run 0 'saved step-2.st at step 2' signed y_ignored --steps 5 --save-every 2 --save 'step-{step}.st'
[ -s step-2.st ] && [ -s step-4.st ] && [ -s step-5.st ] && [ ! -e step-3.st ] || fail "steps 2, 4 and 5: $(ls step-*)"
run 0 'step 5/5' signed y_ignored --resume step-4.st --steps 5 --save again.st
cmp -s <(tail -c 1200 step-5.st) <(tail -c 1200 again.st) || fail "a step saved by its number ends elsewhere"
echo text >step-3.st
run 1 'a file that is no checkpoint is there' signed y_ignored --steps 3 --save-every 1 --save 'step-{step}.st'
echo text >late-2.st
run 1 'a file that is no checkpoint is there' signed y_ignored --steps 3 --save-every 1 --save 'late-{step}.st'
# bit by bit the same as without a break
run 0 '' signed y_ignored --steps 4 --save whole.st
run 0 '' signed y_ignored --steps 3 --save broken.st
run 0 '' signed y_ignored --resume broken.st --steps 4 --save broken.st
cmp -s <(tail -c 1200 whole.st) <(tail -c 1200 broken.st) || fail "a resumed run ends elsewhere"

# --- no room ---
cp s.st before.st
(ulimit -f 1 && ./signed --no-curve --data x=x4 --data y=y_ignored --save s.st) >out 2>&1
[ $? = 1 ] && grep -q 'cannot save s.st.*free some space' out || fail "a limit on file sizes: $(cat out)"
cmp -s s.st before.st || fail "the checkpoint before the failure is gone"
ls s.st.partial >/dev/null 2>&1 && fail "half a checkpoint is left"
if mkdir disk && mount -t tmpfs -o size=4k none disk 2>/dev/null; then
  says 1 'cannot save disk/a.st.*No space left' ./signed --no-curve --data x=x4 --data y=y_ignored --save disk/a.st
  [ -e disk/a.st ] && fail "half a checkpoint stands on the full disk"
  umount disk
fi
says 2 'log.*plain' ./signed --log xml
# --- files that are not ours, and closed standard files

cp x11 kept
compile short saved -D batch=4
cp saved saved.copy
says 1 'a file that is no checkpoint is there' ./saved --data x=x11 --data y=y11 --save saved
says 1 'a file that is no checkpoint is there' ./saved --data x=x11 --data y=y11 --save x11
says 1 'a file that is no trace is there' ./saved --data x=x11 --data y=y11 --trace x11
cmp -s kept x11 && cmp -s saved saved.copy || fail "a run replaced a file that is not its own"
for i in 1 2; do
  says 0 '' ./saved --data x=x11 --data y=y11 --save own.st --trace own.json --quiet --no-curve
done
says 0 '"metric".*"step":3' ./saved eval --data x=x11 --data y=y11 --resume own.st --log json
says 0 '"metric".*[0-9]}$' ./saved eval --data x=x11 --data y=y11 --load own.st --log json
./saved eval --data x=x11 --data y=y11 --load own.st --log json | grep -q '"step"' &&
  fail "an evaluation names a step that it does not know"
compile short two --mesh dp=2 -D batch=4
./two --data x=x11 --data y=y11 --no-curve >&- 2>closed.err
code=$?
[ $code = 1 ] && [ "$(grep -c error: closed.err)" = 1 ] && grep -q 'could not be written' closed.err ||
  fail "closed standard output ends with $code: $(cat closed.err)"
./two --data x=x11 --data y=y11 --no-curve --save held.st --epochs 100000 --quiet --no-curve &
holder=$!
while [ ! -d held.st.state ]; do sleep 0.05; done
sleep 0.2
says 1 'another run is saving to it' ./saved --data x=x11 --data y=y11 --save held.st
kill $holder
wait $holder
says 0 '' ./saved --data x=x11 --data y=y11 --save held.st --quiet --no-curve

# How threads wait: libgomp says what it read when it was loaded last.
waits() {
  local regex=$1 out
  shift
  out=$(env OMP_DISPLAY_ENV=VERBOSE "$@" ./saved --data x=x11 --data y=y11 --quiet --no-curve "--threads=$threads" 2>&1 </dev/null)
  out=$(tac <<<"$out" | sed '/DISPLAY ENVIRONMENT BEGIN/q')
  grep -Eq -- "$regex" <<<"$out" || fail "with --threads=$threads and '$*' no /$regex/: $out"
}
if ldd ./saved | grep -q libgomp; then
  threads=2
  [ "$(nproc)" -lt 2 ] || waits "GOMP_SPINCOUNT = '10000'"
  waits "GOMP_SPINCOUNT = '77'" GOMP_SPINCOUNT=77
  waits "OMP_WAIT_POLICY = 'ACTIVE'" OMP_WAIT_POLICY=active
  threads=$(($(nproc) + 1)) waits "OMP_WAIT_POLICY = 'PASSIVE'"
fi

[ $failed = 0 ] && echo passed
[ $failed = 0 ]
