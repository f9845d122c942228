#!/usr/bin/env bash
# dtmc as it is installed, found by find_package(dtm) of a project that has nothing else of it.
# BUILD names the build folder, MPI is 1 where that has the transport over MPI.
set -euo pipefail
dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT
cd "$dir"
unset CMAKE_PREFIX_PATH
fail() { echo "FAIL: $*"; exit 1; }

cmake --install "$BUILD" --prefix "$dir/installed" >log || fail "install: $(cat log)"
for file in libdtm_rt.a stdlib/nn.dtm cuda; do
  [ -e "installed/lib/dtm/$file" ] || fail "$file is not installed"
done
[ "$MPI" = 0 ] || ls installed/lib/dtm/*dtm_rt_mpi* >/dev/null || fail 'the transport over MPI is not installed'

mkdir -p project/parts
cat >project/CMakeLists.txt <<'END'
cmake_minimum_required(VERSION 3.10)
project(user NONE)
find_package(dtm 0.1 REQUIRED)
dtm_add_executable(alone sum.dtm INCLUDES parts)
dtm_add_executable(both sum.dtm MESH tp=2 DEFINES n=6 INCLUDES parts OPTIONS --strict)
get_target_property(program both DTM_EXECUTABLE)
file(WRITE ${CMAKE_BINARY_DIR}/where "${program}")
END
cat >project/sum.dtm <<'END'
import term
import nn
config { n = 4 }
mesh world(tp = 1)
infer { print(sum(term.of(arange(f32[n@tp]))).redistribute(tp: Replicate)) }
END
echo 'fn of(x) { return x }' >project/parts/term.dtm

# prints what both programs print, after a build of the project
both() {
  cmake --build made >log 2>&1 || fail "build: $(cat log)"
  echo "$(./made/bin/alone | grep -o '[0-9.]*$') $("$(cat made/where)" | grep -o '[0-9.]*$')"
}
for generator in Ninja 'Unix Makefiles'; do
  rm -rf made
  echo 'fn of(x) { return x }' >project/parts/term.dtm
  cmake -G "$generator" -S project -B made -DCMAKE_PREFIX_PATH="$dir/installed" >log 2>&1 || fail "configure: $(cat log)"
  [ "$(both)" = '6 15' ] || fail "$generator: $(both)"
  touch mark
  [ "$(both)" = '6 15' ] && [ made/bin/alone -ot mark ] || fail "$generator: nothing changed, and it was compiled"
  sleep 1 # make looks at times
  echo 'fn of(x) { return x * 2.0 }' >project/parts/term.dtm
  [ "$(both)" = '12 30' ] || fail "$generator: an imported file changed, and nothing was compiled"
done

# from the build tree, and what is misspelt
cmake -S project -B tree -Ddtm_DIR="$BUILD/lib/cmake/dtm" >log 2>&1 || fail "build tree: $(cat log)"
sed -i 's/MESH/MESHES/' project/CMakeLists.txt
! cmake -S project -B tree >log 2>&1 || fail 'an unknown word was taken'
grep -q 'does not take' log || fail "an unknown word: $(cat log)"
rm installed/bin/dtmc
! cmake -S project -B none -DCMAKE_PREFIX_PATH="$dir/installed" >log 2>&1 || fail 'found without dtmc'
grep -q 'there is no dtmc' log || fail "without dtmc: $(cat log)"
