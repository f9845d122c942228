/* The table of models, meshes and what else a user may ask for: see layouts.h.
 *
 * Sizes are small and mostly odd: heads, lengths, vocabularies, layers, experts and batches that
 * the mesh does not divide. The samples themselves want whole heads on each rank of tp; nothing
 * else. Every mesh of sizes 1 to 3 with at most 8 ranks is there (test_layouts_table).
 */
#include <stddef.h>

#include "e2e/layouts.h"

#define LLAMA                                                                                      \
  .source = "samples/llama/llama.dtm", .again = {"= blocks[i](h", "= recompute blocks[i](h"}
#define GPT2 .source = "samples/gpt2/gpt2.dtm", .again = {"= h[i](x", "= recompute h[i](x"}
#define MIXTRAL                                                                                    \
  .source = "samples/mixtral/mixtral.dtm", .again = {"= blocks[i](h", "= recompute blocks[i](h"}

#define PARTS(n) .flags = "-D microbatches=" #n
#define SCHEDULE(name, n) PARTS(n) " -D 'schedule=\"" name "\"'"
#define INTERLEAVED(n) SCHEDULE("interleaved", n) " -D chunks=2"

/* Clipping to 1 and AdamW both hide a factor that all gradients have in common, such as the number
 * of micro-batches. Here the norm is computed and divides nothing. */
#define FAR_FROM_CLIPPED                                                                           \
  { "clip_grad_norm 1.0", "clip_grad_norm 1000.0" }

/* Sequence parallel: activations between the layers are cut over tp too. */
#define SEQUENCE_PARALLEL                                                                          \
  {                                                                                                \
    {"-> f32[B@dp, S@(ring_cp, ulysses_cp), dim]",                                                 \
     "-> f32[B@dp, S@(ring_cp, ulysses_cp, tp), dim]"},                                            \
        {"return y.redistribute(tp: Replicate)", "return y.redistribute(tp: Shard(1))"},           \
        {"attention(attention_norm(x), memory)",                                                   \
         "attention(attention_norm(x).redistribute(tp: Replicate), memory)"},                      \
        {"mlp(mlp_norm(h))", "mlp(mlp_norm(h).redistribute(tp: Replicate))"},                      \
        {"embed(ids).redistribute(tp: Replicate)", "embed(ids).redistribute(tp: Shard(1))"}, {     \
      "h = norm(h.redistribute(mesh = last))",                                                     \
          "h = norm(h.redistribute(mesh = last)).redistribute(tp: Replicate)"                      \
    }                                                                                              \
  }

const LayoutsModel layouts_llama[] = {
    {LLAMA, .name = "llama, everything odd",
     .flags = "-D vocab=29 -D dim=24 -D layers=3 -D heads=6 -D kv_heads=3 -D ffn=20 -D batch=5 "
              "-D seq=13",
     .small = "-D layers=1 -D seq=7",
     .rows = {{"dp=2"},
              {"dp=3", .half = true},
              {"ulysses_cp=2"},
              {"ulysses_cp=3", .half = true},
              {"ring_cp=2", .half = true},
              {"ring_cp=3"},
              {"tp=3", .half = true},
              {"dp=2,ulysses_cp=2"},
              {"dp=2,ring_cp=2"},
              {"ulysses_cp=2,ring_cp=2"},
              {"dp=3,ulysses_cp=2"},
              {"dp=2,ulysses_cp=3"},
              {"dp=3,ring_cp=2"},
              {"dp=2,ring_cp=3"},
              {"dp=2,tp=3", .half = true},
              {"ulysses_cp=2,tp=3"},
              {"ulysses_cp=2,ring_cp=3"},
              {"ulysses_cp=3,ring_cp=2", .half = true},
              {"ring_cp=2,tp=3"},
              {"dp=2,ulysses_cp=2,ring_cp=2"}}},
    {LLAMA, .name = "llama, tied head, balanced ring",
     .flags = "-D vocab=31 -D dim=32 -D layers=2 -D heads=8 -D kv_heads=4 -D ffn=22 -D batch=4 "
              "-D seq=12 -D tied=true -D theta=500.0 -D rope_factor=8.0 -D trained=64",
     .small = "-D layers=1",
     .rows = {{"tp=2"},
              {"ring_cp=3"},
              {"dp=2,tp=2", .half = true},
              {"ring_cp=2,tp=2"},
              {"ulysses_cp=2,ring_cp=2", .half = true},
              {"dp=3,tp=2"},
              {"dp=2,ulysses_cp=2,tp=2"},
              {"dp=2,ring_cp=2,tp=2"},
              {"ulysses_cp=2,ring_cp=2,tp=2", .half = true}}},
    {LLAMA, .name = "llama, stages",
     .flags = "-D vocab=29 -D dim=24 -D layers=5 -D heads=12 -D kv_heads=6 -D ffn=20 -D batch=12 "
              "-D seq=11",
     .small = "-D layers=3 -D seq=5", .edits = {FAR_FROM_CLIPPED},
     .rows = {{"pp=2", SCHEDULE("gpipe", 1), .half = true},
              {"pp=2", INTERLEAVED(4)},
              {"pp=3", SCHEDULE("1f1b", 6), .again = true, .half = true},
              {"dp=2,pp=2", "store @dp", SCHEDULE("1f1b", 4)},
              {"pp=2,ulysses_cp=2", SCHEDULE("zero_bubble", 3)},
              {"pp=2,ring_cp=2", SCHEDULE("1f1b", 2), .again = true},
              {"pp=2,tp=2", INTERLEAVED(4), .half = true},
              {"dp=3,pp=2", "store gradients @dp", SCHEDULE("zero_bubble", 4)},
              {"dp=2,pp=3", "store optimizer @dp", SCHEDULE("zero_bubble", 4), .again = true},
              {"pp=2,tp=3", SCHEDULE("1f1b", 3), .again = true},
              {"pp=3,tp=2", SCHEDULE("zero_bubble", 6)},
              {"pp=2,ring_cp=3", SCHEDULE("zero_bubble", 3)},
              {"pp=3,ring_cp=2", SCHEDULE("1f1b", 1), .half = true}}},
    {NULL},
};

