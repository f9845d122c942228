#!/usr/bin/env bash
# The tests and figures that need a GPU, for a machine that has one and nothing of this project.
#   tests/gpu.sh pack [--tiny] [BUILD] [DIR]  here: compiles programs into DIR (BUILD/gpu), with the losses of one rank on the CPU
#   tests/gpu.sh run [SECONDS] [DIR]          there: runs all of it in at most SECONDS (540) and prints Markdown
# A pack is at most 64 MiB; what runs it needs a driver for CUDA 12 or later, cuBLASLt and NCCL, bash and awk.
# compute-sanitizer and a python3 with PyTorch are used where they are there. --tiny: sizes for the simulated GPU.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
most_mib=64

# Rows of `compared`: NAME SOURCE COMPUTE BOUND FLAGS: five steps; losses differ by no more than BOUND of their size.
# Rows of `measured`: NAME SOURCE COMPUTE STEPS SIZES: tokens per second, and what every operation takes.
# `ceilings`: arguments of gpu_ceilings; `nccl`: of gpu_nccl_one.
usual() {
  target=cuda:sm_90 ceilings="2048 8192 20" nccl=1048576
  compared=(
    "llama       llama   f32  1e-5"
    "llama_tied  llama   f32  1e-5 -D tied=true -D microbatches=4"
    "llama_bf16  llama   bf16 8e-3"
    "gpt2        gpt2    f32  1e-5"
    "gpt2_drop   gpt2    f32  1e-5 -D dropout=0.1"
    "gpt2_bf16   gpt2    bf16 8e-3"
    "mixtral     mixtral f32  1e-5"
    "dropless    mixtral f32  1e-5 -D capacity=0.0"
  )
  measured=(
    "gpt2_124m   gpt2  bf16 40 vocab=50304 dim=768 layers=12 heads=12 kv_heads=12 ffn=3072 seq=1024 context=1024 batch=16"
    "llama_8b_x4 llama bf16 20 vocab=8192 dim=4096 layers=4 heads=32 kv_heads=8 ffn=14336 seq=4096 batch=2 theta=500000.0"
  )
}
tiny() {
  target=cuda:compute_80 ceilings="1 64 2" nccl=1000
  local sizes="dim=32 layers=1 heads=2 kv_heads=2 ffn=128 seq=16 batch=2"
  compared=("gpt2 gpt2 f32 1e-5 -D ${sizes// / -D }" "gpt2_bf16 gpt2 bf16 8e-3 -D ${sizes// / -D }")
  measured=("gpt2_few gpt2 bf16 3 vocab=256 context=128 $sizes")
}

die() { echo "gpu.sh: $*" >&2; exit 1; }

# "STEP LOSS" per line of a log made with --log=json.
losses() { sed -n 's/^{"step":\([0-9]*\),"loss":\([^,}]*\).*/\1 \2/p' "$1"; }

# --- here ---------------------------------------------------------------------------------------------------------

# Shared libraries that another machine may lack.
libraries() { ldd "$1" | awk '$3 ~ /(jansson|libz|gomp)/ {print $3}'; }

# SOURCE COMPUTE DIR: a copy of the sample that computes so and saves nothing; its path is printed.
source_of() {
  local file=$here/../samples/$1/$1.dtm to=$3/$1_$2.dtm
  sed "/^  save /d;$([ "$2" != bf16 ] || printf '/^train {/a\\  compute bf16')" "$file" >"$to"
  echo "$to"
}

pack_compared() {
  local row name source compute bound flags file
  for row in "${compared[@]}"; do
    read -r name source compute bound flags <<<"$row"
    echo "gpu.sh: $name" >&2
    file=$(source_of "$source" "$compute" "$dir")
    # shellcheck disable=SC2086 # flags are words
    "$dtmc" "$file" $flags --target="$target" -o "$dir/$name"
    # shellcheck disable=SC2086
    "$dtmc" "$file" $flags -o "$dir/cpu"
    (cd "$dir" && ./cpu --steps 5 --no-eval --log=json --data text=text.txt) >"$dir/log"
    losses "$dir/log" >"$dir/$name.losses"
    [ "$(wc -l <"$dir/$name.losses")" = 5 ] || die "$name: $dir/log should hold five losses"
  done
}

