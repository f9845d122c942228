/* A bench for graphs built by hand: operands are variables of stated types with random whole
 * values, nodes go in through inference, and the graph is differentiated and evaluated by the
 * reference interpreter, whole or rank by rank. */
#ifndef DTM_TESTS_LAB_H
#define DTM_TESTS_LAB_H

#include "autodiff/autodiff.h"
#include "reference/reference.h"
#include "reference/type_text.h"

enum { LAB_MAX_VARS = 32 };

typedef struct Lab {
  Arena arena;
  Interner names;
  Sources sources;
  DiagSink sink;
  Program program;
  ProgramBlock *train;
  Graph *g; /* that of `train` */
  Mesh mesh;
  PlanCache *plans;
  RefTensor value[LAB_MAX_VARS]; /* whole value of every variable */
  uint64_t random;
} Lab;

void lab_init(Lab *lab, uint32_t naxes, const int64_t *sizes);
void lab_free(Lab *lab);
double lab_random(Lab *lab, double low, double high);

/* A parameter of this type ("f32[4@x, 3]") with uniform values; its READ. */
ValueId lab_param(Lab *lab, const char *type, double low, double high);
ValueId lab_param_of(Lab *lab, const TensorType *type, double low, double high);
/* A buffer (not trained) of integers in [0, below). */
ValueId lab_ids(Lab *lab, const TensorType *type, int64_t below);

/* A node; 0 when it has no row. The variants end the process with the diagnostic instead. */
ValueId lab_try(Lab *lab, Op op, const ValueId *operands, uint32_t n, const Attr *attrs,
                uint32_t nattrs);
ValueId lab_op(Lab *lab, Op op, const ValueId *operands, uint32_t n, const Attr *attrs,
               uint32_t nattrs);
ValueId lab_unary(Lab *lab, Op op, ValueId a);
ValueId lab_binary(Lab *lab, Op op, ValueId a, ValueId b);
ValueId lab_to(Lab *lab, ValueId a, const char *type); /* redistribute */
ValueId lab_sum(Lab *lab, ValueId a);                  /* over all dims */
/* sum of y times random weights: a loss that tells all elements apart. */
ValueId lab_weigh(Lab *lab, ValueId y);

/* Evaluations of the graph as it stands. */
RefTensor *lab_eval(Lab *lab);
RefTensor **lab_eval_mesh(Lab *lab, bool *disagree);
/* Element i of variable `var` moved by h, evaluated, moved back: value `v` (a scalar). */
double lab_probe(Lab *lab, ValueId v, uint32_t var, int64_t i, double h);

/* What is wrong with these gradients of a loss with respect to parameters, or NULL: assembled from
 * the ranks they equal those of the whole graph, which equal central differences (the first two
 * elements of every parameter). */
const char *lab_wrong_gradient(Lab *lab, const ValueId *param, const ValueId *grad, uint32_t n,
                               ValueId loss);

/* NULL, or how the diagnostics read, for messages of tests. */
const char *lab_errors(Lab *lab);
/* The graph as text. */
const char *lab_text(Lab *lab);
/* Number of redistribute nodes in [from, to) by kind: "all_reduce", "reduce_scatter", "all_gather",
 * "all_to_all"; local ones are not counted. */
typedef struct LabComm {
  int all_reduce, reduce_scatter, all_gather, all_to_all;
} LabComm;
LabComm lab_comm(const Lab *lab, const Graph *g, NodeId from, NodeId to, Phase phase);

#endif
