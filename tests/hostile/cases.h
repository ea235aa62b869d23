/*
 * cases.h: the attack archives of door 1, each with the verdict that it must get.
 *
 * One table serves the unit tests of the tar reader and of the member rules, mkhostile (which
 * writes them as files for tests that drive the real programs) and the seeds of the fuzz targets.
 * The host that the member cases assume is described in cases_member.c.
 */
#ifndef TESTS_HOSTILE_CASES_H
#define TESTS_HOSTILE_CASES_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"

enum hostile_verdict {
	HV_ACCEPT,  /* every member */
	HV_REFUSED, /* some members are refused by `rule`, the others accepted */
	HV_HOSTILE, /* the stream is rejected by `rule` */
};

struct hostile_case {
	const char *name; /* "A2-absolute": starts with the case id of the specification */
	enum hostile_verdict verdict;
	const char *rule; /* NULL for HV_ACCEPT */
	void (*build)(struct buf *b);
};

extern const struct hostile_case hostile_reader_cases[]; /* one header shows it */
extern const size_t hostile_reader_cases_len;
extern const struct hostile_case hostile_member_cases[]; /* needs the stream or the host */
extern const size_t hostile_member_cases_len;

/* Links that the member cases expect below the workspace. */
struct hostile_link {
	const char *path, *target;
	bool in_baseline;
};
extern const struct hostile_link hostile_host[];
extern const size_t hostile_host_len;

#define HOSTILE_CASE_MAX ((size_t)16 << 20) /* bytes of the largest case */

static inline const char *hostile_verdict_name(enum hostile_verdict v)
{
	return v == HV_ACCEPT ? "accept" : v == HV_REFUSED ? "refused" : "hostile";
}

#endif
