# What the operations of a training step reach, as a table: a trace (times of the GPU) beside the counts of
# dtmc --report=actions, against the ceilings of the chip.
#   awk -v copy=GB/s -v bf16=TFLOP/s -v skip=STEPS -f fractions.awk ACTIONS TRACE
# Time is the mean over the steps behind the first `skip`; calls of one kernel, or of one product, that cost the
# same are one row, and in the optimizer calls of one kernel, since they may be one launch. Last: what is not in
# ACTIONS (moves, inputs), and the sum.
function cell(value, most) { return most > 0 ? sprintf("%.2f", value / most) : "" }
function row(name, calls, ms, least, moved, flops) {
  gbs = ms > 0 ? moved / ms / 1e6 : 0
  tflops = ms > 0 ? flops / ms / 1e9 : 0
  return sprintf("| %-28s | %5d | %9.3f | %5.1f%% | %7.0f | %5s | %5s | %7.1f | %5s |", name, calls, ms,
    total > 0 ? 100 * ms / total : 0, gbs, cell(gbs, copy), cell(ms > 0 ? least / ms / 1e6 : 0, copy), tflops,
    cell(tflops, bf16))
}
FNR == 1 { file++ }
file == 1 && $2 == "train" {
  n = split($0, f, "\t")
  key = f[3] == "optimizer" ? f[5] : f[5] "\t" f[6] "\t" f[7] "\t" f[8]
  group[f[1]] = key
  name[key] = f[5]
  calls[key]++
  least[key] += f[6]
  moved[key] += f[7] == "-" ? f[6] : f[7]
  flops[key] += f[8]
}
file == 2 && match($0, /"dur":[0-9.]+/) {
  dur = substr($0, RSTART + 6, RLENGTH - 6)
  match($0, /"step":[0-9]+/)
  step = substr($0, RSTART + 7, RLENGTH - 7) + 0
  if (step <= skip || !match($0, /"action":[0-9]+/)) next
  action = substr($0, RSTART + 9, RLENGTH - 9)
  seen[step] = 1
  time[(action in group) ? group[action] : "other"] += dur / 1000
}
END {
  for (s in seen) steps++
  if (!steps) { print "fractions.awk: the trace has no step behind the first " skip > "/dev/stderr"; exit 1 }
  for (k in time) { time[k] /= steps; total += time[k] }
  head = "| what | calls | ms | share | GB/s | of copy | least of copy | TFLOP/s | of bf16 |"
  print head
  print "|------|------:|---:|------:|-----:|--------:|--------------:|--------:|--------:|"
  sorted = "sort -k1,1gr | cut -f2-"
  for (k in name) {
    if (!(k in time)) continue
    printf "%.6f\t%s\n", time[k], row(name[k], calls[k], time[k], least[k], moved[k], flops[k]) | sorted
    all_least += least[k]; all_moved += moved[k]; all_flops += flops[k]; all_calls += calls[k]
  }
  close(sorted)
  if ("other" in time) print row("moves and inputs", 0, time["other"], 0, 0, 0)
  print row("in all", all_calls, total, all_least, all_moved, all_flops)
}
