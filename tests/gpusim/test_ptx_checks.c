/* Every check with a fault planted in a kernel, and what must not be taken for one. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpusim/ptx_rig.h"
#include "support/suite.h"

/* Entry k(a, b): a 64 words that are written, b 64 words that are not. %rd1 a, %rd2 b, %rd3 a + 4
 * thread, %rd4 b + 4 thread, %r1 thread of the block, %r2 block, %r3 shared address of 4 bytes of
 * the thread. */
#define BEGIN                                                                                      \
  ".version 9.0\n.target sm_90\n.address_size 64\n.file 1 \"made.cu\"\n"                           \
  ".const .b32 fixed[4] = {1, 2, 3, 4};\n.global .b32 counter;\n"                                  \
  ".visible .entry k(.param .u64 a, .param .u64 b) {\n"                                            \
  ".reg .pred %p<9>; .reg .b64 %rd<20>; .reg .b32 %r<40>;\n"                                       \
  ".shared .align 16 .b8 own[1024]; .local .align 8 .b8 depot[16];\n"                              \
  "ld.param.u64 %rd1, [a]; ld.param.u64 %rd2, [b]; mov.u32 %r1, %tid.x; mov.u32 %r2, %ctaid.x;\n"  \
  "mul.wide.u32 %rd5, %r1, 4; add.u64 %rd3, %rd1, %rd5; add.u64 %rd4, %rd2, %rd5;\n"               \
  "mov.u32 %r3, own; mad.lo.u32 %r3, %r1, 4, %r3; mov.u32 %r10, 0;\n.loc 1 77 3\n"
#define END "\nret; }\n"

typedef struct Case {
  const char *name, *body;
  uint32_t grid, block;
  PtxFaultKind kind; /* PTX_FAULT_NONE: must run */
  const char *text;  /* that the fault has */
} Case;

