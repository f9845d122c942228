/* pipeline: micro-batches over stages.
 *
 * A train block with `microbatches` or `schedule` computes one micro-batch; stages of a pipeline
 * are the disjoint sets of ranks its values lie on. Its local graph is cut into segments: what one
 * stage does for one micro-batch without waiting in between, forward, backward, and (where the
 * schedule says so) the weight gradients apart. A schedule is, for each stage, one list of
 * (segment, micro-batch). Compile time depends on it only by the length of that list.
 *
 * Stages talk through channels: a value that one of them posts and another takes. A channel has a
 * finite number of slots, keeps the order, and posting into a full one waits.
 */
#ifndef DTM_SPMD_PIPELINE_H
#define DTM_SPMD_PIPELINE_H

#include "ir/graph.h"

typedef enum SegmentKind {
  SEGMENT_ONCE = 0, /* behind all micro-batches: reductions, optimizer */
  SEGMENT_PROLOGUE, /* before them: what is the same for all */
  SEGMENT_COUNT,    /* for each micro-batch before the first is begun: what is known from data */
  SEGMENT_FORWARD,
  SEGMENT_BACKWARD, /* with the weight gradients, unless they are apart */
  SEGMENT_WEIGHT,
  SEGMENT_REPORT /* behind all micro-batches, before parameters change: losses and metrics */
} SegmentKind;

/* Segments are numbered in an order in which one micro-batch could be computed; 0 is ONCE. The
 * chunk counts how often the chain of stages came by the stage before: 0 unless it is interleaved.
 */
typedef struct Segment {
  SegmentKind kind;
  uint32_t stage, chunk; /* FORWARD, BACKWARD, WEIGHT */
} Segment;

typedef struct Channel {
  uint32_t from, to; /* segments */
  Span span;         /* of the redistribute it serves */
  const char *name;  /* of the value, or NULL */
} Channel;

typedef struct Entry {
  uint32_t segment, micro;
} Entry;
typedef VEC(Entry) EntryList;

typedef struct PipeStage {
  const Mesh *mesh; /* one that has its ranks */
  EntryList entries;
} PipeStage;

/* A value made by one segment and used by another of the same stage. */
typedef struct Carry {
  uint32_t from, to;
} Carry;

enum { CHANNEL_SLOTS = 2 };

typedef struct Pipeline {
  uint32_t microbatches;
  uint32_t chunks; /* at least 1 */
  bool apart;      /* weight gradients are segments of their own */
  const char *schedule;
  VEC(Segment) segments;
  VEC(Channel) channels;
  VEC(Carry) carries;
  VEC(PipeStage) stages;
} Pipeline;

/* Stage local -> scheduled: program->block[BLOCK_TRAIN] gets its pipeline and a graph whose nodes
 * know their segments and stand in the order of these; nothing where it asks for none. False after
 * errors. */
bool pipeline_cut(Program *program, DiagSink *sink);

/* For `dtmc check`, of a program of stage explicit: what pipeline_cut would find in its forward
 * pass, and whether its schedule comes to its end, with the channels back that gradients will take.
 * Changes nothing. */
bool pipeline_check(const Program *program, DiagSink *sink);

/* What the ranks of one stage need, in bytes per rank, known once memory is planned. */
typedef struct StageMemory {
  uint64_t kept;  /* all blocks of values that live from one part of a micro-batch to another */
  uint64_t arena; /* of the arena, for variables and all buffers, what its ranks use at all */
} StageMemory;

/* "F0.1", "B2": kind and chunk, as a table writes them, with a micro-batch number. */
void entry_print(StrBuf *out, const Pipeline *p, Entry e);
/* The number of a segment; 0 = there is none. */
uint32_t pipeline_segment(const Pipeline *p, SegmentKind kind, uint32_t stage, uint32_t chunk);
/* Text of --emit=schedule; `memory` per stage. */
void pipeline_print(StrBuf *out, const Program *program, const StageMemory *memory);
/* The same as a drawing: one SVG document. */
void pipeline_draw(StrBuf *out, const Program *program, const StageMemory *memory);

/* --- inside spmd/ --------------------------------------------------------------------------------
 */

/* The schedule asks for weight gradients apart. */
bool schedule_is_apart(const char *schedule);
/* Fills the entries of all stages; false after an error. */
bool schedule_build(Arena *arena, Pipeline *p, Span span, DiagSink *sink);

/* When each entry of each stage would run, in units: a forward or half a backward takes 1. */
typedef struct Timeline {
  uint32_t **begin; /* per stage, per entry */
  uint32_t length;
  uint32_t *busy; /* per stage */
} Timeline;
/* Plays the schedule with the given number of slots per channel. True when all stages come to their
 * end: as each stage does its list in order and channels keep theirs, what can happen does not
 * depend on speed, so one play stands for all. Otherwise *why says who waits for whom. */
bool schedule_play(Arena *arena, const Pipeline *p, uint32_t slots, Timeline *out,
                   const Sources *sources, const char **why);
/* The most micro-batches that begin at `from` and are not done with `to` at one time on the stage,
 * as slots that a value needs which lives from one to the other: micro-batch modulo this number
 * names its slot. `to` are n segments. */
uint32_t schedule_slots(const Pipeline *p, uint32_t stage, uint32_t from, const uint32_t *to,
                        uint32_t n);
/* Duration of an entry in units. */
uint32_t segment_units(const Pipeline *p, uint32_t segment);

#endif
