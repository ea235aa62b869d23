/* images_internal.h: between images.c and images_remove.c. */
#ifndef AIRLOCK_ENGINE_IMAGES_INTERNAL_H
#define AIRLOCK_ENGINE_IMAGES_INTERNAL_H

#include "engine/images.h"

#define IMAGES_GONE ".gone-" /* an image that is being removed */

/* Makes what is missing and locks the store, against other changes of names and of what is there. */
int images_open(const struct state *st, int *ret_lock, struct err *e);
/* To the trash and away. */
int images_discard(const struct state *st, const char *name, struct err *e);
/* name: IMAGES_GONE and the digest; the store is locked. 1 removed; 0 put back, because it is needed. */
int images_finish_removal(struct state *st, const char *name, struct err *e);
/* cb for each name and the digest that it stands for, until it returns non-zero. */
int images_each_name(const struct state *st,
		     int (*cb)(void *arg, const char *name, const char *digest), void *arg);

#endif
