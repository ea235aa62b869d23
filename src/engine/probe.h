/*
 * probe.h: is what the run needs there? (RT-02 .. RT-05)
 *
 * One `sh -c` inside looks for tar, writable workspace, home, cache and tmp, and every used CLI with
 * `command -v` on the run's own PATH. Nothing is sourced, no profile is read or written (RT-06).
 */
#ifndef AIRLOCK_ENGINE_PROBE_H
#define AIRLOCK_ENGINE_PROBE_H

#include "engine/request.h"
#include "engine/ui.h"
#include "wire/runlog.h"

struct probe_ctx {
	struct sandbox *sb;
	const struct request *q;
	char *const *env;
	const char *cwd; /* the workspace inside */
	struct runlog *log;
	const struct run_ui *ui;
};

/* 0: all there. ERR_NOT_FOUND: the text names what is missing, the PATH that was searched and what to do.
 * *missing_cli: only CLIs are missing (an install may help). */
int probe_run(const struct probe_ctx *c, bool *missing_cli, struct err *e);
/* Runs the install command once. A failure is logged, never fatal: 0 unless interrupted (-ECANCELED). */
int probe_install(const struct probe_ctx *c, struct err *e);

#endif
