/*
 * Removal of images. A lease's row is written before its sandbox is made, so the image goes out of reach first
 * and who needs it is asked then: whoever has no row by that time finds no image, and says so. One that is needed is
 * put back.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/path.h"
#include "base/str.h"
#include "engine/images_internal.h"
#include "engine/leasespec.h"
#include "store/envlease.h"
#include "store/environment.h"
#include "store/lease.h"

#define SERVER_DB "server.db"

struct need {
	const char *digest;
	char who[128]; /* "": nobody */
};

static int by_lease(struct state *st, struct need *n, struct err *e)
{
	struct lease_row *v = NULL;
	size_t count = 0;
	int r = lease_list(st->store, &v, &count, e);

	for (size_t i = 0; r == 0 && i < count && !n->who[0]; i++) {
		_cleanup_leasespec_ struct lease_spec s = {0};

		r = leasespec_get(v[i].spec, &s, e);
		if (r == 0 && s.image && strstr(s.image, n->digest))
			(void)snprintf(n->who, sizeof(n->who), "lease %s (%s)", v[i].id,
				       lease_state_name(v[i].state));
	}
	lease_list_free(v, count);
	return r;
}

static bool names_it(const json_t *config, const char *digest)
{
	const char *image = json_string_value(json_object_get(config, "image"));

	return image && str_starts(image, IMAGE_WORD) &&
	       strcmp(image + sizeof(IMAGE_WORD) - 1, digest) == 0;
}

static int see_environment(void *arg, const struct environment_row *row)
{
	struct need *n = arg;
	json_t *j = json_loads(row->config ? row->config : "{}", 0, NULL);

	if (!n->who[0] && names_it(j, n->digest))
		(void)snprintf(n->who, sizeof(n->who), "environment %s", row->id);
	json_decref(j);
	return 0;
}

static int see_lease(void *arg, const struct envlease_row *l)
{
	struct need *n = arg;
	json_t *j = json_loads(l->metadata ? l->metadata : "{}", 0, NULL);
	/* Stopped with its storage kept is one of them: it may be resumed. */
	bool stored = l->status == EL_ACTIVE || l->status == EL_RETAINED ||
		      l->status == EL_PENDING ||
		      (l->status == EL_RELEASED && strcmp(l->policy, "ephemeral") != 0);

	if (!n->who[0] && stored && names_it(json_object_get(j, "config"), n->digest))
		(void)snprintf(n->who, sizeof(n->who), "lease %s of environment %s", l->id,
			       l->environment_id);
	json_decref(j);
	return 0;
}

/* Of the daemon, if there ever was one here. */
static int by_daemon(struct state *st, struct need *n, struct err *e)
{
	static const struct environment_filter all = {.limit = -1};
	static const struct envlease_filter leases = {.limit = -1};
	_cleanup_free_ char *path = path_join(st->dir, SERVER_DB);
	_cleanup_store_ struct db *db = NULL;
	int r;

	if (!path)
		return err_set(e, ERR_NOMEM, "images: out of memory");
	if (access(path, F_OK) < 0)
		return 0;
	r = db_open_server(path, &db, e);
	/*
	 * As a writer: one that is being written is waited for, and seen; one that begins later finds the image out of reach. A reader
	 * would see neither.
	 */
	if (r == 0)
		r = db_begin(db, e);
	if (r < 0)
		return r;
	r = environment_each(db, &all, see_environment, n, e);
	if (r >= 0)
		r = envlease_each(db, &leases, see_lease, n, e);
	return db_end(db, r < 0 ? r : 0, e);
}

static int who_needs(struct state *st, struct need *n, struct err *e)
{
	int r = by_lease(st, n, e);

	return r == 0 && !n->who[0] ? by_daemon(st, n, e) : r;
}

static int move(const struct state *st, const char *from, const char *to, struct err *e)
{
	_cleanup_free_ char *a = state_path(st, "images", from, NULL);
	_cleanup_free_ char *b = state_path(st, "images", to, NULL);

	if (!a || !b)
		return err_set(e, ERR_NOMEM, "images: out of memory");
	return rename(a, b) < 0 ? err_sys(e, errno, "move image %s", from) : 0;
}

struct names {
	const struct state *st;
	const char *digest;
};

static int drop_name(void *arg, const char *name, const char *digest)
{
	const struct names *n = arg;
	_cleanup_free_ char *path = state_path(n->st, "images/names", name, NULL);

	if (path && strcmp(digest, n->digest) == 0)
		(void)unlink(path);
	return 0;
}

/* Out of reach already. 1 gone, 0 put back. */
static int finish(struct state *st, const char *name, struct need *n, struct err *e)
{
	struct names names = {st, n->digest};
	int r = who_needs(st, n, e);

	/* Whether it is needed cannot be told: then it is. */
	if (r < 0 || n->who[0]) {
		struct err back = ERR_INIT;

		if (move(st, name, n->digest, &back) < 0 && r == 0) {
			*e = back;
			r = -EIO;
		}
		return r;
	}
	(void)images_each_name(st, drop_name, &names);
	r = images_discard(st, name, e);
	return r < 0 ? r : 1;
}

int images_finish_removal(struct state *st, const char *name, struct err *e)
{
	struct need n = {.digest = name + sizeof(IMAGES_GONE) - 1};

	return image_is_hex(n.digest) ? finish(st, name, &n, e) : 0;
}

int images_remove(struct state *st, const char *digest, struct err *e)
{
	char name[sizeof(IMAGES_GONE) + IMAGE_HEX];
	struct need n = {.digest = digest};
	_cleanup_fd_ int lock = -1;
	int r = images_open(st, &lock, e);

	/* Asked before as well: what is needed is not out of reach for a moment, but for an accident. */
	if (r == 0)
		r = who_needs(st, &n, e);
	if (r == 0 && !n.who[0]) {
		(void)snprintf(name, sizeof(name), IMAGES_GONE "%s", digest);
		r = move(st, digest, name, e);
		if (r == 0)
			r = finish(st, name, &n, e);
	}
	if (r == 0 && n.who[0])
		return err_set(e, ERR_CONFLICT,
			       "image " IMAGE_WORD "%s is needed by %s: nothing was removed",
			       digest, n.who);
	return r < 0 ? r : 0;
}