const LayoutsModel layouts_gpt2[] = {
    {GPT2, .name = "gpt2, everything odd",
     .flags = "-D vocab=29 -D dim=24 -D layers=3 -D heads=6 -D kv_heads=6 -D ffn=23 -D batch=5 "
              "-D seq=13 -D context=17 -D clip=0.0",
     .small = "-D layers=1 -D seq=7",
     .rows = {{"tp=3", .half = true},
              {"ring_cp=3", .half = true},
              {"dp=2,tp=2", "store @dp", .again = true},
              {"dp=3", "store gradients @dp"},
              {"ulysses_cp=2,tp=2"},
              {"ulysses_cp=3,tp=2"},
              {"ring_cp=3,tp=2"},
              {"ulysses_cp=2,ring_cp=2,tp=2", .half = true}}},
    {GPT2, .name = "gpt2, heads that no mesh divides",
     .flags = "-D vocab=37 -D dim=20 -D layers=2 -D heads=5 -D kv_heads=5 -D ffn=30 -D batch=3 "
              "-D seq=17 -D context=17",
     .small = "-D layers=1 -D seq=9",
     .rows = {{"ulysses_cp=2", .half = true},
              {"dp=2,ulysses_cp=3"},
              {"ulysses_cp=2,ring_cp=3", .half = true},
              {"dp=2,ulysses_cp=2,ring_cp=2"}}},
    {GPT2, .name = "gpt2, dropout, two batches a step",
     .flags = "-D vocab=29 -D dim=24 -D layers=2 -D heads=6 -D kv_heads=6 -D ffn=23 -D batch=3 "
              "-D seq=13 -D context=16 -D dropout=0.1",
     .small = "-D layers=1 -D seq=7", .train = "  accumulate 2",
     .rows = {{"dp=2", "store @dp", .again = true},
              {"tp=2", .again = true},
              {"ring_cp=2", .again = true, .half = true},
              {"ulysses_cp=2", "store @ulysses_cp"},
              {"dp=2,tp=3", "store gradients @dp", .half = true},
              {"ring_cp=3,tp=2"},
              {"ulysses_cp=3,ring_cp=2", .again = true},
              {"dp=2,ulysses_cp=2,ring_cp=2", "store gradients @dp", .again = true}}},
    {GPT2, .name = "gpt2, stages",
     .flags = "-D vocab=31 -D dim=24 -D layers=4 -D heads=6 -D kv_heads=6 -D ffn=23 -D batch=12 "
              "-D seq=9 -D context=16",
     .small = "-D layers=3 -D seq=7",
     .rows = {{"pp=2", SCHEDULE("zero_bubble", 4), .half = true},
              {"pp=3", SCHEDULE("zero_bubble", 6)},
              {"pp=2,ulysses_cp=3", SCHEDULE("1f1b", 4)},
              {"pp=3,ulysses_cp=2", SCHEDULE("gpipe", 6), .again = true},
              {"dp=2,pp=2,ulysses_cp=2", "store @dp", SCHEDULE("1f1b", 3), .again = true},
              {"dp=2,pp=2,ring_cp=2", "store gradients @dp", SCHEDULE("gpipe", 2)},
              {"dp=2,pp=2,tp=2", "store optimizer @dp", INTERLEAVED(4), .half = true},
              {"pp=2,ulysses_cp=2,ring_cp=2", SCHEDULE("1f1b", 4)},
              {"pp=2,ulysses_cp=2,tp=2", SCHEDULE("zero_bubble", 2), .again = true},
              {"pp=2,ring_cp=2,tp=2", SCHEDULE("1f1b", 4), .half = true}}},
    {NULL},
};

