/* The image: what the compiler hands to the runtime beside the kernels' code.
 *
 * One flat, versioned, position-independent blob: a header, then tables of fixed-size records.
 * Records refer to each other by index and to strings by byte offset, never by pointer. Writer
 * (compiler/plan) and reader (runtime/abi/image.h) share the record types and the one list of
 * tables below, so they cannot drift; a signature over all record sizes and the version refuses an
 * image of another build.
 *
 * Index 0 of `type`, `mesh`, `sym` and offset 0 of `string` mean "none" / "". All other tables
 * start at 0. Everything here is the same for every rank: what differs between ranks (extents of
 * blocks, offsets, groups) follows from `type` records by the chunk rule of blocks.h at start.
 */
#ifndef DTM_RT_ABI_H
#define DTM_RT_ABI_H

#include <stddef.h>
#include <stdint.h>

#include "runtime/abi/lists.h"
#include "runtime/abi/sym.h"

enum { ABI_VERSION = 1, ABI_MAX_AXES = 8, ABI_MAX_DIMS = 8, ABI_ALIGN = 64 };
#define ABI_MAGIC 0x474d494d54440a1aull

typedef enum AbiDType {
  ABI_NONE = 0,
#define X(id, name, bytes, st) ABI_##id,
  ABI_DTYPES(X)
#undef X
      ABI_DTYPE_COUNT
} AbiDType;

size_t abi_dtype_bytes(uint32_t dtype);     /* 0 when there is no such type */
const char *abi_dtype_name(uint32_t dtype); /* "?" when there is no such type */

typedef enum AbiReduce {
  ABI_REDUCE_NONE = 0,
#define X(id, name) ABI_##id,
  ABI_REDUCES(X)
#undef X
      ABI_REDUCE_COUNT
} AbiReduce;

typedef enum AbiPlaceKind {
#define X(id) ABI_##id,
  ABI_PLACE_KINDS(X)
#undef X
} AbiPlaceKind;

/* Placement on one mesh axis; same bytes as the compiler's Place. */
typedef struct AbiPlace {
  uint8_t kind, dim, order, op;
} AbiPlace;

typedef struct AbiMesh {
  uint32_t name;
  uint32_t naxes;
  uint32_t axis[ABI_MAX_AXES]; /* strings */
  int64_t size[ABI_MAX_AXES];
  int64_t nranks;
  uint32_t ranks; /* `rank` table: row-major position -> world rank */
  uint32_t zero;
} AbiMesh;

typedef struct AbiType {
  uint32_t dtype, rank, mesh, zero;
  int64_t shape[ABI_MAX_DIMS]; /* global extents */
  AbiPlace at[ABI_MAX_AXES];
} AbiType;

/* A variable: lives in the arena at `offset` for the whole run. */
typedef enum AbiVarKind {
  ABI_VAR_NONE = 0,
#define X(id, name) ABI_VAR_##id,
  ABI_VAR_KINDS(X)
#undef X
} AbiVarKind;

typedef struct AbiVar {
  uint32_t kind;
  uint32_t name;
  uint32_t foreign_name; /* in files; 0 = name */
  uint32_t transposed;   /* files have the last dim first */
  uint32_t type;
  uint32_t param;  /* OPTIMIZER, ACCUMULATOR: index of the parameter it belongs to */
  int64_t chunks;  /* > 1: the extent of dim 0, which files merge with dim 1 */
  uint64_t offset; /* bytes in the arena */
  uint32_t source; /* "mlp.dtm:9:3" of the declaration */
  uint32_t zero;
} AbiVar;

/* Readers without a file: the run-time makes what they hold. VALID: bool [N], element i is true
 * when sample i / (N / batch) of the batch is real. SHARE: one float, the real samples of a batch
 * over the mean of those of the batches accumulated with it. */
#define ABI_READER_VALID "valid"
#define ABI_READER_SHARE "share"
/* The reader without a file that is the user's: `path` is a text, and every row of a batch holds
 * its bytes, then ABI_PROMPT_END. */
#define ABI_READER_PROMPT "prompt"
enum { ABI_PROMPT_END = -1 };

