/* libFuzzer target: the image of a small program with damage. Any bytes as records of a place and a
 * value that is laid over it; what is accepted is then followed as the runtime would: names,
 * meshes, the blocks of every rank, run-time integers, the operands of every action.
 *
 * The image is made anew by the compiler at hand, so that no stored one grows old. */
#include <stdlib.h>
#include <string.h>

#include "driver/pipeline.h"
#include "runtime/abi/blocks.h"
#include "runtime/abi/image.h"
#include "runtime/abi/sym.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char source[] = "mesh world(dp = 2, tp = 2)\n"
                             "module M() {\n"
                             "  param w: f32[6@tp, 5] = normal(std = 0.1)\n"
                             "  param b: f32[6@tp]\n"
                             "  param v: f32[3, 6@tp] = normal(std = 0.1)\n"
                             "  forward(x: f32[B@dp, 5]) -> f32[B@dp, 3] {\n"
                             "    let h = relu(linear(x, w, b))\n"
                             "    return linear(h, v).redistribute(tp: Replicate)\n"
                             "  }\n"
                             "}\n"
                             "train {\n"
                             "  data x = npy(\"x.npy\", f32[7@dp, 5])\n"
                             "  data y = npy(\"y.npy\", i64[7@dp])\n"
                             "  model m = M()\n"
                             "  loss cross_entropy(m(x), y)\n"
                             "  optimizer adamw(lr = 0.1)\n"
                             "  steps 3\n"
                             "}\n";

typedef struct Bytes {
  unsigned char *data;
  size_t size;
} Bytes;

static Bytes make_image(void) {
  static Session s; /* lives as long as the process, as dtmc's own */
  arena_init(&s.arena);
  interner_init(&s.names, &s.arena);
  sources_init(&s.sources, &s.arena);
  diag_init(&s.sink, &s.arena, &s.sources);
  sources_add(&s.sources, "fuzz.dtm", source, sizeof source - 1);
  Compilation c = {.session = &s, .sema = {.main_path = "fuzz.dtm", .stdlib = DTM_STDLIB}};
  strbuf_init(&c.emitted, &s.arena);
  c.plans = plan_cache_new(&s.arena);
  if (!pipeline_run(&c, STAGE_PLAN)) {
    diag_render(&s.sink, stderr, DIAG_TEXT, false);
    abort();
  }
  Bytes image = {aligned_alloc(64, (c.plan->image_size + 63) / 64 * 64), c.plan->image_size};
  memcpy(image.data, c.plan->image, image.size);
  arena_free(&s.arena);
  return image;
}

static size_t sum; /* so that what is read counts as used */

static void follow_type(const Image *im, uint64_t type) {
  if (type == 0) return;
  const AbiType *t = &im->type[type];
  const AbiMesh *mesh = abi_type_mesh(im, t);
  for (int64_t p = 0; p < mesh->nranks; p++) {
    int64_t coord[ABI_MAX_AXES], offset[ABI_MAX_DIMS], extent[ABI_MAX_DIMS];
    abi_coords(mesh, p, coord);
    abi_block(t, mesh, coord, offset, extent);
    sum += (size_t)(abi_position(mesh, coord) != p) + abi_dtype_bytes(t->dtype);
  }
}

static void follow_syms(const Image *im) {
  int64_t *values = calloc(im->sym_count, sizeof *values);
  for (uint64_t i = 0; i < im->sym_count; i++) {
    static const int64_t first[ABI_MAX_AXES];
    values[i] = rt_sym_eval(&im->sym[i], values, first);
  }
  for (uint64_t i = 0; i < im->arg_count; i++) sum += (size_t)values[im->arg[i]];
  free(values);
}

static void follow_text(const Image *im, uint32_t string) {
  sum += strlen(abi_text(im, string));
}

static void follow(const Image *im) {
  for (uint64_t i = 1; i < im->type_count; i++) follow_type(im, i);
  follow_syms(im);
  follow_text(im, im->header->path);
  for (uint64_t i = 0; i < im->var_count; i++) {
    follow_text(im, im->var[i].name);
    follow_text(im, im->var[i].foreign_name);
    follow_text(im, im->var[i].source);
    follow_type(im, im->var[i].type);
  }
  for (uint64_t i = 0; i < im->source_count; i++) {
    follow_text(im, im->source[i].name);
    follow_text(im, im->source[i].reader);
    follow_text(im, im->source[i].path);
    follow_type(im, im->source[i].type);
  }
  for (uint64_t i = 0; i < im->output_count; i++) {
    follow_text(im, im->output[i].name);
    follow_type(im, im->output[i].type);
  }
  for (uint64_t i = 0; i < im->program_count; i++)
    for (uint64_t k = 0; k < im->program[i].nactions; k++) {
      const AbiAction *a = &im->action[im->program[i].actions + k];
      follow_text(im, a->name);
      follow_text(im, a->source);
      for (uint64_t b = 0; b < a->nbuffers; b++) follow_type(im, im->buffer[a->buffers + b].type);
      for (uint64_t n = 0; n < a->nargs; n++) sum += im->arg[a->args + n];
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static Bytes whole;
  if (!whole.data) whole = make_image();
  /* An allocation of exactly its size, for AddressSanitizer to see its end. */
  unsigned char *image = malloc(whole.size);
  memcpy(image, whole.data, whole.size);
  enum { RECORD = 4, WIDE = 12 }; /* place (16 bits), width - 1, then one byte or eight */
  while (size >= RECORD) {
    size_t at = (size_t)(data[0] | data[1] << 8) % (whole.size / 4) * 4;
    size_t width = data[2] % 4 == 0 && size >= WIDE ? 8 : data[2] % 4 == 1 ? 1 : 4, used = RECORD;
    if (width == 8) used = WIDE;
    if (at + width > whole.size) at = whole.size - width;
    if (width == 4) {
      int32_t value = (int8_t)data[3]; /* small numbers, also below 0 */
      memcpy(image + at, &value, sizeof value);
    } else {
      memcpy(image + at, data + (width == 8 ? 4 : 3), width);
    }
    data += used;
    size -= used;
  }
  Image im;
  if (!abi_image_open(image, whole.size, &im)) follow(&im);
  free(image);
  return 0;
}