static const Case cases[] = {
    /* outside */
    {"behind the end", "ld.global.u32 %r10, [%rd3+4];", 1, 64, PTX_FAULT_OUTSIDE,
     "byte 256 of 'a'"},
    {"before the begin", "st.global.u32 [%rd3+-4], %r10;", 1, 1, PTX_FAULT_OUTSIDE,
     "writes 4 bytes"},
    {"a null pointer", "mov.u64 %rd6, 0; ld.u32 %r10, [%rd6];", 1, 1, PTX_FAULT_OUTSIDE,
     "in no allocation"},
    {"half of a vector",
     "ld.global.v4.u32 {%r10, %r11, %r12, %r13}, [%rd1+240]; add.u64 %rd1, %rd1, 248;"
     "ld.global.v2.u32 {%r10, %r11}, [%rd1+8];",
     1, 1, PTX_FAULT_OUTSIDE, "byte 256 of 'a'"},
    {"shared memory", "ld.shared.u32 %r10, [own+1024];", 1, 1, PTX_FAULT_OUTSIDE,
     "byte 1024 of shared"},
    {"a shared null pointer", "mov.u32 %r4, 0; st.shared.u32 [%r4], %r10;", 1, 1, PTX_FAULT_OUTSIDE,
     "shared"},
    {"local memory", "mov.u64 %rd6, depot; st.local.u32 [%rd6+16], %r10;", 1, 2, PTX_FAULT_OUTSIDE,
     "local"},
    {"local memory of another thread",
     "mov.u64 %rd6, depot; setp.eq.u32 %p1, %r1, 1; @%p1 st.local.u32 "
     "[%rd6+-16], %r10;",
     1, 2, PTX_FAULT_OUTSIDE, "local"},
    {"in bounds",
     "ld.global.u32 %r10, [%rd3]; st.global.u32 [%rd4], %r10; ld.global.u32 %r10, [%rd4];", 1, 64,
     PTX_FAULT_NONE, NULL},
    /* misaligned */
    {"a word", "ld.global.u32 %r10, [%rd1+2];", 1, 1, PTX_FAULT_MISALIGNED, "byte 2 of 'a'"},
    {"a vector", "ld.global.v4.u32 {%r10, %r11, %r12, %r13}, [%rd1+8];", 1, 1, PTX_FAULT_MISALIGNED,
     "reads 16 bytes at byte 8"},
    {"an atomic", "atom.global.add.u32 %r10, [%rd1+1], %r1;", 1, 1, PTX_FAULT_MISALIGNED,
     "changes"},
    /* unwritten */
    {"global memory", "ld.global.u32 %r10, [%rd4];", 1, 2, PTX_FAULT_UNWRITTEN, "byte 0 of 'b'"},
    {"a byte of a word", "st.global.u16 [%rd2], 5; ld.global.u32 %r10, [%rd2];", 1, 1,
     PTX_FAULT_UNWRITTEN, "byte 2 of 'b'"},
    {"shared memory of an earlier block",
     "setp.eq.u32 %p1, %r2, 0; @%p1 st.shared.u32 [%r3], %r1; "
     "ld.shared.u32 %r10, [%r3];",
     2, 1, PTX_FAULT_UNWRITTEN, "block (1, 0, 0)"},
    {"local", "mov.u64 %rd6, depot; ld.local.u32 %r10, [%rd6];", 1, 1, PTX_FAULT_UNWRITTEN,
     "local"},
    {"an atomic", "atom.global.add.u32 %r10, [%rd2], 1;", 1, 1, PTX_FAULT_UNWRITTEN, "'b'"},
    {"a variable is zero", "ld.global.u32 %r10, [counter]; st.global.u32 [%rd2], %r10;", 1, 1,
     PTX_FAULT_NONE, NULL},
    /* constant */
    {"a constant", "mov.u64 %rd6, fixed; st.u32 [%rd6], %r10;", 1, 1, PTX_FAULT_READ_ONLY,
     "'fixed'"},
    /* barriers */
    {"in one half of a warp", "setp.lt.u32 %p1, %r1, 16; @%p1 bra L; bar.sync 0; L:", 1, 32,
     PTX_FAULT_BARRIER, "lane 0 of its warp"},
    {"a warp that ended", "setp.lt.u32 %p1, %r1, 32; @%p1 ret; bar.sync 0;", 1, 64,
     PTX_FAULT_BARRIER, "for thread 0, which ended"},
    {"two barriers", "setp.lt.u32 %p1, %r1, 32; @%p1 bra L; bar.sync 0; bra M; L: bar.sync 1; M:",
     1, 64, PTX_FAULT_BARRIER, "which waits at barrier"},
    {"one barrier at two places",
     "setp.lt.u32 %p1, %r1, 32; @%p1 bra L; bar.sync 0; bra M; L: bar.sync 0; M:", 1, 64,
     PTX_FAULT_BARRIER, "another place"},
    {"too few for a count", "setp.lt.u32 %p1, %r1, 32; @%p1 bra L; bar.sync 1, 64; L:", 1, 64,
     PTX_FAULT_BARRIER, "barrier 1"},
    {"a shuffle without all",
     "setp.lt.u32 %p1, %r1, 16; @%p1 bra L; shfl.sync.bfly.b32 %r10, %r1, 1, 31, -1; L:", 1, 32,
     PTX_FAULT_BARRIER, "names lane 0, which is elsewhere"},
    {"a shuffle of half a warp", "shfl.sync.bfly.b32 %r10, %r1, 1, 31, -1;", 1, 16,
     PTX_FAULT_BARRIER, "names lane 16, which does not exist"},
    {"a vote of those that ended",
     "setp.lt.u32 %p1, %r1, 3; @%p1 ret; vote.sync.any.pred %p2, %p1, -1;", 1, 32,
     PTX_FAULT_BARRIER, "names lane 0, which ended"},
    {"not in its own mask", "mov.u32 %r11, 0xff; shfl.sync.idx.b32 %r10, %r1, 0, 31, %r11;", 1, 32,
     PTX_FAULT_BARRIER, "does not name lane 8"},
    {"reading from outside of the mask",
     "setp.ge.u32 %p1, %r1, 8; @%p1 bra L; "
     "shfl.sync.down.b32 %r10, %r1, 4, 31, 0xff; L:",
     1, 32, PTX_FAULT_BARRIER, "reads from lane 8"},
    {"a group of lanes by itself",
     "setp.ge.u32 %p1, %r1, 8; @%p1 bra L; "
     "shfl.sync.bfly.b32 %r10, %r1, 4, 31, 0xff; bar.warp.sync 0xff; L: bar.warp.sync -1;",
     1, 32, PTX_FAULT_NONE, NULL},
    /* races in shared memory */
    {"between warps", "st.shared.u32 [%r3], %r1; xor.b32 %r4, %r3, 128; ld.shared.u32 %r10, [%r4];",
     1, 64, PTX_FAULT_UNWRITTEN, "shared"},
    {"between warps, written before",
     "st.shared.u32 [%r3], %r1; bar.sync 0; st.shared.u32 [%r3], %r10; "
     "xor.b32 %r4, %r3, 128; ld.shared.u32 %r10, [%r4];",
     1, 64, PTX_FAULT_RACE, "thread (0, 0, 0) read"},
    {"a write after a read",
     "st.shared.u32 [%r3], %r1; bar.sync 0; xor.b32 %r4, %r3, 128; "
     "ld.shared.u32 %r10, [%r4]; st.shared.u32 [%r3], %r1;",
     1, 64, PTX_FAULT_RACE, "thread (0, 0, 0) wrote"},
    {"two writes", "st.shared.u32 [own], %r1;", 1, 64, PTX_FAULT_RACE, "wrote"},
    {"two equal writes", "st.shared.u32 [own], %r10;", 1, 64, PTX_FAULT_NONE, NULL},
    {"with a barrier",
     "st.shared.u32 [%r3], %r1; bar.sync 0; xor.b32 %r4, %r3, 128; ld.shared.u32 %r10, [%r4]; "
     "bar.sync 0; st.shared.u32 [%r3], %r10;",
     1, 64, PTX_FAULT_NONE, NULL},
    {"between lanes", "st.shared.u32 [%r3], %r1; xor.b32 %r4, %r3, 4; ld.shared.u32 %r10, [%r4];",
     1, 32, PTX_FAULT_RACE, "thread (1, 0, 0) wrote"},
    {"lanes with bar.warp.sync",
     "st.shared.u32 [%r3], %r1; bar.warp.sync -1; xor.b32 %r4, %r3, 4; "
     "ld.shared.u32 %r10, [%r4];",
     1, 32, PTX_FAULT_NONE, NULL},
    {"bytes beside each other",
     "mov.u32 %r4, own; add.u32 %r4, %r4, %r1; st.shared.u8 [%r4], %r1; "
     "ld.shared.u8 %r10, [%r4]; bar.sync 0; ld.shared.u32 %r10, [own+4];",
     1, 64, PTX_FAULT_NONE, NULL},
    {"atomics",
     "st.shared.u32 [%r3], 0; bar.sync 0; atom.shared.add.u32 %r10, [own], 1; bar.sync 0; "
     "ld.shared.u32 %r10, [own];",
     1, 64, PTX_FAULT_NONE, NULL},
    {"a read beside atomics",
     "st.shared.u32 [%r3], 0; bar.sync 0; atom.shared.add.u32 %r10, [own], 1; "
     "ld.shared.u32 %r10, [own];",
     1, 64, PTX_FAULT_RACE, "wrote"},
    {"read by one warp, written by the next",
     "st.shared.u32 [%r3], %r1; bar.sync 0; ld.shared.u32 %r10, [%r3]; xor.b32 %r4, %r3, 128; "
     "setp.ge.u32 %p1, %r1, 32; @%p1 st.shared.u32 [%r4], %r1;",
     1, 64, PTX_FAULT_RACE, "thread (0, 0, 0) read"},
    {"read by all, written by one",
     "st.shared.u32 [%r3], %r1; bar.sync 0; ld.shared.v2.u32 {%r10, %r11}, [own+40]; "
     "setp.eq.u32 %p1, %r1, 63; @%p1 st.shared.u32 [own+44], 7;",
     1, 64, PTX_FAULT_RACE, "byte 44 of 'shared memory', which other threads read"},
    {"read by all, changed by one",
     "st.shared.u32 [%r3], %r1; bar.sync 0; ld.shared.u32 %r10, [own+40]; "
     "setp.eq.u32 %p1, %r1, 63; @%p1 red.shared.add.u32 [own+40], 7;",
     1, 64, PTX_FAULT_RACE, "other threads read"},
    {"read by all, copied to by one",
     "st.shared.u32 [%r3], %r1; bar.sync 0; ld.shared.u32 %r10, [own+40]; "
     "setp.eq.u32 %p1, %r1, 63; @%p1 cp.async.ca.shared.global [own+40], [%rd3], 4;",
     1, 64, PTX_FAULT_RACE, "other threads read"},
    {"read often before it is written",
     "st.shared.u32 [%r3], %r1; bar.sync 0; ld.shared.u32 %r10, [%r3]; L: add.u32 %r11, %r11, 1; "
     "ld.shared.u32 %r12, [own+128]; setp.lt.u32 %p1, %r11, 3000; @%p1 bra L; "
     "setp.eq.u32 %p1, %r1, 63; @%p1 st.shared.u32 [own], 7;",
     1, 64, PTX_FAULT_RACE, "thread (0, 0, 0) read"},
    {"its own word after a read",
     "st.shared.u32 [%r3], %r1; bar.sync 0; ld.shared.u32 %r10, [%r3]; st.shared.u32 [%r3], 5; "
     "ld.shared.u32 %r10, [%r3]; bar.sync 0; xor.b32 %r4, %r3, 128; ld.shared.u32 %r10, [%r4];",
     1, 64, PTX_FAULT_NONE, NULL},
    {"read by lanes, written behind bar.warp.sync",
     "st.shared.u32 [%r3], %r1; bar.sync 0; xor.b32 %r4, %r3, 4; ld.shared.u32 %r10, [%r4]; "
     "bar.warp.sync -1; st.shared.u32 [%r3], %r10;",
     1, 32, PTX_FAULT_NONE, NULL},
    {"every other word, by half of the lanes",
     "st.shared.u32 [%r3], %r1; bar.sync 0; and.b32 %r4, %r1, 1; setp.eq.u32 %p1, %r4, 0; "
     "mov.u32 %r4, own; mad.lo.u32 %r4, %r1, 8, %r4; @%p1 ld.shared.u32 %r10, [%r4]; "
     "@!%p1 ld.shared.u32 %r10, [%r4+-8]; shr.u32 %r5, %r1, 1; shl.b32 %r5, %r5, 2; "
     "setp.ne.u32 %p2, %r10, %r5; @%p2 trap;",
     1, 24, PTX_FAULT_UNWRITTEN, "byte 96 of 'shared memory'"},
    {"a part of a word that is read",
     "st.shared.u16 [own+4], 5; bar.sync 0; ld.shared.u32 %r10, [own+4];", 1, 1,
     PTX_FAULT_UNWRITTEN, "byte 6 of 'shared memory'"},
    {"a part of another word",
     "st.shared.u16 [own+2], 5; st.shared.u32 [own+8], 1; bar.sync 0; ld.shared.u32 %r10, [own+8];"
     "ld.shared.v2.u32 {%r10, %r11}, [own+8];",
     1, 1, PTX_FAULT_UNWRITTEN, "byte 12 of 'shared memory'"},
    {"the word that fills what is unwritten",
     "st.shared.u32 [%r3], 0xa5c3e10f; bar.sync 0; ld.shared.u32 %r10, [%r3+128]; "
     "setp.ne.u32 %p1, %r10, 0xa5c3e10f; @%p1 trap;",
     1, 64, PTX_FAULT_UNWRITTEN, "thread (32, 0, 0), made.cu:77"},
    {"words at both ends of shared memory",
     "mov.u32 %r4, 1016; setp.eq.u32 %p1, %r1, 0; selp.b32 %r4, 0, %r4, %p1; mov.u32 %r5, own; "
     "add.u32 %r5, %r5, %r4; st.shared.u32 [%r5], 1; st.shared.u32 [%r5+4], 2; bar.sync 0; "
     "ld.shared.v2.u32 {%r10, %r11}, [%r5]; add.u32 %r10, %r10, %r11; setp.ne.u32 %p1, %r10, 3; "
     "@%p1 trap; ld.shared.u32 %r10, [%r5+8];",
     1, 2, PTX_FAULT_UNWRITTEN, "byte 8 of 'shared memory'"},
    {"a word behind the end, of the last lane",
     "st.shared.u32 [%r3], %r1; bar.sync 0; mov.u32 %r4, own; mad.lo.u32 %r4, %r1, 32, %r4; "
     "setp.eq.u32 %p1, %r1, 31; @%p1 ld.shared.u32 %r10, [%r4+32];",
     1, 32, PTX_FAULT_OUTSIDE, "byte 1024 of shared"},
    {"a misaligned word of one lane",
     "st.shared.u32 [%r3], %r1; bar.sync 0; setp.eq.u32 %p1, %r1, 9; @%p1 add.u32 %r3, %r3, 2; "
     "ld.shared.u32 %r10, [%r3];",
     1, 32, PTX_FAULT_MISALIGNED, "thread (9, 0, 0)"},
    {"a copy on its way behind a barrier",
     "st.shared.u32 [%r3], %r1; setp.eq.u32 %p1, %r1, 5; "
     "@%p1 cp.async.ca.shared.global [own+20], [%rd3], 4; bar.sync 0; ld.shared.u32 %r10, "
     "[own+20];",
     1, 32, PTX_FAULT_RACE, "cp.async"},
    /* races in global memory */
    {"between blocks", "st.global.u32 [%rd3], %r2;", 2, 32, PTX_FAULT_RACE, "another block wrote"},
    {"read by one block, written by the next",
     "setp.eq.u32 %p1, %r2, 0; @%p1 ld.global.u32 %r10, [%rd3]; "
     "@!%p1 st.global.u32 [%rd3], %r1;",
     2, 32, PTX_FAULT_RACE, "another block reads"},
    {"read by two blocks, written by one of them",
     "ld.global.u32 %r10, [%rd3]; setp.eq.u32 %p1, %r2, 1; "
     "@%p1 st.global.u32 [%rd3], %r1;",
     2, 32, PTX_FAULT_RACE, "another block reads"},
    {"between warps of a block",
     "st.global.u32 [%rd3], %r1; xor.b32 %r4, %r1, 32; mul.wide.u32 %rd6, %r4, 4; "
     "add.u64 %rd6, %rd1, %rd6; ld.global.u32 %r10, [%rd6];",
     1, 64, PTX_FAULT_RACE, "thread (0, 0, 0) read"},
    {"the same with a barrier",
     "st.global.u32 [%rd3], %r1; bar.sync 0; xor.b32 %r4, %r1, 32; "
     "mul.wide.u32 %rd6, %r4, 4; add.u64 %rd6, %rd1, %rd6; ld.global.u32 %r10, [%rd6];",
     1, 64, PTX_FAULT_NONE, NULL},
    {"its own word again",
     "ld.global.u32 %r10, [%rd3]; add.u32 %r10, %r10, 1; st.global.u32 [%rd3], %r10; "
     "ld.global.u32 %r11, [%rd3];",
     1, 64, PTX_FAULT_NONE, NULL},
    {"all read",
     "ld.global.u32 %r10, [%rd3]; ld.global.u32 %r10, [%rd1]; bar.sync 0; ld.global.u32 %r10, "
     "[%rd3];",
     3, 64, PTX_FAULT_NONE, NULL},
    {"atomics of blocks", "atom.global.add.u32 %r10, [counter], 1; red.global.max.u32 [%rd1], %r1;",
     3, 64, PTX_FAULT_NONE, NULL},
    {"rows with gaps",
     "and.b32 %r4, %r1, 7; setp.lt.u32 %p1, %r4, 6; shr.u32 %r5, %r1, 3; mad.lo.u32 %r5, %r5, 6, "
     "%r4; mul.wide.u32 %rd6, %r5, 4; add.u64 %rd7, %rd2, %rd6; add.u64 %rd6, %rd1, %rd6; "
     "@%p1 ld.global.u32 %r10, [%rd6]; @%p1 st.global.u32 [%rd7], %r5; "
     "@%p1 ld.global.u32 %r11, [%rd7]; @%p1 setp.ne.u32 %p2, %r11, %r5; @!%p1 setp.ne.u32 %p2, "
     "%r1, %r1; @%p2 trap; bar.sync 0; ld.global.u32 %r10, [%rd2+188]; ld.global.u32 %r10, "
     "[%rd2+192];",
     1, 64, PTX_FAULT_UNWRITTEN, "byte 192 of 'b'"},
    {"rows with gaps that overlap",
     "shr.u32 %r5, %r1, 3; mad.lo.u32 %r5, %r5, -1, %r1; mul.wide.u32 %rd6, %r5, 4; "
     "add.u64 %rd7, %rd2, %rd6; st.global.u32 [%rd7], %r1;",
     1, 32, PTX_FAULT_RACE, "byte 28 of 'b', which thread (7, 0, 0) wrote"},
    {"a row of which the middle is unwritten",
     "setp.eq.u32 %p1, %r1, 17; @!%p1 st.global.u32 [%rd4], %r1; ld.global.u32 %r10, [%rd4];", 1,
     32, PTX_FAULT_UNWRITTEN, "byte 68 of 'b'"},
    {"a row of which the last is outside", "ld.global.u32 %r10, [%rd3+132];", 1, 32,
     PTX_FAULT_OUTSIDE, "thread (31, 0, 0)"},
    {"a row of which the last is written outside", "st.global.u32 [%rd3+132], %r1;", 1, 32,
     PTX_FAULT_OUTSIDE, "thread (31, 0, 0)"},
    {"a row of which the last but one ends",
     "setp.lt.u32 %p1, %r1, 31; @%p1 ld.global.u32 %r10, [%rd3+132]; "
     "@%p1 st.global.u32 [%rd4+132], %r10;",
     1, 32, PTX_FAULT_NONE, NULL},
    {"a row written by another warp",
     "ld.global.u32 %r10, [%rd1+128]; ld.global.u32 %r10, [%rd3]; setp.lt.u32 %p1, %r1, 32; "
     "@%p1 bra L; st.global.u32 [%rd3], %r1; L:",
     1, 64, PTX_FAULT_RACE, "byte 128 of 'a', which other threads read"},
    {"a row read by three blocks, written by the last",
     "ld.global.u32 %r10, [%rd3]; setp.eq.u32 %p1, %r2, 2; setp.eq.and.u32 %p1, %r1, 3, %p1; "
     "@%p1 st.global.u32 [%rd3], %r1;",
     3, 32, PTX_FAULT_RACE, "byte 12 of 'a', which another block reads"},
    {"through the constant cache", "st.global.u32 [%rd3], %r1; ld.global.nc.u32 %r10, [%rd3];", 1,
     32, PTX_FAULT_RACE, "wrote"},
    /* copies */
    {"a copy that nobody waited for",
     "cp.async.ca.shared.global [%r3], [%rd3], 4; ld.shared.u32 %r10, [%r3];", 1, 32,
     PTX_FAULT_RACE, "cp.async"},
    {"the group before",
     "cp.async.ca.shared.global [%r3], [%rd3], 4; cp.async.commit_group; "
     "cp.async.wait_group 1; ld.shared.u32 %r10, [%r3];",
     1, 32, PTX_FAULT_RACE, "cp.async"},
    {"of others without barrier",
     "cp.async.ca.shared.global [%r3], [%rd3], 4; cp.async.wait_all; "
     "xor.b32 %r4, %r3, 4; ld.shared.u32 %r10, [%r4];",
     1, 32, PTX_FAULT_RACE, "wrote"},
    {"waited for",
     "cp.async.ca.shared.global [%r3], [%rd3], 4; cp.async.commit_group; cp.async.wait_group 0; "
     "bar.sync 0; xor.b32 %r4, %r3, 132; ld.shared.u32 %r10, [%r4];",
     1, 64, PTX_FAULT_NONE, NULL},
    {"a copy of part",
     "mov.u32 %r4, 0; cp.async.cg.shared.global [own], [%rd1], 16, %r4; cp.async.wait_all; "
     "ld.shared.u32 %r10, [own+12]; setp.ne.u32 %p1, %r10, 0; @%p1 trap;",
     1, 1, PTX_FAULT_NONE, NULL},
    {"a misaligned copy", "cp.async.cg.shared.global [%r3], [%rd3], 16;", 1, 32,
     PTX_FAULT_MISALIGNED, "16 bytes"},
    {"a matrix",
     "st.shared.u32 [%r3], %r1; bar.sync 0; ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r10}, "
     "[%r3];",
     1, 32, PTX_FAULT_MISALIGNED, "16 bytes"},
    /* the rest */
    {"without end", "L: bra L;", 1, 32, PTX_FAULT_STEPS, "instructions"},
    {"waits for another warp",
     "L: ld.volatile.global.u32 %r10, [counter]; setp.eq.u32 %p1, %r1, 32; "
     "@%p1 st.volatile.global.u32 [counter], 1; setp.eq.u32 %p2, %r10, 0; @%p2 bra L;",
     1, 64, PTX_FAULT_NONE, NULL},
    {"trap", "setp.eq.u32 %p1, %r1, 3; @%p1 trap;", 1, 32, PTX_FAULT_TRAP,
     "thread (3, 0, 0), made.cu:77, PTX line 14"},
    {"trap in a function inlined in another one",
     ".loc 1 22 3, function_name f, inlined_at 1 34 5\nmov.u32 %r10, 1;\n"
     ".loc 1 77 3, function_name g, inlined_at 1 22 9\ntrap;",
     1, 32, PTX_FAULT_TRAP, "thread (0, 0, 0), made.cu:77 in made.cu:34, PTX line 17"},
};

