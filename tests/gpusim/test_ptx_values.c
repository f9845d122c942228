/* Every family of opcodes against values worked out by hand: a row is an instruction, the bits of
 * its operands and of its result. Each runs twice, on all lanes of a warp and on some of them. */
#include <check.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpusim/ptx_rig.h"
#include "support/suite.h"

/* Operands are written d, a, b, c, e; their widths in bits stand in `widths` in this order, 1 for a
 * predicate (a bit). */
typedef struct Row {
  const char *instruction, *widths;
  uint64_t expected, operands[4];
} Row;

#define QNAN 0x7fffffff
#define INF 0x7f800000
#define ONE 0x3f800000
#define TWO 0x40000000

static const Row rows[] = {
    /* integers */
    {"add.s32 d, a, b", "32 32 32", 0x80000000, {0x7fffffff, 1}},
    {"add.sat.s32 d, a, b", "32 32 32", 0x7fffffff, {0x7fffffff, 1}},
    {"sub.sat.s32 d, a, b", "32 32 32", 0x80000000, {0x80000000, 1}},
    {"add.u16 d, a, b", "16 16 16", 1, {0xffff, 2}},
    {"add.s64 d, a, b", "64 64 64", 0x100000000, {0xffffffff, 1}},
    {"sub.u32 d, a, b", "32 32 32", 0xffffffff, {0, 1}},
    {"mul.lo.s32 d, a, b", "32 32 32", 0xfffffffe, {0x7fffffff, 2}},
    {"mul.hi.s32 d, a, b", "32 32 32", 0xffffffff, {0xffffffff, 2}},
    {"mul.hi.u32 d, a, b", "32 32 32", 1, {0xffffffff, 2}},
    {"mul.hi.u64 d, a, b", "64 64 64", 1, {UINT64_MAX, 2}},
    {"mul.hi.s64 d, a, b", "64 64 64", UINT64_MAX, {UINT64_MAX, 2}},
    {"mul.wide.s32 d, a, b", "64 32 32", UINT64_MAX - 1, {0xffffffff, 2}},
    {"mul.wide.u32 d, a, b", "64 32 32", 0x1fffffffe, {0xffffffff, 2}},
    {"mul.wide.u16 d, a, b", "32 16 16", 0xfffe0001, {0xffff, 0xffff}},
    {"mul.lo.u16 d, a, b", "16 16 16", 1, {0xffff, 0xffff}},
    {"mad.lo.s32 d, a, b, c", "32 32 32 32", 17, {3, 4, 5}},
    {"mad.wide.s32 d, a, b, c", "64 32 32 64", 4, {0xffffffff, 6, 10}},
    {"mad.hi.u32 d, a, b, c", "32 32 32 32", 6, {0xffffffff, 2, 5}},
    {"mul24.lo.u32 d, a, b", "32 32 32", 6, {0xff000002, 0xff000003}},
    {"mad24.lo.s32 d, a, b, c", "32 32 32 32", 0xfffffff9, {0x00ffffff, 7, 0}},
    {"sad.s32 d, a, b, c", "32 32 32 32", 15, {0xfffffffd, 2, 10}},
    {"sad.u32 d, a, b, c", "32 32 32 32", 11, {2, 3, 10}},
    {"div.s32 d, a, b", "32 32 32", 0xfffffffd, {0xfffffff9, 2}},
    {"div.u32 d, a, b", "32 32 32", 0x7ffffffc, {0xfffffff9, 2}},
    {"div.u32 d, a, b", "32 32 32", 0xffffffff, {5, 0}},
    {"div.s32 d, a, b", "32 32 32", 0x80000000, {0x80000000, 0xffffffff}},
    {"div.s64 d, a, b", "64 64 64", 0x8000000000000000, {0x8000000000000000, UINT64_MAX}},
    {"rem.s32 d, a, b", "32 32 32", 0xffffffff, {0xfffffff9, 2}},
    {"rem.u32 d, a, b", "32 32 32", 5, {5, 0}},
    {"rem.s32 d, a, b", "32 32 32", 0, {0x80000000, 0xffffffff}},
    {"rem.u64 d, a, b", "64 64 64", 1, {UINT64_MAX, 2}},
    {"min.s32 d, a, b", "32 32 32", 0xffffffff, {0xffffffff, 1}},
    {"min.u32 d, a, b", "32 32 32", 1, {0xffffffff, 1}},
    {"max.s64 d, a, b", "64 64 64", 1, {UINT64_MAX, 1}},
    {"neg.s32 d, a", "32 32", 0x80000000, {0x80000000}},
    {"abs.s32 d, a", "32 32", 5, {0xfffffffb}},
    {"abs.s16 d, a", "16 16", 5, {0xfffb}},
    {"dp4a.s32.s32 d, a, b, c", "32 32 32 32", 4, {0xff01ff02, 0x02030405, 0xfffffffd}},
    {"dp4a.u32.u32 d, a, b, c", "32 32 32 32", 255 * 2 + 7, {0xff000001, 0x02000003, 4}},

    /* bits */
    {"and.b32 d, a, b", "32 32 32", 0x0c, {0x3c, 0x0f}},
    {"or.b64 d, a, b", "64 64 64", 0x3f, {0x3c, 0x0f}},
    {"xor.b16 d, a, b", "16 16 16", 0x33, {0x3c, 0x0f}},
    {"not.b32 d, a", "32 32", 0xffffffc3, {0x3c}},
    {"cnot.b32 d, a", "32 32", 1, {0}},
    {"shl.b32 d, a, b", "32 32 32", 0x80000000, {3, 31}},
    {"shl.b32 d, a, b", "32 32 32", 0, {3, 32}},
    {"shl.b64 d, a, b", "64 64 32", 0, {3, 64}},
    {"shl.b16 d, a, b", "16 16 32", 0, {3, 16}},
    {"shr.s32 d, a, b", "32 32 32", 0xffffffff, {0x80000000, 32}},
    {"shr.s32 d, a, b", "32 32 32", 0xf0000000, {0x80000000, 3}},
    {"shr.u32 d, a, b", "32 32 32", 0, {0x80000000, 200}},
    {"shr.s16 d, a, b", "16 16 32", 0xffff, {0x8000, 99}},
    {"shr.u64 d, a, b", "64 64 32", 1, {0x8000000000000000, 63}},
    {"shf.l.wrap.b32 d, a, b, c", "32 32 32 32", 0x2345678f, {0xf0000000, 0x12345678, 4}},
    {"shf.l.wrap.b32 d, a, b, c", "32 32 32 32", 0x12345678, {0xf0000000, 0x12345678, 32}},
    {"shf.l.clamp.b32 d, a, b, c", "32 32 32 32", 0xf0000000, {0xf0000000, 0x12345678, 32}},
    {"shf.r.wrap.b32 d, a, b, c", "32 32 32 32", 0x8f000000, {0xf0000000, 0x12345678, 4}},
    {"shf.r.clamp.b32 d, a, b, c", "32 32 32 32", 0x12345678, {0xf0000000, 0x12345678, 40}},
    {"popc.b32 d, a", "32 32", 8, {0xf000000f}},
    {"popc.b64 d, a", "32 64", 64, {UINT64_MAX}},
    {"clz.b32 d, a", "32 32", 32, {0}},
    {"clz.b64 d, a", "32 64", 63, {1}},
    {"brev.b32 d, a", "32 32", 0x80000000, {1}},
    {"brev.b64 d, a", "64 64", 0xf000000000000000, {15}},
    {"bfind.u32 d, a", "32 32", 31, {0x80000000}},
    {"bfind.s32 d, a", "32 32", 0xffffffff, {0xffffffff}},
    {"bfind.shiftamt.u32 d, a", "32 32", 28, {8}},
    {"bfe.u32 d, a, b, c", "32 32 32 32", 0x67, {0x12345678, 4, 8}},
    {"bfe.s32 d, a, b, c", "32 32 32 32", 0xfffffff8, {0x12345678, 0, 4}},
    {"bfe.s32 d, a, b, c", "32 32 32 32", 0xffffffff, {0x80000000, 40, 4}},
    {"bfe.u32 d, a, b, c", "32 32 32 32", 0, {0x80000000, 5, 0}},
    {"bfe.u64 d, a, b, c", "64 64 32 32", 0xffff, {UINT64_MAX, 48, 60}},
    {"bfi.b32 d, a, b, c, e", "32 32 32 32 32", 0x123456f8, {0xf, 0x12345678, 4, 4}},
    {"bfi.b32 d, a, b, c, e", "32 32 32 32 32", 0x12345678, {0xf, 0x12345678, 32, 4}},
    {"bfi.b64 d, a, b, c, e", "64 64 64 32 32", UINT64_MAX, {UINT64_MAX, 0, 0, 64}},
    {"lop3.b32 d, a, b, c, 0x96", "32 32 32 32", 0x0f ^ 0x33 ^ 0x55, {0x0f, 0x33, 0x55}},
    {"lop3.b32 d, a, b, c, 0xe8", "32 32 32 32", 0x17, {0x0f, 0x33, 0x55}},
    {"prmt.b32 d, a, b, c", "32 32 32 32", 0x33221177, {0x33221100, 0x77665544, 0x3217}},
    {"prmt.b32 d, a, b, c", "32 32 32 32", 0x00ff00ff, {0x33228011, 0, 0x8989}},
    {"prmt.b32.f4e d, a, b, c", "32 32 32 32", 0x44332211, {0x33221100, 0x77665544, 1}},
    {"prmt.b32.b4e d, a, b, c", "32 32 32 32", 0x66770011, {0x33221100, 0x77665544, 1}},
    {"prmt.b32.rc16 d, a, b, c", "32 32 32 32", 0x33223322, {0x33221100, 0x77665544, 1}},
    {"selp.b32 d, a, b, c", "32 32 32 1", 7, {7, 8, 1}},
    {"selp.f32 d, a, b, c", "32 32 32 1", 8, {7, 8, 0}},
    {"selp.b64 d, a, b, c", "64 64 64 1", 8, {7, 8, 0}},
    {"slct.b32.s32 d, a, b, c", "32 32 32 32", 8, {7, 8, 0x80000000}},
    {"slct.f32.f32 d, a, b, c", "32 32 32 32", 7, {7, 8, 0x80000000}},

    /* f32 */
    {"add.f32 d, a, b", "32 32 32", 0x3f800000, {0x3f800000, 0x33800000}},
    {"add.rp.f32 d, a, b", "32 32 32", 0x3f800001, {0x3f800000, 0x33800000}},
    {"add.rz.f32 d, a, b", "32 32 32", 0xbf800000, {0xbf800000, 0xb3800000}},
    {"add.rm.f32 d, a, b", "32 32 32", 0xbf800001, {0xbf800000, 0xb3800000}},
    {"add.f32 d, a, b", "32 32 32", QNAN, {INF, 0xff800000}},
    {"add.f32 d, a, b", "32 32 32", QNAN, {0xffc12345, ONE}},
    {"add.f32 d, a, b", "32 32 32", 3, {1, 2}},
    {"add.ftz.f32 d, a, b", "32 32 32", 0, {1, 2}},
    {"sub.ftz.f32 d, a, b", "32 32 32", 0x80000000, {0x80000001, 0}},
    {"add.sat.f32 d, a, b", "32 32 32", ONE, {ONE, ONE}},
    {"mul.sat.f32 d, a, b", "32 32 32", 0, {0xbf800000, ONE}},
    {"mul.sat.f32 d, a, b", "32 32 32", 0, {QNAN, ONE}},
    {"mul.f32 d, a, b", "32 32 32", INF, {0x7f7fffff, TWO}},
    {"mul.rz.f32 d, a, b", "32 32 32", 0x7f7fffff, {0x7f7fffff, TWO}},
    {"mul.f32 d, a, b", "32 32 32", 0x00400000, {0x00800000, 0x3f000000}},
    {"mul.f32 d, a, b", "32 32 32", QNAN, {0, INF}},
    {"fma.rn.f32 d, a, b, c", "32 32 32 32", 0x28800000, {0x3f800001, 0x3f800001, 0xbf800002}},
    {"fma.rm.f32 d, a, b, c", "32 32 32 32", 0x3f800002, {0x3f800001, 0x3f800001, 0}},
    {"fma.rp.f32 d, a, b, c", "32 32 32 32", 0x3f800003, {0x3f800001, 0x3f800001, 0}},
    {"mad.f32 d, a, b, c", "32 32 32 32", 0x28800000, {0x3f800001, 0x3f800001, 0xbf800002}},
    {"div.rn.f32 d, a, b", "32 32 32", 0x3eaaaaab, {ONE, 0x40400000}},
    {"div.rz.f32 d, a, b", "32 32 32", 0x3eaaaaaa, {ONE, 0x40400000}},
    {"div.full.f32 d, a, b", "32 32 32", 0x3eaaaaab, {ONE, 0x40400000}},
    {"div.rn.f32 d, a, b", "32 32 32", 0xff800000, {0xbf800000, 0}},
    {"rcp.approx.ftz.f32 d, a", "32 32", 0x3eaaaaab, {0x40400000}},
    {"rcp.rn.f32 d, a", "32 32", INF, {1}},
    {"rcp.approx.ftz.f32 d, a", "32 32", 0xff800000, {0x80000001}},
    {"sqrt.rn.f32 d, a", "32 32", 0x3fb504f3, {TWO}},
    {"sqrt.rn.f32 d, a", "32 32", QNAN, {0xbf800000}},
    {"sqrt.approx.f32 d, a", "32 32", 0x80000000, {0x80000000}},
    {"rsqrt.approx.f32 d, a", "32 32", 0x3f000000, {0x40800000}},
    {"rsqrt.approx.f32 d, a", "32 32", INF, {0}},
    {"ex2.approx.f32 d, a", "32 32", 0x3fb504f3, {0x3f000000}},
    {"ex2.approx.ftz.f32 d, a", "32 32", 0x41000000, {0x40400000}},
    {"ex2.approx.f32 d, a", "32 32", 1, {0xc3150000}},
    {"ex2.approx.ftz.f32 d, a", "32 32", 0, {0xc3150000}},
    {"ex2.approx.f32 d, a", "32 32", INF, {0x43000000}},
    {"ex2.approx.f32 d, a", "32 32", 0, {0xff800000}},
    {"ex2.approx.f32 d, a", "32 32", QNAN, {QNAN}},
    {"lg2.approx.f32 d, a", "32 32", 0x40400000, {0x41000000}},
    {"lg2.approx.f32 d, a", "32 32", 0xff800000, {0}},
    {"lg2.approx.f32 d, a", "32 32", QNAN, {0xbf800000}},
    {"lg2.approx.f32 d, a", "32 32", 0x3fcae00d, {0x40400000}},
    {"lg2.approx.f32 d, a", "32 32", 0xc3150000, {1}},
    {"sin.approx.f32 d, a", "32 32", 0x3f576aa4, {ONE}},
    {"cos.approx.f32 d, a", "32 32", 0x3f0a5140, {ONE}},
    {"tanh.approx.f32 d, a", "32 32", 0x3f42f7d6, {ONE}},
    {"tanh.approx.f32 d, a", "32 32", 0x33800000, {0x33800000}},
    {"min.f32 d, a, b", "32 32 32", ONE, {QNAN, ONE}},
    {"min.NaN.f32 d, a, b", "32 32 32", QNAN, {QNAN, ONE}},
    {"max.f32 d, a, b", "32 32 32", 0, {0x80000000, 0}},
    {"min.f32 d, a, b", "32 32 32", 0x80000000, {0, 0x80000000}},
    {"max.f32 d, a, b", "32 32 32", QNAN, {0xffffffff, QNAN}},
    {"abs.f32 d, a", "32 32", ONE, {0xbf800000}},
    {"neg.f32 d, a", "32 32", 0x80000000, {0}},
    {"abs.ftz.f32 d, a", "32 32", 0, {0x80000001}},
    {"copysign.f32 d, a, b", "32 32 32", TWO, {ONE, 0xc0000000}},
    {"mov.f32 d, a", "32 32", 0xffc12345, {0xffc12345}},

    /* f64 */
    {"add.rn.f64 d, a, b",
     "64 64 64",
     0x4008000000000000,
     {0x3ff0000000000000, 0x4000000000000000}},
    {"fma.rn.f64 d, a, b, c",
     "64 64 64 64",
     0x3970000000000000,
     {0x3ff0000000000001, 0x3ff0000000000001, 0xbff0000000000002}},
    {"div.rz.f64 d, a, b",
     "64 64 64",
     0x3fd5555555555555,
     {0x3ff0000000000000, 0x4008000000000000}},
    {"sqrt.rn.f64 d, a", "64 64", 0x3ff6a09e667f3bcd, {0x4000000000000000}},
    {"rcp.approx.ftz.f64 d, a", "64 64", 0x3fe0000000000000, {0x4000000000000000}},
    {"max.f64 d, a, b", "64 64 64", 0x3ff0000000000000, {0x7ff8000000000000, 0x3ff0000000000000}},
    {"neg.f64 d, a", "64 64", 0xbff0000000000000, {0x3ff0000000000000}},

    /* halves: f16 1.0 is 3c00, bf16 1.0 is 3f80 */
    {"add.f16 d, a, b", "16 16 16", 0x4000, {0x3c00, 0x3c00}},
    {"add.rn.f16 d, a, b", "16 16 16", 0x7c00, {0x7bff, 0x7bff}},
    {"add.f16 d, a, b", "16 16 16", 3, {1, 2}},
    {"add.ftz.f16 d, a, b", "16 16 16", 0, {1, 2}},
    {"add.sat.f16 d, a, b", "16 16 16", 0x3c00, {0x3c00, 0x3c00}},
    {"mul.f16x2 d, a, b", "32 32 32", 0x40003800, {0x3c003800, 0x40003c00}},
    {"fma.rn.f16 d, a, b, c", "16 16 16 16", 0x3c03, {0x3c01, 0x3c01, 0x1000}},
    {"fma.rn.f16 d, a, b, c", "16 16 16 16", 0x7fff, {0x7c00, 0, 0}},
    {"fma.rn.bf16 d, a, b, c", "16 16 16 16", 0x4040, {0x3f80, 0x3f80, 0x4000}},
    {"fma.rn.relu.bf16 d, a, b, c", "16 16 16 16", 0, {0x3f80, 0xbf80, 0}},
    {"fma.rn.bf16x2 d, a, b, c", "32 32 32 32", 0x40404040, {0x3f803f80, 0x3f803f80, 0x40004000}},
    {"add.bf16 d, a, b", "16 16 16", 0x3f80, {0x3f80, 0x3b80}},
    {"add.bf16 d, a, b", "16 16 16", 0x3f82, {0x3f81, 0x3b80}},
    {"sub.bf16x2 d, a, b", "32 32 32", 0x00003f80, {0x3f804000, 0x3f803f80}},
    {"max.NaN.bf16 d, a, b", "16 16 16", 0x7fff, {0x7fff, 0x3f80}},
    {"max.bf16 d, a, b", "16 16 16", 0x3f80, {0x7fff, 0x3f80}},
    {"min.f16x2 d, a, b", "32 32 32", 0x3c003c00, {0x40003c00, 0x3c004000}},
    {"neg.bf16 d, a", "16 16", 0xbf80, {0x3f80}},
    {"abs.f16 d, a", "16 16", 0x3c00, {0xbc00}},
    {"ex2.approx.ftz.bf16 d, a", "16 16", 0x4000, {0x3f80}},
    {"tanh.approx.f16 d, a", "16 16", 0x3a18, {0x3c00}},

    /* comparisons */
    {"setp.lt.s32 d, a, b", "1 32 32", 1, {0xffffffff, 0}},
    {"setp.lt.u32 d, a, b", "1 32 32", 0, {0xffffffff, 0}},
    {"setp.hs.u32 d, a, b", "1 32 32", 1, {0xffffffff, 0}},
    {"setp.eq.b64 d, a, b", "1 64 64", 1, {5, 5}},
    {"setp.ne.s16 d, a, b", "1 16 16", 1, {5, 6}},
    {"setp.lt.f32 d, a, b", "1 32 32", 0, {QNAN, 0}},
    {"setp.ltu.f32 d, a, b", "1 32 32", 1, {QNAN, 0}},
    {"setp.ne.f32 d, a, b", "1 32 32", 0, {QNAN, 0}},
    {"setp.neu.f32 d, a, b", "1 32 32", 1, {QNAN, 0}},
    {"setp.eq.f32 d, a, b", "1 32 32", 1, {0, 0x80000000}},
    {"setp.equ.f32 d, a, b", "1 32 32", 1, {QNAN, 0}},
    {"setp.num.f32 d, a, b", "1 32 32", 0, {QNAN, 0}},
    {"setp.nan.f64 d, a, b", "1 64 64", 1, {0x7ff8000000000000, 0}},
    {"setp.gt.ftz.f32 d, a, b", "1 32 32", 0, {1, 0}},
    {"setp.gt.f32 d, a, b", "1 32 32", 1, {1, 0}},
    {"setp.gt.and.s32 d, a, b, c", "1 32 32 1", 0, {2, 1, 0}},
    {"setp.gt.or.s32 d, a, b, !c", "1 32 32 1", 1, {1, 2, 0}},
    {"setp.gt.xor.s32 d, a, b, c", "1 32 32 1", 0, {2, 1, 1}},
    {"setp.lt.bf16 d, a, b", "1 16 16", 1, {0xbf80, 0x3f80}},
    {"setp.ge.f16 d, a, b", "1 16 16", 1, {0x3c00, 0x3c00}},
    {"set.lt.u32.s32 d, a, b", "32 32 32", 0xffffffff, {1, 2}},
    {"set.lt.f32.f32 d, a, b", "32 32 32", ONE, {ONE, TWO}},
    {"set.gt.f16x2.f16x2 d, a, b", "32 32 32", 0x3c000000, {0x40003c00, 0x3c004000}},
    {"testp.subnormal.f32 d, a", "1 32", 1, {1}},
    {"testp.finite.f32 d, a", "1 32", 0, {INF}},
    {"testp.notanumber.f64 d, a", "1 64", 1, {0x7ff8000000000000}},
    {"and.pred d, a, b", "1 1 1", 0, {1, 0}},
    {"xor.pred d, a, b", "1 1 1", 1, {1, 0}},
    {"not.pred d, a", "1 1", 0, {1}},
    {"mov.pred d, a", "1 1", 1, {1}},

    /* conversions */
    {"cvt.u64.u32 d, a", "64 32", 0xffffffff, {0xffffffff}},
    {"cvt.s64.s32 d, a", "64 32", UINT64_MAX, {0xffffffff}},
    {"cvt.u32.u64 d, a", "32 64", 5, {0x700000005}},
    {"cvt.s32.s8 d, a", "32 32", 0xfffffff0, {0x123456f0}},
    {"cvt.u32.u16 d, a", "32 16", 0xffff, {0xffff}},
    {"cvt.s32.s16 d, a", "32 16", 0xffffffff, {0xffff}},
    {"cvt.u16.u32 d, a", "16 32", 0x5678, {0x12345678}},
    {"cvt.sat.s8.s32 d, a", "32 32", 127, {1000}},
    {"cvt.sat.u8.s32 d, a", "32 32", 0, {0xfffffff0}},
    {"cvt.sat.s32.u64 d, a", "32 64", 0x7fffffff, {0x100000000}},
    {"cvt.rn.f32.s32 d, a", "32 32", 0xbf800000, {0xffffffff}},
    {"cvt.rn.f32.u32 d, a", "32 32", 0x4f800000, {0xffffffff}},
    {"cvt.rz.f32.u32 d, a", "32 32", 0x4f7fffff, {0xffffffff}},
    {"cvt.rn.f32.s64 d, a", "32 64", 0x5f000000, {0x7fffffffffffffff}},
    {"cvt.rp.f32.s32 d, a", "32 32", 0xcb7fffff, {0xff000001}},
    {"cvt.rn.f64.u64 d, a", "64 64", 0x43f0000000000000, {UINT64_MAX}},
    {"cvt.rn.f16.u32 d, a", "16 32", 0x6800, {2048}},
    {"cvt.rn.bf16.s32 d, a", "16 32", 0x4380, {257}},
    {"cvt.rzi.s32.f32 d, a", "32 32", 0xffffffff, {0xbfc00000}},
    {"cvt.rni.s32.f32 d, a", "32 32", 2, {0x40200000}},
    {"cvt.rni.s32.f32 d, a", "32 32", 0, {QNAN}},
    {"cvt.rzi.s32.f32 d, a", "32 32", 0x80000000, {0xff800000}},
    {"cvt.rzi.s32.f32 d, a", "32 32", 0x80000080, {0xceffffff}},
    {"cvt.rmi.s32.f32 d, a", "32 32", 0xfffffffe, {0xbfc00000}},
    {"cvt.rpi.s32.f32 d, a", "32 32", 2, {0x3fc00000}},
    {"cvt.rzi.s32.f32 d, a", "32 32", 0x7fffffff, {0x4f800000}},
    {"cvt.rzi.s32.f32 d, a", "32 32", 0, {QNAN}},
    {"cvt.rzi.u32.f32 d, a", "32 32", 0, {0xbf800000}},
    {"cvt.rzi.u64.f32 d, a", "64 32", UINT64_MAX, {INF}},
    {"cvt.rzi.s64.f64 d, a", "64 64", 0x8000000000000000, {0x7ff8000000000000}},
    {"cvt.rzi.s16.f32 d, a", "16 32", 0x7fff, {0x47800000}},
    {"cvt.rni.f32.f32 d, a", "32 32", TWO, {0x40200000}},
    {"cvt.rmi.f32.f32 d, a", "32 32", 0xc0000000, {0xbfc00000}},
    {"cvt.sat.f32.f32 d, a", "32 32", ONE, {TWO}},
    {"cvt.sat.f32.f32 d, a", "32 32", 0, {QNAN}},
    {"cvt.rn.f32.f64 d, a", "32 64", ONE, {0x3ff0000010000000}},
    {"cvt.rp.f32.f64 d, a", "32 64", 0x3f800001, {0x3ff0000010000000}},
    {"cvt.f64.f32 d, a", "64 32", 0x3ff0000000000000, {ONE}},
    {"cvt.rn.f16.f32 d, a", "16 32", 0x3c00, {0x3f801000}},
    {"cvt.rn.f16.f32 d, a", "16 32", 0x3c02, {0x3f803000}},
    {"cvt.rz.f16.f32 d, a", "16 32", 0x7bff, {0x47800000}},
    {"cvt.rn.f16.f32 d, a", "16 32", 0x7c00, {0x47800000}},
    {"cvt.rn.f16.f32 d, a", "16 32", 1, {0x33800000}},
    {"cvt.rn.f16.f32 d, a", "16 32", 0, {0x33000000}},
    {"cvt.rn.bf16.f32 d, a", "16 32", 0x3f80, {0x3f808000}},
    {"cvt.rn.bf16.f32 d, a", "16 32", 0x3f82, {0x3f818000}},
    {"cvt.rz.bf16.f32 d, a", "16 32", 0x3f81, {0x3f81ffff}},
    {"cvt.rn.relu.bf16.f32 d, a", "16 32", 0, {0xbf800000}},
    {"cvt.rn.bf16.f32 d, a", "16 32", 0x7fff, {0xffc00000}},
    {"cvt.f32.f16 d, a", "32 16", 0x33800000, {1}},
    {"cvt.f32.f16 d, a", "32 16", 0xff800000, {0xfc00}},
    {"cvt.f32.bf16 d, a", "32 16", 0x3f810000, {0x3f81}},
    {"cvt.rn.f16.f64 d, a", "16 64", 0x3c01, {0x3ff0020000000001}},
    {"cvt.rn.bf16x2.f32 d, a, b", "32 32 32", 0x3f804000, {ONE, TWO}},
    {"cvt.rn.f16x2.f32 d, a, b", "32 32 32", 0x3c004000, {ONE, TWO}},
    {"cvt.rz.bf16x2.f32 d, a, b", "32 32 32", 0x3f814000, {0x3f81ffff, TWO}},
    {"cvt.rna.tf32.f32 d, a", "32 32", 0x3f802000, {0x3f801000}},
    {"cvt.rn.satfinite.e4m3x2.f32 d, a, b", "16 32 32", 0x7e38, {0x447a0000, ONE}},
    {"cvt.rn.satfinite.e5m2x2.f32 d, a, b", "16 32 32", 0xbc01, {0xbf800000, 0x37800000}},
    {"cvt.rn.f16x2.e4m3x2 d, a", "32 16", 0x5f003c00, {0x7e38}},
};

