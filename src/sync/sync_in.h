/*
 * sync_in.h: from a host workspace to a read-only base that a lease mounts.
 *
 * Per workspace and environment there is one store directory:
 *
 *   <store>/lock            flock: exclusive while sync_in works; shared by nobody
 *   <store>/layers/<n>/     immutable layer trees; 1 is a full base, later ones are deltas
 *                           (changed files, overlay whiteouts for what went away)
 *   <store>/layers/<n>      or, where nothing is mounted: the changed files in one (wire/layerfile.h)
 *   <store>/stack           the current stack: which layers, which manifest
 *   <store>/manifest.<n>    manifest of the stack whose top layer is n
 *   <store>/git/            cached repository seeds
 *
 * A layer that a stack in use names is never changed; a lease holds a shared flock on
 * layers/<n>.lock of its top layer, so old stacks are collected only when unused.
 * No inode is shared with the workspace. Files keep mtime and mode & 0777; links stay links.
 * Nothing of the host's .git but objects, refs and an index made anew goes in.
 */
#ifndef AIRLOCK_SYNC_SYNC_IN_H
#define AIRLOCK_SYNC_SYNC_IN_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"

enum git_policy {
	GIT_SHALLOW = 0, /* one commit, the default */
	GIT_NONE,
	GIT_FULL,
};

/* Called from one thread, at most some 20 times a second; total 0: not known yet. */
typedef void (*progress_fn)(void *arg, const char *phase, uint64_t done, uint64_t total,
			    uint64_t bytes);

struct sync_in_opts {
	const char *workspace; /* absolute, real path, a directory */
	const char *store;     /* absolute, made if missing (0700) */
	enum git_policy git;
	/* gitignore-style patterns that bring in what is ignored or held back; may be NULL */
	char *const *include;
	char *const *exclude; /* patterns that keep out; win over include; may be NULL */
	bool one_file;	      /* layers are sent and never mounted: each is one file */
	uid_t owner;	      /* sandbox uid/gid on the host; (uid_t)-1: leave as is */
	gid_t group;
	progress_fn progress; /* may be NULL */
	void *progress_arg;
	/* may be NULL; non-zero: stop with -ECANCELED, leave nothing half-done */
	const volatile int *cancel;
};

struct sync_note {  /* one path that did not travel as is */
	char *path; /* owned; bytes */
	/*
	 * A stable word. Of a path: "secret", "unreadable", "socket", "fifo", "device", "too_long", "too_deep",
	 * "changed" (sent, but it kept changing), "vanished", "mount" (another file system),
	 * "submodule_git" (its files went, its .git did not). Of ".git": "git_pointer" (does not
	 * prove itself), "git_missing", "git_failed", "git_timeout" (files went, history did not).
	 * Of a pattern: "no_match". At most 10,000 notes are kept.
	 */
	const char *reason;
	char *
	    detail; /* owned, may be NULL; of "git_failed" and "git_timeout": what failed, with git's last words */
};

struct sync_in_result {
	char **layers;		     /* owned vector: absolute layers, top first */
	char *manifest_path;	     /* owned */
	uint64_t root_dev, root_ino; /* the directory that was read */
	int hold_fd;		     /* owned: keeps the stack from being collected while open */
	bool is_git;
	bool has_repo; /* a repository went in: a layer of .git is among the layers */
	char head[65]; /* commit sent, hex; "" when unborn or not git */
	char *branch;  /* owned; refs/heads/... recorded, NULL when detached or not git */
	uint64_t files, dirs, links, bytes;  /* in the manifest */
	uint64_t copied_files, copied_bytes; /* read and written this time */
	uint64_t excluded; /* entries left out by ignore rules (a whole directory counts once) */
	struct sync_note *notes; /* owned array */
	size_t notes_len;
	bool reused; /* the stack was there already */
};

int sync_in(const struct sync_in_opts *o, struct sync_in_result *ret, struct err *e);
void sync_in_result_done(struct sync_in_result *r);

/*
 * A pin keeps the stack of a manifest from being collected without any process: for a lease whose
 * sandbox outlives its maker, or whose work is yet to be recovered. Made while hold_fd is open.
 * <store>/pins/<n>.<lease>; unpinning what is not pinned is no error.
 */
int sync_pin(const char *manifest_path, const char *lease, struct err *e);
int sync_unpin(const char *manifest_path, const char *lease, struct err *e);

/*
 * Which of these new member paths does the workspace's own ignore rules (git and .airlockignore,
 * plus the exclude list) keep out? Sets skip[i]. Used on the way back: build output that git
 * ignores stays in the sandbox unless included. Names are data.
 */
int sync_ignored(const struct sync_in_opts *o, char *const *paths, size_t n, bool *skip,
		 struct err *e);

#endif