/* A source of batches of one program. */
typedef struct AbiSource {
  uint32_t program;
  uint32_t name;       /* for --data name=path */
  uint32_t reader;     /* "npy", "idx", "text", "bin", "raw", "prompt", or one of the above */
  uint32_t path;       /* as written; relative to the .dtm file's folder */
  uint32_t file_dtype; /* raw: stated, else 0 */
  uint32_t type;       /* one batch, dim 0 is the batch, with its placement */
  int64_t below;       /* integers must be in [0, below); 0 = unchecked */
  int64_t ignore;      /* ... or be this, if `ignores` */
  double scale;    /* value * scale when the batch is a float type and the file is not; 1 = none */
  double from, to; /* of n samples those from n * from to n * to, rounded down; to 0 = all */
  uint32_t source; /* "mlp.dtm:40:3" */
  uint32_t ignores;
} AbiSource;

typedef enum AbiRole {
  ABI_LOSS = 1,
  ABI_METRIC,
  ABI_PRINT,
  ABI_METRIC_SUM,   /* eval: added up over all batches ... */
  ABI_METRIC_COUNT, /* ... and divided by the sum of this output of the same name, where there is
                       one */
  ABI_TEXT,         /* infer: bytes, one row or several; what is negative is none */
  ABI_PRINT_ROWS,   /* the part of one micro-batch, on the ranks of its mesh; printed are all parts
                       of a batch one after the other along `dim` ... */
  ABI_PRINT_MEAN    /* ... or their mean */
} AbiRole;

/* A value handed out. It is Replicate when it arrives here (its gathering is part of the program).
 * All but prints are scalars; losses and metrics of training combine as the mean of batches. */
typedef struct AbiOutput {
  uint32_t program;
  uint32_t name;
  uint32_t role; /* AbiRole */
  uint32_t type;
  uint64_t offset; /* bytes in the arena */
  uint32_t source;
  uint32_t dim;
} AbiOutput;

typedef enum AbiProgramKind {
#define X(id, name) ABI_PROGRAM_##id,
  ABI_BLOCKS(X)
#undef X
      ABI_PROGRAM_COUNT
} AbiProgramKind;

const char *abi_program_name(uint32_t kind); /* as written in source; `kind` is one of the list */

/* A pipeline: each stage walks a list of entries, each of them the actions of one segment for one
 * micro-batch. Ranks that are in no stage have nothing to do meanwhile. */
typedef struct AbiSegment {
  uint32_t actions, nactions; /* counted from the first of the image */
} AbiSegment;

typedef struct AbiEntry {
  uint32_t segment, micro;
} AbiEntry;

typedef struct AbiStage {
  uint32_t mesh; /* its ranks */
  uint32_t entries, nentries;
  uint32_t zero;
} AbiStage;

/* Between two stages: a value that one side leaves in its outbox, of `slots` blocks `stride` bytes
 * apart, and the other takes, message by message in the order in which they come. */
typedef struct AbiChannel {
  uint64_t offset, stride; /* of the outbox in the arenas of the senders */
  uint32_t slots;
  uint32_t from, to; /* types; their meshes are those of the two stages */
  uint32_t zero;
} AbiChannel;

/* At this offset of each rank's arena there are two counts per channel: how many messages the rank
 * has left there and how many it has taken. */
enum { ABI_CHANNEL_BYTES = 8 };

/* The `program` table has ABI_PROGRAM_COUNT records; one without actions and `present` 0 is absent.
 * With accumulation n > 1 the actions of phases FORWARD and BACKWARD run n times, then the others
 * once; they stand in this order. With stages the first `prologue` actions run before each batch,
 * the `counted` behind them for each of its micro-batches, and the rest of the looped ones by the
 * lists of the stages. */
typedef struct AbiProgram {
  uint32_t present;
  uint32_t actions, nactions;
  uint32_t looped; /* FORWARD and BACKWARD end with the first `looped` actions; with one batch per
                      step the optimizer is among them where it can be */
  uint32_t prologue, counted;
  uint32_t stages, nstages; /* range of `stage`; 0 = no pipeline */
  int64_t microbatches;     /* of one batch; 1 where nothing is cut */
  int64_t batch;            /* global samples of one batch; 0 = no data source */
  int64_t steps, epochs;    /* steps 0 = by epochs; of infer: how often each batch runs, 0 = once */
  int64_t accumulate;       /* batches of one step */
  int64_t eval_every;       /* steps; 0 = at the end */
  int64_t save_every;       /* steps; 0 = at the end */
  uint32_t save;            /* path or 0 */
  uint32_t shuffle, drop_last;
  uint32_t loss;       /* index in `output` + 1; 0 = none */
  uint64_t live_bound; /* bytes: largest sum of live buffers, variables not counted */
  uint64_t height;     /* bytes used above the variables */
} AbiProgram;

