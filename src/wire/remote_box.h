/*
 * remote_box.h: a sandbox of the other machine's kernel, asked for over a session with the guest there (remote.h).
 *
 * airlock sends RM_BOX once the guest serves. The guest adds where things lie there, starts airlock-launch, hands the same message on to it, and from
 * RM_BOXED on gives it every request; what the launcher says of a start that failed is RM_NOT_BOXED, and nothing is run then.
 */
#ifndef AIRLOCK_WIRE_REMOTE_BOX_H
#define AIRLOCK_WIRE_REMOTE_BOX_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/cursor.h"

/* argv[1] of airlock-launch where it was sent to: the first frame is a struct rm_box, and it draws up the plan itself. */
#define LAUNCH_WORD "remote"
/* A descriptor that this launcher keeps open until its sandbox has ended: the lock of the run's directory. */
#define LAUNCH_FD_HELD 4
/* Of the run's directory: storage of its sandbox (provider/native_storage.h). */
#define REMOTE_BOX "sandbox"

struct rm_box {
	uint32_t net, without; /* as in struct plan */
	uint64_t memory_bytes, pids, cpu_milli;
	char *launch,
	    *gateway; /* hashes of the programs, which are there; gateway "": it is not wanted */
	/* To the launcher: absolute paths. From airlock: "". */
	char *run, *guest, *gateway_path;
};

/* What keeps a sandbox from starting: as the launcher says it (GM_STEP, GM_ERROR). */
struct rm_not_boxed {
	uint32_t step;	/* enum step; 0: text is a whole sentence */
	uint32_t error; /* errno, or enum err_code with step 0 */
	char *text;	/* the object of the step */
};

/* As in remote.h. */
int rm_box_put(struct buf *b, const struct rm_box *m);
int rm_box_get(struct view p, struct rm_box *ret);
void rm_box_done(struct rm_box *m);
int rm_not_boxed_put(struct buf *b, const struct rm_not_boxed *m);
int rm_not_boxed_get(struct view p, struct rm_not_boxed *ret);

#endif
