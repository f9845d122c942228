/* Divergence, calls, barriers, what lanes do together, and memory of all widths: kernels written by
 * hand against the same in C. */
#include <check.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpusim/ptx_rig.h"
#include "support/suite.h"

#define HEAD ".version 9.0\n.target sm_90\n.address_size 64\n"
/* Entry k(in, out, n): %rd1 in, %rd2 out + 4 thread, %r1 n, %r2 thread, %r3 lane. */
#define BEGIN                                                                                      \
  ".visible .entry k(.param .u64 in, .param .u64 out, .param .u32 n) {\n"                          \
  ".reg .pred %p<9>; .reg .b64 %rd<20>; .reg .b32 %r<40>; .reg .b16 %h<9>; .reg .f32 %f<9>;\n"     \
  "ld.param.u64 %rd1, [in]; ld.param.u64 %rd2, [out]; ld.param.u32 %r1, [n];\n"                    \
  "mov.u32 %r2, %tid.x; mov.u32 %r4, %ctaid.x; mov.u32 %r5, %ntid.x;\n"                            \
  "mad.lo.u32 %r2, %r4, %r5, %r2; mov.u32 %r3, %laneid;\n"                                         \
  "mul.wide.u32 %rd3, %r2, 4; add.u64 %rd2, %rd2, %rd3;\n"
#define END "st.global.u32 [%rd2], %r10; ret; }\n"

static PtxRig rig;

/* Runs `text` and returns what the threads stored. */
static uint32_t *run(const char *text, uint32_t grid, uint32_t block, const uint32_t *in,
                     uint32_t nin, uint32_t n) {
  ck_assert(ptx_rig_open(&rig, text));
  void *from = nin ? ptx_rig_buffer(&rig, "in", 4 * nin, in) : NULL;
  uint32_t *out = ptx_rig_buffer(&rig, "out", 4 * grid * block, NULL);
  memset(out, 0, 4 * grid * block);
  ck_assert_msg(
      ptx_rig_launch(&rig, "k", grid, block, 256, (uint64_t[]){(uintptr_t)from, (uintptr_t)out, n}),
      "%s", rig.fault.text);
  return out;
}

static void expect(const uint32_t *out, uint32_t i, uint32_t value) {
  ck_assert_msg(out[i] == value, "thread %u has %" PRIu32 ", not %" PRIu32, i, out[i], value);
}

START_TEST(nested_branches) {
  uint32_t *out = run(HEAD BEGIN "mov.u32 %r10, 0;\n"
                                 "and.b32 %r11, %r2, 1; setp.eq.u32 %p1, %r11, 0;\n"
                                 "@%p1 bra EVEN;\n"
                                 "  setp.lt.u32 %p2, %r2, 9; @%p2 bra SMALL;\n"
                                 "  add.u32 %r10, %r10, 1; bra ODD_END;\n"
                                 "SMALL: add.u32 %r10, %r10, 2;\n"
                                 "ODD_END: add.u32 %r10, %r10, 10; bra DONE;\n"
                                 "EVEN: add.u32 %r10, %r10, 100;\n"
                                 "DONE: add.u32 %r10, %r10, 1000;\n" END,
                      1, 45, NULL, 0, 0);
  for (uint32_t i = 0; i < 45; i++) expect(out, i, 1000 + (i % 2 == 0 ? 100 : i < 9 ? 12 : 11));
  ptx_rig_close(&rig);
}
END_TEST

