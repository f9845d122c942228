/* Rows that would be sound but are absent: exactly those of omissions.txt, each with a reason.
 *
 * Every combination on one mesh dim that has no row is run with every output placement; one that
 * holds on 2 and 3 ranks, at even and uneven extents, several times over, is an omission. The set
 * is compared with the committed list, which is to shrink. A line is
 *
 *     (operands) -> result | operators | reason
 *
 * where a number among the operands is a constant. Run with --update to rewrite the list; new lines
 * get the reason "?", which fails until a person wrote one.
 */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "reference/proof.h"
#include "reference/type_text.h"
#include "support/suite.h"

static const char list_path[] = "omissions.txt";

enum { REPEATS = 40 };

typedef struct Line {
  const char *pattern, *reason;
  bool has[OP_COUNT];
} Line;

typedef struct Omissions {
  Arena arena;
  VEC(Line) lines;
} Omissions;

static Line *line_of(Omissions *o, const char *pattern) {
  for (uint32_t i = 0; i < o->lines.len; i++)
    if (strcmp(o->lines.data[i].pattern, pattern) == 0) return &o->lines.data[i];
  VEC_PUSH(&o->arena, &o->lines, (Line){.pattern = arena_strdup(&o->arena, pattern)});
  return &o->lines.data[o->lines.len - 1];
}

/* --- finding them
 * ---------------------------------------------------------------------------------- */

static const char *pattern_of(Arena *arena, const ExampleNode *n, Place result) {
  StrBuf sb;
  strbuf_init(&sb, arena);
  for (uint32_t i = 0; i < n->noperands; i++) {
    const Operand *o = &n->operands[i];
    strbuf_printf(&sb, "%s%s", i ? ", " : "(",
                  o->is_const ? arena_printf(arena, "%g", o->const_value)
                              : place_print(arena, o->type.layout.at[0]));
  }
  strbuf_printf(&sb, "%s) -> %s", n->noperands ? "" : "(", place_print(arena, result));
  return sb.text;
}

/* The same combination at other extents, on another mesh; the node has no row there. */
static bool holds_at(Proof *p, const ExampleNode *like, uint32_t variant, double constant,
                     const Mesh *mesh, ProofExtents kind, Place result) {
  int64_t extent[EXAMPLE_LETTERS];
  ExampleNode built, node, whole;
  InferResult row;
  proof_extents(kind, 0, mesh->nranks, extent);
  example_build(&p->scratch, like->op, variant, extent, mesh, &built);
  proof_set_constants(&built, constant, &node);
  whole = node;
  if (!proof_real_row(NULL, &p->scratch, &whole, &row)) return false;
  for (uint32_t i = 0; i < node.noperands; i++)
    node.operands[i].type.layout = like->operands[i].type.layout;
  for (uint32_t k = 0; k < row.nresults; k++) row.results[k].layout.at[0] = result;
  for (int i = 0; i < REPEATS; i++) {
    p->coarse = i % 2 == 0;
    if (proof_run(p, &node, &row) != PROOF_HOLDS) return false;
  }
  return true;
}

static bool is_sound(Proof *p, const ExampleNode *node, uint32_t variant, double constant,
                     Place result) {
  for (int64_t ranks = 2; ranks <= 3; ranks++)
    for (ProofExtents kind = EXTENTS_EVEN; kind <= EXTENTS_UNEVEN; kind++) {
      Mesh mesh;
      mesh_of(&mesh, 1, &ranks);
      if (!holds_at(p, node, variant, constant, &mesh, kind, result)) return false;
    }
  return true;
}

static void search_node(Omissions *o, Proof *p, ExampleNode *node, uint32_t variant,
                        double constant) {
  InferResult row;
  Layout *results;
  ExampleNode whole = *node;
  Arena arena;
  if (!proof_real_row(NULL, &p->scratch, &whole, &row) || row.nresults == 0) return;
  if (!row.results[0].mesh) return;
  arena_init(&arena);
  TensorType result = row.results[0];
  uint32_t nresults = layouts_of(&arena, &result, &results);
  ProofSlots slots = proof_slots(&arena, node);
  for (uint64_t k = 0; k < slots.total; k++) {
    proof_set(&slots, k);
    if (proof_real_row(NULL, &p->scratch, node, &row)) continue;
    for (uint32_t i = 0; i < nresults; i++)
      if (is_sound(p, node, variant, constant, results[i].at[0])) {
        line_of(o, pattern_of(&p->scratch, node, results[i].at[0]))->has[node->op] = true;
        break;
      }
    if (p->scratch.total > 8u << 20) {
      arena_free(&p->scratch);
      arena_init(&p->scratch);
    }
  }
  arena_free(&arena);
}

