/*
 * state.h: the state directory and the open database.
 *
 *   $XDG_STATE_HOME/airlock (default ~/.local/state/airlock), mode 0700, owned by the caller:
 *     airlock.db   workspaces/<key>/   leases/<id>/   runs/<id>/   unpacks/<id>/   trash/
 */
#ifndef AIRLOCK_ENGINE_STATE_H
#define AIRLOCK_ENGINE_STATE_H

#include "base/err.h"
#include "os/proc.h"
#include "store/store.h"

#define DAEMON_FILE \
	"daemon" /* in the state directory: where its airlockd listens, as long as that runs */

#define DAEMON_SOCKET \
	"airlockd.sock" /* there too: where it answers the command line of the same state */

struct state {
	char *dir; /* owned */
	struct db *store;
	struct proc_id self;
	char *const *
	    identities; /* borrowed: keys of other machines that this process can use (sandbox_spec) */
};

/*
 * 0 if the tree at path (real) and the state have nothing in common; else an error that names it as `what`. Records, trash
 * and the journals' key are trusted: nothing of them goes into a sandbox, and no stream may write them.
 */
int state_apart(const struct state *st, const char *path, const char *what, struct err *e);
/* Makes what is missing; refuses a directory that others can write or own. */
int state_open(struct state *st, struct err *e);
void state_done(struct state *st);
#define _cleanup_state_ __attribute__((cleanup(state_done)))
/* Heap path dir/kind/id[/leaf]; kind "leases", "runs", ...; leaf may be NULL. NULL: out of memory. */
char *state_path(const struct state *st, const char *kind, const char *id, const char *leaf);
/* mkdir 0700 of dir/kind/id. */
int state_mkdir(const struct state *st, const char *kind, const char *id, struct err *e);
/* The store of sync_in for a workspace and environment. */
int state_workspace_store(const struct state *st, const char *workspace, const char *env,
			  char **ret, struct err *e);
/* Renames dir/kind/id into the trash (a no-op when it is gone); ret_trash: heap path or NULL. */
int state_discard(const struct state *st, const char *kind, const char *id, char **ret_trash,
		  struct err *e);
/* Removes a tree that the caller owns, odd modes included; never leaves its file system, never follows links. */
int state_remove_tree(const char *path, struct err *e);

#endif