/* Thread i goes around i mod 7 times, and inside of it i mod 3 times; one in five leaves early. */
START_TEST(loops_of_different_length) {
  uint32_t *out = run(HEAD BEGIN "mov.u32 %r10, 0; rem.u32 %r11, %r2, 7; rem.u32 %r13, %r2, 5;\n"
                                 "OUTER: setp.eq.u32 %p1, %r11, 0; @%p1 bra DONE;\n"
                                 "  rem.u32 %r12, %r2, 3;\n"
                                 "INNER: setp.eq.u32 %p2, %r12, 0; @%p2 bra NEXT;\n"
                                 "    add.u32 %r10, %r10, 1; sub.u32 %r12, %r12, 1; bra INNER;\n"
                                 "NEXT: add.u32 %r10, %r10, 100; sub.u32 %r11, %r11, 1;\n"
                                 "  setp.eq.u32 %p3, %r13, 4; setp.eq.and.u32 %p3, %r11, 2, %p3;\n"
                                 "  @%p3 bra LEAVE; bra OUTER;\n"
                                 "LEAVE: add.u32 %r10, %r10, 5000;\n"
                                 "DONE: add.u32 %r10, %r10, 10000;\n" END,
                      2, 50, NULL, 0, 0);
  for (uint32_t i = 0; i < 100; i++) {
    uint32_t r = 0;
    for (uint32_t k = i % 7; k;) {
      r += i % 3 + 100;
      k--;
      if (i % 5 == 4 && k == 2) {
        r += 5000;
        break;
      }
    }
    expect(out, i, r + 10000);
  }
  ptx_rig_close(&rig);
}
END_TEST

/* Those that returned take no part in what comes. */
START_TEST(early_exit) {
  uint32_t *out = run(HEAD BEGIN "setp.ge.u32 %p1, %r2, %r1; mov.u32 %r10, 1;\n"
                                 "@%p1 ret;\n"
                                 "setp.lt.u32 %p2, %r2, 5; @%p2 exit;\n"
                                 "activemask.b32 %r11; popc.b32 %r10, %r11;\n" END,
                      1, 32, NULL, 0, 20);
  for (uint32_t i = 0; i < 32; i++) expect(out, i, i < 5 || i >= 20 ? 0 : 15);
  ptx_rig_close(&rig);
}
END_TEST

START_TEST(switch_by_table) {
  uint32_t *out =
      run(HEAD BEGIN
          "and.b32 %r11, %r2, 3; mov.u32 %r10, 7;\n"
          "T: .branchtargets A, B, C, A;\n"
          "brx.idx %r11, T;\n"
          "A: add.u32 %r10, %r10, 10;\n"
          "B: add.u32 %r10, %r10, 100; bra D;\n"
          "C: add.u32 %r10, %r10, 1000;\n"
          "D: activemask.b32 %r12; popc.b32 %r12, %r12; mad.lo.u32 %r10, %r12, 10000, %r10;\n" END,
          1, 32, NULL, 0, 0);
  const uint32_t expected[] = {117, 107, 1007, 117};
  for (uint32_t i = 0; i < 32; i++) expect(out, i, 320000 + expected[i % 4]);
  ptx_rig_close(&rig);
}
END_TEST

/* A function that returns early, one that calls another, a call under a guard. */
START_TEST(calls) {
  uint32_t *out =
      run(HEAD ".func (.param .b32 ret) inner(.param .b32 x) {\n"
               ".reg .b32 %r<4>; .reg .pred %p<2>;\n"
               "ld.param.u32 %r1, [x]; setp.lt.u32 %p1, %r1, 10; mov.u32 %r2, 1;\n"
               "st.param.b32 [ret], %r2; @%p1 ret;\n"
               "add.u32 %r2, %r1, 5; st.param.b32 [ret], %r2; ret; }\n"
               ".func (.param .b32 ret) outer(.param .b32 x, .param .align 8 .b8 pair[8]) {\n"
               ".reg .b32 %r<9>;\n"
               "ld.param.u32 %r1, [x]; ld.param.v2.u32 {%r3, %r4}, [pair];\n"
               "{ .param .b32 p0; .param .b32 r0; st.param.b32 [p0], %r1;\n"
               "call.uni (r0), inner, (p0); ld.param.b32 %r2, [r0]; }\n"
               "mad.lo.u32 %r2, %r2, %r3, %r4; st.param.b32 [ret], %r2; ret; }\n" BEGIN
               "mov.u32 %r10, 0; setp.ne.u32 %p1, %r2, 3;\n"
               "{ .param .b32 p0; .param .align 8 .b8 p1[8]; .param .b32 r0;\n"
               "mov.u32 %r20, 2; mov.u32 %r21, 1000; st.param.b32 [p0], %r2;\n"
               "st.param.v2.b32 [p1], {%r20, %r21};\n"
               "mov.u32 %r22, 77; st.param.b32 [r0], %r22;\n"
               "@%p1 call (r0), outer, (p0, p1); ld.param.b32 %r10, [r0]; }\n" END,
          1, 40, NULL, 0, 0);
  for (uint32_t i = 0; i < 40; i++) expect(out, i, i == 3 ? 77 : 2 * (i < 10 ? 1 : i + 5) + 1000);
  ptx_rig_close(&rig);
}
END_TEST

