/* A machine of a few ranks that carries out plans of moves: their memory, a plain model of the
 * kernel that copies boxes and of NCCL, values to move and what must come of them. What ranks send
 * each other matches, call by call; nothing is read that nobody wrote. Faults end the test. */
#ifndef DTM_TESTS_SOUND_MOVES_MACHINE_H
#define DTM_TESTS_SOUND_MOVES_MACHINE_H

#include <check.h>

#include "device/cuda/cuts.h"
#include "runtime/abi/image.h"

#define EXPECT_MSG(condition, ...)                                                                 \
  do {                                                                                             \
    if (!(condition)) ck_abort_msg(__VA_ARGS__);                                                   \
  } while (0)
#define EXPECT(condition) EXPECT_MSG(condition, "%s is false", #condition)

enum { RANKS = 4, PAIRS = 2 };

/* An image of one action, or of the two ends of a channel. */
typedef struct Case {
  AbiHeader header;
  AbiMesh mesh[4]; /* 1: of sources, 2: of destinations where it is another, 3: the world */
  int32_t rank[4 * RANKS];
  AbiType type[2 * PAIRS + 2];
  AbiBuffer buffer[2 * PAIRS + 1];
  AbiAction action[2];
  AbiChannel channel;
  Image image;
} Case;

/* A mesh of ranks from `first` on. */
void machine_add_mesh(Case *c, uint32_t at, uint32_t naxes, const int64_t *size, int32_t first);
/* Behind the last mesh. */
void machine_finish_case(Case *c);
/* Sources, then destinations, each with `room` bytes of the arena; the least of an arena and of
 * scratch memory that are in use. */
void machine_set_buffers(Case *c, uint32_t npairs, uint64_t room);

/* Bytes in use of the arena of a rank. */
size_t machine_arena_bytes(void);
unsigned char *machine_arena(int32_t rank);

/* Values for the sources of all ranks, everything else unwritten. */
void machine_set_sources(const Case *c, uint32_t npairs);
/* Carries out action `index[rank]` of every rank; -1: it has no part. Adds the kinds of calls that
 * were made to `forms`. */
void machine_run(const Case *c, const int *index, uint32_t *forms);
/* The destinations of all ranks hold what their types say; `op`: reduced over the axes of action 0,
 * 0: moved. */
void machine_check_targets(const Case *c, uint32_t npairs, uint32_t op, const char *what);

#endif
