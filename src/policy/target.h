/*
 * target.h: the one parse of a request target (door 2).
 *
 * Policy: origin form only ("/path" or "/path?query"). Judged bytes are sent bytes: the result is
 * views into the input, which is forwarded unchanged, so no second parser can read it otherwise.
 *
 *   path   unreserved, sub-delims without ';', ':', '@', '/' and %HH. An escape is decoded once and
 *          must not give 00-20, 7F, '/', '\', '?', '#', '%' or ';'; a decoded segment is UTF-8, not
 *          empty and not made of dots alone. "/" is the path without a segment.
 *   query  pchar, '/', '?', '[', ']' and %HH, which is not decoded but is not %00, %0A or %0D.
 *   sizes  BRIDGE_PATH_MAX, BRIDGE_QUERY_MAX, BRIDGE_SEGMENTS_MAX of base/limits.h.
 *
 * What it does not do: no lower-casing, no unescaping of what is forwarded, no defaults.
 */
#ifndef AIRLOCK_POLICY_TARGET_H
#define AIRLOCK_POLICY_TARGET_H

#include <stdbool.h>
#include <stddef.h>

#include "base/cursor.h"
#include "base/limits.h"

struct target {
	struct view all;   /* path and query, as sent: views into the input */
	struct view path;  /* without the query */
	struct view query; /* without '?'; see has_query */
	bool has_query;	   /* "/x?" has an empty one */
	size_t segments;
	struct view segment[BRIDGE_SEGMENTS_MAX]; /* raw bytes between slashes, never empty */
};

/* Reasons in the order in which they are tested; target_fault_name gives a stable word. */
enum target_fault {
	TARGET_OK = 0,
	TARGET_EMPTY,
	TARGET_FORM,	 /* not origin form: absolute, authority, '*', "//" */
	TARGET_TOO_LONG, /* 414; all others 400 */
	TARGET_BYTE,	 /* a byte that may not stand there raw */
	TARGET_ESCAPE,	 /* '%' without two digits, or an escape of a forbidden byte */
	TARGET_SEGMENT,	 /* empty or dot segment */
	TARGET_UTF8,	 /* a decoded segment is not UTF-8 */
	TARGET_SEGMENTS, /* more than BRIDGE_SEGMENTS_MAX */
	TARGET_FAULT_COUNT
};

/* No allocation, one pass, bounded by the size limits whatever n. */
enum target_fault target_parse(const char *p, size_t n, struct target *ret);
const char *target_fault_name(enum target_fault f);

#endif