/* d, a, b, c, e as words become registers of the kernel: %d ... */
static void write_instruction(char *out, const char *text) {
  for (const char *c = text; *c; c++) {
    bool alone =
        strchr("dabce", *c) && (c == text || strchr(" !", c[-1])) && (!c[1] || c[1] == ',');
    if (alone) *out++ = '%';
    *out++ = *c;
  }
  *out = 0;
}

static const char *type_name(unsigned width) {
  return width == 64 ? "b64" : width == 32 ? "b32" : "b16";
}

/* Kernel: words of the operands from [in], the result to [out]; lanes below `n` run the
 * instruction. */
static void write_kernel(char *out, size_t size, const Row *row) {
  unsigned widths[5] = {0}, n = 0;
  const char *names = "dabce";
  char instruction[200];
  for (const char *w = row->widths; *w && n < 5; w += strspn(w, " ")) {
    char *end;
    widths[n++] = (unsigned)strtoul(w, &end, 10);
    w = end;
  }
  write_instruction(instruction, row->instruction);
  size_t at = (size_t)snprintf(
      out, size,
      ".version 9.0\n.target sm_90\n.address_size 64\n.visible .entry k(.param .u64 in, .param "
      ".u64 "
      "out, .param .u32 n) {\n.reg .pred %%p<9>; .reg .b64 %%rd<9>; .reg .b32 %%r<9>;\n");
  for (unsigned i = 0; i < n; i++)
    at += (size_t)snprintf(out + at, size - at, ".reg .%s %%%c;\n",
                           widths[i] == 1 ? "pred" : type_name(widths[i]), names[i]);
  at += (size_t)snprintf(
      out + at, size - at,
      "ld.param.u64 %%rd1, [in]; ld.param.u64 %%rd2, [out]; ld.param.u32 %%r1, [n];\n"
      "mov.u32 %%r2, %%tid.x; setp.lt.u32 %%p1, %%r2, %%r1;\n"
      "mul.wide.u32 %%rd3, %%r2, 8; add.u64 %%rd2, %%rd2, %%rd3;\n");
  for (unsigned i = 1; i < n; i++)
    if (widths[i] == 1)
      at += (size_t)snprintf(out + at, size - at,
                             "ld.global.u32 %%r3, [%%rd1+%u]; setp.ne.u32 %%%c, %%r3, 0;\n",
                             8 * (i - 1), names[i]);
    else
      at += (size_t)snprintf(out + at, size - at, "ld.global.%s %%%c, [%%rd1+%u];\n",
                             type_name(widths[i]), names[i], 8 * (i - 1));
  if (widths[0] == 1)
    at += (size_t)snprintf(out + at, size - at,
                           "setp.ne.u32 %%d, %%r1, %%r1;\n@%%p1 %s;\nselp.u64 %%rd4, 1, 0, %%d;\n"
                           "st.global.u64 [%%rd2], %%rd4; ret; }\n",
                           instruction);
  else
    at += (size_t)snprintf(
        out + at, size - at,
        "mov.b64 %%rd4, 0; mov.%s %%d, 0;\n@%%p1 %s;\nst.global.u64 [%%rd2], %%rd4;\n"
        "st.global.%s [%%rd2], %%d; ret; }\n",
        type_name(widths[0]), instruction, type_name(widths[0]));
  ck_assert_uint_lt(at, size);
}

