/*
 * place.h: the sandbox behind a lease of the API: made, found again, ended, removed (native provider).
 *
 * Runs in jobs only: each call may wait. Storage is STATE/served/<provider lease id>; a sandbox is kept, so it outlives the
 * job that made it and is found again through its control socket. Nothing counts as ended without proof: the
 * socket's owner said so, or its process is gone.
 */
#ifndef AIRLOCK_API_PLACE_H
#define AIRLOCK_API_PLACE_H

#include <jansson.h>

#include "engine/state.h"
#include "provider/provider.h"
#include "store/envlease.h"

struct place {
	struct state *st;
	char *dir, *outside, *image; /* owned; image: NULL, the host's own programs */
	struct bind_ro binds[1];
	struct sandbox_spec spec;
};

/* Heap path of the directory of all of them; NULL: out of memory. */
char *place_parent(const struct state *st);
/* config: of the environment, as stored with the lease. */
int place_open(struct place *p, struct state *st, const struct envlease_row *l,
	       const json_t *config, struct err *e);
/* Before a start alone: what runs is found, looked into, ended and removed without its image. ERR_NOT_FOUND. */
int place_image(struct place *p, const json_t *config, struct err *e);
void place_done(struct place *p);
#define _cleanup_place_ __attribute__((cleanup(place_done)))
/* Whether the storage of that lease is there: 1, 0, or a negative errno when it cannot be told. */
int place_kept(const struct state *st, const char *name);
/* Starts it on new or kept storage. */
int place_start(struct place *p, struct sandbox **ret, struct err *e);
/* -ENOENT: it does not run. */
int place_attach(struct place *p, struct sandbox **ret, struct err *e);
/* Ends what runs, whoever made it; 0 also when nothing did. Storage stays. */
int place_end(struct place *p, const struct envlease_row *l, struct err *e);
/* Storage too. */
int place_remove(struct place *p, const char *name, struct err *e);

/* What a probe finds inside (RT-02); one of these words each: sh, tar, node, workspace, home, cache, tmp. */
struct place_facts {
	char missing[160]; /* comma-separated, "" nothing */
	char system[64], machine[64], libc[64];
};
int place_look(struct sandbox *sb, struct place_facts *ret, struct err *e);

#endif
