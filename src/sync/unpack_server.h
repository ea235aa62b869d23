/*
 * unpack_server.h: the inside of airlock-unpack. Part of door 1.
 *
 * One `struct unpack` per process, blocking, of one thread but for the making of staged files
 * (unpack_writer.h, unpack_order.h). Order of work: set up and confine
 * (unpack_server.c), read and judge and stage the whole stream (unpack_stage.c, unpack_intake.c), decide each path
 * against manifest and host into a journal (unpack_plan.c), carry the journal out
 * (unpack_publish.c). Host files are reached through `root` only.
 */
#ifndef AIRLOCK_SYNC_UNPACK_SERVER_H
#define AIRLOCK_SYNC_UNPACK_SERVER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/stat.h>

#include "base/err.h"
#include "os/beneath.h"
#include "os/chan.h"
#include "sync/chlist.h"
#include "sync/journal.h"
#include "sync/merge.h"
#include "sync/unpack_proto.h"
#include "sync/unpack_writer.h"
#include "wire/manifest.h"

/* With more files (or directories) than these, one syncfs is cheaper than to sync or push out each. */
#define SYNC_EACH_MAX 64
#define PUSH_EACH_MAX 512
#define STAGED_KEPT "k" /* name of c/ once all is carried out and only the trash waits */

struct stage { /* the staging directory of this publish, on the workspace's file system */
	char path[sizeof(STAGING_GIT) + 1 + ID_LEN]; /* below base */
	struct beneath base;			     /* the root; in review the run directory */
	int dir;				     /* owned; -1: none */
	int content;				     /* owned: c/, staged contents by number */
	int trash;				     /* owned: t/ */
	int journal;		  /* owned, and flocked: says that its maker lives */
	uint8_t key[JOURNAL_KEY]; /* of that journal */
	uint64_t next_id;
	struct err
	    refused; /* dir -1: why there is none; matters once there is something to write */
};

struct baseline {     /* of a kept sandbox: unpack_baseline.c */
	int dir;      /* owned; -1: none is kept */
	int contents; /* owned */
	uint64_t contents_len;
	struct chlist *notes, *back; /* paths that move on, and those that did not after all */
	uint64_t seq, backs;
	bool ready; /* manifest.new is whole */
};

struct trees { /* unpack_tree.c */
	bool on, gives;
	char dir[PATH_MEMBER_MAX + 1]; /* directory in work, if known */
	size_t dir_len;
	bool known;
	size_t top; /* bytes of dir that name the new tree it lies in; 0: in none */
	int fd;	    /* owned: dir in the staging place; -1: not there */
	bool used;  /* by orders of the writer, who closes it then */
};

struct unpack {
	struct chan ch;
	struct writer *writer; /* owned; NULL unless a stream is read */
	struct unpack_setup s;
	struct beneath root, run;
	struct stat root_st;
	int root_fd, run_fd, manifest_fd, stream_fd; /* from the parent, ours until the end */
	int lock_fd;				     /* owned: the root once more, flocked */
	int layers[UNPACK_LAYERS_MAX]; /* owned; directories, or files (wire/layerfile.h) */
	size_t layers_len;
	struct stage st;
	struct baseline baseline;
	struct trees trees;
	struct manifest *m;
	struct chlist *list;
	uint8_t *skip;	  /* bit per list entry */
	uint64_t unknown; /* entries of kind MK_UNKNOWN */
	uint64_t deletes, bytes_written;
	uint64_t taken; /* logical bytes that were wanted so far; at most s.total_max */
	bool mass_delete, rejected, publishing, fold_case;
	bool one_log;	    /* of the file system of the root: os/fslog.h */
	bool copied;	    /* something into the trash */
	uint64_t untrashed; /* entries that could not go there: the staging place must stay */
	bool foretold;	    /* the trees' entries are in the report already (unpack_graft.c) */
	uint64_t foretold_bytes;
	bool partial; /* what the stream does not bring is unknown, not gone */
	const char *rule;
	char rule_text[512];
	char rule_path[PATH_MEMBER_MAX + 1]; /* the member that a rejection is about */
};

/* The whole life of the helper on channel fd (owned). 0 or negative errno (already reported). */
int unpack_serve(int fd);

