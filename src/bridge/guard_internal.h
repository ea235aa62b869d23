/* guard_internal.h: what judging (guard.c) and answering (guard_answer.c) share. Nobody else includes it. */
#ifndef AIRLOCK_BRIDGE_GUARD_INTERNAL_H
#define AIRLOCK_BRIDGE_GUARD_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "bridge/guard.h"

struct guard {
	struct bridge_policy *policy; /* referenced */
	struct origin origin;
	bool stopped;
	char *token; /* owned, wiped */
	size_t token_len;
	char *secret; /* owned, wiped: the credential without prefix */
	size_t secret_len;
	char *credential; /* owned, wiped: prefix and credential, of the policy in force */
	size_t credential_len;
	char identity[IDENTITY_SOURCES][BRIDGE_IDENTITY_MAX + 1]; /* by source */
};

static inline struct view guard_text(const char *s)
{
	return (struct view){s, strlen(s)};
}

/* v is refused, and v->reply says so. error: static text. */
void guard_deny(struct guard_verdict *v, int status, const char *rule, const char *error);
/* Refused for so many bytes of body. -E2BIG. */
int guard_deny_size(struct guard_verdict *v, uint64_t size, bool at_least);

#endif
