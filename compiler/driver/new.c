/* `dtmc new`: a program to begin with, that of stdlib/starter under another name. */
#include <errno.h>
#include <string.h>
#include <sys/stat.h>

#include "driver/commands.h"

/* `text` with the name in place of the starter's. */
static const char *renamed(Session *s, const char *text, const char *name) {
  static const char old[] = "starter.";
  StrBuf out;
  strbuf_init(&out, &s->arena);
  for (const char *at; (at = strstr(text, old)); text = at + sizeof old - 1) {
    strbuf_put_n(&out, text, (size_t)(at - text));
    strbuf_printf(&out, "%s.", name);
  }
  strbuf_puts(&out, text);
  return out.text;
}

/* A name that needs no quotes in a shell, in a make rule or in a string of the language. */
static bool is_plain(const char *name) {
  static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-.";
  return *name && *name != '-' && *name != '.' && strspn(name, letters) == strlen(name);
}

int command_new(Session *s) {
  const StringList *operands = &s->options.operands;
  if (operands->len != 1) {
    fprintf(stderr, "dtmc: new takes the name of one program: dtmc new NAME.dtm\n");
    return EXIT_USAGE;
  }
  const char *path = operands->data[0], *slash = strrchr(path, '/');
  const char *name = slash ? slash + 1 : path;
  size_t length = strlen(name);
  bool ends = length > 4 && strcmp(name + length - 4, ".dtm") == 0;
  name = arena_strndup(&s->arena, name, ends ? length - 4 : length);
  if (!is_plain(name)) {
    fprintf(
        stderr,
        "dtmc: '%s' is no name for a program: letters, digits, _, - and points, a letter, digit "
        "or _ first\n",
        name);
    return EXIT_USAGE;
  }
  if (!ends) path = arena_printf(&s->arena, "%s.dtm", path);
  struct stat there;
  if (lstat(path, &there) == 0) {
    fprintf(stderr, "dtmc: %s is there already; it stays as it is\n", path);
    return EXIT_ERRORS;
  }
  const char *starter = arena_printf(&s->arena, "%s/starter/starter.dtm", s->stdlib);
  uint32_t id = sources_read(&s->sources, starter);
  if (!id) {
    fprintf(stderr, "dtmc: cannot read %s: %s; install dtmc anew\n", starter, strerror(errno));
    return EXIT_ERRORS;
  }
  const char *text = renamed(s, sources_get(&s->sources, id)->text, name);
  if (!session_write_file(s, path, text, strlen(text))) return EXIT_ERRORS;
  printf("wrote %s; now: dtmc %s -o train && ./train\n", path, path);
  return EXIT_OK;
}
