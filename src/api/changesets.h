/*
 * changesets.h: over HTTP what `airlock diff`, `apply` and `discard` do with the results of a run of the API; the same functions of
 * the engine (changeset.h, changes.h).
 *
 * Only administrators, and only once the run is over: contents of workspaces are theirs to see. A job does the work, with the
 * row's root and path judged again: a run whose directory is not a workspace any more, or another one than it was, is as
 * good as one that kept nothing. Paths are relative to that workspace, and plain: no globs, a directory means what is below it.
 */
#ifndef AIRLOCK_API_CHANGESETS_H
#define AIRLOCK_API_CHANGESETS_H

#include "api/leases.h"

/*
 * Names that are no UTF-8 travel as base64, as in the lists (path_b64). Heap path that is a member of the workspace, or NULL: no
 * base64, or a path that leaves it.
 */
char *changesets_path64(const char *b64);

/* Job side. Each answers {ok: true, ...} or {ok: false, code, error}. */
json_t *job_changes(struct job_ctx *x, const json_t *request);
json_t *job_diff(struct job_ctx *x, const json_t *request);
json_t *job_apply(struct job_ctx *x, const json_t *request);
json_t *job_discard(struct job_ctx *x, const json_t *request);
/* recoverjob.c: work that was not brought back at all. */
json_t *job_recover(struct job_ctx *x, const json_t *request);

#endif
