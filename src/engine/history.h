/*
 * history.h: fetches the commits made in a sandbox, for sync/gitback.h to judge.
 *
 * A small script inside asks the sandbox's own git for a bundle of what HEAD has over the commit
 * that was sent. Script, git and repository there are the sandbox's: nothing they say is believed. What
 * they print goes byte for byte, up to BUNDLE_BYTES_MAX and GIT_TIMEOUT_MS, into the run's directory.
 * Called after the files came back, so that a cut leaves work without history, never a history
 * whose files are missing; the same call finishes it.
 */
#ifndef AIRLOCK_ENGINE_HISTORY_H
#define AIRLOCK_ENGINE_HISTORY_H

#include "engine/leasespec.h"
#include "engine/transfer.h"

struct history_opts {
	const struct lease_spec *spec;
	const struct lease_row *lease;
	const char *run_dir, *run_id;
	const char *path; /* PATH inside; NULL: the usual one */
	bool files_back;  /* false: commits are imported, no branch moves */
};

/* Fills t->history; asked stays false when there is no repository to ask, or nothing of it changed. */
void history_out(struct sandbox *sb, const struct history_opts *o, struct transfer *t);
/* A bundle that failed for good waits no longer; its bytes stay for a look. */
void history_refuse(const char *run_dir, const struct history *h);

#endif