START_TEST(planted) {
  const Case *c = &cases[_i];
  char text[4000];
  snprintf(text, sizeof text, "%s%s%s", BEGIN, c->body, END);
  PtxRig rig;
  uint32_t zeros[64] = {0};
  ck_assert(ptx_rig_open(&rig, text));
  rig.max_steps = 200000;
  void *a = ptx_rig_buffer(&rig, "a", sizeof zeros, zeros),
       *b = ptx_rig_buffer(&rig, "b", 256, NULL);
  bool ok =
      ptx_rig_launch(&rig, "k", c->grid, c->block, 0, (uint64_t[]){(uintptr_t)a, (uintptr_t)b});
  ck_assert_msg(ok == (c->kind == PTX_FAULT_NONE) && rig.fault.kind == c->kind, "%s: kind %d: %s",
                c->name, rig.fault.kind, rig.fault.text);
  if (!ok) {
    ck_assert_msg(strstr(rig.fault.text, c->text) != NULL, "%s: %s", c->name, rig.fault.text);
    ck_assert_str_eq(rig.fault.kernel, "k");
    ck_assert_uint_eq(rig.fault.line, 77);
  }
  ptx_rig_close(&rig);
}
END_TEST

/* --- modules that are not understood ---------------------------------------------------------- */

static const struct {
  const char *body, *text;
} errors[] = {
    {"frobnicate.u32 %r10, %r1;", "PTX line 14: 'frobnicate.u32': unknown opcode"},
    {"add.u33 %r10, %r1, %r1;", "unknown opcode, modifier or type"},
    {"add.ftz.u32 %r10, %r1, %r1;", "'add.ftz.u32'"},
    {"add.u32 %r10, %r1;", "2 operands, not 3"},
    {"add.u32 %r10, %r1, %rd1;", "operand '%rd1' has 64 bits, not 32 bits"},
    {"add.u32 %r10, %r1, %q;", "'%q' is not known"},
    {"ld.global.wild.u32 %r10, [%rd1];", "modifier '.wild' is not known here"},
    {"bra NOWHERE;", "label 'NOWHERE' is not known"},
    {"mma.sync.aligned.m16n8k64.row.col.f32.f16.f16.f32 {%r1}, {%r1}, {%r1}, {%r1};",
     "unknown shape"},
    {"call.uni f, ();", "function 'f' has no body here"},
    {"ld.param.u64 %rd1, [b+4];", "reads behind the end of 'b'"},
    {"add.u32 %r10 %r1, %r1;", "';' expected"},
    {"tex.2d.v4.f32.f32 {%r1}, [%rd1];", "unknown opcode"},
    {".frob 3;", "instruction expected, not '.frob'"},
};

