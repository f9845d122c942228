/* `dtmc explain tensor --format=json`: everything the table says, of every rank. */
#include "base/json.h"
#include "report/cut.h"

/* Lists of numbers, and the rows of ranks, stand on one line each. */
static void put_ints(JsonWriter *j, const char *key, const int64_t *n, uint32_t len) {
  bool compact = j->compact;
  json_begin_array(j, key);
  j->compact = true;
  for (uint32_t i = 0; i < len; i++) json_int(j, NULL, n[i]);
  json_end(j);
  j->compact = compact;
}

static void put_mesh(JsonWriter *j, const Mesh *mesh) {
  json_begin_array(j, "mesh");
  for (uint32_t a = 0; a < mesh->naxes; a++) {
    json_begin_object(j, NULL);
    json_text(j, "name", mesh->axis[a]);
    json_int(j, "size", mesh->size[a]);
    json_end(j);
  }
  json_end(j);
}

static void put_placements(Arena *arena, JsonWriter *j, const TensorType *t) {
  json_begin_object(j, "placements");
  for (uint32_t a = 0; a < t->mesh->naxes; a++)
    json_text(j, t->mesh->axis[a], place_print(arena, t->layout.at[a]));
  json_end(j);
}

static void put_dims(JsonWriter *j, const Cut *c) {
  json_begin_array(j, "dims");
  for (uint32_t d = 0; d < c->type.rank; d++) {
    json_begin_object(j, NULL);
    json_int(j, "extent", c->type.shape[d]);
    json_begin_array(j, "cut_by"); /* outer first */
    for (uint32_t k = 0; k < c->naxes[d]; k++)
      json_text(j, NULL, c->type.mesh->axis[c->axes[d][k]]);
    json_end(j);
    json_end(j);
  }
  json_end(j);
}

static void put_ranks(JsonWriter *j, const Cut *c) {
  const Mesh *mesh = c->type.mesh;
  json_begin_array(j, "ranks");
  for (int64_t p = 0; p < mesh->nranks; p++) {
    CutRank r = cut_rank(c, p);
    json_begin_object(j, NULL);
    j->compact = true;
    json_int(j, "rank", r.rank);
    put_ints(j, "coordinates", r.coord, mesh->naxes);
    put_ints(j, "shape", r.shape, c->type.rank);
    put_ints(j, "offset", r.offset, c->type.rank);
    json_int(j, "bytes", r.bytes);
    json_int(j, "owner", r.owner);
    json_int(j, "copy", r.copy);
    json_int(j, "copies", r.copies);
    json_int(j, "addend", r.addend);
    json_int(j, "addends", r.addends);
    json_end(j);
    j->compact = false;
  }
  json_end(j);
}

void report_json(Arena *arena, StrBuf *out, const TensorReport *r) {
  Cut c = cut_of(r->type);
  CutTable table = cut_table(arena, &c);
  JsonWriter j;
  json_init(&j, out, false);
  json_begin_object(&j, NULL);
  json_text(&j, "name", r->name);
  json_text(&j, "kind", r->what);
  json_text(&j, "type", type_print(arena, r->type));
  json_text(&j, "dtype", dtype_name(r->type->dtype));
  put_ints(&j, "shape", r->type->shape, r->type->rank);
  json_begin_array(&j, "places");
  for (uint32_t i = 0; i < r->places.len; i++) json_text(&j, NULL, r->places.data[i]);
  json_end(&j);
  put_mesh(&j, c.type.mesh);
  put_placements(arena, &j, &c.type);
  put_dims(&j, &c);
  json_begin_object(&j, "bytes");
  json_int(&j, "full", type_elements(r->type) * (int64_t)dtype_bytes(r->type->dtype));
  json_int(&j, "most", table.most);
  json_int(&j, "least", table.least);
  json_int(&j, "total", table.total);
  json_end(&j);
  json_text(&j, "partial", report_partial(arena, r));
  put_ranks(&j, &c);
  json_end(&j);
}
