/*
 * images.h: the store of system images: STATE/images/<64 hexadecimal digits>/{tree/,image.json}, names/<NAME>.
 *
 * An image is never changed once it has its name: it is made in a directory of another name, whole and on the disk,
 * and then renamed. A directory that was not finished belongs to an import as long as that holds the lock on it;
 * whose import was killed is removed by the next verb of images, a recovery, or the daemon's sweep. A name is a pointer
 * that can be moved; what a lease or an environment keeps is the digest.
 */
#ifndef AIRLOCK_ENGINE_IMAGES_H
#define AIRLOCK_ENGINE_IMAGES_H

#include <jansson.h>

#include "engine/state.h"
#include "sync/image.h"

#define IMAGE_NAME_MAX 64
#define IMAGE_WORD "sha256:" /* before the digits, in what people read and write */

struct image_import {
	struct image_source source;
	const char *name; /* NULL: none */
};

/* 1 if the store had these contents already, 0 if they are new. */
int images_import(struct state *st, const struct image_import *i, struct image_facts *ret,
		  struct err *e);
/* A name, "sha256:<digits>", or at least 8 of its first digits. 0, or ERR_NOT_FOUND. */
int images_find(const struct state *st, const char *word, char ret_digest[IMAGE_HEX + 1],
		struct err *e);
/* The same for a whole "sha256:<digits>" alone: no name is looked up, nothing is guessed. */
int images_have(const struct state *st, const char *reference, char ret_digest[IMAGE_HEX + 1],
		struct err *e);
/* Heap path of its tree; NULL: out of memory. */
char *images_tree(const struct state *st, const char *digest);
/* Everything about each image, as a JSON array sorted by digest. NULL with e. */
json_t *images_list(const struct state *st, struct err *e);
/* One of them. */
json_t *images_get(const struct state *st, const char *digest, struct err *e);
/* Hashes the tree again. ERR_CONFLICT: it is not what it was. */
int images_verify(const struct state *st, const char *digest, struct image_facts *ret,
		  struct err *e);
/* With its names. ERR_CONFLICT names the lease or environment that needs it. */
int images_remove(struct state *st, const char *digest, struct err *e);
/* What killed imports and removals left. Number of things, or a negative errno. */
int images_recover(struct state *st, struct err *e);
/* Points a name at an image that is there. */
int images_rename(const struct state *st, const char *name, const char *digest, struct err *e);

#endif