START_TEST(refused) {
  char text[4000], *error = NULL;
  snprintf(text, sizeof text, "%s%s%s", BEGIN, errors[_i].body, END);
  PtxMemory *memory = ptx_memory_new();
  ck_assert_ptr_null(ptx_module_load(memory, text, &error));
  ck_assert_msg(strstr(error, errors[_i].text) != NULL, "%s: %s", errors[_i].body, error);
  free(error);
  ptx_memory_free(memory);
}
END_TEST

/* --- launches and what the host does ---------------------------------------------------------- */

START_TEST(launches) {
  PtxRig rig;
  uint32_t zeros[64] = {0};
  ck_assert(ptx_rig_open(&rig, BEGIN END));
  void *a = ptx_rig_buffer(&rig, "a", sizeof zeros, zeros);
  const uint64_t params[] = {(uintptr_t)a, 0};
  ck_assert(!ptx_rig_launch(&rig, "k", 1, 1025, 0, params));
  ck_assert_int_eq(rig.fault.kind, PTX_FAULT_LAUNCH);
  ck_assert(!ptx_rig_launch(&rig, "k", 0, 32, 0, params));
  ck_assert(!ptx_rig_launch(&rig, "k", 1, 32, 232448, params));
  ck_assert(!ptx_rig_launch(&rig, "other", 1, 32, 0, params));
  ck_assert(ptx_rig_launch(&rig, "k", 1, 1024, 1000, params));
  void *address;
  size_t bytes;
  ck_assert(ptx_module_global(rig.module, "fixed", &address, &bytes));
  ck_assert(bytes == 16 && ((uint32_t *)address)[2] == 3);
  ptx_rig_close(&rig);
}
END_TEST