START_TEST(values) {
  const Row *row = &rows[_i];
  char text[4000];
  write_kernel(text, sizeof text, row);
  PtxRig rig;
  ck_assert_msg(ptx_rig_open(&rig, text), "%s", row->instruction);
  uint64_t *in = ptx_rig_buffer(&rig, "in", 32, row->operands);
  for (int lanes = 32; lanes >= 5; lanes -= 27) {
    uint64_t *out = ptx_rig_buffer(&rig, "out", 32 * 8, NULL);
    const uint64_t params[] = {(uintptr_t)in, (uintptr_t)out, (uint64_t)lanes};
    ck_assert_msg(ptx_rig_launch(&rig, "k", 1, 32, 0, params), "%s: %s", row->instruction,
                  rig.fault.text);
    for (int i = 0; i < 32; i++)
      ck_assert_msg(out[i] == (i < lanes ? row->expected : 0),
                    "%s of %#" PRIx64 ", %#" PRIx64 ", %#" PRIx64 ": lane %d of %d has %#" PRIx64
                    ", not %#" PRIx64,
                    row->instruction, row->operands[0], row->operands[1], row->operands[2], i,
                    lanes, out[i], i < lanes ? row->expected : 0);
  }
  ptx_rig_close(&rig);
}
END_TEST

int main(void) {
  Suite *suite = suite_create("ptx values");
  TCase *tc = tcase_create("values");
  tcase_add_loop_test(tc, values, 0, sizeof rows / sizeof *rows);
  suite_add_tcase(suite, tc);
  return suite_run(suite);
}