/* Four warps hand words around through shared memory, static and dynamic. */
START_TEST(barriers) {
  uint32_t *out = run(
      HEAD
      ".extern .shared .align 16 .b8 more[];\n" BEGIN ".shared .align 4 .b8 own[512];\n"
      "mov.u32 %r11, own; mov.u32 %r6, %tid.x; shl.b32 %r12, %r6, 2; add.u32 %r13, %r11, %r12;\n"
      "st.shared.u32 [%r13], %r6;\n"
      "setp.lt.u32 %p1, %r6, 64; shr.u32 %r14, %r12, 0; mov.u32 %r15, more; add.u32 %r15, %r15, "
      "%r12;\n"
      "@%p1 st.shared.u32 [%r15], %r6;\n"
      "bar.sync 0;\n"
      "xor.b32 %r16, %r6, 96; shl.b32 %r16, %r16, 2; add.u32 %r16, %r11, %r16;\n"
      "ld.shared.u32 %r10, [%r16];\n"
      "and.b32 %r17, %r6, 63; shl.b32 %r17, %r17, 2; mov.u32 %r15, more; add.u32 %r15, %r15, "
      "%r17;\n"
      "ld.shared.u32 %r18, [%r15]; mad.lo.u32 %r10, %r18, 1000, %r10;\n"
      "bar.sync 0;\n"
      "st.shared.u32 [%r13], %r10; barrier.cta.sync.aligned 0;\n"
      "cvt.u64.u32 %rd5, %r16; cvta.shared.u64 %rd5, %rd5; ld.u32 %r10, [%rd5];\n" END,
      2, 128, NULL, 0, 0);
  for (uint32_t b = 0; b < 2; b++)
    for (uint32_t i = 0; i < 128; i++) { /* twice around is back where it was */
      uint32_t j = i ^ 96;
      expect(out, 128 * b + i, (j & 63) * 1000 + i);
    }
  ptx_rig_close(&rig);
}
END_TEST

START_TEST(reducing_barrier) {
  uint32_t *out =
      run(HEAD BEGIN "setp.lt.u32 %p1, %r2, 70; bar.red.popc.u32 %r10, 0, %p1;\n"
                     "bar.red.and.pred %p2, 0, %p1; bar.red.or.pred %p3, 0, !%p1;\n"
                     "@%p2 add.u32 %r10, %r10, 1000; @%p3 add.u32 %r10, %r10, 2000;\n" END,
          1, 96, NULL, 0, 0);
  for (uint32_t i = 0; i < 96; i++) expect(out, i, 2070);
  ptx_rig_close(&rig);
}
END_TEST

/* Two warps meet at a barrier of their own while the others go on. */
START_TEST(named_barrier) {
  uint32_t *out = run(HEAD BEGIN ".shared .b32 word[2];\n"
                                 "mov.u32 %r10, 5; setp.ge.u32 %p1, %r2, 64; @%p1 bra DONE;\n"
                                 "setp.eq.u32 %p2, %r2, 40; @%p2 st.shared.u32 [word+4], %r2;\n"
                                 "bar.sync 3, 64; ld.shared.u32 %r10, [word+4];\n"
                                 "DONE: bar.sync 0;\n" END,
                      1, 128, NULL, 0, 0);
  for (uint32_t i = 0; i < 128; i++) expect(out, i, i < 64 ? 40 : 5);
  ptx_rig_close(&rig);
}
END_TEST

/* --- lanes together --------------------------------------------------------------------------- */

