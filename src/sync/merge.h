/*
 * merge.h: what to do with one path, as a pure function of three states.
 *
 * B: what was sent in (manifest), S: what the sandbox has, H: what the host has now. No file
 * access here: the caller names equal contents by equal `content` numbers and acts on the answer.
 *
 * Rules (DESIGN section 3): what the sandbox did not change is never touched. What the host did
 * not change takes the sandbox's state. Both changed: equal is nothing to do; three texts are
 * merged; otherwise the host stays (or, when configured, the sandbox wins) and the loser is saved.
 * Deletion against edit keeps the edit, on either side. A host directory is never replaced
 * unless everything in it is as it was sent (the caller proves that). Unknown is not deleted.
 */
#ifndef AIRLOCK_SYNC_MERGE_H
#define AIRLOCK_SYNC_MERGE_H

#include <stdbool.h>
#include <stdint.h>

enum merge_kind {
	MK_ABSENT,
	MK_FILE,
	MK_LINK,
	MK_DIR,
	MK_OTHER,   /* host only: device, FIFO, socket; never replaced */
	MK_UNKNOWN, /* sandbox only: the packer could not read it */
};

struct merge_side {
	enum merge_kind kind;
	unsigned content; /* files and links: equal numbers are equal bytes (targets); else 0 */
	uint32_t mode;	  /* files and directories: 0777; links: 0 */
};

enum merge_act {
	MA_NONE,	/* nothing to do */
	MA_CREATE,	/* H is absent: put S there */
	MA_REPLACE,	/* S over an unchanged file or link */
	MA_MODE,	/* only permission bits: `mode` */
	MA_MKDIR,	/* make the directory */
	MA_DELETE,	/* remove the unchanged file or link */
	MA_RMDIR,	/* remove the directory if nothing is left in it */
	MA_DIR_TO_FILE, /* S over a directory, if all in it is as sent; else as MA_KEEP */
	MA_FILE_TO_DIR, /* a directory in place of an unchanged file or link */
	MA_TEXT,	/* try a text merge; where that fails, `otherwise` */
	MA_KEEP,	/* conflict: host stays, S (if present) is saved */
	MA_TAKE,	/* conflict: H is saved, S takes the path */
};

struct merge_verdict {
	enum merge_act act;
	enum merge_act otherwise; /* MA_TEXT: MA_KEEP or MA_TAKE */
	uint32_t mode;		  /* of the result */
	const char *rule;	  /* conflicts: stable word; else "" */
};

struct merge_verdict merge_decide(struct merge_side b, struct merge_side s, struct merge_side h,
				  bool take_sandbox);
/* Same kind, content and mode. */
bool merge_same(struct merge_side a, struct merge_side b);
const char *merge_act_name(enum merge_act a);

#endif
