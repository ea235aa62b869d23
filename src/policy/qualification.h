/*
 * qualification.h: whether a measurement that was recorded of an environment still speaks for it (api.md 6.4).
 *
 * Pure. A record holds what was true when a probe measured: each value of `bound` must be the same now, for the company
 * that asks. Reading it allocates nothing and grants nothing.
 */
#ifndef AIRLOCK_POLICY_QUALIFICATION_H
#define AIRLOCK_POLICY_QUALIFICATION_H

#include <stdbool.h>

enum qualification {
	QUALIFIED,
	QUALIFIED_BY_PLATFORM, /* a platform-selected image of a managed instance: no record is needed (PR-07) */
	UNQUALIFIED_ARCHIVED,
	UNQUALIFIED_COMPANY, /* company_mismatch */
	UNQUALIFIED_MUTABLE, /* mutable_target */
	UNQUALIFIED_NEVER,   /* never_measured */
	UNQUALIFIED_CONFIG,  /* config_changed */
	UNQUALIFIED_ACCOUNT, /* account_changed */
	UNQUALIFIED_IMAGE,   /* custom_image_changed */
	UNQUALIFIED_CLEANUP, /* cleanup_unconfirmed */
	QUALIFICATION_COUNT
};

/* What a measurement is bound to; texts, "" where there is none. */
struct qualification_bound {
	const char *company, *environment, *driver, *provider;
	const char *target;	  /* "sha256:..." of the system image */
	const char *config;	  /* fingerprint of the effective configuration */
	const char *secrets;	  /* fingerprint of what its secret references stand for */
	const char *custom_image; /* identity of the captured image that is applied */
};

struct qualification_now {
	struct qualification_bound bound;
	bool archived;
	bool company_allowed; /* bound to that company, or to none */
	/* The document of managed configuration that is in force names this provider: a marker in a row's metadata does not count. */
	bool platform_covers;
};

/* record: NULL, none. cleanup_confirmed: of the record. */
enum qualification qualification_judge(const struct qualification_now *now,
				       const struct qualification_bound *record,
				       bool cleanup_confirmed);
/* "never_measured", ...; "qualified" for the first two. Static. */
const char *qualification_word(enum qualification q);

#endif
