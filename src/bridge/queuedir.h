/*
 * queuedir.h: the directory of a file queue, from the host's side: names, types and sizes before bytes.
 *
 *	requests/ID.json    published by the gateway, by rename; taken by moving it to claims/
 *	claims/ID.json      taken, and not answered yet: what a process of the bridge that died had begun with
 *	responses/ID.json   published by the host, by rename; removed by the gateway
 *	alive               a sign of life and the ids under way, while a request takes longer than a moment
 *
 * The directory is one run's and was made empty. Its three folders are opened before confinement and never looked up again;
 * entries are resolved beneath them without following a link. Whoever is in the sandbox may write in requests and
 * responses at any time, as an ordinary user's sandbox may in all of it: nothing here is believed but what the open,
 * checked descriptor gives, and no call waits for anybody.
 */
#ifndef AIRLOCK_BRIDGE_QUEUEDIR_H
#define AIRLOCK_BRIDGE_QUEUEDIR_H

#include <dirent.h>
#include <stdbool.h>

#include "base/buf.h"
#include "base/err.h"
#include "os/beneath.h"
#include "wire/queue.h"

#define QUEUE_REQUESTS "requests"
#define QUEUE_RESPONSES "responses"
#define QUEUE_CLAIMS "claims"
#define QUEUE_ALIVE "alive"

struct queuedir {
	int root;			       /* owned */
	struct beneath in, out, claims;	       /* owned roots */
	DIR *list_in, *list_claims, *list_out; /* owned */
	int notify; /* inotify of requests/, owned; -1: it tells nothing, look now and then */
};

/* Before confinement. Takes root, whatever happens. */
int queuedir_open(struct queuedir *d, int root, struct err *e);
void queuedir_done(struct queuedir *d);
/* What lies there is of no run of ours: away with it. */
void queuedir_purge(struct queuedir *d);
/*
 * Calls each() with the ids of requests/ (or claims/), at most `most` entries of the directory a call. True: there may be more,
 * the next call goes on there; from_start begins anew.
 */
bool queuedir_list(struct queuedir *d, bool claims, bool from_start, unsigned most,
		   void (*each)(void *arg, const char *id), void *arg);
/* Bytes of a request, or 0 if there is no plain file. */
uint64_t queuedir_size(const struct queuedir *d, const char *id, bool claimed);
/*
 * Claims the request (unless claimed already) and appends its bytes. 0; -ENOENT: it is not there (any more); -EBADMSG: no plain
 * file of one name, removed unopened or unread; -EEXIST: one of that id is under way, this one is removed; -ENOMEM: it lies where it
 * lay; claimed and not read: -E2BIG over max bytes, -EAGAIN it changed meanwhile.
 */
int queuedir_take(struct queuedir *d, const char *id, bool claimed, size_t max, struct buf *out);
/* The request is answered, or cannot be. */
void queuedir_release(struct queuedir *d, const char *id);
/* Descriptor of a new file for an answer, or a negative errno. */
int queuedir_answer(struct queuedir *d, const char *id);
/* It becomes the answer, in place of whatever has its name. 0 or a negative errno. */
int queuedir_publish(struct queuedir *d, const char *id);
void queuedir_drop(struct queuedir *d, const char *id);
bool queuedir_answered(struct queuedir *d, const char *id);
/* Replaces the sign of life. */
void queuedir_alive(struct queuedir *d, struct view text);

#endif
