/*
 * unpack_client.h: one airlock-unpack and what it says, for unpack.c and unpack_repair.c.
 *
 * The helper's frames are trusted to be well formed, their data is not: paths in them come from a sandbox. Functions
 * return 0 or a negative errno with e, unless they say more.
 */
#ifndef AIRLOCK_SYNC_UNPACK_CLIENT_H
#define AIRLOCK_SYNC_UNPACK_CLIENT_H

#include "os/chan.h"
#include "os/helper.h"
#include "sync/unpack.h"
#include "sync/unpack_proto.h"

struct client {
	const struct unpack_opts *o;
	struct unpack_report *rep;
	struct helper helper;
	struct chan ch;
	bool done, carried, published, repaired, died, repaired_own;
	char name[ID_LEN + 1]; /* of its staging directory */
	char *root;	       /* owned: real path */
	uint64_t root_ino;
	int root_fd, run_fd, manifest_fd;
	char **fresh; /* owned: new paths */
	size_t fresh_len, fresh_cap;
	size_t changes_cap;
	/* rep->changes[from..to): what is expected only; prepared: so many changes are in the record already */
	size_t from, to, prepared;
	bool expecting;
};

/* o, rep: borrowed; rep is filled. */
void client_init(struct client *c, const struct unpack_opts *o, struct unpack_report *rep);
void client_done(struct client *c);
/*
 * A symlinked workspace is resolved once, here; from then on the descriptor is what counts. What it
 * holds must be the directory that was copied in: a link or a new directory may be in its place.
 */
int client_open_root(struct client *c, const char *root, struct err *e);
/* Into s: what proves later that the journal is ours, and of this workspace. */
int client_sign(const struct client *c, const char *state_dir, struct unpack_setup *s,
		struct err *e);
uint32_t client_umask(void);
int client_send_setup(struct client *c, const struct unpack_setup *s, const int *fds, size_t n,
		      struct err *e);
/* Serves the helper until its last frame. -EPIPE: it ended without one. */
int client_converse(struct client *c, struct err *e);
/* What a helper that ended without a last word leaves to say. Negative errno. */
int client_died(struct client *c, struct err *e);
/* The last frame is there; the process only has to be collected. */
void client_ended_well(struct client *c);
/* The helper sees the end of the channel and tidies up after itself; one that does not is ended. */
void client_let_go(struct client *c);
/* What was expected did not come as it was told, or nobody knows whether it did. */
void client_forget(struct client *c);
bool client_staging_left(const struct client *c);

#endif
