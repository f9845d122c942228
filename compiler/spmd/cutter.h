/* Inside spmd/: which segment each node of train belongs to. Serves the cut itself (segment.c) and
 * dtmc check, which has the forward pass alone (check.c). */
#ifndef DTM_SPMD_CUTTER_H
#define DTM_SPMD_CUTTER_H

#include "spmd/stages.h"

enum { UNSET = UINT32_MAX };

typedef struct Cutter {
  Arena *scratch;
  Program *program;
  DiagSink *sink;
  const Graph *g;
  Pipeline *p;
  Span span; /* of the schedule, or of what asks for one */
  const bool *varies, *live;
  StageMap map;
  uint32_t *stage;   /* per value: of the map */
  uint32_t *order;   /* per stage of the map: its number */
  uint32_t *chunk;   /* per node; UNSET where it has none yet */
  uint32_t *segment; /* per node */
  bool *sent_on;     /* per node, backward: a move to another stage needs it */
} Cutter;

/* The settings of train's pipeline; false where it asks for none. */
bool cutter_asked(const Program *program, Pipeline *p);
/* Finds the stages of a cutter that has all above its span. False after an error. */
bool cutter_begin(Cutter *c);
/* Numbers stages, finds chunks, lists segments: a pass over the graph each. */
void cutter_assign(Cutter *c);
/* A count that another stage would have to send cannot be there before the first micro-batch.
 * False after an error. */
bool cutter_check_counts(Cutter *c);

/* The node differs between micro-batches. */
bool cutter_varies(const Cutter *c, NodeId id);
/* It runs once for each of them. */
bool cutter_per_micro(const Cutter *c, NodeId id);
/* The number of the stage that it runs on. */
uint32_t cutter_stage(const Cutter *c, NodeId id);
/* It moves what differs between micro-batches to another stage. */
bool cutter_crosses(const Cutter *c, NodeId id);

/* Errors; all return false. */
bool cutter_fail(Cutter *c, Span span, const char *reason, const char *help);
bool cutter_on_several(Cutter *c, Span span, const Mesh *mesh);
bool cutter_assigned(Cutter *c, Span span);

#endif
