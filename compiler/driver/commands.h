/* The commands of dtmc. Each returns an exit code. */
#ifndef DTM_DRIVER_COMMANDS_H
#define DTM_DRIVER_COMMANDS_H

#include "driver/session.h"

int command_compile(Session *s);
int command_check(Session *s);
int command_verify(Session *s);
int command_explain(Session *s);
int command_fmt(Session *s);
int command_new(Session *s);
int command_lsp(Session *s);

/* Checks a program on the meshes of --mesh; what it finds is in the sink. False after a usage error,
 * which is printed. */
bool check_file(Session *s, const char *path);

/* `explain tensor`: how a tensor of the program at `path` is cut over its mesh; all tensors are
 * listed when `name` is NULL. */
int explain_tensor(Session *s, const char *name, const char *path);

#endif
