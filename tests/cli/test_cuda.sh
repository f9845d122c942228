#!/usr/bin/env bash
# --target=cuda on the command line: options, texts and PTX in a folder, edited kernels, the cache of
# what NVRTC makes. DTMC names the compiler. What needs NVRTC is left out, with the reason, where
# there is none; then the exit code is 77.
set -uo pipefail
: "${DTMC:?set DTMC to the compiler}"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
export DTM_CACHE=$work/cache
failed=0
passed=0

fail() {
  printf 'FAIL %s\n' "$*"
  failed=$((failed + 1))
}

# expect CODE REGEX ARGS...: runs dtmc ARGS; the exit code and a line of its output must match.
expect() {
  local code=$1 regex=$2 out got
  shift 2
  out=$(timeout 60 "$DTMC" "$@" 2>&1 </dev/null)
  got=$?
  if [ "$got" != "$code" ] || ! grep -Eq -- "$regex" <<<"$out"; then
    fail "dtmc $*"
    printf '  exit %s, wanted %s; output should match /%s/:\n%s\n' "$got" "$code" "$regex" "$out"
  else
    passed=$((passed + 1))
  fi
}

# check WHAT COMMAND...: the command must succeed.
check() {
  local what=$1
  shift
  if "$@"; then passed=$((passed + 1)); else fail "$what"; fi
}

finish() {
  printf '%s passed, %s failed\n' "$passed" "$failed"
  [ "$failed" = 0 ] || exit 1
  exit "${1:-0}"
}

cat >one.dtm <<'DTM'
mesh world(dp = 1)
infer {
  let warm = arange(f32[240]).reshape([6, 40])
  print(sum(gelu(warm)))
}
DTM

# options
expect 2 'cuda:CHIP' one.dtm --target=tpu -o out
expect 2 'not known here' one.dtm --target=cuda:native -o out
expect 2 "'sm_9x' is no chip" one.dtm --target=cuda:sm_9x -o out
expect 2 "'' is no chip" one.dtm --target=cuda:sm_90, -o out
expect 2 "'sm_90a' stands for .*; name sm_90\$" one.dtm --target=cuda:sm_90a -o out
expect 2 "'90' is no chip" one.dtm --target=cuda:90 -o out
expect 2 'takes cpu' one.dtm --target=cudas -o out
expect 2 'needs --target=cuda' one.dtm --emit=cuda
expect 2 'needs --target=cuda' one.dtm --load-cuda=. -o out
expect 2 'is of --target=cpu' one.dtm --target=cuda --emit=llvm
expect 2 'names a CPU' one.dtm --target=cuda --march=x86-64 -o out
expect 2 'only cuda and ptx go to a folder' one.dtm --target=cuda --emit=plan,cuda -o folder/

# texts need no NVRTC
export DTM_NVRTC=$work/nowhere.so
expect 0 'extern "C" __global__' one.dtm --target=cuda --emit=cuda
expect 0 'gelu, one.dtm:4:' one.dtm --target=cuda --emit=cuda
expect 1 'cannot load NVRTC' one.dtm --target=cuda:compute_80 --emit=ptx
check 'nothing was written' test ! -e out
cat >old.c <<'C'
int nvrtcVersion(int *major, int *minor) { return *major = 11, *minor = 8, 0; }
#define ENTRY(name) int nvrtc##name(void) { return 1; }
ENTRY(GetNumSupportedArchs) ENTRY(GetSupportedArchs) ENTRY(CreateProgram) ENTRY(DestroyProgram)
ENTRY(CompileProgram) ENTRY(GetPTXSize) ENTRY(GetPTX) ENTRY(GetCUBINSize) ENTRY(GetCUBIN)
ENTRY(GetProgramLogSize) ENTRY(GetProgramLog)
C
if cc -shared -fPIC -o old.so old.c; then
  DTM_NVRTC=$work/old.so expect 1 'old.so: NVRTC 11.8 is too old' one.dtm --target=cuda --emit=ptx
fi
# what NVRTC opens by name when it compiles lies beside it in a package of Python, out of the loader's path
echo '__attribute__((constructor)) static void opened(void) { fputs("builtins are opened\n", stderr); }' |
  cat <(echo '#include <stdio.h>') - >builtins.c
if sed 's/= 11/= 13/; s/= 8/= 7/' old.c >new.c && cc -shared -fPIC -o new.so new.c &&
  cc -shared -fPIC -o libnvrtc-builtins.so.13.7 builtins.c; then
  DTM_NVRTC=$work/new.so expect 1 'builtins are opened' one.dtm --target=cuda --emit=ptx
