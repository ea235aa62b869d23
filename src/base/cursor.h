/*
 * cursor.h: reading foreign bytes; the first failure sticks.
 *
 * After a failure every get returns zero or an empty view, so a parser reads all
 * fields in one chain and asks once. A parser that must consume everything ends
 * with cursor_end. Views point into the input and live as long as it does.
 */
#ifndef AIRLOCK_BASE_CURSOR_H
#define AIRLOCK_BASE_CURSOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct view {
	const char *p;
	size_t n;
};

struct cursor {
	const uint8_t *p;
	size_t left;
	bool failed;
};

void cursor_init(struct cursor *c, const void *p, size_t n);
uint8_t cursor_u8(struct cursor *c);
uint32_t cursor_u32(struct cursor *c);
uint64_t cursor_u64(struct cursor *c);
/* u32 length + bytes; longer than max fails. */
struct view cursor_bytes(struct cursor *c, size_t max);
/* As cursor_bytes, and a NUL inside fails; returned as a heap string, NULL on failure. */
char *cursor_strdup(struct cursor *c, size_t max);
/* True if nothing failed and nothing is left over. */
bool cursor_end(const struct cursor *c);

#endif
