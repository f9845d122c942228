/* Work in a folder of temporary files that is gone afterwards, whatever ends the work. */
#ifndef DTM_DRIVER_PRIVATE_FOLDER_H
#define DTM_DRIVER_PRIVATE_FOLDER_H

#include "driver/session.h"

/* Does the work in a process of its own, of which this one is the guard: it returns with the
 * worker's code when all that came of the worker has ended, and the folder is removed. A signal
 * that is to end this process ends those first. */
int private_folder_run(Session *s, int (*work)(Session *s, const char *folder));

#endif
