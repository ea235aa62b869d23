/*
 * unpack.h: the engine's side of door 1: starts airlock-unpack and reads its report.
 *
 * airlock-unpack gets descriptors only: the stream, the root, the staging area (same file
 * system), the run directory, the base layers, the manifest; it confines itself (Landlock on
 * root, staging and run directory; seccomp; rlimits; no network) before it reads the first
 * foreign byte. Phase 1 judges and stages the whole stream; the host tree is untouched. Then the
 * caller may drop new paths (ignore rules) or hold everything (review). Phase 2 publishes under
 * the workspace lock with a journal. Kill -9 anywhere: unpack_recover finishes or undoes.
 */
#ifndef AIRLOCK_SYNC_UNPACK_H
#define AIRLOCK_SYNC_UNPACK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"
#include "sync/sync_in.h"

enum on_conflict {
	CONFLICT_KEEP_HOST = 0,
	CONFLICT_TAKE_SANDBOX,
};

enum unpack_action {
	UA_ADD,
	UA_CHANGE,
	UA_MODE, /* permission bits only */
	UA_DELETE,
	UA_MERGE, /* clean three-way text merge written */
	UA_CONFLICT,
	UA_REFUSE, /* member not materialised; rule says why */
	UA_IGNORE, /* new path that the ignore rules keep out */
	UA_FAIL,   /* the host refused the write; path untouched */
	/* what the path had before is not in the trash: it lies where detail says until a recovery moves it */
	UA_NOT_TRASHED,
	UA_ACTION_COUNT
};

struct unpack_change {
	enum unpack_action action;
	char *path;	/* owned; bytes */
	char rule[40];	/* why, stable word; "" for plain changes, "dir" for a directory itself */
	char *detail;	/* owned, may be NULL: where the loser lies, link target, errno text */
	bool host_exec; /* host-executable data (policy/hostexec.h): flagged in the report */
};

struct unpack_opts {
	int stream_fd;	  /* outbound tar stream; borrowed, read to its end */
	const char *root; /* workspace */
	/* It must be this directory still (B15). ino 0: any; dev 0: only the inode counts. */
	uint64_t root_dev, root_ino;
	const char *run_dir; /* absolute: conflicts/, trash/, changes.jsonl, plan go here */
	const char
	    *state_dir; /* absolute, holds run_dir and those of earlier runs; NULL: unknown */
	const char *manifest_path;
	char *const *layers; /* base layers, top first: content of B for text merges */
	bool strict;
	bool dry_run; /* judge, report, write nothing */
	bool review;  /* stage into run_dir/pending, publish nothing */
	enum on_conflict on_conflict;
	uint64_t total_max; /* logical bytes; 0: default */
	uint64_t
	    member_max; /* logical bytes of one file, larger ones are refused; 0: as total_max */
	uint64_t members_max; /* members of the stream; 0: MEMBERS_MAX */
	const char *only;     /* a single file: every other member is hostile; may be NULL */
	bool
	    keep_trash; /* what is deleted or replaced goes to run_dir/trash, by copying where it must */
	/* Sets skip[i] for new paths that must not come back. May be NULL. */
	int (*filter)(void *arg, char *const *paths, size_t n, bool *skip, struct err *e);
	void *filter_arg;
	/*
	 * Called when the stream is at its end, before anything is decided: does its maker say that it is
	 * whole? If not (*ret_partial), what is missing in it is unknown and no deletion is taken over. May
	 * be NULL.
	 */
	int (*complete)(void *arg, bool *ret_partial, struct err *e);
	void *complete_arg;
	progress_fn progress;
	void *progress_arg;
	const volatile int *cancel;
	/* The stream is the whole workspace (plain tar), not changes: what is missing is gone. */
	bool full_tree;
	bool apply; /* publish run_dir/pending of an earlier review; stream_fd is not used */
	bool without_landlock; /* the operator named this layer to do without */
	bool no_recover;       /* a helper that dies leaves its journal to a later unpack_recover */
	/* What an earlier publish could not move to its trash is reported too, and where it lies. */
	bool tell_left;
	uint32_t lock_wait_ms; /* wait for another publish; 0: LOCK_WAIT_MS */
	uint32_t slow_ms;      /* 0: STREAM_SLOW_MS */
	/*
	 * Directory of a kept sandbox's own baseline, flocked by the caller; moved on by a publish. What it holds
	 * takes the place of manifest_path. Borrowed; 0 or less: none.
	 */
	int baseline_fd;
	/* Called about ten times a second while results are read. May be NULL. */
	void (*tick)(void *arg);
	void *tick_arg;
};

struct unpack_report {
	/* owned array, in path order; everything but UA_IGNORE beyond 1000 */
	struct unpack_change *changes;
	size_t changes_len;
	uint64_t counts[UA_ACTION_COUNT];
	uint64_t bytes_written;
	bool mass_delete;
	/* hostile stream: host untouched, its first RAW_KEEP_MAX bytes kept as run_dir/rejected.tar */
	bool rejected;
	char rule[40];	     /* of the rejection */
	char *rejected_path; /* owned: the member that it is about; NULL: none in particular */
	char text[512];	     /* of the rejection, in words */
	bool repaired;	     /* a publish that was cut before was finished first */
};

/* 0 (also with refusals and conflicts), -EBADMSG when the stream was rejected, other negative errno. */
int unpack_run(const struct unpack_opts *o, struct unpack_report *ret, struct err *e);
void unpack_report_done(struct unpack_report *r);
const char *unpack_action_name(enum unpack_action a);

/*
 * Finishes or undoes a publish that was cut: looks for a journal below root's staging place. What loses and
 * what was deleted goes to the directory of its run, if that is below state_dir (may be NULL) still.
 * 1 something was repaired, 0 nothing to do, negative errno. ret_left: says what still cannot be moved to its
 * trash, if anything (else code ERR_NONE): nothing of it is lost, and nothing else waits for it. May be NULL.
 */
int unpack_recover(const char *root, const char *state_dir, struct err *ret_left, struct err *e);
/* The same; of a publish whose run is not known it goes to run_dir, as with keep_trash. */
int unpack_recover_into(const char *root, const char *state_dir, const char *run_dir,
			struct err *ret_left, struct err *e);

#endif