START_TEST(shuffles) {
  static const struct {
    const char *instruction;
    uint32_t clamp;
  } modes[] = {{"bfly", 0x1f}, {"down", 0x1f},   {"up", 0},
               {"idx", 0x1f},  {"down", 0x181f}, {"idx", 0x1807}};
  for (int m = 0; m < 6; m++) {
    char text[4000];
    snprintf(text, sizeof text,
             "%s mul.lo.u32 %%r11, %%r3, 3; shfl.sync.%s.b32 %%r10|%%p1, %%r11, 5, %u, -1;\n"
             "@%%p1 add.u32 %%r10, %%r10, 1000;\n%s",
             HEAD BEGIN, modes[m].instruction, modes[m].clamp, END);
    uint32_t *out = run(text, 1, 32, NULL, 0, 0);
    for (uint32_t i = 0; i < 32; i++) {
      uint32_t from[] = {i ^ 5, i + 5, i - 5, 5, i + 5, (i & 24) | 5};
      uint32_t segment = m >= 4 ? i | 7 : 31;
      int ok = m == 2 ? i >= 5 : m == 3 || m == 0 || m == 5 || from[m] <= segment;
      expect(out, i, ok ? 3 * from[m] + 1000 : 3 * i);
    }
    ptx_rig_close(&rig);
  }
}
END_TEST

/* Each half of a warp by itself, with its own mask. */
START_TEST(votes_of_halves) {
  uint32_t *out =
      run(HEAD BEGIN
          "setp.lt.u32 %p1, %r3, 16; selp.u32 %r11, 0xffff, 0xffff0000, %p1;\n"
          "setp.lt.u32 %p2, %r3, 20;\n"
          "vote.sync.ballot.b32 %r10, %p2, %r11; vote.sync.all.pred %p3, %p2, %r11;\n"
          "vote.sync.any.pred %p4, !%p2, %r11; vote.sync.uni.pred %p5, %p2, %r11;\n"
          "@%p3 add.u32 %r10, %r10, 1; @%p4 add.u32 %r10, %r10, 2; @%p5 add.u32 %r10, %r10, 4;\n"
          "shr.u32 %r12, %r3, 2; match.any.sync.b32 %r13, %r12, %r11; popc.b32 %r13, %r13;\n"
          "mad.lo.u32 %r10, %r13, 16, %r10;\n"
          "redux.sync.max.s32 %r14, %r3, %r11; xor.b32 %r10, %r10, %r14;\n" END,
          1, 32, NULL, 0, 0);
  for (uint32_t i = 0; i < 32; i++)
    expect(out, i, i < 16 ? (0xffff + 1 + 4 + 64) ^ 15 : (0xf0000 + 2 + 64) ^ 31);
  ptx_rig_close(&rig);
}
END_TEST

START_TEST(special_registers) {
  uint32_t *out =
      run(HEAD BEGIN
          "mov.u32 %r10, %lanemask_lt; mov.u32 %r11, %warpid; mov.u32 %r12, %nctaid.x;\n"
          "mov.u32 %r13, %dynamic_smem_size; add.u32 %r10, %r10, %r11; add.u32 %r10, %r10, %r12;\n"
          "add.u32 %r10, %r10, %r13; mov.u32 %r14, WARP_SZ; add.u32 %r10, %r10, %r14;\n" END,
          2, 64, NULL, 0, 0);
  for (uint32_t i = 0; i < 128; i++) expect(out, i, (1u << i % 32) - 1 + i / 32 % 2 + 2 + 256 + 32);
  ptx_rig_close(&rig);
}
END_TEST

/* --- memory ----------------------------------------------------------------------------------- */

/* Loads of every width, with and without sign, vectors, through global and generic addresses. */
/* Clocks count instructions, also where a branch parted the lanes. */
START_TEST(clocks) {
  uint32_t *out = run(HEAD BEGIN "mov.u32 %r10, 0; mov.u32 %r11, %clock;\n"
                                 "setp.lt.u32 %p1, %r2, 7; @%p1 bra DONE;\n"
                                 "mov.u64 %rd4, -9223372036854775808; shr.u64 %rd4, %rd4, 63;\n"
                                 "cvt.u32.u64 %r13, %rd4; add.u32 %r10, %r10, %r13;\n"
                                 "mov.u64 %rd5, %clock64; cvt.u32.u64 %r12, %rd5;\n"
                                 "sub.u32 %r12, %r12, %r11; mad.lo.u32 %r10, %r12, 100, %r10;\n"
                                 "DONE:\n" END,
                      1, 32, NULL, 0, 0);
  for (uint32_t i = 0; i < 32; i++) expect(out, i, i < 7 ? 0 : 701);
  ptx_rig_close(&rig);
}
END_TEST

START_TEST(widths) {
  uint32_t in[64 * 4];
  for (uint32_t i = 0; i < 256; i++) in[i] = i * 0x9e3779b9u;
  uint32_t *out =
      run(HEAD BEGIN
          "mul.wide.u32 %rd4, %r2, 16; add.u64 %rd4, %rd1, %rd4; cvta.to.global.u64 %rd5, %rd4;\n"
          "ld.global.nc.v4.u32 {%r11, %r12, %r13, %r14}, [%rd4];\n"
          "xor.b32 %r10, %r11, %r12; add.u32 %r10, %r10, %r13; xor.b32 %r10, %r10, %r14;\n"
          "ld.v2.u64 {%rd6, %rd7}, [%rd5]; xor.b64 %rd6, %rd6, %rd7; cvt.u32.u64 %r15, %rd6; "
          "add.u32 %r10, %r10, %r15;\n"
          "ld.global.s8 %r16, [%rd4+3]; add.u32 %r10, %r10, %r16; ld.global.u8 %r16, [%rd4+5]; "
          "add.u32 %r10, %r10, %r16;\n"
          "ld.global.s16 %r17, [%rd4+6]; add.u32 %r10, %r10, %r17; ld.global.u16 %h1, [%rd4+8]; "
          "cvt.u32.u16 %r17, %h1;\n"
          "add.u32 %r10, %r10, %r17; ld.volatile.global.v2.b16 {%h2, _}, [%rd4+12]; cvt.s32.s16 "
          "%r18, %h2; add.u32 %r10, %r10, %r18;\n" END,
          2, 32, in, 256, 0);
  for (uint32_t i = 0; i < 64; i++) {
    const uint32_t *w = in + 4 * i;
    uint32_t r = ((w[0] ^ w[1]) + w[2]) ^ w[3];
    r += w[0] ^ w[2];
    r += (uint32_t)(int8_t)(w[0] >> 24) + (uint8_t)(w[1] >> 8) + (uint32_t)(int16_t)(w[1] >> 16);
    r += (w[2] & 0xffff) + (uint32_t)(int16_t)w[3];
    expect(out, i, r);
  }
  ptx_rig_close(&rig);
}
END_TEST

/* Local memory by a computed index, constants with initial values, packing. */
START_TEST(local_and_constant) {
  uint32_t *out = run(
      HEAD ".const .align 4 .u32 table[4] = {10, 20, 30, 40};\n.global .align 4 .b8 bytes[4] = {1, "
           "2, 3, 4};\n" BEGIN ".local .align 8 .b8 depot[32]; .reg .b64 %SP; .reg .b64 %SPL;\n"
           "mov.u64 %SPL, depot; cvta.local.u64 %SP, %SPL;\n"
           "st.local.u32 [%SPL+4], %r2; add.u32 %r11, %r2, 7; st.u32 [%SP+8], %r11;\n"
           "and.b32 %r12, %r2, 1; mul.wide.u32 %rd4, %r12, 4; add.u64 %rd5, %SPL, %rd4; "
           "ld.local.u32 %r10, [%rd5+4];\n"
           "and.b32 %r13, %r2, 3; mul.wide.u32 %rd6, %r13, 4; mov.u64 %rd7, table; add.u64 %rd7, "
           "%rd7, %rd6; ld.const.u32 %r14, [%rd7];\n"
           "mad.lo.u32 %r10, %r14, 1000, %r10; ld.const.u32 %r15, [table+12]; add.u32 %r10, %r10, "
           "%r15;\n"
           "ld.global.u8 %r16, [bytes+2]; add.u32 %r10, %r10, %r16;\n"
           "mov.b64 %rd8, {%r2, %r11}; mov.b64 {%h1, %h2, %h3, %h4}, %rd8; mov.b32 %r17, {%h3, "
           "%h1}; add.u32 %r10, %r10, %r17;\n" END,
      1, 48, NULL, 0, 0);
  for (uint32_t i = 0; i < 48; i++)
    expect(out, i, (i % 2 ? i + 7 : i) + (i % 4 + 1) * 10000 + 40 + 3 + (i + 7) + (i << 16));
  ptx_rig_close(&rig);
}
END_TEST

