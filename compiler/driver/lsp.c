/* `dtmc lsp`: messages, documents and what is asked of them. See lsp.h. */
#include "driver/lsp.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/uri.h"
#include "driver/commands.h"

enum { PARSE_ERROR = -32700, INVALID_PARAMS = -32602, UNKNOWN_METHOD = -32601 };
enum { LONGEST = 1 << 28 }; /* of a message, in bytes */

/* --- messages ---- */

/* The body of the next message; NULL at the end of the input, or where it makes no sense. */
static char *read_message(void) {
  char line[256];
  long length = -1;
  while (fgets(line, sizeof line, stdin) && strcmp(line, "\r\n") != 0 && strcmp(line, "\n") != 0) {
    static const char header[] = "Content-Length:";
    if (strncasecmp(line, header, sizeof header - 1) == 0)
      length = strtol(line + sizeof header - 1, NULL, 10);
  }
  if (length < 0 || length > LONGEST) return NULL;
  char *body = malloc((size_t)length + 1);
  if (!body) abort();
  size_t n = fread(body, 1, (size_t)length, stdin);
  body[n] = 0;
  if (n == (size_t)length) return body;
  free(body);
  return NULL;
}

typedef struct Message {
  Arena arena;
  StrBuf text;
  JsonWriter j;
} Message;

static void message_begin(Message *m) {
  arena_init(&m->arena);
  strbuf_init(&m->text, &m->arena);
  json_init(&m->j, &m->text, true);
  json_begin_object(&m->j, NULL);
  json_text(&m->j, "jsonrpc", "2.0");
}

static void message_send(Message *m) {
  json_end(&m->j);
  printf("Content-Length: %zu\r\n\r\n%s", m->text.len, m->text.text);
  fflush(stdout);
  arena_free(&m->arena);
}

/* A request's number or name; null where it could not be read. */
static void put_id(JsonWriter *j, const json_t *id) {
  if (json_is_integer(id))
    json_int(j, "id", json_integer_value(id));
  else
    json_text(j, "id", json_string_value(id));
}

static void send_error(const json_t *id, int code, const char *what, const char *of) {
  Message m;
  message_begin(&m);
  put_id(&m.j, id);
  json_begin_object(&m.j, "error");
  json_int(&m.j, "code", code);
  json_text(&m.j, "message", arena_printf(&m.arena, "%s%s", what, of));
  json_end(&m.j);
  message_send(&m);
}

static void begin_answer(Message *m, const json_t *id) {
  message_begin(m);
  put_id(&m->j, id);
}

/* --- documents ---- */

static char *copy(const char *text) {
  char *c = strdup(text);
  if (!c) abort();
  return c;
}

static LspDocument *find(Lsp *l, const char *uri) {
  for (uint32_t i = 0; uri && i < l->ndocuments; i++)
    if (strcmp(l->documents[i].uri, uri) == 0) return &l->documents[i];
  return NULL;
}

static void close_document(Lsp *l, LspDocument *d) {
  free(d->uri);
  free(d->path);
  free(d->text);
  *d = l->documents[--l->ndocuments];
}

static void open_document(Lsp *l, const char *uri, const char *text) {
  Arena arena;
  arena_init(&arena);
  const char *path = uri && text ? uri_path(&arena, uri) : NULL;
  LspDocument *old = path ? find(l, uri) : NULL;
  if (old) close_document(l, old);
  if (path) {
    l->documents = realloc(l->documents, (l->ndocuments + 1) * sizeof *l->documents);
    if (!l->documents) abort();
    l->documents[l->ndocuments++] = (LspDocument){copy(uri), copy(path), copy(text)};
  }
  arena_free(&arena);
}

static void change_document(Lsp *l, const char *uri, const json_t *changes) {
  LspDocument *d = find(l, uri);
  const json_t *last = json_array_get(changes, json_array_size(changes) - 1);
  const char *text = json_string_value(json_object_get(last, "text")); /* of the whole document */
  if (!d || !text) return;
  free(d->text);
  d->text = copy(text);
}

/* --- diagnostics ---- */

static bool is_reported(const Lsp *l, const char *uri) {
  for (uint32_t i = 0; i < l->nreported; i++)
    if (strcmp(l->reported[i], uri) == 0) return true;
  return false;
}

static void send_diagnostics(const Session *s, uint32_t file, const char *uri) {
  Message m;
  message_begin(&m);
  json_text(&m.j, "method", "textDocument/publishDiagnostics");
  lsp_put_diagnostics(&m.j, s, file, uri);
  message_send(&m);
}

static bool has_diagnostics(const Session *s, uint32_t file) {
  for (uint32_t i = 0; i < s->sink.diags.len; i++)
    if (s->sink.diags.data[i]->span.file == file) return true;
  return false;
}

/* What all open documents say, of them and of the files that they import. */
static void report(Lsp *l) {
  Session s;
  char **before = l->reported;
  uint32_t nbefore = l->nreported;
  if (!lsp_begin(l, &s)) return;
  for (uint32_t i = 0; i < l->ndocuments; i++) check_file(&s, l->documents[i].path);
  l->reported = calloc(s.sources.files.len + 1, sizeof *l->reported);
  if (!l->reported) abort();
  l->nreported = 0;
  for (uint32_t file = 1; file <= s.sources.files.len; file++) {
    const char *path = sources_get(&s.sources, file)->path, *uri = NULL;
    for (uint32_t i = 0; i < l->ndocuments && !uri; i++)
      if (strcmp(l->documents[i].path, path) == 0) uri = l->documents[i].uri;
    if (!uri) uri = uri_of_path(&s.arena, path);
    if (!has_diagnostics(&s, file)) continue;
    send_diagnostics(&s, file, uri);
    l->reported[l->nreported++] = copy(uri);
  }
  for (uint32_t i = 0; i < nbefore; i++) {
    if (!is_reported(l, before[i])) send_diagnostics(&s, UINT32_MAX, before[i]);
    free(before[i]);
  }
  free(before);
  arena_free(&s.arena);
}

