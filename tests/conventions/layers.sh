#!/usr/bin/env bash
# Every #include "folder/..." in compiler/, runtime/ and grammar/ is one that layers.txt allows.
# Prints each that is not, and exits 1.
set -euo pipefail
root=$(cd "$(dirname "$0")/../.." && pwd)
cd "$root"
checked=$(git ls-files -co --exclude-standard 'compiler/*.[ch]' 'runtime/*.[ch]' 'grammar/*' 2>/dev/null || true)
[ -n "$checked" ] || checked=$(find compiler runtime grammar -name '*.[chly]' -o -name '*.def')
awk '
  FNR == NR { if ($0 !~ /^#/ && NF) { f = $1; sub(/:$/, "", f); known[f] = 1; for (i = 2; i <= NF; i++) ok[f, $i] = 1 } next }
  FNR == 1 { n = split(FILENAME, part, "/"); own = part[1] == "grammar" ? "grammar" : part[1] "/" part[2]; mine = part[1] == "grammar" ? "grammar" : part[2]; files++
             if (!known[own]) { print FILENAME ": folder " own " is not in layers.txt"; bad++ } }
  match($0, /^[ \t]*#[ \t]*include[ \t]*"[^"]+"/) {
    inc = $0; sub(/^[^"]*"/, "", inc); sub(/".*/, "", inc); m = split(inc, p, "/")
    dir = p[1] == "runtime" || p[1] == "compiler" ? p[2] : p[1]
    if (m == 1 || dir == mine) next
    if (!((own, dir) in ok)) { print FILENAME ":" FNR ": " own " may not include " inc; bad++ }
  }
  END { print files " files checked, " bad + 0 " includes against the layers"; exit bad || !files }
' tests/conventions/layers.txt $(printf '%s\n' $checked | grep -E '\.(c|h|l|y|def)$')