typedef enum AbiActionKind {
  ABI_ACTION_NONE = 0,
  ABI_KERNEL, /* code = index in the kernel table; args: its ints; see AbiKernelFn */
  ABI_MATMUL, /* code = index in `matmul`; buffers a, b [, bias] [, addend], out */
  ABI_PULL, /* buffers src, dst [, src, dst ...], from and to types: ranks pull the blocks they lack
             */
  /* buffers src, dst [A, R, P, *], used [A, R] placed as dst: a pull of the first `used` rows of
   * each [A, R] alone; the others of dst become 0 */
  ABI_PULL_ROWS,
  ABI_START, /* code = PULL or REDUCE_SCATTER, buffers and axes those of the action it begins */
  ABI_ALL_REDUCE,     /* buffers src, dst [, src, dst ...]; axes, code = AbiReduce */
  ABI_REDUCE_SCATTER, /* likewise */
  ABI_SLICE,   /* buffers src, dst: local copy of this rank's block of dst out of that of src */
  ABI_FILL,    /* buffers src, dst; axes, code = AbiReduce: Replicate or Shard -> Partial, local */
  ABI_COPY,    /* buffers src, dst: same block */
  ABI_LIBRARY, /* code = AbiLibrary; args: its parameters, see runtime/device/cpu/library.h */
  ABI_INPUT,   /* code = index in `source`; buffers dst */
  ABI_OUTPUT,  /* code = index in `output`; buffers src */
  ABI_POST,    /* code = index in `channel`; buffers src, its outbox */
  ABI_TAKE,    /* code = index in `channel`; buffers the sender's outbox, dst */
  ABI_ACTION_COUNT
} AbiActionKind;

typedef enum AbiPhase {
#define X(id, name) ABI_##id,
  ABI_PHASES(X)
#undef X
} AbiPhase;

/* Library operators. `ints` after the name are the args. */
typedef enum AbiLibrary {
  ABI_LIB_NONE = 0,
  ABI_LIB_SORT,               /* x -> values, indices; dim, descending */
  ABI_LIB_TOPK,               /* x -> values, indices; dim, k */
  ABI_LIB_CUMSUM,             /* x -> y; dim, reverse */
  ABI_LIB_SCATTER_ADD,        /* x, index, source -> y; dim */
  ABI_LIB_EMBEDDING_BACKWARD, /* g, ids -> dweight; ids outside its block are skipped */
  ABI_LIB_SAME_AS,            /* x, first -> x; a fault where they differ */
  /* q, k, v, [positions of queries, of keys] -> out, lse; p, instance, causal, scale. Floats are
   * the bits of a double. */
  ABI_LIB_ATTENTION,
  /* g, q, k, v, out, lse, [positions] -> dq, dk, dv; as above */
  ABI_LIB_ATTENTION_BACKWARD,
  ABI_LIB_GROUPED_LINEAR,        /* x, weight, counts -> y; reverse */
  ABI_LIB_GROUPED_LINEAR_WEIGHT, /* g, x, counts -> dweight */
  ABI_LIB_COUNT
} AbiLibrary;

/* out[b.., m, n] = act(sum_k a[b.., m, k] * b[b.., k, n] + bias[n]) + addend[b.., m, n] with any
 * strides (in elements; 0 = broadcast). All fields but the flags are indices in `sym`. */
enum { ABI_MATMUL_BATCH = 6 };
typedef enum AbiActivation {
  ABI_ACT_NONE = 0,
  ABI_ACT_RELU,
  ABI_ACT_GELU, /* exact */
  ABI_ACT_GELU_TANH,
  ABI_ACT_SILU,
  ABI_ACT_TANH
} AbiActivation;

typedef struct AbiMatmul {
  uint32_t nbatch;
  uint32_t batch[ABI_MATMUL_BATCH];   /* extents */
  uint32_t a_batch[ABI_MATMUL_BATCH]; /* strides */
  uint32_t b_batch[ABI_MATMUL_BATCH];
  uint32_t out_batch[ABI_MATMUL_BATCH];
  uint32_t m, n, k;
  uint32_t a_m, a_k, b_k, b_n, out_m, out_n; /* strides */
  uint32_t bias;       /* 1: the next buffer is a contiguous [n], added first */
  uint32_t activation; /* AbiActivation, then applied */
  uint32_t addend;     /* 1: the next buffer, laid out like out, is added last; may be out itself */
} AbiMatmul;

