/*
 * names.h: the names in a directory, in byte order, in bounded memory.
 *
 * A directory of any size is read in passes: each pass keeps the smallest names above the last one
 * delivered that fit the limit. A pass costs one reading of the directory; names made or removed
 * in between may or may not be seen, none is delivered twice.
 */
#ifndef AIRLOCK_GUEST_NAMES_H
#define AIRLOCK_GUEST_NAMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/limits.h"

struct names {
	char *data;   /* owned: NUL-terminated names */
	uint32_t *at; /* owned: where each begins, in order */
	size_t len, cap, n, slots;
	bool more; /* the directory holds names above the last one here */
};

void names_done(struct names *l);
/* Bytes of memory held. */
size_t names_size(const struct names *l);
static inline const char *names_get(const struct names *l, size_t i)
{
	return l->data + l->at[i];
}
/*
 * Replaces l by the names above `floor` (NULL: all), at most `limit` bytes of them (at least 4096).
 * Never "." and "..". fd: a directory open for reading; its offset moves. 0 or negative errno.
 */
int names_read(struct names *l, int fd, const char *floor, size_t limit);

#endif
