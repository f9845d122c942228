/* --format=sarif against the standard: SARIF 2.1.0 (OASIS), sections 3.13 to 3.52, of which the
 * table below says what dtmc writes. An object has no properties but those of its section, and all
 * that it must have; types, enumerations and limits are those of the standard's schema.
 *
 * Over the diagnostics of every program of check/. */
#include <check.h>
#include <dirent.h>
#include <jansson.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "support/suite.h"

typedef enum Type {
  TEXT = 1, /* one of `of`, separated by |, where that is given */
  URI,      /* a relative or absolute reference */
  NUMBER,   /* an integer, at least `least` */
  OBJECT,   /* of the kind `of` */
  LIST,     /* of objects of that kind */
  SET,      /* the same, all different */
  TEXTS     /* an object with strings under names of its own */
} Type;

typedef struct Property {
  const char *kind, *name;
  bool needed;
  Type type;
  const char *of;
  int least;
} Property;

#define LEVELS "none|note|warning|error"
static const Property properties[] = {
    {"log", "$schema", false, URI, NULL, 0},
    {"log", "version", true, TEXT, "2.1.0", 0},
    {"log", "runs", true, LIST, "run", 0},
    {"run", "tool", true, OBJECT, "tool", 0},
    {"run", "columnKind", false, TEXT, "utf16CodeUnits|unicodeCodePoints", 0},
    {"run", "results", false, LIST, "result", 0},
    {"tool", "driver", true, OBJECT, "component", 0},
    {"component", "name", true, TEXT, NULL, 0},
    {"component", "version", false, TEXT, NULL, 0},
    {"component", "rules", false, SET, "rule", 0},
    {"rule", "id", true, TEXT, NULL, 0},
    {"rule", "name", false, TEXT, NULL, 0},
    {"rule", "shortDescription", false, OBJECT, "message", 0},
    {"rule", "fullDescription", false, OBJECT, "message", 0},
    {"rule", "defaultConfiguration", false, OBJECT, "configuration", 0},
    {"configuration", "level", false, TEXT, LEVELS, 0},
    {"message", "text", true, TEXT, NULL, 0},
    {"result", "ruleId", false, TEXT, NULL, 0},
    {"result", "ruleIndex", false, NUMBER, NULL, -1},
    {"result", "level", false, TEXT, LEVELS, 0},
    {"result", "message", true, OBJECT, "message", 0},
    {"result", "locations", false, LIST, "location", 0},
    {"result", "relatedLocations", false, SET, "location", 0},
    {"result", "partialFingerprints", false, TEXTS, NULL, 0},
    {"location", "id", false, NUMBER, NULL, -1},
    {"location", "physicalLocation", false, OBJECT, "place", 0},
    {"location", "message", false, OBJECT, "message", 0},
    {"place", "artifactLocation", true, OBJECT, "artifact", 0},
    {"place", "region", false, OBJECT, "region", 0},
    {"artifact", "uri", true, URI, NULL, 0},
    {"region", "startLine", true, NUMBER, NULL, 1},
    {"region", "startColumn", false, NUMBER, NULL, 1},
    {"region", "endLine", false, NUMBER, NULL, 1},
    {"region", "endColumn", false, NUMBER, NULL, 1},
};
enum { NPROPERTIES = sizeof properties / sizeof *properties };

static char wrong[512];

static bool says_no(const char *kind, const char *name, const char *what) {
  if (!*wrong) snprintf(wrong, sizeof wrong, "%s.%s: %s", kind, name, what);
  return false;
}

static bool among(const char *words, const char *word) {
  size_t n = strlen(word);
  for (const char *w = words; *w; w += strcspn(w, "|"), w += *w == '|')
    if (strcspn(w, "|") == n && memcmp(w, word, n) == 0) return true;
  return false;
}

