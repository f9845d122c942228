/* Standard input, output and error, which a caller may have closed (`>&-`).
 *
 * The next file opened would take their numbers, and what is printed would go into it: into a
 * checkpoint, or into the memory that ranks share.
 */
#ifndef DTM_ABI_STANDARD_FILES_H
#define DTM_ABI_STANDARD_FILES_H

#include <fcntl.h>
#include <unistd.h>

/* First of all in main. A closed one stays unusable, reading and writing fail as before; what fails
 * is only the number's use for something else. */
static inline void abi_hold_standard_files(void) {
  for (int fd = STDIN_FILENO; fd <= STDERR_FILENO; fd++)
    if (fcntl(fd, F_GETFD) < 0) {
      /* the lowest free number is this one */
      int held = open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY);
      if (held > STDERR_FILENO) close(held);
    }
}

#endif
