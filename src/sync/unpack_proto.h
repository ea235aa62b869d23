/*
 * unpack_proto.h: what the engine's client and airlock-unpack say to each other.
 *
 * Frames of wire/frame.h over a socket pair. The client trusts the helper's frames to be well
 * formed but not its data: paths in them come from a sandbox. The helper trusts the client.
 *
 *   client -> helper   SETUP [root, run dir, manifest, stream], LAYERS [..]..., BASELINE [dir], START
 *   helper             confines itself
 *   helper -> client   READY, PROGRESS..., CHANGE..., NEW..., PLAN
 *   client -> helper   SKIP..., GO
 *   helper -> client   LOCKED      (holds the workspace)
 *   client -> helper   PUBLISH     (the root is still where it was)
 *   helper -> client   [EXPECT 1, CHANGE..., EXPECT 0], [UNTOLD], CHANGE..., CARRIED,
 *                      DONE
 * What is told between the two EXPECT is only about to happen: CARRIED makes it true, unless UNTOLD took all of it back.
 * After CARRIED, which a publish that changed nothing does not send, only the staging place is left to be removed.
 * ERROR instead of anything ends it. A recovery is SETUP [root, run dir or nothing], START, READY, DONE.
 */
#ifndef AIRLOCK_SYNC_UNPACK_PROTO_H
#define AIRLOCK_SYNC_UNPACK_PROTO_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/cursor.h"
#include "base/err.h"
#include "base/id.h"
#include "base/limits.h"
#include "sync/journal.h"
#include "sync/unpack.h"

#define UNPACK_LAYERS_MAX 16

/* Below the workspace: where publishes are staged, each in a directory of its own. */
#define STAGING_GIT ".git/airlock-staging"
#define STAGING_TOP ".airlock-staging"

enum unpack_frame {
	UF_SETUP = 1,
	UF_LAYERS,
	UF_START,
	UF_SKIP, /* bytes 0 or 1, one per NEW path, in order; as many frames as needed */
	UF_GO,	 /* u8: the stream is not whole, what is missing is unknown */
	UF_PUBLISH,
	UF_BASELINE, /* [directory]: the baseline of a kept sandbox, to be moved on */
	UF_READY = 32,
	UF_PROGRESS, /* u64 members, u64 bytes */
	UF_NEW,	     /* (u32 n, bytes)...: paths that the manifest does not have */
	UF_PLAN,
	UF_LOCKED,
	UF_CHANGE,
	UF_EXPECT,  /* u8: 1 begins, 0 ends */
	UF_UNTOLD,  /* what was expected is told anew, as it happens */
	UF_CARRIED, /* as DONE */
	UF_DONE,
	UF_ERROR, /* u32 code, u32 errno, str text */
};

enum unpack_mode {
	UM_STREAM = 0, /* read the stream, publish */
	UM_REVIEW,     /* read the stream, keep it in run_dir/pending */
	UM_APPLY,      /* publish run_dir/pending */
	UM_RECOVER,
};

struct unpack_setup {
	uint8_t mode;
	bool strict, dry_run, take_sandbox, full_tree, without_landlock, has_manifest, keep_trash;
	bool take_all; /* the client keeps no new path out: NEW and SKIP are left out */
	uint64_t total_max, member_max, members_max;
	uint32_t slow_ms;		 /* STREAM_SLOW_MS */
	uint32_t lock_wait_ms, umask;	 /* umask: of the user; for new entries */
	char only[PATH_SEGMENT_MAX + 1]; /* the one member that may come; "": any */
	char run[ID_LEN + 1];		 /* name of the staging directory */
	bool one;			 /* UM_RECOVER: that one only, else all */
	char place[PATH_MEMBER_MAX + 1]; /* the run directory, for the journal */
	char root[PATH_MEMBER_MAX + 1];	 /* where the workspace is, for the journal */
	uint8_t key[JOURNAL_KEY];	 /* of this workspace (unpack_key.h) */
};

int unpack_put_setup(struct buf *b, const struct unpack_setup *s);
/* 0 or -EPROTO. */
int unpack_get_setup(struct view v, struct unpack_setup *ret);

/* Views: nothing is owned. */
struct unpack_note {
	uint8_t action;
	struct view path, rule, detail;
};
int unpack_put_note(struct buf *b, const struct unpack_note *n);
int unpack_get_note(struct view v, struct unpack_note *ret);

struct unpack_done {
	uint64_t bytes_written;
	bool mass_delete, rejected, repaired;
	struct view rule, text, path; /* of a rejection; path: empty if no member is to blame */
};
int unpack_put_done(struct buf *b, const struct unpack_done *d);
int unpack_get_done(struct view v, struct unpack_done *ret);

int unpack_put_error(struct buf *b, const struct err *e);
/*
 * Adds to the text of a failure what became of the workspace and what helps, where it does not say
 * so yet. begun: the journal was committed, so part of the results may be there.
 */
void unpack_explain(struct err *e, bool begun);
/* Fills e from the frame; returns the negative errno. */
int unpack_get_error(struct view v, struct err *e);

#endif