fi
# Of several packages of Python the newest NVRTC is taken, whatever its folder is called. Others than these are hidden.
cat >hide.c <<'C'
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
static int hidden(const char *path) {
  return strstr(path, "libnvrtc") && strncmp(path, getenv("VIRTUAL_ENV"), strlen(getenv("VIRTUAL_ENV")));
}
int access(const char *path, int how) {
  int (*real)(const char *, int) = dlsym(RTLD_NEXT, "access");
  return hidden(path) ? -1 : real(path, how);
}
void *dlopen(const char *path, int how) {
  void *(*real)(const char *, int) = dlsym(RTLD_NEXT, "dlopen");
  return path && hidden(path) ? NULL : real(path, how);
}
C
packages=$work/venv/lib/python3.9/site-packages/nvidia
mkdir -p "$packages"/cu13/lib "$packages"/cuda_nvrtc/lib
if cc -shared -fPIC -D_GNU_SOURCE -o hide.so hide.c -ldl && cp new.so "$packages"/cu13/lib/libnvrtc.so.13 &&
  sed 's/= 11/= 12/' old.c >twelve.c && cc -shared -fPIC -o "$packages"/cuda_nvrtc/lib/libnvrtc.so.12 twelve.c &&
  VIRTUAL_ENV=$work/venv LD_PRELOAD=$work/hide.so "$DTMC" --version >/dev/null 2>&1; then # not beside sanitizers
  said=$(DTM_NVRTC='' VIRTUAL_ENV=$work/venv LD_PRELOAD=$work/hide.so "$DTMC" one.dtm --target=cuda --emit=ptx 2>&1)
  check 'the newest NVRTC of several packages' grep -q 'NVRTC 13.7 knows no chip' <<<"$said"
fi
# an NVRTC that crashes, that ends its process, that says yes and makes nothing: one message each, and dtmc is not to blame
cat >sick.c <<'C'
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
int nvrtcVersion(int *major, int *minor) { return *major = 13, *minor = 0; }
int nvrtcGetNumSupportedArchs(int *n) { return *n = 1, 0; }
int nvrtcGetSupportedArchs(int *archs) { return *archs = 80, 0; }
int nvrtcCreateProgram(void **unit) { return *unit = NULL, 0; }
int nvrtcCompileProgram(void) {
  const char *how = getenv("SICK");
  if (!strcmp(how, "crash")) raise(SIGSEGV);
  if (!strcmp(how, "abort")) abort();
  if (!strcmp(how, "exit")) exit(0);
  if (!strcmp(how, "hang")) pause();
  puts("chatter");
  return 0;
}
int nvrtcGetPTXSize(void *unit, size_t *n) { return *n = strcmp(getenv("SICK"), "keep") ? 1 : 9, 0; }
int nvrtcGetPTX(void *unit, char *ptx) { return *ptx = 0, 1; }
int nvrtcGetProgramLogSize(void *unit, size_t *n) { return *n = 1, 0; }
int nvrtcGetProgramLog(void *unit, char *log) { return *log = 0; }
int nvrtcGetCUBINSize(void *unit, size_t *n) { return *n = 0, 0; }
int nvrtcGetCUBIN(void) { return 0; }
int nvrtcDestroyProgram(void) { return 0; }
C
if cc -shared -fPIC -w -o sick.so sick.c; then
  export DTM_NVRTC=$work/sick.so
  SICK=crash expect 1 'NVRTC crashed by signal 11' one.dtm --target=cuda:sm_80 -o out
  SICK=abort expect 1 'NVRTC crashed by signal 6' one.dtm --target=cuda:sm_80 -o out
  SICK=exit expect 1 'NVRTC ended its process with exit code 0' one.dtm --target=cuda:sm_80 -o out
  SICK='' expect 1 'NVRTC made nothing' one.dtm --target=cuda:sm_80 -o out
  SICK=keep expect 1 'NVRTC made nothing' one.dtm --target=cuda:compute_80 -o out
  SICK=abort "$DTMC" one.dtm --target=cuda:sm_80 -o out 2>&1 | grep 'report it' && fail 'a crash of NVRTC is not to be reported as ours'
  SICK='' "$DTMC" one.dtm --target=cuda:sm_80 -o out 2>/dev/null | grep . && fail 'what NVRTC prints is no output of ours'
  check 'nothing was written' test ! -e out
  SICK=hang "$DTMC" one.dtm --target=cuda:sm_80 -o out &
  for _ in {1..200}; do child=$(pgrep -P $! | head -n 1) && break || sleep 0.05; done
  kill -KILL $! && wait $! 2>/dev/null
  for _ in {1..200}; do kill -0 "$child" 2>/dev/null || break; sleep 0.05; done
  kill -0 "$child" 2>/dev/null && fail 'a process that compiles outlives dtmc' && kill -KILL "$child"
  unset DTM_NVRTC
