/* ui.h: how the engine speaks to whoever started it. Every member may be NULL. */
#ifndef AIRLOCK_ENGINE_UI_H
#define AIRLOCK_ENGINE_UI_H

#include "sync/sync_in.h"

struct run_ui {
	void *arg;
	/* One line for a person, without newline; with --quiet none is shown. warn: false is for the run log alone. */
	void (*note)(void *arg, bool warn, const char *text);
	progress_fn progress;
	/* The long step is over: take the bar away. */
	void (*progress_end)(void *arg);
	/* Before and after a command owns the terminal (raw mode). */
	void (*terminal)(void *arg, bool raw);
	int in, out, err; /* the caller's descriptors for the command */
};

#endif
