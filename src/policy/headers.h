/*
 * headers.h: header allow-lists (door 2).
 *
 * Policy: a header that breaks the syntax of wire/header.h is refused, also where it would be
 * dropped. What an allow-list does not name is dropped. Names are compared without case and leave in
 * the list's own lower-case spelling. Hop-by-hop, framing, cookie and credential headers cannot be
 * put on a list at all.
 */
#ifndef AIRLOCK_POLICY_HEADERS_H
#define AIRLOCK_POLICY_HEADERS_H

#include <stdbool.h>
#include <stddef.h>

#include "base/cursor.h"
#include "base/limits.h"
#include "wire/header.h"

struct header_list {
	char **v; /* owned, lower case, sorted */
	size_t n;
};

/* The list's own spelling of name, or NULL. */
const char *header_list_find(const struct header_list *l, struct view name);
/* 0; -EEXIST; -ENOMEM. The caller has judged the name (header_name_ok, header_forbidden). */
int header_list_add(struct header_list *l, const char *lower);
void header_list_done(struct header_list *l);
/* Why a list may not name this header ("it frames the message", ...), or NULL. */
const char *header_forbidden(const char *lower);

#endif
