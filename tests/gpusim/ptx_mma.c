/* Tensor cores: mma.sync.m16n8k* and the moves of its operands.
 *
 * The order in which hardware adds the products of a block is not specified. Here c and all K
 * products of an element, which are exact, are added in f64 in the order of k, and rounded to f32
 * (or f16) once. TF32 operands are taken as they are, without their low 13 bits. Integer products
 * wrap or saturate. */
#include "ptx_access.h"
#include "ptx_number.h"
#include "ptx_run.h"

#include <string.h>

static bool whole_warp(PtxWarp *w, const PtxOp *op) {
  if (w->mask == UINT32_MAX) return true;
  ptx_fail(w, op, -1, PTX_FAULT_BARRIER, "only lanes %#x of the warp are here, all must be",
           w->mask);
  return false;
}

/* Elements of a register of an operand. */
static u32 per_register(PtxType t) {
  return 4u / (t == TYPE_TF32 ? 4u : PTX_TYPE_INFO[t].bytes);
}

static f64 element(PtxType t, u32 bits, u32 j) {
  if (t == TYPE_F16) return f32_of_f16((u16)(bits >> 16 * j));
  if (t == TYPE_BF16) return f32_of_bf16((u16)(bits >> 16 * j));
  if (t == TYPE_S8) return (s8)(bits >> 8 * j);
  if (t == TYPE_U8) return (u8)(bits >> 8 * j);
  return f32_of_bits(bits & ~0x1fffu);
}

static u64 wrap(f64 sum, bool saturate) { /* sums of 32 products of bytes are exact */
  if (saturate) return (u64)(s64)(sum < INT32_MIN ? INT32_MIN : sum > INT32_MAX ? INT32_MAX : sum);
  return (u64)(s64)sum;
}

/* Lane l holds of A rows l / 4 and l / 4 + 8, of B column l / 4, of C and D those rows and two
 * columns. */
void ptx_run_mma(PtxWarp *w, const PtxOp *op) {
  const PtxMma *m = (const PtxMma *)(uintptr_t)op->imm;
  f64 a[16][32], b[32][8], c[16][8];
  u32 ea = per_register(m->a), eb = per_register(m->b);
  bool half_c = m->c == TYPE_F16, half_d = m->d == TYPE_F16;
  if (!whole_warp(w, op)) return;
  for (u32 r = 0; r < m->k / (4 * ea) * 2; r++)
    for (u32 l = 0; l < PTX_LANES; l++)
      for (u32 j = 0; j < ea; j++)
        a[l / 4 + 8 * (r & 1)][l % 4 * ea + (r >> 1) * 4 * ea + j] =
            element(m->a, PTX_ROW(w, u32, m->rows_a[r])[l], j);
  for (u32 r = 0; r < m->k / (4 * eb); r++)
    for (u32 l = 0; l < PTX_LANES; l++)
      for (u32 j = 0; j < eb; j++)
        b[l % 4 * eb + r * 4 * eb + j][l / 4] = element(m->b, PTX_ROW(w, u32, m->rows_b[r])[l], j);
  for (u32 e = 0; e < 4; e++)
    for (u32 l = 0; l < PTX_LANES; l++) {
      u32 bits = PTX_ROW(w, u32, m->rows_c[half_c ? e / 2 : e])[l];
      c[l / 4 + 8 * (e >> 1)][l % 4 * 2 + (e & 1)] =
          half_c             ? (f64)f32_of_f16((u16)(bits >> 16 * (e & 1)))
          : m->c == TYPE_S32 ? (f64)(s32)bits
                             : (f64)f32_of_bits(bits);
    }
  for (u32 i = 0; i < 16; i++)
    for (u32 k = 0; k < m->k; k++) {
      f64 x = a[i][k];
      for (u32 n = 0; n < 8; n++) c[i][n] += x * b[k][n];
    }
  for (u32 l = 0; l < PTX_LANES; l++) {
    u32 out[4];
    for (u32 e = 0; e < 4; e++) {
      f64 sum = c[l / 4 + 8 * (e >> 1)][l % 4 * 2 + (e & 1)];
      out[e] = m->d == TYPE_S32 ? (u32)wrap(sum, m->saturate)
               : half_d         ? f16_of_f32(odd_f32(sum))
                                : bits_of_f32(nan_f32((f32)sum));
    }
    for (u32 e = 0; e < (half_d ? 2 : 4); e++)
      PTX_ROW(w, u32, m->rows_d[e])[l] = half_d ? out[2 * e] | out[2 * e + 1] << 16 : out[e];
  }
}

/* Row r of matrix j is at the address of lane 8 j + r; each row is 8 halves. Lane l holds the
 * elements 2 (l mod 4) and the next one of row l / 4, or of that column when transposed. */
void ptx_run_ldmatrix(PtxWarp *w, const PtxOp *op) {
  const PtxMemoryForm *f = op->memory;
  u64 addresses[PTX_LANES];
  if (!whole_warp(w, op)) return;
  ptx_addresses(w, f, addresses);
  u16 rows[4][8][8];
  for (u32 l = 0; l < 8u * f->count; l++) {
    const u8 *p = ptx_reach(w, op, PTX_WHOLE_WARP, f->space, addresses[l], 16, ACCESS_READ, NULL);
    if (!p) return;
    memcpy(rows[l / 8][l % 8], p, 16);
  }
  for (u32 j = 0; j < f->count; j++)
    for (u32 l = 0; l < PTX_LANES; l++) {
      u32 r = l / 4, c = l % 4 * 2;
      u32 low = op->mode ? rows[j][c][r] : rows[j][r][c];
      u32 high = op->mode ? rows[j][c + 1][r] : rows[j][r][c + 1];
      PTX_ROW(w, u32, f->data[j])[l] = high << 16 | low;
    }
}

void ptx_run_stmatrix(PtxWarp *w, const PtxOp *op) {
  const PtxMemoryForm *f = op->memory;
  u64 addresses[PTX_LANES];
  if (!whole_warp(w, op)) return;
  ptx_addresses(w, f, addresses);
  for (u32 j = 0; j < f->count; j++) {
    u16 rows[8][8];
    for (u32 l = 0; l < PTX_LANES; l++) {
      u32 r = l / 4, c = l % 4 * 2, bits = PTX_ROW(w, u32, f->data[j])[l];
      *(op->mode ? &rows[c][r] : &rows[r][c]) = (u16)bits;
      *(op->mode ? &rows[c + 1][r] : &rows[r][c + 1]) = (u16)(bits >> 16);
    }
    for (u32 r = 0; r < 8; r++) {
      u8 *p =
          ptx_reach(w, op, 8 * j + r, f->space, addresses[8 * j + r], 16, ACCESS_WRITE, rows[r]);
      if (!p) return;
      memcpy(p, rows[r], 16);
    }
  }
}
