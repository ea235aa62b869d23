#include "engine/state.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <sodium.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/cleanup.h"
#include "base/path.h"
#include "os/spread.h"

#define PATH_BUF 8192
#define KEY_BYTES 16 /* of the hash that names a workspace's store */

static int state_dir(char **ret, struct err *e)
{
	const char *xdg = getenv("XDG_STATE_HOME"), *home = getenv("HOME");
	_cleanup_buf_ struct buf b = BUF_INIT(PATH_BUF);

	if (xdg && xdg[0] == '/') {
		(void)buf_putf(&b, "%s/airlock", xdg);
	} else {
		if (!home || home[0] != '/') {
			struct passwd *pw = getpwuid(geteuid());

			home = pw ? pw->pw_dir : NULL;
		}
		if (!home)
			return err_set(e, ERR_INVALID,
				       "no home directory is known: set XDG_STATE_HOME");
		(void)buf_putf(&b, "%s/.local/state/airlock", home);
	}
	*ret = b.err ? NULL : path_normalize(buf_text(&b));
	return *ret ? 0 : err_set(e, ERR_INVALID, "the path of the state directory is too long");
}

static int make_parents(char *path, struct err *e)
{
	for (char *p = path + 1; (p = strchr(p, '/')); p++) {
		*p = '\0';
		if (mkdir(path, 0755) < 0 && errno != EEXIST) {
			int r = err_sys(
			    e, errno,
			    "create the state directory %s (set XDG_STATE_HOME to a place that can be written)",
			    path);

			*p = '/';
			return r;
		}
		*p = '/';
	}
	return 0;
}

static int check_dir(const char *dir, struct err *e)
{
	struct stat st;

	if (lstat(dir, &st) < 0)
		return err_sys(e, errno, "look at the state directory %s", dir);
	if (!S_ISDIR(st.st_mode))
		return err_set(e, ERR_INVALID,
			       "the state directory %s is not a directory: remove it", dir);
	if (st.st_uid != geteuid())
		return err_set(
		    e, ERR_PERMISSION,
		    "the state directory %s belongs to user %u, not to you (%u): set XDG_STATE_HOME",
		    dir, st.st_uid, geteuid());
	if ((st.st_mode & 022) != 0)
		return err_set(
		    e, ERR_PERMISSION,
		    "others can write the state directory %s: 'chmod 700 %s' after a look inside; "
		    "where that changes nothing (vfat, drvfs), set XDG_STATE_HOME to a directory on "
		    "another file system",
		    dir, dir);
	return 0;
}

static int make_dirs(struct state *st, struct err *e)
{
	static const char *const subs[] = {"workspaces", "leases",  "roots",
					   "runs",	 "unpacks", "trash"};
	struct stat sb;

	if (stat(st->dir, &sb) < 0) {
		int r = make_parents(st->dir, e);

		if (r < 0)
			return r;
		if (mkdir(st->dir, 0700) < 0 && errno != EEXIST)
			return err_sys(
			    e, errno,
			    "create the state directory %s (set XDG_STATE_HOME to a place that can be written)",
			    st->dir);
		spread_below(st->dir);
	}
	for (size_t i = 0; i < ARRAY_LEN(subs); i++) {
		int r = spread_mkdir(st->dir, subs[i]);

		if (r < 0)
			return err_sys(e, -r, "create %s/%s", st->dir, subs[i]);
	}
	return check_dir(st->dir, e);
}

int state_open(struct state *st, struct err *e)
{
	_cleanup_free_ char *db = NULL;
	int r;

	*st = (struct state){0};
	r = proc_self(&st->self, e);
	if (r == 0)
		r = state_dir(&st->dir, e);
	if (r == 0)
		r = make_dirs(st, e);
	if (r < 0)
		goto out;
	db = path_join(st->dir, "airlock.db");
	r = db ? db_open(db, &st->store, e)
	       : err_set(e, ERR_NOMEM, "state directory: out of memory");
out:
	if (r < 0)
		state_done(st);
	return r;
}

int state_apart(const struct state *st, const char *path, const char *what, struct err *e)
{
	_cleanup_free_ char *own = realpath(st->dir, NULL);

	if (!own)
		return err_sys(e, errno, "find the state directory %s", st->dir);
	if (!path_is_within(own, path) && !path_is_within(path, own))
		return 0;
	return err_set(e, ERR_INVALID,
		       "%s %.400s: Airlock's own state lies there (%.400s); set "
		       "XDG_STATE_HOME to another place",
		       what, path, own);
}

void state_done(struct state *st)
{
	db_close(st->store);
	free(st->dir);
	st->store = NULL;
	st->dir = NULL;
}