pack_measured() {
  local row name source compute sizes
  for row in "${measured[@]}"; do
    read -r name source compute _ sizes <<<"$row"
    echo "gpu.sh: $name" >&2
    # shellcheck disable=SC2086
    "$dtmc" "$(source_of "$source" "$compute" "$dir")" -D ${sizes// / -D } --target="$target" --report=actions -o "$dir/$name" \
      >"$dir/$name.actions"
  done
}

pack() {
  local build dir dtmc file size target ceilings nccl compared measured
  usual
  if [ "${1:-}" = --tiny ]; then tiny; shift; fi
  build=${1:-$here/../build} dir=${2:-}
  [ -x "$build/bin/dtmc" ] || die "$build/bin/dtmc is missing: cmake --preset release && cmake --build build"
  build=$(cd "$build" && pwd) dtmc=$build/bin/dtmc
  dir=${dir:-$build/gpu}
  bash "$here/../samples/data.sh"
  rm -rf "$dir"
  mkdir -p "$dir/lib"
  dir=$(cd "$dir" && pwd)
  cp "$here/gpu.sh" "$here/gpu/fractions.awk" "$here/gpu/torch_step.py" "$here/bench/gpt2.py" "$build"/bin/gpu_* "$dir/"
  head -c 400000 "$here/../samples/llama/data/bible.txt" >"$dir/text.txt"
  pack_compared
  pack_measured
  printf '%s\n' "${compared[@]}" >"$dir/compared"
  printf '%s\n' "${measured[@]}" >"$dir/measured"
  echo "$ceilings" >"$dir/ceilings"
  echo "$nccl" >"$dir/nccl"
  for file in $(libraries "$dir/gpt2"); do cp -L "$file" "$dir/lib/"; done
  rm -rf "$dir"/cpu "$dir"/log "$dir"/*.dtm
  size=$(du -sm "$dir" | cut -f1)
  [ "$size" -le $most_mib ] || die "$dir has $size MiB; at most $most_mib may travel"
  echo "gpu.sh: $dir, $size MiB; there: bash gpu.sh run" >&2
}

# --- there --------------------------------------------------------------------------------------------------------

# Seconds that a part may have which would take SECONDS at most; 0 when too few are left for any.
may_take() {
  local left=$((end - $(date +%s)))
  [ $left -ge 5 ] || left=0
  echo $(($1 < left ? $1 : left))
}

# SECONDS COMMAND...: its output in $scratch/log, errors in $scratch/errors. False where it failed, with the reason in
# `said`; `late` is set where there was no time for it.
attempt() {
  local seconds status=0
  seconds=$(may_take "$1")
  shift
  late=
  if [ "$seconds" = 0 ]; then late=1 said="no time left"; return 1; fi
  timeout -k 5 "$seconds" "$@" >"$scratch/log" 2>"$scratch/errors" </dev/null || status=$?
  [ $status != 0 ] || return 0
  said=$(tail -n 3 "$scratch/errors" | tr '\n' ' ')
  if [ $status = 124 ] || [ $status = 137 ]; then said="not done in $seconds s; $said"; fi
  [ -n "$said" ] || said="exit code $status"
  return 1
}

failure() { # of what `attempt` tried
  if [ -n "$late" ]; then echo "skipped $1: $said"; else failed=1; echo "FAIL $1: $said"; fi
}

# Losses in files $1 and $2, at most $3 apart, relative to their size.
alike() {
  paste -d' ' "$1" "$2" | awk -v most="$3" '
    NF != 4 || $1 != $3 { bad = 1; next }
    { d = $2 - $4; if (d < 0) d = -d; if (d > worst * $4) worst = d / $4; if (!(d <= most * $4)) bad = 1 }
    END { printf "largest difference %.2g, allowed %g\n", worst, most; exit bad || NR != 5 }'
}

value() { awk -v what="$1" '$1 == what { print $2 }' "$2" 2>/dev/null || true; }

find_ceilings() {
  # shellcheck disable=SC2046
  if attempt 60 ./gpu_ceilings $(cat ceilings); then
    cp "$scratch/log" "$scratch/ceilings"
    echo "copies within its memory reach $(value copy_gbs "$scratch/ceilings") GB/s, bf16 products $(value bf16_tflops "$scratch/ceilings") TFLOP/s" \
      "(cuBLASLt $(value cublaslt "$scratch/ceilings"))"
  else
    failure ceilings
  fi
}

compare_losses() {
  local name bound
  while read -r name _ _ bound _; do
    if ! attempt 40 "./$name" --steps 5 --no-eval --log=json --data text=text.txt; then
      failure "$name"
      continue
    fi
    losses "$scratch/log" >"$scratch/losses"
    if said=$(alike "$scratch/losses" "$name.losses" "$bound"); then echo "pass $name: $said"; else late= failure "$name"; fi
  done <compared
}

sanitize() {
  local tool
  if ! command -v compute-sanitizer >/dev/null; then
    echo "skipped compute-sanitizer: it is not there"
    return
  fi
  for tool in memcheck racecheck; do
    if attempt 60 compute-sanitizer --tool $tool --error-exitcode 9 ./gpt2 --steps 1 --no-eval --log=plain --data text=text.txt; then
      echo "pass $tool"
    else
      said="$(tail -n 5 "$scratch/log" | tr '\n' ' ') $said"
      failure $tool
    fi
  done
}

# Dense bf16 products, TFLOP/s, as data sheets have them.
peak_of() {
  case $1 in
    *H100*PCIe*) echo 756 ;;
    *H100* | *H200* | *GH200*) echo 989 ;;
    *A100*) echo 312 ;;
    *B200*) echo 2250 ;;
    *) echo 0 ;;
  esac
}

# One line of the table of steps: NAME WHO SECONDS TOKENS FLOPS
step_row() {
  awk -v name="$1" -v who="$2" -v s="$3" -v tokens="$4" -v flops="$5" -v most="$(value bf16_tflops "$scratch/ceilings")" -v peak="$peak" '
    function of(most) { return most > 0 ? sprintf("%.3f", flops / s / 1e12 / most) : "" }
    BEGIN { printf "| %-12s | %-8s | %9.3f | %9.0f | %7.1f | %6s | %6s |\n", name, who, 1e3 * s, tokens / s, flops / s / 1e12,
              of(peak), of(most) }'
}

# Seconds of a step, from a log made with --log=json, without the first five (of few: the first) steps.
step_seconds() {
  sed -n 's/^{"step":\([0-9]*\).*"seconds":\([0-9.]*\).*/\1 \2/p' "$1" | awk '
    { at[NR] = $2 }
    END { from = NR > 10 ? 5 : 1; if (NR < 2) exit 1; s = (at[NR] - at[from]) / (NR - from); print (s > 0 ? s : 1e-6) }'
}

# NAME SOURCE STEPS SIZES: rows of both programs
measure_steps() {
  local name=$1 source=$2 steps=$3 tokens flops seconds
  tokens=$(tr ' ' '\n' <<<"$4" | awk -F= '$1 == "seq" || $1 == "batch" { n = n ? n * $2 : $2 } END { print n }')
  flops=$(awk -F'\t' '$2 == "train" && ($4 == "product" || $4 == "library") { n += $8 } END { printf "%.0f", n }' "$name.actions")
  if attempt 60 "./$name" --steps "$steps" --no-eval --log=json --data text=text.txt && seconds=$(step_seconds "$scratch/log"); then
    step_row "$name" dtm "$seconds" "$tokens" "$flops" >>"$scratch/rows"
  else
    failure "$name"
  fi
  [ -n "$torch" ] || return 0
  # shellcheck disable=SC2086
  if attempt 120 python3 torch_step.py "$source" "$steps" text.txt $4; then
    step_row "$name" PyTorch "$(value seconds "$scratch/log")" "$tokens" "$flops" >>"$scratch/rows"
  else
    failure "$name in PyTorch"
  fi
}

measure_operations() {
  local name=$1 rows=24
  if ! attempt 60 "./$name" --steps 6 --no-eval --quiet --data text=text.txt --trace "$scratch/trace.json"; then
    failure "the trace of $name"
    return
  fi
  awk -v copy="$(value copy_gbs "$scratch/ceilings")" -v bf16="$(value bf16_tflops "$scratch/ceilings")" -v skip=2 \
    -f fractions.awk "$name.actions" "$scratch/trace.json" >"$scratch/table" || { failed=1; return; }
  echo
  echo "### Operations of a step of $name"
  echo
  awk -v n="$(wc -l <"$scratch/table")" -v rows=$rows 'NR <= rows + 2 || NR > n - 2' "$scratch/table"
}

run() {
  local seconds=540 end failed=0 late='' said='' scratch peak torch='' name source steps sizes status=0
  if [[ ${1:-} =~ ^[0-9]+$ ]]; then seconds=$1; shift; fi
  end=$(($(date +%s) + seconds))
  cd "${1:-$here}"
  export LD_LIBRARY_PATH=$PWD/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH} OMP_NUM_THREADS=${OMP_NUM_THREADS:-4}
  scratch=$(mktemp -d)
  : >"$scratch/rows"
  # shellcheck disable=SC2064 # as it is now
  trap "rm -rf '$scratch'" EXIT
  name=$(nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader 2>/dev/null | head -n 1) || name="no nvidia-smi"
  echo "## ${name:-no nvidia-smi}, $(date +%F)"
  echo
  peak=$(peak_of "$name")
  timeout -k 5 60 ./gpt2 --steps 1 --no-eval --quiet --data text=text.txt >/dev/null 2>"$scratch/errors" || status=$?
  [ $status != 3 ] || die "$(cat "$scratch/errors")" # what the machine lacks
  find_ceilings
  # shellcheck disable=SC2046
  if attempt 60 ./gpu_nccl_one $(cat nccl); then echo "pass NCCL with one rank: $(cat "$scratch/log")"; else failure "NCCL with one rank"; fi
  compare_losses
  if timeout -k 5 60 python3 -c 'import torch' 2>/dev/null; then torch=1; else echo "skipped PyTorch: python3 has none"; fi
  while read -r name source _ steps sizes; do measure_steps "$name" "$source" "$steps" "$sizes"; done <measured
  echo
  echo "| step of      |          |        ms | tokens/s  | TFLOP/s | MFU    | of products |"
  echo "|--------------|----------|----------:|----------:|--------:|-------:|------------:|"
  cat "$scratch/rows"
  while read -r name _; do measure_operations "$name"; done <measured
  echo
  sanitize
  echo "done in $((seconds - end + $(date +%s))) s"
  return $failed
}

case ${1:-} in
  pack) shift; pack "$@" ;;
  run) shift; run "$@" ;;
  *) sed -n '2,7s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac
