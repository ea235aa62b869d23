#include "engine/images.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/cleanup.h"
#include "base/clock.h"
#include "base/id.h"
#include "base/path.h"
#include "base/str.h"
#include "engine/images_internal.h"

#define FACTS "image.json"
#define INCOMING ".incoming-"
#define PREFIX_MIN 8

static int nomem(struct err *e)
{
	return err_set(e, ERR_NOMEM, "images: out of memory");
}

static int make_dir(const char *path, struct err *e)
{
	return mkdir(path, 0700) < 0 && errno != EEXIST ? err_sys(e, errno, "create %s", path) : 0;
}

int images_open(const struct state *st, int *ret_lock, struct err *e)
{
	_cleanup_free_ char *dir = path_join(st->dir, "images");
	_cleanup_free_ char *names = dir ? path_join(dir, "names") : NULL;
	_cleanup_free_ char *lock = dir ? path_join(dir, ".lock") : NULL;
	int r = names && lock ? make_dir(dir, e) : nomem(e);

	if (r == 0)
		r = make_dir(names, e);
	if (r < 0)
		return r;
	*ret_lock = open(lock, O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
	if (*ret_lock < 0 || flock(*ret_lock, LOCK_EX) < 0)
		return err_sys(e, errno, "lock %s", lock);
	return 0;
}

/* --- names -------------------------------------------------------------------------------- */

static int check_name(const char *name, struct err *e)
{
	static const char letters[] =
	    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._+-";
	size_t n = strlen(name);

	if (n == 0 || n > IMAGE_NAME_MAX || strspn(name, letters) != n || strchr("._+-", name[0]))
		return err_set(
		    e, ERR_USAGE,
		    "image name %.80s: 1 to %d letters, digits, '.', '_', '+' and '-', the first a letter or digit",
		    name, IMAGE_NAME_MAX);
	if (n >= PREFIX_MIN && strspn(name, "0123456789abcdef") == n)
		return err_set(e, ERR_USAGE,
			       "image name %.80s: it looks like a digest: choose another", name);
	return 0;
}

static int put_name(const struct state *st, const char *name, const char *digest, struct err *e)
{
	_cleanup_free_ char *path = state_path(st, "images/names", name, NULL);
	_cleanup_free_ char *tmp = state_path(st, "images", ".name", NULL);
	_cleanup_fd_ int fd = -1;
	char line[IMAGE_HEX + 2];
	int n, r = check_name(name, e);

	if (r < 0)
		return r;
	if (!path || !tmp)
		return nomem(e);
	/* The store is locked: one writer. What a killed one left is overwritten. */
	fd = open(tmp, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
	n = snprintf(line, sizeof(line), "%s\n", digest);
	if (fd < 0 || write(fd, line, (size_t)n) != n || fsync(fd) < 0 || rename(tmp, path) < 0)
		return err_sys(e, errno, "name the image %s", name);
	return 0;
}

/* 1 and the digest; 0: no such name. */
static int read_name(const struct state *st, const char *name, char ret[IMAGE_HEX + 1])
{
	_cleanup_free_ char *path = state_path(st, "images/names", name, NULL);
	_cleanup_fd_ int fd = path ? open(path, O_RDONLY | O_NOFOLLOW | O_CLOEXEC) : -1;
	ssize_t n = fd < 0 ? -1 : read(fd, ret, IMAGE_HEX);

	ret[n == IMAGE_HEX ? IMAGE_HEX : 0] = '\0';
	return image_is_hex(ret);
}

int images_each_name(const struct state *st,
		     int (*cb)(void *arg, const char *name, const char *digest), void *arg)
{
	_cleanup_free_ char *path = state_path(st, "images", "names", NULL);
	_cleanup_dir_ DIR *d = path ? opendir(path) : NULL;
	char digest[IMAGE_HEX + 1];
	struct dirent *de;
	int r = 0;

	while (r == 0 && d && (de = readdir(d)))
		if (de->d_name[0] != '.' && read_name(st, de->d_name, digest))
			r = cb(arg, de->d_name, digest);
	return r;
}

/* --- finding ------------------------------------------------------------------------------ */

static bool there(const struct state *st, const char *digest)
{
	_cleanup_free_ char *path = state_path(st, "images", digest, FACTS);

	return path && access(path, F_OK) == 0;
}

static int not_found(const char *word, struct err *e)
{
	return err_set(
	    e, ERR_NOT_FOUND,
	    "there is no image %.100s: 'airlock image list' shows them, 'airlock image import' adds one",
	    word);
}

static int find_prefix(const struct state *st, const char *hex, char ret[IMAGE_HEX + 1],
		       struct err *e)
{
	_cleanup_free_ char *path = path_join(st->dir, "images");
	_cleanup_dir_ DIR *d = path ? opendir(path) : NULL;
	struct dirent *de;
	size_t n = strlen(hex), found = 0;

	while (n >= PREFIX_MIN && d && (de = readdir(d)))
		if (image_is_hex(de->d_name) && strncmp(de->d_name, hex, n) == 0 &&
		    there(st, de->d_name)) {
			memcpy(ret, de->d_name, IMAGE_HEX + 1);
			found++;
		}
	if (found > 1)
		return err_set(e, ERR_USAGE, "%zu images begin with %.64s: give more digits", found,
			       hex);
	return found ? 0 : not_found(hex, e);
}

int images_have(const struct state *st, const char *reference, char ret[IMAGE_HEX + 1],
		struct err *e)
{
	const char *hex = reference + sizeof(IMAGE_WORD) - 1;

	if (!str_starts(reference, IMAGE_WORD) || !image_is_hex(hex) || !there(st, hex))
		return not_found(reference, e);
	memcpy(ret, hex, IMAGE_HEX + 1);
	return 0;
}

int images_find(const struct state *st, const char *word, char ret[IMAGE_HEX + 1], struct err *e)
{
	if (str_starts(word, IMAGE_WORD))
		word += sizeof(IMAGE_WORD) - 1;
	else if (check_name(word, NULL) == 0)
		return read_name(st, word, ret) && there(st, ret) ? 0 : not_found(word, e);
	if (strspn(word, "0123456789abcdef") != strlen(word))
		return not_found(word, e);
	return find_prefix(st, word, ret, e);
}

int images_rename(const struct state *st, const char *name, const char *digest, struct err *e)
{
	_cleanup_fd_ int lock = -1;
	int r = images_open(st, &lock, e);

	/* It may have been removed since it was found. */
	if (r == 0 && !there(st, digest))
		r = not_found(digest, e);
	return r == 0 ? put_name(st, name, digest, e) : r;
}

char *images_tree(const struct state *st, const char *digest)
{
	return state_path(st, "images", digest, IMAGE_TREE);
}

/* --- telling ------------------------------------------------------------------------------ */

struct names_of {
	const char *digest;
	json_t *list;
};

static int add_name(void *arg, const char *name, const char *digest)
{
	struct names_of *n = arg;

	if (strcmp(digest, n->digest) == 0)
		(void)json_array_append_new(n->list, json_string(name));
	return 0;
}

json_t *images_get(const struct state *st, const char *digest, struct err *e)
{
	_cleanup_free_ char *path = state_path(st, "images", digest, FACTS);
	json_t *j = path ? json_load_file(path, JSON_REJECT_DUPLICATES, NULL) : NULL;
	struct names_of n = {digest, json_array()};

	if (!json_is_object(j)) {
		json_decref(j);
		json_decref(n.list);
		(void)not_found(digest, e);
		return NULL;
	}
	(void)images_each_name(st, add_name, &n);
	(void)json_object_set_new(j, "names", n.list);
	return j;
}

static int by_digest(const void *a, const void *b)
{
	return strcmp(*(char *const *)a, *(char *const *)b);
}

json_t *images_list(const struct state *st, struct err *e)
{
	_cleanup_free_ char *path = path_join(st->dir, "images");
	_cleanup_dir_ DIR *d = path ? opendir(path) : NULL;
	_cleanup_strv_ char **v = NULL;
	json_t *list = json_array(), *j;
	struct dirent *de;

	while (d && (de = readdir(d)))
		if (image_is_hex(de->d_name) && there(st, de->d_name) &&
		    strv_add(&v, de->d_name) < 0) {
			json_decref(list);
			(void)nomem(e);
			return NULL;
		}
	if (v)
		qsort(v, strv_len(v), sizeof(*v), by_digest);
	for (size_t i = 0; v && v[i]; i++) {
		/* One that was removed meanwhile is no failure. */
		j = images_get(st, v[i], NULL);
		if (j)
			(void)json_array_append_new(list, j);
	}
	return list;
}

int images_verify(const struct state *st, const char *digest, struct image_facts *ret,
		  struct err *e)
{
	_cleanup_free_ char *path = images_tree(st, digest);
	_cleanup_fd_ int fd =
	    path ? open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC) : -1;
	int r;

	*ret = (struct image_facts){0};
	if (fd < 0)
		return path ? err_sys(e, errno, "open %s", path) : nomem(e);
	r = image_digest(fd, ret, e);
	if (r == 0 && strcmp(ret->digest, digest) != 0)
		r = err_set(
		    e, ERR_CONFLICT,
		    "image " IMAGE_WORD
		    "%s was changed on the disk, it is now %.12s...: remove it and import it again",
		    digest, ret->digest);
	return r;
}

/* --- import ------------------------------------------------------------------------------- */

struct incoming {
	char id[ID_LEN + 1];
	char name[sizeof(INCOMING) + ID_LEN];
	char *path; /* owned */
	int fd;	    /* owned, locked */
};

/* The store is locked meanwhile, so nobody takes the new directory for one without an import. */
static int begin(const struct state *st, struct incoming *in, struct err *e)
{
	int r = id_new(in->id);

	if (r < 0)
		return err_sys(e, -r, "make an id");
	(void)snprintf(in->name, sizeof(in->name), "%s%s", INCOMING, in->id);
	in->path = state_path(st, "images", in->name, NULL);
	if (!in->path)
		return nomem(e);
	if (mkdir(in->path, 0700) < 0)
		return err_sys(e, errno, "create %s", in->path);
	in->fd = open(in->path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (in->fd < 0 || flock(in->fd, LOCK_EX | LOCK_NB) < 0)
		return err_sys(e, errno, "lock %s", in->path);
	return 0;
}

static int write_facts(const struct incoming *in, const struct image_facts *f, struct err *e)
{
	_cleanup_fd_ int fd =
	    openat(in->fd, FACTS, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
	char digest[sizeof(IMAGE_WORD) + IMAGE_HEX], source[sizeof(digest)] = "";
	json_t *j;
	int r;

	(void)snprintf(digest, sizeof(digest), IMAGE_WORD "%s", f->digest);
	if (f->source[0])
		(void)snprintf(source, sizeof(source), IMAGE_WORD "%s", f->source);
	j = json_pack("{s:i,s:s,s:s?,s:s?,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I}", "version", 1, "digest",
		      digest, "source", source[0] ? source : NULL, "arch",
		      f->arch[0] ? f->arch : NULL, "files", (json_int_t)f->files, "directories",
		      (json_int_t)f->dirs, "links", (json_int_t)f->links, "bytes",
		      (json_int_t)f->bytes, "layers", (json_int_t)f->layers, "leftOutSpecial",
		      (json_int_t)f->specials, "takenAwaySetId", (json_int_t)f->privileged,
		      "importedAtMs", (json_int_t)(clock_real_ns() / NS_PER_MS));
	r = fd >= 0 && j ? json_dumpfd(j, fd, JSON_COMPACT) : -1;
	json_decref(j);
	if (r < 0 || fsync(fd) < 0)
		return err_sys(e, errno ? errno : EIO, "write what the image is");
	return 0;
}

static int sync_dir(const struct state *st, struct err *e)
{
	_cleanup_free_ char *path = path_join(st->dir, "images");
	_cleanup_fd_ int fd = path ? open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;

	return fd < 0 || fsync(fd) < 0 ? err_sys(e, errno, "write the store of images") : 0;
}

/* 1: it was there. */
static int publish(const struct state *st, const struct incoming *in, const struct image_import *i,
		   const struct image_facts *f, struct err *e)
{
	_cleanup_free_ char *to = state_path(st, "images", f->digest, NULL);
	_cleanup_fd_ int lock = -1;
	int had = 0, r = to ? images_open(st, &lock, e) : nomem(e);

	if (r < 0)
		return r;
	if (renameat2(AT_FDCWD, in->path, AT_FDCWD, to, RENAME_NOREPLACE) < 0) {
		if (errno != EEXIST)
			return err_sys(e, errno, "put the image into the store");
		had = 1;
	}
	r = sync_dir(st, e);
	if (r == 0 && i->name)
		r = put_name(st, i->name, f->digest, e);
	return r < 0 ? r : had;
}

int images_import(struct state *st, const struct image_import *i, struct image_facts *ret,
		  struct err *e)
{
	struct incoming in = {.fd = -1};
	_cleanup_fd_ int lock = -1;
	struct err le = ERR_INIT;
	int r = i->name ? check_name(i->name, e) : 0;

	if (r == 0)
		r = images_open(st, &lock, e);
	if (r == 0)
		r = begin(st, &in, e);
	cleanup_fd(&lock);
	if (r == 0)
		r = image_unpack(&i->source, in.fd, ret, e);
	if (r == 0)
		r = write_facts(&in, ret, e);
	if (r == 0)
		r = publish(st, &in, i, ret, e);
	/* Still there: it failed, or the store had the same. */
	if (in.path && r != 0 && access(in.path, F_OK) == 0 &&
	    images_discard(st, in.name, &le) < 0 && r > 0) {
		*e = le;
		r = -EIO;
	}
	cleanup_fd(&in.fd);
	free(in.path);
	return r;
}

/* --- left-overs --------------------------------------------------------------------------- */

int images_discard(const struct state *st, const char *name, struct err *e)
{
	_cleanup_free_ char *trash = NULL;
	int r = state_discard(st, "images", name, &trash, e);

	return r == 0 && trash ? state_remove_tree(trash, e) : r;
}

/* 1: removed, 0: an import lives. */
static int reap(const struct state *st, const char *name, struct err *e)
{
	_cleanup_free_ char *path = state_path(st, "images", name, NULL);
	_cleanup_fd_ int fd =
	    path ? open(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC) : -1;
	int r;

	if (fd < 0)
		return errno == ENOENT ? 0 : err_sys(e, errno, "open %s", path ? path : name);
	if (flock(fd, LOCK_EX | LOCK_NB) < 0)
		return 0;
	r = images_discard(st, name, e);
	return r < 0 ? r : 1;
}

int images_recover(struct state *st, struct err *e)
{
	_cleanup_free_ char *path = path_join(st->dir, "images");
	_cleanup_strv_ char **v = NULL;
	_cleanup_fd_ int lock = -1;
	_cleanup_dir_ DIR *d = NULL;
	struct dirent *de;
	int r = path ? images_open(st, &lock, e) : nomem(e), n = 0;

	if (r < 0)
		return r;
	d = opendir(path);
	while (d && (de = readdir(d)))
		if ((str_starts(de->d_name, INCOMING) || str_starts(de->d_name, IMAGES_GONE)) &&
		    strv_add(&v, de->d_name) < 0)
			return nomem(e);
	for (size_t i = 0; r >= 0 && v && v[i]; i++) {
		r = str_starts(v[i], INCOMING) ? reap(st, v[i], e)
					       : images_finish_removal(st, v[i], e);
		n += r > 0;
	}
	return r < 0 ? r : n;
}