/* Each atomic, on one word of global memory. */
START_TEST(atomics) {
  static const struct {
    const char *instruction;
    uint32_t begin, end;
  } cases[] = {
      {"atom.global.add.u32 %r10, [%rd1], 2", 5, 5 + 2 * 64},
      {"atom.global.max.s32 %r10, [%rd1], %r2", 0xffffffff, 63},
      {"atom.global.min.u32 %r10, [%rd1], %r2", 100, 0},
      {"atom.global.inc.u32 %r10, [%rd1], 9", 0, 4},
      {"atom.global.dec.u32 %r10, [%rd1], 9", 0, 6},
      {"atom.global.xor.b32 %r10, [%rd1], %r2", 0, 0},
      {"atom.global.or.b32 %r10, [%rd1], %r2", 0, 63},
      {"atom.global.and.b32 %r10, [%rd1], %r2", 0xff, 0},
      {"atom.acq_rel.gpu.global.cas.b32 %r10, [%rd1], 7, %r2", 7, 0},
      {"atom.relaxed.sys.global.exch.b32 %r10, [%rd1], %r2", 7, 63},
      {"mov.f32 %f1, 0f3F800000; red.global.add.f32 [%rd1], %f1", 0, 0x42800000},
      {"mov.u32 %r20, 0x3f803f80; mov.u32 %r10, 0; red.global.add.noftz.bf16x2 [%rd1], %r20", 0,
       0x42804280},
      {"atom.add.u32 %r10, [%rd1], 1", 0, 64}};
  for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
    char text[3000];
    snprintf(text, sizeof text, "%s mov.u32 %%r10, 0; %s;\n%s", HEAD BEGIN, cases[c].instruction,
             END);
    uint32_t *out = run(text, 2, 32, &cases[c].begin, 1, 0);
    uint32_t *word = rig.buffers[0];
    ck_assert_msg(*word == cases[c].end, "%s: %#x, not %#x", cases[c].instruction, *word,
                  cases[c].end);
    (void)out;
    ptx_rig_close(&rig);
  }
}
END_TEST

/* --- tensor cores ----------------------------------------------------------------------------- */

/* Exact small products of every kind of mma, with the fragments filled as the PTX manual draws
 * them. */
static uint32_t a_of(uint32_t i, uint32_t k) {
  return (i * 3 + k * 5) % 7;
}
static uint32_t b_of(uint32_t k, uint32_t j) {
  return (k * 2 + j * 3) % 5;
}