/* unpack_area.c: makes the staging directory and holds it; removes it. */
int stage_open(struct unpack *u, struct err *e);
/* 0, or why this workspace takes nothing: to be asked before anything is staged or intended. */
int stage_ready(const struct unpack *u, struct err *e);
void stage_close(struct unpack *u, bool keep);
/* "c/" or "t/" entry name of a number. out at least 20 bytes. */
void stage_name(uint64_t id, char out[20]);
/* c/ entry of what a staged number replaced, where the file system cannot swap the two. */
#define STAGE_ASIDE 24
void stage_aside(uint64_t id, char out[STAGE_ASIDE]);
/* Missing bytes are named when `need` bytes would eat into DISK_RESERVE_BYTES. */
int stage_space(const struct unpack *u, uint64_t need, struct err *e);
/* A few hundred bytes of the stream ask for another copy of a file: it counts like the file, and needs its room. */
int stage_copy_counts(struct unpack *u, uint64_t size, struct err *e);
/* New content of path under number *ret_id: descriptor or negative errno. */
int stage_create(struct unpack *u, const char *path, uint32_t mode, uint64_t *ret_id,
		 struct err *e);

/*
 * unpack_tree.c. A new tree lies in c/ as TREE_WHOLE and the hash of its top's path, or, when its entries go
 * one by one after all, TREE_APART and that hash.
 */
#define TREE_WHOLE 't'
#define TREE_APART 'x'
#define TREE_HASH 16
#define TREE_NAME (1 + 2 * TREE_HASH + 1)
void tree_open(struct unpack *u);
void tree_close(struct unpack *u);
void tree_name(const char *top, size_t n, char state, char out[TREE_NAME]);
/* Below c/, of a path in the tree of its first `top` bytes. */
void tree_path(const char *path, size_t n, size_t top, char state, char out[PATH_MEMBER_MAX + 1]);
/* The staged entry of a whole tree: descriptor or negative errno. */
int tree_open_staged(struct unpack *u, const char *path, size_t n, size_t top, int flags);
/* The bytes, or the target, that are staged for c, a file or link. Or negative errno. */
int staged_open(struct unpack *u, const struct change *c);
ssize_t staged_readlink(struct unpack *u, const struct change *c, char *out, size_t max);
/* Stage a member into the new tree where it lies, if it does: then it has CH_TREE. */
int tree_dir(struct unpack *u, struct change *c, struct err *e);
/* Where the member goes: dir, name and how. 1, 0: not in a new tree, errno. */
int tree_place(struct unpack *u, struct change *c, struct writer_entry *ret, struct err *e);
/* What came of the path before, as a file or link of a tree, does not count. */
int tree_drop(struct unpack *u, const struct change *c, struct err *e);

/* The hash of c from its bytes, if it was left out. 0 or negative errno. */
int change_hash(struct change *c, int fd);

/* unpack_stage.c: phase 1. -EBADMSG: rejected (u->rule, u->rule_text). */
int stage_stream(struct unpack *u, struct err *e);
/* unpack_pending.c: the list of a review, written and read again. */
int pending_save(struct unpack *u, struct err *e);
/* The staged set, which is whole, becomes the one that waits; the one before it goes. */
int pending_take(struct unpack *u, struct err *e);
int pending_load(struct unpack *u, struct err *e);

/* unpack_host.c */
struct host {
	struct merge_side side; /* content: as class_of names it */
	struct stat st;
	const char *
	    blocked; /* why the path cannot be reached ("parent_link", "parent_not_dir"), or NULL */
};
int host_look(struct unpack *u, const char *path, struct host *ret, struct err *e);
/* Sets content numbers of the three sides: equal numbers, equal bytes. b NULL: not in the manifest. */
int host_classify(struct unpack *u, const struct manifest_entry *b, const struct change *c,
		  struct merge_side *ret_b, struct merge_side *ret_s, struct host *h,
		  struct err *e);
void host_old(struct unpack *u, const char *path, const struct host *h, struct intent_old *ret);
/* True if everything in host directory `path` is in the manifest and as it was sent. 1, 0, errno. */
int host_dir_clean(struct unpack *u, const char *path, struct err *e);
/*
 * What directory `name` holds, by names, kinds, inodes, sizes and times: equal as long as nobody
 * touches it, also after a rename. 0 or negative errno.
 */
int host_dir_digest(int at, const char *name, uint8_t ret[INTENT_HASH]);
/* The bytes of B from the base layers or the host, checked against the manifest's hash. fd or negative errno. */
int base_open(struct unpack *u, const struct manifest_entry *b);
int hash_fd(int fd, uint8_t ret[MANIFEST_HASH], uint64_t *ret_size);
/* unpack_save.c. Copies staged number id (or the host's file) to conflicts/<side>/path; detail gets the place. */
int save_staged(struct unpack *u, uint64_t id, const char *path, char *detail, size_t n,
		struct err *e);
int save_host(struct unpack *u, const char *path, char *detail, size_t n, struct err *e);
/* Copies the entry of a directory to `place`/path of the run; detail gets the place. */
int save_entry(struct unpack *u, const char *place, int from_dir, const char *from,
	       const char *path, char *detail, size_t n, struct err *e);
