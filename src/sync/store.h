/*
 * store.h: the directory that holds the bases of one workspace (see sync_in.h for its names).
 *
 * A *generation* is one number: its layers (top first), its manifest.<n>, its repository seed and
 * its lock layers/<n>.lock. Numbers of generations and of layer directories are drawn from one
 * sequence; a generation that only changes the seed or the stat fields has no directory of its own.
 *
 * Crash safety: everything is built under a name that begins with ".new-" and renamed; the file
 * `stack` is replaced last. A killed sync_in leaves only ".new-" names, which the next one removes.
 * After a crash of the machine the contents of files may be lost though their names are not, so a
 * stack carries the boot it was made in and is not trusted in another one unless it was synced.
 */
#ifndef AIRLOCK_SYNC_STORE_H
#define AIRLOCK_SYNC_STORE_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "base/err.h"
#include "base/limits.h"

#define STORE_SEED_MAX 80

struct store {
	char *path;		    /* owned */
	int fd, layers_fd, lock_fd; /* owned */
};

struct store_stack {
	uint32_t number;		       /* 0: none */
	uint32_t layers[DELTA_LAYERS_MAX + 1]; /* top first */
	size_t layers_n;
	uid_t owner;
	gid_t group;
	uint64_t files, dirs, links, bytes; /* in the manifest */
	char seed[STORE_SEED_MAX];	    /* name below git/, "" none */
};

/* Makes what is missing (0700) and takes the exclusive lock, waiting at most LOCK_WAIT_MS. */
int store_open(const char *path, const volatile int *cancel, struct store *ret, struct err *e);
void store_close(struct store *s);
/*
 * For who takes whole stores away: 1 when nobody holds or pins a generation and the last use was not after
 * before_ns; *ret_lock keeps others out while it is open (-1: whoever made the store was killed before it had a lock). 0: in use, or
 * younger (*ret_used tells), or another one has the name by now. Changes nothing. Errors: negative errno.
 */
int store_idle(const char *path, int64_t before_ns, int *ret_lock, bool *ret_used, struct err *e);
/* 1 and the current stack; 0 none that can be trusted. */
int store_current(struct store *s, struct store_stack *ret, struct err *e);
uint32_t store_next_number(struct store *s);
/* Can all of its layers be mounted? Not those that are one file. */
bool store_mountable(struct store *s, const struct store_stack *st);
/* A new directory or file below the store under a temporary name; see store_adopt. */
int store_new_dir(struct store *s, int at_fd, const char *label, int *ret_fd, char name[64],
		  struct err *e);
int store_new_file(struct store *s, int at_fd, int *ret_fd, char name[64], struct err *e);
/* Removes what store_new_* made and was not adopted. */
void store_discard(struct store *s, int at_fd, const char *name);
/* Records the stack as the current one. */
int store_commit(struct store *s, const struct store_stack *st, struct err *e);
/* A descriptor with a shared lock on a generation. */
int store_hold(struct store *s, uint32_t number, int *ret_fd, struct err *e);
/* Drops generations, layers and seeds that neither `keep` nor a held generation names. */
void store_collect(struct store *s, const struct store_stack *keep);
/* "manifest.<n>", absolute, heap. */
char *store_manifest_path(const struct store *s, uint32_t number);

#endif