START_TEST(mma) {
  static const struct {
    const char *name;
    uint32_t k, bits;   /* of an element */
    uint32_t one, code; /* 0 f16, 1 bf16, 2 tf32, 3 s8 */
  } kinds[] = {{"m16n8k16.row.col.f32.bf16.bf16.f32", 16, 16, 0, 1},
               {"m16n8k8.row.col.f32.bf16.bf16.f32", 8, 16, 0, 1},
               {"m16n8k16.row.col.f32.f16.f16.f32", 16, 16, 0, 0},
               {"m16n8k8.row.col.f32.tf32.tf32.f32", 8, 32, 0, 2},
               {"m16n8k4.row.col.f32.tf32.tf32.f32", 4, 32, 0, 2},
               {"m16n8k16.row.col.s32.s8.s8.s32", 16, 8, 0, 3},
               {"m16n8k32.row.col.s32.s8.s8.s32", 32, 8, 0, 3}};
  static const uint16_t f16[] = {0, 0x3c00, 0x4000, 0x4200, 0x4400, 0x4500, 0x4600};
  static const uint32_t f32[] = {0,          0x3f800000, 0x40000000, 0x40400000,
                                 0x40800000, 0x40a00000, 0x40c00000};
  for (size_t q = 0; q < sizeof kinds / sizeof *kinds; q++) {
    uint32_t per = 32 / kinds[q].bits, na = kinds[q].k / (4 * per) * 2, nb = na / 2,
             in[32 * 6] = {0};
    for (uint32_t l = 0; l < 32; l++)
      for (uint32_t r = 0; r < na + nb; r++)
        for (uint32_t j = 0; j < per; j++) {
          uint32_t rb = r - na, k, v;
          if (r < na) {
            k = l % 4 * per + r / 2 * 4 * per + j;
            v = a_of(l / 4 + 8 * (r % 2), k);
          } else {
            k = l % 4 * per + rb * 4 * per + j;
            v = b_of(k, l / 4);
          }
          uint32_t bits = kinds[q].code == 0   ? f16[v]
                          : kinds[q].code == 1 ? f32[v] >> 16
                          : kinds[q].code == 2 ? f32[v]
                                               : v;
          in[l * 6 + r] |= bits << j * kinds[q].bits;
        }
    char text[4000], a[60] = "", b[30] = "";
    for (uint32_t r = 0; r < na; r++) sprintf(a + strlen(a), "%s%%r%u", r ? ", " : "", 20 + r);
    for (uint32_t r = 0; r < nb; r++) sprintf(b + strlen(b), "%s%%r%u", r ? ", " : "", 20 + na + r);
    snprintf(
        text, sizeof text,
        "%s mul.lo.u32 %%r11, %%r3, 24; cvt.u64.u32 %%rd4, %%r11; add.u64 %%rd4, %%rd1, %%rd4;\n"
        "ld.global.v2.u32 {%%r20, %%r21}, [%%rd4]; ld.global.v2.u32 {%%r22, %%r23}, [%%rd4+8];\n"
        "ld.global.v2.u32 {%%r24, %%r25}, [%%rd4+16]; mov.u32 %%r10, 0;\n"
        "mma.sync.aligned.%s {%%r30, %%r31, %%r32, %%r33}, {%s}, {%s}, {%%r10, %%r10, %%r10, "
        "%%r10};\n"
        "mul.lo.u32 %%r11, %%r3, 16; cvt.u64.u32 %%rd4, %%r11; ld.param.u64 %%rd2, [out]; add.u64 "
        "%%rd2, %%rd2, %%rd4;\n"
        "st.global.v4.u32 [%%rd2], {%%r30, %%r31, %%r32, %%r33}; ret; }\n",
        HEAD BEGIN, kinds[q].name, a, b);
    ck_assert(ptx_rig_open(&rig, text));
    void *from = ptx_rig_buffer(&rig, "in", sizeof in, in);
    uint32_t *out = ptx_rig_buffer(&rig, "out", 32 * 16, NULL);
    ck_assert_msg(
        ptx_rig_launch(&rig, "k", 1, 32, 0, (uint64_t[]){(uintptr_t)from, (uintptr_t)out, 0}), "%s",
        rig.fault.text);
    for (uint32_t l = 0; l < 32; l++)
      for (uint32_t e = 0; e < 4; e++) {
        uint32_t i = l / 4 + 8 * (e / 2), j = l % 4 * 2 + e % 2, sum = 0, got = out[4 * l + e];
        for (uint32_t k = 0; k < kinds[q].k; k++) sum += a_of(i, k) * b_of(k, j);
        float value;
        memcpy(&value, &got, sizeof value);
        if (kinds[q].code != 3) got = (uint32_t)value;
        ck_assert_msg(got == sum, "%s: [%u, %u] is %u, not %u", kinds[q].name, i, j, got, sum);
      }
    ptx_rig_close(&rig);
  }
}
END_TEST

int main(void) {
  Suite *suite = suite_create("ptx flow");
  TCase *tc = tcase_create("flow");
  tcase_add_test(tc, nested_branches);
  tcase_add_test(tc, loops_of_different_length);
  tcase_add_test(tc, early_exit);
  tcase_add_test(tc, switch_by_table);
  tcase_add_test(tc, calls);
  tcase_add_test(tc, barriers);
  tcase_add_test(tc, reducing_barrier);
  tcase_add_test(tc, named_barrier);
  tcase_add_test(tc, shuffles);
  tcase_add_test(tc, votes_of_halves);
  tcase_add_test(tc, special_registers);
  tcase_add_test(tc, clocks);
  tcase_add_test(tc, widths);
  tcase_add_test(tc, local_and_constant);
  tcase_add_test(tc, atomics);
  tcase_add_test(tc, mma);
  suite_add_tcase(suite, tc);
  return suite_run(suite);
}