const LayoutsModel layouts_mixed[] = {
    {LLAMA, .name = "llama, one key head, what is kept and computed again",
     .flags = "-D vocab=29 -D dim=20 -D layers=2 -D heads=5 -D kv_heads=1 -D ffn=14 -D batch=6 "
              "-D seq=12",
     .small = "-D seq=6",
     .edits = {{"  clip_grad_norm 1.0\n", ""}}, /* updates need not wait for the norm */
     .rows = {{"dp=2", "store optimizer @dp"},
              {"dp=3", "store gradients @dp", .again = true, .half = true},
              {"dp=2", "store @dp", .again = true, .half = true},
              {"ulysses_cp=3", "store @ulysses_cp", .half = true},
              {"ring_cp=2", "store @ring_cp", .again = true},
              {"dp=2,ulysses_cp=2", "store @dp", .again = true},
              {"dp=2,ring_cp=2", "store gradients @dp", .half = true},
              {"dp=3,ring_cp=2", "store @dp", .again = true},
              {"dp=2,ring_cp=3", "store optimizer @dp"},
              {"dp=3,ulysses_cp=2", "store gradients @dp", .again = true},
              {"ulysses_cp=2,ring_cp=2", "store optimizer @ring_cp", .again = true},
              {"dp=2,ulysses_cp=2,ring_cp=2", "store @dp", .half = true},
              {"dp=1", PARTS(2), .again = true},
              {"dp=2", "store @dp", PARTS(3), .half = true},
              {"dp=3", "store gradients @dp", PARTS(2), .again = true},
              {"ring_cp=3", "store optimizer @ring_cp", PARTS(3)},
              {"ulysses_cp=2", PARTS(2), .again = true},
              {"ulysses_cp=2,ring_cp=3", PARTS(6), .half = true}}},
    {LLAMA, .name = "llama, sequence parallel",
     .flags = "-D vocab=31 -D dim=24 -D layers=2 -D heads=6 -D kv_heads=6 -D ffn=22 -D batch=6 "
              "-D seq=12 -D tied=true",
     .small = "-D seq=6", .edits = SEQUENCE_PARALLEL,
     .rows = {{"tp=2"},
              {"tp=3", "store optimizer @tp", .half = true},
              {"dp=2,tp=2", "store @dp", .again = true},
              {"dp=2,tp=3", "store gradients @dp", .half = true},
              {"dp=3,tp=2", "store optimizer @dp"},
              {"ulysses_cp=3,tp=2", .again = true},
              {"ring_cp=2,tp=2", .again = true, .half = true},
              {"ring_cp=3,tp=2", "store @ring_cp"},
              {"ring_cp=2,tp=3", PARTS(3)},
              {"dp=2,ring_cp=2,tp=2", "store @dp", PARTS(3), .again = true},
              {"dp=2,ulysses_cp=2,tp=2", "store gradients @dp", PARTS(3)},
              {"pp=2,tp=2", SCHEDULE("1f1b", 3), .again = true, .half = true},
              {"dp=2,pp=2,tp=2", "store @dp", SCHEDULE("zero_bubble", 2)}}},
    {NULL},
};

/* Who goes to which expert is a decision, which rounding to 8 bits takes otherwise here and there:
 * nothing bounds what comes of it, so no row is in bf16. */
