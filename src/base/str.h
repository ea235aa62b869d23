/* str.h: numbers, sizes, durations and printable forms of foreign text. */
#ifndef AIRLOCK_BASE_STR_H
#define AIRLOCK_BASE_STR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

bool str_starts(const char *s, const char *prefix);
bool str_eq(const char *a, const char *b); /* NULL equals only NULL */

/* Decimal digits only, whole string. 0, -EINVAL, -ERANGE (> max). */
int str_to_u64(const char *s, uint64_t max, uint64_t *ret_v);
/* "64M", "1.5G", "4096": binary units K M G T, optional B or iB. Bytes. 0, -EINVAL, -ERANGE. */
int str_to_size(const char *s, uint64_t *ret_bytes);
/* "90", "1.5", "30s", "10m", "2h", "30d", "250ms" (no unit: seconds); negative is refused. 0, -EINVAL, -ERANGE. */
int str_to_duration(const char *s, int64_t *ret_ns);

/*
 * Foreign bytes made safe for a terminal and a log line: printable UTF-8 stays,
 * control characters, ESC, invalid bytes and direction overrides become \xNN,
 * newline \n, tab \t, backslash \\. Appends to b.
 */
int str_printable(struct buf *b, const char *p, size_t n);
/* Length of the valid UTF-8 sequence at s that may be shown as it is, or 0. n > 0. */
size_t str_printable_len(const char *s, size_t n);
/* At most max bytes of s that end where a character ends, for "%.*s". s is valid UTF-8. */
int str_fit(const char *s, int max);
/* Bytes as "4.0 KiB". out at least 16 bytes. */
void str_human_size(uint64_t bytes, char *out, size_t n);
/* A NULL-terminated vector: free every string and the vector. */
void strv_free(char **v);
void strv_freep(char ***v);
#define _cleanup_strv_ __attribute__((cleanup(strv_freep)))
size_t strv_len(char *const *v);
/* Appends a copy of s. 0 or -ENOMEM. *v may be NULL. */
int strv_add(char ***v, const char *s);

/* n bytes as 2 * n lower-case digits and a NUL. */
void str_hex(char *out, const void *p, size_t n);
/* What a hexadecimal digit of either case stands for, or -1. */
int str_hex_digit(char c);

/* All bytes are zero. */
bool str_is_zero(const void *p, size_t n);

#endif
