/*
 * mk.h: makes tar streams that no honest program writes, block by block.
 *
 * The product's own writer is not used, so a fault that reader and writer share shows up.
 * Out of memory and a full buffer abort: these are tests.
 */
#ifndef TESTS_HOSTILE_MK_H
#define TESTS_HOSTILE_MK_H

#include "base/buf.h"

enum mk_format { MK_V7, MK_USTAR, MK_GNU };

struct mk {
	enum mk_format format;
	char type;
	const char *name; /* cut at 100 bytes */
	const char *link; /* may be NULL */
	uint64_t size;
	unsigned mode; /* 0: 0644 */
};

/* One header block; returns its offset, for mk_poke. */
size_t mk_head(struct buf *b, const struct mk *m);
/* Overwrites bytes of the block at off and makes its checksum right again. */
void mk_poke(struct buf *b, size_t off, size_t at, const void *p, size_t n);
/* Contents padded to a whole block. */
void mk_data(struct buf *b, const void *p, size_t n);
void mk_end(struct buf *b);

/* Whole ustar members. */
void mk_file(struct buf *b, const char *name, const char *text);
void mk_dir(struct buf *b, const char *name);
void mk_link(struct buf *b, const char *name, const char *target);
void mk_hard(struct buf *b, const char *name, const char *target);
/* PAX header with payload as given; mk_record makes one right record "len key=value\n". */
void mk_pax(struct buf *b, char type, const void *p, size_t n);
void mk_record(struct buf *b, const char *key, const void *p, size_t n);
/* PAX header with one text record. */
void mk_pax1(struct buf *b, char type, const char *key, const char *value);
/* GNU L or K with the text and its NUL. */
void mk_long(struct buf *b, char type, const char *text);

#endif
