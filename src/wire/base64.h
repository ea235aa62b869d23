/*
 * base64.h: bodies of the file queue as text, the standard alphabet. Canonical only: one text for one body, as the other end of
 * such a queue demands (no missing padding, no bits that count for nothing, no white space).
 */
#ifndef AIRLOCK_WIRE_BASE64_H
#define AIRLOCK_WIRE_BASE64_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/cursor.h"

/* False: v is no canonical base64. Else *ret is the number of bytes that it stands for. */
bool base64_len(struct view v, uint64_t *ret);
/* Of what base64_len has accepted; len is what it said. */
void base64_decode(struct view v, char *out, size_t len);
/* Appends the text of v. 0, or as buf_put. */
int base64_put(struct buf *b, struct view v);

#endif