static void search(Omissions *o, Proof *p) {
  static const double constants[] = {2, -3};
  Mesh mesh;
  int64_t extent[EXAMPLE_LETTERS];
  mesh_of(&mesh, 1, (int64_t[]){2});
  for (int op = OP_NONE + 1; op < OP_COUNT; op++)
    for (uint32_t v = 0; proof_covers((Op)op) && v < example_count((Op)op); v++)
      for (int c = 0; c < 2; c++) {
        Arena arena;
        ExampleNode built, node;
        arena_init(&arena);
        proof_extents(EXTENTS_EVEN, 0, 2, extent);
        example_build(&arena, (Op)op, v, extent, &mesh, &built);
        bool more = proof_set_constants(&built, constants[c], &node);
        /* A stated type is part of the question, not of the answer. */
        /* Rows of a derivative with many operands follow from those of what it differentiates. */
        if (!node.stated && node.noperands <= PROOF_FEW) search_node(o, p, &node, v, constants[c]);
        arena_free(&arena);
        if (!more) break;
      }
}

/* --- the committed list
 * ---------------------------------------------------------------------------- */

static void read_list(Omissions *o) {
  char text[16384];
  FILE *f = fopen(list_path, "r");
  if (!f) return;
  while (fgets(text, sizeof text, f)) {
    char *ops = strstr(text, " | "), *reason = ops ? strstr(ops + 3, " | ") : NULL;
    if (text[0] == '#' || !reason) continue;
    *ops = *reason = 0;
    reason[strcspn(reason + 3, "\n") + 3] = 0;
    Line *line = line_of(o, text);
    line->reason = arena_strdup(&o->arena, reason + 3);
    for (char *word = strtok(ops + 3, " "); word; word = strtok(NULL, " "))
      line->has[op_by_name(word)] = true;
  }
  fclose(f);
}

static void write_list(const Omissions *found, Omissions *known) {
  FILE *f = fopen(list_path, "w");
  if (!f) {
    perror(list_path);
    exit(1);
  }
  fprintf(f, "# Rows on one mesh dim that would be sound but are not in the table. This list is to "
             "shrink.\n# (operands) -> result | operators | reason\n");
  for (uint32_t i = 0; i < found->lines.len; i++) {
    const Line *line = &found->lines.data[i];
    const char *reason = line_of(known, line->pattern)->reason;
    fprintf(f, "%s |", line->pattern);
    for (int op = 0; op < OP_COUNT; op++)
      if (line->has[op]) fprintf(f, " %s", op_name((Op)op));
    fprintf(f, " | %s\n", reason ? reason : "?");
  }
  fclose(f);
}

static uint32_t report(Omissions *found, Omissions *known) {
  uint32_t faults = 0;
  for (uint32_t i = 0; i < found->lines.len; i++) {
    const Line *line = &found->lines.data[i];
    const Line *had = line_of(known, line->pattern);
    for (int op = 0; op < OP_COUNT; op++)
      if (line->has[op] && !had->has[op] && ++faults)
        printf("not in the list: %s of %s\n", line->pattern, op_name((Op)op));
    if (had->reason && strcmp(had->reason, "?") == 0 && ++faults)
      printf("no reason: %s\n", line->pattern);
  }
  for (uint32_t i = 0; i < known->lines.len; i++) {
    const Line *line = &known->lines.data[i];
    for (int op = 0; op < OP_COUNT; op++)
      if (line->has[op] && !line_of(found, line->pattern)->has[op] && ++faults)
        printf("no longer an omission: %s of %s\n", line->pattern, op_name((Op)op));
  }
  return faults;
}

static bool update;

START_TEST(omissions_are_reviewed) {
  Omissions found = {.lines = {0}}, known = {.lines = {0}};
  Proof p;
  arena_init(&found.arena);
  arena_init(&known.arena);
  proof_init(&p, proof_real_row, NULL);
  read_list(&known);
  search(&found, &p);
  if (update) write_list(&found, &known);
  uint32_t faults = update ? 0 : report(&found, &known);
  ck_assert_msg(faults == 0, "%u differences from %s", faults, list_path);
  proof_free(&p);
  arena_free(&found.arena);
  arena_free(&known.arena);
}
END_TEST

int main(int argc, char **argv) {
  update = argc > 1 && strcmp(argv[1], "--update") == 0;
  Suite *s = suite_create("rules_omissions");
  TCase *c = tcase_create("omissions");
  tcase_set_timeout(c, 120);
  tcase_add_test(c, omissions_are_reviewed);
  suite_add_tcase(s, c);
  return suite_run(s);
}