/* --- requests ---- */

static LspPlace place_of(const json_t *p) {
  json_int_t line = json_integer_value(json_object_get(p, "line"));
  json_int_t character = json_integer_value(json_object_get(p, "character"));
  return (LspPlace){line < 0 ? 0 : (uint32_t)line, character < 0 ? 0 : (uint32_t)character};
}

static void answer_initialize(const json_t *id) {
  Message m;
  begin_answer(&m, id);
  json_begin_object(&m.j, "result");
  json_begin_object(&m.j, "capabilities");
  json_int(&m.j, "textDocumentSync", 1); /* whole documents */
  json_begin_object(&m.j, "hoverProvider");
  json_end(&m.j);
  json_begin_object(&m.j, "codeActionProvider");
  json_end(&m.j);
  json_begin_object(&m.j, "documentFormattingProvider");
  json_end(&m.j);
  json_end(&m.j);
  json_begin_object(&m.j, "serverInfo");
  json_text(&m.j, "name", "dtmc");
  json_text(&m.j, "version", DTM_VERSION);
  json_end(&m.j);
  json_end(&m.j);
  message_send(&m);
}

static void answer_hover(Lsp *l, const json_t *id, const json_t *params, const LspDocument *d) {
  Message m;
  begin_answer(&m, id);
  lsp_put_hover(&m.j, l, d, lsp_offset(d->text, place_of(json_object_get(params, "position"))));
  message_send(&m);
}

static void answer_fixes(Lsp *l, const json_t *id, const json_t *params, const LspDocument *d) {
  const json_t *range = json_object_get(params, "range");
  size_t start = lsp_offset(d->text, place_of(json_object_get(range, "start")));
  size_t end = lsp_offset(d->text, place_of(json_object_get(range, "end")));
  Session s;
  if (!lsp_begin(l, &s)) return;
  check_file(&s, d->path);
  Message m;
  begin_answer(&m, id);
  lsp_put_fixes(&m.j, &s, d, start, end);
  message_send(&m);
  arena_free(&s.arena);
}

static void answer_formatting(Lsp *l, const json_t *id, const LspDocument *d) {
  Message m;
  begin_answer(&m, id);
  lsp_put_formatting(&m.j, l, d);
  message_send(&m);
}

static void answer_null(const json_t *id) {
  Message m;
  begin_answer(&m, id);
  json_text(&m.j, "result", NULL);
  message_send(&m);
}

static void answer(Lsp *l, const char *method, const json_t *id, const json_t *params) {
  const json_t *document = json_object_get(params, "textDocument");
  const char *uri = json_string_value(json_object_get(document, "uri"));
  const LspDocument *d = find(l, uri);
  if (strcmp(method, "initialize") == 0) {
    answer_initialize(id);
  } else if (strcmp(method, "shutdown") == 0) {
    l->stopping = true;
    answer_null(id);
  } else if (strncmp(method, "textDocument/", 13) == 0 && !d) {
    send_error(id, INVALID_PARAMS, "no such document is open: ", uri ? uri : "none named");
  } else if (strcmp(method, "textDocument/hover") == 0) {
    answer_hover(l, id, params, d);
  } else if (strcmp(method, "textDocument/codeAction") == 0) {
    answer_fixes(l, id, params, d);
  } else if (strcmp(method, "textDocument/formatting") == 0) {
    answer_formatting(l, id, d);
  } else {
    send_error(id, UNKNOWN_METHOD, "dtmc knows no ", method);
  }
}

/* What wants no answer. */
static void note(Lsp *l, const char *method, const json_t *params) {
  const json_t *document = json_object_get(params, "textDocument");
  const char *uri = json_string_value(json_object_get(document, "uri"));
  if (strcmp(method, "textDocument/didOpen") == 0)
    open_document(l, uri, json_string_value(json_object_get(document, "text")));
  else if (strcmp(method, "textDocument/didChange") == 0)
    change_document(l, uri, json_object_get(params, "contentChanges"));
  else if (strcmp(method, "textDocument/didClose") == 0 && find(l, uri))
    close_document(l, find(l, uri));
  else if (strcmp(method, "textDocument/didSave") != 0)
    return; /* nothing to say: what is not known may be ignored */
  report(l);
}

int command_lsp(Session *s) {
  Lsp l = {.given = s};
  if (s->options.operands.len) {
    fprintf(stderr, "dtmc: lsp takes no file; an editor starts it, and names them\n");
    return EXIT_USAGE;
  }
  SemaOptions sema; /* says what is wrong with --mesh and -D before an editor waits */
  if (!session_sema_options(s, "", NULL, &sema)) return EXIT_USAGE;
  bool ended = false;
  for (char *body; !ended && (body = read_message());) {
    json_t *message = json_loads(body, 0, NULL);
    const char *method = json_string_value(json_object_get(message, "method"));
    const json_t *id = json_object_get(message, "id"), *params = json_object_get(message, "params");
    if (!message)
      send_error(NULL, PARSE_ERROR, "the message is no JSON", "");
    else if (method && strcmp(method, "exit") == 0)
      ended = true;
    else if (method && id)
      answer(&l, method, id, params);
    else if (method)
      note(&l, method, params);
    json_decref(message);
    free(body);
  }
  while (l.ndocuments) close_document(&l, &l.documents[0]);
  for (uint32_t i = 0; i < l.nreported; i++) free(l.reported[i]);
  free(l.documents);
  free(l.reported);
  return ended && l.stopping ? EXIT_OK : EXIT_ERRORS;
}