const LayoutsModel layouts_experts[] = {
    {MIXTRAL, .name = "mixtral",
     .flags = "-D vocab=29 -D dim=24 -D layers=2 -D heads=6 -D kv_heads=6 -D ffn=14 -D experts=5 "
              "-D experts_per_token=2 -D capacity=0.9 -D batch=6 -D seq=8",
     .small = "-D layers=1", .edits = {FAR_FROM_CLIPPED},
     .rows = {{"ep=2"},
              {"ep=3", "store @ep"},
              {"dp=2,ep=2", "store @dp", .again = true},
              {"ulysses_cp=2,ep=2"},
              {"ring_cp=2,ep=2", .again = true},
              {"tp=2,ep=2"},
              {"pp=2,ep=2", PARTS(2)},
              {"dp=3,ep=2", "store gradients @dp"},
              {"dp=2,ep=3", "store optimizer @dp", PARTS(3)},
              {"ulysses_cp=3,ep=2", .again = true},
              {"ulysses_cp=2,ep=3", "store @ulysses_cp"},
              {"ring_cp=3,ep=2"},
              {"ring_cp=2,ep=3"},
              {"tp=3,ep=2", PARTS(2), .again = true},
              {"tp=2,ep=3"},
              {"pp=3,ep=2", SCHEDULE("zero_bubble", 6)},
              {"pp=2,ep=3", SCHEDULE("gpipe", 3), .again = true},
              {"dp=2,pp=2,ep=2", "store @dp", PARTS(3)},
              {"dp=2,ulysses_cp=2,ep=2"},
              {"dp=2,ring_cp=2,ep=2", "store gradients @dp", .again = true},
              {"dp=2,tp=2,ep=2", "store @dp"},
              {"pp=2,ulysses_cp=2,ep=2", SCHEDULE("zero_bubble", 2)},
              {"pp=2,ring_cp=2,ep=2", .again = true},
              {"pp=2,tp=2,ep=2", PARTS(2)},
              {"ulysses_cp=2,ring_cp=2,ep=2"},
              {"ulysses_cp=2,tp=2,ep=2", .again = true},
              {"ring_cp=2,tp=2,ep=2"}}},
    {NULL},
};

#define WHOLE_HEADS(more)                                                                          \
  .source = "samples/llama/llama.dtm", .why = "each rank of tp needs whole key and value heads",   \
  .flags = "-D dim=24 -D heads=6 -D kv_heads=3 " more

const LayoutsRefusal layouts_refused[] = {
    /* heads over tp */
    {WHOLE_HEADS(""), .row = {"tp=2"}},
    {WHOLE_HEADS("-D layers=2"), .row = {"dp=2,pp=2,tp=2", SCHEDULE("1f1b", 2)}},
    {WHOLE_HEADS(""), .row = {"ulysses_cp=2,ring_cp=2,tp=2"}},
    {.source = "samples/gpt2/gpt2.dtm",
     .flags = "-D dim=20 -D heads=5 -D kv_heads=5",
     .why = "each rank of tp needs whole heads",
     .row = {"tp=2"}},
    {.source = "samples/gpt2/gpt2.dtm",
     .flags = "-D kv_heads=6",
     .why = "GPT-2 has as many key and value heads as query heads",
     .row = {"dp=2"}},
    {.source = "samples/mixtral/mixtral.dtm",
     .flags = "-D dim=20 -D heads=5 -D kv_heads=5",
     .why = "each rank of tp needs whole key and value heads",
     .row = {"tp=2,ep=2"}},
    {.source = "samples/llama/llama.dtm",
     .flags = "-D heads=6 -D kv_heads=4",
     .why = "heads must be a multiple of kv_heads",
     .row = {"ulysses_cp=2"}},
    /* more positions than there are */
    {.source = "samples/gpt2/gpt2.dtm",
     .flags = "-D seq=32 -D context=31",
     .why = "the model knows fewer positions than the text is long",
     .row = {"ring_cp=2"}},
    /* parts of a batch */
    {.source = "samples/llama/llama.dtm",
     .flags = "",
     .why = "a batch of 16 does not divide into 3 micro-batches",
     .row = {"pp=2", PARTS(3)}},
    {.source = "samples/llama/llama.dtm",
     .flags = "",
     .why = "there is no schedule \"2f2b\"",
     .row = {"pp=2", SCHEDULE("2f2b", 4)}},
    /* pieces over a mesh dim that there is not */
    {.source = "samples/llama/llama.dtm",
     .flags = "",
     .why = "unknown name cp",
     .row = {"dp=2", "store @cp"}},
    {NULL},
};
