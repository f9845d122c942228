#!/usr/bin/env bash
# `dtmc verify`: what agrees, what does not and how that is said, exit codes, and that nothing is
# left behind. DTMC names the compiler. On GPUS, a driver to load, programs for GPUs run too.
set -uo pipefail
: "${DTMC:?set DTMC to the compiler}"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
mkdir temporary
export TMPDIR=$work/temporary
failed=0
passed=0

fail() {
  printf 'FAIL %s\n' "$*"
  failed=$((failed + 1))
}

# expect CODE REGEX ARGS...: runs dtmc verify ARGS; the exit code and a line of its output must
# match, and its folder must be gone.
expect() {
  local code=$1 regex=$2 out got
  shift 2
  out=$("$DTMC" verify "$@" 2>&1 </dev/null)
  got=$?
  if [ "$got" != "$code" ] || ! grep -Eq -- "$regex" <<<"$out"; then
    fail "dtmc verify $*"
    printf '  exit %s, wanted %s; output should match /%s/:\n%s\n' "$got" "$code" "$regex" "$out"
  elif [ -n "$(ls -A temporary)" ]; then
    fail "dtmc verify $* leaves $(ls temporary)"
    rm -rf temporary/*
  else
    passed=$((passed + 1))
  fi
}

# train, eval and infer, with random numbers, a buffer and a metric
cat >good.dtm <<'DTM'
mesh world(dp = 2, tp = 2)
module Model() {
  param w: f32[11@tp, 5] = normal(std = 0.5)
  param v: f32[3, 11@tp] = normal(std = 0.5)
  param b: f32[3] = zeros()
  buffer seen: f32[] = zeros()
  forward(x: f32[B@dp, 5]) -> f32[B@dp, 3] {
    seen = seen + 1.0
    let h = dropout(tanh(linear(x, w)), 0.2)
    return linear(h, v).redistribute(tp: Replicate) + b
  }
}
train {
  model m = Model()
  let y = m(rand(f32[7@dp, 5]))
  loss mean(square(y - 1.0))
  metric size = mean(abs(y))
  print(sum(y).redistribute(dp: Replicate))
  optimizer adamw(lr = 0.01)
  steps 4
}
infer {
  print(m(ones(f32[3@dp, 5])))
}
DTM
expect 0 '^good.dtm: dp=2,tp=2 agrees with one rank: 5 steps, 10 tensors, infer, largest difference [0-9.e-]+ in f64$' good.dtm
expect 0 'dp=3 agrees with one rank: 1 step, 10 tensors, infer, .* in f32$' good.dtm --mesh dp=3 --no-widen --steps 1
expect 0 'one rank as asked agrees' good.dtm --mesh dp=1 --no-fuse
sed 's/  optimizer/  compute bf16\n  optimizer/' good.dtm >half.dtm
expect 0 'in f64$' half.dtm
expect 0 'in bf16$' half.dtm --no-widen
sed 's/bf16/f16/' half.dtm >short.dtm
expect 0 'in f64$' short.dtm
expect 1 'the mesh decides which first steps overflow' short.dtm --no-widen

# what cannot be compared
expect 2 'on one rank as it stands' good.dtm --mesh dp=1
expect 2 'verify takes one program' good.dtm half.dtm
expect 2 'verify takes one program'
expect 2 "steps does not take '0'" good.dtm --steps 0
expect 2 'does not belong to verify' good.dtm -o out
expect 2 'takes cpu' good.dtm --target=tpu
sed 's/.redistribute(tp: Replicate)//' good.dtm >error.dtm
expect 1 'error\[DTM' error.dtm
expect 1 'cannot read' nowhere.dtm
sed 's/y - 1.0))/y - 1.0)) * 1e300 * 1e300/' good.dtm >infinite.dtm
expect 1 'the loss is not finite at step 1' infinite.dtm
expect 1 'infinite.dtm on one rank ended with exit code 1: not compared' infinite.dtm
printf 'mesh world(dp = 2)\ninfer { let x = rand(f32[4@dp]) }\n' >silent.dtm
expect 1 'nothing to compare' silent.dtm
printf 'mesh world(dp = 2)\nlet s = world.unbind("dp")\nlet last = s[1]\ninfer { print(rand(f32[4] on last)) }\n' >stage.dtm
expect 1 'does not compile for one rank' stage.dtm
cat >rows.dtm <<'DTM'
mesh world(dp = 2)
infer {
  data x = prompt("abc", i64[2 * size(dp)@dp, 4])
  print(x)
}
DTM
expect 1 'nothing to compare; infer is not compared: batches of its data x are of another size' rows.dtm
TMPDIR=$work/none expect 1 'TMPDIR names another place' good.dtm

# planted faults: a loss that every rank has its own of
cat >claims.dtm <<'DTM'
mesh world(dp = 2)
module Model() {
  param w: f32[3, 4] = normal(std = 0.5)
  forward(x: f32[B@dp, 4]) -> f32[B@dp, 3] { return tanh(linear(x, w)) }
}
train {
  model m = Model()
  let y = m(rand(f32[8@dp, 4]))
  loss unchecked(out = []) { return mean(square(y)) }
  optimizer adamw(lr = 0.01)
  steps 3
}
DTM
expect 1 'claims.dtm: dp=2 does not agree with one rank' claims.dtm
expect 1 '^  1 +loss +0\.[0-9]+ +0\.[0-9]+ +[0-9.e-]+ +[0-9.e-]+$' claims.dtm
# the loss of the first step is right, a gradient is not: each rank's parameter counts for the first alone
cat >gradient.dtm <<'DTM'
mesh world(dp = 2)
module Model() {
  param w: f32[3, 4] = normal(std = 0.5)
  param b: f32[3] = zeros()
  forward(x: f32[B@dp, 4]) -> f32[B@dp, 3] {
    let same = unchecked(out = [3]) { return b * (1.0 + coordinate(dp).to(f32)) }
    return tanh(linear(x, w) + same)
  }
}
train {
  model m = Model()
  loss mean(square(m(rand(f32[8@dp, 4]))))
  optimizer adamw(lr = 0.01)
  steps 3
}
DTM
expect 1 '^  1 +b\.m +\[[0-2]\] +-?[0-9.]+' gradient.dtm
if "$DTMC" verify gradient.dtm 2>&1 | grep -Eq '^  1 +(loss|w)'; then fail 'a loss or a weight that is right is said to differ'; fi
cat >printed.dtm <<'DTM'
mesh world(dp = 2)
infer {
  let x = rand(f32[8@dp, 4])
  print(unchecked(out = [8]) { return arange(f32[8]) + mean(x) })
}
DTM
expect 1 '^  - +unchecked.* number [1-8] ' printed.dtm
printf 'mesh world(dp = 2)\ninfer { print(sum(rand(f32[8@dp])).redistribute(dp: Replicate)) }\n' >printed.dtm
expect 0 'agrees with one rank: infer, to the six digits that are printed' printed.dtm

# signals: compiling, running; the folder goes, and so does every process of it
sed 's/^  steps 4/  steps 4\n  seed 3/' good.dtm >long.dtm
for signal in INT TERM; do
  for wait in 0.02 1; do
    timeout -s $signal $wait "$DTMC" verify long.dtm --steps 100000000 >out 2>&1
    [ $? = 124 ] || fail "verify was not ended by $signal: $(cat out)"
    [ -z "$(ls -A temporary)" ] || fail "verify leaves $(ls temporary) after $signal"
    if pgrep -f "$work/temporary" >/dev/null; then fail "processes outlive $signal"; fi
  done
done
"$DTMC" verify good.dtm >/dev/full 2>err
[ $? = 1 ] && grep -q 'cannot write standard output' err || fail 'verify > /dev/full'

# GPUs
if [ -n "${GPUS:-}" ]; then
  export DTM_CUDA_DRIVER=$GPUS DTM_CUBLASLT=$GPUS DTM_NCCL=$GPUS GPUSIM_DEVICES=4
  if "$DTMC" good.dtm --target=cuda:compute_80 -o out 2>err; then
    expect 0 'dp=2,tp=2 on cuda agrees with one rank' good.dtm --target=cuda:compute_80 --steps 2
    expect 0 'one rank on cuda agrees with one rank' good.dtm --target=cuda:compute_80 --mesh dp=1 --no-widen --steps 1
    expect 1 '^  1 +b\.m ' gradient.dtm --target=cuda:compute_80
  elif grep -q 'NVRTC, which makes code for GPUs, is not there' err; then
    echo "left out: programs for GPUs: $(cat err)"
  else
    fail "cannot compile for GPUs: $(cat err)"
  fi
fi

printf '%s passed, %s failed\n' "$passed" "$failed"
[ "$failed" = 0 ]
