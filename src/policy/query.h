/*
 * query.h: names of query parameters that a policy denies (door 2).
 *
 * Policy: some APIs take a credential, a method or headers from the query as well. Such a parameter would stand beside
 * what the bridge sets, so a request that has one is refused whole; the query is never rewritten. A name is taken
 * as a server might: split at '&' and ';', an escape decoded once, '+' as a space, spaces and what follows a '[' left
 * out; letters compared without case, '_' and '-' not counted (access_token, accessToken, ACCESS-TOKEN are one). A name
 * of the list that ends in '*' stands for all that begin so.
 *
 * What it does not do: values are not looked at, and a name that is on no list passes.
 */
#ifndef AIRLOCK_POLICY_QUERY_H
#define AIRLOCK_POLICY_QUERY_H

#include <stdbool.h>

#include "policy/headers.h"

/* 1 to NAME_MAX_LEN letters, digits, '$', '.', '_', '-' and '~', of which one counts; a '*' may be the last. */
bool query_name_ok(const char *name);
/* The list's own spelling of a name that the query (without '?') holds, or NULL. */
const char *query_denied(const struct header_list *l, struct view query);

#endif
