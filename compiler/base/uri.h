/* Paths of files as URIs (RFC 3986). */
#ifndef DTM_BASE_URI_H
#define DTM_BASE_URI_H

#include "base/str.h"

/* "file:///a%20b.dtm" of "/a b.dtm"; of a relative path a relative URI. What is not an unreserved
 * character or '/' is percent-encoded. */
const char *uri_of_path(Arena *arena, const char *path);
/* The other way, without the name of a host; NULL where it is no URI of a file. */
const char *uri_path(Arena *arena, const char *uri);

#endif