START_TEST(host_accesses) {
  PtxMemory *memory = ptx_memory_new();
  PtxFault fault;
  static uint8_t a[10000], b[100];
  ptx_memory_add(memory, a, sizeof a, "a");
  ptx_memory_add(memory, b, sizeof b, "b");
  ck_assert(!ptx_memory_check_read(memory, a, 1, &fault));
  ck_assert_int_eq(fault.kind, PTX_FAULT_UNWRITTEN);
  ck_assert(ptx_memory_check_write(memory, a + 5, 9000, &fault));
  ck_assert(ptx_memory_check_read(memory, a + 5, 9000, &fault));
  ck_assert(!ptx_memory_check_read(memory, a + 5, 9001, &fault));
  ck_assert_ptr_nonnull(strstr(fault.text, "byte 9005 of 'a'"));
  ck_assert(!ptx_memory_check_write(memory, a + 9990, 11, &fault));
  ck_assert_int_eq(fault.kind, PTX_FAULT_OUTSIDE);
  ck_assert(ptx_memory_copy(memory, b, a, 20, &fault));
  ck_assert(!ptx_memory_check_read(memory, b + 4, 10, &fault));
  ck_assert(ptx_memory_check_read(memory, b + 5, 15, &fault));
  ptx_memory_forget(memory, b + 10, 2);
  ck_assert(!ptx_memory_check_read(memory, b + 5, 15, &fault));
  ck_assert(ptx_memory_remove(memory, b));
  ck_assert(!ptx_memory_remove(memory, b));
  ck_assert(!ptx_memory_check_read(memory, b + 5, 1, &fault));
  ck_assert_ptr_nonnull(strstr(fault.text, "'b', which was freed"));
  ptx_memory_free(memory);
}
END_TEST