fi
sed -i '/^ENTRY(GetProgramLogSize)/d' old.c
if cc -shared -fPIC -o lacks.so old.c; then
  DTM_NVRTC=$work/lacks.so expect 1 'lacks.so has no entry nvrtcGetProgramLog' one.dtm --target=cuda --emit=ptx
fi
unset DTM_NVRTC

probe=$("$DTMC" one.dtm --target=cuda:compute_80 --emit=ptx -o made/ 2>&1) || {
  if grep -q 'NVRTC, which makes code for GPUs, is not there' <<<"$probe"; then
    printf 'skipped: %s\n' "$probe"
    finish 77
  fi
  fail "--emit=ptx: $probe"
}
expect 1 'makes no code for sm_12' one.dtm --target=cuda:sm_12 --emit=ptx
cat >half.dtm <<'DTM'
mesh world(dp = 1)
infer {
  let q = cast(arange(f32[1024]).reshape([1, 1, 64, 16]), bf16)
  print(sum(cast(scaled_dot_product_attention(q, q, q), f32)))
}
DTM
if "$DTMC" one.dtm --target=cuda:compute_75 --emit=ptx >/dev/null 2>&1; then # NVRTC knows it still
  expect 1 'attention_mma_bf16_.* needs tensor cores .* from sm_80 on' half.dtm --target=cuda:compute_75 --emit=ptx
fi

# a folder of texts
"$DTMC" one.dtm --target=cuda:compute_80 --emit=cuda,ptx -o made/ || fail 'texts and PTX'
kernel=$(cd made && grep -l erff k*.cu | head -n 1)
kernel=${kernel%.cu}
check 'a text and PTX per kernel' test -s "made/$kernel.ptx"
check 'the header is there' test -s made/dtm.cuh
check 'as many PTX as texts' [ "$(ls made/*.cu | wc -l)" = "$(ls made/*.ptx | wc -l)" ]

# edited kernels
expect 1 'cannot read the folder' one.dtm --target=cuda:compute_80 --load-cuda=nowhere --emit=ptx
mkdir edited
cp "made/$kernel.cu" edited/
check 'unchanged texts change nothing' cmp <("$DTMC" one.dtm --target=cuda:compute_80 --load-cuda=edited --emit=ptx) \
  <("$DTMC" one.dtm --target=cuda:compute_80 --emit=ptx)
sed -i 's/0\.5f/0.25f/' edited/"$kernel".cu
if cmp -s "made/$kernel.cu" edited/"$kernel".cu; then fail 'nothing was edited'; fi
"$DTMC" one.dtm --target=cuda:compute_80 --load-cuda=edited --emit=ptx -o after/ || fail 'an edited kernel'
check 'an edited text changes its PTX' test -n "$(diff "made/$kernel.ptx" "after/$kernel.ptx")"
# what lies beside them: headers of one's own are read, make is told of all, PTX is not read
"$DTMC" one.dtm --target=cuda:compute_80 --load-cuda=edited -MD -MF deps -o loaded || fail 'an executable of edited kernels'
check 'make is told of edited kernels' grep -q " edited/$kernel.cu" deps
sed '1i #include "own.cuh"' edited/"$kernel".cu >with && mv with edited/"$kernel".cu
expect 1 "$kernel.cu\(1\).*own.cuh" one.dtm --target=cuda:compute_80 --load-cuda=edited --emit=ptx
echo '__device__ int own;' >edited/own.cuh
"$DTMC" one.dtm --target=cuda:compute_80 --load-cuda=edited -MD -MF deps -o loaded || fail 'a header of the folder'
check 'make is told of headers' grep -q ' edited/own.cuh' deps
cp "made/$kernel.ptx" edited/
expect 0 '^//' one.dtm --target=cuda:compute_80 --load-cuda=edited --emit=ptx
if "$DTMC" one.dtm --target=cuda:compute_80 --load-cuda=edited --emit=ptx 2>&1 | grep -q 'is not read'; then
  fail 'PTX beside an edited text is nothing to warn of'
