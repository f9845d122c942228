/* Text that a program writes: see text.h. */
#include "core/text.h"

#include <stdlib.h>
#include <string.h>

#include "runtime/abi/number.h"

static bool begin(RtText *text, int64_t rows) {
  text->rows = rows;
  text->row = calloc((size_t)rows, sizeof *text->row);
  text->n = calloc((size_t)rows, sizeof *text->n);
  text->room = calloc((size_t)rows, sizeof *text->room);
  return text->row && text->n && text->room;
}

static bool append(RtText *text, int64_t row, char byte) {
  if (text->n[row] + 1 >= text->room[row]) {
    size_t room = text->room[row] ? 2 * text->room[row] : 256;
    char *more = realloc(text->row[row], room);
    if (!more) return false;
    text->row[row] = more;
    text->room[row] = room;
  }
  text->row[row][text->n[row]++] = byte;
  text->row[row][text->n[row]] = 0;
  return true;
}

bool dtm_rt_text_add(RtText *text, RtLog *log, const AbiType *type, const void *value) {
  int64_t rows = type->rank ? type->shape[0] : 1, each = type->rank == 2 ? type->shape[1] : 1;
  if (rows == 0) return true;
  if (!text->row && !begin(text, rows)) return false;
  for (int64_t r = 0; r < rows; r++) {
    size_t before = text->n[r];
    for (int64_t i = 0; i < each; i++) {
      int64_t byte = abi_load_int(value, type->dtype, r * each + i);
      if (byte > 0 && !append(text, r, byte < 256 ? (char)(unsigned char)byte : '?')) return false;
    }
    if (rows == 1 && text->n[r] > before)
      dtm_rt_log_written(log, text->row[r] + before, text->n[r] - before);
  }
  return true;
}

bool dtm_rt_text_end(RtText *text, RtLog *log) {
  if (!text->row) return false;
  for (int64_t r = 0; r < text->rows; r++) {
    dtm_rt_log_text(log, text->row[r] ? text->row[r] : "", text->rows == 1);
    free(text->row[r]);
  }
  free(text->row);
  free(text->n);
  free(text->room);
  *text = (RtText){0};
  return true;
}
