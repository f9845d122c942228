/* `dtmc fmt`: files in canonical form, to standard output or in place. */
#include <errno.h>
#include <string.h>

#include "driver/commands.h"
#include "syntax/ast.h"

int command_fmt(Session *s) {
  const StringList *files = &s->options.operands;
  bool write = option_given(&s->options, OPT_WRITE);
  if (!files->len) {
    fprintf(stderr, "dtmc: fmt needs a file: dtmc fmt [-w] FILE.dtm\n");
    return EXIT_USAGE;
  }
  for (uint32_t i = 0; i < files->len; i++) {
    uint32_t id = sources_read(&s->sources, files->data[i]);
    if (!id) {
      fprintf(stderr, "dtmc: cannot read %s: %s\n", files->data[i], strerror(errno));
      return EXIT_ERRORS;
    }
    StrBuf sb; /* a file with errors is left as it is */
    if (!ast_format(&s->arena, &s->names, &s->sink, id, &sb)) continue;
    const SourceFile *source = sources_get(&s->sources, id);
    bool same = sb.len == source->size && memcmp(sb.text, source->text, sb.len) == 0;
    if (write && same) continue;
    if (!session_write_file(s, write ? files->data[i] : "-", sb.text, sb.len)) return EXIT_ERRORS;
  }
  return session_finish(s);
}
