#include "policy/qualification.h"

#include <stddef.h>
#include <string.h>

static bool same(const char *a, const char *b)
{
	return a && b && strcmp(a, b) == 0;
}

/* 64 digits after the algorithm; a name or a tag can be made to mean something else tomorrow. */
static bool immutable(const char *target)
{
	static const char word[] = "sha256:";
	const size_t n = sizeof(word) - 1;

	return target && strncmp(target, word, n) == 0 &&
	       strspn(target + n, "0123456789abcdef") == 64 && !target[n + 64];
}

enum qualification qualification_judge(const struct qualification_now *now,
				       const struct qualification_bound *record,
				       bool cleanup_confirmed)
{
	const struct qualification_bound *b = &now->bound;

	/* Whose it is comes first: of another company's environment nothing else is told. */
	if (!now->company_allowed)
		return UNQUALIFIED_COMPANY;
	if (now->archived)
		return UNQUALIFIED_ARCHIVED;
	if (now->platform_covers && !b->custom_image[0])
		return QUALIFIED_BY_PLATFORM;
	if (!immutable(b->target))
		return UNQUALIFIED_MUTABLE;
	if (!record)
		return UNQUALIFIED_NEVER;
	if (!same(record->company, b->company))
		return UNQUALIFIED_COMPANY;
	if (!same(record->environment, b->environment) || !same(record->driver, b->driver) ||
	    !same(record->provider, b->provider) || !same(record->target, b->target) ||
	    !same(record->config, b->config))
		return UNQUALIFIED_CONFIG;
	if (!same(record->custom_image, b->custom_image))
		return UNQUALIFIED_IMAGE;
	if (!same(record->secrets, b->secrets))
		return UNQUALIFIED_ACCOUNT;
	return cleanup_confirmed ? QUALIFIED : UNQUALIFIED_CLEANUP;
}

const char *qualification_word(enum qualification q)
{
	static const char *const words[QUALIFICATION_COUNT] = {
	    [QUALIFIED] = "qualified",
	    [QUALIFIED_BY_PLATFORM] = "qualified",
	    [UNQUALIFIED_ARCHIVED] = "archived",
	    [UNQUALIFIED_COMPANY] = "company_mismatch",
	    [UNQUALIFIED_MUTABLE] = "mutable_target",
	    [UNQUALIFIED_NEVER] = "never_measured",
	    [UNQUALIFIED_CONFIG] = "config_changed",
	    [UNQUALIFIED_ACCOUNT] = "account_changed",
	    [UNQUALIFIED_IMAGE] = "custom_image_changed",
	    [UNQUALIFIED_CLEANUP] = "cleanup_unconfirmed",
	};

	return q < QUALIFICATION_COUNT ? words[q] : "never_measured";
}