/* RFC 3986: no other characters, and % only before two hexadecimal digits. */
static bool is_uri(const char *s) {
  static const char allowed[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
                                "-._~:/?#[]@!$&'()*+,;=%";
  for (const char *c = s; *c; c++)
    if (!strchr(allowed, *c) || (*c == '%' && strspn(c + 1, "0123456789ABCDEFabcdef") < 2))
      return false;
  return *s != 0;
}

static bool check_object(const char *kind, json_t *o);

static bool check_list(const Property *p, json_t *list) {
  if (!json_is_array(list)) return says_no(p->kind, p->name, "is no array");
  size_t i;
  json_t *x;
  json_array_foreach(list, i, x) {
    if (!check_object(p->of, x)) return false;
    for (size_t k = 0; p->type == SET && k < i; k++)
      if (json_equal(json_array_get(list, k), x)) return says_no(p->kind, p->name, "has one twice");
  }
  return true;
}

static bool check_value(const Property *p, json_t *v) {
  const char *text = json_string_value(v), *key;
  json_t *x;
  switch (p->type) {
  case TEXT:
    if (!text || !*text) return says_no(p->kind, p->name, "is no text");
    return !p->of || among(p->of, text) || says_no(p->kind, p->name, text);
  case URI:
    return (text && is_uri(text)) || says_no(p->kind, p->name, "is no URI reference");
  case NUMBER:
    if (!json_is_integer(v)) return says_no(p->kind, p->name, "is no integer");
    return json_integer_value(v) >= p->least || says_no(p->kind, p->name, "is too small");
  case OBJECT:
    return check_object(p->of, v);
  case LIST:
  case SET:
    return check_list(p, v);
  case TEXTS:
    if (!json_is_object(v)) return says_no(p->kind, p->name, "is no object");
    json_object_foreach(v, key, x) if (!json_is_string(x)) return says_no(p->kind, p->name, key);
    return true;
  }
  return false;
}

static bool check_object(const char *kind, json_t *o) {
  if (!json_is_object(o)) return says_no(kind, "", "is no object");
  const char *name;
  json_t *v;
  json_object_foreach(o, name, v) {
    const Property *p = NULL;
    for (int i = 0; i < NPROPERTIES && !p; i++)
      if (strcmp(properties[i].kind, kind) == 0 && strcmp(properties[i].name, name) == 0)
        p = &properties[i];
    if (!p) return says_no(kind, name, "is not in the standard, or not in this table yet");
    if (!check_value(p, v)) return false;
  }
  for (int i = 0; i < NPROPERTIES; i++)
    if (properties[i].needed && strcmp(properties[i].kind, kind) == 0 &&
        !json_object_get(o, properties[i].name))
      return says_no(kind, properties[i].name, "is missing");
  return true;
}

/* What the schema cannot say: a result's rule is the one at its index, and a region does not end
 * before it begins. Returns the number of results. */
static size_t check_results(json_t *run) {
  json_t *driver = json_object_get(json_object_get(run, "tool"), "driver");
  json_t *rules = json_object_get(driver, "rules"), *results = json_object_get(run, "results");
  size_t i, k;
  json_t *result, *location;
  json_array_foreach(results, i, result) {
    json_int_t index = json_integer_value(json_object_get(result, "ruleIndex"));
    json_t *rule = json_array_get(rules, (size_t)index);
    ck_assert_ptr_nonnull(rule);
    ck_assert(json_equal(json_object_get(rule, "id"), json_object_get(result, "ruleId")));
    json_array_foreach(json_object_get(result, "locations"), k, location) {
      json_t *region = json_object_get(json_object_get(location, "physicalLocation"), "region");
      json_int_t a = json_integer_value(json_object_get(region, "startLine"));
      json_int_t b = json_integer_value(json_object_get(region, "endLine"));
      ck_assert_int_ge(b, a);
      if (a == b)
        ck_assert_int_gt(json_integer_value(json_object_get(region, "endColumn")),
                         json_integer_value(json_object_get(region, "startColumn")));
    }
  }
  return json_array_size(results);
}

static size_t check_program(const char *path) {
  char command[1024];
  snprintf(command, sizeof command, "'%s' check '%s' --format=sarif 2>/dev/null", getenv("DTMC"),
           path);
  FILE *p = popen(command, "r");
  ck_assert_ptr_nonnull(p);
  json_error_t error;
  json_t *log = json_loadf(p, JSON_REJECT_DUPLICATES, &error);
  pclose(p);
  ck_assert_msg(log != NULL, "%s: %s", path, error.text);
  *wrong = 0;
  ck_assert_msg(check_object("log", log), "%s: %s", path, wrong);
  json_t *runs = json_object_get(log, "runs");
  ck_assert_int_eq(json_array_size(runs), 1);
  size_t n = check_results(json_array_get(runs, 0));
  json_decref(log);
  return n;
}

START_TEST(programs) {
  DIR *dir = opendir("check");
  ck_assert_ptr_nonnull(dir);
  size_t results = 0, files = 0;
  for (struct dirent *e; (e = readdir(dir));) {
    char path[512];
    size_t n = strlen(e->d_name);
    if (n < 5 || strcmp(e->d_name + n - 4, ".dtm") != 0) continue;
    snprintf(path, sizeof path, "check/%s", e->d_name);
    results += check_program(path);
    files++;
  }
  closedir(dir);
  ck_assert_uint_gt(files, 10);
  ck_assert_uint_gt(results, 200);
}
END_TEST

/* A name that is no URI as it stands, and a file that is not there. */
START_TEST(names) {
  char dir[] = "/tmp/dtm-sarif-XXXXXX", path[128];
  ck_assert_ptr_nonnull(mkdtemp(dir));
  snprintf(path, sizeof path, "%s/a b%%\xc3\xa9#.dtm", dir);
  FILE *f = fopen(path, "w");
  fputs("mesh world(a = 2)\nlet x = gelu(\n", f);
  fclose(f);
  ck_assert_uint_gt(check_program(path), 0);
  remove(path);
  ck_assert_uint_gt(check_program(path), 0);
  remove(dir);
}
END_TEST

/* The table says no where it should. */
START_TEST(faults) {
  static const char *const bad[] = {
      "{\"version\": \"2.1.0\"}",
      "{\"version\": \"2.0.0\", \"runs\": []}",
      "{\"version\": \"2.1.0\", \"runs\": [{}]}",
      "{\"version\": \"2.1.0\", \"runs\": [], \"extra\": 1}",
      "{\"version\": \"2.1.0\", \"runs\": [{\"tool\": {\"driver\": {\"name\": \"\"}}}]}",
      "{\"version\": \"2.1.0\", \"runs\": [{\"tool\": {\"driver\": {\"name\": \"d\", \"rules\": "
      "[{\"id\": \"a\"}, {\"id\": \"a\"}]}}}]}",
      "{\"version\": \"2.1.0\", \"runs\": [{\"tool\": {\"driver\": {\"name\": \"d\"}}, "
      "\"results\": [{\"message\": {\"text\": \"t\"}, \"level\": \"fatal\"}]}]}"};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    json_t *log = json_loads(bad[i], 0, NULL);
    ck_assert_msg(!check_object("log", log), "%s", bad[i]);
    json_decref(log);
  }
  ck_assert(!is_uri("a b") && !is_uri("a%2") && !is_uri("\xc3\xa9") && is_uri("a%20b/c.dtm"));
}
END_TEST

int main(void) {
  if (!getenv("DTMC")) return 2;
  TCase *c = tcase_create("sarif");
  tcase_set_timeout(c, 60);
  tcase_add_test(c, programs);
  tcase_add_test(c, names);
  tcase_add_test(c, faults);
  Suite *s = suite_create("SARIF 2.1.0");
  suite_add_tcase(s, c);
  return suite_run(s);
}
