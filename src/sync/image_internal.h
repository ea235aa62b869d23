/* image_internal.h: between the files of airlock-image. */
#ifndef AIRLOCK_SYNC_IMAGE_INTERNAL_H
#define AIRLOCK_SYNC_IMAGE_INTERNAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "os/beneath.h"
#include "sync/image.h"

/* --- image_stream.c: plain, gzip or zstd, told apart by its first bytes ---------------------- */

struct image_stream; /* opaque */

/* fd is borrowed and read from where it stands. */
int image_stream_new(int fd, struct image_stream **ret, struct err *e);
void image_stream_free(struct image_stream *s);
/* The next piece, valid until the next call; *ret_n is 0 at the end. */
int image_stream_next(struct image_stream *s, const uint8_t **ret_p, size_t *ret_n, struct err *e);

/* --- image_digest.c -------------------------------------------------------------------------- */

/* Over IMAGE_BYTES_MAX. */
int image_too_large(struct err *e);

/* --- image_layer.c --------------------------------------------------------------------------- */

/* What all archives of an import share. */
struct image_tree {
	struct beneath at; /* the tree that is filled */
	struct image_facts *facts;
	uint64_t members, bytes; /* so far */
};

enum layer_pass {
	LAYER_ALL,	 /* a plain archive: no name has a meaning */
	LAYER_WHITEOUTS, /* only what a layer takes away from those below it */
	LAYER_CONTENTS,	 /* only what it brings */
};

/* One archive from fd, applied to the tree. */
int image_layer_apply(struct image_tree *t, int fd, enum layer_pass pass, struct err *e);

/* --- image_oci.c ----------------------------------------------------------------------------- */

/* 1 if the directory holds an OCI layout, 0 if not. */
int image_oci_is(struct beneath *layout, struct err *e);
/* Finds the image, checks each blob against its digest, applies the layers. */
int image_oci_apply(struct beneath *layout, const char *ref, struct image_tree *t, struct err *e);

#endif