/*
 * A deleted entry to trash/<path> of the run: by rename (0), across file systems by copying (1: it is still in the
 * staging place too). Or negative errno.
 */
int save_trash(struct unpack *u, uint64_t id, const char *path);
/* The same for an entry of c/: what a staged number was swapped for. */
int save_replaced(struct unpack *u, const char *name, const char *path);
/* As entry_rename_new, into a directory of our own. */
int save_rename(int from, const char *a, int to, const char *b);
/* A copy of dir/base as entry `name` of c/, on disk. 0 or negative errno. */
int save_aside(struct unpack *u, int dir, const char *base, const char *name);
/* A copy of an entry of c/, directories with what is in them, to place/path of the run. As save_entry. */
int save_whole(struct unpack *u, const char *place, const char *name, const char *path,
	       char *detail, size_t n);
int copy_fd(int from, int to);
/* Those bytes of a file as a file of their own, without a name, made in dir. The descriptor; -ENOENT: they are not there. */
int copy_part(int dir, int from, uint64_t at, uint64_t size);
/* As root: the owner of a new entry. Where the system refuses (mapped ids) it stays ours: no loss. */
void give_to(int dir, const char *name, uid_t uid, gid_t gid);

/* unpack_baseline.c: each does nothing where none is kept. */
int baseline_open(struct unpack *u, struct err *e);
void baseline_close(struct unpack *u);
/*
 * The sandbox's state c becomes the baseline of its path (old entry b, or NULL). host_mode: what the host has
 * after this publish. mergeable: its bytes may be the base of a later text merge.
 */
int baseline_note(struct unpack *u, const struct change *c, const struct manifest_entry *b,
		  uint32_t host_mode, bool mergeable, struct err *e);
/* Before the commit; after it; when a step of it did not happen; when all is carried out. */
int baseline_prepare(struct unpack *u, struct err *e);
void baseline_committed(struct unpack *u);
void baseline_not_published(struct unpack *u, const char *path, bool conflict);
void baseline_finish(struct unpack *u);
/* The bytes of a sandbox's entry, not checked. fd or negative errno. */
int baseline_content(struct unpack *u, const struct manifest_entry *m);

/* unpack_plan.c: phase 2a, under the lock: every path into the journal or into the report. */
int plan_paths(struct unpack *u, struct journal *j, struct err *e);

/*
 * unpack_gitdir.c: what the stream has in the directories above the path that was judged last, the root first. Zeroed by the caller;
 * good while the list is. Paths in the list's order cost one walk a directory.
 */
struct gitdir_seen {
	uint8_t mask[PATH_DEPTH_MAX + 1];
	size_t len;
	char path[PATH_MEMBER_MAX + 1];
};
/* Would this member give orders to git in what is a repository by its layout? 1, 0, errno. */
int gitdir_refuses(struct unpack *u, struct gitdir_seen *seen, const char *path, size_t n,
		   struct change *scratch);

/*
 * The manifest's paths below directory `path` that `in` has below `as`, which is where they are now:
 * reported as deleted. 0 or negative errno.
 */
int tell_gone(struct unpack *u, struct beneath *in, const char *as, const char *path,
	      struct err *e);

/*
 * unpack_trash.c, phase 2c. What was deleted goes to the run, by a copy where that lies on another file system; with
 * s.keep_trash what was replaced too, for nobody else has those bytes. What cannot go is reported (u->untrashed):
 * then the staging place must stay. Without a run directory nothing can go. carried: this was left by a publish that
 * came to its end, so what still lies there of the sandbox's lost to the host: it goes to the run's conflicts.
 */
void trash_keep(struct unpack *u, bool carried, uint64_t end);
/*
 * All is carried out, and must not be once more, on files that were edited since: only what is kept waits. The
 * name of the contents from now on.
 */
const char *trash_wait(struct unpack *u);

/* unpack_publish.c: phase 2b. */
int publish_journal(struct unpack *u, struct err *e);
/* Walks the staging places below root; *ret_n: how many cut publishes were repaired. */
int publish_recover(struct unpack *u, uint64_t *ret_n, struct err *e);

/* Entry i of the list does not come in: it is ignored, or was refused when it was planned. */
static inline bool change_skipped(const struct unpack *u, uint64_t i)
{
	return u->skip && u->skip[i / 8] >> (i % 8) & 1;
}

/* One line of the report. Failures to send end phase 1 but not a publish. */
int tell(struct unpack *u, enum unpack_action a, const char *path, const char *rule,
	 const char *detail, struct err *e);

#endif