/* Threads of two blocks and of one write to one place: told, unless nobody wants to know. */
START_TEST(races_unchecked) {
  PtxRig rig;
  uint32_t zeros[64] = {0};
  ck_assert(ptx_rig_open(&rig, BEGIN "st.global.u32 [%rd3], %r2;" END));
  rig.races_unchecked = true;
  void *a = ptx_rig_buffer(&rig, "a", sizeof zeros, zeros);
  ck_assert(ptx_rig_launch(&rig, "k", 2, 32, 0, (uint64_t[]){(uintptr_t)a, 0}));
  ptx_rig_close(&rig);
}
END_TEST

/* Two allocations without a gap: lanes may be in both, one lane's vector may not. */
START_TEST(side_by_side) {
  static const struct {
    const char *body, *text; /* of the fault, NULL for none */
  } rows[] = {
      {"ld.global.u32 %r10, [%rd3+192]; st.global.u32 [%rd3+192], %r10;", NULL},
      {"setp.eq.u32 %p1, %r1, 0; @!%p1 ld.global.u32 %r10, [%rd3+-4]; ld.global.u32 %r10, [%rd3];"
       "ld.global.u32 %r10, [%rd3+-4];",
       "thread (0, 0, 0)"},
      {"mul.wide.u32 %rd6, %r1, 16; add.u64 %rd6, %rd1, %rd6; "
       "ld.global.v4.u32 {%r10, %r11, %r12, %r13}, [%rd6]; setp.ne.u32 %p1, %r12, 0; @%p1 trap; "
       "add.u64 %rd6, %rd6, 16; ld.global.v4.u32 {%r10, %r11, %r12, %r13}, [%rd6];",
       "thread (31, 0, 0)"},
      {"setp.eq.u32 %p1, %r1, 31; @%p1 ld.global.v4.u32 {%r10, %r11, %r12, %r13}, [%rd1+248];",
       "reads 16 bytes"},
      {"mul.wide.u32 %rd6, %r1, 8; add.u64 %rd6, %rd1, %rd6; setp.ge.u32 %p1, %r1, 8; "
       "@%p1 ld.global.v2.u32 {%r10, %r11}, [%rd6+8]; @%p1 st.global.v2.u32 [%rd6+8], {%r1, %r1};",
       NULL},
  };
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    static _Alignas(16) uint8_t both[512];
    char text[4000];
    snprintf(text, sizeof text, "%s%s%s", BEGIN, rows[i].body, END);
    PtxRig rig;
    ck_assert(ptx_rig_open(&rig, text));
    ptx_memory_add(rig.memory, both, 256, "one");
    ptx_memory_add(rig.memory, both + 256, 256, "two");
    ck_assert(ptx_memory_check_write(rig.memory, both, 256, &rig.fault));
    ck_assert(ptx_memory_check_write(rig.memory, both + 256, 256, &rig.fault));
    bool ok = ptx_rig_launch(&rig, "k", 1, 32, 0, (uint64_t[]){(uintptr_t)both, 0});
    ck_assert_msg(ok == !rows[i].text, "%zu: %s", i, rig.fault.text);
    if (!ok) {
      ck_assert_int_eq(rig.fault.kind, PTX_FAULT_OUTSIDE);
      ck_assert_msg(strstr(rig.fault.text, rows[i].text) != NULL, "%s", rig.fault.text);
    }
    ptx_rig_close(&rig);
  }
}
END_TEST

int main(void) {
  Suite *suite = suite_create("ptx checks");
  TCase *tc = tcase_create("checks");
  tcase_add_loop_test(tc, planted, 0, sizeof cases / sizeof *cases);
  tcase_add_loop_test(tc, refused, 0, sizeof errors / sizeof *errors);
  tcase_add_test(tc, launches);
  tcase_add_test(tc, host_accesses);
  tcase_add_test(tc, races_unchecked);
  tcase_add_test(tc, side_by_side);
  suite_add_tcase(suite, tc);
  return suite_run(suite);
}
