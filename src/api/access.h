/*
 * access.h: the agent-access map: for each capability what operations it has, whom they are for, under which policy, and
 * what the verification tests said of this very build.
 *
 * Operations come from the route table and belong to the capability whose requirements they carry, so none can be
 * forgotten: what carries none is listed under Airlock's own. Outcomes come from a file beside the program that the
 * tests wrote (access-results.json); nothing here says "passed" by itself. A file of another build, a damaged one or none
 * at all makes everything "not-run".
 *
 * The digest in the file finds a file that was cut, mixed or edited by mistake. It is no proof against whoever may write beside
 * the program: that one can replace the program as well.
 */
#ifndef AIRLOCK_API_ACCESS_H
#define AIRLOCK_API_ACCESS_H

#include <jansson.h>

#include "base/buf.h"
#include "base/err.h"

#define ACCESS_RESULTS "access-results.json"
#define ACCESS_RESULTS_MAX ((size_t)1 << 20) /* bytes; a longer file is no file of results */

enum access_state {
	ACCESS_CURRENT,
	ACCESS_ABSENT,
	ACCESS_OTHER_BUILD,
	ACCESS_DAMAGED,
	ACCESS_STATE_COUNT
};

/* "current", "absent", ... Static. */
const char *access_state_word(enum access_state s);
/* Results of the build with that id; *ret (owned) only with ACCESS_CURRENT. path: NULL, none. */
enum access_state access_results_read(const char *path, const char *build, json_t **ret);
/* The worst that was said of a requirement: "passed", "failed" or "not-run"; *ret_tests (owned): who said it. */
const char *access_check(const json_t *results, const char *id, json_t **ret_tests);
/* What came of an actor who asked for an operation that is not for it. */
const char *access_denial(const json_t *results, const char *operation, const char *actor);

/* The map of this build; owned. */
json_t *access_map(struct err *e);
/* The same for a person. */
int access_text(const json_t *map, struct buf *out);

#endif