/* An operand of an action: where it lies, and what it is there. */
typedef struct AbiBuffer {
  uint64_t offset; /* bytes in the arena; ABI_STEP_OFFSET for the step block */
  uint64_t stride; /* bytes from the block of one micro-batch to that of the next, */
  uint32_t slots;  /* micro-batch modulo this number; 0 or 1 = one block for all */
  uint32_t type;   /* 0 for the step block and scratch */
  uint32_t written;
  uint32_t scratch; /* memory without a type: its size at most, in units of ABI_ALIGN; else 0 */
} AbiBuffer;

typedef struct AbiAction {
  uint32_t kind;   /* AbiActionKind */
  uint32_t phase;  /* AbiPhase */
  uint32_t name;   /* operation, for messages: "linear", "all-reduce of grad layers.0.w" */
  uint32_t source; /* "mlp.dtm:14:13" */
  uint32_t mesh;   /* ranks outside it skip the action */
  uint32_t code;
  uint32_t axes;              /* bit set of mesh axes of a collective */
  uint32_t buffers, nbuffers; /* range of `buffer` */
  uint32_t args, nargs;       /* range of `arg`: indices in `sym` */
  uint32_t started; /* PULL, REDUCE_SCATTER: 0, or 1 + the index of the START that began it */
} AbiAction;

/* A generated kernel: tasks [begin, end) of [0, tasks). Tasks may run in any order on any thread;
 * results do not depend on how they are split.
 *   buffers  addresses of the action's buffers
 *   ints     the action's args evaluated for this rank */
typedef void AbiKernelFn(void *const *buffers, const int64_t *ints, int64_t begin, int64_t end);

/* Lies at arena offset 0; kernels that need it get it as a buffer. */
enum { ABI_STEP_OFFSET = 0, ABI_STEP_BYTES = 64 };
typedef struct AbiStep {
  uint64_t seed;
  int64_t step;  /* of the optimizer, from 0; value of the operator `step` */
  int64_t micro; /* which micro-batch of this batch */
  int64_t valid; /* samples of this batch that are not padding */
} AbiStep;

/* The one list of tables: X(name, record). */
#define ABI_TABLES(X)                                                                              \
  X(string, char)                                                                                  \
  X(mesh, AbiMesh)                                                                                 \
  X(rank, int32_t)                                                                                 \
  X(type, AbiType)                                                                                 \
  X(sym, RtSym)                                                                                    \
  X(var, AbiVar)                                                                                   \
  X(source, AbiSource)                                                                             \
  X(output, AbiOutput)                                                                             \
  X(program, AbiProgram)                                                                           \
  X(action, AbiAction)                                                                             \
  X(buffer, AbiBuffer)                                                                             \
  X(arg, uint32_t)                                                                                 \
  X(matmul, AbiMatmul)                                                                             \
  X(segment, AbiSegment)                                                                           \
  X(entry, AbiEntry)                                                                               \
  X(stage, AbiStage)                                                                               \
  X(channel, AbiChannel)

typedef struct AbiTable {
  uint64_t offset; /* bytes from the start of the image; 8-aligned */
  uint64_t count;  /* records */
} AbiTable;

typedef struct AbiHeader {
  uint64_t magic;
  uint32_t version, nkernels;
  uint64_t signature; /* abi_signature() of the writer */
  uint64_t size;      /* bytes of the whole image */
  uint64_t hash;      /* of the plan: all ranks of a run must agree */
  uint64_t seed;
  uint64_t arena_size;      /* bytes every rank maps */
  uint64_t persistent_size; /* step block and variables: [0, persistent_size) */
  uint32_t path;            /* of the .dtm file, absolute */
  uint32_t compiler;        /* "dtmc 0.1.0" */
  uint32_t world;           /* mesh of all ranks */
  uint32_t zero;
  uint64_t counts_offset; /* of the channels' counts, below persistent_size */
#define X(name, T) AbiTable name;
  ABI_TABLES(X)
#undef X
} AbiHeader;

/* Changes when a record or the list of tables changes. */
static inline uint64_t abi_signature(void) {
  uint64_t h = ABI_VERSION;
#define X(name, T) h = h * 0x100000001b3ull + sizeof(T);
  ABI_TABLES(X)
#undef X
  return h * 0x100000001b3ull + sizeof(AbiHeader) + ABI_ACTION_COUNT * 64 + ABI_LIB_COUNT;
}

/* What the object file of a compiled program defines. */
extern const unsigned char dtm_image[];
extern const uint64_t dtm_image_size;
extern AbiKernelFn *const dtm_kernels[];
extern const uint64_t dtm_kernels_count;
extern const char dtm_cpu_features[]; /* "+avx2,+fma": what the code needs of the machine */

#endif
