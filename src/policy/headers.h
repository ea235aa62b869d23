/*
 * headers.h: header syntax and allow-lists (door 2).
 *
 * Policy: a name is a token of RFC 9110, a value is TAB, 20-7E and 80-FF; anything else is refused, also
 * in a header that would be dropped. What an allow-list does not name is dropped. Names are compared
 * without case and leave in the list's own lower-case spelling. Hop-by-hop, framing, cookie and
 * credential headers cannot be put on a list at all.
 */
#ifndef AIRLOCK_POLICY_HEADERS_H
#define AIRLOCK_POLICY_HEADERS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/cursor.h"
#include "base/limits.h"

struct header {
	struct view name, value;
};

struct header_list {
	char **v; /* owned, lower case, sorted */
	size_t n;
};

bool header_name_ok(struct view name);
bool header_value_ok(struct view value);
bool header_name_is(struct view name, const char *lower);
/* The list's own spelling of name, or NULL. */
const char *header_list_find(const struct header_list *l, struct view name);
/* 0; -EEXIST; -ENOMEM. The caller has judged the name (header_name_ok, header_forbidden). */
int header_list_add(struct header_list *l, const char *lower);
void header_list_done(struct header_list *l);
/* Why a list may not name this header ("it frames the message", ...), or NULL. */
const char *header_forbidden(const char *lower);

#endif
