#!/usr/bin/env bash
# Puts every sample's data where the sample expects it: samples/NAME/data/.
set -euo pipefail
cd "$(dirname "$0")"

fashion=/usr/share/datasets/fashion-mnist
mkdir -p fashion_mlp/data
for f in train-images-idx3-ubyte train-labels-idx1-ubyte t10k-images-idx3-ubyte t10k-labels-idx1-ubyte; do
  [ -e "$fashion/$f.gz" ] || { echo "data.sh: $fashion/$f.gz is missing; run: bash setup.sh" >&2; exit 1; }
  ln -sf "$fashion/$f.gz" "fashion_mlp/data/$f.gz"
done

# The text for the language models: the King James Bible, 4.4 MB, a verse a line.
for sample in gpt2 llama mixtral; do
  [ -s "$sample/data/bible.txt" ] && continue
  command -v bible >/dev/null || { echo "data.sh: bible is missing; run: bash setup.sh" >&2; exit 1; }
  mkdir -p "$sample/data"
  bible -f gen1:1-rev22:21 >"$sample/data/bible.txt.new"
  mv "$sample/data/bible.txt.new" "$sample/data/bible.txt"
done
