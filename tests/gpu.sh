#!/usr/bin/env bash
# The tests and figures that need a GPU, for a machine that has one and nothing of this project.
#   tests/gpu.sh pack [BUILD] [DIR]  here: compiles programs into DIR (BUILD/gpu), with the losses of one rank on the CPU
#   tests/gpu.sh run [DIR]           there: runs them, compares the losses, looks at memory accesses, measures
# A pack is at most 64 MiB; what runs it needs a driver for CUDA 12 or later, cuBLASLt and NCCL.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)

# NAME SOURCE COMPUTE BOUND FLAGS: five steps on one GPU; losses differ by no more than BOUND of their size.
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
# NAME SOURCE COMPUTE STEPS FLAGS: measured; the log says tokens per second.
measured=(
  "gpt2_124m   gpt2    bf16 30 -D vocab=50304 -D dim=768 -D layers=12 -D heads=12 -D seq=1024 -D context=1024 -D batch=16"
  "llama_8b_x4 llama   bf16 20 -D vocab=8192 -D dim=4096 -D layers=4 -D heads=32 -D kv_heads=8 -D ffn=14336 -D seq=4096 -D batch=2 -D theta=500000.0"
)
most_mib=64

die() { echo "gpu.sh: $*" >&2; exit 1; }

# "STEP LOSS" per line of a log made with --log=json.
losses() { sed -n 's/^{"step":\([0-9]*\),"loss":\([^,}]*\).*/\1 \2/p' "$1"; }

# Shared libraries that another machine may lack.
libraries() { ldd "$1" | awk '$3 ~ /(jansson|libz|gomp)/ {print $3}'; }

# SOURCE COMPUTE DIR: a copy of the sample that computes so; its path is printed.
source_of() {
  local file=$here/../samples/$1/$1.dtm to=$3/$1_$2.dtm
  if [ "$2" = bf16 ]; then sed '/^train {/a\  compute bf16' "$file" >"$to"; else cp "$file" "$to"; fi
  echo "$to"
}

pack() {
  local build=${1:-$here/../build} dir=${2:-} dtmc row name source compute bound flags file size
  [ -x "$build/bin/dtmc" ] || die "$build/bin/dtmc is missing: cmake --preset release && cmake --build build"
  build=$(cd "$build" && pwd) dtmc=$build/bin/dtmc
  dir=${dir:-$build/gpu}
  bash "$here/../samples/data.sh"
  rm -rf "$dir"
  mkdir -p "$dir/lib"
  dir=$(cd "$dir" && pwd)
  cp "$here/gpu.sh" "$dir/"
  head -c 400000 "$here/../samples/llama/data/bible.txt" >"$dir/text.txt"
  for row in "${compared[@]}"; do
    read -r name source compute bound flags <<<"$row"
    echo "gpu.sh: $name" >&2
    file=$(source_of "$source" "$compute" "$dir")
    # shellcheck disable=SC2086 # flags are words
    "$dtmc" "$file" $flags --target=cuda:sm_90 -o "$dir/$name"
    # shellcheck disable=SC2086
    "$dtmc" "$file" $flags -o "$dir/cpu"
    (cd "$dir" && ./cpu --steps 5 --no-eval --log=json --data text=text.txt --save unsaved.safetensors) >"$dir/log"
    losses "$dir/log" >"$dir/$name.losses"
    [ "$(wc -l <"$dir/$name.losses")" = 5 ] || die "$name: $dir/log should hold five losses"
  done
  for row in "${measured[@]}"; do
    read -r name source compute _ flags <<<"$row"
    echo "gpu.sh: $name" >&2
    file=$(source_of "$source" "$compute" "$dir")
    # shellcheck disable=SC2086
    "$dtmc" "$file" $flags --target=cuda:sm_90 -o "$dir/$name"
  done
  for file in $(libraries "$dir/llama"); do cp -L "$file" "$dir/lib/"; done
  rm -rf "$dir"/cpu "$dir"/log "$dir"/unsaved.* "$dir"/*.dtm
  size=$(du -sm "$dir" | cut -f1)
  [ "$size" -le $most_mib ] || die "$dir has $size MiB; at most $most_mib may travel"
  echo "gpu.sh: $dir, $size MiB; there: bash gpu.sh run" >&2
}

# Losses in files $1 and $2, at most $3 apart, relative to their size.
alike() {
  paste -d' ' "$1" "$2" | awk -v most="$3" '
    NF != 4 || $1 != $3 { bad = 1; next }
    { d = $2 - $4; if (d < 0) d = -d; if (d > worst * $4) worst = d / $4; if (!(d <= most * $4)) bad = 1 }
    END { printf "largest difference %.2g, allowed %g\n", worst, most; exit bad || NR != 5 }'
}

run() {
  local dir=${1:-$here} failed=0 row name bound steps
  cd "$dir"
  export LD_LIBRARY_PATH=$PWD/lib${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
  local scratch
  scratch=$(mktemp -d)
  # shellcheck disable=SC2064 # as it is now
  trap "rm -rf '$scratch'" EXIT
  echo "## $(nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader 2>/dev/null || echo 'no nvidia-smi'), $(date +%F)"
  local status=0
  ./llama --steps 1 --no-eval --quiet --data text=text.txt --save "$scratch/m.safetensors" >/dev/null 2>"$scratch/errors" || status=$?
  [ $status != 3 ] || die "$(cat "$scratch/errors")" # what the machine lacks
  for row in "${compared[@]}"; do
    read -r name _ _ bound _ <<<"$row"
    if timeout 60 "./$name" --steps 5 --no-eval --log=json --data text=text.txt --save "$scratch/m.safetensors" \
         >"$scratch/log" 2>"$scratch/errors" && losses "$scratch/log" >"$scratch/losses" &&
       said=$(alike "$scratch/losses" "$name.losses" "$bound"); then
      echo "pass $name: $said"
    else
      failed=1
      echo "FAIL $name: ${said:-} $(tail -n 3 "$scratch/errors")"
    fi
    said=
  done
  if command -v compute-sanitizer >/dev/null; then
    for tool in memcheck racecheck; do
      if timeout 90 compute-sanitizer --tool $tool --error-exitcode 9 ./llama --steps 1 --no-eval --log=plain --data text=text.txt \
           --save "$scratch/m.safetensors" >"$scratch/log" 2>&1; then echo "pass $tool"; else failed=1; echo "FAIL $tool: $(tail -n 5 "$scratch/log")"; fi
    done
  else
    echo "skipped: compute-sanitizer is not there"
  fi
  for row in "${measured[@]}"; do
    read -r name _ _ steps _ <<<"$row"
    timeout 120 "./$name" --steps "$steps" --no-eval --log=plain --no-curve --data text=text.txt --save "$scratch/m.safetensors" \
      >"$scratch/log" 2>&1 || failed=1
    echo "measured $name: $(tail -n 2 "$scratch/log" | tr '\n' ' ')"
  done
  return $failed
}

case ${1:-} in
  pack) shift; pack "$@" ;;
  run) shift; run "$@" ;;
  *) sed -n '2,6s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
esac