fi
"$DTMC" one.dtm --target=cuda:compute_80 --load-cuda=made --emit=ptx 2>&1 >/dev/null | grep . && fail 'an untouched folder is no reason for words'
"$DTMC" one.dtm --target=cuda:compute_90 --load-cuda=made --emit=ptx 2>&1 >/dev/null | grep . && fail 'PTX for another chip is no reason for words'
cp -r made heads && sed -i 's/a <= b/a < b/; s/a \* b;/b * a + a;/; s/return a + b;/return a + b + a;/' heads/dtm.cuh
"$DTMC" one.dtm --target=cuda:compute_80 --load-cuda=heads --emit=ptx 2>&1 >/dev/null | grep . && fail 'PTX of another header is no reason for words'
sed 's/^\tret;/\t\/\/ mine\n\tret;/' "made/$kernel.ptx" >edited/"$kernel".ptx
cp "made/$kernel.cu" edited/
expect 0 "edited/$kernel.ptx was changed, and is not read: edit $kernel.cu" \
  one.dtm --target=cuda:compute_80 --load-cuda=edited --emit=ptx
rm edited/own.cuh edited/"$kernel".ptx

sed -i 's/int32_t group) {/int32_t group, int32_t more) {/' edited/"$kernel".cu
expect 1 "edited/$kernel.cu: .* must have" one.dtm --target=cuda:compute_80 --load-cuda=edited --emit=ptx
sed 's/int64_t tasks, int32_t group) {/int32_t group, int64_t tasks) {/' "made/$kernel.cu" >edited/"$kernel".cu
expect 1 "edited/$kernel.cu: .* must have" one.dtm --target=cuda:compute_80 --load-cuda=edited --emit=ptx
echo 'nonsense;' >>edited/"$kernel".cu
expect 1 "edited/$kernel.cu\([0-9]+\): error" one.dtm --target=cuda:compute_80 --load-cuda=edited --emit=ptx
check 'one empty line is between what NVRTC says and the sum' \
  test -n "$("$DTMC" one.dtm --target=cuda:compute_80 --load-cuda=edited --emit=ptx 2>&1 | tail -n 3 | head -n 1)"
# A text of the program before its source was changed; without its head it is taken as it is.
sed 's/gelu(warm)/gelu(warm * 3.0)/' one.dtm >later.dtm
sed 's/$/\r/' "made/$kernel.cu" >edited/"$kernel".cu
expect 0 'entry' one.dtm --target=cuda:compute_80 --load-cuda=edited --emit=ptx
expect 1 "edited/$kernel.cu was made before its kernel changed: in the comment at its head '.*' is '.*' now; write it anew" \
  later.dtm --target=cuda:compute_80 --load-cuda=edited --emit=ptx
