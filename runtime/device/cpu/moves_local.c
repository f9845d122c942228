/* Moves within a rank's own memory: see moves_local.h. */
#include "device/cpu/moves_local.h"

#include <string.h>

#include "comm/box.h"
#include "runtime/abi/number.h"

int64_t dtm_rt_moves_rows(const Moves *m, void *dst, const void *used, uint32_t dtype,
                          int64_t *bad) {
  size_t row = (size_t)m->width * abi_dtype_bytes(m->dtype);
  for (int64_t g = 0; g < m->groups; g++) {
    int64_t n = abi_load_int(used, dtype, g);
    if (n < 0 || n > m->rows) {
      *bad = n;
      return -1;
    }
    memset((char *)dst + (size_t)(g * m->rows + n) * row, 0, (size_t)(m->rows - n) * row);
  }
  int64_t count = 0;
  for (size_t i = 0; i < m->nboxes; i++) {
    const RtBox *whole = &m->boxes[i];
    for (int64_t a = 0; a < whole->extent[0]; a++)
      for (int64_t r = 0; r < whole->extent[1]; r++) {
        RtBox box = *whole;
        box.src_offset += a * box.src_stride[0] + r * box.src_stride[1];
        box.dst_offset += a * box.dst_stride[0] + r * box.dst_stride[1];
        box.extent[0] = box.extent[1] = 1;
        box.extent[2] = abi_load_int(used, dtype, box.dst_offset / box.dst_stride[1]);
        if (box.extent[2]) m->trimmed[count++] = box;
      }
  }
  return count;
}

static void fill(const Moves *m, void *dst) {
  if (m->neutral == 0) {
    memset(dst, 0, m->dst_bytes);
    return;
  }
  size_t n = m->dst_bytes / abi_dtype_bytes(m->dtype);
  for (size_t i = 0; i < n; i++) abi_store(dst, m->dtype, (int64_t)i, 1);
}

void dtm_rt_moves_local(const Moves *m, const AbiAction *action, void *dst, const void *src,
                        int threads) {
  size_t element = abi_dtype_bytes(m->dtype);
  if (action->kind == ABI_FILL) {
    size_t bytes = m->nboxes ? dtm_boxes_bytes(m->boxes, 1, element) : 0;
    if (!m->keeps || bytes != m->dst_bytes) fill(m, dst);
    if (!m->keeps) return;
  }
  for (size_t i = 0; i < m->nboxes; i++)
    dtm_box_copy(dst, src, &m->boxes[i], element, false, threads);
}
