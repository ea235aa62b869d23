/*
 * path.h: lexical rules for paths. No file system access here.
 *
 * A *member path* is relative, uses '/', has no empty, "." or ".." segment and no
 * NUL; it is bytes, no encoding is assumed.
 */
#ifndef AIRLOCK_BASE_PATH_H
#define AIRLOCK_BASE_PATH_H

#include <stdbool.h>
#include <stddef.h>

/* True for a member path as above, within PATH_MEMBER_MAX and SEGMENT_MAX of limits.h. */
bool path_is_member(const char *p, size_t n);
/* True for "/", or '/'-rooted without empty, "." or ".." segments and no trailing '/'. */
bool path_is_absolute_normal(const char *p);
/* True if child equals parent or lies below it; both absolute and normal. */
bool path_is_within(const char *child, const char *parent);
/* a + "/" + b on the heap; NULL on out of memory. */
char *path_join(const char *a, const char *b);
/* Last segment of p (never NULL; "" for "/"). Points into p. */
const char *path_base(const char *p);
/* Lexical clean-up of an absolute path ("." and empty dropped, ".." resolved); NULL if relative or OOM. */
char *path_normalize(const char *p);

#endif
