/* Whole reads and writes of file descriptors: what a signal interrupts goes on. */
#ifndef DTM_BASE_FILE_H
#define DTM_BASE_FILE_H

#include <stdbool.h>
#include <stddef.h>

/* False with errno set when not all could be written. */
bool file_write_all(int fd, const void *data, size_t size);
/* False at the end of the file too. */
bool file_read_all(int fd, void *to, size_t size);

#endif
