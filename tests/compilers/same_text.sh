#!/usr/bin/env bash
# What dtmc prints does not depend on the C compiler that built it: C leaves the order of arguments,
# among others, to the compiler, and a pass that lets it through prints other programs.
#   same_text.sh BUILD OTHER-BUILD [PROGRAM...]
# BUILD also holds the tests, which write programs of their own (e2e_test_cases, e2e_test_random).
# All stages of --emit, diagnostics and exit codes are compared, byte for byte, on several meshes;
# of a program that differs the first such stage is shown, with the first lines that differ.
set -euo pipefail
[ $# -ge 2 ] || { sed -n '2,8s/^# \{0,1\}//p' "$0"; exit 2; }
root=$(cd "$(dirname "$0")/../.." && pwd)
one=$(realpath "$1") other=$(realpath "$2")
shift 2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

programs=("$@")
if [ $# -eq 0 ]; then
  mkdir "$work/programs"
  "$one/bin/e2e_test_cases" print "$work/programs"
  for number in {0..19}; do
    "$one/bin/e2e_test_random" print 3 "$number" >"$work/programs/random_$number.dtm"
  done
  mapfile -t programs < <(find "$root/samples" "$root/stdlib" "$root/tests" "$work/programs" -name '*.dtm' | sort)
fi

# Where a build lies shows in what it prints, down to the place that a name leaves in a drawing: both
# lie in folders with names of one length.
install() {
  mkdir -p "$2/bin" "$2/lib/dtm"
  cp "$1/bin/dtmc" "$2/bin"
  cp -r "$1"/lib/dtm/*.so "$1/lib/dtm/stdlib" "$2/lib/dtm"
}
install "$one" "$work/1"
install "$other" "$work/2"

# What there is to compare, from dtmc itself. Machine code takes long: on one mesh.
stages=$("$work/1/bin/dtmc" none.dtm --emit=? 2>&1 | sed -n 's/.*there are: //p') || true
[ -n "$stages" ] || { echo "same_text.sh: dtmc does not list its stages" >&2; exit 1; }

# says BUILD ARGS...: all that dtmc prints, and its exit code.
says() {
  local build=$work/$1 code=0
  shift
  "$build/bin/dtmc" "$@" 2>&1 </dev/null | sed "s|$build/|BUILD/|g" || code=$?
  echo "exit code $code"
}

# differ ARGS...: true where the two builds say different things.
differ() { ! cmp -s <(says 1 "$@") <(says 2 "$@"); }

# meshes PROGRAM: one a line; those it names itself, or small ones over its dims.
meshes() {
  local own dims
  own=$(sed -n '1,3s|^// meshes: ||p' "$1")
  if [ -n "$own" ]; then
    tr -d ' ' <<<"$own" | tr ';' '\n'
    return
  fi
  dims=$("$work/1/bin/dtmc" check --print-config "$1" 2>/dev/null | sed -n '$s/^mesh(\(.*\))$/\1/p' |
    tr ',' '\n' | awk '{ print $1 }')
  [ -n "$dims" ] || return 0
  for sizes in '1 1' '2 2' '3 2' '2 3'; do
    awk -v sizes="$sizes" '{ split(sizes, n); printf "%s%s=%s", (NR > 1 ? "," : ""), $1, n[1 + (NR > 1)] }
                           END { print "" }' <<<"$dims"
  done
}

# try PROGRAM: compares; shows the first difference.
try() {
  local program=$1 mesh flags stage some list=()
  mapfile -t list < <(meshes "$program")
  [ ${#list[@]} -gt 0 ] || list=('')
  for mesh in "${list[@]}"; do
    flags=("$program")
    [ -z "$mesh" ] || flags+=("--mesh=$mesh")
    if differ check "${flags[@]}"; then
      show "$program" "$mesh" "the diagnostics of check" check "${flags[@]}"
      return
    fi
    some=${stages/ llvm asm/}
    [ "$mesh" != "${list[-1]}" ] || some=$stages
    differ "${flags[@]}" "--emit=${some// /,}" || continue
    for stage in $some; do
      differ "${flags[@]}" "--emit=$stage" || continue
      show "$program" "$mesh" "stage $stage" "${flags[@]}" "--emit=$stage"
      return
    done
    show "$program" "$mesh" "all stages together" "${flags[@]}" "--emit=${some// /,}"
    return
  done
}

show() {
  local program=$1 mesh=$2 what=$3
  shift 3
  {
    echo "FAIL ${program#"$root/"} on mesh '$mesh': $what differs"
    diff <(says 1 "$@") <(says 2 "$@") | cut -c1-160 | head -8 || true
  } >"$(mktemp "$work/fail.XXXXXX")"
}

export work stages root
export -f says differ meshes try show
printf '%s\0' "${programs[@]}" | xargs -0 -n 4 -P "$(nproc)" bash -c 'set -uo pipefail; for p; do try "$p"; done' -
if compgen -G "$work/fail.*" >/dev/null; then
  cat "$work"/fail.*
  exit 1
fi
echo "${#programs[@]} programs, stages $stages: the same text"