char *state_path(const struct state *st, const char *kind, const char *id, const char *leaf)
{
	struct buf b = BUF_INIT(PATH_BUF);

	(void)buf_putf(&b, "%s/%s/%s", st->dir, kind, id);
	if (leaf)
		(void)buf_putf(&b, "/%s", leaf);
	return buf_take(&b);
}

int state_mkdir(const struct state *st, const char *kind, const char *id, struct err *e)
{
	_cleanup_free_ char *p = state_path(st, kind, id, NULL);

	if (!p)
		return err_set(e, ERR_NOMEM, "state directory: out of memory");
	if (mkdir(p, 0700) < 0 && errno != EEXIST)
		return err_sys(e, errno, "create %s", p);
	return 0;
}

int state_workspace_store(const struct state *st, const char *workspace, const char *env,
			  char **ret, struct err *e)
{
	unsigned char hash[KEY_BYTES];
	char key[KEY_BYTES * 2 + 1];
	crypto_generichash_state h;

	if (sodium_init() < 0 || crypto_generichash_init(&h, NULL, 0, sizeof(hash)) != 0)
		return err_set(e, ERR_INTERNAL, "libsodium does not start");
	/* The zero byte between the two keeps "a" + "bc" apart from "ab" + "c". */
	(void)crypto_generichash_update(&h, (const unsigned char *)workspace,
					strlen(workspace) + 1);
	(void)crypto_generichash_update(&h, (const unsigned char *)env, strlen(env));
	(void)crypto_generichash_final(&h, hash, sizeof(hash));
	(void)sodium_bin2hex(key, sizeof(key), hash, sizeof(hash));
	*ret = state_path(st, "workspaces", key, NULL);
	return *ret ? 0 : err_set(e, ERR_NOMEM, "state directory: out of memory");
}

/* A user may have put runs/ on another disk, where the trash is not. */
static int discard_beside(const char *from, char **ret, struct err *e)
{
	_cleanup_free_ char *to = NULL;
	int r;

	if (asprintf(&to, "%s.gone", from) < 0) {
		to = NULL;
		return err_set(e, ERR_NOMEM, "state directory: out of memory");
	}
	r = state_remove_tree(to, e); /* of an attempt that was cut */
	if (r < 0)
		return r;
	if (rename(from, to) < 0)
		return err_sys(e, errno, "move %s out of the way", from);
	*ret = TAKE_PTR(to);
	return 0;
}

int state_discard(const struct state *st, const char *kind, const char *id, char **ret_trash,
		  struct err *e)
{
	_cleanup_free_ char *from = state_path(st, kind, id, NULL);
	_cleanup_free_ char *name = path_join(kind, id);
	_cleanup_free_ char *to = NULL;

	*ret_trash = NULL;
	if (!from || !name)
		return err_set(e, ERR_NOMEM, "state directory: out of memory");
	*strchr(name, '/') = '-';
	to = state_path(st, "trash", name, NULL);
	if (!to)
		return err_set(e, ERR_NOMEM, "state directory: out of memory");
	if (rename(from, to) < 0) {
		if (errno == EXDEV)
			return discard_beside(from, ret_trash, e);
		return errno == ENOENT ? 0 : err_sys(e, errno, "move %s into the trash", from);
	}
	*ret_trash = TAKE_PTR(to);
	return 0;
}

static int remove_below(int parent, const char *name, unsigned depth)
{
	_cleanup_dir_ DIR *d = NULL;
	struct dirent *de;
	int fd, r = 0;

	if (unlinkat(parent, name, 0) == 0 || errno == ENOENT)
		return 0;
	if (errno != EISDIR && errno != EPERM && errno != EACCES)
		return -errno;
	if (depth > 4096)
		return -ELOOP;
	fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0 && errno == EACCES && fchmodat(parent, name, 0700, 0) == 0)
		fd = openat(parent, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
	if (fd < 0)
		return errno == ENOENT ? 0 : -errno; /* somebody else empties the trash too */
	(void)fchmod(fd, 0700);
	d = fdopendir(fd);
	if (!d) {
		(void)close(fd);
		return -ENOMEM;
	}
	while (r == 0 && (de = readdir(d)))
		if (strcmp(de->d_name, ".") != 0 && strcmp(de->d_name, "..") != 0)
			r = remove_below(dirfd(d), de->d_name, depth + 1);
	if (r == 0 && unlinkat(parent, name, AT_REMOVEDIR) < 0 && errno != ENOENT)
		r = -errno;
	return r;
}

int state_remove_tree(const char *path, struct err *e)
{
	int r = remove_below(AT_FDCWD, path, 0);

	return r < 0 ? err_sys(e, -r, "remove %s", path) : 0;
}
