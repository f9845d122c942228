/* Philox4x32-10 against the known answers published with the generator, and its distributions. */
#include <check.h>

#include "runtime/abi/philox.h"
#include "support/suite.h"

START_TEST(known_answers) {
  /* From the kat_vectors file of the Random123 distribution. */
  static const struct {
    uint32_t counter[4], key[2], want[4];
  } kat[] = {
      {{0, 0, 0, 0}, {0, 0}, {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}},
      {{0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff},
       {0xffffffff, 0xffffffff},
       {0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}},
      {{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344},
       {0xa4093822, 0x299f31d0},
       {0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}},
  };
  for (int i = 0; i < 3; i++) {
    Philox c;
    for (int w = 0; w < 4; w++) c.v[w] = kat[i].counter[w];
    Philox d = philox4x32(kat[i].key[0], kat[i].key[1], c);
    for (int w = 0; w < 4; w++) ck_assert_uint_eq(d.v[w], kat[i].want[w]);
  }
}
END_TEST

START_TEST(moments) {
  double u1 = 0, u2 = 0, n1 = 0, n2 = 0;
  const int count = 100000;
  for (int i = 0; i < count; i++) {
    double u = philox_uniform(7, 3, 0, (uint64_t)i), n = philox_normal(7, 4, 0, (uint64_t)i);
    ck_assert(u >= 0 && u < 1);
    u1 += u, u2 += u * u, n1 += n, n2 += n * n;
  }
  ck_assert_double_eq_tol(u1 / count, 0.5, 5e-3);
  ck_assert_double_eq_tol(u2 / count, 1.0 / 3, 5e-3);
  ck_assert_double_eq_tol(n1 / count, 0, 1e-2);
  ck_assert_double_eq_tol(n2 / count, 1, 2e-2);
}
END_TEST

START_TEST(every_key_part_counts) {
  float base = philox_uniform(1, 2, 3, 4);
  ck_assert(base != philox_uniform(2, 2, 3, 4));
  ck_assert(base != philox_uniform(1, 3, 3, 4));
  ck_assert(base != philox_uniform(1, 2, 4, 4));
  ck_assert(base != philox_uniform(1, 2, 3, 5));
  ck_assert(base != philox_uniform(1, 2, 3, 4 + (1ull << 32)));
}
END_TEST

int main(void) {
  Suite *s = suite_create("philox");
  TCase *c = tcase_create("philox");
  tcase_add_test(c, known_answers);
  tcase_add_test(c, moments);
  tcase_add_test(c, every_key_part_counts);
  suite_add_tcase(s, c);
  return suite_run(s);
}
