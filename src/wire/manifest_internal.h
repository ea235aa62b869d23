/* manifest_internal.h: what the reader and the writer of a manifest share. */
#ifndef AIRLOCK_WIRE_MANIFEST_INTERNAL_H
#define AIRLOCK_WIRE_MANIFEST_INTERNAL_H

#include "wire/manifest.h"

#define MANIFEST_FIRST_LINE "airlock-manifest 1\n"

struct manifest {
	const char *map; /* the whole file */
	size_t map_len;
	const char *body; /* the entry lines; each ends with '\n' */
	size_t body_len;
	uint64_t count;
};

/* A byte that stands for itself in a line. */
static inline bool manifest_plain(uint8_t c)
{
	return c > 0x20 && c < 0x7f && c != '%';
}

#endif