sed '/^\/\* kernel/,/\*\/$/d' "made/$kernel.cu" >edited/"$kernel".cu
expect 0 'entry' later.dtm --target=cuda:compute_80 --load-cuda=edited --emit=ptx
sed 's/MOVES_TILE = 1024/MOVES_TILE = 512/' made/moves_args.h >edited/moves_args.h
expect 1 ' edited/moves_args.h is not as this dtmc has it' one.dtm --target=cuda:compute_80 --load-cuda=edited/ --emit=ptx
rm edited/moves_args.h
mv edited/"$kernel".cu edited/other.cu
expect 1 'other.cu is no kernel of this program' one.dtm --target=cuda:compute_80 --load-cuda=edited --emit=ptx
rm -r edited
# so are files of the library
cat >sorted.dtm <<'DTM'
mesh world(dp = 1)
infer { print(sort(rand(f32[40]))[0]) }
DTM
"$DTMC" sorted.dtm --target=cuda:compute_80 --emit=cuda -o edited/ || fail 'texts of sort'
rm edited/k*.cu
sed -i 's/int64_t keep, int32_t width/int32_t width, int64_t keep/' edited/sort_*.cu
expect 1 'edited/sort_f32_.*.cu: sort_short_.* must have the parameters' sorted.dtm --target=cuda:compute_80 --load-cuda=edited -o out
sed -i 's/int32_t width, int64_t keep/int64_t keep, int32_t width/; s/number\[e\] = (uint16_t)i;/& \/\/ edited/' edited/sort_*.cu
expect 0 'entry' sorted.dtm --target=cuda:compute_80 --load-cuda=edited --emit=ptx
# an end of line in a name ends no comment
cp one.dtm $'two\nlines.dtm'
rm -r edited
"$DTMC" $'two\nlines.dtm' --target=cuda:compute_80 --emit=cuda -o edited/ || fail 'a name of two lines'
for f in edited/k*.cu; do echo '// edited' >>"$f"; done
expect 0 'entry' $'two\nlines.dtm' --target=cuda:compute_80 --load-cuda=edited --emit=ptx
# nor does a name of the source that means something in CUDA C, in dtm.cuh or in the text of a kernel
cat >names.dtm <<'DTM'
mesh world(dp = 1)
module Net() {
  param static_assert: f32[4] = ones()
  param bitand: f32[4] = ones()
  param char16_t: f32[4] = ones()
  param NULL: f32[4] = ones()
  param DTM_BLOCK: f32[4] = ones()
  param __syncthreads: f32[4] = ones()
  param threadIdx: f32[4] = ones()
  param expf: f32[4] = ones()
  param float: f32[4] = ones()
  param task: f32[4] = ones()
  param names_call: f32[4] = ones()
  forward(x) {
    return exp(x * static_assert + bitand * char16_t + NULL * DTM_BLOCK + __syncthreads * threadIdx + expf * float) / task + names_call + __syncthreads + DTM_BLOCK
  }
}
infer {
  model net = Net()
  print(net(rand(f32[2, 4])))
}
DTM
rm -r edited
"$DTMC" names.dtm --target=cuda:compute_80 --emit=cuda -o edited/ || fail 'names that mean something'
for f in edited/k*.cu; do echo '// edited' >>"$f"; done
check 'names of the source are there' grep -q 'x__syncthreads' edited/*.cu
expect 0 'entry' names.dtm --target=cuda:compute_80 --load-cuda=edited --emit=ptx
rm -r edited
mkdir edited
expect 1 'holds no .cu, .cuh or .h' one.dtm --target=cuda:compute_80 --load-cuda=edited --emit=ptx
printf '\0 lost without a word' | cat "made/$kernel.cu" - >edited/"$kernel".cu
expect 1 "$kernel.cu: there is a NUL" one.dtm --target=cuda:compute_80 --load-cuda=edited --emit=ptx
rm edited/"$kernel".cu
mkfifo edited/"$kernel".cu
expect 1 "$kernel.cu: it is no plain file" one.dtm --target=cuda:compute_80 --load-cuda=edited --emit=ptx
rm edited/"$kernel".cu
mkdir edited/dtm.cuh
expect 1 'dtm.cuh: it is no plain file' one.dtm --target=cuda:compute_80 --load-cuda=edited --emit=ptx

# the cache, and that the same source gives the same bytes
entries() { find "$1" -type f -name '[0-9a-f]*' | wc -l; }
check 'the cache was filled' test "$(entries cache)" -gt 0
build() { "$DTMC" one.dtm --target=cuda:compute_80 -o "$1" || fail "to build $1"; }
build first
build again
check 'the same with what the cache has' cmp first again
DTM_CACHE='' build none
check 'the same without a cache' cmp first none
for jobs in 1 3; do
  DTM_CACHE='' DTM_JOBS=$jobs build by_$jobs
  check "the same made by $jobs processes" cmp first by_$jobs
done
for jobs in 0 -1 65 many 2x; do
  DTM_CACHE='' DTM_JOBS=$jobs expect 1 'DTM_JOBS=.*a number from 1 to 64' one.dtm --target=cuda:compute_80 -o none
done
before=$(entries cache)
for f in cache/*; do truncate -s -7 "$f"; done
build repaired
check 'damaged entries are made anew' cmp first repaired
check 'and replaced' test "$before" = "$(entries cache)"
for f in cache/*; do printf 'X' | dd of="$f" bs=1 seek=200 conv=notrunc status=none; done
build changed
check 'changed entries are made anew' cmp first changed
for f in cache/*; do rm "$f" && mkfifo "$f"; done
check 'pipes in the place of entries are not waited for' \
  timeout 60 "$DTMC" one.dtm --target=cuda:compute_80 -o pipes
check 'and entries are made anew' cmp first pipes
find cache -type p -delete
before=$(entries cache)
DTM_CACHE=/proc/nowhere/cache build unwritable
check 'the same where the cache cannot be' cmp first unwritable
chmod a-w cache
build readonly
check 'the same with a cache that may only be read' cmp first readonly
chmod u+w cache
printf '// one more line\n' | cat - one.dtm >other.dtm
"$DTMC" other.dtm --target=cuda:compute_80 --emit=ptx >/dev/null || fail 'another program'
check 'equal kernels of another program are not compiled again' test "$before" = "$(entries cache)"
finish
