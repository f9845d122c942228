#!/usr/bin/env bash
# The editors' files know every word of the language, and none that is none. Prints what differs, and
# exits 1.
set -euo pipefail
cd "$(dirname "$0")/../.."
vim=grammar/editors/vim/syntax/dtm.vim vscode=grammar/editors/vscode/syntaxes/dtm.tmLanguage.json
words=$(sed -n 's/^X(\([a-z]*\), .*/\1/p' grammar/keywords.def)
dtypes=$(sed -n '/define ABI_DTYPES/,/^$/s/^ *X([A-Z0-9_]*, "\([a-z0-9_]*\)",.*/\1/p' runtime/abi/lists.h)
types="int float string axis mesh layout list dtype module any" # of compile-time parameters
placements="Shard Replicate Partial"
[ "$(wc -w <<<"$words")" -gt 30 ] && [ "$(wc -w <<<"$dtypes")" -gt 10 ] || {
  echo "keywords.def or lists.h is not read as it is written" >&2; exit 1; }
bad=0
for word in $words $dtypes $types $placements; do
  for file in $vim $vscode; do
    grep -Eq "(^|[^A-Za-z0-9_])$word([^A-Za-z0-9_]|\$)" <(sed 's/\\b/ /g' "$file") || { echo "$file does not know $word"; bad=1; }
  done
done
known=" $(echo $words $dtypes $types $placements TODO FIXME XXX) "
said=$( { sed -n 's/^syntax keyword dtm[A-Za-z]* //p' $vim | sed 's/ contained//'
          grep -Eo '\\\\b\([A-Za-z0-9_|]+\)\\\\b' $vscode | sed 's/\\\\b//g; s/[()|]/ /g'; } | tr -s ' ' '\n' | sort -u)
for word in $said; do
  [[ $known = *" $word "* ]] || { echo "the editors know $word, which is no word of the language"; bad=1; }
done
echo "$(wc -w <<<"$known") words"
exit $bad
