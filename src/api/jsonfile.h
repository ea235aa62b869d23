/* jsonfile.h: a whole file of JSON that the operator, or our own tests, put there. */
#ifndef AIRLOCK_API_JSONFILE_H
#define AIRLOCK_API_JSONFILE_H

#include <jansson.h>

/* Owned; NULL: no regular file, longer than max bytes, or no JSON object (duplicate members count as none). */
json_t *jsonfile_read(const char *path, size_t max);

#endif
