/*
 * buf.h: a growable byte buffer that cannot exist without a maximum.
 *
 * Failure sticks: after the first failed append every further append fails with
 * the same code, so a chain of appends needs one check at the end. `data` is
 * always followed by a NUL that `len` does not count.
 */
#ifndef AIRLOCK_BASE_BUF_H
#define AIRLOCK_BASE_BUF_H

#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

struct buf {
	char *data; /* owned; NULL until the first append */
	size_t len, cap, max;
	int err; /* 0 or the negative errno of the first failure */
};

/* No allocation. max is in bytes and must be > 0. */
void buf_init(struct buf *b, size_t max);
#define BUF_INIT(m) ((struct buf){.max = (m)})
/* Frees; the buffer may be used again with the same maximum. */
void buf_done(struct buf *b);
/* Empties, keeps the memory, clears the failure. */
void buf_reset(struct buf *b);
/* Hands the memory over (never NULL on success); NULL if the buffer failed. */
char *buf_take(struct buf *b);

/* All return 0, -E2BIG (maximum reached; nothing appended) or -ENOMEM. */
int buf_put(struct buf *b, const void *p, size_t n);
int buf_puts(struct buf *b, const char *s);
int buf_putc(struct buf *b, char c);
int buf_putf(struct buf *b, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
/* As one word of shell text, whatever is in it. */
int buf_put_sh(struct buf *b, const char *word);
/* Little-endian fixed-width integers, and u32 length + bytes, as in wire/frame.h. */
int buf_u8(struct buf *b, uint8_t v);
int buf_u32(struct buf *b, uint32_t v);
int buf_u64(struct buf *b, uint64_t v);
int buf_bytes(struct buf *b, const void *p, size_t n);
int buf_str(struct buf *b, const char *s);
/* Room for n more bytes at data+len, or NULL; commit with buf_add. */
char *buf_room(struct buf *b, size_t n);
void buf_add(struct buf *b, size_t n);
/* Drops n bytes from the front. */
void buf_drop(struct buf *b, size_t n);
/* buf_text: the contents as a NUL-terminated string, "" when empty. */
const char *buf_text(const struct buf *b);

#define _cleanup_buf_ __attribute__((cleanup(buf_done)))

#endif
